"""Nodes as text, for whoever reads or writes a rule: an operator a line, with all that lowering is given of it.

`explain` tells users what an operator costs and where its state is; this tells what it is. Expression ids, digests and
the numbers of placeholders are left out, so the text of a plan is the same in every process.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from slipstream.dataflow.sliding import Sliding
from slipstream.plan.catalyst import Catalyst, Expr
from slipstream.plan.nodes import Constant, Expand, Following, Key, Once, Op, Passing, Project, Source, Sums

_LEFT_OUT = {"plan", "leaf", "key", "view", "written", "kind"}
_TRACES = {"kept", "recorded"}


def printed(catalyst: Catalyst, op: Op) -> str:
    """An operator and all below it."""
    return "\n".join(_lines(catalyst, op, ""))


def _lines(catalyst: Catalyst, op: Op, margin: str) -> Iterator[str]:
    own = {each.name: getattr(op, each.name) for each in fields(op) if each.name not in _LEFT_OUT}
    told = [_told(catalyst, name, value) for name, value in own.items() if not _is_op(value)]
    is_linear = isinstance(op, Project | Passing | Expand | Constant)
    own_line = catalyst.line(op.plan) if is_linear else f"{type(op).__name__} {'; '.join(filter(None, told))}"
    yield f"{margin}{own_line}".rstrip()
    for each in () if isinstance(op, Once) and op.owner else op.inputs:
        yield from _lines(catalyst, each, f"{margin}  ")


def _is_op(value: Any) -> bool:
    return isinstance(value, Op) or (isinstance(value, tuple) and any(isinstance(each, Op) for each in value))


def _told(catalyst: Catalyst, name: str, value: Any) -> str:
    if name in _TRACES:
        traces = (value,) if isinstance(value, str) else value
        return f"keeps {', '.join(_kind(trace) for trace in traces)}"
    match value:
        case None | False | () | "":
            return ""
        case True:
            return name
        case Source():
            return value.name + (f" by {', '.join(value.key)}" if value.key else "")
        case Sums():
            return _sums(catalyst, value)
        case tuple():
            return f"{name} [{', '.join(_value(catalyst, each) for each in value)}]"
    return f"{name} {_value(catalyst, value)}"


def _value(catalyst: Catalyst, value: Any) -> str:
    match value:
        case Expr():
            return re.sub(r"#\d+L?", "", catalyst.printed(value))
        case Key():
            equal = "<=>" if value.null_safe else "="
            return f"{_value(catalyst, value.left)} {equal} {_value(catalyst, value.right)}"
        case Sliding():
            return f"{value.length / 1e6:g} s by {value.slide / 1e6:g} s"
        case Following():
            marks = ", ".join(f"{name} - {delay} ms" for name, delay in value.marks)
            after = "" if value.after is None else f", forgets {value.after} ms after"
            return f"{_value(catalyst, value.time)} behind {marks}, late rows to {value.view}{after}"
    return str(value)


def _sums(catalyst: Catalyst, sums: Sums) -> str:
    keys = ", ".join(_value(catalyst, key) for key in sums.keys)
    added = ", ".join(each.kind for each in sums.arguments)
    told = [f"by [{keys}]", f"of [{', '.join(_value(catalyst, each) for each in sums.aggregates)}]"]
    told += [f"adds up [{added}]"] if added else []
    told += (
        [f"extremes [{', '.join('max' if e.largest else 'min' for e in sums.extremes)}]"]
        if sums.extremes
        else []
    )
    return " ".join(told)


def _kind(trace: str) -> str:
    """A trace without its view and digest."""
    return re.sub(r"-[0-9a-f]{12}", "", trace.rpartition("/")[2])
