"""Decoders of stores and replicas: whatever is said, with every digest right, is understood or told as a problem."""

from __future__ import annotations

import json
import re
import zlib
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from slipstream.core.errors import SlipstreamError
from slipstream.core.settings import Durability
from slipstream.durability.board import Progress, Replication, Trouble, read_replication
from slipstream.durability.checksum import sums_of
from slipstream.durability.evidence import Restoring
from slipstream.durability.manifest import ClaimName, CommitName, Kept, Manifest, Segment, Stored
from slipstream.durability.newest import find_newest
from slipstream.durability.start import plan_start
from slipstream.durability.survey import read_progress, read_restoring, survey
from slipstream.durability.timetravel import resolve_epoch
from slipstream.observe import read_status
from slipstream.store import chain, documents, layout
from slipstream.store.catalog import Catalog, SourceEntry, ViewEntry, read_catalog
from slipstream.store.disk import LocalDisk
from slipstream.store.history import Base, Mark, Place
from slipstream.store.lineage import read_lineage
from slipstream.store.records import Began, Computed, Cut, encode_record
from slipstream.store.shapes import checked
from slipstream.store.store import Store
from slipstream.testing.damage import unflushed
from slipstream.testing.pretend import BAG, Pretend
from slipstream.trace import LayerName

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=4),
    st.sampled_from([-1, 1 << 70, "traces/../..", "²", [], {}, [[]], {"a": []}]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


def test_a_document_in_the_place_of_another_is_none() -> None:
    raw = documents.encode({"app": "shop"}, layout.FORMAT)
    assert documents.decode(raw, layout.FORMAT) == {"app": "shop"}
    assert documents.decode(raw, layout.CATALOG) == "its checksum is not that of its contents"


MODEST = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


def forged(real: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Something like what was written: some values in it, at any depth, are others; or all of it is."""

    def paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        found = [at] if at else []
        inner = (
            value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        )
        for key, each in inner:
            found += paths(each, (*at, key))
        return found

    def put(path: tuple[Any, ...], value: Any, gone: bool) -> Any:
        made = json.loads(json.dumps(real))
        inside = made
        for key in path[:-1]:
            inside = inside[key]
        if gone:
            del inside[path[-1]]
        else:
            inside[path[-1]] = value
        return made

    changed = st.builds(put, st.sampled_from(paths(json.loads(json.dumps(real)))), VALUES, st.booleans())
    return changed | st.dictionaries(st.text(max_size=5), VALUES, max_size=3)


BASE = Base(
    epoch=4,
    log=1,
    end=300,
    digest="ab" * 8,
    app="id",
    sources={"t": {"epochs": 4}},
    unfolded={"u": [1]},
    rejected={"t": 1},
    marks=(Mark(Place(4, 1, 300, "ab" * 8), 4.0),),
).encode()
REPLICATION = Replication(
    3, {"file:///r": Progress(3)}, 1, 1, 3, {"upkeep": Trouble(1.0, "x")}, ("a/b",)
).encode()
CATALOG = Catalog(
    {"t": SourceEntry("Memory", {})},
    {"events": ViewEntry({}, "f", {"trace": BAG}, (BAG,), (("a", True, False),))},
).encode()
RESTORING = dict(vars(Restoring(2, 1, "ab", "from a replica")))
FORMAT = {"format": 2, "app": "pretend", "id": "x"}
RECORDS = [
    encode_record(Began(3, 3, 4, "id", (2, "ab"), (1,))),
    encode_record(Cut(4, 1.0, {"t": {"files": []}}, {"w": 1})),
    encode_record(Computed(3, 1.0, 0.5, 3, {"a": 1}, {"v": 2}, {"w": 3}, {"traces/v/1": "ab"}, 5)),
]
MANIFEST = Manifest(
    app="pretend",
    id="x",
    incarnation=1,
    sequence=1,
    epoch=3,
    clock=1.0,
    catalog=("catalog/000001-ab.json",),
    objects={"data/000001-1-3-ab-0.parquet": Stored("data/000001-1-3-ab-0.parquet", 7, "ff")},
    layers={BAG: (Kept(LayerName(1, 1, 3, 0, 1 << 31), 1, 1, "data/000001-1-3-ab-0.parquet", 0, 1, "d"),)},
    schemas={BAG: "00"},
    identities={BAG: "i"},
    lineage=(Segment(1, 0, 10, "lineage/000001-000000000000-000000000010-ab.log"),),
    safe=2,
)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of three epochs."""
    path = tmp_path_factory.mktemp("shapes") / "store"
    engine = Pretend.start(path)
    agent = engine.agent()
    agent.hear(engine.run(3))
    agent.persist()
    engine.close()
    return path


def everything(root: Path) -> None:
    """All that reads a store without writing to it: right, told, or an error of Slipstream's own."""
    store = Store.at(root)
    for read in (
        lambda: survey(store, whole=True),
        lambda: read_lineage(store.disk),
        lambda: read_lineage(store.disk, whole=True),
        lambda: read_progress(store.disk),
        lambda: read_replication(store.disk),
        lambda: read_restoring(store.disk),
        lambda: read_catalog(store.disk),
        lambda: find_newest(store),
        lambda: resolve_epoch(store, "2026-01-01T00:00:00+00:00"),
        lambda: resolve_epoch(store, "1970-01-01T00:00:02+00:00"),
        lambda: plan_start(root, "pretend", Durability()),
        lambda: Store.existing(root),
    ):
        with suppress(SlipstreamError):
            read()


def with_file(root: Path, name: str, body: bytes) -> None:
    """Everything, with another file in the place of one for as long as it takes."""
    path = root / name
    before = path.read_bytes() if path.exists() else None
    path.write_bytes(body)
    try:
        everything(root)
    finally:
        path.unlink() if before is None else path.write_bytes(before)


def document(root: Path, name: str, body: Any, *, copies: bool = False) -> None:
    raw = documents.encode(body, name if copies else "")
    if copies:
        copy = root / layout.copy_of(name)
        before = copy.read_bytes()
        copy.write_bytes(raw)
        try:
            with_file(root, name, raw)
        finally:
            copy.write_bytes(before)
    else:
        with_file(root, name, raw)


@MODEST
@given(forged(BASE))
@example({**BASE, "end": 1 << 70})
@example({**BASE, "marks": [[4, 1, 1 << 70, "ab", 1.0]]})
def test_a_base_that_says_anything(root: Path, body: Any) -> None:
    document(root, layout.BASE, body)


@MODEST
@given(forged(REPLICATION))
@example({**REPLICATION, "persisted": "x"})
def test_progress_that_says_anything(root: Path, body: Any) -> None:
    document(root, layout.PROGRESS, body)


@MODEST
@given(forged(RESTORING))
def test_a_note_of_a_recovery_that_says_anything(root: Path, body: Any) -> None:
    document(root, layout.RESTORING, body)


@MODEST
@given(forged(CATALOG))
@example({"sources": [], "views": {}})
@example({"sources": {}, "views": {"v": []}})
def test_a_catalog_that_says_anything(root: Path, body: Any) -> None:
    document(root, layout.CATALOG, body, copies=True)


@MODEST
@given(forged(FORMAT))
@example({"format": "two"})
def test_an_identity_that_says_anything(root: Path, body: Any) -> None:
    document(root, layout.FORMAT, body, copies=True)


@MODEST
@given(st.integers(0, 6), st.sampled_from(RECORDS).flatmap(forged) | VALUES)
@example(7, {"cut": 4, "clock": 1.0, "ranges": {}, "watermarks": 7})
@example(7, {"computed": 4, "clock": float("inf"), "seconds": 1.0, "rows": 1})
@example(0, [])
@example(7, 3)
def test_a_line_of_lineage_that_says_anything(root: Path, at: int, body: Any) -> None:
    """Lines as they were up to one, and then another that follows from it."""
    scan = chain.scan((root / layout.lineage_log(1)).read_bytes())
    kept = scan.lines[:at]
    raw = (root / layout.lineage_log(1)).read_bytes()[: kept[-1].end if kept else 0]
    _, line = chain.encode(kept[-1].digest if kept else chain.START, body)
    with_file(root, layout.lineage_log(1), raw + line)
    sums_of(chain.Line("", body, 0)) if isinstance(body, dict) else None


@MODEST
@given(forged(json.loads(MANIFEST.encode()[1].split(b"\n")[0])))
@example([])
@example({**json.loads(MANIFEST.encode()[1].split(b"\n")[0]), "layers": []})
@example({**json.loads(MANIFEST.encode()[1].split(b"\n")[0]), "schemas": {}})
def test_a_commit_that_says_anything(body: Any) -> None:
    raw = json.dumps(body).encode()
    name = CommitName(3, 1, 1, zlib.crc32(raw))
    try:
        found = Manifest.decode(name, raw + b"\n" + raw + b"\n", "file:///r")
    except SlipstreamError:
        return
    assert (found.epoch, found.incarnation, found.sequence) == (3, 1, 1)
    assert found.schemas.keys() >= found.layers.keys()
    assert Manifest.decode(
        CommitName(3, 1, 1, zlib.crc32(found.encode()[1].split(b"\n")[0])), found.encode()[1], "r"
    )


def test_a_commit_is_decoded_as_it_was_encoded() -> None:
    name, raw = MANIFEST.encode()
    parsed = CommitName.parse(name)
    assert parsed is not None
    assert Manifest.decode(parsed, raw, "r") == MANIFEST


def test_text_that_is_nested_without_end_is_no_document_and_no_line(root: Path) -> None:
    deep = b"[" * 100_000
    for name in (layout.PROGRESS, layout.BASE, layout.RESTORING, layout.FORMAT):
        with_file(root, name, deep)
    with_file(root, layout.lineage_log(1), chain.follow(chain.START, deep).encode() + b" " + deep + b"\n")


ODD = ["²", "³.log", "٣", "٣.log", "1²", "007", "9" * 200, "9" * 200 + ".log", "-1", "1 "]


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("folder", ["incarnations", "lineage", "sums"])
def test_a_name_that_is_nearly_a_number_is_none(root: Path, folder: str, name: str) -> None:
    store = Store.existing(root)
    newest = store.last_incarnation()
    with_file(root, f"{folder}/{name}", b"{}")
    (root / folder / name).write_bytes(b"{}")
    try:
        assert store.last_incarnation() == newest
        assert read_status(root).epoch == 3
    finally:
        (root / folder / name).unlink()


def test_objects_whose_names_are_nearly_right_are_none() -> None:
    assert CommitName.parse("commits/000000000²-000001-00000001-00000000.json") is None
    assert CommitName.parse("commits/٠٠٠٠٠٠٠٠٠٣-000001-00000001-00000000.json") is None
    assert ClaimName.parse(f"incarnations/{'9' * 200}-0000000000-ab") is None
    assert Segment.parse("lineage/00000३-000000000000-000000000010-ab.log") is None


@pytest.mark.parametrize("trace", [BAG])
def test_a_folder_in_the_place_of_a_layer_is_a_damaged_layer(tmp_path: Path, trace: str) -> None:
    with unflushed():
        engine = Pretend.start(tmp_path / "store")
        engine.run(2)
        engine.close()
        layer = sorted((tmp_path / "store" / trace).glob("*-0000000002-*.arrow"))[0]
        layer.unlink()
        (layer / "inside").mkdir(parents=True)
        store = Store.existing(tmp_path / "store")
        assert any(name.filename == layer.name for _, name in survey(store, whole=True).damaged)
        engine = Pretend.start(tmp_path / "store")
        assert engine.epoch == 1, "the epoch is computed again"
        engine.run(1)
        engine.close()
    assert list(layer.parent.glob(".*/inside")), "what was in the folder is not ours to delete"


@pytest.mark.parametrize(
    "name",
    [
        "lineage/1.log",
        "progress.json",
        "format.json",
        "catalog.json",
        "lineage/base.json",
        "restoring",
        "events/engine.log",
        "incarnations/1",
    ],
)
def test_a_folder_in_the_place_of_a_file_is_told(tmp_path: Path, name: str) -> None:
    with unflushed():
        engine = Pretend.start(tmp_path / "store")
        agent = engine.agent()
        agent.hear(engine.run(2))
        agent.persist()
        engine.close()
        path = tmp_path / "store" / name
        path.unlink(missing_ok=True)
        path.mkdir(parents=True)
        everything(tmp_path / "store")
        try:
            read_status(tmp_path / "store")
            Pretend.start(tmp_path / "store").close()
        except SlipstreamError:
            pass


def test_a_disk_gives_nothing_from_beyond_the_end(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    assert LocalDisk(tmp_path).read("a", 1 << 70) == b""


@dataclass(frozen=True)
class Sample:
    number: int
    time: float = 0.0
    text: str | None = None
    pairs: tuple[tuple[int, str], ...] = ()
    by_name: dict[str, int] = field(default_factory=dict)


@pytest.mark.parametrize(
    ("made", "wrong"),
    [
        (Sample(1, 2, "x", ((1, "a"),), {"a": 1}), None),
        (Sample(1.0), "Sample.number"),  # type: ignore[arg-type]
        (Sample(True), "Sample.number"),
        (Sample(1 << 63), "Sample.number"),
        (Sample(1, float("nan")), "Sample.time"),
        (Sample(1, 1.0, 7), "Sample.text"),  # type: ignore[arg-type]
        (Sample(1, pairs=((1,),)), "Sample.pairs[0]"),  # type: ignore[arg-type]
        (Sample(1, by_name={"a": "b"}), "Sample.by_name.a"),  # type: ignore[dict-item]
    ],
)
def test_a_dataclass_is_what_it_is_annotated_as(made: Sample, wrong: str | None) -> None:
    if wrong is None:
        assert checked(made) is made
    else:
        with pytest.raises(ValueError, match=re.escape(wrong)):
            checked(made)
