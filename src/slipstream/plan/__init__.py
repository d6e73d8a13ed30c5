"""Plans: a query, as Spark optimised it, to the plan of its change."""

from slipstream.plan.catalyst import Catalyst, Node
from slipstream.plan.compile import Compiled, ViewCompiler, maintainable
from slipstream.plan.delta import Builder, Delta, Leaf
from slipstream.plan.inputs import input_delta
from slipstream.plan.refuse import check_deterministic, check_plan, check_recomputed
from slipstream.plan.sharing import Commons

__all__ = [
    "Builder",
    "Catalyst",
    "Commons",
    "Compiled",
    "Delta",
    "Leaf",
    "Node",
    "ViewCompiler",
    "check_deterministic",
    "check_plan",
    "check_recomputed",
    "input_delta",
    "maintainable",
]
