"""A folder of files: Parquet, JSON lines or CSV.

With `changes` each delivery is a file more; with `replace` there is one file, which each delivery replaces. A delivery
is committed by a *manifest*, `_slipstream/N.json`, made with a name that must not be there yet: it holds the stamp,
and says which file that is still set aside is to be where. Only then is the file moved to its place, by whoever comes
first: the one who committed, or after a crash the next one. So whoever reads the folder sees no file that was not
committed, none twice, and (Spark and others pass over names that begin with `_`) nothing else. Two that deliver at
once want the same number; one of them gets it.

The manifests before the newest are of no use to anybody, and go. One who was succeeded long ago might take such a
number again: so whoever has made a manifest looks whether it is the newest, and only then counts it as made.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, get_args

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq

from slipstream.core.errors import (
    BadSinkOption,
    DamagedStamp,
    TargetColumns,
    TargetFenced,
    TargetNotOurs,
)
from slipstream.sinks.base import Append, Delivery, Mode, Replace, Sink, Stamp, told

Format = Literal["parquet", "json", "csv"]

_OWN = "_slipstream"
_ROWS = "rows"


@dataclass(frozen=True)
class FolderSink(Sink):
    """See the module's docstring; made by `to_folder`."""

    path: Path = Path()
    format: Format = "parquet"
    kind: str = field(default="folder", init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.format not in get_args(Format):
            known = ", ".join(map(repr, get_args(Format)))
            raise BadSinkOption(f"to_folder(format={self.format!r})", f"give one of {known}")
        if self.mode == "upsert":
            raise BadSinkOption(
                "to_folder(mode='upsert'): rows in files are not replaced one by one",
                "use mode='replace' for what is, 'changes' for a log, or to_delta",
            )

    @property
    def shown(self) -> str:
        return str(self.path)

    def opened(self, name: str) -> FolderTarget:
        return FolderTarget(name, self)


@dataclass(frozen=True)
class Manifest:
    """A commit: its number, the stamp, which file, set aside until then, is to be where, and whether no other is to be
    there then.
    """

    number: int
    stamp: Stamp
    moved: tuple[str, str] | None
    alone: bool
    columns: tuple[str, ...]

    def encode(self) -> bytes:
        moved = None if self.moved is None else list(self.moved)
        body = {
            "stamp": self.stamp.encode(),
            "moved": moved,
            "alone": self.alone,
            "columns": list(self.columns),
        }
        return json.dumps(body).encode()

    @staticmethod
    def decode(number: int, raw: bytes, where: str) -> Manifest:
        try:
            match json.loads(raw):
                case {"stamp": str(stamp), "moved": moved, "alone": bool(alone), "columns": list(columns)}:
                    found = Stamp.decode(stamp, where)
                    return Manifest(number, found, _moved(moved), alone, tuple(map(str, columns)))
        except ValueError:
            pass
        raise DamagedStamp(where)


class FolderTarget:
    """A folder that one sink writes."""

    def __init__(self, name: str, sink: FolderSink) -> None:
        self._name, self._sink = name, sink
        self._root, self._own = sink.path, sink.path / _OWN

    def stamp(self) -> Stamp | None:
        newest = self._newest()
        if newest is None:
            self._check_empty()
            return None
        self._settle(newest)
        return newest.stamp

    def deliver(self, delivery: Delivery) -> None:
        newest = self._newest()
        found = None if newest is None else newest.stamp
        if found != delivery.before:
            raise TargetFenced(self._name, self._sink.shown, told(found))
        if newest is None:
            self._check_empty()
        else:
            self._settle(newest)
        self._own.mkdir(parents=True, exist_ok=True)
        number, columns = 1 if newest is None else newest.number + 1, () if newest is None else newest.columns
        moved, alone = None, isinstance(delivery.work, Replace)
        if delivery.work is not None:
            columns = tuple(f"{field.name}: {field.type}" for field in delivery.schema)
            if (
                newest is not None
                and newest.columns not in ((), columns)
                and isinstance(delivery.work, Append)
            ):
                why = f"its columns were {', '.join(newest.columns)} and are {', '.join(columns)} now"
                raise TargetColumns(self._name, self._sink.shown, why)
            moved = self._set_aside(delivery, number)
        manifest = Manifest(number, delivery.after, moved, alone, columns)
        self._commit(manifest)
        self._settle(manifest)

    def close(self) -> None:
        pass

    # Inside

    def _check_empty(self) -> None:
        """Files that no sink wrote are not mixed with what one does."""
        if self._root.exists() and not self._root.is_dir():
            raise TargetNotOurs(self._name, self._sink.shown, "it is no folder")
        others = [] if not self._root.is_dir() else sorted(each.name for each in self._root.iterdir())
        if any(name != _OWN for name in others):
            raise TargetNotOurs(self._name, self._sink.shown, f"has files that no sink wrote ({others[0]})")

    def _newest(self) -> Manifest | None:
        while True:
            number = max(self._numbers(), default=0)
            if not number:
                return None
            path = self._own / f"{number}.json"
            try:
                return Manifest.decode(number, path.read_bytes(), str(path))
            except FileNotFoundError:  # a later one came, and this went
                continue

    def _numbers(self) -> Iterator[int]:
        with suppress(FileNotFoundError, NotADirectoryError):
            for each in self._own.iterdir():
                if each.suffix == ".json" and each.stem.isdecimal():
                    yield int(each.stem)

    def _set_aside(self, delivery: Delivery, number: int) -> tuple[str, str]:
        """Write rows to a file that nobody reads; its name, and the name that it is to have."""
        assert isinstance(delivery.work, Append | Replace), "a folder takes no rows by key"
        suffix, tables = self._sink.format, delivery.work.tables
        aside = f"{uuid.uuid4().hex}.{suffix}"
        is_log = self._sink.mode == "changes"
        place = f"{delivery.after.epoch:012d}-{number}.{suffix}" if is_log else f"{_ROWS}.{suffix}"
        with (self._own / aside).open("wb") as file:
            _WRITERS[self._sink.format](file, delivery.schema, tables())
            file.flush()
            os.fsync(file.fileno())
        return aside, place

    def _commit(self, manifest: Manifest) -> None:
        """Make a manifest under a number that must not be there yet."""
        aside, path = self._own / f"{uuid.uuid4().hex}.new", self._own / f"{manifest.number}.json"
        with aside.open("wb") as file:
            file.write(manifest.encode())
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(aside, path)
        except FileExistsError:
            raise TargetFenced(self._name, self._sink.shown, "it was quicker") from None
        finally:
            aside.unlink()
        if max(self._numbers(), default=0) != manifest.number:
            path.unlink(missing_ok=True)
            raise TargetFenced(self._name, self._sink.shown, "it went on long ago")
        _flush_folder(self._own)

    def _settle(self, manifest: Manifest) -> None:
        """Do what a manifest says, if that is not done yet, and remove what is of no use any more."""
        if manifest.moved is not None:
            aside, place = manifest.moved
            with suppress(FileNotFoundError):  # it is there already
                (self._own / aside).rename(self._root / place)
                _flush_folder(self._root)
            if manifest.alone:
                self._only(place)
        for each in self._own.iterdir():
            older = each.suffix == ".json" and each.stem.isdecimal() and int(each.stem) < manifest.number
            if older or each.suffix != ".json":
                each.unlink(missing_ok=True)

    def _only(self, place: str) -> None:
        """Remove what was written before the folder was written anew."""
        for each in self._root.iterdir():
            if each.name not in (place, _OWN):
                each.unlink()


def _moved(said: Any) -> tuple[str, str] | None:
    """File names, and no ways out of the folder."""
    if said is None:
        return None
    aside, place = map(str, said)
    if any(name != Path(name).name or not name for name in (aside, place)):
        raise ValueError("no names of files")
    return aside, place


def _flush_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _parquet(file: Any, schema: pa.Schema, tables: Iterator[pa.Table]) -> None:
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for table in tables:
            writer.write_table(table)


def _csv(file: Any, schema: pa.Schema, tables: Iterator[pa.Table]) -> None:
    with csv.CSVWriter(file, schema) as writer:
        for table in tables:
            writer.write_table(table)


def _json(file: Any, schema: pa.Schema, tables: Iterator[pa.Table]) -> None:
    for table in tables:
        for row in table.to_pylist():
            file.write(json.dumps(row, default=_plain, ensure_ascii=False).encode() + b"\n")


def _plain(value: Any) -> Any:
    """What JSON has no word for, as text."""
    match value:
        case datetime() | date() | time():
            return value.isoformat()
        case Decimal():
            return str(value)
        case bytes():
            return value.hex()
    return str(value)


_WRITERS: Mapping[Format, Callable[[Any, pa.Schema, Iterator[pa.Table]], None]] = {
    "parquet": _parquet,
    "json": _json,
    "csv": _csv,
}


def to_folder(path: str | Path, format: Format = "parquet", mode: Mode = "changes") -> FolderSink:  # noqa: A002
    """Files in a local folder, which is made if it is not there.

    mode: "changes" is a file more for each delivery, with the columns `_epoch` and `_diff`; "replace" is one file,
    `rows`, that is always the whole view.
    """
    if "://" in str(path):
        raise BadSinkOption(
            f"to_folder({str(path)!r}): it is no local folder", "use to_delta for object stores"
        )
    return FolderSink(mode=mode, path=Path(path), format=format)
