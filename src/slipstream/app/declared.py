"""What `app.source` and `app.view` return: a DataFrame that stands for a collection in queries, and has a picture."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame

from slipstream.plan import StandIn


class Declared(StandIn):
    """A placeholder: it has the columns of a source or a view, and none of its rows. picture: the picture of those, as
    HTML.
    """

    def __init__(self, name: str, kind: str, frame: DataFrame, picture: Callable[[], str]) -> None:
        super().__init__(frame._jdf, frame.sparkSession)
        self._stands_for, self._picture = (name, kind), picture

    def __repr__(self) -> str:
        name, kind = self._stands_for
        return f"{kind} '{name}' [{', '.join(f'{column}: {of}' for column, of in self.dtypes)}]"

    def _repr_html_(self) -> str:
        return self._picture()
