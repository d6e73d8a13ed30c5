"""The one file that touches Catalyst: Spark's logical plans, taken apart and put together through py4j.

Plans and expressions stay in the JVM; here they are opaque handles (`Node`, `Expr`). Putting a plan together
keeps the expression ids of the plan it came from: a node that is replaced is replaced by one that outputs the
same attributes, so that everything above it still resolves and no expression is ever turned into text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from py4j.java_gateway import is_instance_of
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    MapType,
    StringType,
    StructField,
    StructType,
    _parse_datatype_json_string,
)

from slipstream.errors import BadDuration
from slipstream.jvm import Remembered

Node = Any
Expr = Any

_PLANS_IN_EXPRESSIONS = {"ScalarSubquery", "Exists", "ListQuery", "LateralSubquery"}
WATERMARK_DELAY = "spark.watermarkDelayMs"  # in an attribute's metadata: Spark's own mark of an event time
WATERMARK = "slipstream.watermark"  # beside it: the watermark's name
SESSION = "spark.sessionWindow"  # in an attribute's metadata, from analysis on
_SOME_TIME = 1 << 40  # milliseconds, and too large for py4j to take for an Integer
_LONG_DIGITS = 18  # of a decimal that fits into 64 bits


class Catalyst:
    """Catalyst, as seen from one Spark session."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self._jvm: Any = Remembered(spark._jvm)
        self._jsession: Any = spark._jsparkSession
        catalyst = self._jvm.org.apache.spark.sql.catalyst
        self._plans: Any = catalyst.plans.logical
        self._exprs: Any = catalyst.expressions
        self._ids: Any = self._exprs.NamedExpression
        self._columns: Any = self._jvm.org.apache.spark.sql.classic.ExpressionUtils
        self._joins: Any = catalyst.plans
        self._none: Any = getattr(getattr(self._jvm.scala, "None$"), "MODULE$")
        self._empty = self.sequence([])

    # Taking apart

    def analysed(self, frame: DataFrame) -> Node:
        return frame._jdf.queryExecution().analyzed()

    def optimised(self, frame: DataFrame) -> Node:
        """The optimised plan. Spark's check of what a batch query may hold would refuse one node that we maintain."""
        plan = self.analysed(frame)
        pattern = self._jvm.org.apache.spark.sql.catalyst.trees.TreePattern.DISTINCT_LIKE()
        if plan.containsPattern(pattern) and "DeduplicateWithinWatermark" in map(self.kind, self.nodes(plan)):
            return self._jsession.sessionState().optimizer().execute(plan.clone())
        return frame._jdf.queryExecution().optimizedPlan()

    def kind(self, node: Node | Expr) -> str:
        """A node's or expression's class, as Spark names it."""
        name: str = node.getClass().getSimpleName()
        return name

    def children(self, node: Node | Expr) -> list[Any]:
        return self.items(node.children())

    def items(self, sequence: Any) -> list[Any]:
        return [sequence.apply(i) for i in range(sequence.size())]

    def output(self, node: Node) -> list[Expr]:
        return self.items(node.output())

    def option(self, value: Any) -> Any | None:
        return value.get() if value.isDefined() else None

    def expressions(self, node: Node) -> list[Expr]:
        return self.items(node.expressions())

    def subtree(self, expr: Expr) -> Iterator[Expr]:
        yield expr
        for child in self.children(expr):
            yield from self.subtree(child)

    def plan_in(self, expr: Expr) -> Node | None:
        """The plan of a subquery; None for any other expression."""
        return expr.plan() if self.kind(expr) in _PLANS_IN_EXPRESSIONS else None

    def nodes(self, plan: Node) -> Iterator[Node]:
        yield plan
        for child in self.children(plan):
            yield from self.nodes(child)

    def subqueries(self, node: Node) -> list[Expr]:
        """The subqueries in a node's own expressions, each meaning once."""
        found: list[Expr] = []
        for expression in self.expressions(node) if self.has_subquery(node) else []:
            for part in self.subtree(expression) if self.has_subquery(expression) else []:
                if self.plan_in(part) is not None and not any(self.same(part, known) for known in found):
                    found.append(part)
        return found

    def has_subquery(self, tree: Node | Expr) -> bool:
        """Whether there is a subquery in an expression, or in any expression of a plan."""
        pattern = self._jvm.org.apache.spark.sql.catalyst.trees.TreePattern.PLAN_EXPRESSION()
        there: bool = tree.containsPattern(pattern)
        return there

    def has_limit(self, plan: Node) -> bool:
        """Whether there is a LIMIT or an OFFSET in a plan, other than in subqueries."""
        patterns = self._jvm.org.apache.spark.sql.catalyst.trees.TreePattern
        return any(plan.containsPattern(each) for each in (patterns.LIMIT(), patterns.OFFSET()))

    def at_most_one_row(self, plan: Node) -> bool:
        """Whether Spark knows that a plan has no second row."""
        most = self.option(plan.maxRows())
        return most is not None and most <= 1

    def orderable(self, expr: Expr) -> bool:
        """Whether values of the expression's type can be compared for equality."""
        rule = getattr(getattr(self._exprs, "RowOrdering$"), "MODULE$")
        can: bool = rule.isOrderable(self.sequence([expr]))  # not of a type: a struct is a sequence, to py4j
        return can

    def refers_only_to(self, expr: Expr, plan: Node) -> bool:
        """Whether all that an expression reads, if anything, is in the output of a plan."""
        within: bool = expr.references().subsetOf(plan.outputSet())
        return within

    def type_of(self, expr: Expr) -> DataType:
        """The type of an expression, as its values are kept."""
        return kept_type(_parse_datatype_json_string(expr.dataType().json()))

    def expr_id(self, attribute: Expr) -> int:
        number: int = attribute.exprId().id()
        return number

    def same(self, one: Expr, other: Expr) -> bool:
        """Whether two expressions mean the same."""
        equal: bool = one.semanticEquals(other)
        return equal

    def is_session(self, key: Expr) -> bool:
        """Whether a grouping key is a session window: rows of one group are merged by it, not told apart."""
        marked: bool = self.kind(key) == "AttributeReference" and key.metadata().contains(SESSION)
        return marked

    def watermark_of(self, attribute: Expr) -> tuple[str, int] | None:
        """The watermark that an attribute is measured by, and its delay in milliseconds."""
        if self.kind(attribute) != "AttributeReference" or not attribute.metadata().contains(WATERMARK):
            return None
        marks = attribute.metadata()
        return marks.getString(WATERMARK), marks.getLong(WATERMARK_DELAY)

    def has_event_time(self, node: Node) -> bool:
        """Whether any column of a node is marked as event time: one call, however many there are."""
        return WATERMARK in node.schema().json()

    def delay(self, text: str) -> int:
        """An interval as Spark reads it, in milliseconds."""
        intervals = self._jvm.org.apache.spark.sql.catalyst.util.IntervalUtils
        try:
            milliseconds: int = self._plans.EventTimeWatermark.getDelayMs(intervals.fromIntervalString(text))
        except PySparkException:
            raise BadDuration(text) from None
        if milliseconds < 0:
            raise BadDuration(text)
        return milliseconds

    def microseconds(self, frame: DataFrame, name: str) -> Column:
        """A timestamp column, with or without a zone, as microseconds since 1970."""
        attribute = self.analysed(frame.select(F.col(f"`{name}`"))).output().apply(0)
        whole = self._jvm.org.apache.spark.sql.types.DataTypes.LongType
        return self.column(self._exprs.PreciseTimestampConversion(attribute, attribute.dataType(), whole))

    def reach_after(self, own: Node, other: Node, condition: Any) -> int | None:
        """For how many milliseconds after its event time a row of one side of a join may match a row of the other whose
        event time is after the watermark, as Spark derives it from the condition.
        """
        helper = getattr(
            getattr(self._jvm.org.apache.spark.sql.catalyst.analysis, "StreamingJoinHelper$"), "MODULE$"
        )
        some = self._jvm.scala.Some(_SOME_TIME)
        reached = self.option(
            helper.getStateValueWatermark(own.outputSet(), other.outputSet(), condition, some)
        )
        return None if reached is None else _SOME_TIME - reached

    def leaf_id(self, leaf: Node) -> int | None:
        """The identity of a placeholder made by `placeholder`, whichever copy of it this is."""
        if self.kind(leaf) != "LogicalRDD":
            return None
        number: int = leaf.rdd().id()
        return number

    def leaves(self, plan: Node) -> frozenset[int]:
        """The identities of the placeholders in a plan."""
        found = (self.leaf_id(leaf) for leaf in self.items(plan.collectLeaves()))
        return frozenset(each for each in found if each is not None)

    def leaf_of(self, frame: DataFrame) -> int:
        """The identity of a placeholder."""
        identity = self.leaf_id(self.analysed(frame))
        assert identity is not None, "not a placeholder"
        return identity

    def relations(self, text: str) -> list[str]:
        """The tables and views that SQL text names by one word, in order, each once, without its own CTEs. A name of
        several parts is that of a table in a catalog, or of a file: parquet.`/path`.
        """
        parsed = self._jsession.sessionState().sqlParser().parsePlan(text)
        found: list[str] = []
        self._gather_relations(parsed, found, set())
        return list(dict.fromkeys(found))

    def has_watermark(self, text: str) -> bool:
        """Whether SQL text has a WATERMARK clause."""
        parsed = self._jsession.sessionState().sqlParser().parsePlan(text)
        return any(self.kind(node) == "UnresolvedEventTimeWatermark" for node in self.nodes(parsed))

    def _gather_relations(self, node: Node, found: list[str], own: set[str]) -> None:
        kind = self.kind(node)
        if kind == "UnresolvedRelation":
            name, *more = self.items(node.multipartIdentifier())
            if not more and name.lower() not in own:
                found.append(name)
            return
        if kind == "UnresolvedWith":
            for pair in self.items(node.cteRelations()):
                within = own | {pair._1().lower()}
                self._gather_relations(pair._2(), found, within if node.allowRecursion() else own)
                own = within
        for expression in self.expressions(node):
            for part in self.subtree(expression):
                if (subquery := self.plan_in(part)) is not None:
                    self._gather_relations(subquery, found, own)
        for child in self.children(node):
            self._gather_relations(child, found, own)

    def is_a(self, value: Any, name: str) -> bool:
        """Whether a value in the JVM is of a class, by its full name."""
        there: bool = is_instance_of(self.spark.sparkContext._gateway, value, name)
        return there

    def goes_by_zone(self, cast: Expr) -> bool:
        """Whether what a cast gives depends on the time zone. Spark notes one in every cast."""
        rule = getattr(getattr(self._exprs, "Cast$"), "MODULE$")
        goes: bool = rule.needsTimeZone(cast.child().dataType(), cast.dataType())
        return goes

    def python_command(self, function: Any) -> tuple[bytes, dict[int, str]]:
        """A Python function as workers are sent it, and the files of the broadcast variables that it refers to."""
        command: bytes = function.command().toArray(self._jvm.scala.reflect.ClassTag.Byte())
        variables = function.broadcastVars()
        found = (variables.get(i) for i in range(variables.size()))
        return bytes(command), {each.id(): each.value().path() for each in found}

    def line(self, node: Node) -> str:
        """One node on one line, without expression ids."""
        return _without_frames(re.sub(r"#\d+L?", "", node.simpleString(60)))

    def text(self, plan: Node) -> str:
        """A plan as text, whole: `toString` leaves out what is beyond 25 fields."""
        return _without_frames(plan.treeString(True, False, 2**31 - 1, False, False))

    # Putting together

    def placeholder(self, schema: StructType) -> DataFrame:
        """A relation with this schema that the optimiser does not know to be empty."""
        return self.spark.createDataFrame(self.spark.sparkContext.emptyRDD(), schema)

    def frame(self, plan: Node) -> DataFrame:
        """A plan that is complete, as a frame to run. Analysing it again would give new ids to attributes
        that occur twice.
        """
        plan.setAnalyzed()
        return DataFrame(
            self._jvm.org.apache.spark.sql.classic.Dataset.ofRows(self._jsession, plan), self.spark
        )

    def over(self, plan: Node, change: Callable[[DataFrame], DataFrame]) -> Node:
        """What DataFrame calls make of a plan. They see a stub with the plan's attributes, so each analyses
        only itself.
        """
        stub = self._plans.LocalRelation(plan.output(), self._empty, False, self._none)
        return self.swap(self.analysed(change(self.frame(stub))), [(stub, plan)])

    def select(self, plan: Node, columns: Sequence[Column]) -> Node:
        return self.over(plan, lambda frame: frame.select(*columns))

    def where(self, plan: Node, condition: Column) -> Node:
        return self.over(plan, lambda frame: frame.where(condition))

    def schema(self, plan: Node) -> StructType:
        return StructType.fromJson(json.loads(plan.schema().json()))

    def column(self, expr: Expr) -> Column:
        from pyspark.sql.classic.column import Column as ClassicColumn

        return ClassicColumn(self._columns.column(expr))

    def sequence(self, values: Iterable[Any]) -> Any:
        gathered = self._jvm.java.util.ArrayList()
        for value in values:
            gathered.add(value)
        return self._jvm.org.apache.spark.api.python.PythonUtils.toSeq(gathered)

    def mapping(self, pairs: Iterable[tuple[Any, Any]]) -> Any:
        """A Scala Map, which is a PartialFunction too: what `transformUp` takes."""
        gathered = self._jvm.java.util.HashMap()
        for old, new in pairs:
            gathered.put(old, new)
        return self._jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(gathered)

    def new_id(self) -> Any:
        return self._ids.newExprId()

    def alias(self, expr: Expr, name: str, expr_id: Any | None = None) -> Expr:
        extra = (self._empty, self._none, self._empty)
        return self._exprs.Alias(expr, name, expr_id or self.new_id(), *extra)

    def renamed(self, attribute: Expr, target: Expr) -> Expr:
        """An attribute under the name and expression id of another."""
        return self.alias(attribute, target.name(), target.exprId())

    def named_as(self, result: Expr, target: Expr) -> Expr:
        """An entry of a select list, under the name and id of the one in whose place it is."""
        is_named = self.kind(result) == "Alias" or result.equals(target)
        return result if is_named else self.renamed(result, target)

    def attribute(self, named: Expr) -> Expr:
        """The attribute that a named expression defines."""
        return named.toAttribute()

    def project(self, expressions: Iterable[Expr], child: Node) -> Node:
        return self._plans.Project(self.sequence(expressions), child)

    def filter(self, condition: Expr, child: Node) -> Node:
        return self._plans.Filter(condition, child)

    def union(self, children: Sequence[Node]) -> Node:
        return children[0] if len(children) == 1 else self._plans.Union(self.sequence(children), False, False)

    def with_children(self, node: Node, children: Iterable[Node]) -> Node:
        return node.withNewChildren(self.sequence(children))

    def swap(self, plan: Node, pairs: Iterable[tuple[Node, Node]]) -> Node:
        """The plan with some of its nodes replaced by others."""
        return plan.transformUp(self.mapping(pairs))

    def replace(self, expr: Expr, pairs: Iterable[tuple[Expr, Expr]]) -> Expr:
        """The expression with some of its parts replaced, wherever they mean the same. Of one attribute Spark may have
        found out in one place only that it is never NULL, and then the two are not equal.
        """
        exact = list(pairs)
        by_hash: dict[int, list[tuple[Expr, Expr]]] = {}
        for old, new in exact:
            by_hash.setdefault(old.semanticHash(), []).append((old, new))
        alike = [
            (part, new)
            for part in self.subtree(expr)
            for old, new in by_hash.get(part.semanticHash(), ())
            if self.same(part, old)
        ]
        return expr.transformDown(self.mapping([*alike, *exact]))

    def expand(self, node: Node, extra: Sequence[Expr], child: Node) -> tuple[Node, list[Expr]]:
        """An Expand that carries extra attributes along; their new attributes."""
        carried = [e.newInstance() for e in extra]
        rows = [self.sequence([*self.items(row), *extra]) for row in self.items(node.projections())]
        output = self.sequence([*self.output(node), *carried])
        return self._plans.Expand(self.sequence(rows), output, child), carried

    def aggregate(self, keys: Iterable[Expr], results: Iterable[Expr], child: Node) -> Node:
        return self._plans.Aggregate(self.sequence(keys), self.sequence(results), child, self._none)

    def window(self, node: Node, partition: Iterable[Expr], child: Node) -> Node:
        return self._plans.Window(
            node.windowExpressions(), self.sequence(partition), node.orderSpec(), child, self._none
        )

    def ordered_window(self, node: Node, orders: Sequence[Expr], child: Node) -> Node:
        """A Window without an order, in an order."""
        order = self.sequence(orders)
        specs = [
            part
            for each in self.expressions(node)
            for part in self.subtree(each)
            if self.kind(part) == "WindowSpecDefinition"
        ]
        pairs = [
            (spec, self._exprs.WindowSpecDefinition(spec.partitionSpec(), order, spec.frameSpecification()))
            for spec in specs
        ]
        named = self.sequence([self.replace(each, pairs) for each in self.items(node.windowExpressions())])
        return self._plans.Window(named, node.partitionSpec(), order, child, self._none)

    def sort(self, orders: Sequence[Expr], child: Node, *, everywhere: bool = True) -> Node:
        """Rows in an order: all of them, or those of each partition."""
        return self._plans.Sort(self.sequence(orders), everywhere, child, self._none)

    def join(self, node: Node, left: Node, right: Node, condition: Expr | None) -> Node:
        some = self._none if condition is None else self._jvm.scala.Some(condition)
        return self._plans.Join(left, right, node.joinType(), some, node.hint())

    def inner_join(self, left: Node, right: Node, condition: Expr | None) -> Node:
        """An inner join of two plans that have no attribute in common."""
        return self._join_of(left, right, self._join_type("Inner"), condition)

    def rejoin(self, node: Node, left: Node, right: Node, condition: Expr) -> Node:
        """A join of the same kind as another, over other inputs."""
        return self._join_of(left, right, node.joinType(), condition)

    def anti_join(self, left: Node, right: Node, condition: Expr) -> Node:
        return self._join_of(left, right, self._join_type("LeftAnti"), condition)

    def _join_of(self, left: Node, right: Node, how: Any, condition: Expr | None) -> Node:
        some = self._none if condition is None else self._jvm.scala.Some(condition)
        return self._plans.Join(left, right, how, some, self._plans.JoinHint.NONE())

    def _join_type(self, name: str) -> Any:
        return getattr(getattr(self._joins, f"{name}$"), "MODULE$")

    def filtered(self, aggregate: Expr, condition: Expr) -> Expr:
        """An aggregate expression over only those of its rows for which the condition is true. Over distinct values it
        is one over NULLs in the place of the others: Spark can not filter `listagg(DISTINCT x) WITHIN GROUP`.
        """
        function = aggregate.aggregateFunction()
        arguments = self.children(function)
        if aggregate.isDistinct() and not all(each.foldable() for each in arguments):
            masked = [self._masked(each, condition) for each in arguments]
            return self.replace(aggregate, [(function, self.with_children(function, masked))])
        only = self.option(aggregate.filter())
        both = condition if only is None else self._exprs.And(only, condition)
        return self._aggregate_expression(aggregate, aggregate.isDistinct(), self._jvm.scala.Some(both))

    def _masked(self, argument: Expr, condition: Expr) -> Expr:
        """An argument of an aggregate, and NULL where a condition is not true."""
        if argument.foldable():
            return argument
        if self.kind(argument) == "SortOrder":
            return self.with_children(
                argument, [self._masked(each, condition) for each in self.children(argument)]
            )
        null = getattr(getattr(self._exprs, "Literal$"), "MODULE$").create(None, argument.dataType())
        return self._exprs.If(condition, argument, null)

    def without_distinct(self, aggregate: Expr) -> Expr:
        """An aggregate expression over all of its rows."""
        return self._aggregate_expression(aggregate, False, aggregate.filter())

    def _aggregate_expression(self, like: Expr, distinct: bool, only: Any) -> Expr:
        parts = (like.aggregateFunction(), like.mode(), distinct, only, like.resultId())
        return self._exprs.aggregate.AggregateExpression(*parts)

    def rewrite_expressions(self, node: Node, pairs: Iterable[tuple[Expr, Expr]]) -> Node:
        """A node with some of its expressions replaced by others."""
        return node.transformExpressionsDown(self.mapping(pairs))

    def equal_or_both_null(self, left: Expr, right: Expr) -> Expr:
        return self._exprs.EqualNullSafe(left, right)

    def at_least_zero(self, whole_number: Expr) -> Expr:
        zero = getattr(getattr(self._exprs, "Literal$"), "MODULE$").apply(0)
        return self._exprs.GreaterThanOrEqual(whole_number, zero)

    def is_null(self, expr: Expr) -> Expr:
        return self._exprs.IsNull(expr)

    def equal(self, left: Expr, right: Expr) -> Expr:
        return self._exprs.EqualTo(left, right)

    def conjunction(self, conditions: Sequence[Expr]) -> Expr | None:
        result: Expr | None = None
        for condition in conditions:
            result = condition if result is None else self._exprs.And(result, condition)
        return result

    def split_and(self, condition: Expr) -> list[Expr]:
        if self.kind(condition) == "And":
            return self.split_and(condition.left()) + self.split_and(condition.right())
        return [condition]

    def split_or(self, condition: Expr) -> list[Expr]:
        if self.kind(condition) == "Or":
            return self.split_or(condition.left()) + self.split_or(condition.right())
        return [condition]

    def cast(self, expr: Expr, to: Any) -> Expr:
        """The expression as another Spark type (a JVM DataType)."""
        return expr if expr.dataType().equals(to) else self._exprs.Cast(expr, to, self._zone())

    def _zone(self) -> Any:
        return self._jvm.scala.Some(self.spark.conf.get("spark.sql.session.timeZone"))

    def normalised(self, key: Expr) -> Expr:
        """A grouping or join key as Spark compares it: one NaN, one zero, and strings by their collation."""
        rule = getattr(
            getattr(self._jvm.org.apache.spark.sql.catalyst.optimizer, "NormalizeFloatingNumbers$"), "MODULE$"
        )
        return rule.normalize(self.collation_key(key))

    def collation_key(self, key: Expr) -> Expr:
        """An expression with bytes in the place of strings that have a collation, equal where those are."""
        return getattr(getattr(self._exprs, "CollationKey$"), "MODULE$").injectCollationKey(key)

    def cast_plain(self, text: Expr) -> Expr:
        """A string without its collation."""
        return self.cast(text, self._jvm.org.apache.spark.sql.types.DataTypes.StringType)

    def least(self, expr: Expr) -> Expr:
        return self._exprs.aggregate.Min(expr).toAggregateExpression()

    def first(self, expr: Expr) -> Expr:
        return self._exprs.aggregate.First(expr, False).toAggregateExpression()

    def sort_order(self, expr: Expr, descending: bool) -> Expr:
        """An expression as a sort key."""
        direction = getattr(getattr(self._exprs, "Descending$" if descending else "Ascending$"), "MODULE$")
        return self._exprs.SortOrder(expr, direction, direction.defaultNullOrdering(), self._empty)

    def order_prefix(self, order: Expr) -> Column:
        """A 64-bit integer that sorts as the sort key does, as far as 64 bits go (ties may hide a
        difference).
        """
        key = self.collation_key(order.child())
        if not key.equals(order.child()):
            order = self._exprs.SortOrder(key, order.direction(), order.nullOrdering(), self._empty)
        kind = self.type_of(order.child())
        if isinstance(kind, DecimalType) and kind.precision > _LONG_DIGITS:
            # Spark's own prefix of a wide decimal rounds the value in place, and the row would keep it so.
            wide = self.cast(order.child(), self._jvm.org.apache.spark.sql.types.DataTypes.DoubleType)
            order = self._exprs.SortOrder(wide, order.direction(), order.nullOrdering(), self._empty)
            kind = DoubleType()
        prefix = self.column(self._exprs.SortPrefix(order))
        if isinstance(kind, StringType | BinaryType | DoubleType | FloatType):  # compared as unsigned
            prefix = prefix.bitwiseXOR(F.lit(-(2**63)))
        ascending = self.kind(order.direction()).startswith("Ascending")
        if not ascending:
            prefix = F.bitwise_not(prefix)
        first = self.kind(order.nullOrdering()).startswith("NullsFirst")
        at_null = F.lit(-(2**63) if first else 2**63 - 1)
        return F.when(self.column(order.child()).isNull(), at_null).otherwise(prefix)

    # Stages in Python

    def schema_of(self, columns: Mapping[str, DataType]) -> pa.Schema:
        """The Arrow schema of an operator's input: Spark's types, timestamps in UTC."""
        fields = [StructField(name, kind) for name, kind in columns.items()]
        return to_arrow_schema(StructType(fields), timezone="UTC")

    # Running

    def project_as(self, project_list: Any, child: Node) -> Node:
        """A projection whose list was made before."""
        return self._plans.Project(project_list, child)

    def kept(self, plan: Node) -> tuple[DataFrame, Node]:
        """A plan's rows, to be kept once they are computed, and the relation that stands for them."""
        frame = self.frame(plan)
        frame._jdf.persist()
        return frame, frame._jdf.queryExecution().withCachedData()

    def is_kept(self, relation: Node) -> bool:
        """Whether each part of the relation that stands for kept rows was computed by a task that succeeded."""
        loaded: bool = relation.cacheBuilder().isCachedColumnBuffersLoaded()
        return loaded

    def dropped(self, frame: DataFrame) -> None:
        """Keep a frame's rows no longer."""
        frame._jdf.unpersist()

    def planned(self, frame: DataFrame) -> None:
        """Optimise and plan a frame, so that running it does only that."""
        frame._jdf.queryExecution().executedPlan()

    def run(self, frame: DataFrame) -> None:
        """Run a frame for what is observed."""
        frame._jdf.queryExecution().toRdd().count()

    def collect_strings(self, frame: DataFrame) -> list[str]:
        """Run a frame of one string column."""
        rows = frame._jdf.collectAsList()
        # Not by iterating: PySpark asks the JVM thirty times what the exception is that ends it.
        return [rows.get(i).getString(0) for i in range(rows.size())]

    def stage_metrics(self, frame: DataFrame) -> dict[str, dict[str, int]]:
        """What Spark measured of each Python stage of a frame that has run, by the name of its function.

        rows_in: rows shuffled to it, or what the nearest node below that counts its rows has counted (absent where it
        follows another Python stage without a shuffle), rows_out, bytes_in, and milliseconds, over all tasks.
        """
        found: dict[str, dict[str, int]] = {}
        waiting = [frame._jdf.queryExecution().executedPlan()]
        while waiting:
            node = waiting.pop()
            kind = self.kind(node)
            if kind == "InMemoryTableScanExec":
                waiting.append(node.relation().cachedPlan())
            elif kind == "MapInArrowExec":
                metrics = node.metrics()
                figures = {
                    "rows_out": metrics.apply("pythonNumRowsReceived").value(),
                    "bytes_in": metrics.apply("pythonDataSent").value(),
                    "milliseconds": metrics.apply("pythonTotalTime").value(),
                }
                rows_in = self._rows_below(node)
                if rows_in is not None:
                    figures["rows_in"] = rows_in
                found[node.func().name()] = figures
            waiting += self.children(node)
        return found

    def _rows_below(self, node: Node) -> int | None:
        """The rows that a node was given, if some node below it counted them before the next Python stage."""
        total = 0
        for child in self.children(node):
            kind, metrics = self.kind(child), child.metrics()
            counter = "shuffleRecordsWritten" if kind == "ShuffleExchangeExec" else "numOutputRows"
            if kind == "MapInArrowExec":
                return None
            counted = metrics.apply(counter).value() if metrics.contains(counter) else self._rows_below(child)
            if counted is None:
                return None
            total += counted
        return total if self.children(node) else None

    def observed(self, frame: DataFrame) -> dict[str, tuple[int | None, ...]]:
        """The metrics that a frame's run observed, by name."""
        seen = frame._jdf.queryExecution().observedMetrics()
        names = self.items(seen.keys().toSeq())
        rows = [seen.apply(name) for name in names]
        return {
            name: tuple(None if row.isNullAt(i) else row.getLong(i) for i in range(row.size()))
            for name, row in zip(names, rows, strict=True)
        }


def kept_type(kind: DataType) -> DataType:
    """A type as values of it are kept: anything inside may be NULL. Spark may know that a field of a struct never is,
    but to Arrow it is NULL where the struct is, and that is so in rows of a join's other input.
    """
    if isinstance(kind, StructType):
        fields = [StructField(each.name, kept_type(each.dataType), True, each.metadata) for each in kind]
        return StructType(fields)
    if isinstance(kind, ArrayType):
        return ArrayType(kept_type(kind.elementType))
    if isinstance(kind, MapType):
        return MapType(kept_type(kind.keyType), kept_type(kind.valueType))
    return kind


def kept_schema(schema: StructType) -> StructType:
    """A relation's columns, as their values are kept."""
    return StructType(
        [StructField(each.name, kept_type(each.dataType), each.nullable, each.metadata) for each in schema]
    )


def _without_frames(text: str) -> str:
    """A plan's text without the numbers that frames happen to have in this process."""
    return re.sub(r"(CollectMetrics .*\]), \d+", r"\1", text)
