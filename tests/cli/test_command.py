"""The command as a user runs it: a process of its own, on a store that it makes and that all tests here
share.

The store is made in two runs. The first is stopped as Ctrl-C in a terminal stops it, by SIGINT to the
whole process group, while an epoch is computed and input is left; the second goes on from there and is
stopped with SIGTERM.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from slipstream.cli.query import answer
from slipstream.core.errors import QueryFailed, UnknownView
from slipstream.core.version import __version__
from slipstream.store.disk import LocalDisk
from slipstream.store.lineage import computed_frontier
from slipstream.store.store import Store, claim_store

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FILES, ROWS, COUNTRIES = 8, 100, 4
APP = """
from pyspark.sql import functions as F
import slipstream as sl

app = sl.App("shop", store="store", master="local[1]", shards=1)
schema = "country string, amount long"
orders = app.source("orders", sl.files("orders", format="json", schema=schema, max_files_per_epoch=1))
shout = F.udf(lambda text: text.upper(), "string")

@app.view
def revenue(orders):
    return orders.groupBy(shout("country").alias("country")).agg(F.sum("amount").alias("revenue"))

app.view("leaders", "SELECT * FROM revenue ORDER BY revenue DESC LIMIT 2")

if __name__ == "__main__":
    raise SystemExit("the command must not run this")
"""


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "slipstream.cli", *arguments]


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), cwd=folder, capture_output=True, text=True, timeout=300)


@dataclass(frozen=True)
class Made:
    """The folder of the app and what the runs in it did."""

    folder: Path
    interrupted: subprocess.CompletedProcess[str]
    computed: int
    continued: subprocess.CompletedProcess[str]
    asked_meanwhile: subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("app")
    (folder / "shop.py").write_text(APP)
    (folder / "orders").mkdir()
    for number in range(FILES):
        rows = [{"country": f"c{i % COUNTRIES}", "amount": i % COUNTRIES} for i in range(ROWS)]
        text = "\n".join(json.dumps(row) for row in rows) + ("\n{broken" if number == 0 else "")
        (folder / "orders" / f"{number}.json").write_text(text)
    with started(folder, "run", "shop.py", "--json") as first:
        lines = wait_for(first, '"epoch": 1')
        os.killpg(first.pid, signal.SIGINT)
        interrupted = finished(first, lines)
    computed = computed_frontier(LocalDisk(folder / "store"))
    with started(folder, "run", "shop.py") as second:
        lines = wait_for(second, "caught up")
        meanwhile = run(folder, "query", "store", "SELECT * FROM leaders", "--as-of", "1", "--json")
        second.send_signal(signal.SIGTERM)
        continued = finished(second, lines)
    return Made(folder, interrupted, computed, continued, meanwhile)


class started:  # noqa: N801
    """A command in a process group of its own, gone at the end whatever happens."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._process = subprocess.Popen(
            command(*arguments),
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def __enter__(self) -> subprocess.Popen[str]:
        return self._process

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate()


def wait_for(process: subprocess.Popen[str], text: str) -> list[str]:
    """The lines up to one that has a text in it; what was said instead if the process ends before."""
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line)
        if text in line:
            return lines
    raise AssertionError(f"{''.join(lines)}{process.stderr.read() if process.stderr else ''}")


def finished(process: subprocess.Popen[str], lines: list[str]) -> subprocess.CompletedProcess[str]:
    out, err = process.communicate(timeout=120)
    return subprocess.CompletedProcess(process.args, process.returncode, "".join(lines) + out, err)


def test_ctrl_c_finishes_the_epoch_in_hand(made: Made) -> None:
    done = made.interrupted
    assert done.returncode == 0, done.stderr
    assert "finishing the epoch in hand" in done.stderr
    *epochs, last = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["epoch"] for each in epochs] == list(range(1, made.computed + 1))
    assert last["summary"]["computed"] == made.computed < FILES
    assert epochs[0]["rejected"] == {"orders": 1}
    assert "dropped" not in (made.folder / "store" / "lineage" / "1.log").read_text()


def test_a_restart_goes_on_and_sigterm_stops_it(made: Made) -> None:
    done = made.continued
    assert done.returncode == 0, done.stderr
    last = done.stdout.splitlines()[-1]
    assert last.startswith(f"shop: stopped at epoch {FILES}; this run: {FILES - made.computed} epochs, ")


def test_a_query_while_the_app_runs_is_answered_as_of_one_epoch(made: Made) -> None:
    done = made.asked_meanwhile
    assert (done.returncode, done.stderr) == (0, "")
    per_file = ROWS // COUNTRIES
    assert json.loads(done.stdout) == {
        "epoch": 1,
        "columns": ["country", "revenue"],
        "rows": [
            {"country": "C3", "revenue": 3 * per_file},
            {"country": "C2", "revenue": 2 * per_file},
        ],
        "more": False,
    }


def test_status_as_json(made: Made) -> None:
    done = run(made.folder, "status", "store", "--json")
    seen = json.loads(done.stdout)
    assert (seen["app"], seen["running"], seen["epoch"], seen["pending"]) == ("shop", False, FILES, None)
    views = {view["name"]: view for view in seen["views"]}
    assert {name: view["rows"] for name, view in views.items()} == {
        "revenue": COUNTRIES,
        "leaders": 2,
        "orders_rejected": 1,
    }
    assert all(view["exact"] and view["layers"] and view["bytes"] for view in views.values())
    (source,) = seen["sources"]
    assert (source["kind"], source["rejected"], source["consumed"]["files"]) == ("files", 1, FILES)


def test_status_for_people(made: Made) -> None:
    done = run(made.folder, "status", "store")
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert lines[0].startswith("shop not running ")
    assert lines[1].startswith(f"epoch {FILES}, computed ")
    assert any(line.startswith("revenue 4 ") and line.endswith(f"epochs 0 to {FILES}") for line in lines)
    assert done.stderr == ""


def test_explain(made: Made) -> None:
    done = run(made.folder, "explain", "shop.py", "--view", "leaders", "--json")
    assert done.returncode == 0, done.stderr
    steps = json.loads(done.stdout)
    assert list(steps) == ["leaders"]
    assert "TopK" in done.stdout


def test_plan_says_that_nothing_is_to_be_computed_where_nothing_changed(made: Made) -> None:
    done = run(made.folder, "plan", "shop.py", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert {view["name"]: view["what"] for view in told["views"]} == dict.fromkeys(
        ("revenue", "leaders"), "goes on"
    )
    assert (told["epoch"], told["inputs"]) == (FILES, [])


FAILING = """
import slipstream as sl

app = sl.App("shop", store="store", master="local[1]", shards=1, replicas=["file:///{replica}"])
orders = sl.memory("country string")
app.source("orders", orders)
app.view("cast", "SELECT cast(country AS int) c FROM orders")
orders.append([("Chile",)])
"""


def test_explain_makes_no_store_and_an_epoch_that_fails_is_one_message(tmp_path: Path) -> None:
    replica = tmp_path / "replica"
    (tmp_path / "shop.py").write_text(FAILING.replace("/{replica}", str(replica)))
    done = run(tmp_path, "explain", "shop.py")
    assert done.returncode == 0, done.stderr
    assert "cast(country" in done.stdout
    assert not (tmp_path / "store").exists()
    assert not replica.exists()
    done = run(tmp_path, "run", "shop.py", "--until", "caught_up")
    lines = done.stderr.splitlines()
    assert done.returncode == 1
    assert lines[0].startswith("error: epoch 1 failed in view 'cast'; the app stays at epoch 0")
    assert lines[1].startswith("Cause in cast: [CAST_INVALID_INPUT]")
    assert lines[-1] == f"The whole story is in {tmp_path}/store/events/engine.log."
    assert len(lines) < 10


def test_an_error_is_one_message_without_a_traceback(made: Made, tmp_path: Path) -> None:
    done = run(made.folder, "status", str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"error: '{tmp_path}' is not a Slipstream store")
    claim = claim_store(Store.at(made.folder / "store"), "shop")
    done = run(made.folder, "run", "shop.py")
    claim.release()
    assert done.returncode == 1
    assert done.stderr.startswith(
        f"error: shop.py, line 5: the store '{made.folder / 'store'}' is in use by process "
    )
    assert "Traceback" not in done.stderr


def test_the_version_and_help_with_an_example_for_every_verb() -> None:
    here = Path(__file__).parent
    assert run(here, "--version").stdout == f"slipstream {__version__}\n"
    for verb in ("run", "status", "query", "explain", "plan", "recover", "drill", "fsck"):
        assert f"Example: slipstream {verb} " in run(here, verb, "--help").stdout


@pytest.fixture
def store(made: Made, spark: SparkSession) -> Iterator[Store]:
    store = Store.existing(made.folder / "store")
    yield store
    for name in store.catalog().views:
        spark.catalog.dropTempView(name)


def test_an_unknown_view_is_answered_with_those_that_exist(store: Store, spark: SparkSession) -> None:
    with pytest.raises(UnknownView) as error:
        answer(spark, store, "SELECT * FROM revenue JOIN sales", FILES, 10)
    known = "'leaders', 'orders_rejected', 'revenue'"
    assert str(error.value) == f"there is no view named 'sales'. There are: {known}."


def test_a_query_that_spark_refuses(store: Store, spark: SparkSession) -> None:
    with pytest.raises(QueryFailed) as error:
        answer(spark, store, "SELECT countri FROM revenue", FILES, 10)
    text = str(error.value)
    assert text.startswith("the query cannot be answered. Spark says: [UNRESOLVED_COLUMN")
    assert "Did you mean" in text
    assert "Project" not in text


def test_a_limit_says_whether_there_is_more(store: Store, spark: SparkSession) -> None:
    some = answer(spark, store, "SELECT * FROM Revenue", FILES, COUNTRIES - 1)
    assert (len(some.rows), some.more, some.numeric) == (COUNTRIES - 1, True, ("revenue",))
    everything = answer(spark, store, "SELECT * FROM revenue", FILES, COUNTRIES)
    assert (len(everything.rows), everything.more) == (COUNTRIES, False)


PROGRAM = """
import slipstream as sl

app = sl.App("fed", store="fed", master="local[1]", shards=1)
held = sl.memory("k long")
app.source("held", held)
app.view("counted", "SELECT k, count(*) AS n FROM held GROUP BY k")
held.append([(1,)])
app.run(until="caught_up")

def feed(epoch):
    held.append([(i,) for i in range(100)])  # so that there is always an epoch in hand

app.on_epoch(lambda report: feed(report.epoch))
feed(0)
print("running", flush=True)
app.run()
"""


def test_ctrl_c_in_a_program_is_one_keyboard_interrupt(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    process = subprocess.Popen(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "running\n"
    store = Store.at(tmp_path / "fed")
    reached = computed_frontier(store.disk)
    while computed_frontier(store.disk) < reached + 3:
        assert process.poll() is None
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=120)
    lines = [line for line in said.splitlines() if not line.startswith("WARNING: ")]
    assert (lines[0], lines[-1]) == ("Traceback (most recent call last):", "KeyboardInterrupt")
    assert said.count("Traceback") == 1
    assert not any(word in said for word in ("py4j.protocol", "java.", "\tat ", "During handling"))
