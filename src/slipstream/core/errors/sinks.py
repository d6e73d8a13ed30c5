"""What is wrong with a sink or with its target."""

from __future__ import annotations

from collections.abc import Iterable

from slipstream.core.errors.base import SlipstreamError, first_line, listed


class SinkWarning(UserWarning):
    """A sink has not delivered what there is; the app goes on without waiting for it."""


class BadSinkOption(SlipstreamError):
    """A sink was declared with options that make no sense."""

    def __init__(self, wrong: str, remedy: str) -> None:
        super().__init__(f"A sink cannot be made: {wrong}. To do: {remedy}.")


class UnknownSink(SlipstreamError):
    """A sink that is not declared."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(f"There is no sink '{name}'. There are: {listed(known)}.")


class MissingLibrary(SlipstreamError):
    """A connector needs a library that is not installed."""

    def __init__(self, what: str, library: str, extra: str) -> None:
        super().__init__(
            f"{what} needs the library '{library}'. To do: pip install 'slipstream[{extra}]', or '{library}' alone."
        )


class SinkStopped(SlipstreamError):
    """A sink cannot go on by itself; trying again would not help. Base of what says why."""


class KeyNotUnique(SinkStopped):
    """A view has two rows with one key of a sink that keeps a row for each key."""

    def __init__(self, sink: str, view: str | None, key: str) -> None:
        whose = "its view" if view is None else f"view '{view}'"  # a target does not know it
        super().__init__(
            f"Sink '{sink}': {whose} has several rows with the key {key}, and the target keeps one for each. "
            f"Name columns in key= that tell its rows apart, or use mode='changes' or 'replace'."
        )


class NoKey(SinkStopped):
    """A row has no value in a key column of a sink."""

    def __init__(self, sink: str, view: str, column: str) -> None:
        super().__init__(
            f"Sink '{sink}': view '{view}' has a row whose key column '{column}' is NULL, and a key must have a value. "
            f"Leave such rows out in the view's query, or give them one: coalesce({column}, ...)."
        )


class TargetOfAnother(SinkStopped):
    """A target that somebody else writes."""

    def __init__(self, sink: str, target: str, whose: str) -> None:
        super().__init__(
            f"Sink '{sink}': {target} is written by {whose}. Give this sink a target of its own, or drop that one's "
            f"rows and stamp with app.reset_sink('{sink}')."
        )


class TargetNotOurs(SinkStopped):
    """A target that is there, with rows or columns that no sink has written."""

    def __init__(self, sink: str, target: str, found: str) -> None:
        super().__init__(
            f"Sink '{sink}': {target} is there already, and {found}. Give the sink a target of its own, or one that is "
            f"empty and has the view's columns."
        )


class TargetFenced(SlipstreamError):
    """A target is not where it was: somebody else has written its stamp. Whose it is by now is to be found out."""

    def __init__(self, sink: str, target: str, found: str) -> None:
        super().__init__(f"Sink '{sink}': another engine has written {target} meanwhile ({found}).")


class TargetTaken(SinkStopped):
    """A later start of the app has taken a target over."""

    def __init__(self, sink: str, target: str, epoch: int, incarnation: int) -> None:
        super().__init__(
            f"Sink '{sink}': a later start of the app (incarnation {incarnation}, epoch {epoch}) writes {target}; this "
            f"one delivers nothing more."
        )


class TargetOfAnotherForm(SinkStopped):
    """A target that was written in another mode, or by another key."""

    def __init__(self, sink: str, target: str, was: str, now: str) -> None:
        super().__init__(
            f"Sink '{sink}': {target} was written with {was}, and is to be written with {now}. Declare it as it was, "
            f"write it anew with app.reset_sink('{sink}'), or give the sink another target."
        )


class TargetAhead(SinkStopped):
    """A target has epochs that this history does not have, or that were other ones."""

    def __init__(self, sink: str, target: str, epoch: int, why: str) -> None:
        super().__init__(
            f"Sink '{sink}': {target} has epoch {epoch}, {why}. What it shows cannot be taken back row by row: "
            f"app.reset_sink('{sink}') writes it anew as of now."
        )


class TargetBehind(SinkStopped):
    """What a target lacks was let go."""

    def __init__(self, sink: str, target: str, epoch: int, why: str) -> None:
        super().__init__(
            f"Sink '{sink}': {target} has epoch {epoch}, and what came after it was let go ({first_line(why)}) "
            f"app.reset_sink('{sink}') writes it anew as of now; a longer hold= keeps more for a sink that is behind."
        )


class TargetColumns(SinkStopped):
    """A view's columns are not those of a target, and cannot be made so."""

    def __init__(self, sink: str, target: str, why: str) -> None:
        super().__init__(
            f"Sink '{sink}': {why}, so {target} cannot take the view's rows. Write it anew with "
            f"app.reset_sink('{sink}') after it was removed, or give the sink another target."
        )


class TargetRefuses(SinkStopped):
    """A row that a target cannot store."""

    def __init__(self, sink: str, target: str, why: str) -> None:
        super().__init__(
            f"Sink '{sink}': {target} cannot take a row of the view: {why.rstrip('. ')}. Have the view's query give "
            f"another value or leave the row out, or change the target; then call app.reset_sink('{sink}')."
        )


class TargetBusy(SlipstreamError):
    """Somebody else holds a target, and may soon be done: the sink tries again."""

    def __init__(self, sink: str, target: str, who: str, remedy: str) -> None:
        super().__init__(
            f"Sink '{sink}': {target} is held by {who}; this is tried again. If that one does nothing any more: "
            f"{remedy}."
        )


class DamagedStamp(SinkStopped):
    """What a target says of its progress cannot be read."""

    def __init__(self, where: str) -> None:
        super().__init__(
            f"What {where} says of its progress is not what a sink wrote. Restore it, or remove the target: then it is "
            f"written anew."
        )
