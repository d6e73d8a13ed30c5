"""The rows of many ranges of a source as those of one.

Within a range, changes of a key go by the order columns; between ranges the later range wins, whatever its order
columns say: those of a stream begin anew with every range, and a file may be older than one that was read before it. So
of a key's changes only those of the last range that has any are kept, and among these the order columns decide. What
the earlier ones made of the key is replaced as a whole, so nothing of them is missed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from slipstream.core.columns import BAD, INTERNAL, quoted
from slipstream.sources.base import JSON, Source

RANGE, LAST = f"{INTERNAL}range", f"{INTERNAL}last"


def joined(source: Source, ranges: Sequence[JSON]) -> DataFrame:
    """The frame of at least one range, oldest first."""
    frames = [source.frame(each) for each in source.together(ranges)]
    if source.changes.mode != "keyed" or len(frames) == 1:
        return reduce(DataFrame.unionByName, frames)
    numbered = (frame.withColumn(RANGE, F.lit(number)) for number, frame in enumerate(frames))
    bad = F.col(BAD).isNotNull() if source.can_reject else F.lit(False)
    of_key = Window.partitionBy(*(quoted(key) for key in source.changes.key))
    last = F.max(F.when(~bad, F.col(RANGE))).over(of_key)
    whole = reduce(DataFrame.unionByName, numbered).withColumn(LAST, last)
    return whole.where(bad | (F.col(RANGE) == F.col(LAST))).drop(RANGE, LAST)
