"""The facts of a running app that its pictures show.

A picture changes nothing: an app that has not run is not made ready by it, and a closed one says that it is closed.
Rows are read as any reader reads them, so epochs go on meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame

from slipstream.core.clock import Clock
from slipstream.core.errors import SlipstreamError
from slipstream.observe import Backlog, Status
from slipstream.observe.pictures import AppPicture, Sample, ViewPicture, fresh

Now = tuple[int, DataFrame, str | None]
"""A view's rows, as of which epoch, and what else is to be said."""


@dataclass(frozen=True)
class Told:
    """What an app tells of itself. state: "running", "not running", "not run yet" or "closed". declared: its views and
    sources, each with its kind. waits: its views that wait, and for what.
    """

    name: str
    state: str
    declared: Mapping[str, str]
    waits: Mapping[str, str]
    error: BaseException | None
    status: Callable[[], Status]
    backlog: Callable[[], Mapping[str, Backlog]]

    @property
    def readable(self) -> bool:
        return self.state in ("running", "not running")


def app_picture(told: Told, clock: Clock) -> AppPicture:
    """An app. What waits for it is not asked while epochs run: only their own thread may."""
    status = told.status()
    known = {view.name for view in status.views} | {source.name for source in status.sources}
    return AppPicture(
        status=status,
        state=told.state,
        now=clock.now(),
        declared={name: kind for name, kind in told.declared.items() if name not in known},
        waits=told.waits,
        waiting=told.backlog() if told.state == "not running" else {},
        error=None if told.error is None else _said(told.error),
    )


def view_picture(
    told: Told, name: str, read: Callable[[], Now], rows: int, before: Sample | None = None
) -> ViewPicture:
    """A view with its first rows; before: the picture before, to tell which are new."""
    epoch, frame, said = read()
    taken = [tuple(row) for row in frame.limit(rows + 1).collect()]
    shown = tuple(taken[:rows])
    new = fresh(before.rows, shown) if before is not None else frozenset()
    sample = Sample(tuple(frame.dtypes), shown, len(taken) > rows, new)
    notes = [each for each in (said, None if shown else "no rows") if each]
    return ViewPicture(name, told.name, epoch, sample, note="; ".join(notes) or None)


def declared_picture(
    told: Told,
    name: str,
    kind: str,
    frame: DataFrame,
    read: Callable[[], Now],
    plan: Callable[[], str],
    rows: int,
) -> ViewPicture:
    """What was declared: a view with its rows and its plan as soon as it has any, else its columns."""
    empty = ViewPicture(name, told.name, 0, Sample(tuple(frame.dtypes)), kind)
    if told.state == "closed":
        return _with_note(empty, "the app is closed; sl.read_view reads its views from the store")
    if kind == "source":
        return _with_note(empty, "a source: its rows are in the views that read it")
    if not told.readable:
        return _with_note(
            empty, "declared; computed when the app runs: app.run(until='caught_up') or app.start()"
        )
    try:
        picture = view_picture(told, name, read, rows)
        return ViewPicture(name, told.name, picture.epoch, picture.sample, kind, plan(), picture.note)
    except SlipstreamError as error:
        return _with_note(empty, str(error))


def _with_note(picture: ViewPicture, note: str) -> ViewPicture:
    return ViewPicture(
        picture.name, picture.app, picture.epoch, picture.sample, picture.kind, picture.plan, note
    )


def _said(error: BaseException) -> str:
    text = str(error) if isinstance(error, SlipstreamError) else f"{type(error).__name__}: {error}"
    return text if len(text) <= 2000 else f"{text[:1999]}…"
