"""What safety costs, and how fast it pays: storage delay, durability on against off, recovery, no stall.

Storage is slow in the same way on both sides: every operation on what keeps things safe waits. On ours that is the
replica (`slipstream.testing.faults`), on Structured Streaming's the checkpoint (`benchmarks.delayed`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from benchmarks.data import Sizes, make_backlog, make_totals
from benchmarks.job import Job, Measured, percentile
from benchmarks.lab import Lab
from benchmarks.plot import line_plot
from benchmarks.report import Finding, Target

if TYPE_CHECKING:
    from benchmarks.suite import Scale

Delay = TypeVar("Delay", float, float | None)

WITHIN = Target("at_most", 1.1)
LONG = 0.2
"""Seconds of delay from which on Structured Streaming gets a quarter of the batches, because each takes seconds."""


def storage(lab: Lab, scale: Scale) -> list[Finding]:
    """Every operation of the storage takes longer: epochs on a delayed replica, batches on a delayed checkpoint."""
    job = _stage_paced(lab, scale, "storage", scale.delayed_files)
    ours = _batches(_there_and_back(lab, job, scale.delays))
    few = _stage_paced(
        lab, replace(scale, warm_up=scale.warm_up // 3), "storage-few", scale.delayed_files // 4
    )
    theirs = {
        delay: lab.measure(replace(few if delay >= LONG else job, engine="rocksdb", delay=delay)).batches
        for delay in scale.delays
    }
    findings = []
    for delay in scale.delays:
        for percent in (50, 99):
            mine = percentile(ours[delay], percent)
            what = f"{delay * 1000:.0f} ms, p{percent}"
            if delay:
                none = percentile(ours[0.0], percent)
                findings.append(Finding("storage", f"{what}, against 0 ms", "ms", mine, none, WITHIN))
            other = percentile(theirs[delay], percent)
            findings.append(Finding("storage", f"{what}, against its delayed checkpoint", "ms", mine, other))
    lines = {
        "Slipstream, p50": _line(ours, 50),
        "Structured Streaming with RocksDB, p50": _line(theirs, 50),
        "Slipstream, p99": _line(ours, 99),
        "Structured Streaming with RocksDB, p99": _line(theirs, 99),
    }
    title = "Latency of an epoch (a batch) against the delay of storage"
    lab.draw("storage-delay.svg", line_plot(title, "delay of every storage operation, ms", "ms", lines))
    return findings


def safety(lab: Lab, scale: Scale) -> list[Finding]:
    """Durability on, with a replica on the local disk, against off, with nothing kept safe."""
    small = _stage_paced(lab, scale, "storage", scale.delayed_files)
    epochs = _batches(_there_and_back(lab, small, (0.0, None)))
    p50 = (percentile(epochs[0.0], 50), percentile(epochs[None], 50))
    large = Job("slipstream", "totals", stage_backlog(lab, scale), target_latency="2s")
    runs = _there_and_back(lab, large, (0.0, None))
    rates = (_rate(runs[0.0]), _rate(runs[None]))
    return [
        Finding("safety", "1,000 rows an epoch, p50, on against off", "ms", *p50, WITHIN),
        Finding("safety", "backlog, on against off", "rows/s", *rates, Target("at_least", 1 / 1.1)),
    ]


def stage_backlog(lab: Lab, scale: Scale) -> str:
    """The files of a backlog, which several benchmarks read."""
    sizes = (scale.warm_up, scale.large_rows, scale.large_files)
    return lab.stage("backlog", lambda folder: make_backlog(folder, *sizes))


def recovery(lab: Lab, scale: Scale) -> list[Finding]:
    """Killed with SIGKILL: until the first new result, cold and with a standby."""
    few, many = scale.recovery_keys
    cold = _recovered(lab, few, "slipstream")
    theirs = _recovered(lab, few, "rocksdb")
    standby = _recovered(lab, few, "standby")
    large = _recovered(lab, many, "slipstream")
    findings = [Finding("recovery", f"cold, {few:,} keys", "ms", cold.seconds, theirs.seconds)]
    findings += [
        Finding("recovery", f"  of it: {part}", "ms", seconds, theirs.steps.get(part))
        for part, seconds in cold.steps.items()
    ]
    grown = f"decision and catch-up, {many:,} keys against {few:,}"
    ratio = Target("at_most", 1.5)
    findings.append(Finding("recovery", grown, "ms", _our_part(large), _our_part(cold), ratio))
    findings.append(Finding("recovery", "standby, s", "ms", standby.seconds, target=Target("at_most", 2.0)))
    fifth = Target("at_most", 0.2)
    findings.append(Finding("recovery", "standby against cold", "ms", standby.seconds, cold.seconds, fifth))
    return findings


def stall(lab: Lab, scale: Scale) -> list[Finding]:
    """The longest of many epochs, with merging and replication on."""
    job = _stage_paced(lab, scale, f"stall-{scale.stall_files}", scale.stall_files)
    run = lab.measure(replace(job, delay=0.05))
    median = percentile(run.batches, 50)
    what = f"longest of {len(run.batches)} epochs against the median"
    return [Finding("stall", what, "ms", max(run.batches), median, Target("at_most", 3.0))]


def _stage_paced(lab: Lab, scale: Scale, name: str, files: int) -> Job:
    sizes = Sizes(warm=[1_000] * scale.warm_up, timed=[1_000] * files)
    dataset = lab.stage(name, lambda folder: make_totals(folder, 10_000, sizes))
    return Job("slipstream", "totals", dataset, files_per_batch=1)


def _recovered(lab: Lab, keys: int, how: str) -> Measured:
    sizes = Sizes(warm=[10_000] * 10, timed=[10_000])
    dataset = lab.stage(f"recovery-{keys}", lambda folder: make_totals(folder, keys, sizes, load=True))
    job = Job("slipstream", "totals", dataset, restart="cold")
    if how == "standby":
        return lab.measure(replace(job, restart="standby"))
    return lab.measure(replace(job, engine="rocksdb") if how == "rocksdb" else job)


def _our_part(measured: Measured) -> float:
    return measured.steps["decision"] + measured.steps["catch-up"]


def _there_and_back(lab: Lab, job: Job, delays: Sequence[Delay]) -> dict[Delay, list[Measured]]:
    """Two runs at each delay, made in this order and then in the opposite one: what drifts on a machine that is
    shared drifts for all of them.
    """
    there = {delay: lab.measure(replace(job, delay=delay)) for delay in delays}
    back = {delay: lab.measure(replace(job, delay=delay, attempt=2)) for delay in reversed(delays)}
    return {delay: [there[delay], back[delay]] for delay in delays}


def _batches(runs: Mapping[Delay, list[Measured]]) -> dict[Delay, list[float]]:
    return {delay: [batch for run in made for batch in run.batches] for delay, made in runs.items()}


def _rate(runs: Sequence[Measured]) -> float:
    return sum(run.rows for run in runs) / sum(run.seconds for run in runs)


def _line(runs: Mapping[float, list[float]], percent: int) -> list[tuple[float, float]]:
    return [(delay * 1000, percentile(batches, percent) * 1000) for delay, batches in runs.items()]
