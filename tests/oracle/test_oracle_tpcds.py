"""A sample of TPC-DS's queries as views, over tables in which rows come, change and go, against batch Spark.

`make fuzz` takes all 99.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from slipstream.app import App
from slipstream.testing.scripted import kept_table
from slipstream.testing.tpcds import generate
from slipstream.testing.tpcds import suite as suites
from slipstream.testing.tpcds.suite import Outcome, play, tuned

pytestmark = pytest.mark.spark

SAMPLE = (1, 5, 9, 36, 44, 51, 70, 76, 87, 97)
"""Those that once failed in every epoch (sums of decimals in a CTE that is read twice, below a UNION and a ROLLUP;
several scalar subqueries over one table), and one for each of: a correlated subquery, ranks from both ends, windows
over a full outer join, NULLs in a union, EXCEPT.
"""


def test_oracle_tpcds(spark: SparkSession, tmp_path: Path) -> None:
    outcomes = play(tuned(spark), tmp_path, generate(), SAMPLE)
    assert not [outcome for outcome in outcomes if outcome.trouble], "\n".join(map(str, outcomes))
    assert [outcome.number for outcome in outcomes] == list(SAMPLE)
    assert all(outcome.shown for outcome in outcomes), "every query has something to show"


TEXTS = {
    1: "SELECT r_reason_sk FROM reason LIMIT 3",
    2: "SELECT r_reason_desc, count(*) FROM reason GROUP BY r_reason_desc",
    3: "SELECT 1 div (r_reason_sk - r_reason_sk) FROM reason",
}


def test_a_query_that_is_wrong_refused_or_fails_is_told(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_a_row(app: App, view: str, epoch: int) -> pa.Table:
        return kept_table(app, view, epoch).slice(1)

    monkeypatch.setattr(suites, "query", TEXTS.__getitem__)
    monkeypatch.setattr(suites, "kept_table", without_a_row)
    refused, wrong, fails = play(tuned(spark), tmp_path, {"reason": generate()["reason"]}, list(TEXTS))
    assert refused.trouble is not None
    assert "LIMIT without ORDER BY" in refused.trouble
    assert wrong.trouble is not None
    assert wrong.trouble.startswith("as of epoch 1: 1 row(s) of the oracle are missing")
    assert fails.trouble is not None
    assert "DIVIDE_BY_ZERO" in fails.trouble
    assert str(Outcome(5, None, 3)) == "query 5: equal, 3 rows"
