"""Expressions, put together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DecimalType, DoubleType, FloatType, StringType

from slipstream.plan.catalyst.handles import Expr, Type
from slipstream.plan.catalyst.parsing import Parsing

_LONG_DIGITS = 18  # of a decimal that fits into 64 bits


class Expressions(Parsing):
    """Makes expressions."""

    def column(self, expr: Expr) -> Column:
        from pyspark.sql.classic.column import Column as ClassicColumn

        return ClassicColumn(self._columns.column(expr.java))

    def alias(self, expr: Expr, name: str, like: Expr | None = None) -> Expr:
        """An expression under a name, with a new expression id or that of a named one."""
        identity = self._ids.newExprId() if like is None else like.java.exprId()
        return Expr(self._exprs.Alias(expr.java, name, identity, self._empty, self._none, self._empty))

    def renamed(self, attribute: Expr, target: Expr) -> Expr:
        """An attribute under the name and expression id of another."""
        return self.alias(attribute, self.name(target), target)

    def named_as(self, result: Expr, target: Expr) -> Expr:
        """An entry of a select list, under the name and id of the one in whose place it is."""
        is_named = result.kind == "Alias" or result == target
        return result if is_named else self.renamed(result, target)

    def attribute(self, named: Expr) -> Expr:
        """The attribute that a named expression defines."""
        return Expr(named.java.toAttribute())

    def replace(self, expr: Expr, pairs: Iterable[tuple[Expr, Expr]]) -> Expr:
        """The expression with some of its parts replaced, wherever they mean the same. Of one attribute Spark may have
        found out in one place only that it is never NULL, and then the two are not equal.
        """
        exact = list(pairs)
        by_hash: dict[int, list[tuple[Expr, Expr]]] = {}
        for old, new in exact:
            by_hash.setdefault(old.java.semanticHash(), []).append((old, new))
        alike = [
            (part, new)
            for part in self.subtree(expr)
            for old, new in by_hash.get(part.java.semanticHash(), ())
            if self.same(part, old)
        ]
        return Expr(expr.java.transformDown(self._mapping([*alike, *exact])))

    # Conditions

    def equal_or_both_null(self, left: Expr, right: Expr) -> Expr:
        return Expr(self._exprs.EqualNullSafe(left.java, right.java))

    def at_least_zero(self, whole_number: Expr) -> Expr:
        return Expr(self._exprs.GreaterThanOrEqual(whole_number.java, self.numeral(0).java))

    def numeral(self, number: int) -> Expr:
        return Expr(self._object("Literal").apply(number))

    def is_null(self, expr: Expr) -> Expr:
        return Expr(self._exprs.IsNull(expr.java))

    def equal(self, left: Expr, right: Expr) -> Expr:
        return Expr(self._exprs.EqualTo(left.java, right.java))

    def conjunction(self, conditions: Sequence[Expr]) -> Expr | None:
        result: Expr | None = None
        for condition in conditions:
            result = condition if result is None else Expr(self._exprs.And(result.java, condition.java))
        return result

    def split_and(self, condition: Expr | None) -> list[Expr]:
        return [] if condition is None else self._split(condition, "And")

    def split_or(self, condition: Expr) -> list[Expr]:
        return self._split(condition, "Or")

    def _split(self, condition: Expr, kind: str) -> list[Expr]:
        if condition.kind != kind:
            return [condition]
        left, right = self.sides(condition)
        return self._split(left, kind) + self._split(right, kind)

    # Values

    def cast(self, expr: Expr, to: Type) -> Expr:
        """The expression as another type."""
        if self.jvm_type(expr) == to:
            return expr
        zone = self._some(self.spark.conf.get("spark.sql.session.timeZone"))
        return Expr(self._exprs.Cast(expr.java, to.java, zone))

    def cast_plain(self, text: Expr) -> Expr:
        """A string without its collation."""
        return self.cast(text, Type(self._jvm.org.apache.spark.sql.types.DataTypes.StringType))

    def cast_long(self, number: Expr) -> Expr:
        """A whole number with 64 bits."""
        return self.cast(number, Type(self._jvm.org.apache.spark.sql.types.DataTypes.LongType))

    def normalised(self, key: Expr) -> Expr:
        """A grouping or join key as Spark compares it: one NaN, one zero, and strings by their collation."""
        return self._one_zero(self.collation_key(key))

    def _one_zero(self, expr: Expr) -> Expr:
        """An expression with one NaN and one zero."""
        optimizer = self._jvm.org.apache.spark.sql.catalyst.optimizer
        rule = getattr(getattr(optimizer, "NormalizeFloatingNumbers$"), "MODULE$")
        return Expr(rule.normalize(expr.java))

    def collation_key(self, key: Expr) -> Expr:
        """An expression with bytes in the place of strings that have a collation, equal where those are."""
        return Expr(self._object("CollationKey").injectCollationKey(key.java))

    def microseconds(self, frame: DataFrame, name: str) -> Column:
        """A timestamp column, with or without a zone, as microseconds since 1970."""
        (attribute,) = self.output(self.analysed(frame.select(F.col(f"`{name}`"))))
        return self.moment(attribute)

    def moment(self, time: Expr) -> Column:
        """A timestamp, with or without a zone, as microseconds since 1970."""
        whole = self._jvm.org.apache.spark.sql.types.DataTypes.LongType
        own = self.jvm_type(time).java
        return self.column(Expr(self._exprs.PreciseTimestampConversion(time.java, own, whole)))

    def timestamp(self, moment: Expr, like: Expr) -> Expr:
        """Microseconds since 1970 as a timestamp of another one's type."""
        whole = self._jvm.org.apache.spark.sql.types.DataTypes.LongType
        kind = self.jvm_type(like).java
        return Expr(self._exprs.PreciseTimestampConversion(moment.java, whole, kind))

    # Orders

    def sort_order(self, expr: Expr, descending: bool) -> Expr:
        """An expression as a sort key."""
        direction = self._object("Descending" if descending else "Ascending")
        nulls = direction.defaultNullOrdering()
        return Expr(self._exprs.SortOrder(expr.java, direction, nulls, self._empty))

    def order_prefix(self, order: Expr) -> Column:
        """A 64-bit integer that sorts as the sort key does, as far as 64 bits go (ties may hide a
        difference).
        """
        key = self.collation_key(self.child(order))
        if key != self.child(order):
            order = self._sorted_as(order, key)
        kind = self.type_of(self.child(order))
        if isinstance(kind, DecimalType) and kind.precision > _LONG_DIGITS:
            # Spark's own prefix of a wide decimal rounds the value in place, and the row would keep it so.
            double = Type(self._jvm.org.apache.spark.sql.types.DataTypes.DoubleType)
            order = self._sorted_as(order, self.cast(self.child(order), double))
            kind = DoubleType()
        prefix = self.column(Expr(self._exprs.SortPrefix(order.java)))
        if isinstance(kind, StringType | BinaryType | DoubleType | FloatType):  # compared as unsigned
            prefix = prefix.bitwiseXOR(F.lit(-(2**63)))
        if not self.ascending(order):
            prefix = F.bitwise_not(prefix)
        at_null = F.lit(-(2**63) if self.nulls_first(order) else 2**63 - 1)
        return F.when(self.column(self.child(order)).isNull(), at_null).otherwise(prefix)

    def _sorted_as(self, order: Expr, key: Expr) -> Expr:
        """Another key in the same order."""
        how = (order.java.direction(), order.java.nullOrdering())
        return Expr(self._exprs.SortOrder(key.java, *how, self._empty))

    # Aggregate expressions

    def filtered(self, aggregate: Expr, condition: Expr) -> Expr:
        """An aggregate expression over only those of its rows for which the condition is true."""
        only = self.only_where(aggregate)
        both = condition if only is None else Expr(self._exprs.And(only.java, condition.java))
        return self._aggregate_expression(aggregate, self.is_distinct(aggregate), both)

    def of_all_values(self, aggregate: Expr) -> Expr:
        """An aggregate expression without its DISTINCT, over values as Spark shows those that it has told apart."""
        function = self.function(aggregate)
        shown = [self._one_zero(each) for each in self.children(function)]
        # A copy, also where nothing differs: once analysed, `ListAgg` holds what Spark cannot send to tasks.
        over = Expr(function.java.withNewChildren(self._sequence(shown)).clone())
        return self._aggregate_expression(aggregate, False, self.only_where(aggregate), over)

    def without_distinct(self, aggregate: Expr) -> Expr:
        """An aggregate expression over all of its rows."""
        return self._aggregate_expression(aggregate, False, self.only_where(aggregate))

    def _aggregate_expression(
        self, like: Expr, distinct: bool, only: Expr | None, function: Expr | None = None
    ) -> Expr:
        own = like.java.aggregateFunction() if function is None else function.java
        parts = (own, like.java.mode(), distinct, self._some(only))
        return Expr(self._exprs.aggregate.AggregateExpression(*parts, like.java.resultId()))

    def least(self, expr: Expr) -> Expr:
        return Expr(self._exprs.aggregate.Min(expr.java).toAggregateExpression())

    def first(self, expr: Expr) -> Expr:
        return Expr(self._exprs.aggregate.First(expr.java, False).toAggregateExpression())
