"""Status and query results as tables for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from slipstream.observe import Status, wording

NO_EPOCH = "nothing computed yet"


@dataclass(frozen=True)
class Answer:
    """A query's result. more: there are rows beyond the limit."""

    epoch: int
    columns: tuple[str, ...]
    numeric: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    more: bool


def table(columns: Sequence[str], numeric: Sequence[str] = ()) -> Table:
    """An empty table in the command's style."""
    made = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for column in columns:
        made.add_column(Text(column), justify="right" if column in numeric else "left", overflow="fold")
    return made


def status_picture(status: Status, now: float) -> RenderableType:
    """A store as `slipstream status` shows it."""
    running = ("running", "bold green") if status.running else ("not running", "yellow")
    head = Text.assemble((status.app, "bold cyan"), "  ", running, f"  {status.store}")
    if status.waiting is not None:
        head.append(f"\nthe engine waits: {status.waiting}", "red")
    if status.problem is not None:
        head.append(f"\nit cannot be read as of now: {status.problem}", "red")
    for view in status.views:
        if view.problem is not None:
            head.append(f"\nthe view '{view.name}': {view.problem}", "red")
        if view.held is not None:
            head.append(f"\nthe view '{view.name}' is {wording.held(view.held)}", "red")
    if status.computed_at is None:
        return Group(head, Text(NO_EPOCH), *_apart(*_sources(status)))
    ago = wording.span(now - status.computed_at)
    facts = [
        Text(f"epoch {status.epoch:,}, computed {wording.moment(status.computed_at)} ({ago} ago)"),
        Text(
            f"{wording.number(status.rows, 'row')} taken in; "
            f"epochs take p50 {wording.latency(status.p50)}, p99 {wording.latency(status.p99)}"
        ),
    ]
    if status.pending is not None:
        doing = "is being computed" if status.running else "was begun, and is computed at the next start"
        facts.append(Text(f"epoch {status.pending:,} {doing}"))
    if status.frontiers.durable:
        ends = status.frontiers
        facts.append(
            Text(
                f"safe to epoch {ends.safe:,}, on the local disk to {ends.persisted:,}, history from {ends.compacted:,}"
            )
        )
    return Group(
        head,
        *facts,
        *_apart(
            _views(status),
            *sinks_of(status, now),
            *_replicas(status),
            *_troubles(status, now),
            *_sources(status),
            _latest(status),
        ),
    )


def _apart(*tables: Table) -> list[RenderableType]:
    """Tables with an empty line before each."""
    return [part for each in tables for part in (Text(), each)]


def _views(status: Status) -> Table:
    owing = any(view.debts for view in status.views)
    figures = ["rows", *(["owed"] if owing else []), "layers", "size", "to merge"]
    made = table(["view", *figures, "time travel"], figures)
    for view in status.views:
        counted = Text(f"{view.rows:,}" if view.exact else f"about {view.rows:,}")
        rows = counted if view.problem is None else Text("damaged", "red")
        last = status.epoch if view.held is None else view.held.last
        reach = Text(f"epochs {view.oldest:,} to {last:,}")
        if view.held is not None:
            reach.append(", held", "red")
        owed = [Text(f"{view.debts:,}", "yellow" if view.debts else "")] if owing else []
        sizes = [f"{view.layers:,}", wording.size(view.bytes), wording.size(view.to_merge)]
        made.add_row(view.name, rows, *owed, *sizes, reach)
    return made


def sinks_of(status: Status, now: float) -> list[Table]:
    """How far each sink is, if there are any."""
    if not status.sinks:
        return []
    made = table(
        ["sink", "view", "to", "mode", "epoch", "behind", "delivered", "trouble"], ["epoch", "behind"]
    )
    for name, sink in sorted(status.sinks.items()):
        reached = "" if sink.epoch is None else f"{sink.epoch:,}"
        behind = wording.number(max(0, status.epoch - (sink.epoch or 0)), "epoch")
        when = f"{wording.span(now - sink.delivered_at)} ago" if sink.delivered_at else ""
        trouble = Text(wording.sink_trouble(sink), "red")
        made.add_row(
            name, sink.view, Text(f"{sink.kind} {sink.target}"), sink.mode, reached, behind, when, trouble
        )
    return [made]


def _replicas(status: Status) -> list[Table]:
    if not status.frontiers.durable:
        return []
    made = table(
        ["replica", "durable", "behind", "size", "for", "trouble"], ["durable", "behind", "size", "for"]
    )
    for url, lag in status.frontiers.durable.items():
        behind = wording.number(lag.epochs, "epoch")
        trouble = Text((lag.error or "").partition("\n")[0], "red")
        made.add_row(
            Text(url), f"{lag.durable:,}", behind, wording.size(lag.bytes), wording.span(lag.seconds), trouble
        )
    return [made]


def _troubles(status: Status, now: float) -> list[Table]:
    """What went wrong last in each part, and whether it is over."""
    if not status.frontiers.errors:
        return []
    made = table(["part", "trouble", "since", "over"])
    for part, trouble in sorted(status.frontiers.errors.items()):
        over = "not yet" if trouble.over is None else f"{wording.span(now - trouble.over)} ago"
        text = Text(trouble.error.partition("\n")[0], "red" if trouble.over is None else "")
        made.add_row(part, text, f"{wording.span(now - trouble.time)} ago", over)
    return [made]


def _sources(status: Status) -> list[Table]:
    if not status.sources:
        return []
    made = table(["source", "kind", "taken", "in epochs", "rejected"], ["in epochs", "rejected"])
    for source in status.sources:
        rejected = Text(f"{source.rejected:,}", "red" if source.rejected else "")
        taken = wording.consumed(source.consumed)
        made.add_row(source.name, source.kind, taken, f"{source.consumed.epochs:,}", rejected)
    return [made]


def _latest(status: Status) -> Table:
    made = table(["epoch", "computed", "rows", "took"], ["epoch", "rows", "took"])
    for epoch in status.latest:
        ended = wording.moment(epoch.ended)
        made.add_row(f"{epoch.epoch:,}", ended, f"{epoch.rows:,}", wording.latency(epoch.seconds))
    return made


def print_answer(console: Console, answer: Answer, seconds: float) -> None:
    """A query's result, and below it how much that is."""
    made = table(answer.columns, answer.numeric)
    for row in answer.rows:
        made.add_row(*[Text(wording.cell(value), "dim" if value is None else "") for value in row])
    if not console.is_terminal:
        console = Console(width=max(console.width, console.measure(made).maximum), soft_wrap=True)
    console.print(made)
    count = wording.number(len(answer.rows), "row")
    shown = f"the first {count}; --limit N shows more" if answer.more else count
    console.print(f"{shown}, as of epoch {answer.epoch:,} ({wording.latency(seconds)})", style="dim")
