"""A function of the user's, called with every epoch's changes.

There is no target that could keep a stamp, so the store keeps one (`app.delivering`), after the function has returned.
So an epoch may be given twice, if the engine ends between the two: the epoch's number is what tells that it is the
same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa

from slipstream.core.errors import BadSinkOption
from slipstream.sinks.base import Append, Delivery, Replace, Sink

Function = Callable[[int, pa.Table], object]


@dataclass(frozen=True)
class ForeachSink(Sink):
    """See the module's docstring; made by `foreach`."""

    function: Function = lambda epoch, changes: None
    kind: str = field(default="foreach", init=False)
    exactly_once: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not callable(self.function):
            raise BadSinkOption(
                f"foreach({self.function!r}): it is no function", "give one of (epoch, changes)"
            )

    @property
    def shown(self) -> str:
        return f"{getattr(self.function, '__qualname__', 'a function')}()"

    def opened(self, name: str) -> ForeachTarget:
        return ForeachTarget(self.function)


class ForeachTarget:
    """Gives a function what is delivered."""

    def __init__(self, function: Function) -> None:
        self._function = function

    def stamp(self) -> None:
        """A function has none."""

    def deliver(self, delivery: Delivery) -> None:
        match delivery.work:
            case Append(tables=tables) | Replace(tables=tables):
                rows = pa.concat_tables([delivery.schema.empty_table(), *tables()])
                self._function(delivery.after.epoch, rows)

    def close(self) -> None:
        pass


def foreach(function: Function) -> ForeachSink:
    """Call `function(epoch, changes)` with every change of a view, an Arrow table with the columns `_epoch` and
    `_diff`: first with all rows as of an epoch, then epoch by epoch. At least once: use the epoch to tell repetitions.
    """
    return ForeachSink(function=function)
