"""`python -m demo`: a shop, live, for about a minute; its engine is killed half-way; then batch Spark checks it.

A feed writes files of orders and of changes to customers (`feed`). `slipstream run --supervise` keeps three views of
them up to date while they arrive (`shop`): a running aggregate, a join with an aggregate, and a top ten. They are
shown once a second, read from the store's files (`board`). Half-way the engine is ended with `kill -9`; its supervisor
brings it back, or with `--standby` a second engine takes over, and it goes on where it was. All the while two of the
views are written outside, exactly once: one as a log of changes into a folder, one by key into a Delta table. When the
feed ends, every view is computed again from all the files by batch Spark, which knows nothing of Slipstream, and the
two must be equal, row for row; and so must be what is outside. Money is whole cents, so equal means equal. The exit
code is 1 if they differ.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import IO

import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from rich.console import Console

import slipstream as sl
from demo.board import Board, Rows, screen
from demo.feed import Feed
from slipstream.observe import read_status

VIEWS = {
    "products": [("product", "ascending")],
    "revenue": [("cents", "descending")],
    "top_ten": [("spend", "descending"), ("cid", "ascending")],
}
"""The views, and the order in which each is shown."""

SHOP = Path(__file__).with_name("shop.py")


class Engine:
    """The app in a process of its own, under its supervisor. What it prints goes to the board and the console."""

    def __init__(self, store: Path, watched: str, board: Board, console: Console) -> None:
        self._store, self._board, self._console = store, board, console
        command = [sys.executable, "-m", "slipstream.cli", "run", str(SHOP), watched, "--json"]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._listeners = [
            threading.Thread(target=self._hear_epochs, args=[self._process.stdout]),
            threading.Thread(target=self._hear_words, args=[self._process.stderr]),
        ]
        for listener in self._listeners:
            listener.start()

    def alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """End the engine, not its supervisor, as hard as can be."""
        number = int((self._store / "lock").read_text().split()[-1])
        self._say(f"kill -9 {number}: the engine, at epoch {self._board.epoch}")
        self._board.killed = time.monotonic()
        os.kill(number, signal.SIGKILL)

    def stop(self) -> None:
        """Let it finish the epoch in hand."""
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGINT)
        self._process.wait()
        for listener in self._listeners:
            listener.join()

    def _hear_epochs(self, lines: IO[str]) -> None:
        for line in lines:
            report = json.loads(line)
            if "epoch" not in report:
                continue
            died = self._board.killed
            if died is not None and report["started"] > time.time() - (time.monotonic() - died):
                seconds = time.monotonic() - died
                self._say(f"epoch {report['epoch']}: the first new result, {seconds:.1f} s after the kill")
                self._board.killed = None
            self._board.note(report)

    def _hear_words(self, lines: IO[str]) -> None:
        for line in lines:
            self._say(line.rstrip())

    def _say(self, text: str) -> None:
        self._console.print(text, style="yellow", highlight=False, markup=False, soft_wrap=True)


def run_live(store: Path, watched: str, feed: Feed, seconds: float, console: Console) -> None:
    """Feed and engine run side by side, the views are read and shown about once a second; half-way comes the kill."""
    board = Board()
    engine = Engine(store, watched, board, console)
    feeding = threading.Thread(target=feed.run, name="feed")
    feeding.start()
    try:
        while not board.epoch and engine.alive():
            time.sleep(0.1)
        begun = board.started = time.monotonic()
        kill_at: float | None = begun + seconds / 2
        with screen(console, board) as show:
            while engine.alive() and (time.monotonic() < begun + seconds or board.killed is not None):
                time.sleep(1)
                if kill_at is not None and time.monotonic() > kill_at:
                    kill_at = None
                    engine.kill()
                board.views = {name: in_order(store, name) for name in VIEWS}
                show()
    finally:
        feed.ended.set()
        feeding.join()
        engine.stop()


def in_order(store: Path, view: str) -> Rows:
    rows: Rows = sl.read_view(store, view).sort_by(VIEWS[view]).to_pylist()
    return rows


def recompute(spark: SparkSession, landing: Path, shop: ModuleType) -> Mapping[str, DataFrame]:
    """The views again, by batch Spark from all the files; a customer is what the last change to it says."""
    orders = spark.read.schema(shop.ORDERS).json(str(landing / "orders"))
    changes = spark.read.schema(shop.CUSTOMERS).csv(str(landing / "customers"))
    last = changes.groupBy("cid").agg(F.max_by(F.struct("*"), "version").alias("last")).select("last.*")
    orders.createOrReplaceTempView("orders")
    return {
        "products": shop.products(orders),
        "revenue": shop.revenue(orders, last.where("op <> 'delete'")),
        "top_ten": spark.sql(shop.TOP_TEN),
    }


def delivered(landing: Path) -> Mapping[str, tuple[str, list[Row]]]:
    """What the sinks have written, read by others: of which view it is, and its rows."""
    log = pq.read_table(landing / "delivered" / "products")
    added: Counter[Row] = Counter()
    for row in log.to_pylist():
        epoch, diff = row.pop("_epoch"), row.pop("_diff")
        assert epoch > 0
        added[Row(**row)] += diff
    revenue = DeltaTable(str(landing / "delivered" / "revenue")).to_pyarrow_table().to_pylist()
    return {
        "the log of changes in a folder": ("products", list(added.elements())),
        "the Delta table": ("revenue", [Row(**row) for row in revenue]),
    }


def differences(maintained: Iterable[Row], expected: Iterable[Row]) -> list[str]:
    ours, batch = Counter(map(tuple, maintained)), Counter(map(tuple, expected))
    return [f"only in Slipstream: {row}" for row in (ours - batch).elements()] + [
        f"only in batch Spark: {row}" for row in (batch - ours).elements()
    ]


def check(landing: Path, console: Console) -> bool:
    """Says of every view whether batch Spark makes the same of the same files; True if all are equal."""
    from demo import shop  # the app itself: it opens the store, and starts Spark here

    equal = True
    with shop.app as app:
        app.run(until="caught_up")
        seen = read_status(landing / "store")
        console.print(f"The feed has ended: {seen.rows:,} rows in {seen.epoch} epochs. Batch Spark says:")
        expected = recompute(SparkSession.builder.getOrCreate().newSession(), landing, shop)
        for name, frame in expected.items():
            equal &= said(name, differences(app.read(name).collect(), frame.collect()), console)
        for where, (name, rows) in delivered(landing).items():
            equal &= said(f"{name}, {where}", differences(rows, expected[name].collect()), console)
    return equal


def said(what: str, found: list[str], console: Console) -> bool:
    """Says whether something is equal, and what is not; whether it is."""
    console.print(f"  {what}: {'equal' if not found else 'different'}")
    for difference in found[:20]:
        console.print(f"    {difference}", highlight=False)
    return not found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m demo", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--seconds", type=float, default=45, help="how long the feed runs (default: %(default)s)"
    )
    parser.add_argument("--rate", type=int, default=5_000, help="orders a second (default: %(default)s)")
    parser.add_argument("--standby", action="store_true", help="have a second engine ready to take over")
    options = parser.parse_args()
    console = Console()
    landing = Path(tempfile.mkdtemp(prefix="slipstream-")) / "shop"
    os.environ["SHOP"] = str(landing)
    feed = Feed(landing, options.rate)
    store = landing / "store"
    console.print(f"{options.rate:,} orders a second for {options.seconds:.0f} s. Starting Spark ...")
    run_live(store, "--standby" if options.standby else "--supervise", feed, options.seconds, console)
    equal = check(landing, console)
    console.print(f"The store is {store}. Try next:", soft_wrap=True)
    query = "SELECT * FROM revenue ORDER BY cents DESC"
    for command in (
        f"slipstream status {store}",
        f"slipstream sinks {store}",
        f'slipstream query {store} "{query}"',
    ):
        console.print(f"  {command}", highlight=False, soft_wrap=True)
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
