"""Torture: an app that runs while its processes are killed at random, and is never wrong.

`python -m slipstream.testing.torture --seconds 600` starts a supervised app with a standby in a process of its own,
feeds it files, and kills with SIGKILL what a seeded generator picks: the engine's Python process, its JVM, a Python
worker, the agent, the standby. After each kill it waits until another epoch is computed and compares every view, as of
that epoch and as of the one before the kill, with the same query computed in plain Python over the input that the
lineage log says was consumed. In the end all input must have been consumed, every file once. Now and then everything
dies at once and the local folder is gone as well: there is a replica. Meanwhile further views come, become others and
go (`comings`), and are compared as well.

Nothing of the engine has a part in the expected answer, except the record of what was consumed; and that record is
checked against the files. A failure names the seed, the round and the victim, and keeps the folder.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from slipstream.cli.heartbeat import Beat
from slipstream.core.errors import StoreVanished
from slipstream.durability.board import read_replication
from slipstream.observe import read_view
from slipstream.store.disk import LocalDisk
from slipstream.store.lineage import computed_frontier, read_lineage
from slipstream.store.store import Store
from slipstream.testing import comings
from slipstream.testing.comings import Guests
from slipstream.testing.oracle import assert_equal_rows
from slipstream.trace import validate

Victim = Literal["worker", "agent", "engine", "jvm", "standby", "store"]
Row = tuple[Any, ...]

VIEWS = {
    "revenue": (
        "SELECT country, sum(amount) revenue, count(*) n FROM orders JOIN customers USING (cid) GROUP BY country"
    ),
    "largest": "SELECT cid, max(amount) largest FROM orders GROUP BY cid",
    "leaders": "SELECT cid, sum(amount) spent FROM orders GROUP BY cid ORDER BY spent DESC, cid LIMIT 5",
    "spenders": (
        "SELECT country, sum(spent) spent, count(*) n FROM"
        " (SELECT cid, sum(amount) spent FROM orders GROUP BY cid) JOIN customers USING (cid) GROUP BY country"
    ),
}

APP = """
import slipstream as sl

place = dict(store="store", replicas=["{replica}"])
app = sl.App("torture", **place, master="local[2,4]", shards=2, history=None)
orders = "oid long, cid long, amount long"
customers = "cid long, country string"
app.source("orders", sl.files("orders", format="json", schema=orders, max_files_per_epoch=20))
app.source("customers", sl.files("customers", format="json", schema=customers, key="cid"))
for name, query in {views}.items():
    app.view(name, query)
"""
"""Two cores, and up to four attempts of a task, so that Spark replaces a worker that was killed."""

PATIENCE = 300.0
CUSTOMERS = 40
ROWS = 25
AHEAD = 60  # files that may wait to be taken


@dataclass(frozen=True)
class Blow:
    """One kill: whom, and how long after the last one was got over. change: whether the app is changed before it."""

    victim: Victim
    after: float
    change: bool


def blows(seed: int) -> Iterator[Blow]:
    """What a seed has in store: the same deck of kills, shuffled again and again. The cheap ones are the most."""
    dice = random.Random(seed)
    counts: dict[Victim, int] = {"worker": 9, "agent": 3, "engine": 1, "jvm": 1, "standby": 1, "store": 1}
    deck = [victim for victim, count in counts.items() for _ in range(count)]
    while True:
        dice.shuffle(deck)
        for victim in deck:
            change = dice.random() < 0.6
            yield Blow(victim, dice.uniform(0.0, 3.0 if change else 1.0), change)


def expected(orders: list[dict[str, Any]], customers: dict[int, str]) -> dict[str, list[Row]]:
    """The views over these inputs."""
    revenue: dict[str, tuple[int, int]] = {}
    largest: dict[int, int] = {}
    spent: dict[int, int] = {}
    for order in orders:
        cid, amount = order["cid"], order["amount"]
        largest[cid] = max(amount, largest.get(cid, amount))
        spent[cid] = spent.get(cid, 0) + amount
        if cid in customers:
            total, n = revenue.get(customers[cid], (0, 0))
            revenue[customers[cid]] = (total + amount, n + 1)
    spenders: dict[str, tuple[int, int]] = {}
    for cid in spent.keys() & customers.keys():
        total, n = spenders.get(customers[cid], (0, 0))
        spenders[customers[cid]] = (total + spent[cid], n + 1)
    leaders = sorted(spent.items(), key=lambda each: (-each[1], each[0]))[:5]
    return {
        "revenue": [(country, *totals) for country, totals in revenue.items()],
        "largest": list(largest.items()),
        "leaders": leaders,
        "spenders": [(country, *totals) for country, totals in spenders.items()],
    }


@dataclass
class Feed:
    """Drops files into the app's folders, in a thread, until it is told to stop; never far ahead of what is taken."""

    folder: Path
    dice: random.Random
    taken: Callable[[], int]
    every: float = 0.2
    fed: int = 0
    ended: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        for name in ("orders", "customers"):
            (self.folder / name).mkdir(parents=True)
        self._customers(range(CUSTOMERS))
        self._thread = threading.Thread(target=self._work, name="feed", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self.ended.set()
        self._thread.join()

    def _work(self) -> None:
        while not self.ended.wait(self.every):
            if self.fed - self.taken() > AHEAD:
                continue
            rows = [
                {
                    "oid": self.fed * ROWS + i,
                    "cid": self.dice.randrange(CUSTOMERS + 5),
                    "amount": self.dice.randrange(1000),
                }
                for i in range(ROWS)
            ]
            self._drop("orders", rows)
            if self.dice.random() < 0.3:
                self._customers(self.dice.sample(range(CUSTOMERS), 3))

    def _customers(self, cids: Any) -> None:
        self._drop("customers", [{"cid": cid, "country": f"c{self.dice.randrange(6)}"} for cid in cids])

    def _drop(self, source: str, rows: list[dict[str, Any]]) -> None:
        self.fed += 1
        hidden = self.folder / source / f".{self.fed:06d}.json"
        hidden.write_text("\n".join(map(json.dumps, rows)))
        hidden.rename(hidden.with_name(hidden.name[1:]))


class Torture:
    """One app, from its start to its end."""

    def __init__(self, folder: Path, seed: int, say: Callable[[str], None]) -> None:
        self.folder, self.seed, self._say = folder, seed, say
        self.store = folder / "store"
        self._disk = LocalDisk(self.store)
        self.kills: dict[str, int] = {}
        self._oldest = 1
        replica = (folder / "replica").absolute().as_uri()
        (folder / "torture.py").write_text(APP.format(replica=replica, views=VIEWS) + comings.APP)
        self.guests = Guests(folder, random.Random(seed + 1))
        self._feed = Feed(folder, random.Random(seed), lambda: len(self._consumed(self._frontier())))
        self._output = (folder / "output.log").open("w")
        self._supervisor = self._start()

    def run(self, enough: Callable[[int], bool]) -> None:
        """Kill and check until `enough` says so, given the number of kills; then stop and check everything."""
        try:
            self._until(lambda: self._frontier() > 0, "the first epoch")
            for number, blow in enumerate(blows(self.seed), 1):
                if enough(sum(self.kills.values())):
                    break
                changed = self.guests.change() if blow.change else ""
                time.sleep(blow.after)
                if changed:
                    self._say(f"before kill {number}: {changed}")
                if blow.victim == "store":
                    self._lose_store(number)
                else:
                    self._round(number, blow.victim)
            self._finish()
        except BaseException as error:
            error.add_note(
                f"seed {self.seed}, kills so far {self.kills}, folder {self.folder}\n{self._last_output()}"
            )
            raise
        finally:
            self._feed.stop()
            self._supervisor.kill()
            self._supervisor.wait()
            self._output.close()

    def _start(self) -> subprocess.Popen[bytes]:
        options = ["--json", "--standby", "--stuck-after", "5 minutes"]
        return subprocess.Popen(
            [sys.executable, "-m", "slipstream.cli", "run", "torture.py", *options],
            cwd=self.folder,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def _lose_store(self, number: int) -> None:
        """All processes die, the local folder is gone, and the same command is given again. Not before a replica has
        something: a store that is lost during its first upload is not made anew without the user's consent.
        """
        self._until(lambda: read_replication(self._disk).safe > 0, "a replica that has an epoch")
        began, before, fed = time.monotonic(), self._frontier(), self._feed.fed
        for engine in children_of(self._supervisor.pid):
            with suppress(ProcessLookupError):
                os.killpg(engine, signal.SIGKILL)
        self._supervisor.kill()
        self._supervisor.wait()
        lost = self.folder / f"lost-{number}"
        self.store.rename(lost)
        shutil.rmtree(lost, ignore_errors=True)
        self.kills["store"] = self.kills.get("store", 0) + 1
        self._supervisor = self._start()
        self._until(lambda: len(self._consumed(self._frontier())) >= fed, "the input up to the loss")
        self._oldest = after = self._frontier()
        self.check(after)
        took = time.monotonic() - began
        self._say(f"kill {number}: store at epoch {before}; {took:.1f} s later at epoch {after}, equal")

    def _round(self, number: int, victim: Victim) -> None:
        began = time.monotonic()
        pid: int | None = None

        def found() -> bool:
            nonlocal pid
            pid = self._pid(victim)
            return pid is not None

        self._until(found, f"a process to kill: {victim}")
        assert pid is not None
        before = self._frontier()
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        self.kills[victim] = self.kills.get(victim, 0) + 1
        self._until(lambda: self._frontier() > before, f"an epoch after {before}")
        took = time.monotonic() - began
        after = self._frontier()
        self.check(before)
        self.check(after)
        self._say(f"kill {number}: {victim} at epoch {before}; {took:.1f} s later at epoch {after}, equal")

    def _finish(self) -> None:
        self._feed.stop()
        files = {path.name for source in ("orders", "customers") for path in (self.folder / source).iterdir()}
        self._until(lambda: len(self._consumed(self._frontier())) == len(files), "all the input")
        self._until(lambda: self.guests.there(self.store, self._frontier()), "the views that are wanted")
        self._supervisor.send_signal(signal.SIGTERM)
        code = self._supervisor.wait(PATIENCE)
        if code != 0:
            raise AssertionError(f"the app was stopped and ended with exit code {code}")
        last = self._frontier()
        for epoch in sorted({*range(self._oldest, last, max(1, last // 20)), last}):
            self.check(epoch)
        for trace in Store.existing(self.store).catalog().traces():
            validate(self.store / trace, last)
        changes = (
            f"{len(self.guests.versions)} views came or became others, compared {self.guests.compared} times"
        )
        self._say(f"{last} epochs, {len(files)} files, kills {self.kills}; {changes}: equal to the end")

    def _frontier(self) -> int:
        try:
            return computed_frontier(self._disk)
        except StoreVanished:  # not made yet, or not yet made again
            return 0

    def check(self, epoch: int) -> None:
        """Compare every view as of an epoch with what the consumed input says."""
        orders, customers = self.inputs(epoch)
        wanted = expected(orders, customers)
        for view in VIEWS:
            assert_equal_rows(self._rows(view, epoch), wanted[view], f"view '{view}' as of epoch {epoch}")
        self.guests.check(self.store, epoch, orders, customers)

    def inputs(self, epoch: int) -> tuple[list[dict[str, Any]], dict[int, str]]:
        """All orders, and the customers as they are, after the files that epochs up to this one consumed."""
        orders: list[dict[str, Any]] = []
        customers: dict[int, str] = {}
        for source, name in self._consumed(epoch):
            rows = [json.loads(line) for line in (self.folder / source / name).read_text().splitlines()]
            if source == "orders":
                orders += rows
            else:
                customers.update((row["cid"], row["country"]) for row in rows)
        return orders, customers

    def _consumed(self, epoch: int) -> list[tuple[str, str]]:
        """The files that epochs up to this one took, in order. Each must have been taken once."""
        taken: list[tuple[str, str]] = []
        try:
            cuts = read_lineage(self._disk, whole=True).history.cuts
        except StoreVanished:
            cuts = ()
        for cut in cuts:
            if cut.epoch <= epoch:
                for source, range_ in cut.ranges.items():
                    taken += [
                        (source, name)
                        for _, name in sorted((mtime, name) for name, _, mtime in range_["files"])
                    ]
        if len(set(taken)) != len(taken):
            raise AssertionError(
                f"files were taken twice: {sorted(each for each in taken if taken.count(each) > 1)}"
            )
        return taken

    def _rows(self, view: str, epoch: int) -> list[Row]:
        """A view as any reader sees it."""
        return [tuple(row.values()) for row in read_view(self.store, view, epoch).to_pylist()]

    def _pid(self, victim: Victim) -> int | None:
        """A process of this kind, if there is one now."""
        engines = {pid: beat_of(pid) for pid in children_of(self._supervisor.pid)}
        state = "standby" if victim == "standby" else "running"
        engine = next(
            (pid for pid, beat in engines.items() if beat is not None and beat.state == state), None
        )
        if engine is None or victim in ("engine", "standby"):
            return engine
        own = {pid: command_of(pid) for pid in children_of(engine)}
        if victim == "agent":
            return next(
                (pid for pid, command in own.items() if "slipstream.durability.agent" in command), None
            )
        jvm = next((pid for pid, command in own.items() if "java" in command.split(" ")[0]), None)
        if jvm is None or victim == "jvm":
            return jvm
        daemons = [pid for pid in children_of(jvm) if "slipstream.spark.daemon" in command_of(pid)]
        workers = [pid for daemon in daemons for pid in children_of(daemon)]
        return workers[-1] if workers else None

    def _until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not holds():
            if self._supervisor.poll() is not None:
                raise AssertionError(
                    f"waiting for {what}: the supervisor ended with {self._supervisor.returncode}"
                )
            if time.monotonic() > deadline:
                raise AssertionError(f"waiting for {what}: not after {PATIENCE:.0f} s")
            time.sleep(0.02)

    def _last_output(self) -> str:
        lines = (self.folder / "output.log").read_text().splitlines()
        return "\n".join(line for line in lines if not line.startswith('{"epoch"'))[-4000:]


def children_of(pid: int) -> list[int]:
    """The processes that a process started."""
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()] + [
            int(each)
            for task in Path(f"/proc/{pid}/task").iterdir()
            if task.name != str(pid)
            for each in (task / "children").read_text().split()
        ]
    except (FileNotFoundError, ProcessLookupError):
        return []


def command_of(pid: int) -> str:
    """How a process was started."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def beat_of(pid: int) -> Beat | None:
    """The last sign of life of a supervised engine; None for any other process."""
    parts = command_of(pid).split(" ")
    return Beat.read(Path(parts[parts.index("--beat") + 1])) if "--beat" in parts else None


def main(arguments: list[str]) -> None:
    """Rounds with a new seed each, until the time is up."""
    parser = argparse.ArgumentParser(
        prog="python -m slipstream.testing.torture", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=None, help="the first round's; by default a new one")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    end = time.monotonic() + options.seconds

    def say(text: str) -> None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 32)
    while time.monotonic() < end:
        say(f"seed {seed}")
        folder = Path(tempfile.mkdtemp(prefix="slipstream-torture-"))
        Torture(folder, seed, say).run(lambda kills: kills >= 40 or time.monotonic() > end)
        shutil.rmtree(folder)
        seed = random.Random(seed).randrange(1 << 32)


if __name__ == "__main__":
    main(sys.argv[1:])
