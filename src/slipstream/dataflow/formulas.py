"""Aggregates as they are shown, worked out of their buffers where no Catalyst is at hand: by whoever reads a view.

Only those that a double is enough for, by the operations that Spark's own `evaluateExpression` does, in the same order,
so that the result is the same to the bit. All others are left to Catalyst, and their views have a trace of their own.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa


def evaluate(formula: str, buffers: list[pa.Array]) -> pa.Array:
    """The aggregate over its buffers: of an average the sum and the count; of a variance the count, the mean and the
    sum of squared distances from it.
    """
    first, second, *rest = (np.asarray(each, dtype=np.float64) for each in buffers)
    if formula == "avg":
        total, count, least = first, second, 1
    else:
        total, count, least = rest[0], first, 2 if formula.endswith("samp") else 1
    with np.errstate(divide="ignore", invalid="ignore"):
        shown = total / (count - (least - 1))
        if formula.startswith("stddev"):
            shown = np.sqrt(shown)
    return pa.array(shown, mask=count < least)


def buffers_of(formula: str) -> int:
    """How many buffers an aggregate has."""
    return 2 if formula == "avg" else 3
