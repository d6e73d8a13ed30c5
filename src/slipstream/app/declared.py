"""What `app.source` and `app.view` return: a DataFrame that stands for a collection in queries, and has a picture.

It has no rows, so whoever asks it for some is told what to call.
"""

from __future__ import annotations

from collections.abc import Callable
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
    """A frame of a source's or a view's columns; what a query makes of it is an ordinary DataFrame."""

    def __init__(self, name: str, kind: str, frame: DataFrame) -> None:
        super().__init__(frame._jdf, frame.sparkSession)
        self._name, self._kind = name, kind


def _refusing(action: str, call: str) -> Any:
    def refused(self: StandIn, *_: object, **__: object) -> NoReturn:
        raise Placeholder(self._name, self._kind, call)

    refused.__name__ = action
    return refused


for _action in ACTIONS:
    setattr(StandIn, _action, _refusing(_action, f"{_action}()"))
for _action in WRITERS:
    setattr(StandIn, _action, property(_refusing(_action, _action)))


class Declared(StandIn):
    """A placeholder: it has the columns of a source or a view, and none of its rows. picture: the picture of those, as
    HTML.
    """

    def __init__(self, name: str, kind: str, frame: DataFrame, picture: Callable[[], str]) -> None:
        super().__init__(name, kind, frame)
        self._picture = picture

    def __repr__(self) -> str:
        return f"{self._kind} '{self._name}' [{', '.join(f'{name}: {kind}' for name, kind in self.dtypes)}]"

    def _repr_html_(self) -> str:
        return self._picture()
