"""Watching over engines, as a pure decision: what was seen goes in, what is to be done comes out.

A `Watch` is all that a supervisor knows. Four things can happen (`began`, `looked`, `ended`, `stop_asked`); each
gives the next `Watch` and a list of instructions. There are no processes here, no files and no clock.

- **Stuck** is an engine that has shown no sign of life for too long while it was looked at. Time in which the
  supervisor itself did not run (a laptop asleep, a frozen container) does not count, so nobody is killed for it.
- One epoch may honestly take longer than that. So each time an engine is killed for its silence and nothing was
  computed, the next is given twice as long: a long epoch, or a long start, gets through in the end. Only one that was
  silent for 64 times as long is given up.
- **Progress** is an epoch computed, or a minute of running with nothing to compute. An engine that dies is started
  again, at once if there was progress, else after a pause that doubles; after `give_up_after` failures in a row with
  no progress the supervisor gives up. One whose file is at fault before any engine ever ran is not tried again.
- **A standby** is a second engine that waits for the store. Its turn comes when the store's lock falls with the engine
  that held it. Decided here is when to start one (once the engine has got going, so that the two do not start in each
  other's way), and that it is the engine from then on. That it is told: a standby whose store is gone waits for it to
  be put back, as the engine does that had it, and must not wait any longer than there is such an engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from slipstream.cli.heartbeat import Beat

MOST_COUNTED = 1.0
"""Seconds between two looks that count; if it was more, the supervisor was not running."""

STOPPED_AT_ONCE = 130
_NO_BEAT = Beat(0, "starting", 0)
_MOST_PATIENCE = 64


@dataclass(frozen=True)
class Policy:
    """Seconds, except `give_up_after`: failures in a row."""

    stuck_after: float = 60.0
    start_within: float = 180.0
    first_pause: float = 0.5
    longest_pause: float = 30.0
    settled_after: float = 60.0
    standby_after: float = 5.0
    give_up_after: int = 5
    standby: bool = False

    def pause(self, failures: int) -> float:
        """How long to wait after so many failures in a row."""
        return 0.0 if failures < 2 else min(self.first_pause * 2.0 ** (failures - 2), self.longest_pause)


@dataclass(frozen=True)
class Engine:
    """A process that was started: its last sign of life, for how long it has been silent, and how long it had run when
    it gave that sign. Of a silence only what lies between two looks counts as running, once it is over: a stuck engine
    does not run, nor one that is at an epoch which may yet fail.
    """

    number: int
    beat: Beat = _NO_BEAT
    silent: float = 0.0
    ran: float = 0.0
    first_epoch: int | None = None
    killed: bool = False

    @property
    def progressed(self) -> bool:
        return self.first_epoch is not None and self.beat.epoch > self.first_epoch

    def seen(self, beat: Beat | None, seconds: float) -> Engine:
        """After a look, `seconds` after the one before."""
        if beat is None or beat.count == self.beat.count:
            return replace(self, silent=self.silent + seconds)
        ran = (
            self.ran + min(self.silent + seconds, MOST_COUNTED) if self.beat.state == "running" else self.ran
        )
        first = beat.epoch if beat.state == "running" and self.first_epoch is None else self.first_epoch
        return replace(self, beat=beat, silent=0.0, ran=ran, first_epoch=first)


@dataclass(frozen=True)
class Start:
    """Start a process; a standby waits for the store. `first`: no engine has run yet, so what was asked of this one
    start alone (a takeover, a rebuild) is still to be done.
    """

    number: int
    standby: bool = False
    first: bool = False


@dataclass(frozen=True)
class Kill:
    """End a process and all that it started, at once."""

    number: int


@dataclass(frozen=True)
class Promote:
    """Tell a standby that the engine is gone that it stands by: it is the engine now."""

    number: int


@dataclass(frozen=True)
class Stop:
    """Pass the wish to stop on to a process."""

    number: int


@dataclass(frozen=True)
class Say:
    """Tell the user."""

    text: str


@dataclass(frozen=True)
class Leave:
    """There is nothing left to watch over."""

    code: int


Instruction = Start | Kill | Promote | Stop | Say | Leave


@dataclass(frozen=True)
class Watch:
    """What a supervisor knows."""

    policy: Policy
    engine: Engine | None = None
    standby: Engine | None = None
    started: int = 0
    failures: int = 0
    standby_failures: int = 0
    patience: int = 1
    pause: float = 0.0
    standby_pause: float = 0.0
    ever_ran: bool = False
    stops: int = 0

    def limit(self, engine: Engine) -> float:
        """For how long an engine may be silent."""
        if engine.beat.state in ("starting", "refused"):
            return max(self.policy.start_within, self.policy.stuck_after) * self.patience
        return self.policy.stuck_after * self.patience


Decision = tuple[Watch, list[Instruction]]


def began(policy: Policy) -> Decision:
    """The supervisor has begun."""
    return Watch(policy, Engine(1), started=1), [Start(1, first=True)]


def looked(watch: Watch, seconds: float, beats: Mapping[int, Beat | None]) -> Decision:
    """It has looked at the signs of life, `seconds` after it did so before."""
    seconds = min(seconds, MOST_COUNTED)
    watch = replace(
        watch,
        engine=watch.engine and watch.engine.seen(beats.get(watch.engine.number), seconds),
        standby=watch.standby and watch.standby.seen(beats.get(watch.standby.number), seconds),
        pause=max(0.0, watch.pause - seconds),
        standby_pause=max(0.0, watch.standby_pause - seconds),
    )
    engine = watch.engine
    if engine is not None and engine.first_epoch is not None:
        well = engine.progressed or engine.ran >= watch.policy.settled_after
        watch = replace(
            watch,
            ever_ran=True,
            failures=0 if well else watch.failures,
            patience=1 if well else watch.patience,
        )
    if watch.standby is not None and watch.standby.beat.state == "standby":
        watch = replace(watch, standby_failures=0)
    watch, killed = _killed_if_stuck(watch)
    watch, started = _started_if_due(watch)
    return watch, [*killed, *started]


def ended(watch: Watch, number: int, code: int) -> Decision:
    """A process has ended, with an exit code, or minus the signal that ended it."""
    if watch.standby is not None and watch.standby.number == number:
        return _standby_ended(watch, code)
    engine = watch.engine
    if engine is None or engine.number != number:
        return watch, []
    refused = engine.beat.state == "refused" and not watch.ever_ran
    if watch.stops or code in (0, STOPPED_AT_ONCE) or refused:
        return replace(watch, engine=None), [*_without_standby(watch), Leave(_exit_code(code))]
    silent = engine.killed and not engine.progressed
    failures = watch.failures if silent else watch.failures + 1
    how = "was killed as stuck" if engine.killed else _how(code)
    if failures > watch.policy.give_up_after or (silent and watch.patience == _MOST_PATIENCE):
        often = (
            f"That is the {_th(failures)} time in a row" if not silent else "It has been given ever more time"
        )
        told = (
            f"the engine {how}. {often}, and no epoch was computed in between: giving up at epoch "
            f"{engine.beat.epoch}. What it wrote above says why. Nothing is lost: a new start goes on from there."
        )
        return replace(watch, engine=None), [*_without_standby(watch), Say(told), Leave(_exit_code(code))]
    watch = replace(
        watch,
        engine=watch.standby,
        standby=None,
        failures=failures,
        patience=min(watch.patience * 2, _MOST_PATIENCE) if silent else watch.patience,
        pause=watch.policy.pause(failures),
    )
    if watch.engine is not None:
        return watch, [Say(f"the engine {how}; the standby takes over"), Promote(watch.engine.number)]
    when = f"in {watch.pause:g} s" if watch.pause else "at once"
    watch, started = _started_if_due(watch)
    return watch, [Say(f"the engine {how}; it is started again {when}"), *started]


def stop_asked(watch: Watch) -> Decision:
    """The user wants to stop: first in good order, then at once, then whatever it takes."""
    watch = replace(watch, stops=watch.stops + 1)
    standby = _without_standby(watch)
    watch = replace(watch, standby=None)
    if watch.engine is None:
        return watch, [*standby, Leave(0)]
    number = watch.engine.number
    return watch, [*standby, Stop(number) if watch.stops < 3 else Kill(number)]


def _killed_if_stuck(watch: Watch) -> Decision:
    done: list[Instruction] = []

    def judged(engine: Engine | None, called: str) -> Engine | None:
        if engine is None or engine.killed or engine.silent <= watch.limit(engine):
            return engine
        at = f"at epoch {engine.beat.epoch}"
        told = f"the {called} has shown no sign of life for {engine.silent:.0f} s, {at}: it is killed"
        done.extend((Say(told), Kill(engine.number)))
        return replace(engine, killed=True)

    engine, standby = judged(watch.engine, "engine"), judged(watch.standby, "standby")
    return replace(watch, engine=engine, standby=standby) if done else watch, done


def _started_if_due(watch: Watch) -> Decision:
    if watch.stops:
        return watch, []
    number = watch.started + 1
    if watch.engine is None:
        if watch.pause:
            return watch, []
        start = Start(number, first=not watch.ever_ran)
        return replace(watch, engine=Engine(number), started=number), [start]
    if watch.standby is None and watch.policy.standby and not watch.standby_pause:
        going = watch.engine.progressed or watch.engine.ran >= watch.policy.standby_after
        if going and not watch.engine.killed:
            return replace(watch, standby=Engine(number), started=number), [Start(number, standby=True)]
    return watch, []


def _standby_ended(watch: Watch, code: int) -> Decision:
    failures = watch.standby_failures + 1
    pause = max(watch.policy.pause(failures + 1), watch.policy.first_pause)
    assert watch.standby is not None
    how = "was killed as stuck" if watch.standby.killed else _how(code)
    watch = replace(watch, standby=None, standby_failures=failures, standby_pause=pause)
    return watch, [Say(f"the standby {how}; another is started in {pause:g} s")]


def _without_standby(watch: Watch) -> Sequence[Instruction]:
    return [] if watch.standby is None else [Kill(watch.standby.number)]


def _exit_code(code: int) -> int:
    return code if code >= 0 else 128 - code


def _how(code: int) -> str:
    return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"


def _th(number: int) -> str:
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number, 'th') }"
