"""The daemon of Python workers: where PySpark is loaded from, and what it says when Spark hangs up."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from slipstream.spark.daemon import Tracebacks, quietly, without_zips


def test_zips_go_where_the_packages_are_installed_too(tmp_path: Path) -> None:
    for name in ("pyspark", "py4j"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    path = ["/spark/python/lib/pyspark.zip", "/spark/python/lib/py4j-0.10-src.zip", str(tmp_path)]
    assert without_zips(path) == [str(tmp_path)]


def test_zips_stay_where_they_are_all_there_is(tmp_path: Path) -> None:
    archive = tmp_path / "pyspark.zip"
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("pyspark/__init__.py", "")
    assert without_zips([str(archive), str(tmp_path)]) == [str(archive), str(tmp_path)]


def test_a_worker_that_spark_has_hung_up_on_ends_without_a_word() -> None:
    def hung_up(socket: object, authenticated: bool) -> int:
        raise BrokenPipeError

    def failing(socket: object, authenticated: bool) -> int:
        raise ValueError("a fault of its own")

    assert quietly(hung_up)(None, True) == 1
    assert quietly(lambda socket, authenticated: 0)(None, True) == 0
    with pytest.raises(ValueError, match="of its own"):
        quietly(failing)(None, True)


def test_the_daemon_has_nothing_to_say_of_a_worker_that_spark_did_not_wait_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for error in (BrokenPipeError("hung up"), ValueError("a fault of its own")):
        try:
            raise error
        except Exception:
            Tracebacks.print_exc()
    said = capsys.readouterr().err
    assert "a fault of its own" in said
    assert "hung up" not in said
