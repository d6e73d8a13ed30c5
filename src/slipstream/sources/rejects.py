"""Why a row of a text file is bad, and on which line it stands.

Spark decides which rows are bad; it keeps no line numbers and gives no reasons. Both are worked out here, slowly,
and only for files in which bad rows were counted: `locate` walks once through such a file, beside its bad rows in the
order in which Spark read them. A row that could not be parsed is the next line with that very text. A row with
an operation that is not known is the next line with that operation, since every such line is bad.

Pure functions of text; `explain_batches` alone opens files, in a task.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

import pyarrow as pa

from slipstream.sources.operations import hinted

SHOWN = 60


@dataclass(frozen=True)
class TextLayout:
    """What is needed to understand a line: the format, the columns in file order, the reader's options."""

    format: str
    columns: tuple[tuple[str, str], ...]
    options: Mapping[str, str]
    mark: str | None
    """The diff or op column, whose value may be the reason."""

    def option(self, name: str, default: str) -> str:
        return next((value for key, value in self.options.items() if key.lower() == name.lower()), default)

    @property
    def has_lines(self) -> bool:
        return self.option("multiLine", "false").lower() != "true"

    def values(self, line: str) -> dict[str, object] | None:
        """The declared columns of a line, as they are written; None if it cannot be taken apart."""
        if self.format == "json":
            try:
                document = json.loads(line)
            except ValueError:
                return None
            return document if isinstance(document, dict) else None
        tokens = self.tokens(line)
        return {name: token for (name, _), token in zip(self.columns, tokens, strict=False)}

    def tokens(self, line: str) -> list[str]:
        """The values of a CSV line."""
        sep = self.option("sep", self.option("delimiter", ","))
        if len(sep) != 1:
            return line.split(sep)
        quote = self.option("quote", '"') or None
        quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if quote else csv.QUOTE_NONE
        escape = self.option("escape", "\\") or None
        return next(
            csv.reader([line], delimiter=sep, quotechar=quote, escapechar=escape, quoting=quoting), []
        )


@dataclass(frozen=True)
class Bad:
    """A bad row: its text if it could not be parsed, else the value of its diff or op column and the reason."""

    raw: str | None
    nulls: frozenset[str]
    mark: str | None
    reason: str | None


def reason(layout: TextLayout, bad: Bad) -> str:
    """Why the row is bad, in a few words."""
    if bad.reason is not None:
        return hinted(bad.reason) or ""
    raw = bad.raw or ""
    if layout.format == "csv":
        count, expected = len(layout.tokens(raw)), len(layout.columns)
        if count != expected:
            return f"{count} values for {expected} columns"
    values = layout.values(raw)
    if values is None:
        try:
            json.loads(raw)
        except ValueError:
            return "not valid JSON"
        return "not a JSON object"
    empty = {"", layout.option("nullValue", "")}
    for name, type_name in layout.columns:
        value = values.get(name)
        if name in bad.nulls and value is not None and not (layout.format == "csv" and value in empty):
            shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            return f"{name}: cannot be read as {type_name} from '{_short(shown)}'"
    return "does not fit the schema"


def locate(
    lines: Iterable[str], bad: Iterable[Bad], layout: TextLayout
) -> Iterator[tuple[int | None, str | None]]:
    """The line number, from 1, and the text of each bad row; None where the file does not have it (any more)."""
    numbered = enumerate(lines, start=1)
    for row in bad:
        yield next(
            ((number, line) for number, line in numbered if _is(line, row, layout)),
            (None, row.raw),
        )


def _is(line: str, bad: Bad, layout: TextLayout) -> bool:
    if bad.raw is not None:
        return line == bad.raw or line.strip() == bad.raw.strip()
    values = layout.values(line)
    if values is None or layout.mark is None:
        return False
    value = values.get(layout.mark)
    return (value or None) == bad.mark if layout.format == "csv" else value == bad.mark


def _short(text: str) -> str:
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


INPUT = "path string, raw string, nulls array<string>, mark string, reason string"
OUTPUT = "file string, line long, raw string, reason string"


def explain_batches(
    layout: TextLayout, declared: Sequence[str]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow`, from `INPUT` rows in file order to `OUTPUT` rows."""
    known = frozenset(declared)

    def explain(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (row for batch in batches for row in batch.to_pylist())
        for path, group in groupby(rows, key=lambda row: row["path"]):
            yield _explain_file(path, list(group), layout, known)

    return explain


def _explain_file(
    path: str, rows: Sequence[Mapping[str, Any]], layout: TextLayout, known: frozenset[str]
) -> pa.RecordBatch:
    bad = [Bad(row["raw"], frozenset(row["nulls"]) & known, row["mark"], row["reason"]) for row in rows]
    places: list[tuple[int | None, str | None]] = [(None, row.raw) for row in bad]
    if layout.has_lines:
        encoding = layout.option("encoding", layout.option("charset", "utf-8"))
        with pa.input_stream(path, compression="detect") as stream:
            text = io.TextIOWrapper(stream, encoding=encoding, errors="replace")
            places = list(locate((line.rstrip("\n") for line in text), bad, layout))
    return pa.RecordBatch.from_arrays(
        [
            pa.array([path] * len(bad), pa.string()),
            pa.array([line for line, _ in places], pa.int64()),
            pa.array([raw for _, raw in places], pa.string()),
            pa.array([reason(layout, row) for row in bad], pa.string()),
        ],
        names=["file", "line", "raw", "reason"],
    )
