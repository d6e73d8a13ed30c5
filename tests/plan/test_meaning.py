"""What changes the meaning of a plan and what does not, over descriptions that were recorded from Spark 4.3."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from slipstream.plan.catalyst import Catalyst, Describer
from slipstream.plan.meaning import Meaning, differences, of_node, of_recomputed, of_source, of_view

RECORDED = Path(__file__).parent / "descriptions.json"
QUERIES = {
    "summed": "SELECT k AS key, sum(v + 1) AS s, count(*) AS n FROM t WHERE v > 1 AND u = 'a' GROUP BY k",
    "joined": "SELECT a.k, b.u FROM t a LEFT JOIN t b ON a.k = b.k AND a.v < b.v",
    "dated": "SELECT k, cast(at AS date) AS d FROM t",
    "listed": "SELECT k FROM t WHERE k IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)",
    "spread": "SELECT k, v, count(*) AS n FROM t GROUP BY CUBE (k, v)",
    "mapped": "SELECT transform(array(k, v), x -> x + 1) AS m FROM t WHERE exists(array(k), x -> x > 1)",
    "parsed": "SELECT from_json(u, 'a INT', map('mode', 'FAILFAST')) AS j, at > TIMESTAMP'2026-01-01' AS l FROM t",
    "constant": "SELECT k, q.n FROM t JOIN (VALUES (1, 'x'), (2, 'y')) AS q(i, n) ON k = q.i",
}
SOURCE = of_source("t", [("k", "bigint", True, "")], ["append"], None)
SESSION = {"spark.sql.session.timeZone": "UTC", "spark.sql.ansi.enabled": "true", "python": "3.11"}

Plan = dict[str, Any]
"""A description, with those of the inputs under `below`; None for a source."""


def described(catalyst: Catalyst, describer: Describer, node: Any) -> Plan | None:
    if catalyst.leaf_id(node) is not None:
        return None
    below = [described(catalyst, describer, child) for child in catalyst.children(node)]
    return {**describer.node(node), "below": below}


def meaning(plan: Plan | None, session: dict[str, str] = SESSION) -> Meaning:
    if plan is None:
        return SOURCE
    return of_node(plan, [meaning(each, session) for each in plan["below"]], session)


@pytest.fixture(scope="module")
def recorded() -> dict[str, Plan]:
    plans: dict[str, Plan] = json.loads(RECORDED.read_text())
    return plans


def parts(value: Any) -> Iterator[dict[str, Any]]:
    """Every object in a plan."""
    if isinstance(value, dict):
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from parts(each)


def changed(plan: Plan, change: Callable[[dict[str, Any]], None]) -> Plan:
    """A plan after something was done to each of its objects."""
    made = copy.deepcopy(plan)
    for part in parts(made):
        change(part)
    return made


def of_kind(kind: str, field: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(part: dict[str, Any]) -> None:
        if part.get("class") == kind:
            assert field in part["fields"], f"{kind} has no {field}"
            part["fields"][field] = value

    return change


def test_names_numbers_and_fields_without_a_value_mean_nothing(recorded: dict[str, Plan]) -> None:
    def other_name(part: dict[str, Any]) -> None:
        if part.get("class") in ("Alias", "AttributeReference"):
            part["fields"]["name"] += "_renamed"

    def under_an_alias(part: dict[str, Any]) -> None:
        if "projectList" in part.get("fields", {}):
            listed = part["fields"]["projectList"]
            part["fields"]["projectList"] = [
                {"class": "Alias", "expression": True, "fields": {"child": each, "name": "x"}}
                for each in listed
            ]

    def other_number(part: dict[str, Any]) -> None:
        if "id" in part:
            part["id"] += 1000
        if "inputs" in part:
            part["inputs"] = [[number + 1000 for number in given] for given in part["inputs"]]

    def more_fields(part: dict[str, Any]) -> None:
        if "class" in part:
            part["fields"] |= {"new_in_a_release": None, "another": False, "several": [], "some": {}}

    for name, plan in recorded.items():
        for change in (other_name, other_number, more_fields, under_an_alias):
            made = changed(plan, change)
            assert made != plan or change is under_an_alias
            assert meaning(made) == meaning(plan), (name, change)


def test_every_plan_means_something_else(recorded: dict[str, Plan]) -> None:
    assert len({meaning(plan).whole for plan in recorded.values()}) == len(recorded) == len(QUERIES)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("summed", of_kind("Literal", "value", "=7")),
        ("summed", of_kind("AttributeReference", "dataType", "double")),
        ("summed", of_kind("AttributeReference", "nullable", False)),
        ("summed", of_kind("NumericEvalContext", "evalMode", {"class": "Val", "fields": {"text": "LEGACY"}})),
        ("joined", of_kind("Join", "joinType", {"class": "Inner$", "fields": {}})),
        ("dated", of_kind("Cast", "timeZoneId", "America/New_York")),
        ("dated", of_kind("Cast", "evalMode", {"class": "Val", "fields": {"text": "LEGACY"}})),
        ("listed", of_kind("InSet", "hset", {"set": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12]})),
        ("parsed", of_kind("JsonToStructs", "options", None)),
        ("parsed", of_kind("Literal", "value", "=1767225600000001")),
        ("constant", of_kind("LocalRelation", "rows", {"set": [["=1", "=x"], ["=2", "=z"]]})),
    ],
)
def test_what_is_computed_is_part_of_the_meaning(
    recorded: dict[str, Plan], name: str, change: Callable[[dict[str, Any]], None]
) -> None:
    made = changed(recorded[name], change)
    assert made != recorded[name], "there is something to change"
    assert meaning(made).whole != meaning(recorded[name]).whole
    assert meaning(made).query != meaning(recorded[name]).query


def test_which_column_is_meant_is_part_of_the_meaning(recorded: dict[str, Plan]) -> None:
    def swapped(part: dict[str, Any]) -> None:
        if "inputs" in part:
            part["inputs"] = [given[::-1] for given in part["inputs"]]

    assert meaning(changed(recorded["summed"], swapped)).whole != meaning(recorded["summed"]).whole


def test_the_conjuncts_of_a_filter_have_no_order_and_those_of_a_join_have_one(
    recorded: dict[str, Plan],
) -> None:
    def swapped(part: dict[str, Any]) -> None:
        if part.get("class") in ("And", "EqualTo"):
            fields = part["fields"]
            fields["left"], fields["right"] = fields["right"], fields["left"]

    assert meaning(changed(recorded["summed"], swapped)) == meaning(recorded["summed"])
    assert meaning(changed(recorded["joined"], swapped)).whole != meaning(recorded["joined"]).whole


def test_settings_count_where_they_are_felt(recorded: dict[str, Plan]) -> None:
    lenient = {**SESSION, "spark.sql.ansi.enabled": "false"}
    elsewhere = {**SESSION, "spark.sql.session.timeZone": "Asia/Tokyo"}
    newer = {**SESSION, "python": "3.12"}
    older = {**SESSION, "spark.sql.legacy.timeParserPolicy": "LEGACY"}
    for name, plan in recorded.items():
        blind = name in ("joined", "listed", "spread")
        assert (meaning(plan, lenient) == meaning(plan)) == blind, name
        assert (meaning(plan, older) == meaning(plan)) == blind, name
        assert meaning(plan, elsewhere) == meaning(plan), "the plan itself has the zone"
        assert meaning(plan, newer) == meaning(plan)
    assert meaning(recorded["dated"]).settings == {"spark.sql.session.timeZone": "UTC"}
    assert meaning(recorded["summed"]).settings == {}
    assert meaning(recorded["summed"], lenient).settings == {"spark.sql.ansi.enabled": "false"}


def test_one_zone_under_two_names_is_one(recorded: dict[str, Plan]) -> None:
    def under(name: str) -> Callable[[dict[str, Any]], None]:
        def renamed(part: dict[str, Any]) -> None:
            if "timeZoneId" in part:
                part["timeZoneId"] = name

        return renamed

    for name in ("Etc/UTC", "Z", "+00:00", "GMT"):
        assert meaning(changed(recorded["dated"], under(name))) == meaning(recorded["dated"])
        assert of_source("t", [], [], name) == of_source("t", [], [], "UTC")
        timed = called("c0de", "timestamp")
        assert meaning(timed, {**SESSION, "spark.sql.session.timeZone": name}) == meaning(timed)
    assert meaning(changed(recorded["dated"], under("Asia/Tokyo"))).whole != meaning(recorded["dated"]).whole


@pytest.mark.parametrize(("pattern", "alike"), [("yyyy-MM-dd", True), ("yyyy VV", False), ("HH z", False)])
def test_how_a_zone_is_written_counts_where_it_is_shown(pattern: str, alike: bool) -> None:
    def shown(zone: str) -> Plan:
        literal = {
            "class": "Literal",
            "expression": True,
            "fields": {"value": f"={pattern}", "dataType": "string"},
        }
        fields = {"left": None, "right": literal, "timeZoneId": zone}
        written = {"class": "DateFormatClass", "expression": True, "fields": fields}
        return {"class": "Project", "fields": {"projectList": [written]}, "inputs": [[1]], "below": [None]}

    assert (meaning(shown("UTC")) == meaning(shown("Etc/UTC"))) == alike


def called(code: str, kind: str, name: str = "fee") -> Plan:
    """A function over one column."""
    argument = {
        "class": "AttributeReference",
        "expression": True,
        "id": 1,
        "fields": {"name": "x", "dataType": kind},
    }
    fields = {"name": name, "python code": code, "dataType": "long", "children": [argument]}
    udf = {"class": "PythonUDF", "expression": True, "fields": fields}
    return {"class": "ArrowEvalPython", "fields": {"udfs": [udf]}, "inputs": [[1]], "below": [None]}


def test_a_function_is_its_code_and_feels_the_time_zone_where_it_is_handed_timestamps() -> None:
    elsewhere = {**SESSION, "spark.sql.session.timeZone": "Asia/Tokyo"}
    plan = called("c0de", "long")
    assert meaning(plan).functions == {"fee": "c0de"}
    assert meaning(plan).settings == {"python": "3.11"}
    assert meaning(called("c0de", "long", "charge")).whole == meaning(plan).whole
    assert meaning(called("beef", "long")).whole != meaning(plan).whole
    assert meaning(plan, elsewhere) == meaning(plan)
    timed = called("c0de", "timestamp")
    assert meaning(timed, elsewhere).whole != meaning(timed).whole
    assert meaning(timed).settings == {"python": "3.11", "spark.sql.session.timeZone": "UTC"}


def test_functions_of_one_name_are_all_told() -> None:
    plan = {**called("beef", "long"), "below": [called("c0de", "long")]}
    assert meaning(plan).functions == {"fee": "beef, c0de"}


def test_a_source_is_its_name_columns_keys_and_zone() -> None:
    columns = [("k", "bigint", True, "")]
    others = [
        of_source("u", columns, ["append"], None),
        of_source("t", [("k", "int", True, "")], ["append"], None),
        of_source("t", [("k", "bigint", False, "")], ["append"], None),
        of_source("t", [("k", "bigint", True, "t.k - 1000 ms")], ["append"], None),
        of_source("t", columns, ["keyed", "k"], None),
        of_source("t", columns, ["append"], "UTC"),
    ]
    assert len({SOURCE.whole, *(each.whole for each in others)}) == 7
    assert others[-1].settings == {"spark.sql.session.timeZone": "UTC"}


def test_a_changed_view_changes_what_its_readers_keep_but_not_their_query(recorded: dict[str, Plan]) -> None:
    summed, dated = meaning(recorded["summed"]), meaning(recorded["dated"])
    assert of_view("v", summed).query == of_view("v", dated).query
    assert of_view("v", summed).whole != of_view("v", dated).whole
    assert of_view("w", summed).query != of_view("v", summed).query
    assert of_view("w", summed).whole == of_view("v", summed).whole
    assert of_view("v", dated).settings == {}, "what a view goes by is that view's own"
    assert of_recomputed(dated).whole != dated.whole
    assert of_recomputed(dated).settings == dated.settings


@dataclass(frozen=True)
class ViewMeaning:
    """What a catalog says of a view's meaning."""

    settings: Mapping[str, str] = field(default_factory=dict)
    functions: Mapping[str, str] = field(default_factory=dict)


def test_differences_say_what_was_and_what_is() -> None:
    before = ViewMeaning(settings={"spark.sql.session.timeZone": "UTC"}, functions={"fee": "1", "gone": "1"})
    now = ViewMeaning(
        settings={
            "spark.sql.session.timeZone": "Asia/Tokyo",
            "spark.sql.ansi.enabled": "false",
            "spark.sql.legacy.sizeOfNull": "true",
            "python": "3.12",
        },
        functions={"fee": "2", "new": "1"},
    )
    assert differences(before, now) == [
        "ANSI mode (spark.sql.ansi.enabled) was true and is false",
        "spark.sql.legacy.sizeOfNull was not set and is true",
        "the session time zone was UTC and is Asia/Tokyo",
        "the code of the Python function 'fee' changed",
    ]
    assert differences(now, now) == []
    nothing = ViewMeaning()
    assert differences(nothing, nothing) == []
    older = ViewMeaning(settings={"python": "3.11"})
    newer = ViewMeaning(settings={"python": "3.12"})
    assert differences(older, newer) == ["the version of Python was 3.11 and is 3.12"]


@pytest.mark.spark
def test_what_was_recorded_is_what_spark_gives(spark: SparkSession, recorded: dict[str, Plan]) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    catalyst = Catalyst(session)
    schema = session.createDataFrame([], "k long, v long, u string, at timestamp").schema
    catalyst.placeholder(schema).createOrReplaceTempView("t")
    describer = Describer(catalyst)
    given = {
        name: described(catalyst, describer, catalyst.optimised(session.sql(query)))
        for name, query in QUERIES.items()
    }
    assert {name: meaning(plan) for name, plan in given.items()} == {
        name: meaning(plan) for name, plan in recorded.items()
    }
