"""What cannot be maintained, and why: found when a view is defined, never when it runs.

A query whose result is not a function of its input (a clock, a random number, rows in no order) would be
silently frozen at its first value, or wrong, so it is refused by looking at the *analysed* plan: the
optimiser folds a clock to a constant.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from slipstream.core.columns import INSTEAD, field_twice, has_untyped_keys, type_in
from slipstream.core.errors import CannotMaintain, NotAQuery
from slipstream.plan.catalyst import Catalyst, Expr, Node
from slipstream.plan.eventtime import follows
from slipstream.plan.kinds import CONSTANTS, IDENTITY, LIMITS, PASSING, TABLE_FUNCTIONS
from slipstream.plan.ordering import numbers_without_order
from slipstream.plan.panes import some_windows
from slipstream.plan.stretch import stretch
from slipstream.plan.sums import aggregates_in
from slipstream.plan.watermarks import measured_watermark

HANDLED = {"Project", "Aggregate", "Window", "Expand", "Union", "Join"} | IDENTITY | PASSING
_GROUPED = "_groupingexpression"  # as Spark calls what a GROUP BY computes
_DEDUPLICATES = "DeduplicateWithinWatermark"
JOINS = (
    "Inner",
    "Cross",
    "LeftOuter",
    "RightOuter",
    "FullOuter",
    "LeftSemi",
    "LeftAnti",
    "LeftSingle",
    "ExistenceJoin",
)

_ANEW = "declare the view with maintain='recompute' to compute it anew in every epoch"

_CLOCKS = {
    "CurrentTimestamp",
    "Now",
    "CurrentDate",
    "LocalTimestamp",
    "CurrentTime",
    "CurrentBatchTimestamp",
    "CurrentTimeZone",
}
_OF_THE_SESSION = {
    "CurrentUser",
    "CurrentDatabase",
    "CurrentCatalog",
    "CurrentPath",
    "SparkVersion",
    "VariableReference",
}
_SPECIAL = re.compile(
    r"""\b(?:date|timestamp(?:_ltz|_ntz)?)\s*(['"])\s*(?:now|today|tomorrow|yesterday)\b.*?\1""",
    re.IGNORECASE,
)
"""Literals that Spark's parser makes of the clock, so that no plan tells them from others."""
_TABLES = {
    "LogicalRelation",
    "DataSourceV2Relation",
    "DataSourceV2ScanRelation",
    "InMemoryRelation",
    "HiveTableRelation",
}


def check_sql(catalyst: Catalyst, view: str, text: str) -> None:
    """Refuse SQL that is no query, before Spark is given it, which would run it; and SQL that it takes as less."""
    if (command := catalyst.command_in(text)) is not None:
        raise NotAQuery(view, command)
    if (special := _SPECIAL.search(text)) is not None:
        raise _by_the_clock(view, special[0])
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
        for expression in some_windows(catalyst, node) or catalyst.expressions(node):
            for part in catalyst.subtree(expression):
                if (subquery := catalyst.plan_in(part)) is not None:
                    check_deterministic(catalyst, view, subquery)
                _check_expression(catalyst, view, part)


def _check_expression(catalyst: Catalyst, view: str, part: Expr) -> None:
    kind = catalyst.kind(part)
    if kind in _CLOCKS:
        raise _by_the_clock(view, catalyst.sql(part))
    if kind in _OF_THE_SESSION:
        raise CannotMaintain(
            view,
            catalyst.sql(part),
            "it follows from the session that asks, not from input, and would be frozen at what it was when the view "
            "was defined",
            "write down the value that is meant, or ask for it where the view is read (app.sql)",
        )
    if kind == "PythonUDTF" and not catalyst.udf_deterministic(part):
        raise CannotMaintain(
            view,
            catalyst.printed(part),
            "the table function is not declared deterministic, and what a row gave could not be taken away again",
            "if its rows follow from its arguments alone, say so: udtf(...).asDeterministic()",
        )
    if kind in ("PythonUDF", "ScalaUDF") and not catalyst.udf_deterministic(part):
        raise CannotMaintain(
            view,
            catalyst.printed(part),
            "the function is marked nondeterministic",
            "make it a function of its arguments alone",
        )
    if not catalyst.deterministic(part) and all(map(catalyst.deterministic, catalyst.children(part))):
        raise CannotMaintain(
            view,
            catalyst.sql(part),
            "it gives another value each time it is computed, so what was added could never be taken away",
            "derive the value from the row, for example xxhash64(key) in place of rand() or uuid()",
        )


def _by_the_clock(view: str, what: str) -> CannotMaintain:
    return CannotMaintain(
        view,
        what,
        "it is a different value whenever it is asked, and would be frozen at the time the view was defined",
        "carry a timestamp in the input, or compare with the clock where the view is read (app.sql)",
    )


def check_types(catalyst: Catalyst, view: str, plan: Node) -> None:
    """Refuse columns of types that rows cannot be kept in: those that the view shows, and those that an operator on the
    way takes or gives.
    """
    passing = PASSING | IDENTITY | {"Project", "Union", "Expand"}
    nodes = [node for node in catalyst.nodes(plan) if catalyst.kind(node) not in passing]
    kept = [each for node in nodes if catalyst.children(node) for each in (*catalyst.children(node), node)]
    keys = [node for node in nodes if catalyst.kind(node) == "Aggregate"]
    columns = [each for node in keys for each in catalyst.grouping(node)]
    columns += [
        each for node in (*kept, plan) if _may_refuse(catalyst, node) for each in catalyst.output(node)
    ]
    for each in columns:
        kind = catalyst.type_of(each)
        if (refused := type_in(kind, INSTEAD)) is not None:
            name = _written(catalyst, each, plan)
            raise CannotMaintain(
                view,
                f"the column '{name}' of type {kind.simpleString().upper()}",
                "rows cannot be kept with it, because Arrow has no such type",
                INSTEAD[refused].format(name),
            )
        if has_untyped_keys(kind):
            raise CannotMaintain(
                view,
                f"the column '{_written(catalyst, each, plan)}' of type {kind.simpleString().upper()}",
                "rows cannot be kept with it, because Arrow has no map whose keys have no type",
                "say of which types it is: cast(map() AS MAP<STRING, INT>)",
            )
        if (twice := field_twice(kind)) is not None:
            raise CannotMaintain(
                view,
                f"the column '{_written(catalyst, each, plan)}' of type {kind.simpleString().upper()}",
                f"rows cannot be kept with it, because Arrow has no struct with two fields named '{twice}'",
                f"give each field a name of its own: named_struct('{twice}', ..., '{twice}_2', ...)",
            )


def _may_refuse(catalyst: Catalyst, node: Node) -> bool:
    """Whether a column of a node may be of a type that is refused: one call, however many there are."""
    text = catalyst.schema_json(node)
    return any(name in text for name in ("interval", "variant", "void")) or text.count('"struct"') > 1


def _written(catalyst: Catalyst, column: Expr, plan: Node) -> str:
    """What a user calls a column: for what a GROUP BY computes, the expression."""
    if catalyst.kind(column) != "AttributeReference":
        return catalyst.sql(column)
    if catalyst.name(column) == _GROUPED:
        for node in catalyst.nodes(plan):
            for each in catalyst.project_list(node) if catalyst.kind(node) == "Project" else ():
                if catalyst.expr_id(each) == catalyst.expr_id(column) and catalyst.kind(each) == "Alias":
                    return catalyst.sql(catalyst.child(each))
    return catalyst.name(column)


def refuse_node(catalyst: Catalyst, view: str, node: Node) -> CannotMaintain:
    """The error for a node that no rule takes."""
    kind = catalyst.kind(node)
    if kind in (*LIMITS, "Tail"):
        return _unordered(view, "OFFSET" if kind == "Offset" else "LIMIT")
    if kind in _TABLES:
        return CannotMaintain(
            view,
            catalyst.line(node),
            "it reads a table or file that Slipstream does not follow, so that later changes of it would be missed",
            f"{_as_a_source(catalyst.catalog_name(node))}, or join it where the view is read: app.sql(...)",
        )
    if kind == "LogicalRDD":
        return CannotMaintain(
            view,
            catalyst.line(node),
            "its rows are the program's, and a later start of the app could not tell whether they are the same",
            "write them as VALUES, or put them into a source: sl.memory(schema).append(rows)",
        )
    return CannotMaintain(
        view,
        catalyst.line(node),
        f"no rule maintains {kind} by its changes",
        f"compute this part where the view is read (app.sql), or {_ANEW}",
    )


def _as_a_source(table: str | None) -> str:
    """How to declare a table or files as a source."""
    if table is None:
        return (
            "declare a folder of files that come with app.source('t', sl.files(...)), or what is there with "
            "app.source('t', sl.table(DataFrame)), and read t in the query"
        )
    name = table.rpartition(".")[2]
    return (
        f"declare it with app.source('{name}', sl.table('{table}')), with refresh='10 minutes' if it changes, and read "
        f"{name} in the query"
    )


def _unordered(view: str, clause: str) -> CannotMaintain:
    return CannotMaintain(
        view,
        f"{clause} without ORDER BY",
        "which rows it keeps is left open",
        "add ORDER BY with a total order before it",
    )


def check_recomputed(catalyst: Catalyst, view: str, plan: Node, inputs: Collection[int]) -> None:
    """Refuse an optimised plan that must not be computed anew either: one that reads what is not followed, or that
    leaves open which rows it keeps.
    """
    for node in catalyst.nodes(plan):
        kind = catalyst.kind(node)
        _check_subqueries(catalyst, view, node)
        is_input = catalyst.leaf_id(node) in inputs or kind in (*CONSTANTS, "UnionLoopRef")
        if not is_input and not catalyst.children(node):
            raise refuse_node(catalyst, view, node)
        if kind in ("GlobalLimit", "Offset", "Tail") and stretch(catalyst, node) is None:
            raise refuse_node(catalyst, view, node)
        if kind == _DEDUPLICATES:
            raise CannotMaintain(
                view,
                "dropDuplicatesWithinWatermark",
                "which rows it shows depends on when they came, which is not known when it is computed anew",
                "leave out maintain='recompute', or use dropDuplicates",
            )


def check_plan(catalyst: Catalyst, view: str, node: Node, inputs: Collection[int]) -> None:
    """Refuse an optimised plan with a node that no rule takes. `inputs`: the identities of the placeholders."""
    _check_subqueries(catalyst, view, node)
    kind = catalyst.kind(node)
    if catalyst.leaf_id(node) in inputs or kind in CONSTANTS:
        return
    if kind in LIMITS:
        rows = stretch(catalyst, node)
        if rows is None:
            raise refuse_node(catalyst, view, node)
        node = rows.sort
    elif kind == "Join":
        _check_join(catalyst, view, node)
    elif kind == "Window" and numbers_without_order(catalyst, node):
        raise _unordered(view, "LIMIT")
    elif kind == "Aggregate":
        _check_aggregate(catalyst, view, node)
    elif kind in TABLE_FUNCTIONS:
        _check_table_function(catalyst, view, catalyst.table_function(node))
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


def _check_join(catalyst: Catalyst, view: str, node: Node) -> None:
    how = catalyst.join_type(node)
    if not how.startswith(JOINS):
        raise CannotMaintain(
            view,
            f"{how} join",
            "no rule maintains it by its changes",
            f"use an inner, outer, semi or anti join, or {_ANEW}",
        )


def _check_aggregate(catalyst: Catalyst, view: str, node: Node) -> None:
    for found in aggregates_in(catalyst, node):
        in_python = catalyst.kind(catalyst.function(found)).startswith("PythonUDAF")
        if in_python and not catalyst.grouping(node):
            raise CannotMaintain(
                view,
                catalyst.sql(found),
                "a whole input is not given to an aggregate written in Python",
                f"group by a key, use Spark's own aggregates, or {_ANEW}",
            )


def _check_table_function(catalyst: Catalyst, view: str, function: Expr) -> None:
    """Refuse a table function in Python that sees more than one row."""
    if catalyst.takes_table(function):
        why = "it is given a whole relation, not one row after another"
    elif hasattr(catalyst.table_function_class(function), "terminate"):
        why = "its terminate() gives rows that follow from all rows that it was called with"
    else:
        return
    raise CannotMaintain(
        view,
        catalyst.printed(function),
        why,
        f"call a table function without terminate() for each row, FROM t, LATERAL f(t.x), or {_ANEW}",
    )


def _check_subqueries(catalyst: Catalyst, view: str, node: Node) -> None:
    for part in catalyst.subqueries(node):
        raise CannotMaintain(
            view,
            catalyst.kind(part),
            "the subquery stays inside an expression, and is no scalar one",
            "make the subquery a view of its own and join it",
        )
