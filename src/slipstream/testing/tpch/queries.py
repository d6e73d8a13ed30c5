"""The 22 queries, one file each, with the parameters that the standard uses to validate answers.

They are the standard's own text but for three things, none of which changes a result: intervals and `extract` as
Spark writes them; query 15's view as a common table expression; columns that the standard leaves without a name
have one. The standard makes one parameter depend on the size of the data: the share of the total that query 11
calls important.
"""

from __future__ import annotations

from importlib.resources import files

NUMBERS = range(1, 23)

_IMPORTANT = 0.0001


def query(number: int, scale: float = 1.0) -> str:
    """The text of a query, for data of a scale factor."""
    if number not in NUMBERS:
        raise ValueError(f"TPC-H has no query {number}: its queries are 1 to 22")
    text = (files(__package__) / "queries" / f"q{number:02}.sql").read_text()
    return text.replace("{fraction}", f"{_IMPORTANT / scale:.10f}")
