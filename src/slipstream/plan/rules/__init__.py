"""Rules: Spark's optimised plan to operators (`plan/nodes.py`), one rule a file.

`RULES` is the order in which they are asked. The first that is for a node gives its operator, so a special rule stands
before a general one: an aggregation by pane, or one that a join can add up, before one that adds up rows, and that
before one that is regrouped. `tests/plan/rules/` has queries and the trees that they become, a file for each rule.
"""

from slipstream.plan.rules.accumulate import accumulate
from slipstream.plan.rules.by_rows import join_by_rows
from slipstream.plan.rules.combined import combined
from slipstream.plan.rules.cross import cross_join
from slipstream.plan.rules.expand import expand
from slipstream.plan.rules.firstseen import first_seen
from slipstream.plan.rules.inner import inner_join
from slipstream.plan.rules.leaves import constant, given
from slipstream.plan.rules.limits import limits
from slipstream.plan.rules.panes import panes
from slipstream.plan.rules.passing import passing, without_effect
from slipstream.plan.rules.project import project
from slipstream.plan.rules.query import Query, Rule
from slipstream.plan.rules.regroup import regroup_aggregate, regroup_join, regroup_window
from slipstream.plan.rules.semi import semi
from slipstream.plan.rules.union import union

RULES: tuple[Rule, ...] = (
    given,
    constant,
    project,
    passing,
    without_effect,
    expand,
    union,
    limits,
    first_seen,
    panes,
    combined,
    accumulate,
    regroup_aggregate,
    regroup_window,
    join_by_rows,
    semi,
    cross_join,
    inner_join,
    regroup_join,
)

__all__ = ["RULES", "Query", "Rule"]
