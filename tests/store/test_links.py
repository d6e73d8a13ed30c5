"""Nothing in a store is a path to follow."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import slipstream as sl
from slipstream.core.errors import SlipstreamError, StoreLinked
from slipstream.core.settings import Durability
from slipstream.durability.fsck import check_store
from slipstream.durability.start import plan_start
from slipstream.observe import read_status
from slipstream.store.store import Store
from slipstream.testing.pretend import BAG, Pretend


@pytest.fixture
def store(tmp_path: Path) -> Path:
    engine = Pretend.start(tmp_path / "store")
    engine.agent().all(engine.run(3))
    engine.close()
    (tmp_path / "store" / "sources" / "t").mkdir()
    return tmp_path / "store"


def files_of(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


@pytest.mark.parametrize(
    "name",
    [
        *("lineage", "incarnations", "sums", "traces", "events", "copies", "sources", "sources/t"),
        *("format.json", "catalog.json", "progress.json", "lineage/1.log", "lock"),
        *(BAG, "traces/events", f"{BAG}/LAYER"),
    ],
)
def test_a_link_in_a_store_is_refused_and_not_followed(store: Path, tmp_path: Path, name: str) -> None:
    if name.endswith("LAYER"):
        name = str(next((store / BAG).glob("*.arrow")).relative_to(store))
    elsewhere = tmp_path / "elsewhere"
    (store / name).rename(elsewhere)
    (store / name).symlink_to(elsewhere)
    before = files_of(tmp_path)
    for tried in (
        lambda: Pretend.start(store),
        lambda: plan_start(store, None, Durability()),
        lambda: read_status(store),
        lambda: sl.read_view(store, "events"),
        lambda: Store.existing(store),
    ):
        with pytest.raises(StoreLinked, match=rf"symbolic links in it \({name}\)"):
            tried()
    assert files_of(tmp_path) == before
    found = [each.what for each in check_store(store).findings if each.where == name]
    assert any("symbolic link" in what for what in found)


def test_a_link_to_nowhere_is_a_link(store: Path) -> None:
    shutil.rmtree(store / BAG)
    (store / BAG).symlink_to(store / "nowhere")
    with pytest.raises(StoreLinked):
        Pretend.start(store)


def test_the_store_itself_may_be_a_link(store: Path, tmp_path: Path) -> None:
    store.rename(tmp_path / "elsewhere")
    store.symlink_to(tmp_path / "elsewhere")
    engine = Pretend.start(store)
    assert engine.epoch == 3
    engine.run(1)
    engine.close()
    assert read_status(store).epoch == 4
    assert not [each for each in check_store(store).findings if "symbolic" in each.what]


def test_what_a_link_hid_is_recovered_once_it_is_gone(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/replica"
    engine = Pretend.start(tmp_path / "store", url)
    engine.agent(url).all(engine.run(3))
    engine.close()
    (tmp_path / "store" / BAG).rename(tmp_path / "elsewhere")
    (tmp_path / "store" / BAG).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SlipstreamError):
        Pretend.start(tmp_path / "store", url)
    (tmp_path / "store" / BAG).unlink()
    again = Pretend.start(tmp_path / "store", url)
    assert again.epoch == 3
    again.close()
