"""The simulation can fail: bugs that were once there are found again when they are put back.

Each patch takes away the check that keeps a bug out, where that check is now.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import pytest

from slipstream.cli import watchover
from slipstream.core.errors import CannotRecover, DamagedLayer, DamagedLineage, OtherReplica, WouldLose
from slipstream.durability import inbox, joining, recovery
from slipstream.durability import start as starting
from slipstream.durability.agent import parts
from slipstream.durability.agent.upkeep import Upkeep
from slipstream.durability.evidence import Commit, Local
from slipstream.durability.healing import Healing
from slipstream.durability.ledger import StoreLedger
from slipstream.durability.manifest import CommitName
from slipstream.durability.recovery import Plan
from slipstream.epoch.loop import Loop
from slipstream.store import chain, lineage
from slipstream.store.history import Folding
from slipstream.store.layers import remove_layer
from slipstream.store.lineage import Lineage, LineageWriter
from slipstream.store.owned import Owned
from slipstream.store.records import Computed, Record
from slipstream.store.store import Claim, Identity
from slipstream.testing.simulation import books, durable, layers
from slipstream.testing.simulation.history import run
from slipstream.testing.simulation.layers import ModelWork
from slipstream.testing.simulation.plan import Kind, draw
from slipstream.trace import LayerName, Merge, Pack

Patch = pytest.MonkeyPatch


@dataclass(frozen=True)
class Mutation:
    """name: of the bug. faults: those that it takes to show. shows_as: the rules that it violates. put_back: the
    patch.
    """

    name: str
    faults: tuple[Kind, ...]
    shows_as: tuple[str, ...]
    put_back: Callable[[Patch], None]


def _f1(patch: Patch) -> None:
    """An engine whose epoch failed removes later layers, whosever they are and whoever owns the store."""

    def discard(ledger: StoreLedger, after: int) -> None:
        store = ledger._claim.store
        anybodys = Owned(store.disk, lambda: None)
        for trace in store.traces():
            for name in store.layers.listed(trace)[0]:
                if name.hi > after:
                    remove_layer(anybodys, trace, name)

    patch.setattr(Claim, "owned", property(lambda claim: Owned(claim.store.disk, lambda: None)))
    patch.setattr(StoreLedger, "discard", discard)
    patch.setattr(Loop, "_probe", lambda loop: loop._ledger.trouble())


def _f2(patch: Patch) -> None:
    """A log is read over holes: a line that cannot be read is passed over."""

    def scan(raw: bytes, before: str = chain.START, offset: int = 0) -> chain.Scan:
        lines, at = [], offset
        for line in raw.split(b"\n")[:-1]:
            at += len(line) + 1
            try:
                body = json.loads(line[17:])
                before = line[:16].decode()
            except ValueError:
                continue
            lines.append(chain.Line(before, body, at))
        return chain.Scan(tuple(lines), "whole")

    def add(folding: Any, record: Record, *rest: Any) -> None:
        if isinstance(record, Computed):
            folding._computed[record.epoch] = record
            folding.frontier = max(folding.frontier, record.epoch)
        else:
            with suppress(DamagedLineage):
                real(folding, record, *rest)

    real = Folding.add
    patch.setattr(chain, "scan", scan)
    patch.setattr(Folding, "add", add)


def _f3(patch: Patch) -> None:
    """A damaged commit is passed over in favour of the one before it."""
    real = inbox._commit

    def commit(objects: Any, name: CommitName) -> Commit | None:
        found = real(objects, name)
        return None if found is not None and found.manifest is None else found

    patch.setattr(inbox, "_commit", commit)


def _f4(patch: Patch) -> None:
    """A layer's rows are believed as they are read."""

    def opened(raw: bytes) -> tuple[str, str, str, tuple[layers.Row, ...], str | None]:
        layer, trace, digest, rows, problem = real(raw)
        if problem is not None:
            body = raw.rpartition(b"\n")[0].rpartition(b"\n")[0]
            rows = tuple((str(row), int(epoch), int(diff)) for row, epoch, diff in json.loads(body))
            assert all(row.partition("=")[2].isdigit() for row, _, _ in rows), "no model row"
        return layer, trace, digest, rows, None

    def looked(
        raw: bytes, trace: str, name: LayerName, *, deep: bool
    ) -> tuple[str, tuple[layers.Row, ...], str | None]:
        try:
            return look(raw, trace, name, deep=deep)
        except (TypeError, AssertionError) as error:  # nothing that could be taken for rows
            return "", (), str(error)

    real, look = layers._opened, layers.look
    patch.setattr(layers, "look", looked)
    patch.setattr(layers, "_opened", opened)


def _f5(patch: Patch) -> None:
    """Where nothing can be used, the app starts from nothing."""
    real = recovery.decide

    def decide(local: Local, remotes: Any, **rest: Any) -> Plan:
        plan = real(local, remotes, **rest)
        return (
            real(Local(root=local.root), (), **rest)
            if isinstance(plan.error, CannotRecover | WouldLose)
            else plan
        )

    patch.setattr(starting, "decide", decide)


def _f6(patch: Patch) -> None:
    """What is computed again after a step back is cut anew."""
    real = Claim.begin

    def begin(
        claim: Claim, identity: Identity, known: Lineage, after: int, upto: int, *rest: Any, **more: Any
    ) -> LineageWriter:
        return real(claim, identity, known, after, after, *rest, **more)

    patch.setattr(Claim, "begin", begin)


def _f7(patch: Patch) -> None:
    """What a merge made is not flushed before what it replaces is removed."""

    def merge(work: ModelWork, trace: str, step: Merge | Pack) -> None:
        real(_Unflushed(work), trace, step)  # type: ignore[arg-type]

    real = ModelWork.merge
    patch.setattr(ModelWork, "merge", merge)
    patch.setattr(Upkeep, "_flush", lambda upkeep, trace, names: None)


class _Unflushed:
    def __init__(self, work: ModelWork) -> None:
        self._layers, self._disk = self, self
        self._real = work._layers

    def taken(self, *given: Any) -> Any:
        return self._real.taken(*given)

    def write(self, trace: str, name: LayerName, rows: Any, *, flushed: bool) -> None:
        self._real.write(trace, name, rows, flushed=False)

    def flush_folder(self, trace: str) -> None:
        pass


def _f8(patch: Patch) -> None:
    """A part that meets a damaged layer ends the agent, at every start."""

    def found(healing: Healing, part: str, damage: DamagedLayer) -> bool:
        raise OSError(str(damage))

    patch.setattr(Healing, "found", found)


def _f9(patch: Patch) -> None:
    """Everybody takes a replica for its own, whosever it says that it is."""

    def check_owner(*given: Any) -> None:
        with suppress(OtherReplica):
            real(*given)

    real = joining.check_owner
    patch.setattr(joining, "check_owner", check_owner)
    patch.setattr(recovery, "_owner", lambda local, remotes, app: local.identity)


def _d1(patch: Patch) -> None:
    """Silent seconds count as running well."""

    def seen(engine: watchover.Engine, beat: Any, seconds: float) -> watchover.Engine:
        ran = engine.ran + seconds if engine.beat.state == "running" else engine.ran
        if beat is None or beat.count == engine.beat.count:
            return replace(engine, silent=engine.silent + seconds, ran=ran)
        first = beat.epoch if beat.state == "running" and engine.first_epoch is None else engine.first_epoch
        return replace(engine, beat=beat, silent=0.0, ran=ran, first_epoch=first)

    patch.setattr(watchover.Engine, "seen", seen)


def _d2(patch: Patch) -> None:
    """A part whose step fails is over, and nobody hears of it."""

    def run(turn: parts.Turn, board: Any, clock: Any, end: Any) -> None:
        news = board.waker()
        try:
            while True:
                news.clear()
                clock.wait(news, turn._part.step())
        except Exception:
            return

    patch.setattr(durable, "_run", run)


def _r1(patch: Patch) -> None:
    """A reader takes the base of the lineage for its end."""
    patch.setattr(books, "computed_frontier", lambda disk: lineage.read_base(disk).epoch)


MUTATIONS = (
    Mutation("F1", ("freeze engine", "take over"), ("ownership",), _f1),
    Mutation("F2", ("damage lineage", "kill engine"), ("exactly once", "cuts", "reading"), _f2),
    Mutation("F3", ("damage commit", "lose store"), ("step back",), _f3),
    Mutation("F4", ("damage layer",), ("reading",), _f4),
    Mutation(
        "F5", ("damage lineage", "lose folder", "damage commit", "lose store"), ("step back", "liveness"), _f5
    ),
    Mutation("F6", ("lose store", "kill engine", "power cut"), ("cuts",), _f6),
    Mutation("F7", ("power cut",), ("step back",), _f7),
    Mutation("F8", ("damage layer", "kill agent"), ("raw error",), _f8),
    Mutation("F9", ("other app",), ("ownership",), _f9),
    Mutation("D1", (), ("liveness",), _d1),
    Mutation("D2", ("disk full", "disk read-only"), ("liveness",), _d2),
    Mutation("R1", (), ("reading",), _r1),
)

_WITHIN = 400


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_bug_that_is_put_back_is_found(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation.put_back(monkeypatch)
    rules = []
    for seed in range(_WITHIN):
        rule = run(draw(seed, mutation.faults)).rule
        if rule in mutation.shows_as:
            return
        rules += [rule] if rule is not None else []
    pytest.fail(f"not found in {_WITHIN} histories; what was violated instead: {rules}")
