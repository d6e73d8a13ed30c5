"""Kinds of nodes of Spark's plans, by what becomes of them."""

from __future__ import annotations

LIMITS = ("GlobalLimit", "LocalLimit", "Offset")

STATEFUL = {"Aggregate", "Join", "Window", *LIMITS}
"""What keeps state, and may be computed once for several."""

CONSTANTS = {"LocalRelation", "OneRowRelation", "Range"}
"""Relations that are part of the query."""

TABLE_FUNCTIONS = {"BatchEvalPythonUDTF", "ArrowEvalPythonUDTF"}
"""Functions in Python that give several rows for one. Such a node says itself which attributes it passes on."""

PASSING = {"Filter", "Generate", "ArrowEvalPython", "BatchEvalPython", "CollectMetrics"} | TABLE_FUNCTIONS
"""Nodes that are linear, and take their input's attributes by place."""

IDENTITY = {
    "WindowGroupLimit",
    "Sort",
    "Repartition",
    "RepartitionByExpression",
    "RebalancePartitions",
    "SubqueryAlias",
}
"""Nodes whose change is that of their input: they say how to get there, or in which order to show it."""

INNER = ("Inner", "Cross")
"""Types of joins that give pairs and nothing else."""

EQUALITIES = {"EqualTo", "EqualNullSafe"}

TOTAL = {
    *(
        "AttributeReference",
        "Literal",
        "And",
        "Or",
        "Not",
        "IsNull",
        "IsNotNull",
        "IsNaN",
        "Coalesce",
        "In",
        "InSet",
    ),
    *("LessThan", "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual", "GetStructField"),
} | EQUALITIES
"""Expressions that have a value for every row: they cannot fail."""
