"""The thread of one sink: carries out what `machine` decides.

It is woken by each epoch, waits for nobody, and nobody waits for it. All it knows of the app is a `Log`: which epochs
there are, and what they hold.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from slipstream.core.clock import Clock
from slipstream.core.crashing import crash_point, crash_points
from slipstream.core.errors import SinkStopped
from slipstream.sinks import machine
from slipstream.sinks.base import Delivery, Sink, Stamp, Target

crash_points(
    sink__before_delivery="a sink is about to deliver epochs, and has not",
    sink__after_delivery="a target has epochs, and the engine does not know it yet",
)

_LOG = logging.getLogger("slipstream.engine")
_TICK = 3600.0  # seconds; a rest without an end is a long one
PATIENCE = 10.0
"""Seconds for which the end of an app waits for what is on its way."""
QUIET = 30.0
"""Seconds for which a target need not be told of epochs that have brought nothing for it."""


class Log(Protocol):
    """What a follower needs of the app."""

    def frontier(self) -> int:
        """The newest epoch that may be delivered."""

    def schema(self) -> pa.Schema:
        """Of the view's rows, now."""

    def joined(self, stamp: Stamp | None) -> Stamp | None:
        """The stamp that a target is to have before anything is delivered; None where it is to be written as a whole.
        Raises where the target is another's, or tells of another history.
        """

    def delivery(self, before: Stamp | None, since: int | None, upto: int) -> Delivery:
        """What makes a target that has one epoch (None: nothing) have another."""


@dataclass(frozen=True)
class Progress:
    """How far a sink is. since: when it was that far (seconds since 1970)."""

    epoch: int | None
    error: str | None
    stopped: bool
    failures: int
    delivered_at: float


class Follower:
    """See the module's docstring. opened: connects to the target. told: is called, in this thread, whenever the
    progress became another.
    """

    def __init__(
        self,
        name: str,
        sink: Sink,
        opened: Callable[[str], Target],
        log: Log,
        clock: Clock,
        told: Callable[[], None],
    ) -> None:
        self.name, self.sink, self._opened = name, sink, opened
        self._log, self._clock, self._told = log, clock, told
        self._state = machine.State()
        self._target: Target | None = None
        self._stamp: Stamp | None = None
        self._delivered_at = self._quiet_since = 0.0
        self._wake, self._closing = threading.Event(), False
        self._asked_anew = False
        self._moved = threading.Condition()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to follow."""
        self._thread = threading.Thread(target=self._work, name=f"slipstream-sink-{self.name}", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Something has happened: look."""
        self._wake.set()

    def reset(self) -> None:
        """Have the target written anew."""
        self._asked_anew = True
        self._wake.set()

    def close(self) -> None:
        """End, once what is on its way is delivered or has failed."""
        self._closing = True
        self._wake.set()
        if self._thread is None:
            self._let_go()
            return
        self._thread.join(PATIENCE)
        if not self._thread.is_alive():  # else it is in the target's hands, and ends with the process
            self._let_go()

    @property
    def progress(self) -> Progress:
        state = self._state
        return Progress(state.reached, state.error, self._stopped, state.failures, self._delivered_at)

    @property
    def _stopped(self) -> bool:
        return self._state.stopped and not self._asked_anew

    @property
    def needs(self) -> int | None:
        """The epoch after which nothing may be forgotten for this sink's sake; None while that is not known."""
        return None if self._stamp is None else self._stamp.epoch

    def await_epoch(self, epoch: int, timeout: float | None) -> bool:
        """Wait until the target has an epoch, or that has failed since; whether it has."""

        def there() -> bool:
            reached = self._state.reached
            return reached is not None and reached >= epoch and not self._asked_anew and not self._state.anew

        before = self._state.failures
        with self._moved:
            self._moved.wait_for(
                lambda: there() or self._state.failures > before or self._stopped or self._closing,
                timeout,
            )
            return there()

    def _work(self) -> None:
        while not self._closing:
            self.step()

    def step(self) -> None:
        """Do one thing."""
        self._wake.clear()
        if self._asked_anew:
            self._happened(machine.Reset())
            self._asked_anew = False
        try:
            frontier = self._log.frontier()
            match machine.decide(self._state, frontier, self._clock.monotonic()):
                case machine.Join():
                    self._happened(self._join())
                case machine.Deliver(since=since, upto=upto):
                    self._happened(self._deliver(since, upto))
                case machine.Rest(seconds=seconds):
                    if self._state.joined and self._state.failures:
                        self._happened(machine.Idle())
                    self._clock.wait(self._wake, _TICK if seconds is None else seconds)
        except Exception as error:  # targets fail in as many ways as there are libraries
            self._let_go()
            self._failed(error)

    def _join(self) -> machine.Event:
        if self._target is None:
            self._target = self._opened(self.name)
        self._stamp = found = self._target.stamp()
        wanted = None if self._state.anew else self._log.joined(found)
        if wanted is not None and wanted != found:
            self._target.deliver(Delivery(found, wanted, self._log.schema()))
            self._stamp = wanted
        return machine.Joined(None if wanted is None else wanted.epoch)

    def _deliver(self, since: int | None, upto: int) -> machine.Event:
        assert self._target is not None, "a follower that has joined has a target"
        if since is not None and self.sink.by_epoch:
            upto = since + 1
        delivery = self._log.delivery(self._stamp, since, upto)
        now = self._clock.monotonic()
        if delivery.work is None and now - self._quiet_since < QUIET:
            return machine.Delivered(upto)
        crash_point("sink.before_delivery")
        self._target.deliver(delivery)
        crash_point("sink.after_delivery")
        self._stamp, self._quiet_since = delivery.after, now
        self._delivered_at = self._clock.now()
        return machine.Delivered(upto)

    def _failed(self, error: Exception) -> None:
        cause = str(error).strip() or type(error).__name__
        lasting = isinstance(error, SinkStopped)
        if self._state.error != cause:
            extra = {"fields": {"sink": self.name, "cause": cause}}
            _LOG.warning("a sink fails", exc_info=error, extra=extra)
        self._happened(machine.Failed(cause, self._clock.monotonic(), lasting))

    def _happened(self, event: machine.Event) -> None:
        with self._moved:
            self._state = machine.after(self._state, event)
            self._moved.notify_all()
        self._told()

    def _let_go(self) -> None:
        target, self._target = self._target, None
        if target is not None:
            with suppress(Exception):  # it is broken already
                target.close()
