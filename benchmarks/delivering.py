"""What sinks cost, and how soon they have what readers see.

Small files come at a pace. A view of totals is followed by three sinks, or by none: a folder of changes, a Delta table
that is kept by key, and a function. For each epoch it is noted when it was reported (readers see it), and when each
sink had it. The same with a replica on slow storage: a delivery does not wait for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import slipstream as sl
from benchmarks.data import Feed, Sizes, make_totals
from benchmarks.job import Job, Measured, percentile
from benchmarks.lab import Lab
from benchmarks.ours import Epochs, opened
from benchmarks.report import Finding, Target

if TYPE_CHECKING:
    from benchmarks.suite import Scale

SINKS = 3
EVERY = 0.5
_LOOK = 0.002
_PATIENCE = 60.0


def delivery(lab: Lab, scale: Scale) -> list[Finding]:
    """Three sinks beside none: epochs, and how long after readers each sink has them; with slow storage, too."""
    sizes = Sizes(warm=[1_000] * scale.warm_up, timed=[1_000] * scale.paced_files * 2)
    dataset = lab.stage("delivery", lambda folder: make_totals(folder, 10_000, sizes))
    job = Job("slipstream", "sinks", dataset, every=EVERY)
    none, three = lab.measure(job), lab.measure(replace(job, number=SINKS))
    p50 = (percentile(three.batches, 50), percentile(none.batches, 50))
    findings = [
        Finding("delivery", "epochs with three sinks against none, p50", "ms", *p50, Target("at_most", 1.1))
    ]
    findings += [Finding("delivery", what, "ms", took) for what, took in three.steps.items()]
    slow = {delay: lab.measure(replace(job, number=SINKS, delay=delay)) for delay in scale.delays}
    for delay, measured in slow.items():
        if delay:
            for what, took in measured.steps.items():
                if what.endswith("p50"):
                    named = f"storage slower by {delay * 1000:.0f} ms: {what}, against 0 ms"
                    findings.append(
                        Finding("delivery", named, "ms", took, slow[0.0].steps[what], Target("at_most", 1.1))
                    )
    return findings


def measure(job: Job, feed: Feed, folder: Path) -> Measured:
    """Epochs' seconds, and for each sink how long after an epoch was reported its target had it."""
    epochs, seen = Epochs(), dict[int, float]()

    def reported(report: sl.EpochReport) -> None:
        epochs.note(report)
        seen[report.epoch] = time.monotonic()

    with opened(replace(job, query="totals"), feed.landing, folder) as app:
        if job.number:
            app.sink("by_key", sl.to_folder(folder / "log"), name="folder")
            delta = sl.to_delta(str(folder / "delta"), mode="upsert", key="k")
            app.sink("by_key", delta, name="delta")
            app.sink("by_key", sl.foreach(lambda epoch, changes: None), name="foreach")
        app.on_epoch(reported)
        for files in feed.files("warm"):
            feed.drop(files)
            app.run(until="caught_up", progress=False)
        first = app.epoch
        epochs.clear()
        app.start()
        with _Looking(lambda: {name: sink.epoch or 0 for name, sink in app.sinks.items()}) as looking:
            feed.drop_paced("timed", EVERY)
            epochs.await_rows(feed.rows("timed"))
            app.await_sinks(timeout=_PATIENCE)
        app.stop()
    steps = {}
    for name, reached in looking.reached.items():
        took = [
            max(0.0, at - seen[epoch]) for epoch, at in reached.items() if epoch > first and epoch in seen
        ]
        steps[f"from visible to delivered, {name}, p50"] = percentile(took, 50)
        steps[f"from visible to delivered, {name}, p99"] = percentile(took, 99)
    return Measured(feed.rows("timed"), 1.0, [each.seconds for each in epochs.reports], steps=steps)


class _Looking:
    """Looks every few milliseconds how far sinks are; when each was first seen at an epoch."""

    def __init__(self, far: Callable[[], dict[str, int]]) -> None:
        self.reached: dict[str, dict[int, float]] = {}
        self._far, self._over = far, threading.Event()
        self._thread = threading.Thread(target=self._look)

    def _look(self) -> None:
        while not self._over.wait(_LOOK):
            now = time.monotonic()
            for name, epoch in self._far().items():
                reached = self.reached.setdefault(name, {})
                last = max(reached, default=epoch - 1)
                reached |= dict.fromkeys(range(last + 1, epoch + 1), now)

    def __enter__(self) -> _Looking:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
