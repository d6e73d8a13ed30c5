"""What a failed job of Spark's failed of: told by its tasks' token, and by the class of Java's exceptions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from slipstream.dataflow.telling import TaskTrouble
from slipstream.epoch.trouble import trouble_of

pytestmark = pytest.mark.spark

TOKEN = "0f" * 16


@pytest.fixture
def full(spark: SparkSession) -> Any:
    """An exception of Java's: the device has no room."""
    if not Path("/dev/full").exists():
        pytest.skip("this system has no device that is always full")
    with pytest.raises(Py4JJavaError) as raised:
        spark._jvm.java.io.FileOutputStream("/dev/full").write(1)  # type: ignore[union-attr]
    return raised.value.java_exception


def failure(spark: SparkSession, thrown: Any) -> Exception:
    """What is raised of an exception that another one has for its cause."""
    with pytest.raises(Py4JJavaError) as raised:
        spark._jvm.java.util.concurrent.CompletableFuture.failedFuture(thrown).join()  # type: ignore[union-attr]
    error: Exception = raised.value
    return error


def test_a_full_disk_below_spark_is_known_by_its_class(spark: SparkSession, full: Any) -> None:
    trouble = trouble_of(failure(spark, full), TOKEN)
    assert trouble is not None
    assert (trouble.trouble, str(trouble)) == ("hindered", "java.io.IOException: No space left on device")


def test_the_same_words_in_an_expressions_error_are_a_rows(spark: SparkSession) -> None:
    words = "\njava.io.IOException: No space left on device\nslipstream.errors.DamagedLayer: x"
    frame = spark.createDataFrame([(words,)], "s string").selectExpr("cast(s AS int)")
    with pytest.raises(Exception, match="CAST_INVALID_INPUT") as raised:
        frame.collect()
    assert trouble_of(raised.value, TOKEN) is None


def test_a_task_that_tells_of_itself_is_heard_through_spark(spark: SparkSession) -> None:
    def fails(batches: Any) -> Any:
        raise TaskTrouble(TOKEN, "damage", "The layer x is damaged.")

    with pytest.raises(Exception, match="is damaged") as raised:
        spark.range(1).mapInArrow(fails, "id long").collect()
    trouble = trouble_of(raised.value, TOKEN)
    assert trouble is not None
    assert (trouble.trouble, str(trouble)) == ("damage", "The layer x is damaged.")
