"""Where results go: a sink follows a view's log with a frontier of its own, and writes what changed into a *target*.

**Exactly once, by the target's own transaction.** With the rows, in one transaction, a target takes a *stamp*: which
sink of which app wrote it, up to which epoch, in which incarnation. How far a target is is read from the target, never
from a file of ours. Whoever delivers says which stamp it expects to find, and the transaction fails if there is
another: so an engine that was succeeded, or is a second one, changes nothing.

**Forwarded lineage.** A stamp carries the cuts of the epochs whose lineage was not durable when it was written. Who has
seen an epoch's rows has what it was made of: a start that lost those records takes them from there, and computes the
same again (`app.delivering`). Once lineage is durable it is forwarded no more.

A delivery is one of three things, whatever the sink's mode:

| mode | first delivery, or after a reset | later |
| --- | --- | --- |
| `changes` | Replace: all rows, with that epoch and how often each | Append: every update, with its epoch and diff |
| `upsert` | Replace: all rows | Upsert: by key, what came, became another, and went |
| `replace` | Replace | Replace, where anything changed |

A target is used by one thread. What it raises is tried again after a pause, but for a `SinkStopped`.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, get_args

import pyarrow as pa

from slipstream.core.errors import BadSinkOption, DamagedStamp

Mode = Literal["changes", "upsert", "replace"]
JSON = Any
Tables = Callable[[], Iterator[pa.Table]]


@dataclass(frozen=True)
class Stamp:
    """What a target says of itself. app: the identity of the app, which outlives its name. cut: a digest of the cut of
    the epoch, by which two histories are told apart. form: in which mode, and by which key, it is written. lineage: the
    cuts that were not durable yet, oldest first.
    """

    app: str
    sink: str
    epoch: int
    incarnation: int
    cut: str = ""
    form: str = ""
    lineage: tuple[Mapping[str, JSON], ...] = ()

    def claimed(self, incarnation: int) -> Stamp:
        """The same progress, under a later incarnation."""
        return replace(self, incarnation=incarnation)

    def encode(self) -> str:
        return json.dumps({**vars(self), "lineage": list(self.lineage)}, separators=(",", ":"))

    @staticmethod
    def decode(text: str | bytes, where: str) -> Stamp:
        """What was written; an error that names the target where it is not."""
        try:
            match json.loads(text):
                case {
                    "app": str(app),
                    "sink": str(sink),
                    "epoch": int(epoch),
                    "incarnation": int(incarnation),
                    "cut": str(cut),
                    "form": str(form),
                    "lineage": list(lineage),
                } if all(isinstance(each, dict) for each in lineage):
                    return Stamp(app, sink, epoch, incarnation, cut, form, tuple(lineage))
        except ValueError:
            pass
        raise DamagedStamp(where)


@dataclass(frozen=True)
class Append:
    """Updates, in a log: the view's columns, `_epoch` and `_diff`."""

    tables: Tables


@dataclass(frozen=True)
class Replace:
    """All rows that the target is to have from now on. beside: whether `_epoch` and `_diff` are among the columns."""

    tables: Tables
    beside: bool


@dataclass(frozen=True)
class Upsert:
    """By key: rows that came, rows that took the place of others, and the keys of those that went."""

    inserted: pa.Table
    updated: pa.Table
    deleted: pa.Table


@dataclass(frozen=True)
class Delivery:
    """What a target is to be made. before: the stamp that it must have, None for none. after: the one that it has then.
    schema: of the rows. work: None where only the stamp becomes another.
    """

    before: Stamp | None
    after: Stamp
    schema: pa.Schema
    work: Append | Replace | Upsert | None = None


class Target(Protocol):
    """A connection to where a sink writes."""

    def stamp(self) -> Stamp | None:
        """What the target says of itself; None where it is not there, or empty and nobody's."""

    def deliver(self, delivery: Delivery) -> None:
        """All of it, or nothing. Makes the target if it is not there, adds columns that it lacks, and raises
        `TargetFenced` where its stamp is not the one that is expected.
        """

    def close(self) -> None:
        """Let go of what is held open."""


@dataclass(frozen=True)
class Sink(ABC):
    """Where a view's rows are to go, and how: what a user declares. kind: one word for it. exactly_once: whether the
    target takes rows and stamp in one transaction.
    """

    mode: Mode = "changes"
    key: tuple[str, ...] = ()
    kind: str = field(default="", init=False)
    exactly_once: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        if self.mode not in get_args(Mode):
            raise BadSinkOption(f"mode={self.mode!r}", f"give one of {', '.join(map(repr, get_args(Mode)))}")
        if self.mode == "upsert" and not self.key:
            raise BadSinkOption(
                "mode='upsert' without key=", "name the columns that tell the view's rows apart"
            )
        if self.mode != "upsert" and self.key:
            raise BadSinkOption(f"key= with mode={self.mode!r}", "leave it out, or give mode='upsert'")

    @property
    def form(self) -> str:
        """How the target is written, in words that a stamp has: one that was written otherwise is not gone on with."""
        return f"mode='{self.mode}'" + (f" and key={list(self.key)}" if self.key else "")

    @property
    def by_epoch(self) -> bool:
        """Whether each epoch is delivered by itself: where it may come twice, and its number is to tell."""
        return not self.exactly_once

    @property
    @abstractmethod
    def shown(self) -> str:
        """The target for people, without secrets."""

    @abstractmethod
    def opened(self, name: str) -> Target:
        """Connect to it, as the sink of this name. It makes nothing yet."""


def told(found: Stamp | None) -> str:
    """The stamp that a target has in place of another, for people."""
    if found is None:
        return "its stamp is gone"
    return f"epoch {found.epoch} by incarnation {found.incarnation}"


def keys_of(key: str | Sequence[str] | None) -> tuple[str, ...]:
    """Key columns, as they are given."""
    return () if key is None else (key,) if isinstance(key, str) else tuple(key)
