"""Plans: a query, as Spark optimised it, to the plan of its change."""

from slipstream.plan.catalyst import Catalyst, Node
from slipstream.plan.compile import Compiled, ViewCompiler, maintainable
from slipstream.plan.delta import Builder, Counted, Delta, Leaf, Way
from slipstream.plan.eventtime import LateView, late_names
from slipstream.plan.inputs import input_delta
from slipstream.plan.refuse import check_deterministic, check_plan, check_recomputed, check_sql
from slipstream.plan.sharing import Commons
from slipstream.plan.watermarks import kept as keeping_watermarks
from slipstream.plan.watermarks import marked_schema, observed_watermark

__all__ = [
    "Builder",
    "Catalyst",
    "Commons",
    "Compiled",
    "Counted",
    "Delta",
    "LateView",
    "Leaf",
    "Node",
    "ViewCompiler",
    "Way",
    "check_deterministic",
    "check_plan",
    "check_recomputed",
    "check_sql",
    "input_delta",
    "keeping_watermarks",
    "late_names",
    "maintainable",
    "marked_schema",
    "observed_watermark",
]
