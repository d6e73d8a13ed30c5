"""What all of Catalyst's wrappers share: the session, names in the JVM, Scala's collections."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from py4j.java_gateway import is_instance_of
from pyspark.sql import SparkSession

from slipstream.plan.catalyst.handles import ExprList, bare
from slipstream.spark.jvm import Remembered


class InJvm:
    """Names and collections in the JVM of one Spark session."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self._jvm: Any = Remembered(spark._jvm)
        self._jsession: Any = spark._jsparkSession
        catalyst = self._jvm.org.apache.spark.sql.catalyst
        self._plans: Any = catalyst.plans.logical
        self._exprs: Any = catalyst.expressions
        self._ids: Any = self._exprs.NamedExpression
        self._patterns: Any = catalyst.trees.TreePattern
        self._columns: Any = self._jvm.org.apache.spark.sql.classic.ExpressionUtils
        self._joins: Any = catalyst.plans
        self._none: Any = getattr(getattr(self._jvm.scala, "None$"), "MODULE$")
        self._empty = self._sequence([])

    def items(self, sequence: Any) -> list[Any]:
        """What a Scala sequence holds."""
        return [sequence.apply(i) for i in range(sequence.size())]

    def is_a(self, value: Any, name: str) -> bool:
        """Whether a value in the JVM is of a class, by its full name."""
        there: bool = is_instance_of(self.spark.sparkContext._gateway, value, name)
        return there

    def _option(self, value: Any) -> Any | None:
        return value.get() if value.isDefined() else None

    def _some(self, value: Any | None) -> Any:
        return self._none if value is None else self._jvm.scala.Some(bare(value))

    def _sequence(self, values: Iterable[Any] | ExprList) -> Any:
        if isinstance(values, ExprList):
            return values.java
        gathered = self._jvm.java.util.ArrayList()
        for value in values:
            gathered.add(bare(value))
        return self._jvm.org.apache.spark.api.python.PythonUtils.toSeq(gathered)

    def _mapping(self, pairs: Iterable[tuple[Any, Any]]) -> Any:
        """A Scala Map, which is a PartialFunction too: what `transformUp` takes."""
        gathered = self._jvm.java.util.HashMap()
        for old, new in pairs:
            gathered.put(bare(old), bare(new))
        return self._jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(gathered)

    def _object(self, name: str) -> Any:
        """A Scala object among the expressions."""
        return getattr(getattr(self._exprs, f"{name}$"), "MODULE$")
