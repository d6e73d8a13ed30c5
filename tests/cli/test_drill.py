"""A rehearsed recovery: what it copies and compares, and the command as a cron job runs it."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from slipstream.cli.drill import compare, copy_store
from slipstream.durability.manifest import CommitName
from slipstream.durability.replica import Replica
from slipstream.store.store import Store
from slipstream.testing.pretend import BAG, Pretend, contents, eventually, expected
from slipstream.trace import list_layers

EPOCHS = 4
APP = """
from pathlib import Path
from pyspark.sql import functions as F
import slipstream as sl

here = Path(__file__).parent
app = sl.App("shop", store=here / "store", master="local[1]", shards=1, replicas=[f"file://{here}/replica"])
orders = app.source("orders", sl.files(here / "orders", format="json", schema="cid long", after_safe="keep"))

@app.view
def counts(orders):
    return orders.groupBy("cid").count()

app.sink("counts", sl.to_folder(here / "delivered"))
"""


@pytest.fixture
def original(tmp_path: Path) -> Iterator[Store]:
    """A store that an engine works on."""
    engine = Pretend.start(tmp_path / "store")
    engine.run(EPOCHS)
    yield engine.store
    engine.close()


def test_a_copy_is_the_store_as_a_crash_would_leave_it(original: Store, tmp_path: Path) -> None:
    copy_store(original, tmp_path / "copy")
    assert not (tmp_path / "copy" / "lock").exists(), "the engine holds its own"
    engine = Pretend.start(tmp_path / "copy")
    assert engine.epoch == EPOCHS
    assert contents(engine.root, BAG, EPOCHS) == expected(BAG, EPOCHS)
    engine.close()


def test_views_are_compared_by_what_they_hold(original: Store, tmp_path: Path) -> None:
    copy_store(original, tmp_path / "copy")
    assert compare(tmp_path / "copy", original, EPOCHS) == (1, [], {})
    assert compare(tmp_path / "copy", original, EPOCHS + 1)[0] == 0, "neither has that epoch"
    other = Pretend.start(tmp_path / "other")
    other.window = 1  # rows are taken away again
    other.run(EPOCHS)
    other.close()
    assert compare(other.root, original, EPOCHS) == (1, ["events"], {})
    for name in list_layers(tmp_path / "copy" / BAG):
        (tmp_path / "copy" / BAG / name.filename).unlink()
    compared, differing, uncompared = compare(tmp_path / "copy", original, EPOCHS)
    assert (compared, differing, [*uncompared]) == (0, [], ["events"])


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.spark
@pytest.mark.slow
def test_a_drill_restores_from_the_replica_and_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APP)
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "1.json").write_text("\n".join(f'{{"cid": {i % 7}}}' for i in range(100)))
    command = [sys.executable, "-m", "slipstream.cli"]
    engine = subprocess.Popen([*command, "run", "shop.py", "--json"], cwd=tmp_path, stdout=subprocess.PIPE)
    replica = Replica(f"file://{tmp_path}/replica")

    def durable() -> bool:
        names = map(CommitName.parse, replica.list("commits"))
        return any(name is not None and name.epoch == 1 for name in names)

    try:
        assert eventually(durable)
    finally:
        engine.send_signal(signal.SIGTERM)
        engine.communicate(timeout=120)
    shutil.rmtree(tmp_path / "orders")  # what is safe is not needed
    (tmp_path / "orders").mkdir()
    before = tree(tmp_path)
    assert any(name.startswith("delivered/") and name.endswith(".parquet") for name in before)
    done = subprocess.run(
        [*command, "drill", "shop.py", "--json"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["app"], said["replicated"], said["source"]) == ("shop", True, replica.url)
    assert (said["restored"], said["epoch"], said["passed"], said["differing"]) == (1, 1, True, [])
    assert said["compared"] >= 1
    assert said["predicted_seconds"] > 0
    after = tree(tmp_path)
    assert {name: body for name, body in after.items() if "__pycache__" not in name} == before
