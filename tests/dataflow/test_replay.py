"""A replay gives bit-identical layers: within an epoch neither the order nor the batches that rows arrive in matter."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slipstream.dataflow.accumulate import Accumulate
from slipstream.dataflow.accumulators import Argument, Buffer
from slipstream.dataflow.combine import Combine
from slipstream.dataflow.extreme import Extreme
from slipstream.dataflow.join import Join, Summed
from slipstream.dataflow.record import Record
from slipstream.dataflow.regroup import Regroup
from slipstream.dataflow.semi import Semi
from slipstream.dataflow.task import Task
from slipstream.dataflow.topk import TopK
from slipstream.dataflow.whole import Whole

HASH = 4  # few hashes, so that keys collide
values = st.one_of(
    st.none(), st.sampled_from([0.1, -0.0, 0.0, 1e17, -1e17, math.nan, math.inf]), st.floats(-5, 5)
)
changes = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 6), values, st.sampled_from([-2, -1, 1, 1, 3])), max_size=40
)
Change = tuple[int, int, float | None, int]

JOINED = pa.schema(
    [
        ("side", pa.int32()),
        ("h", pa.int64()),
        ("r", pa.int64()),
        ("k0", pa.int64()),
        ("a0", pa.float64()),
        ("b0", pa.float64()),
        ("diff", pa.int64()),
    ]
)
BAG = pa.schema([("h", pa.int64()), ("r", pa.int64()), ("v0", pa.float64()), ("diff", pa.int64())])
KEYED = pa.schema([("h", pa.int64()), ("k0", pa.int64()), ("x0", pa.float64()), ("diff", pa.int64())])
EXTREME = pa.schema(
    [("h", pa.int64()), ("k0", pa.int64()), ("p0", pa.int64()), ("e0", pa.float64()), ("diff", pa.int64())]
)

LONG = Argument("long")
SUMMED = pa.schema([*(field for field in JOINED if field.name != "a0"), ("y0", pa.int64())])
KEYS = pa.schema([field for field in JOINED if field.name != "b0"])

OPERATORS: dict[str, Any] = {
    "accumulate": Accumulate(
        "v",
        "t",
        KEYED,
        (Argument("double", squares=True),),
        (Buffer("sum", 0, pa.float64()), Buffer("m2", 0, pa.float64())),
        emits=True,
    ),
    "extreme": Extreme(
        Accumulate("v", "t", EXTREME, (), (), emits=True), ("values",), EXTREME, (True,), (("extreme", 0),)
    ),
    "join": Join("v", ("left", "right"), JOINED),
    "join, combined": Join("v", ("left", "right"), JOINED, Combine(("k0",), ("a0",), (Argument("double"),))),
    "join, kept as sums": Join(
        "v",
        ("left", "right"),
        SUMMED,
        Combine(("k0",), ("s0", "s1", "s2"), (LONG,), kept=True),
        summed=(Summed(0, LONG),),
    ),
    "semi": Semi("v", ("left", "keys"), KEYS, anti=False),
    "anti": Semi("v", ("left", "keys"), KEYS, anti=True),
    "regroup": Regroup("v", ("left", "right"), JOINED),
    "topk": TopK("v", "t", BAG, 3),
    "record": Record("v", "t", BAG),
    "whole": Whole("v", "t", BAG),
}


def prefix(value: float) -> int:
    """An integer that is the less the larger a double is, with ties."""
    return -(2**62) if math.isnan(value) else int(max(min(-value, 1e18), -1e18))


def batches(schema: pa.Schema, rows: Sequence[Change], size: int) -> Iterator[pa.RecordBatch]:
    made: list[dict[str, Any]] = []
    for side, key, value, diff in rows:
        row = hash(None if value is None else "nan" if math.isnan(value) else value) % HASH
        known: dict[str, Any] = {"side": side, "h": key % HASH, "r": row, "k0": key, "diff": diff}
        known |= {"x0": value, "v0": value, "a0": None if side else value, "b0": value if side else None}
        known["y0"] = int(value) if value is not None and math.isfinite(value) else None
        known |= {"e0": value, "p0": 0 if value is None else prefix(value)}
        made.append({name: known[name] for name in schema.names})
    for at in range(0, len(made), size):
        yield pa.RecordBatch.from_pylist(made[at : at + size], schema=schema)


def digest(root: Path) -> dict[str, str]:
    files = sorted(path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.parametrize("name", OPERATORS)
@given(st.lists(changes, min_size=2, max_size=3), st.randoms(use_true_random=False), st.integers(1, 9))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_another_order_of_arrival_gives_the_same_bytes(
    name: str,
    tmp_path_factory: pytest.TempPathFactory,
    epochs: list[list[Change]],
    random: Any,
    size: int,
) -> None:
    operator = OPERATORS[name]
    digests = []
    for attempt in (0, 1):
        root = tmp_path_factory.mktemp(name) / "view"
        for number, rows in enumerate(epochs, start=1):
            arrived = list(rows)
            if attempt:
                random.shuffle(arrived)
            run(operator, root, number, batches(operator.input, arrived, size if attempt else 100))
        digests.append(digest(root))
    assert digests[0] == digests[1]
    assert digests[0]


def run(operator: Any, root: Path, epoch: int, arrived: Iterable[pa.RecordBatch]) -> list[pa.RecordBatch]:
    with pytest.MonkeyPatch.context() as patch:
        task = Task(root, epoch, 1, 0, 1)
        patch.setattr(Task, "current", staticmethod(lambda: task))
        return list(operator(arrived))
