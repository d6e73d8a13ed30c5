"""Plans and expressions, taken apart."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, TypeVar

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.types import DataType, StructType, _parse_datatype_json_string

from slipstream.core.errors import BadDuration
from slipstream.core.types import kept_type
from slipstream.plan.catalyst.handles import Expr, Node, Type
from slipstream.plan.catalyst.jvm import InJvm
from slipstream.plan.functions import load
from slipstream.plan.kinds import TOTAL

Tree = TypeVar("Tree", Node, Expr)

_PLANS_IN_EXPRESSIONS = {
    *("ScalarSubquery", "Exists", "ListQuery", "LateralSubquery"),
    "FunctionTableSubqueryArgumentExpression",
}
WATERMARK_DELAY = "spark.watermarkDelayMs"  # in an attribute's metadata: Spark's own mark of an event time
WATERMARK = "slipstream.watermark"  # beside it: the watermark's name
SESSION = "spark.sessionWindow"  # in an attribute's metadata, from analysis on
TIME_WINDOW = "spark.timeWindow"  # likewise


class Reading(InJvm):
    """What can be asked of plans and expressions."""

    # Any tree

    def kind(self, tree: Node | Expr) -> str:
        """A node's or expression's class, as Spark names it."""
        return tree.kind

    def children(self, tree: Tree) -> list[Tree]:
        return [type(tree)(each) for each in self.items(tree.java.children())]

    def has_subquery(self, tree: Node | Expr) -> bool:
        """Whether there is a subquery in an expression, or in any expression of a plan."""
        there: bool = tree.java.containsPattern(self._patterns.PLAN_EXPRESSION())
        return there

    # Plans

    def analysed(self, frame: DataFrame) -> Node:
        return Node(frame._jdf.queryExecution().analyzed())

    def optimised(self, frame: DataFrame) -> Node:
        """The optimised plan. Spark's check of what a batch query may hold would refuse one node that we maintain."""
        plan = self.analysed(frame)
        distinct = plan.java.containsPattern(self._patterns.DISTINCT_LIKE())
        if distinct and "DeduplicateWithinWatermark" in map(self.kind, self.nodes(plan)):
            return Node(self._jsession.sessionState().optimizer().execute(plan.java.clone()))
        return Node(frame._jdf.queryExecution().optimizedPlan())

    def nodes(self, plan: Node) -> Iterator[Node]:
        yield plan
        for child in self.children(plan):
            yield from self.nodes(child)

    def output(self, node: Node) -> list[Expr]:
        return self._exprs_in(node.java.output())

    def output_hash(self, node: Node) -> int:
        """The same for nodes that output the same attributes, expression ids and all."""
        return int(node.java.output().hashCode())

    def expressions(self, node: Node) -> list[Expr]:
        return self._exprs_in(node.java.expressions())

    def schema(self, plan: Node) -> StructType:
        return StructType.fromJson(json.loads(self.schema_json(plan)))

    def schema_json(self, node: Node) -> str:
        """The schema of a node as Spark writes it: one call, however many columns there are."""
        return str(node.java.schema().json())

    def at_most_one_row(self, plan: Node) -> bool:
        """Whether Spark knows that a plan has no second row."""
        most = self._option(plan.java.maxRows())
        return most is not None and most <= 1

    def has_limit(self, plan: Node) -> bool:
        """Whether there is a LIMIT or an OFFSET in a plan, other than in subqueries."""
        patterns = (self._patterns.LIMIT(), self._patterns.OFFSET())
        return any(plan.java.containsPattern(each) for each in patterns)

    def subqueries(self, node: Node) -> list[Expr]:
        """The subqueries in a node's own expressions, each meaning once."""
        found: list[Expr] = []
        for expression in self.expressions(node) if self.has_subquery(node) else []:
            for part in self.subtree(expression) if self.has_subquery(expression) else []:
                if self.plan_in(part) is not None and not any(self.same(part, known) for known in found):
                    found.append(part)
        return found

    def join_type(self, join: Node) -> str:
        """Inner, LeftOuter, ...; an ExistenceJoin with the attribute that it adds."""
        return str(join.java.joinType().toString())

    def join_condition(self, join: Node) -> Expr | None:
        condition = self._option(join.java.condition())
        return None if condition is None else Expr(condition)

    def filter_condition(self, node: Node) -> Expr:
        return Expr(node.java.condition())

    def project_list(self, project: Node) -> list[Expr]:
        return self._exprs_in(project.java.projectList())

    def grouping(self, aggregate: Node) -> list[Expr]:
        """The keys of an Aggregate."""
        return self._exprs_in(aggregate.java.groupingExpressions())

    def results(self, aggregate: Node) -> list[Expr]:
        """The select list of an Aggregate."""
        return self._exprs_in(aggregate.java.aggregateExpressions())

    def partition_keys(self, window: Node) -> list[Expr]:
        return self._exprs_in(window.java.partitionSpec())

    def window_orders(self, window: Node) -> list[Expr]:
        return self._exprs_in(window.java.orderSpec())

    def sort_orders(self, sort: Node) -> list[Expr]:
        return self._exprs_in(sort.java.order())

    def projections(self, expand: Node) -> int:
        """How many rows an Expand makes of one."""
        return int(expand.java.projections().size())

    def projection(self, expand: Node, number: int) -> list[Expr]:
        """One of the rows that an Expand makes."""
        return self._exprs_in(expand.java.projections().apply(number))

    def duplicate_keys(self, node: Node) -> list[Expr]:
        """The keys of a DeduplicateWithinWatermark."""
        return self._exprs_in(node.java.keys())

    def limit_count(self, node: Node) -> int | None:
        """The number of a LIMIT or an OFFSET; None where it is no literal."""
        count = Expr(node.java.offsetExpr() if node.kind == "Offset" else node.java.limitExpr())
        return int(count.java.value()) if count.kind == "Literal" else None

    def metrics_name(self, node: Node) -> str:
        """What a CollectMetrics is called."""
        return str(node.java.name())

    def leaf_id(self, leaf: Node) -> int | None:
        """The identity of a placeholder made by `placeholder`, whichever copy of it this is."""
        return int(leaf.java.rdd().id()) if leaf.kind == "LogicalRDD" else None

    def leaf_of(self, frame: DataFrame) -> int:
        """The identity of a placeholder."""
        identity = self.leaf_id(self.analysed(frame))
        assert identity is not None, "not a placeholder"
        return identity

    def same_result(self, one: Node, other: Node) -> bool:
        """Whether two plans give the same, whatever they call it."""
        return bool(one.java.sameResult(other.java))

    def canonical(self, plan: Node) -> Node:
        """Spark's canonical form of a plan, in which neither names nor expression ids count."""
        return Node(plan.java.canonicalized())

    def catalog_name(self, node: Node) -> str | None:
        """The name of a table of Spark's catalog, if a leaf reads one."""
        if node.kind not in ("LogicalRelation", "HiveTableRelation"):
            return None
        found = node.java.catalogTable() if node.kind == "LogicalRelation" else None
        table = node.java.tableMeta() if found is None else self._option(found)
        return None if table is None else ".".join(self.items(table.identifier().nameParts())[-2:])

    def line(self, node: Node) -> str:
        """One node on one line, without expression ids."""
        return _without_frames(re.sub(r"#\d+L?", "", node.java.simpleString(60)))

    def text(self, plan: Node) -> str:
        """A plan as text, whole: `toString` leaves out what is beyond 25 fields."""
        return _without_frames(plan.java.treeString(True, False, 2**31 - 1, False, False))

    # Expressions

    def _exprs_in(self, sequence: Any) -> list[Expr]:
        return [Expr(each) for each in self.items(sequence)]

    def subtree(self, expr: Expr) -> Iterator[Expr]:
        yield expr
        for child in self.children(expr):
            yield from self.subtree(child)

    def plan_in(self, expr: Expr) -> Node | None:
        """The plan of a subquery; None for any other expression."""
        return Node(expr.java.plan()) if expr.kind in _PLANS_IN_EXPRESSIONS else None

    def child(self, expr: Expr) -> Expr:
        """The child of an expression that has just one."""
        return Expr(expr.java.child())

    def sides(self, binary: Expr) -> tuple[Expr, Expr]:
        return Expr(binary.java.left()), Expr(binary.java.right())

    def field_number(self, field: Expr) -> int:
        """Which field of a struct a GetStructField takes."""
        return int(field.java.ordinal())

    def whole_number(self, expr: Expr) -> int | None:
        """The value of a literal that is a whole number."""
        value = expr.java.value() if expr.kind == "Literal" else None
        return value if isinstance(value, int) else None

    def unnamed(self, named: Expr) -> Expr:
        """What an entry of a select list shows, without its name."""
        return self.child(named) if named.kind == "Alias" else named

    def name(self, named: Expr) -> str:
        return str(named.java.name())

    def sql(self, expr: Expr) -> str:
        return str(expr.java.sql())

    def printed(self, expr: Expr) -> str:
        """An expression as a user knows it from Spark's plans."""
        return str(expr.java.toString())

    def type_of(self, expr: Expr) -> DataType:
        """The type of an expression, as its values are kept."""
        return kept_type(_parse_datatype_json_string(expr.java.dataType().json()))

    def jvm_type(self, expr: Expr) -> Type:
        return Type(expr.java.dataType())

    def nullable(self, expr: Expr) -> bool:
        return bool(expr.java.nullable())

    def foldable(self, expr: Expr) -> bool:
        """Whether it is a constant."""
        return bool(expr.java.foldable())

    def deterministic(self, expr: Expr) -> bool:
        return bool(expr.java.deterministic())

    def is_null_literal(self, expr: Expr) -> bool:
        return expr.kind == "Literal" and expr.java.value() is None

    def fallible(self, expr: Expr) -> list[Expr]:
        """The parts of an expression that may fail on a row, each the largest that is such a part."""
        if not (expr.kind in TOTAL or (expr.kind == "Cast" and self._widens(expr))):
            return [expr]
        return [part for child in self.children(expr) for part in self.fallible(child)]

    def _widens(self, cast: Expr) -> bool:
        """Whether a cast keeps every value."""
        java = cast.java
        return bool(self._object("Cast").canUpCast(java.child().dataType(), java.dataType()))

    def udf_deterministic(self, udf: Expr) -> bool:
        """Whether a user's function was declared to be so."""
        return bool(udf.java.udfDeterministic())

    def expr_id(self, attribute: Expr) -> int:
        return int(attribute.java.exprId().id())

    def same(self, one: Expr, other: Expr) -> bool:
        """Whether two expressions mean the same."""
        return bool(one.java.semanticEquals(other.java))

    def orderable(self, expr: Expr) -> bool:
        """Whether values of the expression's type can be compared for equality."""
        # Not asked of a type: a struct is a sequence, to py4j.
        return bool(self._object("RowOrdering").isOrderable(self._sequence([expr])))

    def references(self, expr: Expr) -> list[Expr]:
        """The attributes that an expression reads."""
        return self._exprs_in(expr.java.references().toSeq())

    def reads_any(self, expr: Expr) -> bool:
        """Whether an expression reads any attribute."""
        return bool(expr.java.references().nonEmpty())

    def reads(self, expr: Expr, attribute: Expr) -> bool:
        return bool(expr.java.references().contains(attribute.java))

    def refers_only_to(self, expr: Expr, plan: Node) -> bool:
        """Whether all that an expression reads, if anything, is in the output of a plan."""
        return bool(expr.java.references().subsetOf(plan.java.outputSet()))

    def is_from(self, expr: Expr, plan: Node) -> bool:
        """Whether an expression reads something, and only what is in the output of a plan."""
        references = expr.java.references()
        return bool(references.nonEmpty() and references.subsetOf(plan.java.outputSet()))

    def ascending(self, order: Expr) -> bool:
        """Whether a sort key goes upwards."""
        return str(order.java.direction().getClass().getSimpleName()).startswith("Ascending")

    def nulls_first(self, order: Expr) -> bool:
        return str(order.java.nullOrdering().getClass().getSimpleName()).startswith("NullsFirst")

    def goes_by_zone(self, cast: Expr) -> bool:
        """Whether what a cast gives depends on the time zone. Spark notes one in every cast."""
        goes: bool = self._object("Cast").needsTimeZone(cast.java.child().dataType(), cast.java.dataType())
        return goes

    def python_command(self, function: Any) -> tuple[bytes, dict[int, str]]:
        """A Python function as workers are sent it, and the files of the broadcast variables that it refers to."""
        command: bytes = function.command().toArray(self._jvm.scala.reflect.ClassTag.Byte())
        variables = function.broadcastVars()
        found = (variables.get(i) for i in range(variables.size()))
        return bytes(command), {each.id(): each.value().path() for each in found}

    # Table functions in Python

    def table_function(self, node: Node) -> Expr:
        """The function of a node that evaluates one."""
        return Expr(node.java.udtf())

    def takes_table(self, function: Expr) -> bool:
        """Whether a whole relation is an argument, and not only values of one row."""
        given = self._option(function.java.tableArguments())
        return given is not None and any(self.items(given))

    def table_function_class(self, function: Expr) -> Any:
        """The class that does it."""
        return load(*self.python_command(function.java.func()))

    # Aggregate expressions

    def function(self, aggregate: Expr) -> Expr:
        """The function of an aggregate expression."""
        return Expr(aggregate.java.aggregateFunction())

    def is_distinct(self, aggregate: Expr) -> bool:
        return bool(aggregate.java.isDistinct())

    def only_where(self, aggregate: Expr) -> Expr | None:
        """The FILTER of an aggregate expression."""
        only = self._option(aggregate.java.filter())
        return None if only is None else Expr(only)

    def buffers(self, function: Expr) -> list[Expr]:
        """The attributes that Spark keeps of an aggregate function."""
        return self._exprs_in(function.java.aggBufferAttributes())

    def evaluated(self, function: Expr) -> Expr:
        """What an aggregate function makes of its buffers."""
        return Expr(function.java.evaluateExpression())

    def null_on_zero(self, moment: Expr) -> bool:
        """Whether a variance or deviation is NULL, not NaN, where it divides by zero."""
        return bool(moment.java.nullOnDivideByZero())

    def overflow_mode(self, function: Expr) -> str:
        """What a sum does when it overflows: ANSI (fail), LEGACY (wrap around) or TRY (NULL)."""
        return str(function.java.evalContext().evalMode().toString())

    # Event time

    def is_session(self, key: Expr) -> bool:
        """Whether a grouping key is a session window: rows of one group are merged by it, not told apart."""
        return key.kind == "AttributeReference" and bool(key.java.metadata().contains(SESSION))

    def is_time_window(self, attribute: Expr) -> bool:
        """Whether an attribute is a window that Spark's analyser has made of an event time."""
        return attribute.kind == "AttributeReference" and bool(
            attribute.java.metadata().contains(TIME_WINDOW)
        )

    def watermark_of(self, attribute: Expr) -> tuple[str, int] | None:
        """The watermark that an attribute is measured by, and its delay in milliseconds."""
        if attribute.kind != "AttributeReference" or not attribute.java.metadata().contains(WATERMARK):
            return None
        marks = attribute.java.metadata()
        return marks.getString(WATERMARK), marks.getLong(WATERMARK_DELAY)

    def has_event_time(self, node: Node) -> bool:
        """Whether any column of a node is marked as event time: one call, however many there are."""
        return WATERMARK in self.schema_json(node)

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

    def reach_after(self, own: Node, other: Node, condition: Expr | None) -> int | None:
        """For how many milliseconds after its event time a row of one side of a join may match a row of the other whose
        event time is after the watermark, as Spark derives it from the condition.
        """
        analysis = self._jvm.org.apache.spark.sql.catalyst.analysis
        helper = getattr(getattr(analysis, "StreamingJoinHelper$"), "MODULE$")
        sides = (own.java.outputSet(), other.java.outputSet())
        found = helper.getStateValueWatermark(*sides, self._some(condition), self._some(_SOME_TIME))
        reached = self._option(found)
        return None if reached is None else _SOME_TIME - reached


_SOME_TIME = 1 << 40  # milliseconds, and too large for py4j to take for an Integer


def _without_frames(text: str) -> str:
    """A plan's text without the numbers that frames happen to have in this process."""
    return re.sub(r"(CollectMetrics .*\]), \d+", r"\1", text)
