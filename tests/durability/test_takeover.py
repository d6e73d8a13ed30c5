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
from slipstream.core.errors import Superseded, SupersededOnReplica
from slipstream.core.settings import Starting, starting_with
from slipstream.durability.fsck import check_replica
from slipstream.durability.inbox import newest_manifest
from slipstream.durability.replica import Replica
from slipstream.durability.start import recover_into
from slipstream.store.lineage import computed_frontier, read_lineage
from slipstream.store.store import Claim, Store, claim_store
from slipstream.testing.oracle import assert_equal_rows, rows_of
from slipstream.testing.pretend import BAG, KEYED, Pretend, contents, eventually, expected
from slipstream.trace import list_all, list_layers


@pytest.fixture
def engines(tmp_path: Path) -> Iterator[tuple[Pretend, Pretend]]:
    """One that has computed three epochs, and one that has taken over from it without its knowing."""
    first = Pretend.on(tmp_path / "store")
    first.run(3)
    second = Pretend(claim_store(Store.at(tmp_path / "store"), "pretend", takeover=True))
    yield first, second
    first.close()
    second.close()


def test_what_a_superseded_engine_writes_is_not_there(engines: tuple[Pretend, Pretend]) -> None:
    first, second = engines
    assert first.claim.superseded
    assert not second.claim.superseded
    first.run(4)  # it does not look
    assert computed_frontier(second.store.disk) == 3
    assert read_lineage(second.store.disk).history.frontier == 3
    assert {name.hi for name in list_layers(second.root / BAG)} == {1, 2, 3}
    assert {name.hi for name in list_all(second.root / BAG)[0]} == {1, 2, 3, 4, 5, 6, 7}
    second.run(2)
    assert computed_frontier(second.store.disk) == 5
    for trace in (BAG, KEYED):
        for epoch in (4, 5):
            assert contents(second.root, trace, epoch) == expected(trace, epoch)
    assert {name.incarnation for name in list_layers(second.root / BAG) if name.hi > 3} == {2}


def test_a_superseded_engine_that_tidies_up_removes_nothing_of_its_successor(
    engines: tuple[Pretend, Pretend], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = engines
    first.write(4)  # an epoch that it was at
    second.run(2)
    with pytest.raises(Superseded):
        first.claim.discard_after(3)
    monkeypatch.setattr(Claim, "superseded", False)  # it asked a moment ago
    assert first.claim.discard_after(3) == 4
    for trace in (BAG, KEYED):
        assert {name.incarnation for name in list_all(second.root / trace)[0] if name.hi > 3} == {2}
        assert contents(second.root, trace, 5) == expected(trace, 5)


def test_a_superseded_follower_is_ignored_and_stops(tmp_path: Path) -> None:
    """The successor was recovered into a folder of its own, on another machine; the first knows nothing of it."""
    url = f"file://{tmp_path}/replica"
    first = Pretend.on(tmp_path / "store")
    agent = first.agent(url)
    agent.hear(first.run(3))
    agent.follow()
    assert recover_into(tmp_path / "store", [url], tmp_path / "new").claim.incarnation == 2
    second = Pretend.on(tmp_path / "new")
    assert second.claim.incarnation == 3
    its_agent = second.agent(url)
    its_agent.follow()  # claims its incarnation, with nothing to send yet
    agent.hear(first.run(4))
    with pytest.raises(SupersededOnReplica):
        agent.follow()  # it finds out only after it has committed epoch 7
    assert "0000000007-000001" in str(Replica(url).list("commits"))
    assert newest(url) == (3, 1), "nobody reads it"
    its_agent.hear(second.run(1))
    its_agent.follow()
    assert newest(url) == (4, 3)
    with pytest.raises(SupersededOnReplica) as error:
        first.agent(url).follow()
    assert str(error.value) == (
        f"replica '{url}': this process is incarnation 1 and was succeeded by incarnation 3 after epoch 3. It writes "
        "nothing more there; what it wrote past that epoch is ignored. Stop it."
    )
    assert check_replica(url).findings == ()
    first.close()
    second.close()


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
