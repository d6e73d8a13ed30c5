"""An epoch's job on Spark under the loop: figures, bad rows, failures that are explained."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import slipstream as sl
from slipstream.app.planning import Declared, Plans
from slipstream.core.clock import SystemClock
from slipstream.core.errors import BadInput, CannotHeal, EpochFailed
from slipstream.core.settings import Durability, Settings
from slipstream.durability.board import Replication, Word
from slipstream.durability.ledger import StoreLedger, Upkeep
from slipstream.epoch import Budget, EpochReport, Loop, Options, Place, Rejects, SparkJob, Watermarks
from slipstream.plan import Catalyst
from slipstream.sources import SESSION_SETTINGS
from slipstream.spark.session import epoch_session
from slipstream.store.layers import combined
from slipstream.store.lineage import Lineage, read_lineage
from slipstream.store.store import Identity, Store, claim_store
from slipstream.trace import LayerName, Span, TraceReader, shard_span, validate

pytestmark = pytest.mark.spark

SHARDS = 2
REJECTED = pa.schema([(name, pa.int64()) for name in ("h", "r", "v0", "diff")])


class Agent:
    def tell(self, word: Word) -> None:
        return

    def look(self) -> None:
        return

    def close(self) -> None:
        return


class Silent:
    def now(self) -> Replication:
        return Replication()


class Engine:
    """A loop over one source and some views, put together by hand."""

    def __init__(
        self, spark: SparkSession, root: Path, source: Any, **views: Callable[[DataFrame], DataFrame]
    ) -> None:
        epochs = epoch_session(spark, SHARDS)
        for key, value in SESSION_SETTINGS.items():
            epochs.conf.set(key, value)
        self.store = Store.at(root)
        self.claim = claim_store(self.store, "app")
        lineage = self.claim.begin(Identity("app", "id"), Lineage(), 0, 0)
        source.attach("t", epochs, root / "sources" / "t", [])
        placeholders = {"t": Catalyst(spark).placeholder(source.row_schema)}
        frames = {name: query(placeholders["t"]) for name, query in views.items()}
        placeholders |= {name: Catalyst(spark).placeholder(frame.schema) for name, frame in frames.items()}
        declared = Declared(
            epochs, {"t": source}, frames, (), placeholders, SHARDS, Settings(little=0), known={}
        )
        plans = Plans(declared, root)
        traces = sorted(
            {trace for root in plans.steps.values() for step in root.walk() for trace in step.traces}
        )
        rejects = {"t": Rejects("traces/t_rejected/1-view", REJECTED, bad_rows)} if source.can_reject else {}
        spans: dict[str, tuple[Span, ...]] = {
            trace: tuple(shard_span(i, SHARDS) for i in range(SHARDS)) for trace in traces
        }
        spans |= {each.trace: (Span.whole(),) for each in rejects.values()}
        self.claim.fence(0, spans)
        job = SparkJob(
            spark=epochs,
            plans=plans,
            inputs={"t": source},
            place=Place(root, self.claim.incarnation),
            rejects=rejects,
            late={},
            reads={},
            clock=SystemClock(),
        )
        ledger = StoreLedger(
            claim=self.claim,
            lineage=lineage,
            past=read_lineage(self.store.disk).history,
            durability=Durability(),
            agent=Agent(),
            watching=Silent(),
            traces={trace: (each,) for trace, each in spans.items()},
            upkeep=Upkeep((), lambda epoch, clock: 0),
            sources={"t": source},
            heal=lambda: self.heal(),
        )
        options = Options({"t": Budget.start("rows", 1.0)}, Watermarks({}, {}, {}))
        past = read_lineage(self.store.disk).history
        self.loop = Loop(job, {"t": source}, ledger, past, options, SystemClock())
        self.job, self.traces = job, traces
        self.heal: Callable[[], tuple[str, ...]] = lambda: ()
        self.sound = True

    def rows(self, trace: str) -> int:
        """The rows of a trace as of the newest epoch."""
        reader = TraceReader(self.store.root / trace, self.loop.frontier, Span.whole())
        return sum(table.num_rows for table in reader.snapshot())


def bad_rows(taken: Any) -> pa.Table:
    return pa.table([[1], [1], [7], [1]], schema=REJECTED)


def sums(frame: DataFrame) -> DataFrame:
    return frame.groupBy("k").agg(F.sum("v").alias("s"))


@pytest.fixture
def engine(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[..., Engine]]:
    made: list[Engine] = []

    def engine(source: Any, **views: Any) -> Engine:
        made.append(Engine(spark, tmp_path / "store", source, **views))
        return made[-1]

    yield engine
    for each in made:
        for trace in each.store.traces() if each.sound else ():
            validate(each.store.root / trace, each.loop.frontier)
        each.loop.close()
        each.claim.release()


def test_an_epoch_is_computed_and_its_record_names_what_was_written(engine: Callable[..., Engine]) -> None:
    source = sl.memory("k string, v long")
    it = engine(source, sums=sums)
    reports: list[EpochReport] = []
    it.loop.listeners.append(reports.append)
    source.append([("x", 1), ("y", 2), ("x", 3)])
    assert it.loop.run("caught_up").rows == 3
    source.append([("z", 1)])
    it.loop.run("caught_up")
    (first, second) = read_lineage(it.store.disk).history.computed
    assert (first.rows, second.rows, set(first.layers)) == (3, 1, set(it.traces))
    assert list(reports[0].steps) == ["cut", "frame", "leaf", "plan", "run", "stats", "seal", "publish"]
    for trace, digest in second.layers.items():
        names = [LayerName(1, 2, 2, *vars(shard_span(i, SHARDS)).values()) for i in range(SHARDS)]
        assert digest == combined(it.store.layers.digest(trace, name) for name in names)
    assert it.rows(it.traces[0]) == 3
    assert it.loop.measured()


def test_a_failed_epoch_says_in_which_view_and_on_which_row_and_leaves_nothing(
    engine: Callable[..., Engine],
) -> None:
    source = sl.memory("k string, v long")
    it = engine(source, sums=sums, shown=lambda frame: frame.select("k"))
    source.append([("x", 2**62)])
    it.loop.run("caught_up")
    source.append([("x", 2**62), ("y", 1)])
    with pytest.raises(EpochFailed) as failed:
        it.loop.run("caught_up")
    assert failed.value.views == ("sums",)
    assert "It fails on this row of 't': {'k': 'x', 'v': 4611686018427387904}" in str(failed.value)
    left = {name.hi for trace in it.store.traces() for name in it.store.layers.listed(trace)[0]}
    assert left == {1}
    source.retract([("x", 2**62)])
    with pytest.raises(EpochFailed):
        it.loop.run("caught_up")  # in this process the same input is taken again


@pytest.mark.parametrize("on_bad", ["reject", "fail"])
def test_bad_rows_are_kept_or_fail_the_epoch(
    engine: Callable[..., Engine], tmp_path: Path, on_bad: Literal["reject", "fail"]
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"k": "x", "v": 1, "d": 1}\n{"k": "y", "v": 2}\n')
    schema = "k string, v long, d long"
    source = sl.files(tmp_path / "in", format="json", schema=schema, diff="d", settle=0, on_bad=on_bad)
    it = engine(source, sums=sums)
    if on_bad == "fail":
        with pytest.raises(BadInput):
            it.loop.run("caught_up")
        assert (it.loop.frontier, read_lineage(it.store.disk).history.dropped) == (0, frozenset({1}))
    else:
        assert it.loop.run("caught_up").rejected == 1
        assert it.rows("traces/t_rejected/1-view") == 1
        (done,) = read_lineage(it.store.disk).history.computed
        assert set(done.layers) == {*it.traces, "traces/t_rejected/1-view"}


@pytest.mark.parametrize("copy", [True, False], ids=["a replica has it", "nobody has it"])
def test_a_damaged_layer_that_a_task_finds_is_healed_or_named(
    engine: Callable[..., Engine], copy: bool
) -> None:
    source = sl.memory("k string, v long")
    it = engine(source, sums=sums)
    source.append([(key, 1) for key in "abcdefgh"])
    it.loop.run("caught_up")
    files = sorted((it.store.root / it.traces[0]).glob("*.arrow"))
    whole = {file: file.read_bytes() for file in files}
    for file, body in whole.items():
        middle = body.index(b"ARROW1") + len(body) // 2
        file.write_bytes(body[:middle] + bytes([body[middle] ^ 1]) + body[middle + 1 :])

    def heal() -> tuple[str, ...]:
        for file, body in whole.items() if copy else ():
            file.write_bytes(body)
        return tuple(file.name for file in whole) if copy else ()

    it.heal, it.sound = heal, copy
    source.append([("a", 1)])
    if copy:
        assert it.loop.run("caught_up").epochs == 1
        assert read_lineage(it.store.disk).history.dropped == frozenset()
    else:
        with pytest.raises(CannotHeal, match=rf"The layer {it.traces[0]}/000001-0000000001-.* is damaged"):
            it.loop.run("caught_up")
        assert len(read_lineage(it.store.disk).history.pending) == 1
