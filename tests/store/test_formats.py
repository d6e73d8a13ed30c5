"""A store of another format: refused by everything that opens one, with what to do, and left as it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from slipstream.core.errors import NewerFormat, OlderFormat
from slipstream.core.settings import Durability
from slipstream.durability.fsck import check_store
from slipstream.durability.repair import repair
from slipstream.durability.start import plan_start
from slipstream.observe import read_status
from slipstream.observe.status import read_frontiers
from slipstream.store.disk import LocalDisk
from slipstream.store.store import Identity, Store, claim_store, write_identity
from slipstream.testing.pretend import Pretend

OPENERS: dict[str, Callable[[Path], object]] = {
    "a start": Pretend.start,
    "a plan": lambda path: plan_start(path, None, Durability()),
    "status": read_status,
    "frontiers": read_frontiers,
    "fsck": check_store,
    "a repair": lambda path: repair(path, ()),
    "a takeover": lambda path: claim_store(Store.at(path), "pretend", takeover=True),
}


def tree(folder: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.mark.parametrize("opener", OPENERS)
def test_a_store_of_format_1_is_refused_and_left_as_it_is(tmp_path: Path, opener: str) -> None:
    """As the last version that wrote it left one: plain JSON, lineage as JSON lines, layers without seals."""
    for name, body in (
        ("format.json", json.dumps({"format": 1, "app": "pretend"})),
        ("catalog.json", json.dumps({"sources": {}, "views": {}})),
        ("incarnations/1", "{}"),
        ("lineage/1.jsonl", '{"cut":1,"clock":1.0,"ranges":{}}\n{"computed":1}\n'),
        ("traces/v/1-view/000001-0000000001-0000000001-00000000-80000000.log.arrow", "ARROW1"),
        ("lock", ""),
    ):
        (tmp_path / "store" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "store" / name).write_text(body)
    before = tree(tmp_path)
    with pytest.raises(OlderFormat, match=r"has format 1, which has no checksums; .* Go on with the version"):
        OPENERS[opener](tmp_path / "store")
    assert tree(tmp_path) == before


@pytest.mark.parametrize("opener", OPENERS)
def test_a_store_of_a_later_format_is_refused_and_left_as_it_is(
    tmp_path: Path, opener: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Pretend.start(tmp_path / "store")
    engine.run(1)
    engine.close()
    with monkeypatch.context() as later:
        later.setattr("slipstream.store.store.FORMAT", 3)
        write_identity(LocalDisk(tmp_path / "store"), Identity("pretend", engine.identity.id))
    before = tree(tmp_path)
    with pytest.raises(NewerFormat, match=r"has format 3; .* Install the newer Slipstream"):
        OPENERS[opener](tmp_path / "store")
    assert tree(tmp_path) == before
