"""Who may read what a store holds."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader

import slipstream as sl
from slipstream.core.errors import StoreVanished
from slipstream.core.permissions import file_mode, make_empty, make_folders
from slipstream.core.settings import Starting, starting_with
from slipstream.testing.pretend import BAG, Pretend, eventually
from slipstream.trace.writer import TraceWriter


@pytest.fixture(autouse=True)
def mask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def modes(*roots: Path) -> dict[str, int]:
    """The permissions of everything below some folders."""
    found = {}
    for root in roots:
        for path in root.rglob("*"):
            try:
                found[str(path.relative_to(root.parent))] = stat.S_IMODE(path.lstat().st_mode)
            except FileNotFoundError:  # removed by a running agent
                continue
    return found


def open_to_others(*roots: Path) -> dict[str, str]:
    return {name: oct(mode) for name, mode in modes(*roots).items() if mode & 0o077}


class Ticks(SimpleDataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"at": 0}

    def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[int]], dict[str, int]]:
        end = min(start["at"] + 2, 4)
        return iter([(i,) for i in range(start["at"], end)]), {"at": end}

    def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Iterator[tuple[int]]:  # noqa: N802
        return iter([(i,) for i in range(start["at"], end["at"])])


class TickSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "ticks"

    def schema(self) -> str:
        return "i long"

    def simpleStreamReader(self, schema: object) -> Ticks:  # noqa: N802
        return Ticks()


def app_of(spark: SparkSession, folder: Path, *, shared: bool) -> tuple[sl.App, sl.Memory]:
    app = sl.App(
        "private",
        store=folder / "store",
        spark=spark,
        shards=2,
        replicas=[f"file://{folder}/replica"] if shared else [],
        shared=shared,
    )
    memory = sl.memory("k long, v long", max_appends_per_epoch=2)
    app.source("held", memory)
    app.source("t", sl.files(folder / "in", format="json", schema="k long", settle=0))
    app.source("ticks", sl.stream(TickSource))
    app.view("sums", "SELECT k, sum(v) AS v FROM held GROUP BY k")
    app.view("joined", "SELECT held.k, v FROM held JOIN t ON held.k = t.k")
    app.view("seen", "SELECT k, count(*) AS n FROM t GROUP BY k")
    app.view("counted", "SELECT count(*) AS n FROM ticks")
    return app, memory


def fill(app: sl.App, memory: sl.Memory, folder: Path, *numbers: int) -> None:
    """Epochs, until they are on disk and, if there are many, merged."""
    for number in numbers:
        memory.append([(number % 3, number), (number, 1)])
        (folder / "in" / f"{number}.json").write_text(f'{{"k": {number}}}\n{{oops\n')
        app.run(until="caught_up")
    assert eventually(lambda: app.frontiers().persisted == app.epoch)
    assert len(numbers) == 1 or eventually(lambda: any((folder / "store").glob("traces/*/*/*.flat.arrow")))


def test_every_file_of_a_store_is_its_owners(spark: SparkSession, tmp_path: Path) -> None:
    """After epochs, merges, a restart and a rebuild, in a folder that was there before and is open to all."""
    (tmp_path / "store").mkdir(mode=0o755)
    (tmp_path / "in").mkdir()
    app, memory = app_of(spark, tmp_path, shared=False)
    with app:
        fill(app, memory, tmp_path, *range(10))
    with starting_with(Starting(rebuild=("sums",))):
        app, memory = app_of(spark, tmp_path, shared=False)
    with app:
        fill(app, memory, tmp_path, 10)
        found = modes(tmp_path / "store")
    kinds = {name.split("/")[1] for name in found}
    assert {"sources", "traces", "lineage", "events", "progress.json", "sums"} <= kinds
    assert {"held", "t"} <= {name.split("/")[2] for name in found if name.startswith("store/sources/")}
    assert {name: oct(mode) for name, mode in found.items() if mode & 0o077} == {}


def test_a_shared_store_and_its_replica_may_be_read_by_others(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    app, memory = app_of(spark, tmp_path, shared=True)
    with app:
        fill(app, memory, tmp_path, 1)
        assert eventually(lambda: app.frontiers().safe == app.epoch)
        found = modes(tmp_path / "store", tmp_path / "replica")
    assert {"store", "replica"} == {name.split("/")[0] for name in found}
    assert {name: oct(mode) for name, mode in found.items() if not mode & 0o044 and "/." not in name} == {}


def test_what_an_agent_merges_is_its_owners(tmp_path: Path) -> None:
    engine = Pretend.start(tmp_path / "store", f"file://{tmp_path}/replica")
    agent = engine.agent(f"file://{tmp_path}/replica")
    for _ in range(12):
        agent.all(engine.run(1))
    engine.close()
    assert any(path.name.endswith("flat.arrow") for path in (tmp_path / "store" / BAG).iterdir())
    assert open_to_others(tmp_path / "store", tmp_path / "replica") == {}


@pytest.mark.parametrize(("mode", "file"), [(0o700, 0o600), (0o755, 0o644), (0o750, 0o640)])
def test_what_is_made_is_as_open_as_the_folder_that_it_is_in(tmp_path: Path, mode: int, file: int) -> None:
    (tmp_path / "a").mkdir(mode=mode)
    for _ in range(2):
        make_folders(tmp_path / "a" / "b" / "c", tmp_path / "a")
    make_empty(tmp_path / "a" / "b" / "c" / "d")
    assert file_mode(tmp_path / "a" / "b") == file
    assert modes(tmp_path / "a") == {"a/b": mode, "a/b/c": mode, "a/b/c/d": file}


def test_a_store_that_is_gone_is_not_made_anew_by_what_is_left_to_do_in_it(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with pytest.raises(StoreVanished, match="is gone"):
        make_folders(store / "sources" / "orders" / "nothing", store)
    with pytest.raises(StoreVanished):
        TraceWriter(store / "traces" / "v" / "1-view", 1)
    assert not store.exists()
