"""Putting a store right that no engine has: with what replicas hold, and out of itself.

A repair claims the store and starts on it as an app does, and lets go of it: so it brings what replicas have, puts
documents, lineage and claims back, and drops damaged layers that nobody needs. It never goes back to an older epoch.

Where some views have no sound copy anywhere, the rest is put right all the same, as a start does that is to compute
those views anew; what is left of them stays as it is. Which views these are is said, with the command that computes
them. Where a start would refuse for another reason, only that is done which needs no start: a document is put back from
its copy, a claim from its log.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from slipstream.core.errors import CannotRecover, WouldLose
from slipstream.core.settings import Durability
from slipstream.durability.evidence import Local
from slipstream.durability.fsck import Checked, check_store, claimed_by, looked_through, seen_whole
from slipstream.durability.inbox import look
from slipstream.durability.joining import Opener
from slipstream.durability.losses import LostPast
from slipstream.durability.recovery import Kind, Plan, decide, examine
from slipstream.durability.replica import Replica
from slipstream.durability.start import start
from slipstream.durability.survey import log_numbers, survey
from slipstream.durability.suspects import write_suspects
from slipstream.store import documents, layout
from slipstream.store.catalog import owner_of
from slipstream.store.store import Claim, Store, claim_body, claim_store

_FEW = 5


@dataclass(frozen=True)
class Repaired:
    """What a repair did, what is left that is wrong, the views that must be computed anew, and why the rest could not
    be done.
    """

    did: tuple[str, ...]
    left: Checked
    rebuild: tuple[str, ...] = ()
    refused: str | None = None

    @property
    def commands(self) -> tuple[str, ...]:
        """What to run next."""
        return tuple(f"slipstream run FILE.py --rebuild {view}" for view in self.rebuild)


def repair(path: str | Path, urls: Sequence[str], opener: Opener = Replica) -> Repaired:
    """Mend a store; what it cannot mend, it says."""
    store, local = seen_whole(path)
    before = looked_through(store, local)
    if before.sound:
        return Repaired((), before)
    remotes = [look(url, opener) for url in urls]
    owners = (each for each in (local.identity, *(remote.owner for remote in remotes)) if each is not None)
    app = next((owner.app for owner in owners), "")
    plan = decide(local, remotes, app=app)
    if _serves(plan):
        return _started(store, app, urls, opener, before)
    why = str(plan.error) if plan.error is not None else f"a start would step back to epoch {plan.epoch}"
    lost = examine(local, remotes).uncovered
    views = tuple(sorted({owner_of(trace) for trace in lost}))
    others = [each for each in before.findings if each.where != "start" and not _is_of(lost, each.where)]
    if others and _serves(decide(local, remotes, app=app, rebuild=views)):
        return _started(store, app, urls, opener, before, views, why)
    did = _in_place(store, local, app)
    return Repaired(did, check_store(path) if did else before, views, why)


def _serves(plan: Plan) -> bool:
    """Whether a start would go on from where the store is."""
    return plan.error is None and plan.kind is not Kind.STEP_BACK


def _is_of(traces: Collection[str], where: str) -> bool:
    return any(where == trace or where.startswith(f"{trace}/") for trace in traces)


def _started(
    store: Store,
    app: str,
    urls: Sequence[str],
    opener: Opener,
    before: Checked,
    views: tuple[str, ...] = (),
    refused: str | None = None,
) -> Repaired:
    """Start on a store, without what is left of some views, and let go of it."""
    claim, did = claim_store(store, app), list[str]()
    try:
        durability = Durability(tuple(urls))
        started = start(claim, app, durability, objects=opener, rebuild=views, lazily=False, deep=True)
        lost = tuple(map(str, started.plan.pasts))
        did += [each for each in started.plan.why if each not in lost]
        did += [f"{trace}/{name.filename} was dropped" for trace, name in started.plan.drop]
        did += _claims_put_back(started.claim, started.identity.app)
        # Every byte was read. What is left damaged is read whole by the next start too.
        write_suspects(started.claim.owned, survey(store, deep=True).damaged if views else ())
    except (CannotRecover, WouldLose) as error:
        return Repaired((), check_store(store.root), views, str(error))
    finally:
        claim.release()
    left = check_store(store.root)
    mended = {each.where for each in before.findings} - {each.where for each in left.findings}
    put_back = sorted(where for where in mended if where.endswith(".json") or where == layout.LOCK)
    did += [f"{where} was put back" for where in put_back]
    passed = sorted(where for where in mended if where.startswith(f"{layout.SUMS}/"))
    did += [f"{where}: the end that a crash left counts no more" for where in passed]
    return Repaired(tuple(dict.fromkeys(did)), left, views, refused or _unmended(left, started.plan.pasts))


def _unmended(left: Checked, lost: Sequence[LostPast]) -> str | None:
    """What a start does not mend, and no copy was found of. lost: of what views were."""
    known = {each.trace for each in lost}
    where = list(dict.fromkeys(each.where for each in left.findings if each.where not in known))
    said = list(map(str, lost))
    if where:
        few = ", ".join(where[:_FEW])
        more = f" and {len(where) - _FEW} more" if len(where) > _FEW else ""
        said.append(f"the app can start, and nobody who was asked has a copy of what is wrong in {few}{more}")
    return "; ".join(said) or None


def _in_place(store: Store, local: Local, app: str) -> tuple[str, ...]:
    """Put back what needs no start."""
    names = [name for name in (layout.FORMAT, layout.CATALOG) if _has_one_copy(store, name)]
    claims = [number for number in log_numbers(store.disk) if claimed_by(store.disk, number) != app]
    if local.identity is None or not (names or claims):
        return ()
    claim, did = claim_store(store, app), list[str]()
    try:
        for name in names:
            problems = documents.document_problems(store.disk, name)
            body = documents.read_document(store.disk, name)
            assert body is not None
            documents.write_document(claim.owned, name, body)
            did += [f"{problem.partition(': ')[0]} was put back" for problem in problems]
        did += _claims_put_back(claim, app)
    finally:
        claim.release()
    return tuple(did)


def _has_one_copy(store: Store, name: str) -> bool:
    """Whether one copy of a document is whole, and the other is not."""
    return len(documents.document_problems(store.disk, name)) == 1


def _claims_put_back(claim: Claim, app: str) -> list[str]:
    """Claims of incarnations that have a log here: one that is missing or damaged is made again."""
    disk, did = claim.owned, []
    for number in log_numbers(disk):
        if claimed_by(disk, number) != app:
            disk.replace(layout.claim_of(number), claim_body(app, began=True), flushed=True)
            did.append(f"{layout.claim_of(number)} was put back")
    return did
