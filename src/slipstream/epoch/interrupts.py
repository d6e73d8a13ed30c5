"""Ctrl-C, let through only where nothing is in hand.

Python raises KeyboardInterrupt between any two instructions: also between a source's saying what it gives and the
place where that is kept, and then it is lost. A `Shield` takes the signal's place for the length of a run, notes that
it came, and has it acted on when the loop `allow`s it. Where the loop waits, the shield is `lifted`. Where it computes,
which may take long and may be done again, an interrupt has the work `cancelled` by another thread, and is acted on once
the work has ended: one that was raised while py4j reads an answer would leave the connection in pieces, and the console
full of them. Whoever presses twice is not kept waiting: the second one goes through at once.

A handler of the user's own that need not end the run decides for itself, and at once: for it the shield is lifted.

Signals are the main thread's. In any other there is nothing to shield from.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

_Handler = Callable[[int, FrameType | None], Any]


class Shield:
    """See the module's docstring."""

    def __init__(self) -> None:
        known = signal.getsignal(signal.SIGINT)
        main = threading.current_thread() is threading.main_thread()
        self._handler: _Handler | None = known if main and callable(known) else None
        self._ends = known is signal.default_int_handler or _is_of_spark(known)
        self._came: FrameType | None = None
        self._waits = False
        self._cancel: Callable[[], None] | None = None

    def __enter__(self) -> Shield:
        self._raise()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lower()
        if error is None:
            self.allow()

    def allow(self) -> None:
        """Nothing is in hand: act on an interrupt that came."""
        if self._waits and self._handler is not None:
            self._waits = False
            self._handler(signal.SIGINT, self._came)

    @contextmanager
    def lifted(self) -> Iterator[None]:
        """Let interrupts through."""
        self._lower()
        try:
            self.allow()
            yield
        finally:
            self._raise()

    @contextmanager
    def cancelling(self, cancel: Callable[[], None]) -> Iterator[None]:
        """Have an interrupt end what is done inside, by a function that is called in a thread of its own."""
        if not self._ends:
            with self.lifted():
                yield
            return
        self._cancel = cancel  # before the last look: what comes after that look has the work cancelled
        try:
            self.allow()
            yield
        finally:
            self._cancel = None
        self.allow()

    def _raise(self) -> None:
        if self._handler is not None:
            signal.signal(signal.SIGINT, self._note)

    def _lower(self) -> None:
        if self._handler is not None:
            signal.signal(signal.SIGINT, self._handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._waits:
            self.allow()
        self._waits, self._came = True, frame
        if self._cancel is not None:
            threading.Thread(target=self._cancel, name="slipstream-cancel", daemon=True).start()


def _is_of_spark(handler: Any) -> bool:
    """Whether a handler is the one that PySpark puts up: it cancels all jobs, and raises KeyboardInterrupt."""
    return callable(handler) and str(getattr(handler, "__module__", "")).startswith("pyspark.")
