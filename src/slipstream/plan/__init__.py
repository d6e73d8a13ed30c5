"""Plans: queries, as Spark optimised them, to operators, and these to the plan of an epoch."""

from slipstream.plan.catalyst import Catalyst, Node
from slipstream.plan.choosing import Choices, Fact, Looks, Pace, Unit, choose, rows_of
from slipstream.plan.compile import Compiled, Declared, View, compile_views, maintainable
from slipstream.plan.eventtime import late_names
from slipstream.plan.explain import step_of
from slipstream.plan.identity import TraceNames, in_turn, means_the_same, session_settings
from slipstream.plan.lower import Leaf, Program, Unplaced, lower
from slipstream.plan.lower.record import recorded_schema
from slipstream.plan.meaning import TIME_ZONE, Meaning, differences, of_source
from slipstream.plan.nodes import LateView, Record, Source
from slipstream.plan.refuse import check_deterministic, check_plan, check_recomputed, check_sql, check_types
from slipstream.plan.watermarks import kept as keeping_watermarks
from slipstream.plan.watermarks import mark_of, marked_schema, observed_watermark

__all__ = [
    "TIME_ZONE",
    "Catalyst",
    "Choices",
    "Compiled",
    "Declared",
    "Fact",
    "LateView",
    "Leaf",
    "Looks",
    "Meaning",
    "Node",
    "Pace",
    "Program",
    "Record",
    "Source",
    "TraceNames",
    "Unit",
    "Unplaced",
    "View",
    "check_deterministic",
    "check_plan",
    "check_recomputed",
    "check_sql",
    "check_types",
    "choose",
    "compile_views",
    "differences",
    "in_turn",
    "keeping_watermarks",
    "late_names",
    "lower",
    "maintainable",
    "mark_of",
    "marked_schema",
    "means_the_same",
    "observed_watermark",
    "of_source",
    "recorded_schema",
    "rows_of",
    "session_settings",
    "step_of",
]
