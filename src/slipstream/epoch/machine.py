"""The epoch's machine: what an engine does next, as a pure decision.

Events go in, the next `State` and instructions come out; there is no clock here, no file, no Spark and no thread. The
shell (`loop`) carries instructions out and answers. Of the instructions of one decision only the last asks for an
answer, and until it has come nothing else is decided: so there is never more than one epoch in hand.

| asked | answer | what is asked next |
| --- | --- | --- |
| | RunAsked | Publish, if an epoch is computed and perhaps not recorded; else Look |
| Look | too much is unsafe | Wait, then Look: input waits, and the engine shows that it lives |
| Look | all is well | of the first pending cut: RecordCut, or Compute if it is on record; else TakeInput |
| TakeInput | a cut | RecordCut |
| TakeInput | nothing new | Wait, then Look; Stop, if that is what was asked for and nothing settles |
| RecordCut | done | Compute |
| Compute | the record of the epoch | Publish |
| Compute | failed | Probe: is the store another's, is the disk the cause? |
| Publish | done | Announce; the epoch is never discarded from here on |
| Announce | done | Look; Stop, if that is what was asked for |
| Probe | the disk fails | Wait and Probe until it does not; then what failed is asked again |
| Probe | the disk is well | of a job that was hindered (no room, a replica away): Wait, Discard, Look |
| | | of one that found a damaged layer: Discard, Heal, Look (so it is computed again), or Stop |
| | | of any other: Drop, Explain, Discard; then Hold, if all views at fault may be held, else Stop |
| Hold | done | Look: the same cut is computed, without these views |
| any | `Superseded` | Stop, and nothing else: what is there belongs to the successor |
| any | `StoreTrouble` | Wait and Probe until it is over; then what failed is asked again |

**Pending cuts.** An epoch that was cut is computed as it was cut, and several may wait: a start may have stepped back
over epochs whose cuts are known. They are taken in order, before any new input. A failed epoch is *dropped*, so that
the next start cuts it anew, to where the input goes by then: a row that no view can take may have been taken back.
One that was computed before is not dropped: its input is not at fault, and others have seen what it came to.

**Catching up.** A run that is to catch up waits for input that was there when it first looked and may not be taken yet,
because its writer may not be done; it does not wait for any that came later.

**Holding.** A view that may be held (`Policy.may_hold`) does not end the run: it is held, with whatever reads it, by a
change of the plan that the shell makes, and the epoch is computed without it. Only if all views at fault may be. A view
that is held is not held again, so an epoch is computed at most once more than there are views that may be.

**Publishing.** The record of a computed epoch is made once. If it cannot be appended, it is kept and appended later,
even by a later `run`; the epoch is not computed a second time.

Not decided here: how much input a cut takes (`cut`), which plan computes it, how a failure is explained.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Literal

from slipstream.core.errors import (
    CannotHeal,
    DamagedLayer,
    EpochFailed,
    JobHindered,
    LayerAway,
    MissingLayer,
    SlipstreamError,
    StoreTrouble,
    Superseded,
)
from slipstream.core.settings import Exposure
from slipstream.epoch.job import JobTroubled
from slipstream.store.history import History
from slipstream.store.records import Computed, Cut

Until = str | int | None
Cause = Literal["superseded", "trouble", "hindered", "damage", "fault"]

WAITING, GOING_ON = "waiting", "going on"
"""What is said when the disk begins to fail, and when that is over."""

UNLIMITED = Exposure()
"""As a limit, none; as a measure, nothing."""


@dataclass(frozen=True)
class Policy:
    """limit: how much may be unsafe before input has to wait. begins: whether the first epoch is computed even if there
    is no input. Pauses in seconds: without input, and while the disk fails. beat_within: the longest wait without a
    sign of life. heals: how often an epoch is computed again because of damaged layers. may_hold: views without which
    an epoch is computed if they fail.
    """

    limit: Exposure = UNLIMITED
    begins: bool = False
    first_pause: float = 0.002
    longest_pause: float = 0.02
    first_trouble: float = 0.1
    longest_trouble: float = 5.0
    beat_within: float = 0.5
    heals: int = 3
    may_hold: frozenset[str] = frozenset()


# Events


@dataclass(frozen=True)
class RunAsked:
    """Compute epochs until there is no new input, up to an epoch, or until stopped."""

    until: Until = None


@dataclass(frozen=True)
class StopAsked:
    """Let the epoch in hand finish and begin no other."""


@dataclass(frozen=True)
class Done:
    """What was asked is done, and there is nothing to say about it."""


@dataclass(frozen=True)
class Looked:
    """The store is ours, and so much is unsafe."""

    exposure: Exposure = UNLIMITED


@dataclass(frozen=True)
class Taken:
    """What the sources have for the next epoch. settling: what is there, by source, and may not be taken yet."""

    cut: Cut | None
    settling: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True)
class Finished:
    """The job is done and all layers are there: the epoch's record, to be published."""

    record: Computed


@dataclass(frozen=True)
class Explained:
    """The error to tell the user."""

    error: Exception


@dataclass(frozen=True)
class Healed:
    """The layers that were replaced from replicas."""

    layers: tuple[str, ...]


@dataclass(frozen=True)
class Probed:
    """What is wrong with the store's disk, if anything is."""

    trouble: StoreTrouble | None


@dataclass(frozen=True)
class Failed:
    """What was asked did not succeed."""

    error: Exception


Event = RunAsked | StopAsked | Done | Looked | Taken | Finished | Explained | Healed | Probed | Failed


# Instructions that need no answer


@dataclass(frozen=True)
class Beat:
    """Show that the engine lives."""

    epoch: int


@dataclass(frozen=True)
class Say:
    """Tell the user, and those who read the events."""

    level: Literal["info", "warning", "error"]
    event: str
    text: str


@dataclass(frozen=True)
class Stop:
    """The run is over; with an error, it failed."""

    error: Exception | None = None


# Instructions that ask


@dataclass(frozen=True)
class Look:
    """Is the store still ours, and how much is unsafe? Looked."""


@dataclass(frozen=True)
class TakeInput:
    """Ask the sources for an epoch's input, each within its budget if `budgeted`. Taken; a cut without ranges if there
    is no input and `even_if_none`.
    """

    epoch: int
    budgeted: bool = True
    even_if_none: bool = False


@dataclass(frozen=True)
class RecordCut:
    """Done."""

    cut: Cut


@dataclass(frozen=True)
class Compute:
    """Run the epoch's job. failing: it failed before, so what was taken back is left out. Finished."""

    cut: Cut
    failing: bool = False


@dataclass(frozen=True)
class Publish:
    """Append the record with which readers see the epoch. Done."""

    record: Computed


@dataclass(frozen=True)
class Announce:
    """Tell the agent, sources and listeners of a published epoch. Done."""

    cut: Cut


@dataclass(frozen=True)
class Drop:
    """Record that an epoch failed. Done."""

    epoch: int


@dataclass(frozen=True)
class Explain:
    """Find out in which view and on which row an epoch fails. Explained."""

    cut: Cut
    failing: bool
    error: Exception


@dataclass(frozen=True)
class Discard:
    """Remove this incarnation's layers after an epoch. Done."""

    after: int


@dataclass(frozen=True)
class Hold:
    """Go on without some views, and what reads them. Done."""

    epoch: int
    error: EpochFailed


@dataclass(frozen=True)
class Heal:
    """Replace damaged layers from replicas. Healed."""


@dataclass(frozen=True)
class Probe:
    """Is the store still ours, and can it be written to? Probed."""


@dataclass(frozen=True)
class Wait:
    """Let time pass, or less if a stop is asked for. Done."""

    seconds: float
    why: Literal["idle", "unsafe", "trouble"]


Question = (
    Look
    | TakeInput
    | RecordCut
    | Compute
    | Publish
    | Announce
    | Drop
    | Explain
    | Discard
    | Hold
    | Heal
    | Probe
    | Wait
)
Instruction = Beat | Say | Stop | Question


@dataclass(frozen=True)
class State:
    """All that the machine knows.

    pending: cuts that are still to be computed, in order. recorded: cuts up to this epoch are on record. once: epochs
    up to this one were computed before. dropped: epochs that failed at least once. catch_up: the next new cut takes
    all there is. due: the next epoch is computed even if there is no input. record: that of an epoch that is computed
    and not known to be published.
    awaited: input that was there when the run first looked, and may not be taken yet.
    asked: what is to be answered next. again: what is asked again once `trouble` is over. left: seconds until the disk
    is probed. error: of the epoch in hand, which failed; damage: the same, where layers are to be healed.
    """

    policy: Policy
    frontier: int
    pending: tuple[Cut, ...] = ()
    recorded: int = 0
    once: int = 0
    dropped: frozenset[int] = field(default_factory=frozenset)
    catch_up: bool = False
    due: bool = False
    record: Computed | None = None

    until: Until = None
    stopping: bool = False
    awaited: frozenset[tuple[str, str]] | None = None
    asked: Question | None = None
    again: Question | None = None
    trouble: StoreTrouble | None = None
    error: Exception | None = None
    damage: Exception | None = None
    heals: int = 0
    pause: float = 0.0
    backoff: float = 0.0
    left: float = 0.0

    @staticmethod
    def begin(
        past: History,
        policy: Policy,
        *,
        catch_up: bool = False,
        computed_before: int = 0,
        due: bool = False,
    ) -> State:
        """Going on from a history. computed_before: the newest epoch that is known to have been computed ever."""
        frontier, pending = past.frontier, past.pending
        newest = pending[-1].epoch if pending else frontier
        return State(
            policy=policy,
            frontier=frontier,
            pending=pending,
            recorded=newest,
            once=max(frontier, newest - 1, min(computed_before, newest)),
            dropped=past.dropped,
            catch_up=catch_up,
            due=due,
        )

    @property
    def failing(self) -> bool:
        """Whether the next epoch to be computed has failed before."""
        return self.frontier + 1 in self.dropped

    def validate(self) -> None:
        """Raise if the machine is in a state that it must never be in."""
        epochs = [cut.epoch for cut in self.pending]
        newest = epochs[-1] if epochs else self.frontier
        _hold(epochs == list(range(self.frontier + 1, newest + 1)), "pending cuts follow the frontier")
        _hold(self.frontier <= self.recorded <= newest, "cuts are recorded in order")
        _hold(self.once <= newest, "what was computed before was cut")
        _hold((self.trouble is None) == (self.again is None), "trouble is waited out for something")
        if self.record is not None:
            _hold(self.record.epoch == self.frontier + 1, "the next epoch is published")
            _hold(self.recorded >= self.record.epoch, "an epoch is published after its cut")
        match self.asked:
            case Compute(cut=cut):
                _hold(self.pending[:1] == (cut,), "the first pending cut is computed")
                _hold(self.recorded >= cut.epoch, "a cut is recorded before it is computed")
                _hold(self.record is None, "an epoch is computed once")
            case Publish(record=record):
                _hold(self.record == record, "what was computed is published")
            case Discard(after=after):
                _hold(after == self.frontier, "only what is not published is discarded")
                _hold(self.record is None, "what may be published is not discarded")
            case Hold(epoch=epoch, error=error):
                _hold(epoch == self.frontier + 1 and self.record is None, "an epoch that failed is held from")
                _hold(bool(error.views), "some view is at fault")
                _hold(self.policy.may_hold.issuperset(error.views), "only views that may be held are")
            case TakeInput(epoch=epoch):
                _hold(not self.pending and epoch == self.frontier + 1, "pending cuts come before new input")


def _hold(true: bool, what: str) -> None:
    if not true:
        raise AssertionError(f"the epoch's machine: {what}, and here it is not so")


Decision = tuple[State, list[Instruction]]


def decide(state: State, event: Event) -> Decision:
    """The next state and what is to be done; an error if the event answers nothing that was asked."""
    match event:
        case RunAsked(until=until):
            return _begun(state, until)
        case StopAsked():
            return replace(state, stopping=True), []
        case Failed(error=error):
            return _failed(state, error)
    match state.asked, event:
        case Look(), Looked(exposure=exposure):
            return _looked(state, exposure)
        case TakeInput(), Taken(cut=None, settling=settling):
            return _without_input(_awaiting(state, settling))
        case TakeInput(), Taken(cut=Cut() as cut, settling=settling):
            return _ask(replace(_awaiting(state, settling), pending=(cut,), catch_up=False), RecordCut(cut))
        case RecordCut(cut=cut), Done():
            return _ask(replace(state, recorded=cut.epoch), Compute(cut, state.failing))
        case Compute(), Finished(record=record):
            return _ask(replace(state, record=record), Publish(record))
        case Publish(), Done():
            return _published(state)
        case Announce(), Done():
            return _next(state)
        case Drop(epoch=epoch), Done():
            known = replace(state, recorded=min(state.recorded, epoch - 1), dropped=state.dropped | {epoch})
            return _explain(known)
        case Explain(), Explained(error=error):
            return _ask(replace(state, error=error), Discard(state.frontier))
        case Discard(), Done():
            return _discarded(state)
        case Hold(error=error), Done():
            return _without(state, error.views)
        case Heal(), Healed(layers=layers):
            return _healed(state, layers)
        case Probe(), Probed(trouble=trouble):
            return _probed(state, trouble)
        case Wait(seconds=seconds), Done():
            return _waited(state, seconds)
    raise ValueError(f"{event} does not answer {state.asked}")


def _begun(state: State, until: Until) -> Decision:
    """A run begins, perhaps after one that was interrupted at any point."""
    state = replace(
        _settled(state),
        until=until,
        stopping=False,
        awaited=None,
        heals=0,
        pause=state.policy.first_pause,
        backoff=0.0,
    )
    if state.record is not None:
        return _ask(state, Publish(state.record), Beat(state.frontier))
    return _next(state)


def _next(state: State) -> Decision:
    """No epoch is in hand: look for the next, unless the run is over."""
    state = _settled(state)
    if state.stopping or (isinstance(state.until, int) and state.frontier >= state.until):
        return _stop(state, None)
    return _ask(state, Look(), Beat(state.frontier))


def _looked(state: State, exposure: Exposure) -> Decision:
    policy = state.policy
    if not exposure.within(policy.limit):
        return _ask(state, Wait(policy.longest_pause, "unsafe"))
    if not state.pending:
        begins = state.due or (policy.begins and state.frontier == 0)
        return _ask(state, TakeInput(state.frontier + 1, not state.catch_up, begins))
    cut = state.pending[0]
    if cut.epoch > state.recorded:
        return _ask(state, RecordCut(cut))
    return _ask(state, Compute(cut, state.failing))


def _awaiting(state: State, settling: frozenset[tuple[str, str]]) -> State:
    """Of what settles, a run waits for that which was there when it first looked."""
    return replace(state, awaited=settling if state.awaited is None else state.awaited & settling)


def _without_input(state: State) -> Decision:
    if state.until == "caught_up" and not state.awaited:
        return _stop(state, None)
    longer = min(2 * state.pause, state.policy.longest_pause)
    return _ask(replace(state, pause=longer), Wait(state.pause, "idle"))


def _published(state: State) -> Decision:
    assert state.record is not None
    cut, *later = state.pending
    state = replace(
        state,
        frontier=cut.epoch,
        pending=tuple(later),
        recorded=max(state.recorded, cut.epoch),
        once=max(state.once, cut.epoch),
        record=None,
        due=False,
        heals=0,
        pause=state.policy.first_pause,
        backoff=0.0,
    )
    return _ask(state, Announce(cut))


def _waited(state: State, seconds: float) -> Decision:
    if state.trouble is None:
        return _next(state)
    if state.stopping:
        return _stop(state, state.error)
    left = state.left - seconds
    if left > 0:
        wait = Wait(min(left, state.policy.beat_within), "trouble")
        return _ask(replace(state, left=left), wait, Beat(state.frontier))
    return _ask(state, Probe(), Beat(state.frontier))


def _probed(state: State, trouble: StoreTrouble | None) -> Decision:
    if state.again is not None:
        if trouble is not None:
            return _troubled(state, trouble, state.again)
        told = Say(
            "info", GOING_ON, f"the store can be used again. It was waited for because {state.trouble}"
        )
        return _ask(replace(state, again=None, trouble=None), state.again, told)
    assert state.error is not None
    cause = cause_of(state.error)
    discard = Discard(state.frontier)
    if trouble is None and cause in ("trouble", "hindered"):
        trouble = _as_trouble(state.error, state.frontier + 1)
    if trouble is not None:
        return _troubled(replace(state, error=None), trouble, discard)
    if cause == "damage":
        return _ask(replace(state, error=None, damage=state.error), discard)
    cut = state.pending[0]
    return _ask(state, Drop(cut.epoch)) if cut.epoch > state.once else _explain(state)


def _explain(state: State) -> Decision:
    assert state.error is not None
    return _ask(state, Explain(state.pending[0], state.failing, state.error))


def _discarded(state: State) -> Decision:
    if state.damage is not None:
        return _ask(state, Heal())
    match state.error:
        case None:
            return _next(state)
        case EpochFailed(views=views) as failed if views and state.policy.may_hold.issuperset(views):
            return _ask(state, Hold(state.frontier + 1, failed))
    return _stop(state, state.error)


def _without(state: State, held: Collection[str]) -> Decision:
    """Views are held: the epoch is computed without them."""
    policy = replace(state.policy, may_hold=state.policy.may_hold - set(held))
    return _next(replace(state, policy=policy))


def _healed(state: State, layers: tuple[str, ...]) -> Decision:
    """Compute the epoch again, as often as there is reason to expect that it succeeds now; once where none is seen, for
    the agent heals too.
    """
    assert state.damage is not None
    told = str(state.damage)
    own = any(hi > state.frontier for hi in _named_epochs(told))
    if state.heals >= (state.policy.heals if layers or own else 1):
        return _stop(state, CannotHeal(state.frontier, told))
    what = f"replaced: {', '.join(layers)}" if layers else "nothing had to be replaced"
    state, instructions = _next(replace(state, heals=state.heals + 1))
    return state, [Say("warning", "healed", f"{told} The epoch is computed again; {what}."), *instructions]


def _failed(state: State, error: Exception) -> Decision:
    """What was asked failed. Only a failed job is the epoch's own failure."""
    cause, asked = cause_of(error), state.asked
    if cause == "superseded":
        return _stop(state, error)
    match asked:
        case Compute():
            return _ask(replace(state, error=error), Probe())
        case Announce():
            if cause == "trouble":
                return _next(state)
            return _ask(replace(state, damage=error), Heal()) if cause == "damage" else _stop(state, error)
        case Explain():
            return _ask(state, Discard(state.frontier))
        case Probe() if cause in ("trouble", "hindered"):
            return _probed(state, _as_trouble(error, state.frontier + 1))
        case Hold() if cause not in ("trouble", "hindered"):
            return _stop(state, error)
        case Heal() if cause != "trouble":
            assert state.damage is not None
            return _stop(state, CannotHeal(state.frontier, str(state.damage), str(error)))
    if asked is not None and cause in ("trouble", "hindered"):
        return _troubled(state, _as_trouble(error, state.frontier + 1), asked)
    return _stop(state, state.error or error)


def _troubled(state: State, trouble: StoreTrouble, again: Question) -> Decision:
    """Wait, longer each time, and then see whether the disk is well. It is said once."""
    policy = state.policy
    backoff = min(max(policy.first_trouble, 2 * state.backoff), policy.longest_trouble)
    known = state.trouble is not None and str(state.trouble) == str(trouble)
    said = [] if known else [Say("warning", WAITING, str(trouble))]
    state = replace(state, trouble=trouble, again=again, backoff=backoff, left=backoff)
    return _ask(state, Wait(min(backoff, policy.beat_within), "trouble"), *said)


def _stop(state: State, error: Exception | None) -> Decision:
    return _settled(state), [Stop(error)]


def _settled(state: State) -> State:
    """Without anything that is under way."""
    return replace(state, asked=None, again=None, trouble=None, error=None, damage=None, left=0.0)


def _ask(state: State, question: Question, *before: Instruction) -> Decision:
    return replace(state, asked=question), [*before, question]


# Failures


_LAYER = re.compile(r"\d{6,}-\d{10,}-(\d{10,})-[0-9a-f]{8}-[0-9a-f]{8}\.(?:log|flat)\.arrow")


def cause_of(error: Exception) -> Cause:
    """What kind of failure an error is, by its type alone: what a text says, a row may have said."""
    match error:
        case Superseded():
            return "superseded"
        case StoreTrouble():
            return "trouble"
        case DamagedLayer() | MissingLayer():
            return "damage"
        case JobTroubled(trouble=trouble):
            return trouble
        case LayerAway():
            return "hindered"
        case SlipstreamError():
            return "fault"
        case OSError(errno=errno.ENOSPC | errno.EDQUOT | errno.EROFS):
            return "hindered"
    return "fault"


def _named_epochs(text: str) -> list[int]:
    """The last epochs of the layers that a text names."""
    return [int(found[1]) for found in _LAYER.finditer(text)]


def _as_trouble(error: Exception, epoch: int) -> StoreTrouble:
    return error if isinstance(error, StoreTrouble) else JobHindered(epoch, str(error))
