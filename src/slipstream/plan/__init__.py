"""Plans: a query, as Spark optimised it, to the plan of its change."""

from slipstream.plan.catalyst import Catalyst, Node
from slipstream.plan.compile import Compiled, ViewCompiler, maintainable
from slipstream.plan.delta import Builder, Counted, Delta, Leaf, Way
from slipstream.plan.eventtime import LateView, late_names
from slipstream.plan.identity import Meanings, TraceNames, session_settings
from slipstream.plan.inputs import input_delta
from slipstream.plan.meaning import TIME_ZONE, Meaning, differences, of_source, of_view
from slipstream.plan.refuse import check_deterministic, check_plan, check_recomputed, check_sql, check_types
from slipstream.plan.sharing import Commons
from slipstream.plan.watermarks import kept as keeping_watermarks
from slipstream.plan.watermarks import mark_of, marked_schema, observed_watermark

__all__ = [
    "TIME_ZONE",
    "Builder",
    "Catalyst",
    "Commons",
    "Compiled",
    "Counted",
    "Delta",
    "LateView",
    "Leaf",
    "Meaning",
    "Meanings",
    "Node",
    "TraceNames",
    "ViewCompiler",
    "Way",
    "check_deterministic",
    "check_plan",
    "check_recomputed",
    "check_sql",
    "check_types",
    "differences",
    "input_delta",
    "keeping_watermarks",
    "late_names",
    "maintainable",
    "mark_of",
    "marked_schema",
    "observed_watermark",
    "of_source",
    "of_view",
    "session_settings",
]
