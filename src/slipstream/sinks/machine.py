"""What a sink's follower does next: a pure function of what it knows. No thread, no clock, no target.

A follower joins its target (reads the stamp, and puts its own incarnation into it), then delivers whatever has come
since in one go, so a slow target gets larger transactions, not a growing queue. What fails is tried again after a pause
that doubles, from joining on: a transaction whose answer was lost may have been done, and only the target knows. What
trying again cannot mend stops the sink, and nothing else, until it is reset.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

FIRST_PAUSE, LAST_PAUSE = 0.5, 60.0


@dataclass(frozen=True)
class State:
    """joined: whether the target is known to be where `reached` says. reached: its epoch, None if it has none. anew:
    the next delivery is the whole view, whatever the target has. failures: in a row. error: what went wrong last.
    stopped: whether that is not tried again. due: when it is.
    """

    joined: bool = False
    reached: int | None = None
    anew: bool = False
    failures: int = 0
    error: str | None = None
    stopped: bool = False
    due: float = 0.0


@dataclass(frozen=True)
class Joined:
    """The target was asked, and is ours. epoch: what it has."""

    epoch: int | None


@dataclass(frozen=True)
class Delivered:
    """The target has an epoch."""

    epoch: int


@dataclass(frozen=True)
class Failed:
    """at: when. lasting: trying again does not help."""

    cause: str
    at: float
    lasting: bool = False


@dataclass(frozen=True)
class Idle:
    """The target has been asked, and there is nothing that it lacks: whatever had failed is over."""


@dataclass(frozen=True)
class Reset:
    """Somebody asked for the target to be written anew."""


Event = Joined | Delivered | Failed | Idle | Reset


@dataclass(frozen=True)
class Join:
    """Ask the target what it has, and make it ours."""


@dataclass(frozen=True)
class Deliver:
    """Write what has come. since: what the target has; None for all rows as of `upto`."""

    since: int | None
    upto: int


@dataclass(frozen=True)
class Rest:
    """Wait for news; at most so long, if given."""

    seconds: float | None = None


Instruction = Join | Deliver | Rest


def after(state: State, event: Event) -> State:
    """What is known once something has happened."""
    match event:
        case Joined(epoch=epoch):
            return replace(state, joined=True, reached=epoch)
        case Delivered(epoch=epoch):
            return State(joined=True, reached=epoch)
        case Failed(cause=cause, at=at, lasting=lasting):
            pause = min(FIRST_PAUSE * 2 ** min(state.failures, 10), LAST_PAUSE)
            failures, due = state.failures + 1, at + pause
            return replace(state, joined=False, failures=failures, error=cause, stopped=lasting, due=due)
        case Idle():
            return replace(state, failures=0, error=None)
        case Reset():
            return State(reached=state.reached, anew=True)


def decide(state: State, frontier: int, now: float) -> Instruction:
    """What to do, given the newest epoch that may be delivered."""
    if state.stopped or not frontier:  # at epoch 0 there is nothing to be shown
        return Rest()
    if now < state.due:
        return Rest(state.due - now)
    if not state.joined:
        return Join()
    if state.anew or state.reached is None:
        return Deliver(None, frontier)
    if state.reached < frontier:
        return Deliver(state.reached, frontier)
    return Rest()
