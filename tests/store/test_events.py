"""Events: one JSON line each, bounded in size, and in nobody's way."""

from __future__ import annotations

import logging
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from slipstream.core.errors import StoreFull
from slipstream.store import events
from slipstream.store.disk import LocalDisk
from slipstream.store.events import fields, log_events, read_events, stop_logging

LOG = logging.getLogger("slipstream.agent")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LocalDisk]:
    disk = LocalDisk(tmp_path)
    handler = log_events(disk, "agent", 3)
    yield disk
    stop_logging(handler, "agent")


def test_an_event_says_who_what_and_why(disk: LocalDisk) -> None:
    LOG.warning("a layer is damaged", extra=fields(part="upkeep", epoch=7, trace="traces/v/1"))
    try:
        raise ValueError("a mistake")
    except ValueError:
        LOG.exception("a part crashed", extra=fields(part="sums"))
    first, second = read_events(disk, "agent")
    assert first.pop("time") > 0
    assert first == {
        "part": "upkeep",
        "level": "warning",
        "incarnation": 3,
        "event": "a layer is damaged",
        "epoch": 7,
        "trace": "traces/v/1",
    }
    assert second["level"] == "error"
    assert "ValueError: a mistake" in second["traceback"]


def test_events_below_info_and_of_others_are_left_out(disk: LocalDisk) -> None:
    LOG.debug("nothing")
    logging.getLogger("slipstream.engine").error("somebody else")
    assert read_events(disk, "agent") == []


def test_two_files_of_bounded_size_are_kept(disk: LocalDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "LARGEST", 1000)
    for number in range(100):
        LOG.info("event %d", number)
    sizes = [disk.size(f"events/agent.log{suffix}") for suffix in ("", ".1")]
    assert max(sizes) <= 1000
    assert disk.list("events") == ["agent.log", "agent.log.1"]
    told = [event["event"] for event in read_events(disk, "agent")]
    assert told == [f"event {number}" for number in range(100 - len(told), 100)]


def test_an_event_that_cannot_be_written_is_counted(disk: LocalDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    LOG.info("before")
    with monkeypatch.context() as full:

        def fails(*_: object) -> None:
            raise StoreFull("store")

        full.setattr(LocalDisk, "append", fails)
        LOG.info("lost")
        LOG.info("lost too")
    LOG.info("after")
    assert [(event["event"], event.get("missing")) for event in read_events(disk, "agent")] == [
        ("before", None),
        ("after", 2),
    ]


def test_a_line_that_was_torn_is_passed_over(disk: LocalDisk) -> None:
    LOG.info("before")
    disk.append("events/agent.log", b'{"event": "to\n')
    LOG.info("after")
    assert [event["event"] for event in read_events(disk, "agent")] == ["before", "after"]


def test_events_are_for_their_owner(disk: LocalDisk) -> None:
    LOG.info("something")
    assert stat.S_IMODE((disk.root / "events" / "agent.log").stat().st_mode) == 0o600
