"""What is wrong with a source or with what it reads."""

from __future__ import annotations

from collections.abc import Iterable

from slipstream.core.errors.base import SlipstreamError, first_line, listed


class BadWatermark(SlipstreamError):
    """A watermark on a column that cannot be an event time."""

    def __init__(self, where: str, wrong: str, known: Iterable[str]) -> None:
        columns = f" Its columns are {listed(known)}." if known else ""
        super().__init__(
            f"{where}: no watermark can be kept: {wrong}.{columns} Give a TIMESTAMP column and a delay, such as "
            f"('ts', '10 minutes')."
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


class ColumnOfAnotherType(SlipstreamError):
    """A file has a column of a type that cannot be read as the declared one."""

    def __init__(self, source: str, path: str, told: str) -> None:
        super().__init__(
            f"Source '{source}': the file {path} cannot be read with this schema=: {told}. Correct the schema=, take "
            "the file out of the folder, or declare on_bad='reject' to have it named in the view "
            f"'{source}_rejected'."
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
            f"Source '{source}': its table cannot be read: {first_line(cause)} To do: see that the table is there, "
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


class AnotherSource(SlipstreamError):
    """A source is declared under the name of one of another kind, whose input was taken."""

    def __init__(self, name: str, was: str, is_now: str) -> None:
        super().__init__(
            f"the source '{name}' is declared as sl.{is_now}, and was sl.{was} when its input was taken: that cannot "
            "be read again as the other. Declare the new one under a name of its own."
        )


class SourceClosed(SlipstreamError):
    def __init__(self, source: str) -> None:
        super().__init__(
            f"the app of the source '{source}' is closed: nothing was taken. Open the app again, with this source in "
            "it, and append then."
        )


class NotOfTheFormat(SlipstreamError):
    """A file is not of the format that its source declares."""

    def __init__(self, source: str, path: str, given: str, said: str) -> None:
        super().__init__(
            f"Source '{source}': {path} is not a file of the format {given} ({said}). Take it out of the folder, leave "
            "such files out with pattern=, or declare on_bad='reject' to have it named in the view "
            f"'{source}_rejected'."
        )
