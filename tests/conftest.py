"""Fixtures that every test may use."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

from slipstream.spark.session import start_session

settings.register_profile("same every time", deadline=None, derandomize=True)
settings.load_profile("same every time")

# Each test has plans and generated code of its own: what a JVM would compile thoroughly is not run again.
# With its default cache for what is compiled so, it would stop to compile half-way.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=512m")

LONGEST = "torture/test_torture.py"


STARTS_SPARK = ("torture/", "cli/test_command.py", "test_standby.py", "test_java.py", "test_readme.py")
"""Tests whose own processes start Spark."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest test comes first: as the last one, it would leave the other processes without work for minutes. Tests
    that need a JVM are marked, so that `make check` can leave them out.
    """
    items.sort(key=lambda item: LONGEST not in item.nodeid)
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if "spark" in fixtures or any(each in item.nodeid for each in STARTS_SPARK):
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One Spark for all tests, on whichever Java is found: the user's, else the bundled one. Plans and generated code
    of some hundred apps pile up in it.
    """
    session = start_session("tests", "local[2]", shards=2, settings={"spark.driver.memory": "3g"})
    yield session
    session.stop()
