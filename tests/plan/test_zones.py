"""One name for what is one time zone."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from slipstream.plan import zones
from slipstream.plan.zones import zone

SAME = [
    [
        "UTC",
        "Etc/UTC",
        "Z",
        "GMT",
        "UT",
        "Etc/GMT",
        "+00:00",
        "-00:00",
        "UTC+00:00",
        "GMT0",
        "Etc/GMT0",
        "Zulu",
    ],
    ["+05:30", "GMT+05:30", "UTC+05:30", "+5:30", "UTC+5:30"],
    ["-03:00", "Etc/GMT+3", "UTC-3", "GMT-03:00", "-03"],
    ["Asia/Kolkata", "Asia/Calcutta"],
    ["America/New_York", "US/Eastern"],
]


@pytest.mark.parametrize("names", SAME, ids=lambda names: names[0])
def test_names_of_one_zone_are_one(names: list[str]) -> None:
    assert {zone(name) for name in names} == {names[0]}


def test_zones_that_differ_at_some_time_stay_apart() -> None:
    names = [
        "UTC",
        "Europe/London",
        "Africa/Abidjan",
        "+01:00",
        "-01:00",
        "Europe/Berlin",
        "+05:30",
        "Asia/Kolkata",
    ]
    assert len({zone(name) for name in names}) == len(names)


@pytest.mark.spark
def test_java_says_so_too(spark: SparkSession) -> None:
    """The rules of what is written in two ways are the same, in Spark's own reading of names."""
    assert spark._jvm is not None
    read = spark._jvm.org.apache.spark.sql.catalyst.util.DateTimeUtils.getZoneId
    for name in (*(name for names in SAME for name in names), *zones._RENAMED, *zones._UTC):
        try:
            meant = read(name)
        except Exception:  # in lower case: no name of Spark's
            assert name in zones._UTC
            continue
        assert meant.getRules().equals(read(zone(name)).getRules()), name
