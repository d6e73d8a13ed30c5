"""Of what Spark writes to the console, only noise is left out."""

from __future__ import annotations

import subprocess
import sys

import pytest

from slipstream.cli.console import quiet_start, useful

GOODBYE = [
    "Traceback (most recent call last):\n",
    '  File ".../pyspark.zip/pyspark/daemon.py", line 264, in manager\n',
    "BrokenPipeError: [Errno 32] Broken pipe\n",
]
FAILURE = ["Traceback (most recent call last):\n", '  File "udf.py", line 1, in f\n', "ValueError: no\n"]


def test_noise_is_left_out_and_the_rest_kept() -> None:
    lines = ["WARNING: Using incubator modules: jdk.incubator.vector\n", "a\n", *GOODBYE, *FAILURE, "b\n"]
    assert list(useful(lines)) == ["a\n", *FAILURE, "b\n"]


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
