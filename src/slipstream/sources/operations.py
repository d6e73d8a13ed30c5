"""What the rows of a change feed do, in the words of those who write them.

An operation is one of these words, in any case: what common change feeds write, Delta's, Debezium's and Flink's among
them. An update's before-image (`-U`) says nothing that the after-image does not, so such rows are left out; anything
else is a bad row. So is a truncation, which has no key: what it takes away has to be deleted by key.
"""

from __future__ import annotations

import re
from difflib import get_close_matches

from pyspark.sql import Column
from pyspark.sql import functions as F

UPSERTS = (
    *("insert", "i", "c", "create", "r", "read", "+i", "update", "u", "+u", "upsert"),
    *("update_after", "update_postimage"),
)
DELETES = ("delete", "d", "-d")
BEFORE_IMAGES = ("-u", "update_before", "update_preimage")
TRUNCATIONS = ("t", "truncate")
_UNKNOWN = re.compile("unknown operation '(.*)'", re.DOTALL)
_NO_KEY = "it empties the table, and has no key: delete the rows by key"
_PLAIN = ("insert", "update", "upsert", "delete")
_LIKE = {"remove": "delete", "modify": "update", "merge": "upsert", "replace": "upsert", "add": "insert"}


def hint(word: str) -> str:
    """What to write in place of a word that is no operation."""
    given = word.strip().lower()
    if given in TRUNCATIONS:
        return _NO_KEY
    words = [*UPSERTS, *DELETES]
    near = [each for each in _PLAIN if len(given) > 1 and each.startswith(given)]
    near += [_LIKE[given]] if given in _LIKE else []
    near += [given] if given in words else []
    near += get_close_matches(given, [each for each in words if len(each) > 2], 1, 0.5)
    return (
        f"did you mean '{near[0]}'?"
        if near
        else f"known are {', '.join(_PLAIN)} and what feeds write for these"
    )


def hinted(reason: str | None) -> str | None:
    """A reason that an operation is not known, with what to write."""
    found = _UNKNOWN.fullmatch(reason or "")
    return reason if found is None else f"{reason}: {hint(found[1])}"


def with_hints(reason: Column) -> Column:
    """The same for a column, in a Python worker: for rows that are bad."""
    return F.udf(lambda each: hinted(each), "string")(
        reason
    )  # by its hints Spark would not know how to call it
