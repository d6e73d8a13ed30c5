"""The generator of random queries."""

from __future__ import annotations

from random import Random

import pytest
from pyspark.sql import SparkSession

from slipstream.testing.fuzz.generator import Generator
from slipstream.testing.fuzz.query import Column, Part, Pivot, Query, Select, SetOperation, With
from slipstream.testing.fuzz.tables import Debts, change, scripted

ONE = Select(
    (Column("t.k", "string"), Column("t.g", "number")), (Part("a", "t"),), where=("t.g > 1", "t.k = 'x'")
)


def generated(seed: int, count: int) -> list[str]:
    random = Random(seed)
    views: dict[str, Query] = {}
    for number in range(count):
        views[f"v{number}"] = Generator(random, views).query()
    return [query.sql() for query in views.values()]


def test_a_query_is_rendered_as_sql() -> None:
    assert ONE.sql() == "SELECT t.k AS c0, t.g AS c1 FROM a t WHERE t.g > 1 AND t.k = 'x'"
    both = SetOperation("UNION ALL", ONE, ONE)
    joined = Select((Column("s.c0", "string"),), (Part(both, "s"), Part("b", "t", " JOIN", ("s.c0 = t.k",))))
    assert (
        joined.sql()
        == f"SELECT s.c0 AS c0 FROM (({ONE.sql()}) UNION ALL ({ONE.sql()})) s JOIN b t ON s.c0 = t.k"
    )


def test_a_query_that_is_read_twice_and_a_pivot_are_rendered_as_sql() -> None:
    both = SetOperation(
        "UNION ALL",
        Select((Column("x.c0", "string"),), (Part("w", "x"),)),
        Select((Column("y.c0", "string"),), (Part("w", "y"),)),
    )
    read = With("w", ONE, both)
    assert (
        read.sql()
        == f"WITH w AS ({ONE.sql()}) (SELECT x.c0 AS c0 FROM w x) UNION ALL (SELECT y.c0 AS c0 FROM w y)"
    )
    assert next(read.smaller()) == ONE
    turned = Pivot(ONE, Column("max({})", "number"), ("'x'", "'y'"))
    assert (
        turned.sql()
        == f"SELECT p0 AS c0, p1 AS c1 FROM ({ONE.sql()}) PIVOT (max(c1) FOR c0 IN ('x' AS p0, 'y' AS p1))"
    )
    assert turned.kinds == ("number", "number")


def test_smaller_queries_leave_out_one_piece_each() -> None:
    assert [query.sql() for query in ONE.smaller()] == [
        "SELECT t.k AS c0, t.g AS c1 FROM a t WHERE t.k = 'x'",
        "SELECT t.k AS c0, t.g AS c1 FROM a t WHERE t.g > 1",
        "SELECT t.g AS c0 FROM a t WHERE t.g > 1 AND t.k = 'x'",
        "SELECT t.k AS c0 FROM a t WHERE t.g > 1 AND t.k = 'x'",
    ]
    assert next(SetOperation("EXCEPT", ONE, ONE).smaller()) == ONE


def test_queries_depend_on_the_seed_alone_and_cover_every_form() -> None:
    texts = generated(1, 600)
    assert texts[:100] == generated(1, 100)
    assert texts[:20] != generated(2, 20)
    whole = "\n".join(texts)
    for form in (
        *(
            "LEFT JOIN",
            "RIGHT JOIN",
            "FULL JOIN",
            "LEFT SEMI",
            "LEFT ANTI",
            "CROSS JOIN",
            "GROUP BY",
            "HAVING",
            "CUBE",
        ),
        *(
            "DISTINCT",
            "OVER (",
            "LIMIT",
            "INTERSECT",
            "EXCEPT",
            "UNION",
            "EXISTS (",
            "NOT IN (SELECT",
            "FILTER",
            "FROM v",
        ),
        *(
            "WITH w",
            "ROLLUP",
            "PIVOT (",
            "JOIN LATERAL (",
            "JOIN LATERAL explode",
            "INTERVAL",
            "named_struct",
        ),
        *("COLLATE", "date_trunc(", "AS DATE)", "array(named_struct(", "CUBE"),
        *("array(", "map_filter(", "(SELECT DISTINCT", "LIMIT 1) AS", "UNION ALL (SELECT"),
        *("listagg(DISTINCT", "kurtosis("),
    ):
        assert form in whole, form


def test_what_may_fail_is_asked_for_only_where_it_gives_null() -> None:
    strict, lenient = (
        "\n".join(Generator(Random(seed), {}, lenient).query().sql() for seed in range(400))
        for lenient in (False, True)
    )
    for form in ("7 div ", "AS TINYINT)", "AS DECIMAL(4,3))", "[7])"):
        assert form not in strict
        assert form in lenient


@pytest.mark.spark
def test_rows_that_are_owed_come_in_the_next_step_and_leave_the_tables_as_they_are(
    spark: SparkSession,
) -> None:
    sources, debts, random = scripted(), Debts(), Random(5)
    change(sources, random)
    held = [repr(source.rows) for source in sources.values()]
    debts.owe(sources, random)
    owing = [debts.some]
    debts.pay()
    assert [*owing, debts.some] == [True, False]
    assert [repr(source.rows) for source in sources.values()] == held


@pytest.mark.spark
def test_changes_of_tables_depend_on_the_seed_alone(spark: SparkSession) -> None:
    one, same = scripted(), scripted()
    for sources in (one, same):
        random = Random(5)
        for _ in range(4):
            change(sources, random)
    assert [repr(source.rows) for source in one.values()] == [repr(source.rows) for source in same.values()]
    assert any(source.rows for source in one.values())
