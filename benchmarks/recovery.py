"""How long an engine takes to come back: killed with SIGKILL, started again, until its first new result.

The engine is a process of its own (`python -m benchmarks.recovery JOB LANDING FOLDER`) that says on its standard output
when its Spark session is up and, for each batch that had rows, when it was begun and when its result was there. All
of them are times of one clock. It is started once to build up state, killed, given new input and started again. The
parts: from the start of the process until Spark is up; from there until the first batch is begun (what is there, what
is missing, which input is next); that batch.

With a standby, the engine is `slipstream run --standby`, and what is measured is the time from the kill to the result.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from benchmarks.data import Feed
from benchmarks.job import Job, Measured
from slipstream.testing.torture import beat_of, children_of

PATIENCE = 900.0

STANDBY = """
from pathlib import Path
from benchmarks.job import Job
from benchmarks.ours import opened

app = opened(Job.from_json({job!r}), Path({landing!r}), Path({folder!r}))
"""


def measure(job: Job, feed: Feed, folder: Path) -> Measured:
    return _standby(job, feed, folder) if job.restart == "standby" else _cold(job, feed, folder)


def _cold(job: Job, feed: Feed, folder: Path) -> Measured:
    command = [sys.executable, "-m", "benchmarks.recovery", job.to_json(), str(feed.landing), str(folder)]
    with _started(command, folder) as (engine, said):
        _build_up(feed, said)
        _kill_all(engine.pid)
    feed.drop_all("timed")
    began = time.time()
    with _started(command, folder) as (engine, said):
        up = next(each["up"] for each in said if "up" in each)
        first = next(each for each in said if each.get("rows"))
        _kill_all(engine.pid)
    parts = {
        "JVM start": up - began,
        "decision": first["began"] - up,
        "catch-up": first["ended"] - first["began"],
    }
    seconds = first["ended"] - began
    return Measured(rows=first["rows"], seconds=seconds, batches=[seconds], steps=parts)


def _standby(job: Job, feed: Feed, folder: Path) -> Measured:
    file = folder / "standby.py"
    file.write_text(STANDBY.format(job=job.to_json(), landing=str(feed.landing), folder=str(folder)))
    command = [sys.executable, "-m", "slipstream.cli", "run", str(file), "--standby", "--json"]
    with _started(command, folder) as (supervisor, said):
        _build_up(feed, said)
        engine = _await(lambda: _in_state(supervisor.pid, "running"))
        _await(lambda: _in_state(supervisor.pid, "standby"))
        time.sleep(5)  # its first rehearsals
        feed.drop_all("timed")
        killed = time.time()
        os.kill(engine, signal.SIGKILL)
        first = next(each for each in said if each.get("rows") and each["ended"] > killed)
        supervisor.send_signal(signal.SIGTERM)
        supervisor.wait(PATIENCE)
    seconds = first["ended"] - killed
    return Measured(rows=first["rows"], seconds=seconds, batches=[seconds])


def _build_up(feed: Feed, said: Iterator[dict[str, Any]]) -> None:
    """Feed everything but the timed files, and wait until it is all in."""
    feed.drop_all("load")
    wanted = feed.rows("load")
    while wanted > 0:
        wanted -= next(said).get("rows", 0)
    for files in feed.files("warm"):
        feed.drop(files)
        while not next(said).get("rows"):
            pass


@contextmanager
def _started(
    command: list[str], folder: Path
) -> Iterator[tuple[subprocess.Popen[str], Iterator[dict[str, Any]]]]:
    with (folder / "engine.log").open("a") as log:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
        )
        assert process.stdout is not None
        try:
            yield process, _said(process.stdout, folder / "engine.log")
        finally:
            process.kill()
            process.wait()


def _said(output: IO[str], log: Path) -> Iterator[dict[str, Any]]:
    for line in output:
        if line.startswith("{"):
            yield json.loads(line)
    raise RuntimeError(f"the engine ended early:\n{log.read_text()[-3000:]}")


def _kill_all(pid: int) -> None:
    """The engine, and its JVM with it: a machine that comes back finds neither."""
    os.killpg(pid, signal.SIGKILL)


def _in_state(supervisor: int, state: str) -> int | None:
    beats = {pid: beat_of(pid) for pid in children_of(supervisor)}
    return next((pid for pid, beat in beats.items() if beat is not None and beat.state == state), None)


def _await(found: Callable[[], int | None]) -> int:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        pid = found()
        if pid is not None:
            return pid
        time.sleep(0.05)
    raise TimeoutError(f"no engine in the state that was waited for, after {PATIENCE:.0f} s")


def _say(**what: float) -> None:
    print(json.dumps(what), flush=True)


def _ours(job: Job, landing: Path, folder: Path) -> None:
    from benchmarks.ours import opened
    from slipstream.spark.session import start_session

    start_session("benchmark", None, os.cpu_count() or 1)
    _say(up=time.time())
    app = opened(job, landing, folder)
    app.on_epoch(lambda report: _say(rows=report.rows, began=report.started, ended=time.time()))
    app.run()


def _theirs(job: Job, landing: Path, folder: Path) -> None:
    from benchmarks.structured import ended, session, start

    with session(job, folder) as spark:
        _say(up=time.time())
        query = start(job, spark, landing, folder)
        told = -1
        while True:
            time.sleep(0.005)
            for progress in query.recentProgress[-5:]:
                if progress["batchId"] > told and progress["numInputRows"]:
                    told = progress["batchId"]
                    end = ended(progress)
                    took = progress["durationMs"]["triggerExecution"] / 1000
                    _say(rows=progress["numInputRows"], began=end - took, ended=end)


def main(arguments: list[str]) -> None:
    job, landing, folder = Job.from_json(arguments[0]), Path(arguments[1]), Path(arguments[2])
    (_ours if job.engine == "slipstream" else _theirs)(job, landing, folder)


if __name__ == "__main__":
    main(sys.argv[1:])
