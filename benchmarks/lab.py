"""Where measurements are made: stages datasets, runs each job in a process of its own, remembers what it
measured.

Everything is below one temporary folder that goes away with the lab. A job's scratch space (landing folder,
store or checkpoint) is removed as soon as the job ends, so that the next one does not compete with its
leftovers.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from rich.console import Console

from benchmarks.job import Job, Measured, percentile
from benchmarks.memory import sampled
from slipstream.spark.java import java_home

TIME_LIMIT = 600
PACK_TIME_LIMIT = 3_600


class SideError(Exception):
    """A side's process ended with an error or ran into the time limit."""

    def __init__(self, job: Job, reason: str, log: str) -> None:
        last = "\n".join(log.strip().splitlines()[-25:])
        super().__init__(f"{job}: {reason}. The end of its output:\n{last}")


class WrongAnswer(SideError):
    """Two sides that should have the same answer do not."""

    def __init__(self, job: Job, ours: str, theirs: str) -> None:
        super().__init__(job, f"the answer is {ours}; the other side's is {theirs}", "")


class Lab:
    def __init__(self, console: Console, plots: Path) -> None:
        self.console, self._plots = console, plots
        self.runs: dict[Job, Measured] = {}
        self.failures: dict[str, str] = {}
        """What could not be carried out, by the name of the benchmark or of the part of one."""
        self._environment = {**os.environ, "JAVA_HOME": str(java_home(os.environ))}
        self._folder = Path(tempfile.mkdtemp(prefix="slipstream-bench-"))

    def __enter__(self) -> Lab:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def stage(self, dataset: str, make: Callable[[Path], None]) -> str:
        """Makes the dataset unless an earlier benchmark did; returns its name."""
        folder = self._folder / "data" / dataset
        if not folder.exists():
            with self.console.status(f"making the files of {dataset}"):
                make(folder)
        return dataset

    def draw(self, name: str, picture: str) -> None:
        """Writes a plot where plots go."""
        self._plots.mkdir(parents=True, exist_ok=True)
        (self._plots / name).write_text(picture)
        self.console.print(f"  drawn: {self._plots / name}", highlight=False)

    def measure(self, job: Job, watch_memory: bool = False) -> Measured:
        if job not in self.runs:
            started = time.monotonic()
            with self.console.status(str(job)):
                self.runs[job] = self._run(job, watch_memory)
            took = time.monotonic() - started
            self.console.print(f"  {job}: {_brief(self.runs[job])} ({took:.0f} s in all)", highlight=False)
        return self.runs[job]

    def _run(self, job: Job, watch_memory: bool) -> Measured:
        scratch, result, log = (self._folder / name for name in ("scratch", "result.json", "output.log"))
        dataset = self._folder / "data" / job.dataset
        command = [
            sys.executable,
            "-m",
            "benchmarks.side",
            job.to_json(),
            str(dataset),
            str(scratch),
            str(result),
        ]
        environment = self._environment
        limit = PACK_TIME_LIMIT if job.query == "tpcds" else TIME_LIMIT
        if job.checkout:
            environment = {**environment, "PYTHONPATH": str(Path(job.checkout, "src").absolute())}
        result.unlink(missing_ok=True)
        with log.open("w") as output:
            side = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
            try:
                with sampled(side.pid if watch_memory else None) as memory:
                    side.wait(limit)
            except subprocess.TimeoutExpired:
                raise SideError(job, f"not done after {limit} s", log.read_text()) from None
            finally:
                side.kill()
                side.wait()
                shutil.rmtree(scratch, ignore_errors=True)
        if side.returncode or not result.exists():
            raise SideError(job, f"ended with exit code {side.returncode}", log.read_text())
        measured = Measured.from_json(result.read_text())
        measured.memory.update(memory)
        return measured


def _brief(measured: Measured) -> str:
    p50 = f"p50 of a batch {percentile(measured.batches, 50) * 1000:,.0f} ms"
    return f"{measured.rate:,.0f} rows/s, {p50}" if measured.rows else p50
