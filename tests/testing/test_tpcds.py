"""TPC-DS's tables and queries."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from random import Random

import pyarrow as pa
import pytest

from slipstream.testing.tpcds import NUMBERS, TABLES, generate, query
from slipstream.testing.tpcds.constants import compared, drawn
from slipstream.testing.tpcds.queries import spark_sql


def test_there_are_99_queries_and_no_other() -> None:
    assert len({query(number) for number in NUMBERS}) == 99
    with pytest.raises(ValueError, match="TPC-DS has no query 100: its queries are 1 to 99"):
        query(100)


def test_an_order_with_a_limit_is_made_whole() -> None:
    text = 'SELECT a AS "a b", count(*)\nFROM t\nGROUP BY a\norder by count(*) DESC\nLIMIT 100;\n\n'
    assert spark_sql(text, 2) == (
        "SELECT a AS `a b`, count(*)\nFROM t\nGROUP BY a\norder by count(*) DESC, 1, 2\nLIMIT 100"
    )


@pytest.mark.parametrize("text", ["SELECT a FROM t ORDER BY a", "SELECT sum(a) AS s FROM t\nLIMIT 100"])
def test_other_queries_are_left_as_they_are(text: str) -> None:
    assert spark_sql(f"{text} ;", 1) == text


def test_rows_are_the_same_every_time_and_keys_of_dimensions_unique() -> None:
    made, again = generate(), generate()
    assert list(made) == list(TABLES)
    assert all(rows.equals(again[name]) for name, rows in made.items())
    assert all(rows.num_rows > 0 for rows in made.values())
    for name, table in TABLES.items():
        if len(table.key) == 1:
            assert len(made[name].group_by(list(table.key)).aggregate([])) == made[name].num_rows
    returned, sold = made["store_returns"], made["store_sales"]
    assert set(returned["sr_ticket_number"].to_pylist()) <= set(sold["ss_ticket_number"].to_pylist())


def test_what_a_query_compares_columns_with_is_found() -> None:
    text = """SELECT * FROM t WHERE a = 5 AND s.b = 'x' AND c IN (1, 2) AND d BETWEEN 3 AND 3 + 4 AND dyear = 2001+1
        AND substring(z, 1, 5) IN ('24128') AND e BETWEEN cast('2000-01-01' AS date) AND cast('2000-01-03' AS date)
        AND f LIKE 'Un%' AND g = h AND i = 5 * j"""
    assert compared(text) == {
        "a": [("5", "5")],
        "b": [("'x'", "'x'")],
        "c": [("1", "1"), ("2", "2")],
        "d": [("3", "7")],
        "d_year": [("2002", "2002")],
        "z": [("'24128'", "'24128'")],
        "e": [("'2000-01-01'", "'2000-01-03'")],
        "f": [("'Un'", "'Un'")],
    }


def test_values_are_drawn_from_constants_of_their_type() -> None:
    random = Random(1)
    assert drawn([("'x'", "'x'")], pa.string(), random) == "x"
    assert drawn([("5", "5")], pa.string(), random) is None
    assert drawn([("5", "5")], pa.decimal128(7, 2), random) == Decimal(5)
    assert {drawn([("3", "4")], pa.int64(), random) for _ in range(50)} == {3, 4}
    days = {drawn([("'2000-01-01'", "'2000-01-02'")], pa.date32(), random) for _ in range(50)}
    assert days == {date(2000, 1, 1), date(2000, 1, 2)}
