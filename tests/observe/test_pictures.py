"""What a notebook shows: legible, escaped, no longer than it must be, and without secrets."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

from slipstream.durability.frontiers import Lag
from slipstream.observe import (
    Backlog,
    Consumed,
    EpochReport,
    Frontiers,
    Progress,
    SourceStatus,
    Status,
    ViewStatus,
)
from slipstream.observe.pictures import (
    LONGEST,
    WIDEST,
    AppPicture,
    Sample,
    ViewPicture,
    app_html,
    fresh,
    progress_html,
    rows_html,
    view_html,
    without_secrets,
)

EVIL = "<script>alert('x')</script>"
STATUS = Status(
    app="shop",
    store="shop",
    running=True,
    epoch=12,
    computed_at=100.0,
    rows=4700,
    p50=0.1,
    p99=2.0,
    pending=None,
    views=(
        ViewStatus("revenue", 3, True, 4, 2_000_000, 5),
        ViewStatus("big", 9_000_000, False, 1, 10, 0, debts=2),
    ),
    sources=(SourceStatus("orders", "memory", Consumed(3, appends=3), 0),),
    latest=(),
    frontiers=Frontiers(12, 11, 0, 5),
)
PICTURE = AppPicture(STATUS, "running", 160.0)


class Parsed(HTMLParser):
    """The text of some HTML, whose elements are closed in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self._open: list[str] = []
        self.said: list[str] = []
        self.tags: set[str] = set()
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self._open.append(tag)
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open[-1] != "style":
            self.said.append(data)

    @property
    def text(self) -> str:
        return " | ".join(self.said)


def test_an_app() -> None:
    text = Parsed(app_html(PICTURE)).text
    assert text == (
        "shop | running | 12 epochs · the last 1 min ago · 4,700 rows taken · p50 100 ms, p99 2.0 s | "
        "view | rows | size | time travel, epochs | revenue | 3 | 2.0 MB | 5 to 12 | "
        "big | about 9,000,000  | 2 owed | 10 B | 0 to 12 | source | kind | taken | orders | memory | 3 appends | "
        "computed to epoch 12, on the local disk to 11, history from 5"
    )


def test_an_app_that_has_not_run() -> None:
    status = replace(STATUS, epoch=0, views=(), sources=(), computed_at=None, frontiers=Frontiers(0, 0, 0, 0))
    declared = {"orders": "source", "revenue": "view"}
    text = Parsed(app_html(AppPicture(status, "not run yet", 160.0, declared))).text
    assert text == (
        "shop | not run yet | nothing computed yet | view | rows | size | time travel, epochs | revenue | "
        "not computed yet | source | kind | taken | orders | nothing yet"
    )


def test_what_waits_what_was_rejected_and_what_failed() -> None:
    sources = (SourceStatus("orders", "memory", Consumed(3, appends=3), 7),)
    status = replace(STATUS, sources=sources, problem="lineage is lost")
    picture = AppPicture(status, "not running", 160.0, waiting={"orders": Backlog(5, "rows")}, error="boom")
    text = Parsed(app_html(picture)).text
    assert "waiting: orders 5 rows" in text
    assert "boom | lineage is lost" in text
    assert "rejected | orders | memory | 3 appends | 7" in text


def test_replicas_are_shown_without_their_passwords() -> None:
    lag = Lag(10, 2, 5, 61.0, "no answer from s3://key:secret@host/x")
    ends = replace(STATUS.frontiers, safe=10, durable={"s3://key:secret@host/shop": lag})
    html = app_html(AppPicture(replace(STATUS, frontiers=ends), "running", 160.0))
    assert "secret" not in html
    assert "s3://…@host/shop | 10 | 2 epochs, 1 min 1 s | no answer from s3://…@host/x" in Parsed(html).text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://key:se/cret@host/x", "s3://…@host/x"),
        ("s3://host/a@b", "s3://host/a@b"),
        ("no s3://x/y?secret_key=z&r=1 and s3://k@h/x?", "no s3://x/y?… and s3://…@h/x?…"),
        ("why? // what@ever", "why? // what@ever"),
        ("file:///mnt/x", "file:///mnt/x"),
    ],
)
def test_secrets_in_urls_are_left_out(text: str, shown: str) -> None:
    assert without_secrets(text) == shown


def test_a_view_with_all_kinds_of_values() -> None:
    columns = (("k", "string"), ("n", "bigint"), ("a", "array<int>"), ("b", "binary"))
    sample = Sample(columns, (("x", 1, [1, None], b"\x01"), (None, 2, [], b"")), True, frozenset({1}))
    html = view_html(ViewPicture("revenue", "shop", 7, sample, plan="Sums [a < b]", note="a note"))
    assert Parsed(html).text == (
        "revenue | view | of shop · as of epoch 7 | k | string | n | bigint | a | array<int> | b | binary | "
        "x | 1 | [1, None] | X'01' | NULL | 2 | [] | X'' | and more rows | a note | how it is maintained | Sums [a < b]"
    )
    assert html.count('<tr class="ss-fresh">') == 1
    assert html.count('<td class="ss-number">') == 2


def test_text_of_users_is_text() -> None:
    sample = Sample(((EVIL, EVIL),), ((EVIL,), ({"k": EVIL},)))
    view = view_html(ViewPicture(EVIL, EVIL, 1, sample, plan=EVIL, note=EVIL))
    views = (ViewStatus(EVIL, 1, True, 1, 1, 0, problem=EVIL),)
    sources = (SourceStatus(EVIL, EVIL, Consumed(1, upto=EVIL), 1),)
    ends = replace(STATUS.frontiers, durable={EVIL: Lag(1, 1, 1, 1.0, EVIL)})
    status = replace(
        STATUS, app=EVIL, views=views, sources=sources, frontiers=ends, problem=EVIL, waiting=EVIL
    )
    declared = {EVIL: "view", EVIL + "2": "source"}
    app = app_html(AppPicture(status, EVIL, 160.0, declared, {EVIL: Backlog(1, "rows")}, EVIL))
    bar = progress_html(EVIL, Progress(0.0).waiting({EVIL: Backlog(1, "rows")}), 1.0)
    for html in (view, app, bar):
        assert "script" not in Parsed(html).tags
        assert EVIL in Parsed(html).text


def test_what_is_long_is_cut() -> None:
    columns = tuple((f"c{i}", "string") for i in range(WIDEST + 3))
    html = rows_html(Sample(columns, (("x" * 10_000,) * len(columns),)))
    cells = re.findall(r"<td>(.*?)</td>", html)
    assert [len(cell) for cell in cells] == [LONGEST] * WIDEST
    assert cells[0].endswith("x…")
    assert Parsed(html).said[-1] == "and 3 more columns"


def test_which_rows_are_new_counts_duplicates() -> None:
    assert fresh([(1,), (1,), (2,)], [(2,), (1,), (1,), (1,), (3,)]) == {3, 4}
    assert fresh([], []) == frozenset()


def test_a_run_that_catches_up() -> None:
    report = EpochReport(3, 3000, {}, 100.0, 101.0, 0.25, {})
    progress = Progress(99.0).waiting({"a": Backlog(400, "rows"), "b": Backlog(0, "bytes")})
    progress = progress.after(report, {"a": Backlog(100, "rows"), "b": Backlog(0, "bytes")})
    html = progress_html("shop", progress, 101.0)
    assert "width:75.0%" in html
    assert Parsed(html).text == "shop |   | epoch 3 · 3,000 rows · 1,500 rows/s · left: a 100 rows"
