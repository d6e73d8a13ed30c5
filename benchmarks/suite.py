"""The benchmarks: what each one measures, how much of it, and the target. Those of durability are in `durability`.

A benchmark is a function from a lab and a scale to findings. Structured Streaming is measured with both of
its state stores wherever the target does not name one, and the better of the two is what Slipstream is
compared with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Literal

from benchmarks.age import age
from benchmarks.changing import adding, replacing
from benchmarks.data import KEYS, Sizes, make_pieces, make_shop, make_totals, warmed
from benchmarks.decision import compared
from benchmarks.delivering import delivery
from benchmarks.durability import recovery, safety, stage_backlog, stall, storage
from benchmarks.job import Engine, Job, Measured, percentile
from benchmarks.lab import Lab, SideError, WrongAnswer
from benchmarks.report import Finding, Target
from benchmarks.tpcds import PACK, make_tpcds
from benchmarks.tpch import make_tpch
from benchmarks.words import make_words
from slipstream.testing.tpch import NUMBERS

GIB = 1 << 30


@dataclass(frozen=True)
class Scale:
    """How much of everything.

    `settling` files of a paced feed are fed but not counted; `stores` are the state stores of Structured Streaming that
    are tried where the target names none. `beside` is a checkout of another version to measure beside this one, so many
    `rounds` of there and back.
    """

    warm_up: int = 60
    stores: Sequence[Engine] = ("rocksdb", "default")
    large_rows: int = 200_000
    large_files: int = 40
    files_per_trigger: Sequence[int] = (1, 5)
    small_files: int = 100
    paced_files: int = 45
    settling: int = 5
    join_rows: int = 100_000
    join_files: int = 30
    customers: int = 100_000
    state_keys: tuple[int, int] = (100_000, 10_000_000)
    state_files: int = 60
    pieces: int = 10_000
    delays: Sequence[float] = (0.0, 0.05, 0.2, 1.0)
    delayed_files: int = 100
    recovery_keys: tuple[int, int] = (2_000_000, 20_000_000)
    stall_files: int = 500
    ages: tuple[int, int] = (100, 1_000_000)
    word_lines: int = 100_000
    word_files: int = 12
    windows: tuple[int, int] = (30, 3_600)
    views: tuple[int, int] = (1, 10)
    kept_rows: int = 20_000_000
    tpch: float = 1.0
    tpcds: float = 1.0
    tpcds_warm_up: int = 20
    tpcds_packs: Sequence[int] = tuple(range(1, 100, PACK))
    tpch_files: int = 7
    beside: str = ""
    rounds: int = 3


FULL = Scale()
QUICK = Scale(
    warm_up=6,
    stores=("default",),
    large_rows=50_000,
    large_files=5,
    files_per_trigger=(1,),
    small_files=12,
    paced_files=7,
    settling=2,
    join_rows=10_000,
    join_files=3,
    customers=10_000,
    state_keys=(10_000, 500_000),
    state_files=10,
    pieces=1_000,
    delays=(0.0, 0.2),
    delayed_files=12,
    recovery_keys=(20_000, 200_000),
    stall_files=40,
    ages=(100, 20_000),
    word_lines=5_000,
    word_files=4,
    windows=(30, 300),
    kept_rows=200_000,
    tpch=0.01,
    tpcds=0.01,
    tpcds_warm_up=2,
    tpcds_packs=(1,),
    tpch_files=3,
    rounds=1,
)


def backlog(lab: Lab, scale: Scale) -> list[Finding]:
    """All files are there at the start; each engine takes as many at a time as suits it best."""
    dataset = stage_backlog(lab, scale)
    ours = lab.measure(Job("slipstream", "totals", dataset, target_latency="2s"))
    findings = []
    targets: dict[Engine, float] = {"rocksdb": 8, "default": 6}
    for engine, least in targets.items():
        rates = {
            files: lab.measure(Job(engine, "totals", dataset, files_per_batch=files)).rate
            for files in scale.files_per_trigger
        }
        what = f"totals of {KEYS:,} keys, {engine} store"
        best = Finding("backlog", what, "rows/s", ours.rate, max(rates.values()), Target("at_least", least))
        one = Finding("backlog", "the same, it with one file a batch", "rows/s", ours.rate, rates[min(rates)])
        findings += [best, one]
    return findings


def forced(lab: Lab, scale: Scale) -> list[Finding]:
    """The same with one file a batch on both."""
    dataset = stage_backlog(lab, scale)
    theirs = lab.measure(Job("rocksdb", "totals", dataset, files_per_batch=1))
    ours = lab.measure(Job("slipstream", "totals", dataset, files_per_batch=1))
    what = f"{scale.large_rows:,} rows a batch, rocksdb store"
    return [Finding("forced", what, "rows/s", ours.rate, theirs.rate, Target("at_least", 5))]


def small(lab: Lab, scale: Scale) -> list[Finding]:
    """1,000 rows a batch: what a batch costs before it does any work."""
    job = _stage_small(lab, scale)
    ours = lab.measure(job)
    theirs = [lab.measure(replace(job, engine=engine)) for engine in scale.stores]
    return [
        Finding(
            "small",
            "1,000 rows a batch, p50",
            "ms",
            percentile(ours.batches, 50),
            min(percentile(measured.batches, 50) for measured in theirs),
            Target("at_most", 0.6, aim=0.4),
        ),
        Finding(
            "small",
            "whole run, per batch",
            "ms",
            ours.seconds / len(ours.batches),
            min(measured.seconds / len(measured.batches) for measured in theirs),
        ),
    ]


def visible(lab: Lab, scale: Scale) -> list[Finding]:
    """A file a second: from its rename to its result."""
    sizes = Sizes(warm=[10_000] * scale.warm_up, timed=[10_000] * scale.paced_files)
    dataset = lab.stage("visible", lambda folder: make_totals(folder, KEYS, sizes))
    job = Job("slipstream", "totals", dataset, every=1.0)

    def seconds(measured: Measured, percent: int) -> float:
        return percentile(measured.visible[scale.settling :], percent)

    ours = lab.measure(job)
    theirs = [lab.measure(replace(job, engine=engine)) for engine in scale.stores]
    what = "a file a second, to its result"
    half = Target("at_most", 0.5)
    return [
        Finding(
            "visible", f"{what}, p50", "ms", seconds(ours, 50), min(seconds(m, 50) for m in theirs), half
        ),
        Finding("visible", f"{what}, p95", "ms", seconds(ours, 95), min(seconds(m, 95) for m in theirs)),
    ]


def join(lab: Lab, scale: Scale) -> list[Finding]:
    """Orders joined with customers, of whom 1,000 change with every file of orders, then revenue by country; each
    engine takes as many files at a time as suits it best.
    """
    sizes = Sizes(warmed(scale.warm_up, scale.join_rows), timed=[scale.join_rows] * scale.join_files)
    dataset = lab.stage("shop", lambda folder: make_shop(folder, scale.customers, 1_000, sizes))
    job = Job("slipstream", "revenue", dataset)
    ours = lab.measure(replace(job, target_latency="2s")).rate
    theirs = {
        files: max(
            lab.measure(replace(job, engine=engine, files_per_batch=files)).rate for engine in scale.stores
        )
        for files in scale.files_per_trigger
    }
    forced = lab.measure(replace(job, files_per_batch=1)).rate
    what = f"with {scale.customers:,} customers that change"
    return [
        Finding("join", what, "rows/s", ours, max(theirs.values()), Target("at_least", 5)),
        Finding("join", "the same, one file a batch forced on both", "rows/s", forced, theirs[1]),
    ]


def state(lab: Lab, scale: Scale) -> list[Finding]:
    """The same epochs over little state and over much; Slipstream only."""
    few, many = (_measure_state(lab, scale, keys) for keys in scale.state_keys)
    p50 = (percentile(many.batches, 50), percentile(few.batches, 50))
    what = "epoch p50, {:,} keys against {:,}".format(*reversed(scale.state_keys))
    findings = [Finding("state", what, "ms", *p50, Target("at_most", 1.5))]
    limits = {
        "python": ("peak private memory: Python", Target("at_most", 1.5)),
        "python_mapped": ("Python, with mapped file pages", None),
        "jvm": ("JVM", None),
        "all": ("all together", None),
    }
    for kind, (measure, target) in limits.items():
        if kind in many.memory:
            findings.append(Finding("state", measure, "GiB", many.memory[kind] / GIB, target=target))
    return findings


def manyfiles(lab: Lab, scale: Scale) -> list[Finding]:
    """So many files of ten rows in one pass, against the same rows in ten epochs of one file each; Slipstream only."""
    files, each = scale.pieces, 10
    warm = [files] * scale.warm_up
    many = lab.stage(
        "pieces", lambda folder: make_pieces(folder, Sizes(warm, timed=[each] * files), files // 5)
    )
    few = lab.stage("tenths", lambda folder: make_pieces(folder, Sizes(warm, timed=[files] * each), 0))
    pass_ = lab.measure(Job("slipstream", "totals", many))
    tenths = lab.measure(Job("slipstream", "totals", few, files_per_batch=1))
    what = f"{files:,} files of {each} rows in one pass, against {each} epochs of {files:,} rows"
    return [Finding("manyfiles", what, "ms", pass_.seconds, tenths.seconds, Target("at_most", 2))]


def floor(lab: Lab, scale: Scale) -> list[Finding]:
    """How far a small epoch is above an empty Spark job of its shape, and where its time goes."""
    epoch = lab.measure(_stage_small(lab, scale))
    empty = lab.measure(Job("slipstream", "floor", "nothing"))
    what = "small epoch against an empty job, p50"
    p50 = (percentile(epoch.batches, 50), percentile(empty.batches, 50))
    steps = [Finding("floor", f"step: {step}", "ms", seconds) for step, seconds in epoch.steps.items()]
    return [Finding("floor", what, "ms", *p50), *steps]


def windows(lab: Lab, scale: Scale) -> list[Finding]:
    """Words counted in windows that slide by a second, from files of text lines; then in windows of an hour, which
    Slipstream has to do at the same cost.
    """
    lines = scale.word_lines
    sizes = Sizes(warm=[2_000] * scale.warm_up + [lines] * 2, timed=[lines] * scale.word_files)
    dataset = lab.stage("words", lambda folder: make_words(folder, sizes))
    short, long = scale.windows
    job = Job("slipstream", "words", dataset, target_latency="2s", window=short)
    ours = lab.measure(job, watch_memory=True)
    batch = replace(job, files_per_batch=1)
    theirs = [lab.measure(replace(batch, engine=engine), watch_memory=True) for engine in scale.stores]
    best = max(theirs, key=lambda measured: measured.rate)
    larger = lab.measure(replace(job, window=long), watch_memory=True)
    what, same = f"words in {short} s that slide by 1", Target("at_least", 0.8)
    findings = [
        Finding("windows", what, "rows/s", ours.rate, best.rate, Target("at_least", 10)),
        Finding("windows", "the same on its own", "rows/s", ours.rate, target=Target("at_least", 100_000)),
        Finding("windows", f"{long:,} s against {short} s", "rows/s", larger.rate, ours.rate, same),
    ]
    peaks = [measured.memory.get("all", 0) / GIB for measured in (ours, best, larger)]
    if all(peaks):
        findings += [
            Finding("windows", "peak private memory", "GiB", peaks[0], peaks[1]),
            Finding("windows", "the same on its own", "GiB", peaks[0], target=Target("at_most", 2)),
            Finding("windows", f"{long:,} s against {short} s", "GiB", peaks[2], peaks[0]),
        ]
    return findings


def versions(lab: Lab, scale: Scale) -> list[Finding]:
    """This version beside another one (`--beside CHECKOUT`), in turn: what a change costs."""
    if not scale.beside:
        lab.console.print("  no other version to measure: name its folder with --beside")
        return []
    small, large = (
        _stage_small(lab, scale),
        Job("slipstream", "totals", stage_backlog(lab, scale), target_latency="2s"),
    )
    epochs: dict[str, list[float]] = {"": [], scale.beside: []}
    rates: dict[str, list[float]] = {"": [], scale.beside: []}
    for attempt in range(1, scale.rounds + 1):
        there = ("", scale.beside) if attempt % 2 else (scale.beside, "")
        for checkout in there:
            again: dict[str, Any] = {"attempt": attempt, "checkout": checkout}
            epochs[checkout].append(percentile(lab.measure(replace(small, **again)).batches, 50))
            rates[checkout].append(lab.measure(replace(large, **again)).rate)
    within = Target("at_most", 1.03)
    what = f"beside {scale.beside}, median of {scale.rounds}"
    return [
        Finding("versions", f"small epochs {what}, p50", "ms", *_medians(epochs), within),
        Finding("versions", f"backlog {what}", "rows/s", *_medians(rates), Target("at_least", 1 / 1.03)),
    ]


def _medians(measured: dict[str, list[float]]) -> tuple[float, float]:
    ours, theirs = measured.values()
    return median(ours), median(theirs)


def tpch(lab: Lab, scale: Scale) -> list[Finding]:
    """Each query of TPC-H after one row in a thousand has changed, beside computing it in full."""
    name = f"tpch-{scale.tpch:g}"
    dataset = lab.stage(name, lambda folder: make_tpch(folder, scale.tpch, scale.warm_up, scale.tpch_files))
    kept, batch = {}, {}
    for number in NUMBERS:
        job = Job("slipstream", "tpch", dataset, number=number, scale=scale.tpch)
        try:
            mine, theirs = lab.measure(job), lab.measure(replace(job, engine="batch"))
            if mine.answer != theirs.answer:
                raise WrongAnswer(job, mine.answer, theirs.answer)
        except SideError as failure:  # the others are worth having
            lab.failures[f"tpch, query {number}"] = str(failure)
            continue
        kept[number], batch[number] = mine, theirs
    pairs = {
        number: (percentile(kept[number].batches, 50), percentile(batch[number].batches, 50))
        for number in kept
    }
    return compared("tpch", pairs, each=2.5, mean=8) if pairs else []


def tpcds(lab: Lab, scale: Scale) -> list[Finding]:
    """The same for the queries of TPC-DS."""
    name = f"tpcds-{scale.tpcds:g}"
    dataset = lab.stage(
        name, lambda folder: make_tpcds(folder, scale.tpcds, scale.tpcds_warm_up, scale.tpch_files)
    )
    pairs: dict[int, tuple[float, float]] = {}
    for first in scale.tpcds_packs:
        job = Job("slipstream", "tpcds", dataset, number=first, scale=scale.tpcds)
        mine, theirs = lab.measure(job), lab.measure(replace(job, engine="batch"))
        for number, answer in mine.answers.items():
            if answer != theirs.answers[number]:
                wrong = WrongAnswer(job, answer, theirs.answers[number])
                lab.failures[f"tpcds, query {number}"] = str(wrong)
            else:
                pairs[int(number)] = mine.steps[number], theirs.steps[number]
    return compared("tpcds", pairs) if pairs else []


def views(lab: Lab, scale: Scale) -> list[Finding]:
    """Ten views over two sources beside one of them: what is shared is computed once."""
    few, many = scale.views
    sizes = Sizes(warm=[1_000] * scale.warm_up, timed=[1_000] * scale.small_files)
    dataset = lab.stage("views", lambda folder: make_shop(folder, scale.customers, 100, sizes))
    job = Job("slipstream", "views", dataset, files_per_batch=1)
    one, all_of_them = (lab.measure(replace(job, number=number)) for number in (few, many))
    p50 = (percentile(all_of_them.batches, 50), percentile(one.batches, 50))
    return [Finding("views", f"epochs of {many} views against {few}, p50", "ms", *p50, Target("at_most", 2))]


def _stage_small(lab: Lab, scale: Scale) -> Job:
    sizes = Sizes(warm=[1_000] * scale.warm_up, timed=[1_000] * scale.small_files)
    dataset = lab.stage("small", lambda folder: make_totals(folder, 100, sizes))
    return Job("slipstream", "totals", dataset, files_per_batch=1)


def _measure_state(lab: Lab, scale: Scale, keys: int) -> Measured:
    sizes = Sizes(warm=[10_000] * scale.warm_up, timed=[10_000] * scale.state_files)
    dataset = lab.stage(f"state-{keys}", lambda folder: make_totals(folder, keys, sizes, load=True))
    return lab.measure(Job("slipstream", "totals", dataset, files_per_batch=1), watch_memory=True)


Name = Literal[
    "backlog",
    "forced",
    "small",
    "visible",
    "join",
    "state",
    "manyfiles",
    "floor",
    "storage",
    "safety",
    "recovery",
    "stall",
    "age",
    "windows",
    "views",
    "adding",
    "replacing",
    "delivery",
    "versions",
    "tpch",
    "tpcds",
]
BENCHMARKS: dict[Name, Callable[[Lab, Scale], list[Finding]]] = {
    "backlog": backlog,
    "forced": forced,
    "small": small,
    "visible": visible,
    "join": join,
    "state": state,
    "manyfiles": manyfiles,
    "floor": floor,
    "storage": storage,
    "safety": safety,
    "recovery": recovery,
    "stall": stall,
    "age": age,
    "windows": windows,
    "views": views,
    "adding": adding,
    "replacing": replacing,
    "delivery": delivery,
    "versions": versions,
    "tpch": tpch,
    "tpcds": tpcds,
}
