"""A view, shown as it changes."""

from __future__ import annotations

from collections.abc import Callable

from slipstream.app.screens import Screen
from slipstream.core.clock import Clock
from slipstream.observe.pictures import Sample, ViewPicture


def watch(
    screen: Screen,
    clock: Clock,
    epoch: Callable[[], int],
    picture: Callable[[Sample | None], ViewPicture],
    *,
    every: float,
    seconds: float | None = None,
    until: int | None = None,
) -> None:
    """Show a picture whenever there is a newer epoch, looking every so many seconds, until interrupted, for so long, or
    until an epoch is shown.
    """
    ends = None if seconds is None else clock.monotonic() + seconds
    shown: ViewPicture | None = None
    try:
        while True:
            if shown is None or epoch() > shown.epoch:
                shown = picture(None if shown is None else shown.sample)
                screen.view(shown)
            if until is not None and shown.epoch >= until:
                return
            left = every if ends is None else min(every, ends - clock.monotonic())
            if left <= 0:
                return
            clock.sleep(left)
    except KeyboardInterrupt:
        return
