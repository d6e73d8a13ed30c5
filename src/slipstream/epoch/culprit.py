"""Which rows an epoch fails on, found by halving its input: for an epoch that has failed, where time does not matter.

Sources without whose rows it fails all the same are left out first. Of each that is left the rows are halved, with the
others as they are, until one row is left. Where neither half fails, no row is at fault alone (a sum that overflows),
and none is named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa

MOST_ROWS = 200_000
"""Rows of a source beyond which none is looked for."""

Tables = Mapping[str, pa.Table]


def culprits(fails: Callable[[Tables], bool], tables: Tables) -> dict[str, pa.Table]:
    """By source the one row without which there would be no failure, of the sources that have one."""
    left = dict(tables)
    for name, table in tables.items():
        without = {**left, name: table.slice(0, 0)}
        if fails(without):
            left = without
    found = {}
    for name, table in left.items():
        if 0 < table.num_rows <= MOST_ROWS:
            row = _halved(lambda part, name=name: fails({**left, name: part}), table)  # type: ignore[misc]
            if row is not None:
                found[name] = left[name] = row
    return found


def _halved(fails: Callable[[pa.Table], bool], table: pa.Table) -> pa.Table | None:
    while table.num_rows > 1:
        middle = table.num_rows // 2
        halves = (table.slice(0, middle), table.slice(middle))
        failing = next((half for half in halves if fails(half)), None)
        if failing is None:
            return None
        table = failing
    return table
