"""Table functions in Python, against batch Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import arrow_udtf, udtf

import slipstream as sl
from slipstream.core.errors import CannotMaintain, ViewChanged
from slipstream.testing.oracle import rows_of
from slipstream.testing.scripted import Script, Scripted

pytestmark = pytest.mark.spark


class Words:
    """A row for each word."""

    def eval(self, text: str | None) -> Iterator[tuple[str, int]]:
        for number, word in enumerate((text or "").split()):
            yield word, number


class Counted(Words):
    """Rows that depend on all rows."""

    def terminate(self) -> Iterator[tuple[str, int]]:
        yield "the end", 0


class Total:
    """One row, of all of a relation."""

    def __init__(self) -> None:
        self._sum = 0

    def eval(self, row: Any) -> None:
        self._sum += row[0]

    def terminate(self) -> Iterator[tuple[int]]:
        yield (self._sum,)


class Columns:
    def eval(self, table: Any) -> Iterator[Any]:
        yield table


WORDS = "w string, n int"
VIEWS = {
    "words": "SELECT k, w, n FROM t, LATERAL words(s)",
    "slowly": "SELECT k, w, s FROM t, LATERAL slow_words(concat(s, ' end'))",
    "counted": "SELECT w, count(*) c, sum(n) s FROM t, LATERAL words(s) WHERE k > 1 GROUP BY w",
    "joined": "SELECT a.k, b.k l, a.w FROM words a JOIN words b ON a.w = b.w AND a.k < b.k",
    "constant": "SELECT * FROM words('a b')",
}


@pytest.fixture
def functions(spark: SparkSession) -> Iterator[None]:
    spark.udtf.register("words", udtf(Words, returnType=WORDS).asDeterministic())  # type: ignore[union-attr]
    slow = udtf(Words, returnType=WORDS, useArrow=False).asDeterministic()  # type: ignore[union-attr]
    spark.udtf.register("slow_words", slow)
    spark.udtf.register("counting", udtf(Counted, returnType=WORDS).asDeterministic())  # type: ignore[union-attr]
    spark.udtf.register("any_words", udtf(Words, returnType=WORDS))  # type: ignore[arg-type]
    columns = arrow_udtf(Columns, returnType="s string")
    spark.udtf.register("columns", columns.asDeterministic())  # type: ignore[union-attr]
    spark.udtf.register("total_of", udtf(Total, returnType="t long").asDeterministic())  # type: ignore[union-attr]
    yield
    for name in ("total_of", "words", "slow_words", "counting", "any_words", "columns"):
        spark.sql(f"DROP TEMPORARY FUNCTION {name}")


@pytest.mark.usefixtures("functions")
def test_they_are_maintained_like_explode(open_app: Any) -> None:
    app, t = open_app(hash_bits=2), Scripted("k long, s string")
    app.source("t", t.source)
    for name, query in VIEWS.items():
        app.view(name, query)
    assert "UDTF" in app.explain("words")
    script = Script(app, {"t": t})
    script.step(lambda: t.append([(1, "a b a"), (2, None), (3, "b c"), (3, "b c"), (4, "")]))
    script.step(lambda: t.retract([(3, "b c"), (1, "a b a")]))
    script.step(lambda: t.append([(5, "a"), (2, "c c")]))
    script.check()


@pytest.mark.usefixtures("functions")
@pytest.mark.parametrize(
    ("query", "why", "instead"),
    [
        ("SELECT * FROM t, LATERAL any_words(s)", "is not declared deterministic", "asDeterministic"),
        ("SELECT * FROM t, LATERAL counting(s)", r"terminate\(\) gives rows", "maintain='recompute'"),
        ("SELECT * FROM counting(TABLE(SELECT s FROM t))", "a whole relation", "FROM t, LATERAL"),
        ("SELECT * FROM columns(TABLE(SELECT s FROM t))", "a whole relation", "FROM t, LATERAL"),
    ],
)
def test_what_sees_more_than_a_row_is_refused(open_app: Any, query: str, why: str, instead: str) -> None:
    app = open_app()
    app.source("t", sl.memory("k long, s string"))
    with pytest.raises(CannotMaintain, match=rf"view 'refused'.*{why}.*Instead: .*{instead}"):
        app.view("refused", query)


@pytest.mark.usefixtures("functions")
def test_what_sees_all_rows_can_be_computed_anew(open_app: Any) -> None:
    app, t = open_app(shards=1), sl.memory("k long, s string")
    app.source("t", t)
    query = "SELECT * FROM total_of(TABLE(SELECT k FROM t) WITH SINGLE PARTITION)"
    app.view("total", query, maintain="recompute")
    t.append([(1, "a"), (2, "b")])
    app.run(until="caught_up")
    t.retract([(1, "a")])
    app.run(until="caught_up")
    assert rows_of(app.read("total")) == [(2,)]


def test_other_code_of_its_class_is_another_query(spark: SparkSession, tmp_path: Path) -> None:
    def opened(returns: str) -> sl.App:
        body = f"def eval(self, s):\n    yield ({returns},)"
        names: dict[str, Any] = {"__name__": "__main__"}
        exec(f"class Told:\n    {body.replace(chr(10), chr(10) + '    ')}\n", names)
        told = udtf(names["Told"], returnType="w string").asDeterministic()  # type: ignore[union-attr]
        spark.udtf.register("told", told)
        app = sl.App("told", store=tmp_path, spark=spark, shards=1)
        app.source("t", t := sl.memory("s string"))
        app.view("words", "SELECT w FROM t, LATERAL told(s)")
        t.append([("x",)])
        return app

    with opened("s + 'y'") as app:
        app.run(until="caught_up")
        assert rows_of(app.read("words")) == [("xy",)]
    with opened("s + 'y'") as app:
        app.run(until="caught_up")
        assert rows_of(app.read("words")) == [("xy",)] * 2
    with (
        opened("s + 'z'") as app,
        pytest.raises(ViewChanged, match="the code of the Python function 'told' changed"),
    ):
        app.run(until="caught_up")
