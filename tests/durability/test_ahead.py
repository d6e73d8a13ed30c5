"""Lineage goes ahead of everything else, and is there for whoever has to compute epochs again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slipstream.core.clock import ManualClock
from slipstream.core.errors import ReplicaTrouble
from slipstream.durability.ahead import COPIES, covers
from slipstream.durability.board import read_replication
from slipstream.durability.manifest import Segment
from slipstream.durability.replica import Replica
from slipstream.durability.replicate import SEGMENT_BYTES, SEGMENTS_JOINED, joinable
from slipstream.store.layout import lineage_log
from slipstream.testing.copies import check_replica_holds, lineage_on, newest_manifest
from slipstream.testing.pretend import Hands, Pretend


@pytest.fixture
def pretend(tmp_path: Path) -> Iterator[Pretend]:
    engine = Pretend.on(tmp_path / "store")
    yield engine
    engine.close()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/replica"


class NoLayers(Replica):
    """A replica that takes no layers."""

    def put(self, name: str, body: bytes | Path) -> None:
        if name.startswith("data/"):
            raise TimeoutError("no room for layers")
        super().put(name, body)


def test_lineage_arrives_while_layers_stall(pretend: Pretend, url: str, tmp_path: Path) -> None:
    clock = ManualClock()
    agent = pretend.agent(url, clock=clock, objects=NoLayers)
    for _ in range(3):
        agent.hear(pretend.run(1))
        with pytest.raises(ReplicaTrouble):
            agent.follow()
        clock.advance(1.0)
        agent.lineage()
    pretend.cut(4)
    clock.advance(1.0)
    agent.lineage()
    known = lineage_on(url, tmp_path / "back").history
    assert (known.frontier, [cut.epoch for cut in known.pending]) == (3, [4])
    assert Replica(url).list("commits") == {}
    said = read_replication(pretend.store.disk)
    assert said.replicas[url].durable == 0
    assert f"lineage to {url}" not in said.errors


def test_it_goes_out_once_a_second_at_most_and_what_is_new_only(pretend: Pretend, url: str) -> None:
    clock = ManualClock()
    agent = pretend.agent(url, clock=clock)
    part = agent.parts[f"lineage to {url}"]
    pretend.run(1)
    assert part.step() == 1.0
    pretend.run(1)
    assert part.step() == 1.0, "not yet"
    assert len(Replica(url).list("lineage")) == COPIES
    clock.advance(1.0)
    part.step()
    found = [Segment.parse(name) for name in sorted(Replica(url).list("lineage"))]
    ends = [(each.start, each.stop) for each in found if each is not None]
    assert ends == [(0, ends[-1][0])] * COPIES + [ends[-1]] * COPIES
    clock.advance(1.0)
    part.step()
    assert len(Replica(url).list("lineage")) == 2 * COPIES, "nothing is new"


def test_half_a_line_is_not_sent(pretend: Pretend, url: str, tmp_path: Path) -> None:
    agent = pretend.agent(url)
    pretend.run(2)
    log = pretend.root / lineage_log(1)
    whole = log.read_bytes()
    log.write_bytes(whole + b"0123456789abcdef {cut")
    agent.lineage()
    assert [Replica(url).get(name) for name in Replica(url).list("lineage")] == [whole] * COPIES


def test_logs_of_earlier_incarnations_are_sent_where_they_are_not_there(
    pretend: Pretend, url: str, tmp_path: Path
) -> None:
    pretend.run(2)
    pretend.close()
    second = Pretend.on(tmp_path / "store")
    second.run(1)
    second.agent(url).lineage()
    assert lineage_on(url, tmp_path / "back").history.frontier == 3
    count = len(Replica(url).list("lineage"))
    second.agent(url).lineage()
    assert len(Replica(url).list("lineage")) == count, "an agent that is started again sends nothing twice"
    second.close()


def test_commits_name_what_was_sent_ahead_and_many_short_stretches_are_joined(
    pretend: Pretend, url: str, tmp_path: Path
) -> None:
    clock = ManualClock()
    agent = pretend.agent(url, clock=clock)
    for _ in range(3 * SEGMENTS_JOINED):
        word = pretend.run(1)
        clock.advance(1.0)
        agent.lineage()
        if word.computed % 4 == 0:
            agent.hear(word)
            agent.follow()
    manifest = check_replica_holds(url, tmp_path / "back", 1, 3 * SEGMENTS_JOINED)
    assert len(manifest.lineage) < COPIES * SEGMENTS_JOINED
    pretend.run(1)
    clock.advance(1.0)
    agent.lineage()
    ahead = set(Replica(url).list("lineage")) - {each.object for each in manifest.lineage}
    joined = follower_of(agent, url)._joined
    joined._discard()
    left = set(Replica(url).list("lineage"))
    assert left & ahead, "what runs ahead of the newest commit is not garbage"
    assert lineage_on(url, tmp_path / "again").history.frontier == 3 * SEGMENTS_JOINED + 1


def test_lineage_that_a_replica_lost_is_sent_again_after_a_while(
    pretend: Pretend, url: str, tmp_path: Path
) -> None:
    clock = ManualClock()
    agent = pretend.agent(url, clock=clock)
    pretend.run(3)
    agent.lineage()
    for name in Replica(url).list("lineage"):
        Replica(url).delete(name)
    clock.advance(31.0)
    agent.lineage()
    assert lineage_on(url, tmp_path / "back").history.frontier == 3


def test_a_commit_names_lineage_that_another_process_sent(pretend: Pretend, url: str) -> None:
    pretend.run(3)
    pretend.agent(url).lineage()
    agent = pretend.agent(url)
    agent.hear(pretend.run(1))
    agent.follow()
    assert {each.object for each in newest_manifest(url).lineage} == set(Replica(url).list("lineage"))


def follower_of(agent: Hands, url: str) -> Any:
    return agent.parts[f"replica {url}"]


def part_of(log: int, start: int, stop: int) -> Segment:
    return Segment(log, start, stop, f"{log}-{start}-{stop}")


@pytest.mark.parametrize(
    ("there", "tile"),
    [
        ([], []),
        ([(0, 5), (5, 9)], [(0, 5), (5, 9)]),
        ([(0, 5), (7, 9)], [(0, 5)]),
        ([(5, 9)], []),
        ([(0, 5), (5, 9), (0, 9)], [(0, 9)]),
        ([(0, 5), (3, 8), (5, 6), (8, 9)], [(0, 5), (3, 8), (8, 9)]),
    ],
)
def test_the_fewest_stretches_that_hold_a_log(
    there: list[tuple[int, int]], tile: list[tuple[int, int]]
) -> None:
    found = covers(part_of(1, *each) for each in there).get(1, ((),))[0]
    assert [(each.start, each.stop) for each in found] == tile


def test_what_is_left_covers_a_log_again() -> None:
    there = [(0, 5), (5, 9), (0, 9), (9, 12), (9, 12), (12, 13)]
    parts = [Segment(1, start, stop, f"{i}") for i, (start, stop) in enumerate(there)]
    first, second = covers(parts)[1]
    assert [each.object for each in first] == ["2", "3", "5"]
    assert [each.object for each in second] == ["0", "1", "4"]


def test_stretches_of_about_one_length_are_joined() -> None:
    short = [part_of(1, 100 * i, 100 * i + 100) for i in range(SEGMENTS_JOINED)]
    assert joinable(short) == tuple(short)
    assert joinable(short[1:]) == ()
    long = part_of(1, 0, SEGMENT_BYTES)
    after = [part_of(1, SEGMENT_BYTES + i, SEGMENT_BYTES + i + 1) for i in range(SEGMENTS_JOINED)]
    assert joinable([long, *after]) == tuple(after), "the long one is not written again"
    assert joinable([*short[:8], *(part_of(2, 100 * i, 100 * i + 100) for i in range(8))]) == ()
