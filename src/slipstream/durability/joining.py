"""Whose replica it is, and who may write to it.

A replica belongs to one app, by an identity that no other app has (`Identity.id`). The first follower says so in
`owner.json`, before its first claim; every follower and every recovery compares. A replica of another app is refused,
and nothing is written or deleted there. Where `owner.json` is missing or damaged, the newest commit that can be read
says whose replica it is, else the newest claim. Where something is there and none of it says so, it is taken for
another's.

Two apps may find a new replica at once, and object stores cannot make a name only where there is none. So whoever
claims a replica looks at the claims of others, before and after its own, and does so until it has once found that the
replica is its app's: a claim alone, of a process that ended before it looked again, says nothing. Where there is
another app's, and neither a commit nor lineage of its own, it came second. It gives that one its name back, takes its
app's claims away, and is refused.

Within an app the highest incarnation writes. A follower puts a claim (`manifest`) and looks again: whoever finds a
claim of a later incarnation gives way. Object stores cannot lock, so that is asked again before everything that
deletes. Nobody has to remember it: `Objects` can only be read, and whatever puts (`held`) or deletes (`swept`) is had
by asking.

A replica may fail in any way. `Guarded` gives every failure of storage one name, so that it is told from a mistake in
the program that uses it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar, cast

import pyarrow as pa

from slipstream.core.crashing import crash_point, crash_points
from slipstream.core.errors import (
    DamagedObject,
    OtherReplica,
    ReplicaTrouble,
    SlipstreamError,
    StoreTrouble,
    SupersededOnReplica,
)
from slipstream.durability.manifest import OWNER, ClaimName, Manifest, Segment, valid_commits
from slipstream.durability.replica import Objects, WritableObjects, shown
from slipstream.durability.replicate import superseded
from slipstream.store import documents
from slipstream.store.layout import lineage_log
from slipstream.store.store import Identity, Store

crash_points(
    replica__before_claim="a follower is about to claim its incarnation on a replica",
    replica__after_claim="the claim is on the replica",
)

UNKNOWN = Identity("unknown", "nothing there says whose it is")
_FOLDERS = ("commits", "incarnations", "data", "lineage", "sums", "catalog")

T = TypeVar("T")
Opener = Callable[[str], Objects]


@dataclass(frozen=True)
class Origin:
    """Who replicates: the store and its app, the incarnation, the epoch after which it began, and a token of its
    own. joined: the replicas that this process has found to be its app's.
    """

    store: Store
    identity: Identity
    incarnation: int
    after: int
    token: str
    joined: set[str] = field(default_factory=set, compare=False)

    @property
    def claim(self) -> str:
        """The object that claims the incarnation on a replica."""
        return ClaimName(self.incarnation, self.after, self.token).object


def join(objects: Objects, origin: Origin) -> None:
    """Have a claim of this incarnation on a replica; an error if it is another app's, or a later incarnation's."""
    check_owner(objects, origin)
    claims = objects.list("incarnations")
    is_new = origin.claim not in claims
    if is_new or objects.url not in origin.joined:
        _check_newcomer(objects, origin, claims)
    check_claims(objects, origin, claims)
    if is_new:
        crash_point("replica.before_claim")
        _writable(objects).put(origin.claim, json.dumps(vars(origin.identity)).encode())
        crash_point("replica.after_claim")
        known, claims = claims, objects.list("incarnations")
        _check_newcomer(objects, origin, claims.keys() - known.keys())
        check_claims(objects, origin, claims)
    origin.joined.add(objects.url)


class Held:
    """A replica on which this incarnation's claim was seen (`held`), to put objects there."""

    def __init__(self, objects: WritableObjects) -> None:
        self._objects = objects

    def put(self, name: str, body: bytes | Path) -> None:
        self._objects.put(name, body)


class Swept:
    """A replica that was found to be this app's (`swept`), to delete objects there. Right before each the claims are
    read again: what a later incarnation may need is not this one's to delete.
    """

    def __init__(self, objects: WritableObjects, origin: Origin) -> None:
        self._objects, self._origin = objects, origin

    def delete(self, name: str) -> None:
        check_claims(self._objects, self._origin)
        self._objects.delete(name)


def held(objects: Objects, origin: Origin) -> Held:
    """The means to write to a replica; an error unless this incarnation's claim is there: nothing is put on one that
    was emptied, for it would not say whose it is. Whoever gets that error joins again.
    """
    try:
        objects.get(origin.claim)
    except FileNotFoundError:
        told = f"the claim of incarnation {origin.incarnation} is gone; it is claimed again"
        raise ReplicaTrouble(shown(objects.url), "writing to it", told) from None
    return Held(_writable(objects))


def swept(objects: Objects, origin: Origin) -> Swept:
    """The means to delete on a replica; an error if it is another app's."""
    check_owner(objects, origin)
    return Swept(_writable(objects), origin)


def _writable(objects: Objects) -> WritableObjects:
    return cast(WritableObjects, objects)


def check_owner(objects: Objects, origin: Origin) -> None:
    """Raise if a replica is another app's. One that is nobody's yet becomes this app's. So does one that was, and was
    emptied while something was sent: another app would have put its name there first, and what is there is ours.
    """
    ours = origin.identity
    said = _said_owner(objects)
    known = said or read_owner(objects)
    emptied = known == UNKNOWN and (objects.url in origin.joined or _is_ours_alone(objects, origin))
    if known is None or emptied or (known.id == ours.id and said is None):
        _writable(objects).put(OWNER, documents.encode(dict(vars(ours))))
        known = _said_owner(objects) or UNKNOWN  # another app may have come at the same moment
    if known.id != ours.id:
        raise OtherReplica(shown(objects.url), known.app, known.id, ours.app, ours.id)


def _check_newcomer(objects: Objects, origin: Origin, claims: Iterable[str]) -> None:
    """Raise, and leave a replica to the other app, if one of these claims is that app's and this one's app has written
    nothing but claims.
    """
    ours = origin.identity
    others = sorted(set(claims) - {origin.claim}, reverse=True)
    if not others or _has_written(objects, ours):
        return
    found = (_claimed_by(objects, claim) for claim in others)
    known = next((each for each in found if each is not None and each.id != ours.id), None)
    if known is None:
        return
    _writable(objects).put(OWNER, documents.encode(dict(vars(known))))
    for claim in objects.list("incarnations"):
        if _claimed_by(objects, claim) == ours:
            _writable(objects).delete(claim)
    raise OtherReplica(shown(objects.url), known.app, known.id, ours.app, ours.id)


def _is_ours_alone(objects: Objects, origin: Origin) -> bool:
    """Whether all there is on a replica is lineage that the store of this app has too, byte by byte: what was on its
    way while the replica was emptied, and whose sender has ended.
    """
    if any(objects.list(folder) for folder in _FOLDERS if folder != "lineage"):
        return False
    return all(_is_in_store(objects, name, origin.store) for name in objects.list("lineage"))


def _is_in_store(objects: Objects, name: str, store: Store) -> bool:
    segment = Segment.parse(name)
    if segment is None:
        return False
    try:
        ours = store.disk.read(lineage_log(segment.log), segment.start, segment.stop - segment.start)
        return bool(ours) and ours == objects.get(name)
    except (FileNotFoundError, DamagedObject, StoreTrouble):
        return False


def _has_written(objects: Objects, ours: Identity) -> bool:
    """Whether the newest commit is an app's or, where none can be read, a beginning of lineage: nothing is written but
    by who has joined.
    """
    committed = _committed_by(objects)
    if committed is not None:
        return committed.id == ours.id
    segments = [each for name in objects.list("lineage") if (each := Segment.parse(name)) is not None]
    return any(_begins(objects, each, ours) for each in segments if each.start == 0)


def _begins(objects: Objects, segment: Segment, ours: Identity) -> bool:
    try:
        return ours.id.encode() in objects.get(segment.object).partition(b"\n")[0]
    except (DamagedObject, FileNotFoundError):
        return False


def check_claims(objects: Objects, origin: Origin, claims: Iterable[str] | None = None) -> None:
    """Raise if a later incarnation is on a replica, or another process has claimed this one before."""
    listed = objects.list("incarnations") if claims is None else claims
    later = superseded(listed, origin.incarnation, origin.token)
    if later is not None:
        raise SupersededOnReplica(shown(objects.url), origin.incarnation, later.incarnation, later.after)


def read_owner(objects: Objects) -> Identity | None:
    """Whose replica it is; None for one on which there is nothing at all, `UNKNOWN` where it cannot be told."""
    said = _said_owner(objects)
    if said is not None:
        return said
    committed = _committed_by(objects)
    if committed is not None:
        return committed
    for claim in sorted(objects.list("incarnations"), reverse=True):
        claimed = _claimed_by(objects, claim)
        if claimed is not None:
            return claimed
    if not any(objects.list(folder) for folder in _FOLDERS):
        return None
    return _said_owner(objects) or UNKNOWN  # another part of this app may have come at the same moment


def is_named(objects: Objects) -> bool:
    """Whether a replica says whose it is, be it readable or not."""
    try:
        objects.get(OWNER)
    except DamagedObject:
        return True
    except FileNotFoundError:
        return False
    return True


def _said_owner(objects: Objects) -> Identity | None:
    try:
        found = documents.decode(objects.get(OWNER))
        return None if isinstance(found, str) else _identity(found)
    except (FileNotFoundError, DamagedObject, ValueError):
        return None


def _committed_by(objects: Objects) -> Identity | None:
    """Whose the newest commit is that can be read; None where there is none."""
    for name in valid_commits(objects.list("commits"), ()):
        try:
            found = Manifest.decode(name, objects.get(name.object), shown(objects.url))
            return Identity(found.app, found.id)
        except (DamagedObject, FileNotFoundError):
            continue
    return None


def _claimed_by(objects: Objects, claim: str) -> Identity | None:
    """Whose a claim is; None where that cannot be told."""
    try:
        return _identity(json.loads(objects.get(claim)))
    except (ValueError, RecursionError, FileNotFoundError, DamagedObject):
        return None


def _identity(said: object) -> Identity:
    match said:
        case {"app": str(app), "id": str(id)}:
            return Identity(app, id)
    raise ValueError("it says no app")


class Guarded:
    """A replica's objects, with every failure of storage as a `ReplicaTrouble`. What is not there is still a
    FileNotFoundError.
    """

    def __init__(self, url: str, opener: Opener) -> None:
        self._url, self._opener = url, opener
        self._objects: Objects | None = None

    @property
    def url(self) -> str:
        return self._url

    def put(self, name: str, body: bytes | Path) -> None:
        self._do(f"writing {name}", lambda objects: _writable(objects).put(name, body))

    def get(self, name: str) -> bytes:
        return self._do(f"reading {name}", lambda objects: objects.get(name), missing=True)

    def fetch(self, name: str, to: Path) -> str:
        return self._do(f"reading {name}", lambda objects: objects.fetch(name, to), missing=True)

    def open(self, name: str) -> pa.NativeFile:
        return self._do(f"reading {name}", lambda objects: objects.open(name), missing=True)

    def list(self, folder: str) -> dict[str, int]:
        return self._do(f"listing {folder}", lambda objects: objects.list(folder))

    def delete(self, name: str) -> None:
        self._do(f"deleting {name}", lambda objects: _writable(objects).delete(name))

    def _do(self, what: str, work: Callable[[Objects], T], *, missing: bool = False) -> T:
        try:
            if self._objects is None:
                self._objects = self._opener(self._url)
            return work(self._objects)
        except SlipstreamError:
            raise
        except Exception as error:  # storage fails in many ways, and each means the same
            if missing and isinstance(error, FileNotFoundError):
                raise
            raise ReplicaTrouble(shown(self._url), what, f"{type(error).__name__}: {error}") from error
