"""Putting equal rows next to each other, and adding them up.

The hashes that come with rows only *order* them. They never decide identity: rows with equal hashes are
compared by their real columns, and where different rows share all their hashes, the run is put into the
order of its rows' canonical texts. So the result depends on what the rows are, never on the order in which
they arrived, except among entirely equal rows.

With no collisions the cost is one sort of the first hash and one comparison of neighbours that share
hashes. Nothing here assumes that hashes are spread evenly; an `h` may as well be the prefix of a sort key,
with long runs of ties.

A bag's rows may carry sums beside their multiplicity (`s0`, `s1`, ...: whole numbers). They are no part of what makes a
row the same, and are added up as multiplicities are.

Rows can be equal and yet not the same bits: 0.0 and -0.0, or keys that are maps in another order. Of such rows the one
with the least exact text stands for all, so that a sum of updates has one representation whatever the order
of merging. Maps among a bag's values are another matter: a query may ask for a map's first entry, so there maps in
another order are other rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from slipstream.trace.equality import Bools, ambiguous, equal, texts

__all__ = [
    "OWING",
    "Groups",
    "added_columns",
    "collapse_keyed",
    "column",
    "consolidate",
    "equal",
    "group_rows",
    "identity",
    "identity_columns",
    "in_order",
    "integers",
    "is_bag",
    "key_columns",
    "layer_schema",
    "ordered_log",
    "sum_columns",
    "value_columns",
]

Ints = npt.NDArray[np.int64]
_ODD = 0x9E3779B97F4A7C15
OWING = -1
"""The diff of a key in a keyed trace that is kept and yet shows no row, because rows of it were taken away that have
not come.
"""


@dataclass(frozen=True, eq=False)
class Groups:
    """Rows put in `order`; each group of equal rows begins at one of `starts` and ends before the next."""

    order: Ints
    starts: Ints

    @property
    def ends(self) -> Ints:
        return np.append(self.starts[1:], len(self.order)) if len(self.starts) else self.starts

    @property
    def distinct(self) -> bool:
        """No two rows are equal."""
        return len(self.starts) == len(self.order)


def group_rows(
    hashes: Sequence[Ints],
    columns: Sequence[pa.Array],
    within: Sequence[Ints] = (),
    stored: Sequence[pa.Array] = (),
) -> Groups:
    """Order rows by `hashes`, rows equal in `columns`, and in `stored` with maps in the same order, adjacent, and those
    by `within` and then position.
    """
    order = _order_by(hashes)
    if len(order) == 0:
        return Groups(order, order)
    fresh = np.zeros(len(order), dtype=bool)
    fresh[0] = True
    for keys in hashes:
        ordered = keys[order]
        fresh[1:] |= ordered[1:] != ordered[:-1]
    repeats = np.flatnonzero(~fresh)
    if len(repeats) and (columns or stored):
        same = _neighbours_equal(columns, order, repeats) & _neighbours_equal(
            stored, order, repeats, ordered=True
        )
        if not same.all():
            order, fresh = _separate(columns, stored, order, fresh, repeats[~same])
            repeats = np.flatnonzero(~fresh)
    if len(repeats) and within:
        order = _sort_inside(order, fresh, within)
    return Groups(order, np.flatnonzero(fresh))


def is_bag(schema: pa.Schema) -> bool:
    """A bag carries a hash `r` of the whole row; a keyed trace does not."""
    return "r" in schema.names


def key_columns(schema: pa.Schema) -> list[str]:
    return _numbered(schema, "k")


def value_columns(schema: pa.Schema) -> list[str]:
    return _numbered(schema, "v")


def sum_columns(schema: pa.Schema) -> list[str]:
    return _numbered(schema, "s")


def added_columns(schema: pa.Schema) -> list[str]:
    """The columns of a bag that are added up."""
    return ["diff", *sum_columns(schema)]


def _numbered(schema: pa.Schema, letter: str) -> list[str]:
    return [name for name in schema.names if name[0] == letter and name[1:].isdigit()]


def identity_columns(schema: pa.Schema) -> list[str]:
    """The columns that make two rows the same thing: the row in a bag, the key in a keyed trace."""
    return key_columns(schema) + (value_columns(schema) if is_bag(schema) else [])


def identity(table: pa.Table) -> tuple[list[pa.Array], list[pa.Array]]:
    """Those columns: keys, and values, in which the order of a map counts."""
    values = value_columns(table.schema) if is_bag(table.schema) else []
    keys, rest = ([column(table, name) for name in names] for names in (key_columns(table.schema), values))
    return keys, rest


def layer_schema(schema: pa.Schema) -> pa.Schema:
    """The columns of a layer in their order, without metadata, for rows with these columns."""
    hashes = ["h", "r"] if is_bag(schema) else ["h"]
    kept = [*key_columns(schema), *value_columns(schema)]
    whole = pa.int64()
    return pa.schema(
        [pa.field(name, whole) for name in hashes]
        + [pa.field(name, schema.field(name).type) for name in kept]
        + [pa.field(name, whole) for name in ("epoch", *added_columns(schema))]
    )


def column(table: pa.Table, name: str) -> pa.Array:
    """A table's column as one array."""
    chunks = table.column(name)
    return chunks.chunk(0) if chunks.num_chunks == 1 else chunks.combine_chunks()


def integers(table: pa.Table, name: str) -> Ints:
    """A table's int64 column as a NumPy view."""
    result: Ints = column(table, name).to_numpy()
    return result


def weights(table: pa.Table) -> npt.NDArray[np.uint64]:
    """What each update of a bag adds to its epoch checksum: the row's hash times its diff, modulo 2^64, and so with
    each of its sums, by hashes of their own.
    """
    row = integers(table, "r").view(np.uint64)
    with np.errstate(over="ignore"):
        weighted = row * integers(table, "diff").view(np.uint64)
        for i, name in enumerate(sum_columns(table.schema)):
            weighted += (row ^ np.uint64(_ODD * (i + 1) % (1 << 64))) * integers(table, name).view(np.uint64)
    return weighted


def consolidate(table: pa.Table) -> pa.Table:
    """A bag's updates added up: one row for each distinct row, none that sum to zero.

    A row gets the greatest epoch of the updates that made it.
    """
    epochs = integers(table, "epoch")
    added = {name: integers(table, name) for name in added_columns(table.schema)}
    groups = _group_table(table, [])
    starts = groups.starts
    if len(starts) == len(groups.order):
        return _taken(table, groups.order[_some(added.values())[groups.order]])
    sums = {name: np.add.reduceat(values[groups.order], starts) for name, values in added.items()}
    sums["epoch"] = np.maximum.reduceat(epochs[groups.order], starts)
    kept = _some(sums[name] for name in added)
    result = _taken(table, groups.order[starts[kept]])
    for name, values in sums.items():
        result = _replaced(result, name, values[kept])
    return result


def says_something(table: pa.Table) -> Bools:
    """Which updates of a bag have a multiplicity or a sum other than zero."""
    return _some(integers(table, name) for name in added_columns(table.schema))


def _some(numbers: Iterable[Ints]) -> Bools:
    """Where any of them is not zero."""
    first, *others = numbers
    some: Bools = first != 0
    for each in others:
        some |= each != 0
    return some


def collapse_keyed(table: pa.Table, *, keep_tombstones: bool) -> pa.Table:
    """A keyed trace's newest version of each key."""
    groups = _group_table(table, [integers(table, "epoch")])
    newest = groups.order[groups.ends - 1]
    return _taken(table, newest if keep_tombstones else newest[integers(table, "diff")[newest] != 0])


def ordered_log(table: pa.Table) -> pa.Table:
    """Every update of a trace, with the updates of one row or key together and in the order of epochs."""
    return _taken(table, _group_table(table, [integers(table, "epoch")]).order)


def in_order(table: pa.Table) -> bool:
    """The rows are as `ordered_log` would put them."""
    return ordered_log(table) is table


def _group_table(table: pa.Table, within: list[Ints]) -> Groups:
    hashes = [integers(table, "h")]
    if is_bag(table.schema):
        hashes.append(integers(table, "r"))
    keys, values = identity(table)
    groups = group_rows(hashes, keys, within, values)
    unclear = [] if groups.distinct else [array for array in (*keys, *values) if ambiguous(array)]
    return _settled(groups, within, unclear) if unclear else groups


def _settled(groups: Groups, within: list[Ints], unclear: list[pa.Array]) -> Groups:
    """Order rows that are equal but perhaps not the same bits by what they are exactly."""
    fresh = np.zeros(len(groups.order), dtype=bool)
    fresh[groups.starts] = True
    rows = groups.order[_shared(fresh)]
    ranks = np.zeros(len(groups.order), dtype=np.int64)
    ranks[rows] = np.unique(np.array(texts(unclear, rows, exact=True)), return_inverse=True)[1]
    return Groups(_sort_inside(groups.order, fresh, [*within, ranks]), groups.starts)


def _order_by(hashes: Sequence[Ints]) -> Ints:
    """A stable order by several keys: sorted by the first alone, and then only what is tied by the others.

    A stable sort takes a concatenation of sorted layers in linear time.
    """
    first = hashes[0]
    order = np.argsort(first, kind="stable")
    if len(hashes) > 1:
        ties = _like_next(first, order)
        if ties.any() and not all(_like_next(keys, order)[ties].all() for keys in hashes[1:]):
            tied = np.zeros(len(order), dtype=bool)
            tied[1:] = ties
            tied[:-1] |= ties
            rows = order[tied]
            order[tied] = rows[np.lexsort([keys[rows] for keys in reversed(hashes)])]
    return order


def _like_next(keys: Ints, order: Ints) -> Bools:
    """Which rows but the last have, in an order, the same key as the next."""
    ordered = keys[order]
    same: Bools = ordered[1:] == ordered[:-1]
    return same


def _neighbours_equal(
    columns: Sequence[pa.Array], order: Ints, positions: Ints, *, ordered: bool = False
) -> Bools:
    here, before = pa.array(order[positions]), pa.array(order[positions - 1])
    same = np.ones(len(positions), dtype=bool)
    for array in columns:
        same &= equal(array.take(here), array.take(before), ordered=ordered)
    return same


def _separate(
    columns: Sequence[pa.Array], stored: Sequence[pa.Array], order: Ints, fresh: Bools, differing: Ints
) -> tuple[Ints, Bools]:
    """Put the rows of each run in which hashes collide into the order of their texts."""
    runs = np.cumsum(fresh)
    at = np.flatnonzero(np.isin(runs, runs[differing]))
    rows = order[at]
    told = list(zip(texts(columns, rows), texts(stored, rows, ordered=True), strict=True))
    keyed = sorted(zip(runs[at].tolist(), told, rows.tolist(), strict=True))
    order, fresh = order.copy(), fresh.copy()
    order[at] = [row for _, _, row in keyed]
    fresh[at] = [i == 0 or keyed[i][:2] != keyed[i - 1][:2] for i in range(len(keyed))]
    return order, fresh


def _sort_inside(order: Ints, fresh: Bools, within: Sequence[Ints]) -> Ints:
    """Put the rows of each group in the order of `within`, and then of their positions. Layers that are gathered in the
    order of their epochs need no sorting: a stable order by hash has kept it.
    """
    if _is_sorted_inside(order, fresh, within):
        return order
    groups, shared = np.cumsum(fresh), _shared(fresh)
    rows = order[shared]
    order = order.copy()
    order[shared] = rows[np.lexsort([rows, *(keys[rows] for keys in reversed(within)), groups[shared]])]
    return order


def _is_sorted_inside(order: Ints, fresh: Bools, within: Sequence[Ints]) -> bool:
    repeats = np.flatnonzero(~fresh)
    before, here = order[repeats - 1], order[repeats]
    for keys in within:
        former, latter = keys[before], keys[here]
        if (former > latter).any():
            return False
        tied = former == latter
        before, here = before[tied], here[tied]
    return bool((before < here).all())


def _shared(fresh: Bools) -> Bools:
    """Which positions are in a group of more than one row."""
    shared = ~fresh
    shared[:-1] |= ~fresh[1:]
    return shared


def _taken(table: pa.Table, rows: Ints) -> pa.Table:
    if len(rows) == table.num_rows and bool((rows == np.arange(len(rows))).all()):
        return table
    return table.take(pa.array(rows))


def _replaced(table: pa.Table, name: str, values: Ints) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), name, pa.array(values))
