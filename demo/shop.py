"""A shop, live: `python demo/shop.py` runs for about a minute, checks itself against batch Spark and ends.

A feed writes files of orders (JSON) and of changes to customers (CSV, insert/update/delete by key) into a
landing folder, each renamed into place when it is whole. Slipstream keeps three views of them up to date
while they arrive: a running aggregate, a join with an aggregate, and a top ten. When the feed ends, every
view is computed again from all the files by batch Spark, which knows nothing of Slipstream, and the two must
be equal, row for row. Money is whole cents, so equal means equal. The exit code is 1 if they differ.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table

import slipstream as sl

ORDERS = "oid long, cid long, product string, cents long"
CUSTOMERS = "op string, cid long, name string, country string, version long"
PRODUCTS = ("anchor", "biscuit", "compass", "dinghy", "ensign", "fender", "galley", "halyard")
COUNTRIES = ("Chile", "Egypt", "Ghana", "India", "Japan", "Nepal", "Spain", "Yemen")
STARTING_CUSTOMERS = 500
FILES_PER_SECOND = 2
VIEWS = {"products": {"product": True}, "revenue": {"cents": False}, "top_ten": {"spend": False, "cid": True}}
"""The views, and the order in which each is shown: columns, and whether they ascend."""

TOP_TEN = "SELECT cid, SUM(cents) AS spend FROM orders GROUP BY cid ORDER BY spend DESC, cid LIMIT 10"


def products(orders: DataFrame) -> DataFrame:
    return orders.groupBy("product").agg(F.count("*").alias("orders"), F.sum("cents").alias("cents"))


def revenue(orders: DataFrame, customers: DataFrame) -> DataFrame:
    return orders.join(customers, "cid").groupBy("country").agg(F.sum("cents").alias("cents"))


@dataclass
class Feed:
    """Writes both kinds of files until it is told to stop. The same seed makes the same shop."""

    landing: Path
    rate: int
    random: random.Random = field(default_factory=lambda: random.Random(7))
    orders: int = 0
    customers: int = 0
    version: int = 0
    ended: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        for source in ("orders", "customers"):
            (self.landing / source).mkdir(parents=True)
        self._write_customers(self._join() for _ in range(STARTING_CUSTOMERS))

    def run(self) -> None:
        started = time.monotonic()
        tick = 0
        while not self.ended.wait(max(0.0, started + tick / FILES_PER_SECOND - time.monotonic())):
            self._write_orders(self.rate // FILES_PER_SECOND)
            if tick % FILES_PER_SECOND == 0:
                self._write_customers(self._change() for _ in range(10))
            tick += 1

    def _write_orders(self, count: int) -> None:
        lines = []
        for _ in range(count):
            self.orders += 1
            order = {
                "oid": self.orders,
                "cid": int(self.customers * self.random.random() ** 1.2),
                "product": self.random.choice(PRODUCTS),
                "cents": self.random.randrange(100, 20_000),
            }
            lines.append(json.dumps(order))
        self._write(self.landing / "orders" / f"{self.orders:09d}.json", lines)

    def _write_customers(self, rows: Iterable[str]) -> None:
        lines = list(rows)
        self._write(self.landing / "customers" / f"{self.version:09d}.csv", lines)

    def _join(self) -> str:
        self.customers += 1
        return self._row("insert", self.customers - 1)

    def _change(self) -> str:
        """One in ten joins, one in ten leaves (or is told again to leave), the others move."""
        choice = self.random.random()
        if choice < 0.1:
            return self._join()
        return self._row("delete" if choice < 0.2 else "update", self.random.randrange(self.customers))

    def _row(self, op: str, cid: int) -> str:
        self.version += 1
        return f"{op},{cid},customer {cid},{self.random.choice(COUNTRIES)},{self.version}"

    def _write(self, path: Path, lines: list[str]) -> None:
        hidden = path.with_name(f".{path.name}")
        hidden.write_text("\n".join(lines) + "\n")
        hidden.rename(path)


@dataclass
class Board:
    """What is shown: the epochs so far, and the views as they were last read."""

    started: float = field(default_factory=time.monotonic)
    epoch: int = 0
    rows: int = 0
    latencies: list[float] = field(default_factory=list)
    views: dict[str, list[Row]] = field(default_factory=dict)

    def note(self, report: sl.EpochReport) -> None:
        self.epoch = report.epoch
        self.rows += report.rows
        self.latencies.append(report.seconds)

    def figures(self) -> dict[str, str]:
        seconds = time.monotonic() - self.started
        p50, p99 = _percentiles(self.latencies)
        return {
            "seconds": f"{seconds:.0f}",
            "epochs": f"{self.epoch}",
            "rows": f"{self.rows:,}",
            "rows/s": f"{self.rows / seconds:,.0f}",
            "latency p50": f"{p50 * 1000:.0f} ms",
            "latency p99": f"{p99 * 1000:.0f} ms",
        }

    def line(self) -> str:
        best = self.views.get("top_ten") or []
        leader = f", leader {best[0].cid} with {_money(best[0].spend)}" if best else ""
        return ", ".join(f"{name} {value}" for name, value in self.figures().items()) + leader

    def render(self) -> RenderableType:
        figures = Table(*self.figures(), title="the shop, live")
        figures.add_row(*self.figures().values())
        beside = Table.grid(padding=(0, 2))
        beside.add_row(*(_view_table(name, rows) for name, rows in self.views.items()))
        return Group(figures, beside)


def _percentiles(values: list[float]) -> tuple[float, float]:
    if len(values) < 2:
        return (values[0], values[0]) if values else (0.0, 0.0)
    cuts = quantiles(values, n=100, method="inclusive")
    return cuts[49], cuts[98]


def _money(cents: int) -> str:
    return f"{cents // 100:,}.{cents % 100:02d}"


def _view_table(name: str, rows: list[Row]) -> Table:
    table = Table(title=name)
    for column in rows[0].__fields__ if rows else []:
        heading = "amount" if column == "cents" else column
        table.add_column(heading, justify="left" if isinstance(rows[0][column], str) else "right")
    for row in rows:
        table.add_row(*(_cell(column, value) for column, value in row.asDict().items()))
    return table


def _cell(column: str, value: str | int) -> str:
    return _money(int(value)) if column in ("cents", "spend") else str(value)


def define(app: sl.App, landing: Path) -> None:
    app.source("orders", sl.files(str(landing / "orders"), format="json", schema=ORDERS))
    customers = sl.files(str(landing / "customers"), format="csv", schema=CUSTOMERS, op="op", key=["cid"])
    app.source("customers", customers)
    app.view(products)
    app.view(revenue)
    app.view("top_ten", TOP_TEN)


def recompute(spark: SparkSession, landing: Path) -> Mapping[str, DataFrame]:
    """The views again, by batch Spark from all the files; a customer is what the last change to it says."""
    orders = spark.read.schema(ORDERS).json(str(landing / "orders"))
    changes = spark.read.schema(CUSTOMERS).csv(str(landing / "customers"))
    last = changes.groupBy("cid").agg(F.max_by(F.struct("*"), "version").alias("last")).select("last.*")
    orders.createOrReplaceTempView("orders")
    return {
        "products": products(orders),
        "revenue": revenue(orders, last.where("op <> 'delete'")),
        "top_ten": spark.sql(TOP_TEN),
    }


def differences(maintained: Iterable[Row], expected: Iterable[Row]) -> list[str]:
    ours, batch = Counter(map(tuple, maintained)), Counter(map(tuple, expected))
    return [f"only in Slipstream: {row}" for row in (ours - batch).elements()] + [
        f"only in batch Spark: {row}" for row in (batch - ours).elements()
    ]


@contextmanager
def screen(console: Console, board: Board) -> Iterator[Callable[[], None]]:
    """Yields what shows the board: a table that is redrawn on a terminal, a plain line anywhere else."""
    if not console.is_terminal:
        yield lambda: console.print(board.line(), highlight=False, soft_wrap=True)
        return
    with Live(console=console, auto_refresh=False) as live:
        yield lambda: live.update(board.render(), refresh=True)


def read_sorted(app: sl.App, name: str) -> list[Row]:
    order = VIEWS[name]
    return app.read(name).orderBy(list(order), ascending=list(order.values())).collect()


def run_live(app: sl.App, feed: Feed, board: Board, seconds: float, console: Console) -> None:
    """Feed and app run side by side, the views are read and shown about once a second; then all input is used
    up.
    """
    feeding = threading.Thread(target=feed.run, name="feed")
    app.start()
    feeding.start()
    try:
        app.await_epoch(1)
        ends = time.monotonic() + seconds
        with screen(console, board) as show:
            while (left := ends - time.monotonic()) > 0:
                time.sleep(min(1.0, left))
                board.views = {name: read_sorted(app, name) for name in VIEWS}
                show()
    finally:
        feed.ended.set()
        feeding.join()
        app.stop()
    app.run(until="caught_up")


def check(app: sl.App, landing: Path, console: Console) -> bool:
    """Says of every view whether batch Spark makes the same of the same files; True if all are equal."""
    expected = recompute(SparkSession.builder.getOrCreate().newSession(), landing)
    equal = True
    for name, frame in expected.items():
        found = differences(app.read(name).collect(), frame.collect())
        console.print(f"  {name}: {'equal' if not found else 'different'}")
        for difference in found[:20]:
            console.print(f"    {difference}", highlight=False)
        equal = equal and not found
    return equal


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--seconds", type=float, default=45, help="how long the feed runs (default: %(default)s)"
    )
    parser.add_argument("--rate", type=int, default=5_000, help="orders a second (default: %(default)s)")
    options = parser.parse_args()
    console = Console()
    folder = Path(tempfile.mkdtemp(prefix="slipstream-shop-"))
    feed = Feed(folder / "landing", options.rate)
    store = folder / "store"
    console.print(f"{options.rate:,} orders a second for {options.seconds:.0f} s. Starting Spark ...")
    with sl.App("shop", store=store) as app:
        define(app, feed.landing)
        board = Board()
        app.on_epoch(board.note)
        run_live(app, feed, board, options.seconds, console)
        console.print(f"The feed has ended: {board.rows:,} rows in {board.epoch} epochs. Batch Spark says:")
        equal = check(app, feed.landing, console)
    console.print(f"The store is {store}. Try next:", soft_wrap=True)
    query = "SELECT * FROM revenue ORDER BY cents DESC"
    for command in (f"slipstream status {store}", f'slipstream query {store} "{query}"'):
        console.print(f"  {command}", highlight=False, soft_wrap=True)
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
