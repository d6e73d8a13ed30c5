"""The 99 queries, as DuckDB's extension has them, made into Spark SQL.

Their text is not kept here: it comes with the package. Three things are changed, by rule, and none changes a result
that is one: quoted names are quoted as Spark quotes them; the last semicolon goes; and where the query ends in ORDER BY
... LIMIT, all columns that it shows, one after another, come after what it orders by, so that the rows that are shown
are the same ones whoever computes it. The standard leaves open which of several that tie at the limit are shown.
"""

from __future__ import annotations

import re
from functools import cache

from slipstream.testing.tpcds.duck import connected

NUMBERS = range(1, 100)

_LIMITED = re.compile(
    r"(?P<before>.*\border\s+by\b.*?)\s+(?P<limit>limit\s+\d+)\s*$", re.IGNORECASE | re.DOTALL
)


def query(number: int) -> str:
    """The text of a query."""
    if number not in NUMBERS:
        raise ValueError(f"TPC-DS has no query {number}: its queries are 1 to 99")
    return _texts()[number]


def spark_sql(text: str, columns: int) -> str:
    """A query of DuckDB's, which shows so many columns, as Spark SQL."""
    plain = re.sub(r'"([^"]*)"', r"`\1`", text.strip().rstrip(";").rstrip())
    limited = _LIMITED.match(plain)
    if limited is None:
        return plain
    last = ", ".join(str(place) for place in range(1, columns + 1))
    return f"{limited['before']}, {last}\n{limited['limit']}"


@cache
def _texts() -> dict[int, str]:
    connection = connected(0)
    given = connection.execute("SELECT query_nr, query FROM tpcds_queries()").fetchall()
    shown = {
        number: connection.execute(f"DESCRIBE {text.strip().rstrip(';')}").fetchall()
        for number, text in given
    }
    return {number: spark_sql(text, len(shown[number])) for number, text in given}
