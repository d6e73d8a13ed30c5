"""What is wrong with a view, with how it is declared or with how it is changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from slipstream.core.errors.base import SlipstreamError, first_line, listed


class SumOverflow(SlipstreamError):
    """A sum of whole numbers went out of a 64-bit integer's range, under ANSI mode."""

    def __init__(self, about: float) -> None:
        super().__init__(
            f"[ARITHMETIC_OVERFLOW] a sum of whole numbers is about {about:.3g}, beyond the range of BIGINT. "
            "Cast the argument to DECIMAL(38, 0), or set spark.sql.ansi.enabled=false to let it wrap round."
        )


class HeldWarning(UserWarning):
    """A view that is read is held, so it is not as of the newest epoch."""

    def __init__(self, view: str, last: int, cause: str, row: str, because: str) -> None:
        why = f"because '{because}' is, which it reads" if because else f"and fails: {cause}\n{row}".rstrip()
        super().__init__(
            f"the view '{view}' is held, {why}\nIt is shown as of epoch {last}. It goes on once that is mended: by its "
            f"input, with app.view(..., replace=True), or in the program; app.rebuild({because or view!r}) tries again."
        )


class HoldNeedsInput(SlipstreamError):
    """A view that is to be held if it fails reads input that is forgotten, so it could never catch up."""

    def __init__(self, view: str, source: str) -> None:
        super().__init__(
            f"view '{view}' was declared with on_error='hold', and reads source '{source}', which forgets its input "
            "once it is safe, and keeps no rows. A held view catches up by being computed anew from all that was "
            f"taken, and that would be gone. Write app.source('{source}', ..., keep=True), or leave out "
            "on_error='hold'."
        )


class BadQuery(SlipstreamError):
    """Spark cannot take the query of a view."""

    def __init__(self, view: str, said: str) -> None:
        self.said = said
        super().__init__(f"view '{view}': Spark cannot take its query. {said}")


class NotAQuery(SlipstreamError):
    """The SQL text of a view does something, where it should ask for rows."""

    def __init__(self, view: str, what: str) -> None:
        super().__init__(
            f"view '{view}': its SQL is no query ({what}), and was not run. Write a SELECT here, and give commands to "
            "spark.sql(...)."
        )


class CannotMaintain(SlipstreamError):
    """A query, or a part of it, that cannot be kept up to date incrementally."""

    def __init__(self, view: str, what: str, why: str, instead: str) -> None:
        self.view, self.what, self.why = view, what, why
        super().__init__(f"view '{view}': cannot maintain {what}: {why}. Instead: {instead}.")


class BadViewOption(SlipstreamError):
    def __init__(self, given: str, known: Iterable[str]) -> None:
        super().__init__(f"app.view was given {given}. There are: {', '.join(known)}.")


class StandingBy(SlipstreamError):
    """An app that stands by for another process was asked to run or to read."""

    def __init__(self, store: str) -> None:
        super().__init__(
            f"this process stands by for the engine that has the store '{store}': until it takes over, its app can "
            "be declared, and neither run nor read. In a file for `slipstream run`, put what reads views under "
            '`if __name__ == "__main__":`.'
        )


class EpochFailed(SlipstreamError):
    """An epoch's job failed. `views`: those that failed of themselves, if that could be found out."""

    def __init__(
        self,
        epoch: int,
        frontier: int,
        causes: Mapping[str, str],
        log: str | None = None,
        rows: Mapping[str, str] | None = None,
    ) -> None:
        """causes: by view, or of none in particular. log: the file that has the whole story. rows: on which row a view
        fails, where that is known.
        """
        self.causes, self.rows = dict(causes), dict(rows or {})
        self.views = tuple(view for view in causes if view)
        where = (
            f" in {'view' if len(self.views) == 1 else 'views'} {listed(self.views)}" if self.views else ""
        )
        told = "\n".join(
            f"Cause{f' in {view}' if view else ''}: {(cause + self.rows.get(view, '')).rstrip()}"
            for view, cause in causes.items()
        )
        story = f"\nThe whole story is in {log}." if log is not None else ""
        super().__init__(
            f"epoch {epoch} failed{where}; the app stays at epoch {frontier} and nothing is lost. Mend what the cause "
            f"below names and run again: the same input is taken again.\n{told}{story}"
        )


class BadName(SlipstreamError):
    def __init__(self, name: str) -> None:
        super().__init__(
            f"'{name}' cannot name a source or view. Use letters, digits and underscores, starting with a letter."
        )


class LongName(SlipstreamError):
    def __init__(self, name: str, longest: int) -> None:
        super().__init__(
            f"'{name[:40]}...' is a name of {len(name.encode())} bytes, and a source or view can have {longest}."
        )


class NameTaken(SlipstreamError):
    def __init__(self, name: str, kind: str, instead: str | None = None) -> None:
        also = "" if instead is None else f", or {instead}"
        super().__init__(f"there is a {kind} named '{name}' already. Give this one another name{also}.")


class StillRead(SlipstreamError):
    def __init__(self, name: str, readers: Iterable[str]) -> None:
        super().__init__(f"'{name}' cannot be dropped: it is read by {listed(readers)}. Drop these first.")


class ReaderBroken(SlipstreamError):
    """A view that reads one that is to be replaced makes no sense any more."""

    def __init__(self, replaced: str, reader: str, cause: str) -> None:
        super().__init__(
            f"'{replaced}' cannot be replaced: '{reader}' reads it, and does not work with the new query: "
            f"{first_line(cause)} Nothing was changed. Drop '{reader}' first, or have it read what both queries have."
        )


class OnItsWay(SlipstreamError):
    """A view that is declared and not there yet."""

    def __init__(self, view: str) -> None:
        super().__init__(
            f"the view '{view}' is still being computed over the input of earlier epochs, beside the others. Wait for "
            "it with app.await_views()."
        )


class ChangeFailed(SlipstreamError):
    """Views that were declared while the app ran could not be taken up."""

    def __init__(self, views: Iterable[str], cause: str, *, known: bool = False) -> None:
        """known: whether it is these that are at fault; else they are all that was declared."""
        named = f" ({listed(views)})" if (views := list(views)) else ""
        self.at_fault = frozenset(views if known else ())
        super().__init__(
            f"what was declared last could not be taken up{named}, and the app goes on as it was: {cause} "
            "Declare it again with replace=True once it is mended, or take it back with app.drop(...)."
        )


class WaitsForItself(SlipstreamError):
    """Something that is called in the thread that runs epochs waits for what that thread would do next."""

    def __init__(self, app: str) -> None:
        super().__init__(
            f"the thread that runs the epochs of '{app}' would wait for itself: this was called by a function given to "
            "on_epoch, on_turn or on_notice. Wait in another thread."
        )


class ChangeHalfDone(SlipstreamError):
    """A change of an app failed where it can not be taken back."""

    def __init__(self, store: str, cause: str) -> None:
        super().__init__(
            f"a change of the app in {store} was cut short half-way: {cause} Close the app and start it again: it goes "
            "on from there."
        )


class UnknownView(SlipstreamError):
    def __init__(self, name: str, known: Iterable[str], what: str = "view") -> None:
        super().__init__(f"there is no {what} named '{name}'. There are: {listed(known)}.")


class UnknownInput(SlipstreamError):
    """A view is asked for that waits for an input, or would wait for one."""

    def __init__(self, view: str, awaited: str, known: Iterable[str], *, computed: bool = False) -> None:
        """computed: whether the store has the view already."""
        kept = (
            f" The store has rows and history of '{view}', which would be dropped: app.drop('{view}') has that done."
            if computed
            else ""
        )
        super().__init__(
            f"view '{view}' waits for {awaited}, which is no source or view of this app. There are: {listed(known)}. "
            f"Declare it with app.source or app.view, or correct the name.{kept}"
        )


class WaitingWarning(UserWarning):
    """An app runs without views that wait for an input."""

    def __init__(self, app: str, waits: Mapping[str, str]) -> None:
        told = "; ".join(f"'{view}' waits for {awaited}" for view, awaited in waits.items())
        super().__init__(
            f"{app}: not all views are computed: {told}. Declare what is missing with app.source or app.view, or "
            "correct the name. The other views run."
        )


class ViewCycle(SlipstreamError):
    def __init__(self, path: list[str]) -> None:
        super().__init__(
            f"views read each other in a circle: {' -> '.join(path)}. A view can only read sources and views that "
            "do not read it; break the circle."
        )


class ViewChanged(SlipstreamError):
    def __init__(
        self,
        store: str,
        changed: Mapping[str, Iterable[str]],
        added: Iterable[str],
        readers: Iterable[str],
        reused: Iterable[str],
    ) -> None:
        """changed: what is known of why, for each view that means something else."""
        reasons = {name: "; ".join(changed[name]) for name in sorted(changed)}
        told = ", ".join(f"'{name}' ({why})" if why else f"'{name}'" for name, why in reasons.items())
        options = " ".join(f"--rebuild {name}" for name in sorted(changed))
        super().__init__(
            f"the store '{store}' was computed with other queries. Changed: {told or 'none'}; new: {listed(added)}; "
            f"views that read these: {listed(readers)}; unchanged, and going on: {listed(reused)}. State of one query "
            "is never used for another: restore what changed, or have it replaced, which computes all but the "
            "unchanged anew: `slipstream plan FILE.py` says what that takes, and `slipstream run FILE.py --replace` "
            f"(or `{options}`, or app.view(..., replace=True)) does it."
        )


class AppClosed(SlipstreamError):
    def __init__(self, app: str, store: str) -> None:
        super().__init__(
            f"the app '{app}' is closed. Open it again with App('{app}', store='{store}'); its views can also be read "
            f"without it: sl.read_view('{store}', VIEW)."
        )


class AppRuns(SlipstreamError):
    """A second run is asked for while one is under way."""

    def __init__(self, app: str) -> None:
        super().__init__(
            f"the app '{app}' runs already, in another thread. Wait for what it computes with app.await_epoch(EPOCH), "
            "or end that run with app.stop() first."
        )


class NoFrame(SlipstreamError):
    """A view's function did not return a DataFrame."""

    def __init__(self, view: str, got: object) -> None:
        kind = "nothing" if got is None else f"something else ({type(got).__name__})"
        hint = {
            "NoneType": "Is a `return` missing?",
            "GroupedData": "End it with .agg(...), such as .agg(F.count('*')).",
            "Column": "Select it from its DataFrame: frame.select(column).",
        }.get(type(got).__name__, "Return what spark.sql(...) or a method of one of its inputs gives.")
        super().__init__(f"view '{view}': its function must return a DataFrame, and returned {kind}. {hint}")


class SourceStays(SlipstreamError):
    """A source was to be dropped."""

    def __init__(self, name: str, readers: Iterable[str]) -> None:
        super().__init__(
            f"'{name}' is a source, and only views are dropped. Nothing is taken of a source that no view reads; it is "
            f"gone from the next start at which the program does not declare it. It is read by {listed(readers)}."
        )


class IsASource(SlipstreamError):
    """A source was asked for as if it were a view."""

    def __init__(self, name: str, views: Iterable[str]) -> None:
        super().__init__(
            f"'{name}' is a source, whose rows are read by views and not kept. Declare a view to read it, such as "
            f"app.view('all_{name}', 'SELECT * FROM {name}'). The views are: {listed(views)}."
        )


class Placeholder(SlipstreamError):
    """Rows were asked for of what only stands for a source or a view."""

    def __init__(self, name: str, kind: str, asked: str) -> None:
        remedy = (
            f"app.read('{name}').{asked}, after app.run(until='caught_up')"
            if kind == "view"
            else f"a view of it, such as app.view('all_{name}', 'SELECT * FROM {name}'), and read that"
        )
        super().__init__(
            f".{asked} was called on what stands for the {kind} '{name}' in queries, and has no rows. Call {remedy}."
        )


class AsksForRows(SlipstreamError):
    """A view's function runs a job over what stands for its inputs."""

    def __init__(self, view: str) -> None:
        super().__init__(
            f"The function of the view '{view}' asks for rows while the view is declared, when there are none: "
            ".pivot() without values, .crosstab(), .transpose(), .collect() and the like do. Name the values that "
            f"become columns, .pivot('c', ['x', 'y']), or compute this where the view is read: app.read('{view}')."
        )
