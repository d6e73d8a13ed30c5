"""The 24 tables: rows of DuckDB's generator, few of them, made to meet, so that nearly every query finds some.

At a scale factor of a hundredth most queries show nothing: there is one store, and each sale is to one of a thousand
customers. So a sample of orders is taken, with its returns, and every order, and every row of a dimension, suits one of
the queries: values in columns that this query compares with constants are mostly those constants, what an order refers
to is mostly the row that suits its query, and it is moved to days that its query asks for. All else, NULLs too, is as
the generator has it. The calendar and the clock are left alone: queries ask for the one month or week of a date.

Whatever is drawn is drawn from a seed that the row's key is part of: the same rows every time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, TypeAlias

import pyarrow as pa

from slipstream.testing.tpcds.constants import Constant, compared, drawn
from slipstream.testing.tpcds.duck import connected

Row: TypeAlias = dict[str, Any]
SCALE = 0.01
_SUITS = 0.9
"""How likely it is of each thing about a row that it is as the row's query wants it."""


@dataclass(frozen=True)
class Table:
    """One table. rows: how many a dimension has; of orders, one of so many is taken. number: an order's column."""

    name: str
    key: tuple[str, ...]
    rows: int = 0
    reference: str = ""
    """How columns that refer to it end."""
    number: str = ""
    sold: str = ""

    def settled(self, rows: pa.Table) -> tuple[str, ...]:
        """The columns whose values no update may change: of the calendar and the clock, all that queries read."""
        if self.name not in _SELECTED:
            return self.key
        return tuple(name for name in rows.column_names if not name.startswith(("d_current_", "t_shift")))


_ALL = (
    Table("call_center", ("cc_call_center_sk",), 12, "call_center_sk"),
    Table("catalog_page", ("cp_catalog_page_sk",), 20, "catalog_page_sk"),
    Table("customer", ("c_customer_sk",), 99, "customer_sk"),
    Table("customer_address", ("ca_address_sk",), 99, "addr_sk"),
    Table("customer_demographics", ("cd_demo_sk",), 99, "cdemo_sk"),
    Table("household_demographics", ("hd_demo_sk",), 99, "hdemo_sk"),
    Table("income_band", ("ib_income_band_sk",), 20, "income_band_sk"),
    Table("item", ("i_item_sk",), 198, "item_sk"),
    Table("promotion", ("p_promo_sk",), 12, "promo_sk"),
    Table("reason", ("r_reason_sk",), 99, "reason_sk"),
    Table("ship_mode", ("sm_ship_mode_sk",), 20, "ship_mode_sk"),
    Table("store", ("s_store_sk",), 99, "store_sk"),
    Table("warehouse", ("w_warehouse_sk",), 4, "warehouse_sk"),
    Table("web_page", ("wp_web_page_sk",), 99, "web_page_sk"),
    Table("web_site", ("web_site_sk",), 99, "web_site_sk"),
    Table("date_dim", ("d_date_sk",)),
    Table("time_dim", ("t_time_sk",)),
    Table(
        "inventory", ("inv_date_sk", "inv_item_sk", "inv_warehouse_sk"), 12, "", "inv_date_sk", "inv_date_sk"
    ),
    Table("catalog_sales", ("cs_item_sk", "cs_order_number"), 5, "", "cs_order_number", "cs_sold_date_sk"),
    Table("store_sales", ("ss_item_sk", "ss_ticket_number"), 6, "", "ss_ticket_number", "ss_sold_date_sk"),
    Table("web_sales", ("ws_item_sk", "ws_order_number"), 3, "", "ws_order_number", "ws_sold_date_sk"),
    Table("catalog_returns", ("cr_item_sk", "cr_order_number"), 5, "", "cr_order_number"),
    Table("store_returns", ("sr_item_sk", "sr_ticket_number"), 6, "", "sr_ticket_number"),
    Table("web_returns", ("wr_item_sk", "wr_order_number"), 3, "", "wr_order_number"),
)
TABLES = {table.name: table for table in _ALL}
"""By name, returns after the sales that they are of."""

_DIMENSIONS = {table.reference: table for table in _ALL if table.reference}
_SELECTED = {
    "date_dim": "SELECT * FROM date_dim WHERE d_year BETWEEN 1998 AND 2003",
    "time_dim": "SELECT * FROM time_dim WHERE t_time_sk % 1800 = 0",
}
_BY_LINE = ("reason_sk", "warehouse_sk", "promo_sk", "ship_mode_sk", "catalog_page_sk")
"""References that differ from line to line of an order."""


def generate() -> dict[str, pa.Table]:
    """The rows of every table. The same ones every time."""
    connection = connected(SCALE)
    texts = dict(connection.execute("SELECT query_nr, query FROM tpcds_queries()").fetchall())
    calendar, clock = (connection.execute(each).to_arrow_table() for each in _SELECTED.values())
    maker = _Maker({number: compared(text) for number, text in texts.items()}, calendar, clock)
    made = {}
    for table in _ALL:
        rows = connection.execute(_sample(table)).to_arrow_table()
        if table.name not in _SELECTED:
            drawn_rows = maker.dimension(table, rows) if table.reference else maker.facts(table, rows)
            rows = pa.Table.from_pylist(drawn_rows, schema=rows.schema)
        made[table.name] = rows
    return made


def _sample(table: Table) -> str:
    if table.name in _SELECTED:
        return _SELECTED[table.name]
    if table.reference:
        return f"SELECT * FROM {table.name} ORDER BY {table.key[0]} LIMIT {table.rows}"
    by = ", ".join(table.key) if table.name == "inventory" else table.number
    return f"SELECT * FROM {table.name} WHERE hash({by}) % {table.rows} = 0 ORDER BY {', '.join(table.key)}"


class _Maker:
    """Makes rows that suit queries."""

    def __init__(
        self, constants: Mapping[int, Mapping[str, list[Constant]]], calendar: pa.Table, clock: pa.Table
    ) -> None:
        self._constants = constants
        self._days = {number: _asked(wanted, calendar) for number, wanted in constants.items()}
        self._times = {number: _asked(wanted, clock) for number, wanted in constants.items()}
        self._moved: dict[str, int] = {}

    def dimension(self, table: Table, given: pa.Table) -> list[Row]:
        """As many rows as the table is to have, numbered: the first suits query 1, and so on, again and again."""
        rows, made = given.to_pylist(), []
        for number in range(1, table.rows + 1):
            random = Random(f"{table.name}/{number}")
            row = {**rows[(number - 1) % len(rows)], table.key[0]: number}
            first = 1 + (number - 1) % len(self._constants)
            queries = range(first, len(self._constants) + 1, table.rows)
            self._suit(row, given.schema, queries, random, ())
            self._refer(row, first, [random, random])
            made.append({**row, table.key[0]: number})
        return made

    def facts(self, table: Table, given: pa.Table) -> list[Row]:
        """Rows that suit, order by order, a query each."""
        made = []
        for row in given.to_pylist():
            order = f"{table.number.partition('_')[2]}/{row[table.number]}"
            line = "/".join([order, *(str(row[name]) for name in table.key)])
            order = line if table.name == "inventory" else order
            by_order, by_line = Random(order), Random(line)
            suits = by_order.randint(1, len(self._constants))
            self._suit(row, given.schema, [suits], Random(f"{table.name}/{line}"), table.key)
            self._move(row, order, suits, table)
            self._refer(row, suits, [by_order, by_line])
            made.append(row)
        return made

    def _suit(
        self, row: Row, schema: pa.Schema, queries: Iterable[int], random: Random, key: Sequence[str]
    ) -> None:
        for name in row:
            wanted = [each for number in queries for each in self._constants[number].get(name, ())]
            if wanted and name not in key and not name.endswith("_sk") and random.random() < _SUITS:
                value = drawn(wanted, schema.field(name).type, random)
                row[name] = row[name] if value is None else value

    def _refer(self, row: Row, suits: int, drawing: Sequence[Random]) -> None:
        """Fold references onto the rows that there are, mostly the one that suits. Those of an order go together."""
        by_order, by_line = drawing
        chosen = {ending: self._chosen(table, suits, by_order) for ending, table in _DIMENSIONS.items()}
        for name, value in row.items():
            ending = next((each for each in _DIMENSIONS if name.endswith(f"_{each}") or name == each), None)
            if value is None or ending is None:
                continue
            by_lines = ending == "item_sk" or ending in _BY_LINE
            row[name] = self._chosen(_DIMENSIONS[ending], suits, by_line) if by_lines else chosen[ending]

    def _chosen(self, table: Table, suits: int, random: Random) -> int:
        fitting = 1 + (suits - 1) % table.rows
        return fitting if random.random() < _SUITS else random.randint(1, table.rows)

    def _move(self, row: Row, order: str, suits: int, table: Table) -> None:
        """Put an order's days where its query looks, as far apart as they were; times on the half hour."""
        random = Random(f"{order}/day")
        if table.sold and row[table.sold] is not None and order not in self._moved:
            move = bool(self._days[suits]) and random.random() < _SUITS
            self._moved[order] = random.choice(self._days[suits]) - row[table.sold] if move else 0
        for name, value in row.items():
            if value is not None and name.endswith("_date_sk"):
                row[name] = value + self._moved.get(order, 0)
            elif value is not None and name.endswith("_time_sk"):
                suiting = self._times[suits] and random.random() < _SUITS
                row[name] = random.choice(self._times[suits]) if suiting else value // 1800 * 1800


def _asked(wanted: Mapping[str, list[Constant]], calendar: pa.Table) -> list[int]:
    """The keys of the days, or times, that a query asks for: those that suit most of what it compares them with."""
    asked = {name: each for name, each in wanted.items() if name in calendar.column_names}
    if not asked:
        return []
    fits: dict[int, int] = {}
    key = calendar.column_names[0]
    for row in calendar.select([key, *asked]).to_pylist():
        fits[row[key]] = sum(_within(row[name], each) for name, each in asked.items())
    most = max(fits.values())
    return [day for day, count in fits.items() if count == most]


def _within(value: Any, constants: list[Constant]) -> bool:
    texts = isinstance(value, str) or not isinstance(value, int)
    plain = [(low, high) for low, high in constants if low.startswith("'") == texts]
    if texts:
        return any(low.strip("'") <= str(value) <= high.strip("'") for low, high in plain)
    return any(int(float(low)) <= value <= int(float(high)) for low, high in plain)
