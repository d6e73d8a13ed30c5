"""What was decoded, checked against its own annotations: a digest proves that a text is as it was written, not that it
makes sense.

Whoever decodes JSON makes a dataclass of it and passes it through `checked`. Numbers stay within 64 bits, and times are
finite, so that whoever computes with them, or seeks to them, meets nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

_LARGEST = 1 << 63

T = TypeVar("T")
Wrong = tuple[str, Any]
"""Where something is not what it should be, and what is there."""
Shape = Callable[[Any], Wrong | None]


def checked(made: T) -> T:
    """A dataclass whose fields are all what they are annotated as, down to the last; ValueError if one is not."""
    kind: Any = type(made)
    wrong = _shape(kind)(made)
    if wrong is not None:
        where, value = wrong
        raise ValueError(f"{kind.__name__}{where} is {str(value)[:60]!r}")
    return made


@cache
def _shape(kind: Any) -> Shape:
    """What tells whether a value is of a kind; made once, for records are many."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return lambda value: None
    if isinstance(kind, type) and is_dataclass(kind):
        return _of_dataclass(kind)
    if isinstance(kind, UnionType):
        return _of_optional(inner)
    if origin is Literal:
        return lambda value: None if value in inner else ("", value)
    if origin is tuple:
        return _of_tuple(inner)
    if origin is not None and issubclass(origin, Mapping):
        return _of_mapping(_shape(inner[1]))
    if origin is not None:  # some other collection
        return _of_list(_shape(inner[0]))
    if kind is float:
        return _float
    return _int if kind is int else lambda value: None if type(value) is kind else ("", value)


def _of_dataclass(kind: type) -> Shape:
    types = get_type_hints(kind)
    shapes = [(field.name, _shape(types[field.name])) for field in fields(kind)]

    def shape(value: Any) -> Wrong | None:
        if type(value) is not kind:
            return "", value
        for name, each in shapes:
            if (wrong := each(getattr(value, name))) is not None:
                return f".{name}{wrong[0]}", wrong[1]
        return None

    return shape


def _of_optional(kinds: tuple[Any, ...]) -> Shape:
    shape = _shape(next(each for each in kinds if each is not NoneType))
    if NoneType not in kinds:
        return shape
    return lambda value: None if value is None else shape(value)


def _of_tuple(kinds: tuple[Any, ...]) -> Shape:
    if kinds[-1] is Ellipsis:
        each = _of_list(_shape(kinds[0]))
        return lambda value: each(value) if isinstance(value, tuple) else ("", value)
    shapes = [_shape(kind) for kind in kinds]

    def shape(value: Any) -> Wrong | None:
        if not isinstance(value, tuple) or len(value) != len(shapes):
            return "", value
        for i, (part, each) in enumerate(zip(value, shapes, strict=True)):
            if (wrong := each(part)) is not None:
                return f"[{i}]{wrong[0]}", wrong[1]
        return None

    return shape


def _of_many(kinds: Any, parts: Callable[[Any], Iterable[tuple[Any, Any]]], place: str, each: Shape) -> Shape:
    """Of a collection of one of some kinds, whose parts, with their places, are all of a shape."""

    def shape(value: Any) -> Wrong | None:
        if not isinstance(value, kinds):
            return "", value
        for at, part in parts(value):
            if (wrong := each(part)) is not None:
                return f"{place.format(at)}{wrong[0]}", wrong[1]
        return None

    return shape


def _of_mapping(each: Shape) -> Shape:
    return _of_many(Mapping, lambda value: value.items(), ".{}", each)


def _of_list(each: Shape) -> Shape:
    return _of_many((list, tuple), enumerate, "[{}]", each)


def _int(value: Any) -> Wrong | None:
    return None if type(value) is int and -_LARGEST <= value < _LARGEST else ("", value)


def _float(value: Any) -> Wrong | None:
    right = type(value) in (int, float) and math.isfinite(value) and abs(value) < _LARGEST
    return None if right else ("", value)
