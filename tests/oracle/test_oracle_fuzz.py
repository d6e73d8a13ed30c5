"""Random queries against batch Spark; the same ones every time. `make fuzz` goes on with others."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from slipstream.testing.fuzz.rounds import Tally, play, tuned

pytestmark = pytest.mark.spark

ROUNDS, VIEWS = 5, 16


@pytest.fixture
def _no_word_of_refusals() -> None:
    logging.getLogger("SQLQueryContextLogger").disabled = True


@pytest.mark.usefixtures("_no_word_of_refusals")
def test_oracle_random_queries(spark: SparkSession, tmp_path: Path) -> None:
    tally = Tally()
    for seed in range(ROUNDS):
        tally.add(play(tuned(spark, compiled=False), tmp_path / str(seed), seed, VIEWS))
    assert not tally.failures, "\n\n".join(map(str, tally.failures))
    assert tally.kept > ROUNDS * VIEWS // 2, f"most queries can be kept: {tally}"
    assert tally.invalid < ROUNDS * VIEWS // 10, f"what is generated is Spark SQL: {tally}"
