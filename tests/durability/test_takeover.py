"""Incarnations: an engine that is stopped, succeeded and woken up again corrupts nothing, here or on a replica."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import slipstream as sl
from slipstream.durability.board import Board
from slipstream.durability.follower import Follower
from slipstream.durability.fsck import check_replica
from slipstream.durability.inbox import newest_manifest
from slipstream.durability.lineage import computed_frontier, read_history
from slipstream.durability.replica import Replica
from slipstream.durability.restore import recover_into
from slipstream.durability.store import Store
from slipstream.errors import SupersededOnReplica
from slipstream.settings import Starting, starting_with
from slipstream.testing.oracle import assert_equal_rows, rows_of
from slipstream.testing.pretend import BAG, KEYED, Pretend, contents, eventually, expected
from slipstream.trace import list_all, list_layers


@pytest.fixture
def engines(tmp_path: Path) -> Iterator[tuple[Pretend, Pretend]]:
    """One that has computed three epochs, and one that has taken over from it without its knowing."""
    first = Pretend.on(tmp_path / "store")
    first.run(3)
    second = Pretend(Store.claim(tmp_path / "store", "pretend", takeover=True))
    yield first, second
    first.close()
    second.close()


def test_what_a_superseded_engine_writes_is_not_there(engines: tuple[Pretend, Pretend]) -> None:
    first, second = engines
    assert first.claim.superseded
    assert not second.claim.superseded
    first.run(4)  # it does not look
    assert computed_frontier(second.root) == 3
    assert read_history(second.root).frontier == 3
    assert {name.hi for name in list_layers(second.root / BAG)} == {1, 2, 3}
    assert {name.hi for name in list_all(second.root / BAG)[0]} == {1, 2, 3, 4, 5, 6, 7}
    second.run(2)
    assert computed_frontier(second.root) == 5
    for trace in (BAG, KEYED):
        for epoch in (4, 5):
            assert contents(second.root, trace, epoch) == expected(trace, epoch)
    assert {name.incarnation for name in list_layers(second.root / BAG) if name.hi > 3} == {2}


def test_a_superseded_follower_is_ignored_and_stops(tmp_path: Path) -> None:
    """The successor was recovered into a folder of its own, on another machine; the first knows nothing of it."""
    url = f"file://{tmp_path}/replica"
    first = Pretend.on(tmp_path / "store")
    board, follower = followed(first, url)
    board.tell(first.run(3))
    assert follower.step()
    recover_into(tmp_path / "store", url, tmp_path / "new")
    second = Pretend.on(tmp_path / "new")
    assert second.claim.incarnation == 2
    its_board, its_follower = followed(second, url)
    its_follower.step()  # claims its incarnation, with nothing to send yet
    board.tell(first.run(4))
    follower.step()  # it does not know, and commits epoch 7
    assert "0000000007-000001" in str(Replica(url).list("commits"))
    assert newest(url) == (3, 1), "nobody reads it"
    its_board.tell(second.run(1))
    assert its_follower.step()
    assert newest(url) == (4, 2)
    with pytest.raises(SupersededOnReplica) as error:
        Follower(first.origin(), url, board).step()
    assert str(error.value) == (
        f"replica '{url}': this process is incarnation 1 and was succeeded by incarnation 2 after epoch 3. It writes "
        "nothing more there; what it wrote past that epoch is ignored. Stop it."
    )
    assert check_replica(url).sound
    first.close()
    second.close()


def followed(engine: Pretend, url: str) -> tuple[Board, Follower]:
    board = Board(engine.root, engine.claim.incarnation, (url,))
    return board, Follower(engine.origin(), url, board)


def newest(url: str) -> tuple[int, int]:
    found = newest_manifest(Replica(url))
    assert found is not None
    return found.epoch, found.incarnation


ENGINE = """
import sys
import slipstream as sl
folder = sys.argv[1]
app = sl.App("lake", store=f"{folder}/store", master="local[1]", shards=2, replicas=[f"file://{folder}/replica"])
app.source("t", sl.files(f"{folder}/in", format="json", schema="k long, v long", settle=0))
app.view("sums", "SELECT k, sum(v) s FROM t GROUP BY k")
app.on_epoch(lambda report: print("epoch", report.epoch, flush=True))
try:
    app.run()
except sl.SlipstreamError as error:
    print(type(error).__name__, flush=True)
"""


@pytest.mark.spark
@pytest.mark.slow
def test_an_engine_that_is_stopped_succeeded_and_resumed(spark: SparkSession, tmp_path: Path) -> None:
    inbox = tmp_path / "in"
    inbox.mkdir()

    def more(number: int) -> None:
        (tmp_path / "next").write_text("\n".join(json.dumps({"k": i % 3, "v": number}) for i in range(9)))
        (tmp_path / "next").rename(inbox / f"{number}.json")

    more(1)
    engine = subprocess.Popen(
        [sys.executable, "-c", ENGINE, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert engine.stdout is not None
        assert engine.stdout.readline() == "epoch 1\n"
        os.kill(engine.pid, signal.SIGSTOP)
        more(2)
        url = f"file://{tmp_path}/replica"
        with starting_with(Starting(takeover=True)):
            app = sl.App("lake", store=tmp_path / "store", spark=spark, shards=2, replicas=[url])
        with app:
            app.source("t", sl.files(inbox, format="json", schema="k long, v long", settle=0))
            app.view("sums", "SELECT k, sum(v) s FROM t GROUP BY k")
            app.run(until=2)
            os.kill(engine.pid, signal.SIGCONT)
            more(3)
            rest = engine.stdout.read()
            assert rest.splitlines()[-1] == "Superseded"
            app.run(until=3)
            assert_equal_rows(rows_of(app.read("sums")), [(k, 3 * (1 + 2 + 3)) for k in range(3)], "sums")
            assert_equal_rows(rows_of(app.read("sums", as_of=2)), [(k, 9) for k in range(3)], "as of 2")
            assert eventually(lambda: app.frontiers().safe == 3)
        engine.wait(timeout=120)
    finally:
        if engine.poll() is None:
            os.killpg(engine.pid, signal.SIGKILL)
        engine.communicate()
