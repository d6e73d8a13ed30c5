"""Arguments of aggregations as columns."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F

from slipstream.plan.catalyst import Catalyst
from slipstream.plan.nodes import Summand


def summand_column(catalyst: Catalyst, summand: Summand) -> Column:
    """What is sent to be added up: a value, or whether to count the row."""
    if summand.value is not None:
        value = catalyst.column(summand.value)
        return value if summand.only is None else F.when(catalyst.column(summand.only), value)
    counted = [catalyst.column(each).isNotNull() for each in summand.present if catalyst.nullable(each)]
    if summand.only is not None:
        counted.append(F.coalesce(catalyst.column(summand.only), F.lit(False)))
    return reduce(lambda one, other: one & other, counted)
