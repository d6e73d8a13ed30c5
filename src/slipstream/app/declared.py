"""What `app.source` and `app.view` return: a DataFrame that stands for a collection in queries, and has a picture."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame


class Declared(ClassicDataFrame):
    """A placeholder: it has the columns of a source or a view, and none of its rows. picture: the picture of those, as
    HTML.
    """

    def __init__(self, name: str, kind: str, frame: DataFrame, picture: Callable[[], str]) -> None:
        super().__init__(frame._jdf, frame.sparkSession)
        self._name, self._kind, self._picture = name, kind, picture

    def __repr__(self) -> str:
        return f"{self._kind} '{self._name}' [{', '.join(f'{name}: {kind}' for name, kind in self.dtypes)}]"

    def _repr_html_(self) -> str:
        return self._picture()
