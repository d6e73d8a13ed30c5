"""Word count over sliding windows, the classic of this field: text lines in, words by window out.

A line is its event time, in milliseconds since 1970, and ten words. Words are drawn from a vocabulary of 20,000 by a
Zipf-like law: the n-th word comes up in proportion to 1 / (n + 2.7), as in running text. Event time goes on by a second
with every so many lines (`LINES_A_SECOND`), so that a file of 100,000 lines covers two seconds, and each line is up to
two seconds behind, so that neighbouring panes are touched together.

Memory is that of the whole side, Spark's JVM included. What is measured by `window` is the length of the window in
seconds; it always slides by one.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks.data import Sizes

VOCABULARY = 20_000
WORDS = 10
LINES_A_SECOND = 50_000
BEGINS = 1_800_000_000_000  # milliseconds
LATENESS = 2_000


def make_words(folder: Path, sizes: Sizes) -> None:
    """Files of lines, in the order of event time but for how far each is behind."""
    random = np.random.default_rng(VOCABULARY)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    vocabulary = np.unique(
        ["".join(random.choice(letters, random.integers(2, 11))) for _ in range(2 * VOCABULARY)]
    )
    vocabulary = random.permutation(vocabulary)[:VOCABULARY]
    weights = 1 / (np.arange(len(vocabulary)) + 2.7)
    bounds = np.cumsum(weights / weights.sum())
    written = 0
    for phase, counts in (("warm", sizes.warm), ("timed", sizes.timed)):
        target = folder / phase / "lines"
        target.mkdir(parents=True, exist_ok=True)
        for number, lines in enumerate(counts):
            at = BEGINS + (written + np.arange(lines)) * 1000 // LINES_A_SECOND
            at = at - random.integers(0, LATENESS, lines)
            drawn = np.searchsorted(bounds, random.random((lines, WORDS)))
            words = vocabulary[np.minimum(drawn, len(vocabulary) - 1)].tolist()
            text = "".join(f"{when} {' '.join(row)}\n" for when, row in zip(at.tolist(), words, strict=True))
            (target / f"{number:05d}.txt").write_text(text)
            written += lines


def word_count(lines: DataFrame, window: int) -> DataFrame:
    """How often each word comes up in each window of so many seconds."""
    time = F.timestamp_millis(F.substring_index("value", " ", 1).cast("long"))
    words = F.explode(F.split(F.expr("substring(value, 15)"), " "))
    return (
        lines.select(time.alias("ts"), words.alias("word"))
        .groupBy(F.window("ts", f"{window} seconds", "1 second"), "word")
        .agg(F.count("*").alias("n"))
    )
