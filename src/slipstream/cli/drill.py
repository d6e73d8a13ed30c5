"""A rehearsal of a recovery, on a copy: is everything there, how long does it take, and is the answer the same?

What is rehearsed depends on what the app has:
- with replicas, the loss of the store: it is restored from them into a scratch folder;
- without, the death of the engine: the store is copied as it stands, in the middle of whatever the engine does, and
  the copy is started.

Then the app itself runs on the scratch folder, computes the epochs again that were not there, as they were, and takes
the epoch at which the original stood. Each view's rows as of that epoch are added up in both and compared.

Nothing of the original is changed: replicas are read only, sources are told to forget nothing, and a running engine
is not disturbed, except that it shares the machine.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from slipstream.app import SPARK_STARTED
from slipstream.cli.loading import load_app
from slipstream.core.errors import DrillFailed, HistoryForgotten, MissingLayer
from slipstream.core.settings import Declaration, Exposure, Starting
from slipstream.durability.newest import newest_epoch
from slipstream.durability.start import Estimate, plan_start
from slipstream.durability.work import LocalWork
from slipstream.store.events import read_events
from slipstream.store.layout import EVENTS, LOCK, TRACES
from slipstream.store.store import Store

_COPIES = 5  # attempts to copy a folder in which an agent merges


@dataclass(frozen=True)
class Drill:
    """What a rehearsal found. source: the replicas, if it is `replicated`, or the store that was copied. epoch: at
    which both were compared. differing: views whose rows do not add up to the same. uncompared: those that could not
    be compared, and why.
    """

    app: str
    source: str
    replicated: bool
    epoch: int
    restored: int
    predicted_seconds: float | None
    start_seconds: float
    catch_up_seconds: float
    compared: int
    differing: tuple[str, ...]
    uncompared: Mapping[str, str]

    @property
    def seconds(self) -> float:
        return self.start_seconds + self.catch_up_seconds

    @property
    def passed(self) -> bool:
        return not self.differing and self.compared > 0


def drill(file: Path, declaration: Declaration) -> Drill:
    """Rehearse the recovery of the app that a file declares."""
    original = Store.existing(declaration.store)
    goal = newest_epoch(original)
    if goal == 0:
        raise DrillFailed(str(declaration.store), "it has not computed an epoch yet")
    replicas = declaration.durability.replicas
    with tempfile.TemporaryDirectory(prefix="slipstream-drill-") as folder:
        scratch = Path(folder) / "store"
        if not replicas:
            copy_store(original, scratch)
        planned = plan_start(scratch, declaration.app, declaration.durability)
        return _rehearsed(file, declaration, scratch, goal, original, _predicted(original, planned.estimate))


def copy_store(original: Store, to: Path) -> None:
    """A store as a crash would leave it now: immutable layers by hard links, the rest copied. A file that is removed
    meanwhile was replaced by another: then it is done again.
    """

    def left_out(folder: str, names: list[str]) -> set[str]:
        own = {LOCK, EVENTS} if Path(folder) == original.root else set()  # a view may have such a name
        return {name for name in names if name in own or name.startswith(".")}

    for attempt in range(_COPIES):
        try:
            shutil.copytree(original.root, to, copy_function=_linked, ignore=left_out)
            return
        except (FileNotFoundError, shutil.Error):
            shutil.rmtree(to, ignore_errors=True)
            if attempt == _COPIES - 1:
                raise


def _predicted(original: Store, estimate: Estimate) -> float | None:
    """What a recovery should take, with Spark's start as it was the last time."""
    known = [
        event["seconds"]
        for event in read_events(original.disk, "engine")
        if event.get("event") == SPARK_STARTED and isinstance(event.get("seconds"), int | float)
    ]
    return None if estimate.seconds is None or not known else estimate.seconds + known[-1]


def _linked(source: str, target: str) -> None:
    if f"/{TRACES}/" in source:
        with suppress(OSError):  # another file system
            os.link(source, target)
            return
    shutil.copy2(source, target)


def _rehearsed(
    file: Path, declaration: Declaration, scratch: Path, goal: int, original: Store, predicted: float | None
) -> Drill:
    durability = replace(declaration.durability, max_unsafe=Exposure(), read_only=True)
    instead = replace(declaration, store=scratch, durability=durability)
    began = time.monotonic()
    app = load_app(file, Starting(declared=lambda _: instead))
    with app:
        restored = app.epoch
        started = time.monotonic()
        app.run(until=max(goal, app.epoch))
        caught_up = time.monotonic()
        compared, differing, uncompared = compare(scratch, original, goal)
    return Drill(
        app=declaration.app,
        source=", ".join(declaration.durability.replicas) or str(declaration.store),
        replicated=bool(declaration.durability.replicas),
        epoch=goal,
        restored=restored,
        predicted_seconds=predicted,
        start_seconds=started - began,
        catch_up_seconds=caught_up - started,
        compared=compared,
        differing=tuple(differing),
        uncompared=uncompared,
    )


def compare(scratch: Path, original: Store, epoch: int) -> tuple[int, list[str], dict[str, str]]:
    """Each view's rows as of an epoch, added up in both stores."""
    ours, theirs = LocalWork(Store.existing(scratch)), LocalWork(original)
    compared, differing, uncompared = 0, [], {}
    for name, view in original.catalog().views.items():
        try:
            same = ours.state_sum(view.trace, epoch) == theirs.state_sum(view.trace, epoch)
        except (MissingLayer, HistoryForgotten, FileNotFoundError) as gone:
            uncompared[name] = str(gone)
            continue
        compared += 1
        if not same:
            differing.append(name)
    return compared, differing, uncompared
