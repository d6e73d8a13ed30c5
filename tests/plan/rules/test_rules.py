"""Each rule by examples: queries, and the operators that they become.

A file NAME.txt beside this one has the cases of one rule: a query, indented, and below it the tree, with a line that is
empty between two cases. A case that SQL cannot say names a function of `FRAMES` instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import takewhile
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from slipstream.plan import Catalyst, Declared, Source, compile_views, marked_schema, of_source
from slipstream.plan.catalyst import Node
from slipstream.plan.nodes import Op
from slipstream.plan.printing import printed
from slipstream.plan.rules import RULES, Query, Rule

pytestmark = pytest.mark.spark

HERE = Path(__file__).parent
TABLES = {
    "t": "k long, v long, s string, d double",
    "u": "k long, w long",
    "events": "at timestamp, k long, v long",
    "clicks": "at timestamp, k long",
    "views": "at timestamp, k long",
}
MARKED = ("clicks", "views")
FRAMES: dict[str, Callable[[dict[str, DataFrame]], DataFrame]] = {
    "clicks.dropDuplicatesWithinWatermark(k)": lambda of: of["clicks"].dropDuplicatesWithinWatermark(["k"]),
}


def cases() -> Iterator[tuple[str, str, str]]:
    for path in sorted(HERE.glob("*.txt")):
        for block in path.read_text().strip("\n").split("\n\n"):
            lines = block.splitlines()
            query = list(takewhile(lambda line: line.startswith("    "), lines))
            yield path.stem, " ".join(line.strip() for line in query), "\n".join(lines[len(query) :])


class Compiling:
    """Compiles one query over the tables."""

    def __init__(self, spark: SparkSession) -> None:
        self.catalyst = Catalyst(spark)
        schemas = {name: spark.createDataFrame([], schema).schema for name, schema in TABLES.items()}
        for name in MARKED:
            schemas[name] = marked_schema(self.catalyst, name, schemas[name], ("at", "1 minute"))
        self.placeholders = {name: self.catalyst.placeholder(schema) for name, schema in schemas.items()}
        for name, frame in self.placeholders.items():
            frame.createOrReplaceTempView(name)
        self.sources = {
            name: (
                Source(name, schema, "append", (), (), False, f"traces/{name}/upsert"),
                of_source(name, [], [], None),
            )
            for name, schema in schemas.items()
        }

    def tree(self, spark: SparkSession, query: str) -> str:
        frame = FRAMES[query](self.placeholders) if query in FRAMES else spark.sql(query)
        known = {**self.placeholders, "v": self.catalyst.placeholder(frame.schema)}
        declared = Declared(
            sources=self.sources, views={"v": frame}, recomputed=(), placeholders=known, known={}, session={}
        )
        (view,) = compile_views(self.catalyst, declared).views
        return printed(self.catalyst, view.root)


@pytest.fixture(scope="module")
def compiling(spark: SparkSession) -> Iterator[Compiling]:
    yield Compiling(spark)
    for name in TABLES:
        spark.catalog.dropTempView(name)


@pytest.mark.parametrize(("rule", "query", "tree"), list(cases()))
def test_a_query_becomes_these_operators(
    spark: SparkSession, compiling: Compiling, rule: str, query: str, tree: str
) -> None:
    assert compiling.tree(spark, query) == tree


def test_windows_of_very_many_panes_are_expanded(spark: SparkSession, compiling: Compiling) -> None:
    """Their panes would be of a microsecond."""
    query = "SELECT k, count(*) AS n FROM events GROUP BY window(at, '10 seconds', '{} microseconds'), k"
    assert "Panes" not in compiling.tree(spark, query.format(3333333))
    assert "Panes" in compiling.tree(spark, query.format(2500000))


def test_rows_with_collated_strings_are_not_counted_together(
    spark: SparkSession, compiling: Compiling
) -> None:
    """Spark would take those for one that are equal by their collation, and not the same."""
    query = """SELECT n, min(cast(c AS binary)) AS b FROM (SELECT at, k AS n, cast(k AS string){} AS c FROM clicks)
        GROUP BY window(at, '10 seconds', '5 seconds'), n"""
    assert "Alike" in compiling.tree(spark, query.format(""))
    assert "Alike" not in compiling.tree(spark, query.format(" COLLATE UTF8_LCASE"))


def test_every_rule_has_a_file_of_cases() -> None:
    told = {rule.__module__.rpartition(".")[2] for rule in RULES}
    assert told == {path.stem for path in HERE.glob("*.txt")}


@pytest.mark.parametrize("place", range(len(RULES)), ids=[rule.__name__ for rule in RULES])
def test_every_rule_is_asked_and_answers_in_some_case(
    spark: SparkSession, compiling: Compiling, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    answered: list[Op] = []

    def noting(query: Query, node: Node) -> Op | None:
        made = RULES[place](query, node)
        answered.extend([] if made is None else [made])
        return made

    noted: tuple[Rule, ...] = (*RULES[:place], noting, *RULES[place + 1 :])
    monkeypatch.setattr("slipstream.plan.compile.RULES", noted)
    module = RULES[place].__module__.rpartition(".")[2]
    for rule, query, _ in cases():
        if rule == module:
            compiling.tree(spark, query)
    assert answered
