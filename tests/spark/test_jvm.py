"""What an epoch asks of the JVM, and what it leaves behind there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from py4j.java_gateway import GatewayClient
from pyspark.sql import SparkSession

import slipstream as sl
from slipstream.spark.jvm import Remembered

pytestmark = pytest.mark.spark

LOOKUP = "r\nu\n"  # what py4j sends for a part of a dotted name


@pytest.fixture
def sent(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What py4j sends to the JVM."""
    commands: list[str] = []
    gateway: Any = spark.sparkContext._gateway
    client = type(gateway._gateway_client)
    send = client.send_command

    def noting(self: GatewayClient, command: str, *more: Any, **named: Any) -> Any:
        commands.append(command)
        return send(self, command, *more, **named)

    monkeypatch.setattr(client, "send_command", noting)
    return commands


def test_a_name_is_looked_up_once(spark: SparkSession, sent: list[str]) -> None:
    names: Any = Remembered(spark._jvm)
    assert names.java.util.Collections.emptyList().size() == 0
    assert names.java.util.ArrayList().isEmpty()
    assert [command for command in sent if command.startswith(LOOKUP)] == [
        f"{LOOKUP}{name}\n{names._found._id}\ne\n"
        for name in ("java", "java.util", "java.util.Collections", "java.util.ArrayList")
    ]
    sent.clear()
    names.java.util.Collections.emptyList()
    assert not [command for command in sent if command.startswith("r\n")]


def test_epochs_look_no_name_up(spark: SparkSession, tmp_path: Path, sent: list[str]) -> None:
    with sl.App("lookups", store=tmp_path / "store", spark=spark) as app:
        rows = sl.memory("k string, v long")
        app.source("rows", rows)
        app.view("twice", "SELECT x.k, y.v FROM rows x JOIN rows y ON x.k = y.k")
        for value in range(2):
            rows.append([("x", value)])
            app.run(until="caught_up")
        sent.clear()
        rows.append([("x", 2)])
        app.run(until="caught_up")
        assert [command for command in sent if command.startswith(LOOKUP)] == []


def test_a_thread_keeps_its_own_properties(spark: SparkSession, tmp_path: Path) -> None:
    context: Any = spark.sparkContext
    names = ("spark.scheduler.pool", "callSite.short", "callSite.long", "slipstream.epoch")
    context.setLocalProperty("spark.scheduler.pool", "mine")
    with sl.App("thread", store=tmp_path / "store", spark=spark) as app:
        rows = sl.memory("v long")
        app.source("rows", rows)
        app.view("all", "SELECT v FROM rows")
        rows.append([(1,)])
        app.run(until="caught_up")
        assert [context.getLocalProperty(name) for name in names] == ["mine", None, None, None]
    context.setLocalProperty("spark.scheduler.pool", None)
