"""Crash points: places in the code at which a test may end the process, as a power cut would.

A point is a name passed to `crash_point`. In production it costs one look at a variable that is None. A test
arms one through the environment of the process it starts, `SLIPSTREAM_CRASH=agent.before_commit:3`: the
process kills itself, with no chance to tidy up, the third time it comes by. `POINTS` names them all, so that a
test can visit each.
"""

from __future__ import annotations

import os
import signal

VARIABLE = "SLIPSTREAM_CRASH"

POINTS: dict[str, str] = {}
"""Every crash point and where it is; filled by `crash_points` beside the code that has them."""


def crash_points(**points: str) -> None:
    """Declare points: name (with `__` for a dot) and what has just happened there."""
    POINTS.update({name.replace("__", "."): what for name, what in points.items()})


class _Armed:
    def __init__(self, text: str) -> None:
        self.point, _, times = text.partition(":")
        self.left = int(times or 1)


_armed = _Armed(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None


def arm(text: str) -> None:
    """Arm a point in this process: what the variable would say. For a process that a test has forked."""
    global _armed
    _armed = _Armed(text)


def crash_point(name: str) -> None:
    """Die here, if a test has asked for it."""
    if _armed is not None and _armed.point == name:
        _armed.left -= 1
        if _armed.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
