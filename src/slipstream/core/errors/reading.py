"""What a reader cannot be shown."""

from __future__ import annotations

from slipstream.core.errors.base import SlipstreamError, when


class HistoryForgotten(SlipstreamError):
    """The updates asked for were collapsed: history does not reach back that far."""

    def __init__(self, directory: str, since: int, until: int, reaches: int) -> None:
        self.reaches = reaches
        super().__init__(
            f"The changes after epoch {since} up to {until} in '{directory}' are not all kept: history reaches back "
            f"only to epoch {reaches}. Ask for changes since {reaches} or later, or keep a longer history."
        )


class HistoryLost(SlipstreamError):
    """History that was never let go is not there."""

    def __init__(self, store: str, view: str, asked: int, kept: int, left: int) -> None:
        super().__init__(
            f"The history of '{view}' in the store '{store}' before epoch {left} is lost or damaged: epoch {asked} was "
            f"asked for, and history was kept from epoch {kept} on. `slipstream fsck {store} --repair` brings it back "
            f"if a replica has it; epoch {left} and later ones can be read."
        )


class HistoryBegins(SlipstreamError):
    """An epoch before the history of a view begins."""

    def __init__(self, view: str, asked: int, since: int) -> None:
        super().__init__(
            f"The history of '{view}' begins with epoch {since}: the view was added, or computed anew, after that "
            f"epoch, and epoch {asked} was asked for. Ask for epoch {since} or later."
        )


class PastGone(HistoryBegins):
    """What a view was before it was replaced is not in this store, or not all of it."""

    def __init__(self, store: str, view: str, asked: int, since: int, *, part: bool) -> None:
        what = "only in part in" if part else "not in"
        SlipstreamError.__init__(
            self,
            f"What '{view}' was before it was computed anew at epoch {since} is {what} the store '{store}', and "
            f"epoch {asked} was asked for. It is in the store that it ran in, and never on replicas: it is lost with "
            f"that store, or damaged, which `slipstream fsck {store}` tells. Epoch {since} and later ones can be read.",
        )


class HeldElsewhere(SlipstreamError):
    """What a held view showed is not in this store, or not all of it."""

    def __init__(self, store: str, view: str, last: int, *, part: bool) -> None:
        what = "only in part in" if part else "not in"
        super().__init__(
            f"'{view}' is held, and what it showed as of epoch {last} is {what} the store '{store}'. It is in the "
            "store that it was held in, and never on replicas: it is lost with that store, or damaged, which "
            f"`slipstream fsck {store}` tells. Once it is mended it is computed anew."
        )


class ColumnsReplaced(SlipstreamError):
    def __init__(self, view: str, epoch: int) -> None:
        super().__init__(
            f"the columns of '{view}' became others at epoch {epoch}, when its query was replaced, so there is no one "
            f"table of changes across that epoch. Ask for changes up to epoch {epoch - 1}, or since epoch {epoch}."
        )


class UnknownSchema(SlipstreamError):
    """A trace with no layer yet cannot say what its columns are."""

    def __init__(self, directory: str) -> None:
        super().__init__(
            f"The trace in '{directory}' has no layer to take a schema from. Give the reader its schema (schema=...)."
        )


class UnknownEpoch(SlipstreamError):
    """A point in time or an epoch that the store cannot show."""

    @staticmethod
    def before_first(clock: float, first: float | None) -> UnknownEpoch:
        if first is None:
            return UnknownEpoch("nothing has been computed yet: run the app first.")
        return UnknownEpoch(
            f"nothing had been computed at {when(clock)}: the first epoch was computed at {when(first)}. "
            "Ask for a later time."
        )

    @staticmethod
    def beyond(asked: int, frontier: int) -> UnknownEpoch:
        return UnknownEpoch(
            f"epoch {asked} is not there: the store is computed up to epoch {frontier}. "
            f"Ask for an epoch from 0 to {frontier}, or wait with app.await_epoch({asked})."
        )


class BadReadOption(SlipstreamError):
    def __init__(self, what: str) -> None:
        super().__init__(
            f"spark.read.format('slipstream'): {what.rstrip('.')}{'' if what.endswith('?') else '.'}"
        )


class HistoryLetGo(SlipstreamError):
    """An epoch whose history was let go, as was asked for."""

    def __init__(self, view: str, asked: int, kept: int) -> None:
        super().__init__(
            f"epoch {asked} of '{view}' is not kept any more: its history reaches back to epoch {kept}. Ask for epoch "
            f"{kept} or later, or keep more from now on with App(..., history=...)."
        )


class EndsBeforeItBegins(SlipstreamError):
    """Changes were asked for from an epoch on to one before it."""

    def __init__(self, view: str, since: int, until: int) -> None:
        super().__init__(
            f"the changes of '{view}' were asked for since epoch {since} until epoch {until}, which comes before it. "
            f"Ask for since={until}, until={since}."
        )
