"""What `app.source` and `app.view` return: a frame to write queries with, and to ask for no rows."""

from __future__ import annotations

from typing import Any, NoReturn

from pyspark.sql import DataFrame
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

from slipstream.core.errors import Placeholder

ACTIONS = (
    *("show", "collect", "count", "take", "first", "head", "tail", "isEmpty", "toPandas", "toArrow"),
    *("toLocalIterator", "foreach", "foreachPartition", "toJSON", "writeTo"),
)
WRITERS = ("write", "writeStream")


class StandIn(ClassicDataFrame):
    """A frame of a source's or a view's columns. What is made of it is an ordinary DataFrame."""

    _stands_for: tuple[str, str]


def stand_in(frame: DataFrame, name: str, kind: str) -> DataFrame:
    """The frame, which says what to call where rows are asked for. kind: "source" or "view"."""
    made = StandIn(frame._jdf, frame.sparkSession)
    made._stands_for = (name, kind)
    return made


def _refusing(action: str, call: str) -> Any:
    def refused(self: StandIn, *_: object, **__: object) -> NoReturn:
        raise Placeholder(*self._stands_for, call)

    refused.__name__ = action
    return refused


for _action in ACTIONS:
    setattr(StandIn, _action, _refusing(_action, f"{_action}()"))
for _action in WRITERS:
    setattr(StandIn, _action, property(_refusing(_action, _action)))
