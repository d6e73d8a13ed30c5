"""Reading a replica: what it holds, and layers out of its objects.

`look` tells everything that a decision needs: whose replica it is, its commits (damaged ones by name: their epoch is in
it), the lineage that is there, and which objects are there with their sizes. Lineage is taken by listing, whether a
commit names it or not: its lines prove themselves. Nothing is trusted because of its place or its name. A replica that
cannot be read is told as such, with the error; it never ends a start by itself.

Every object that is fetched is compared with the size and checksum that a commit has for it, and a layer out of it is
written under a name of the incarnation that fetches it, so that no predecessor can mean it. All objects that turn out
damaged are told at once (`Spoiled`), so that one can decide again without them.

A large layer may be left where it is, with a note in its place (`leave`). Whoever needs it reads its row groups alone
(`bring_home`), page by page with their checksums. The note names what each other replica has that does as well, so that
losing one of them costs nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from slipstream.core.clock import Clock, SystemClock
from slipstream.core.errors import DamagedObject, LayerAway, ReplicaTrouble, SlipstreamError
from slipstream.durability.checksum import totals_of
from slipstream.durability.evidence import Commit, Remote, Wanted
from slipstream.durability.joining import UNKNOWN, Guarded, Opener, is_named, read_owner
from slipstream.durability.manifest import (
    ClaimName,
    CommitName,
    Kept,
    Manifest,
    Segment,
    Stored,
    valid_commits,
)
from slipstream.durability.pack import decode_schema, unpack
from slipstream.durability.replica import Objects, Replica, checked_body, shown
from slipstream.durability.work import LayerWork
from slipstream.store import documents
from slipstream.store.catalog import Catalog
from slipstream.store.layout import SPOOL
from slipstream.store.shapes import checked
from slipstream.store.store import Store
from slipstream.trace import LayerName, damaged, leave_note, register_bringer

PARALLEL = 8
_PAUSES = (0.2, 1.0, 3.0)  # seconds between attempts to read an object
_UNREAD = 3  # objects that cannot be read, of a replica that can
_FOLDERS = ("data", "catalog", "sums")


class Spoiled(Exception):
    """Objects of replicas, by URL, that are not what was written; and replicas that cannot be read any more."""

    def __init__(self, objects: Mapping[tuple[str, str], str], silent: Mapping[str, str]) -> None:
        self.objects, self.silent = objects, silent
        super().__init__(f"{len(objects)} objects are damaged, {len(silent)} replicas cannot be read")


def manifests(objects: Objects) -> Iterator[Manifest]:
    """What the replica's valid commits say, newest first; damaged ones are left out."""
    for name in valid_commits(objects.list("commits"), objects.list("incarnations")):
        commit = _commit(objects, name)
        if commit is not None and commit.manifest is not None:
            yield commit.manifest


def newest_manifest(objects: Objects) -> Manifest | None:
    """What the replica holds; None for nothing."""
    return next(manifests(objects), None)


def look(url: str, opener: Opener = Replica, clock: Clock | None = None) -> Remote:
    """What a replica holds."""
    clock = clock or SystemClock()
    objects = Guarded(url, opener)
    for pause in _PAUSES:
        try:
            return _looked(objects)
        except ReplicaTrouble:
            clock.sleep(pause)
    try:
        return _looked(Enduring(url, opener))
    except ReplicaTrouble as trouble:
        return Remote(shown(url), error=str(trouble))


class Enduring(Guarded):
    """A replica on which a few objects cannot be read: these are taken for damaged. More of them are a replica that
    cannot be read.
    """

    def __init__(self, url: str, opener: Opener) -> None:
        super().__init__(url, opener)
        self._unread: set[str] = set()

    def get(self, name: str) -> bytes:
        with self._enduring(name):
            return super().get(name)

    def fetch(self, name: str, to: Path) -> str:
        with self._enduring(name):
            return super().fetch(name, to)

    @contextmanager
    def _enduring(self, name: str) -> Iterator[None]:
        try:
            yield
        except ReplicaTrouble as trouble:
            self._unread.add(name)
            if len(self._unread) > _UNREAD:
                raise
            raise _unreadable(self, name, trouble) from trouble


def _unreadable(objects: Objects, name: str, trouble: ReplicaTrouble) -> DamagedObject:
    return DamagedObject(shown(objects.url), name, f"it cannot be read ({trouble.cause})")


def _answers(objects: Objects) -> bool:
    """Whether a replica that failed to give an object can be read at all."""
    try:
        objects.list("incarnations")
    except ReplicaTrouble:
        return False
    return True


def _looked(objects: Objects) -> Remote:
    names, claims = objects.list("commits"), objects.list("incarnations")
    segments = [each for name in objects.list("lineage") if (each := Segment.parse(name)) is not None]
    there = {name: size for folder in _FOLDERS for name, size in objects.list(folder).items()}
    valid = valid_commits(names, claims)
    commits = [commit for name in valid if (commit := _commit(objects, name)) is not None]
    idle = [commit for name in _overruled(names, claims) if (commit := _commit(objects, name)) is not None]
    copies: dict[int, list[bytes]] = {}
    spoiled = {commit.name.object for commit in commits if commit.manifest is None}
    named = {
        name: each for commit in commits if commit.manifest for name, each in commit.manifest.objects.items()
    }
    for segment in segments:
        body = _get(objects, segment.object)
        copies.setdefault(segment.log, []).append(body)
        stored = named.get(segment.object)
        if stored is not None and hashlib.sha256(body).hexdigest() != stored.sha256:
            spoiled.add(segment.object)
    claimed = [ClaimName.parse(name) for name in claims]
    first = bool(claimed) and all(each is not None and each.after == 0 for each in claimed)
    held = bool(names or segments) or (bool(there or claimed) and not first)
    numbers = [claim.incarnation for claim in claimed if claim is not None]
    numbers += [known.incarnation for name in names if (known := CommitName.parse(name)) is not None]
    numbers += [segment.log for segment in segments]
    found = Remote(
        url=shown(objects.url),
        commits=tuple(commits),
        overruled=tuple(idle),
        copies=copies,
        objects=there,
        incarnation=max(numbers, default=0),
        life=held,
        bare=not held and (bool(claims) or is_named(objects)),
        spoiled=frozenset(spoiled),
    )
    owner = read_owner(objects)
    return replace(found, owner=None if owner == UNKNOWN else owner)


def _overruled(commits: Iterable[str], claims: Iterable[str]) -> list[CommitName]:
    """The commits that do not count only because of incarnations that have none themselves, newest first."""
    committed = {name.incarnation for each in commits if (name := CommitName.parse(each)) is not None}
    heeded = [each for each in claims if (claim := ClaimName.parse(each)) and claim.incarnation in committed]
    counting = set(valid_commits(commits, claims))
    return [name for name in valid_commits(commits, heeded) if name not in counting]


def _commit(objects: Objects, name: CommitName) -> Commit | None:
    """A commit, with the catalog and the totals that it names; None if it is gone by now."""
    where = shown(objects.url)
    try:
        body = objects.get(name.object)
        manifest = Manifest.decode(name, body, where)
    except FileNotFoundError:
        return None
    except DamagedObject as error:
        return Commit(name, problem=str(error))
    totals = {}
    summed = _document(objects, manifest.objects.get(manifest.sums))
    if summed is not None and summed.get("epoch") == manifest.epoch:
        totals = totals_of(summed)
    return Commit(name, manifest, catalog=_catalog(objects, manifest), totals=totals)


def _catalog(objects: Objects, manifest: Manifest) -> Catalog | None:
    """The catalog of a commit, out of the first object that holds it as it was written; None if none does."""
    for name in manifest.catalog:
        said = _document(objects, manifest.objects.get(name))
        if said is not None:
            with suppress(SlipstreamError):  # a name in it that is none
                return Catalog.decode(said)
    return None


def _document(objects: Objects, stored: Stored | None) -> documents.Body | None:
    """A checked document on a replica; None if it is not there as it was written."""
    if stored is None:
        return None
    try:
        body = checked_body(objects, stored, Path())
    except DamagedObject:
        return None
    assert isinstance(body, bytes)
    found = documents.decode(body)
    return found if isinstance(found, dict) else None


def _get(objects: Objects, name: str) -> bytes:
    try:
        return objects.get(name)
    except (FileNotFoundError, DamagedObject):  # joined to a longer one meanwhile, or unreadable
        return b""


def fetch_layers(
    store: Store,
    incarnation: int,
    wanted: Iterable[Wanted],
    objects: Mapping[str, Objects],
    work: LayerWork,
    clock: Clock,
    *,
    parallel: int = PARALLEL,
) -> list[tuple[str, LayerName]]:
    """Bring layers into a store, under names of an incarnation, flushed; those that are there now. Each object is
    fetched once. Raises `Spoiled` after everything that could be brought is there.
    """
    by_object: dict[tuple[str, str], list[Wanted]] = {}
    for each in wanted:
        by_object.setdefault((each.url, each.kept.object), []).append(each)
    damaged: dict[tuple[str, str], str] = {}
    silent: dict[str, str] = {}
    brought: list[tuple[str, LayerName]] = []

    def bring(key: tuple[str, str]) -> None:
        url, name = key
        layers = by_object[key]
        try:
            stored = layers[0].stored
            body = None if stored is None else _fetched(objects[url], stored, store.root / SPOOL, clock)
        except DamagedObject as error:
            damaged[url, name] = str(error)
            return
        except ReplicaTrouble as trouble:
            if _answers(objects[url]):
                damaged[url, name] = str(_unreadable(objects[url], name, trouble))
            else:
                silent[url] = str(trouble)
            return
        try:
            for each in layers:
                layer = replace(each.kept.layer, incarnation=incarnation)
                work.unpack(body, each.kept, each.schema, each.trace, layer)
                brought.append((each.trace, layer))
        except (ValueError, KeyError, IndexError, EOFError) as error:  # whole, and not what the commit says
            damaged[url, name] = f"it does not hold the layers that the commit names ({error})"
        finally:
            if isinstance(body, Path):
                body.unlink(missing_ok=True)

    if parallel > 1 and len(by_object) > 1:
        with ThreadPoolExecutor(parallel) as pool:
            list(pool.map(bring, by_object))
    else:
        for key in by_object:
            bring(key)
    for trace in sorted({trace for trace, _ in brought}):
        store.disk.flush_folder(trace)
    if damaged or silent:
        raise Spoiled(damaged, silent)
    return brought


def _fetched(objects: Objects, stored: Stored, spool: Path, clock: Clock) -> bytes | Path:
    """An object, checked. Storage that fails is tried again a few times."""
    for pause in _PAUSES:
        try:
            return checked_body(objects, stored, spool)
        except ReplicaTrouble:
            clock.sleep(pause)
    return checked_body(objects, stored, spool)


def leave(store: Store, incarnation: int, wanted: Wanted, urls: Mapping[str, str]) -> LayerName:
    """Leave a layer on its replica, and a note of it in the store that says where it, or what does as well, can be had.
    urls: of replicas, with their secrets.
    """
    store.disk.make_folder(wanted.trace)
    name = replace(wanted.kept.layer, incarnation=incarnation)

    def place(each: Wanted) -> dict[str, Any]:
        kept, stored = each.kept, each.stored
        return {
            "url": urls[each.url],
            "layer": replace(kept.layer, incarnation=incarnation).filename,
            "object": kept.object,
            "size": stored.size if stored is not None else 0,
            "first": kept.first,
            "groups": kept.groups,
            "rows": kept.rows,
            "schema": each.schema,
        }

    places = [[place(each) for each in layers] for layers in ((wanted,), *wanted.instead)]
    leave_note(store.root / wanted.trace / name.filename, "replica", {"places": places})
    return name


@dataclass(frozen=True)
class _Noted:
    """Where a note says that a layer can be had."""

    url: str
    layer: str
    object: str
    size: int
    first: int
    groups: int
    rows: int
    schema: str

    @property
    def name(self) -> LayerName:
        name = LayerName.parse(self.layer)
        if name is None:
            raise ValueError(f"'{self.layer}' names no layer")
        return name


def _noted(path: Path, said: Mapping[str, Any]) -> list[list[_Noted]]:
    """What a note says, one way to have the layer after another; `DamagedLayer` where it makes no sense."""
    try:
        places = [[checked(_Noted(**each)) for each in layers] for layers in said["places"]]
        for each in (each for layers in places for each in layers):
            decode_schema(each.schema)
            assert each.name
        return places
    except (TypeError, KeyError, ValueError, AttributeError, pa.ArrowException) as error:
        raise damaged(path, f"a note stands in its place, and makes no sense ({error})") from error


def bring_home(path: Path, said: dict[str, Any]) -> None:
    """Put the layer that a note tells of in its place, or others that do as well and no note, from whichever replica
    has it as it was written. Storage that fails is tried again a few times.
    """
    clock, places = SystemClock(), _noted(path, said)
    for pause in (*_PAUSES, None):
        failures: list[DamagedObject | LayerAway] = []
        for layers in places:
            try:
                for each in layers:
                    _bring(path.parent, each, flushed=len(layers) > 1)
            except (DamagedObject, LayerAway) as failure:
                failures.append(failure)
                continue
            if path.name not in [each.layer for each in layers]:
                path.unlink()  # whoever looks again finds the others
            return
        away = [each for each in failures if isinstance(each, LayerAway)]
        if not away or pause is None:
            raise (away or failures)[0]
        clock.sleep(pause)


def _bring(directory: Path, noted: _Noted, *, flushed: bool) -> None:
    """Bring one layer from where a note says that it can be had."""
    name = noted.name
    where, schema = shown(noted.url), decode_schema(noted.schema)
    kept = Kept(name, noted.rows, 0, noted.object, noted.first, noted.groups)
    if not kept.object:
        unpack(None, kept, schema, directory, name, flushed=flushed)
        return
    try:
        with Replica(noted.url).open(kept.object) as source:
            if source.size() != noted.size:
                size = f"it has {source.size()} bytes and was written with {noted.size}"
                raise DamagedObject(where, kept.object, size)
            unpack(source, kept, schema, directory, name, flushed=flushed)
    except ValueError as error:
        raise DamagedObject(where, kept.object, f"it cannot be read ({error})") from error
    except OSError as error:
        raise LayerAway(name.filename, where, f"{type(error).__name__}: {error}") from error


register_bringer("replica", bring_home)
