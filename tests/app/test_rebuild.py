"""Changed views: what is rebuilt, with whom, and that everything equals batch Spark afterwards."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import slipstream as sl
from slipstream.app.rebuild import Rebuild, idle_traces, plan_rebuild
from slipstream.core.errors import UnknownView, ViewChanged
from slipstream.core.settings import Starting, starting_with
from slipstream.durability.fsck import check_replica, check_store
from slipstream.store.catalog import ViewEntry
from slipstream.testing.oracle import assert_equal, recompute
from slipstream.testing.pretend import eventually
from slipstream.trace import Span, TraceWriter


def entry(fingerprint: str) -> ViewEntry:
    return ViewEntry(schema={}, fingerprint=fingerprint, contents={"columns": []}, traces=())


KNOWN = {"a": entry("1"), "b": entry("1"), "c": entry("1")}
READS = {"a": ("t",), "b": ("a",), "c": ("t",), "d": ("b", "c")}


def test_what_reads_a_changed_view_is_rebuilt_with_it() -> None:
    declared = {**KNOWN, "a": entry("2"), "d": entry("1")}
    both = Rebuild(("a", "b", "d"), ("c",), added=("d",), changed=("a", "b"))
    assert plan_rebuild("s", KNOWN, declared, READS, (), replacing=("a",)) == both
    assert plan_rebuild("s", KNOWN, declared, READS, (), replacing=None) == both
    assert plan_rebuild("s", KNOWN, declared, READS, ("a",)) == replace(both, forced=("a", "b"))
    assert plan_rebuild("s", KNOWN, KNOWN, READS, ()) == Rebuild((), ("a", "b", "c"))
    assert plan_rebuild("s", KNOWN, KNOWN, READS, ("c",)) == Rebuild(("c",), ("a", "b"), forced=("c",))


def test_what_is_new_or_gone_is_no_change_of_the_others() -> None:
    fewer = {name: KNOWN[name] for name in ("a", "b")}
    assert plan_rebuild("s", KNOWN, fewer, READS, ()) == Rebuild((), ("a", "b"), dropped=("c",))
    more = {**KNOWN, "d": entry("1")}
    assert plan_rebuild("s", KNOWN, more, READS, ()) == Rebuild(("d",), ("a", "b", "c"), added=("d",))


def test_a_view_that_must_keep_other_traces_and_means_the_same_is_computed_anew_unasked() -> None:
    moved = {**KNOWN, "c": replace(entry("1"), traces=("elsewhere",))}
    assert plan_rebuild("s", KNOWN, moved, READS, ()) == Rebuild(("c",), ("a", "b"))


def test_what_a_view_shares_may_be_listed_with_another_one() -> None:
    """With the one that comes to it first: which that is may change while nobody's state does."""
    known = {**KNOWN, "a": replace(entry("1"), traces=("shared", "own"))}
    listed = {
        **KNOWN,
        "c": replace(entry("1"), traces=("shared",)),
        "a": replace(entry("1"), traces=("own",)),
    }
    assert plan_rebuild("s", known, listed, READS, ()) == Rebuild((), ("a", "b", "c"))
    without = {name: view for name, view in listed.items() if name == "c"}
    held = {name: view for name, view in known.items() if name == "c"}
    found = plan_rebuild("s", held, without, READS, (), beside=("shared",))
    assert found == Rebuild((), ("c",)), "epochs have kept it for one that is held"
    assert plan_rebuild("s", held, without, READS, ()) == Rebuild(("c",), ())


def test_a_reader_keeps_other_traces_when_what_it_reads_changes_and_has_not_changed_itself() -> None:
    declared = {**KNOWN, "a": entry("2"), "b": replace(entry("1"), traces=("elsewhere",))}
    found = plan_rebuild("s", KNOWN, declared, READS, (), replacing=("a",))
    assert found == Rebuild(("a", "b"), ("c",), changed=("a", "b"))


def test_what_is_known_of_why_a_view_changed_is_told() -> None:
    zones = "spark.sql.session.timeZone"
    known = {"a": replace(entry("1"), settings={zones: "UTC"}, functions={"fee": "1"})}
    now = {"a": replace(entry("2"), settings={zones: "Asia/Tokyo"}, functions={"fee": "2"})}
    with pytest.raises(ViewChanged) as error:
        plan_rebuild("s", known, now, {}, ())
    why = "the session time zone was UTC and is Asia/Tokyo; the code of the Python function 'fee' changed"
    assert f"Changed: 'a' ({why}); new: none" in str(error.value)


def test_what_was_not_asked_for_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(ViewChanged) as error:
        plan_rebuild("s", KNOWN, {**KNOWN, "a": entry("2"), "d": entry("1")}, READS, ("d",))
    assert str(error.value) == (
        "the store 's' was computed with other queries. Changed: 'a'; new: 'd'; views that read these: 'b'; unchanged, "
        "and going on: 'c'. State of one query is never used for another: restore what changed, or have it replaced, "
        "which computes all but the unchanged anew: `slipstream plan FILE.py` says what that takes, and `slipstream "
        "run FILE.py --replace` (or `--rebuild a`, or app.view(..., replace=True)) does it."
    )
    with pytest.raises(UnknownView, match="there is no view named 'x'"):
        plan_rebuild("s", KNOWN, KNOWN, READS, ("x",))


def test_a_trace_of_a_removed_kind_may_be_missing_if_it_is_the_views_own_and_holds_nothing() -> None:
    aside = "traces/a/aside-1"
    known = {"a": replace(entry("1"), traces=("traces/a/left-1", aside))}
    now = {"a": replace(entry("1"), traces=("traces/a/left-1",))}
    assert plan_rebuild("s", known, now, READS, (), {aside}) == Rebuild((), ("a",))
    assert plan_rebuild("s", known, now, READS, ()) == Rebuild(("a",), ())
    other = {"a": replace(entry("1"), traces=(aside,))}
    assert plan_rebuild("s", other, now, READS, (), {aside}) == Rebuild(("a",), ())
    shared = "traces/b/aside-1"
    sharing = {"a": replace(entry("1"), traces=(shared, *now["a"].traces))}
    assert plan_rebuild("s", sharing, now, READS, (), {shared}) == Rebuild(("a",), ())


def test_a_trace_of_a_removed_kind_is_idle_once_what_it_held_has_been_taken_away(tmp_path: Path) -> None:
    known = {"a": replace(entry("1"), traces=("traces/a/aside-1", "traces/a/left-1"))}
    for epoch, diffs in enumerate(([], [2], [-2]), start=1):
        for trace in known["a"].traces:
            rows = {name: [1] * len(diffs) for name in ("h", "r", "v0")}
            table = pa.table({**rows, "epoch": [epoch] * len(diffs), "diff": diffs}).cast(
                pa.schema([(name, pa.int64()) for name in ("h", "r", "v0", "epoch", "diff")])
            )
            TraceWriter(tmp_path / trace, 1).write(epoch, Span.whole(), table)
    idle = [idle_traces(tmp_path, known, epoch) for epoch in (1, 2, 3)]
    assert idle == [{"traces/a/aside-1"}, set(), {"traces/a/aside-1"}]


@pytest.mark.spark
def test_a_changed_view_is_rebuilt_and_the_others_go_on(spark: SparkSession, tmp_path: Path) -> None:
    first = {
        "sums": "SELECT k, sum(v) s FROM t GROUP BY k",
        "large": "SELECT * FROM sums WHERE s > 10",
        "top": "SELECT k, v FROM t ORDER BY v DESC, k LIMIT 3",
    }
    second = {
        **first,
        "sums": "SELECT k, sum(v) + count(*) s FROM t GROUP BY k",
        "joined": "SELECT t.k, t.v, u.w FROM t JOIN u ON t.k = u.k",
    }
    url, files = f"file://{tmp_path}/replica", {"t": "k long, v long", "u": "k long, w long"}
    written = 0

    def more() -> None:
        nonlocal written
        written += 1
        for name, column in (("t", "v"), ("u", "w")):
            (tmp_path / name).mkdir(exist_ok=True)
            text = "\n".join(json.dumps({"k": i % 4, column: written + i}) for i in range(8))
            (tmp_path / name / f"{written}.json").write_text(text)

    def opened(views: dict[str, str]) -> sl.App:
        app = sl.App("shop", store=tmp_path / "store", spark=spark, shards=2, replicas=[url])
        for name, schema in files.items():
            app.source(name, sl.files(tmp_path / name, format="json", schema=schema, settle=0))
        for name, query in views.items():
            app.view(name, query)
        return app

    def check(app: sl.App, views: dict[str, str]) -> None:
        inputs = {name: spark.read.schema(files[name]).json(str(tmp_path / name)) for name in files}
        for view in views:
            assert_equal(app.read(view), recompute(app, view, inputs), view)

    with opened(first) as app:
        for _ in range(3):
            more()
            app.run(until="caught_up")
        check(app, first)
        assert eventually(lambda: app.frontiers().safe == app.epoch)
        before = app.epoch
    with starting_with(Starting(rebuild=("sums", "joined"))):
        app = opened(second)
    with app:  # the command runs it elsewhere than it loads it
        app.run(until="caught_up")
        check(app, second)
        more()
        app.run(until="caught_up")
        check(app, second)
        assert app.read("top", as_of=1).count() == 3, "what was not rebuilt has its history"
        assert app.epoch > before
        assert eventually(lambda: app.frontiers().safe == app.epoch)
    assert check_store(tmp_path / "store").findings == ()
    assert check_replica(url).findings == ()
