"""Which traces a catalog speaks of, and what each of them means.

A trace's name says whose it is, not which query made it: a view that is rebuilt after its query changed keeps its
name. So a trace has an *identity* as well, made of the query's fingerprint and the incarnation that rebuilt the view
last. Whoever holds something about a trace (a replica its layers, `sums.jsonl` its checksums) holds it about an
identity.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def traces_of(catalog: Mapping[str, Any]) -> list[str]:
    """The traces that the views of a catalog keep."""
    views = catalog["views"].values()
    return sorted({trace for view in views for trace in (view["contents"]["trace"], *view["traces"])})


def owner_of(trace: str) -> str:
    """The view or source whose trace it is."""
    return trace.split("/")[1]


def identities(catalog: Mapping[str, Any]) -> dict[str, str]:
    """The identity of each trace; that of a source's own trace never changes."""
    views = catalog["views"]
    found = {}
    for trace in traces_of(catalog):
        view = views.get(owner_of(trace))
        found[trace] = "" if view is None else f"{view['fingerprint']}.{view.get('rebuilt', 0)}"
    return found


def summed(catalog: Mapping[str, Any]) -> dict[str, str]:
    """The traces that views are read from, by the key under which their checksums are noted."""
    keys = {}
    for view in catalog["views"].values():
        trace, rebuilt = view["contents"]["trace"], view.get("rebuilt", 0)
        keys[f"{trace}@{rebuilt}" if rebuilt else trace] = trace
    return keys
