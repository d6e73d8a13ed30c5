"""`slipstream sinks`, and what `slipstream status` says of them; without Spark."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from slipstream.cli.commands import main
from slipstream.observe.sinks import SinkStatus, read_sinks, write_sinks
from slipstream.testing.pretend import Pretend

FINE = SinkStatus(
    view="events",
    kind="folder",
    target="/out",
    mode="changes",
    when="computed",
    exactly_once=True,
    epoch=2,
    error=None,
    stopped=False,
    failures=0,
    delivered_at=1e9,
)


@pytest.fixture
def told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """What a command says of a store of three epochs with these sinks, and its exit code."""

    def run(sinks: dict[str, SinkStatus], *command: str) -> str:
        engine = Pretend.start(tmp_path / "store")
        engine.run(3 if not engine.epoch else 0)
        write_sinks(engine.claim.owned, sinks)
        engine.close()
        assert read_sinks(engine.store.disk) == sinks
        verb, *options = command
        monkeypatch.setattr(sys, "argv", ["slipstream", verb, str(tmp_path / "store"), *options])
        monkeypatch.setenv("COLUMNS", "200")
        with pytest.raises(SystemExit) as ended:
            main()
        return f"{ended.value.code or 0}\n{capsys.readouterr().out}"

    return run


@pytest.mark.parametrize("verb", ["sinks", "status"])
def test_how_far_each_is(told: Callable[..., str], verb: str) -> None:
    said = told({"out": FINE}, verb)
    assert said.startswith("0\n")
    row = next(line for line in said.splitlines() if line.startswith("out "))
    assert row.split()[:8] == ["out", "events", "folder", "/out", "changes", "2", "1", "epoch"]


def test_what_fails_and_what_has_stopped(told: Callable[..., str]) -> None:
    fails = replace(FINE, error="the target\nis down", failures=3)
    said = told({"a": fails, "b": replace(fails, stopped=True), "c": replace(fails, failures=1)}, "sinks")
    assert said.startswith("2\n")
    assert "failed 3 times: the target is down" in said
    assert "stopped: the target is down" in said
    assert "failed: the target is down" in said


def test_as_json(told: Callable[..., str]) -> None:
    said = told({"out": FINE}, "sinks", "--json")
    assert json.loads(said.partition("\n")[2])["out"]["epoch"] == 2


def test_none(told: Callable[..., str]) -> None:
    assert "pretend: no sinks" in told({}, "sinks")


def test_what_cannot_be_read_is_nothing(tmp_path: Path) -> None:
    engine = Pretend.start(tmp_path / "store")
    engine.close()
    assert read_sinks(engine.store.disk) == {}
    (tmp_path / "store" / "sinks.json").write_bytes(b"\0" * 100)
    assert read_sinks(engine.store.disk) == {}
