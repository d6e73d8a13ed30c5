"""What cannot be maintained, and why: found when a view is defined, never when it runs.

A query whose result is not a function of its input (a clock, a random number, rows in no order) would be
silently frozen at its first value, or wrong, so it is refused by looking at the *analysed* plan: the
optimiser folds a clock to a constant.
"""

from __future__ import annotations

from collections.abc import Collection

from slipstream.errors import CannotMaintain
from slipstream.plan.aggregate import accumulates, aggregates_in
from slipstream.plan.catalyst import Catalyst, Expr, Node
from slipstream.plan.eventtime import follows
from slipstream.plan.join import equal_keys
from slipstream.plan.linear import IDENTITY, PASSING
from slipstream.plan.watermarks import measured_watermark

HANDLED = {"Project", "Aggregate", "Window", "Expand", "Union", "Join"} | IDENTITY | PASSING
_DEDUPLICATES = "DeduplicateWithinWatermark"
JOINS = ("Inner", "Cross", "LeftOuter", "RightOuter", "FullOuter", "LeftSemi", "LeftAnti", "ExistenceJoin")

_CLOCKS = {
    "CurrentTimestamp",
    "Now",
    "CurrentDate",
    "LocalTimestamp",
    "CurrentTime",
    "CurrentBatchTimestamp",
    "CurrentTimeZone",
}
_SUBQUERIES = {"ScalarSubquery", "Exists", "InSubquery", "ListQuery", "DynamicPruningSubquery"}
_CONSTANTS = {"LocalRelation", "OneRowRelation", "Range"}
_TABLES = {
    "LogicalRelation",
    "DataSourceV2Relation",
    "DataSourceV2ScanRelation",
    "InMemoryRelation",
    "HiveTableRelation",
}


def check_sql(catalyst: Catalyst, view: str, text: str) -> None:
    """Refuse SQL that Spark would take as something less."""
    if catalyst.has_watermark(text):
        raise CannotMaintain(
            view,
            "the WATERMARK clause",
            "Spark drops it from a query over relations that are not streams",
            "give the source a watermark: app.source(..., watermark=('ts', '10 minutes')), or write the view as a "
            "function that calls withWatermark",
        )


def check_deterministic(catalyst: Catalyst, view: str, analysed: Node) -> None:
    """Refuse a query that may give two answers over one input."""
    for node in catalyst.nodes(analysed):
        if catalyst.kind(node) == "Sample":
            raise CannotMaintain(
                view,
                "Sample",
                "it picks rows at random",
                "filter by a hash of a key: pmod(xxhash64(key), 100) < 5",
            )
        for expression in catalyst.expressions(node):
            for part in catalyst.subtree(expression):
                _check_expression(catalyst, view, part)
                if (subquery := catalyst.plan_in(part)) is not None:
                    check_deterministic(catalyst, view, subquery)


def _check_expression(catalyst: Catalyst, view: str, part: Expr) -> None:
    kind = catalyst.kind(part)
    if kind in _CLOCKS:
        raise CannotMaintain(
            view,
            part.sql(),
            "it is a different value whenever it is asked, and would be frozen at the time the view was defined",
            "carry a timestamp in the input, or compare with the clock where the view is read (app.sql)",
        )
    if kind in ("PythonUDF", "ScalaUDF") and not part.udfDeterministic():
        raise CannotMaintain(
            view,
            part.toString(),
            "the function is marked nondeterministic",
            "make it a function of its arguments alone",
        )
    if not part.deterministic() and all(child.deterministic() for child in catalyst.children(part)):
        raise CannotMaintain(
            view,
            part.sql(),
            "it gives another value each time it is computed, so what was added could never be taken away",
            "derive the value from the row, for example xxhash64(key) in place of rand() or uuid()",
        )


def refuse_node(catalyst: Catalyst, view: str, node: Node) -> CannotMaintain:
    """The error for a node that no rule takes."""
    kind = catalyst.kind(node)
    if kind in ("GlobalLimit", "LocalLimit", "Offset") and _skips(catalyst, node):
        return CannotMaintain(
            view,
            "OFFSET",
            "only the first rows of an order can be maintained yet",
            "keep the skipped rows too (LIMIT limit + offset), and skip them where the view is read: app.sql(...)",
        )
    if kind in ("GlobalLimit", "LocalLimit", "Tail"):
        return CannotMaintain(
            view,
            "LIMIT without ORDER BY",
            "which rows it keeps is left open",
            "add ORDER BY with a total order before LIMIT",
        )
    if kind in _CONSTANTS:
        return CannotMaintain(
            view, kind, "it reads no source", "put the rows into a source: sl.memory(schema).append(rows)"
        )
    if kind in _TABLES:
        return CannotMaintain(
            view,
            catalyst.line(node),
            "it reads a table or file that Slipstream does not follow, so that later changes of it would be missed",
            "declare it with app.source(...), or join it where the view is read: app.sql(...)",
        )
    return CannotMaintain(
        view,
        catalyst.line(node),
        f"{kind} cannot be maintained incrementally yet",
        "compute this part where the view is read: app.sql(...)",
    )


def check_plan(catalyst: Catalyst, view: str, node: Node, inputs: Collection[int]) -> None:
    """Refuse an optimised plan with a node that no rule takes. `inputs`: the identities of the placeholders."""
    _check_subqueries(catalyst, view, node)
    kind = catalyst.kind(node)
    if catalyst.leaf_id(node) in inputs:
        return
    if kind in ("GlobalLimit", "LocalLimit"):
        sorted_rows = sort_below(catalyst, node)
        if sorted_rows is None:
            raise refuse_node(catalyst, view, node)
        between, node = sorted_rows
        for project in between:
            _check_subqueries(catalyst, view, project)
    elif kind == "Join":
        _check_join(catalyst, view, node)
    elif kind == "Aggregate":
        _check_aggregate(catalyst, view, node)
    elif kind == _DEDUPLICATES:
        if not follows(catalyst, node):
            raise CannotMaintain(
                view,
                "dropDuplicatesWithinWatermark",
                "its input has no watermark, so it would never know when duplicates can come no more",
                "give the source one: app.source(..., watermark=('ts', '10 minutes')), or call withWatermark before",
            )
    elif kind not in HANDLED or (kind == "CollectMetrics" and measured_watermark(catalyst, node) is None):
        raise refuse_node(catalyst, view, node)
    for child in catalyst.children(node):
        check_plan(catalyst, view, child, inputs)


def sort_below(catalyst: Catalyst, limit: Node) -> tuple[list[Node], Node] | None:
    """The Sort whose first rows a limit keeps, if it does, after the projections in between, topmost first."""
    constant = catalyst.kind(limit.limitExpr()) == "Literal"
    node = catalyst.children(limit)[0]
    between = []
    while catalyst.kind(node) in ("LocalLimit", "Project"):
        if catalyst.kind(node) == "Project":
            between.append(node)
        node = catalyst.children(node)[0]
    return (between, node) if constant and catalyst.kind(node) == "Sort" else None


def _skips(catalyst: Catalyst, limit: Node) -> bool:
    """Whether rows are skipped by a limit, or right below it."""
    node = limit
    while catalyst.kind(node) in ("GlobalLimit", "LocalLimit", "Project"):
        node = catalyst.children(node)[0]
    return catalyst.kind(node) == "Offset"


def _check_join(catalyst: Catalyst, view: str, node: Node) -> None:
    if not equal_keys(catalyst, node)[0]:
        raise CannotMaintain(
            view,
            catalyst.line(node),
            "a join needs at least one equality between its two sides",
            "join on an equal key first and put the rest of the condition beside it",
        )
    how = node.joinType().toString()
    if not how.startswith(JOINS):
        raise CannotMaintain(
            view, f"{how} join", "it cannot be maintained yet", "use an inner, outer, semi or anti join"
        )


def _check_aggregate(catalyst: Catalyst, view: str, node: Node) -> None:
    for found in aggregates_in(catalyst, node):
        if catalyst.kind(found.aggregateFunction()).startswith("PythonUDAF"):
            raise CannotMaintain(
                view,
                found.sql(),
                "aggregates written in Python cannot be maintained yet",
                "use Spark's own aggregates",
            )
    if node.groupingExpressions().isEmpty() and not accumulates(catalyst, node):
        raise CannotMaintain(
            view,
            catalyst.line(node),
            "over the whole input only count, sum, avg, variance, stddev, min and max can be maintained yet",
            "group by a key, or make it an ORDER BY ... LIMIT 1",
        )


def _check_subqueries(catalyst: Catalyst, view: str, node: Node) -> None:
    for expression in catalyst.expressions(node):
        for part in catalyst.subtree(expression):
            if catalyst.kind(part) in _SUBQUERIES:
                raise CannotMaintain(
                    view,
                    catalyst.kind(part),
                    "a subquery that stays inside an expression cannot be maintained yet",
                    "make the subquery a view of its own and join it",
                )
