"""Random queries against batch Spark; the same ones every time. `make fuzz` goes on with others."""

from __future__ import annotations

import logging
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from slipstream.app import App
from slipstream.testing.fuzz import rounds
from slipstream.testing.fuzz.query import Column, Part, Query, Select
from slipstream.testing.fuzz.rounds import Failure, Tally, play, shrink, tuned
from slipstream.testing.scripted import kept_table

pytestmark = pytest.mark.spark

ROUNDS = (range(2), range(2, 4), range(4, 6))  # in parts, for several processes
VIEWS = 16


@pytest.fixture
def _no_word_of_refusals() -> None:
    logging.getLogger("SQLQueryContextLogger").disabled = True


@pytest.mark.usefixtures("_no_word_of_refusals")
@pytest.mark.parametrize("seeds", ROUNDS, ids=str)
def test_oracle_random_queries(spark: SparkSession, tmp_path: Path, seeds: range) -> None:
    tally = Tally()
    for seed in seeds:
        tally.add(play(tuned(spark, compiled=False), tmp_path / str(seed), seed, VIEWS))
    assert not tally.failures, "\n\n".join(map(str, tally.failures))
    assert tally.kept > len(seeds) * VIEWS // 2, f"most queries can be kept: {tally}"
    assert tally.invalid < len(seeds) * VIEWS // 10, f"what is generated is Spark SQL: {tally}"


@pytest.fixture
def _lacking_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_a_row(app: App, view: str, epoch: int) -> pa.Table:
        return kept_table(app, view, epoch).slice(1)

    monkeypatch.setattr(rounds, "kept_table", without_a_row)
    monkeypatch.setattr(rounds, "_TRIES", 2)


@pytest.mark.usefixtures("_no_word_of_refusals", "_lacking_a_row")
def test_a_view_that_lacks_a_row_is_found_and_made_smaller(spark: SparkSession, tmp_path: Path) -> None:
    session = tuned(spark, compiled=False)
    tally = play(session, tmp_path / "round", seed=5, views=1)
    (failure,) = tally.failures
    assert str(failure).startswith(f"seed 5: {failure.query.sql()}\nAssertionError: as of epoch ")
    assert "1 row(s) of the oracle are missing, 0 row(s) are not the oracle's" in str(failure)
    assert len(shrink(session, tmp_path / "smaller", failure).query.sql()) < len(failure.query.sql())


@pytest.mark.usefixtures("_no_word_of_refusals", "_lacking_a_row")
def test_a_view_is_made_smaller_with_the_views_that_it_reads(spark: SparkSession, tmp_path: Path) -> None:
    views: dict[str, Query] = {
        "v0": Select((Column("a.g", "number"), Column("a.n", "number")), (Part("a", "a"),))
    }
    columns = (Column("t.c0", "number"), Column("t.c1", "number"))
    query = Select(columns, (Part("v0", "t"),), ("t.c1 IS NOT NULL",))
    failure = Failure(5, query, AssertionError("made up"), views)
    smaller = shrink(tuned(spark, compiled=False), tmp_path, failure)
    assert len(smaller.query.sql()) < len(query.sql())
    assert f"where v0 is {views['v0'].sql()}" in str(failure)
