"""What an app is made of: sources and views, by name, and who reads whom.

A view may be declared before what it reads. It is analysed, and refused if it cannot be maintained, as soon
as all its inputs are known; until then it waits, and the app runs without it. No view reads itself, whatever
is declared later: what would close a circle is refused.
"""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Literal

from pyspark.sql import DataFrame

from slipstream.core.errors import BadName, LongName, NameTaken, NoFrame
from slipstream.plan.functions import digest
from slipstream.sources import Source

_LONGEST = 200
"""Bytes of a name: a view's traces are in a folder that is called so."""

Query = Callable[..., DataFrame]
Maintain = Literal["incremental", "recompute"]
OnError = Literal["stop", "hold"]


@dataclass(frozen=True)
class ViewDefinition:
    """One view: how to get its DataFrame from its inputs' DataFrames, in the order of `inputs`."""

    name: str
    inputs: tuple[str, ...]
    query: Query
    maintain: Maintain = "incremental"
    on_error: OnError = "stop"

    def frame(self, inputs: Iterable[DataFrame]) -> DataFrame:
        """What the query makes of its inputs."""
        made: object = self.query(*inputs)
        if not isinstance(made, DataFrame):
            raise NoFrame(self.name, made)
        return made


class Names:
    """The names in use, each for one thing."""

    def __init__(self) -> None:
        self._kinds: dict[str, str] = {}

    def take(self, name: str, kind: str) -> None:
        if (
            not isinstance(name, str)
            or not name.isidentifier()
            or keyword.iskeyword(name)
            or name.startswith("_")
        ):
            raise BadName(name)
        if len(name.encode()) > _LONGEST:
            raise LongName(name, _LONGEST)
        self.check_free(name)
        self._kinds[name] = kind

    def check_free(self, name: str) -> None:
        known = self.known_as(name)
        if known in self._kinds:
            raise NameTaken(known, self._kinds[known])

    def known_as(self, name: str) -> str:
        """The name as it was declared: Spark's names do not heed case. One that was not is itself."""
        return next((known for known in self._kinds if known.lower() == name.lower()), name)

    def __contains__(self, name: str) -> bool:
        return name in self._kinds

    def free(self, name: str) -> None:
        """Give up a name whose declaration was refused: it can be declared again."""
        del self._kinds[name]


def inputs_of(query: Query) -> tuple[str, ...]:
    """The names that a view's function reads: its parameters."""
    return tuple(inspect.signature(query).parameters)


def missing_inputs(waiting: Iterable[ViewDefinition], known: Collection[str]) -> dict[str, tuple[str, ...]]:
    """What nothing has the name of, for each view that waits for it: because it reads it, or a view that waits."""
    views = {view.name: view for view in waiting}

    def missing(name: str) -> dict[str, None]:
        if name in views:
            return {each: None for read in views[name].inputs for each in missing(read)}
        return {} if name in known else {name: None}

    return {name: tuple(missing(name)) for name in views}


def given_as(source: Source, *more: object) -> tuple[object, ...]:
    """What a source was given when it was made: two that were given the same are one. Functions and classes are the
    same if their code is, frames if they mean the same.
    """
    arguments, options = source.given
    return type(source).__qualname__, digest(type(source)), _told(arguments), _told(options), *more


def _told(value: object) -> object:
    match value:
        case Mapping():
            return sorted((name, _told(each)) for name, each in value.items())
        case list() | tuple():
            return [_told(each) for each in value]
        case Path():
            return str(value)
        case FunctionType() | type():
            return digest(value)
        case DataFrame():
            return value.semanticHash()
    return value
