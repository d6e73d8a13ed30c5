"""What a notebook shows: an app, a view, a run, as HTML. Pure functions of plain data.

Whatever comes from users (names, values, errors, URLs) is text: it is escaped, and cut where it is long. Keys and
passwords in URLs are left out. Colours are made of the page's own, so that a light theme and a dark one both fit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

from slipstream.observe import wording
from slipstream.observe.progress import Backlog, Progress
from slipstream.observe.status import SourceStatus, Status, ViewStatus

LONGEST = 80
"""Characters of a value that are shown."""

WIDEST = 20
"""Columns of a view that are shown."""

_STYLE = """<style>
.slipstream{font:13px/1.45 system-ui,-apple-system,"Segoe UI",sans-serif;color:inherit;max-width:72em;padding:2px 0}
.slipstream .ss-head{display:flex;flex-wrap:wrap;align-items:baseline;gap:.3em .8em;margin:0 0 .5em}
.slipstream .ss-name{font-size:15px;font-weight:650}
.slipstream .ss-dim{opacity:.65}
.slipstream .ss-pill{border:1px solid;border-radius:9px;padding:0 .6em;font-size:11.5px;font-weight:600}
.slipstream .ss-good{color:#17915a}.slipstream .ss-bad{color:#e0484d}.slipstream .ss-wait{color:#b97a10}
.slipstream .ss-box{overflow-x:auto;margin:.35em 0 .7em}
.slipstream table{border-collapse:collapse;margin:0;border:0;font-size:12.5px;font-variant-numeric:tabular-nums}
.slipstream tr,.slipstream tbody tr:nth-child(even){background:transparent}
.slipstream th,.slipstream td{border:0;border-bottom:1px solid rgba(128,128,128,.28);padding:.22em 1.2em .22em .3em;
text-align:left;vertical-align:top;white-space:pre-wrap;max-width:32em;overflow-wrap:anywhere}
.slipstream th{font-weight:600;opacity:.65;white-space:nowrap;vertical-align:bottom}
.slipstream th small{display:block;font-weight:400}
.slipstream .ss-number{text-align:right}
.slipstream .ss-null{opacity:.5;font-style:italic}
.slipstream tr.ss-fresh td{background:rgba(23,145,90,.16)}
.slipstream pre{font-size:12px;line-height:1.4;margin:.3em 0;padding:0;background:transparent;color:inherit;
white-space:pre;overflow-x:auto}
.slipstream summary{cursor:pointer;opacity:.75}
.slipstream .ss-bar{height:6px;border-radius:3px;background:rgba(128,128,128,.28);max-width:36em;overflow:hidden}
.slipstream .ss-bar div{height:100%;border-radius:3px;background:#17915a}
</style>"""


@dataclass(frozen=True)
class Sample:
    """Some rows of a view. columns: names and types. fresh: which of the rows the picture before did not have."""

    columns: tuple[tuple[str, str], ...]
    rows: tuple[tuple[object, ...], ...] = ()
    more: bool = False
    fresh: frozenset[int] = frozenset()


@dataclass(frozen=True)
class ViewPicture:
    """A view, or a source. epoch: as of which its rows are. plan: how it is maintained. note: what else is to be said,
    such as why it has no rows yet.
    """

    name: str
    app: str
    epoch: int
    sample: Sample
    kind: str = "view"
    plan: str | None = None
    note: str | None = None


@dataclass(frozen=True)
class AppPicture:
    """An app. declared: views and sources that the store does not know yet, each with its kind. waiting: input that was
    not taken yet, where that can be known. error: why the last run ended, if it failed. waits: views that wait for what
    is not declared yet, and for what.
    """

    status: Status
    state: str
    now: float
    declared: Mapping[str, str] = field(default_factory=dict)
    waiting: Mapping[str, Backlog] = field(default_factory=dict)
    error: str | None = None
    waits: Mapping[str, str] = field(default_factory=dict)


def app_html(picture: AppPicture) -> str:
    """An app: how far it is, its views, sources and replicas, and what went wrong."""
    status = picture.status
    told = [wording.number(status.epoch, "epoch")] if status.epoch else ["nothing computed yet"]
    if status.computed_at is not None and status.epoch:
        told.append(f"the last {wording.span(picture.now - status.computed_at)} ago")
        told.append(f"{status.rows:,} rows taken")
        told.append(f"p50 {wording.latency(status.p50)}, p99 {wording.latency(status.p99)}")
    left = {name: each for name, each in picture.waiting.items() if each.amount}
    if left:
        told.append(f"waiting: {wording.backlog(left)}")
    parts = [_head(status.app, picture.state, told, "bad" if picture.error else _tone(picture.state))]
    for problem in (picture.error, status.problem, status.waiting):
        if problem:
            parts.append(f'<pre class="ss-bad">{escape(without_secrets(problem.strip()))}</pre>')
    parts.append(_views(status, picture.declared, picture.waits))
    parts.append(_sources(status, picture.declared))
    parts.append(_frontiers(status))
    return _framed(parts)


def view_html(picture: ViewPicture) -> str:
    """A view's first rows, as of which epoch they are, and its plan."""
    told = [f"of {picture.app}"]
    if picture.epoch:
        told.append(f"as of epoch {picture.epoch:,}")
    parts = [_head(picture.name, picture.kind, told, "dim"), rows_html(picture.sample)]
    if picture.note:
        parts.append(f'<div class="ss-dim">{escape(picture.note)}</div>')
    if picture.plan:
        plan = f"<pre>{escape(picture.plan)}</pre>"
        parts.append(f"<details><summary>how it is maintained</summary>{plan}</details>")
    return _framed(parts)


def rows_html(sample: Sample) -> str:
    """Rows as a table, columns of numbers to the right."""
    shown = sample.columns[:WIDEST]
    right = [_is_number(kind) for _, kind in shown]
    head = "".join(
        _cell("th", f"{escape(_cut(name))}<small>{escape(_cut(kind))}</small>", number)
        for (name, kind), number in zip(shown, right, strict=True)
    )
    body = "".join(
        _row(
            [_cell("td", _value(value), number) for value, number in zip(row[:WIDEST], right, strict=False)],
            is_fresh=i in sample.fresh,
        )
        for i, row in enumerate(sample.rows)
    )
    beyond = []
    if len(sample.columns) > WIDEST:
        beyond.append(wording.number(len(sample.columns) - WIDEST, "more column"))
    if sample.more:
        beyond.append("more rows")
    said = f'<div class="ss-dim">and {" and ".join(beyond)}</div>' if beyond else ""
    return _table(f"<tr>{head}</tr>", body) + said


def progress_html(name: str, progress: Progress, now: float) -> str:
    """A run that catches up, as a bar."""
    width = round(100 * (progress.fraction if progress.fraction is not None else 0.0), 1)
    told = [escape(each) for each in told_of(progress, now)]
    bar = f'<div class="ss-bar"><div style="width:{width}%"></div></div>'
    said = f'<div><b>{escape(name)}</b> <span class="ss-dim">{" · ".join(told)}</span></div>'
    return _framed([said, bar])


def told_of(progress: Progress, now: float) -> list[str]:
    """What there is to say of a run, in a few words each."""
    told = [f"epoch {progress.epoch:,}", f"{progress.rows:,} rows", f"{progress.pace(now):,.0f} rows/s"]
    left = wording.backlog(progress.behind)
    return [*told, f"left: {left}" if left else "caught up"]


def fresh(before: Sequence[tuple[object, ...]], now: Sequence[tuple[object, ...]]) -> frozenset[int]:
    """Which rows another picture did not have, duplicates counted."""
    left = [repr(row) for row in before]
    found = set()
    for i, row in enumerate(now):
        if repr(row) in left:
            left.remove(repr(row))
        else:
            found.add(i)
    return frozenset(found)


def _views(status: Status, declared: Mapping[str, str], waits: Mapping[str, str]) -> str:
    rows = [[*_view(each), _reach(each, status.epoch)] for each in status.views]
    rows += [[escape(name), "not computed yet", "", ""] for name, kind in declared.items() if kind == "view"]
    rows += [
        [escape(name), f'<span class="ss-wait">waits for {escape(_cut(awaited))}</span>', "", ""]
        for name, awaited in waits.items()
    ]
    return _listed(["view", "rows", "size", "time travel, epochs"], rows, numbers={1, 2})


def _view(view: ViewStatus) -> list[str]:
    counted = f"{view.rows:,}" if view.exact else f"about {view.rows:,}"
    if view.problem is not None:
        counted = f'<span class="ss-bad">{escape(_cut(view.problem))}</span>'
    if view.debts:
        counted += f' <span class="ss-wait">{view.debts:,} owed</span>'
    return [escape(view.name), counted, wording.size(view.bytes)]


def _reach(view: ViewStatus, epoch: int) -> str:
    if view.held is None:
        return f"{view.oldest:,} to {epoch:,}"
    why = escape(_cut(wording.held(view.held)))
    return f'{view.oldest:,} to {view.held.last:,} <span class="ss-bad">{why}</span>'


def _sources(status: Status, declared: Mapping[str, str]) -> str:
    rows = [_source(each) for each in status.sources]
    rows += [[escape(name), "", "nothing yet", ""] for name, kind in declared.items() if kind == "source"]
    titles = ["source", "kind", "taken", "rejected"]
    if not any(each.rejected for each in status.sources):
        titles, rows = titles[:-1], [row[:-1] for row in rows]
    return _listed(titles, rows, numbers={3})


def _source(source: SourceStatus) -> list[str]:
    rejected = f'<span class="ss-bad">{source.rejected:,}</span>' if source.rejected else ""
    taken = escape(_cut(wording.consumed(source.consumed)))
    return [escape(source.name), escape(source.kind), taken, rejected]


def _frontiers(status: Status) -> str:
    ends = status.frontiers
    if not status.epoch:
        return ""
    told = f"computed to epoch {ends.computed:,}, on the local disk to {ends.persisted:,}"
    told += f", safe to {ends.safe:,}" if ends.durable else ""
    said = f'<div class="ss-dim">{told}, history from {ends.compacted:,}</div>'
    rows = [
        [
            escape(_cut(without_secrets(url))),
            f"{lag.durable:,}",
            f"{wording.number(lag.epochs, 'epoch')}, {wording.span(lag.seconds)}" if lag.epochs else "",
            f'<span class="ss-bad">{escape(_cut(without_secrets(lag.error or "")))}</span>',
        ]
        for url, lag in ends.durable.items()
    ]
    return said + _listed(["replica", "durable to epoch", "behind", "trouble"], rows, numbers={1})


def without_secrets(text: str) -> str:
    """A text without what is before the host, and after the path, of the URLs in it."""
    return re.sub(r"(://\S*?)\?\S*", r"\1?…", re.sub(r"://([^/\s@]*|[^/\s@:]+:[^\s@]*)@", "://…@", text))


def _listed(titles: Sequence[str], rows: Iterable[Sequence[str]], numbers: set[int]) -> str:
    """A table of cells that are HTML already; nothing where it has no rows."""
    body = "".join(_row([_cell("td", cell, i in numbers) for i, cell in enumerate(row)]) for row in rows)
    head = "".join(_cell("th", escape(title), i in numbers) for i, title in enumerate(titles))
    return _table(f"<tr>{head}</tr>", body) if body else ""


def _table(head: str, body: str) -> str:
    return f'<div class="ss-box"><table><thead>{head}</thead><tbody>{body}</tbody></table></div>'


def _row(cells: Iterable[str], is_fresh: bool = False) -> str:
    start = '<tr class="ss-fresh">' if is_fresh else "<tr>"
    return f"{start}{''.join(cells)}</tr>"


def _cell(tag: str, html: str, is_number: bool) -> str:
    start = f'<{tag} class="ss-number">' if is_number else f"<{tag}>"
    return f"{start}{html}</{tag}>"


def _head(name: str, state: str, told: Sequence[str], tone: str) -> str:
    said = " · ".join(escape(each) for each in told)
    return (
        f'<div class="ss-head"><span class="ss-name">{escape(name)}</span>'
        f'<span class="ss-pill ss-{tone}">{escape(state)}</span><span class="ss-dim">{said}</span></div>'
    )


def _tone(state: str) -> str:
    return "good" if state == "running" else "dim"


def _framed(parts: Iterable[str]) -> str:
    return f'{_STYLE}<div class="slipstream">{"".join(parts)}</div>'


def _value(value: object) -> str:
    if value is None:
        return '<span class="ss-null">NULL</span>'
    return escape(_cut(wording.cell(value)))


def _cut(text: str) -> str:
    """A text as far as it is shown."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _is_number(kind: str) -> bool:
    return kind.startswith(("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")) and not (
        kind.startswith("interval")
    )
