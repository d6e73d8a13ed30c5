"""What was decoded, checked against its own annotations: a digest proves that a text is as it was written, not that it
makes sense.

Whoever decodes JSON makes a dataclass of it and passes it through `checked`. Numbers stay within 64 bits, and times are
finite, so that whoever computes with them, or seeks to them, meets nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

_LARGEST = 1 << 63

T = TypeVar("T")


def checked(made: T) -> T:
    """A dataclass whose fields are all what they are annotated as, down to the last; ValueError if one is not."""
    _check(type(made), made, type(made).__name__)
    return made


def _check(kind: Any, value: Any, where: str) -> None:
    if kind is Any:
        return
    origin, inner = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and is_dataclass(kind):
        _need(type(value) is kind, value, where)
        for name, each in _types(kind).items():
            _check(each, getattr(value, name), f"{where}.{name}")
    elif isinstance(kind, UnionType):
        if value is not None or NoneType not in inner:
            _check(next(each for each in inner if each is not NoneType), value, where)
    elif origin is Literal:
        _need(value in inner, value, where)
    elif origin is tuple:
        _need(isinstance(value, tuple), value, where)
        kinds = inner[:1] * len(value) if inner[-1] is Ellipsis else inner
        _need(len(kinds) == len(value), value, where)
        for i, (each, part) in enumerate(zip(kinds, value, strict=True)):
            _check(each, part, f"{where}[{i}]")
    elif origin is not None and issubclass(origin, Mapping):
        _need(isinstance(value, Mapping), value, where)
        for name, part in value.items():
            _check(inner[1], part, f"{where}.{name}")
    elif origin is not None:  # some other collection
        _need(isinstance(value, list | tuple), value, where)
        for i, part in enumerate(value):
            _check(inner[0], part, f"{where}[{i}]")
    elif kind is float:
        _need(type(value) in (int, float) and math.isfinite(value) and abs(value) < _LARGEST, value, where)
    else:
        _need(type(value) is kind, value, where)
        _need(kind is not int or -_LARGEST <= value < _LARGEST, value, where)


def _need(holds: bool, value: Any, where: str) -> None:
    if not holds:
        raise ValueError(f"{where} is {str(value)[:60]!r}")


@cache
def _types(kind: type) -> dict[str, Any]:
    names = {field.name for field in fields(kind)}
    return {name: each for name, each in get_type_hints(kind).items() if name in names}
