"""What an operator means, as a digest that stays the same as long as its state may be used.

A description (`plan/catalyst/describe.py`) is one node of Spark's plan as plain data: classes, fields, types, literals.
Here it is brought to a form in which nothing is left that may differ between two plans of one meaning:

- An attribute is known by its place in the output of an input, one that the node itself makes by the order in which
  it is met. Aliases, names of columns, expression ids and qualifiers are gone, so renaming a column changes nothing.
- A field that is null, false or empty is as good as absent: a release of Spark that adds one changes nothing.
- The conjuncts of a filter have no order: Spark infers some of them, in the order of a hash table.

The digest is over that form and over the digests of the inputs, down to the sources. So it depends on nothing beside
or above the operator. Where an operator keeps rows, it keeps them by place: equal digests are equal layouts.

Settings of the session count where they can be felt. The time zone is in Spark's plan, in each expression that goes by
it; a Python function feels it where it is handed timestamps. A zone is known by its meaning (`plan/zones.py`), but for
an expression that may write its name (`_writes_zone`). All others count for any node with an expression that is not
known to be blind to them (`_BLIND`).

There are two digests. `whole` goes down to the sources: traces are known by it. `query` stops at other views and has
their names instead: it tells whether a view's own query changed, or only what it reads. Beside them a meaning has what
a user can be told about a difference: settings and functions.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from slipstream.plan import zones

TIME_ZONE = "spark.sql.session.timeZone"
PYTHON = "python"
DEFAULTS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    "spark.sql.decimalOperations.allowPrecisionLoss": "true",
    "spark.sql.execution.pythonUDF.pandas.intToDecimalCoercionEnabled": "false",
    "spark.sql.function.concatBinaryAsString": "false",
    "spark.sql.function.eltOutputAsString": "false",
    "spark.sql.icu.caseMappings.enabled": "true",
    "spark.sql.json.enablePartialResults": "true",
    "spark.sql.jsonGenerator.ignoreNullFields": "true",
    "spark.sql.mapKeyDedupPolicy": "EXCEPTION",
    "spark.sql.storeAssignmentPolicy": "ANSI",
}
"""Settings of a session that change answers, with the values that change no digest: a setting can be added here without
asking for anything to be computed anew.
"""

LEGACY = "spark.sql.legacy."
"""Settings whose names begin so bring back the answers of an earlier release."""

_SAID = {
    TIME_ZONE: "the session time zone",
    PYTHON: "the version of Python",
    "spark.sql.ansi.enabled": "ANSI mode (spark.sql.ansi.enabled)",
    "spark.sql.caseSensitive": "case sensitivity (spark.sql.caseSensitive)",
}
"""What settings are called where their name says too little."""

CODE = "python code"
"""The field of an expression that holds the digest of a Python function."""

_SHORT = 12
_ZONES = {"timeZoneId", "zoneId"}
_NAMED = {"AttributeReference", "NamedLambdaVariable"}
_DROPPED = {
    *("exprId", "resultId", "qualifier", "hint", "sameOrderExpressions", "dataframeId"),
    *("isStreaming", "stream", "numSlices"),
}
"""Fields that say nothing of the result, or something of this process alone."""

_BLIND = {
    *("AttributeReference", "Literal", "NamedLambdaVariable", "LambdaFunction"),
    *("And", "Or", "Not", "IsNull", "IsNotNull", "EqualTo", "EqualNullSafe", "In", "InSet", "Coalesce"),
    *("LessThan", "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual", "CaseWhen", "If"),
    *("AggregateExpression", "Count", "Min", "Max", "First", "Last", "CollectList", "CollectSet"),
    *("SortOrder", "WindowExpression", "WindowSpecDefinition", "SpecifiedWindowFrame", "UnboundedPreceding$"),
    *("UnboundedFollowing$", "CurrentRow$", "RowNumber", "Rank", "DenseRank", "Explode", "Inline"),
    *("CreateNamedStruct", "CreateArray", "GetStructField", "KnownNotNull", "KnownNullable"),
    *("KnownFloatingPointNormalized", "NormalizeNaNAndZero", "PreciseTimestampConversion"),
}
"""Expressions that no setting of a session changes."""

Description = Mapping[str, Any]
"""A node: its `class`, its `fields`, and for each input the ids of the attributes that it gives (`inputs`)."""


Column = tuple[str, str, bool, str]
"""A column of a source: its name, its type, whether it may be NULL, and its watermark with the delay, if it has one."""


@dataclass(frozen=True)
class Meaning:
    """What a collection means. settings, functions: what it goes by beside the query, to be told when it changes; a
    setting with its default value is left out.
    """

    whole: str
    query: str
    settings: Mapping[str, str] = field(default_factory=dict)
    functions: Mapping[str, str] = field(default_factory=dict)

    @property
    def short(self) -> str:
        """Enough of the digest for a name."""
        return self.whole[:_SHORT]


def of_source(name: str, columns: Iterable[Column], changes: Iterable[str], zone: str | None) -> Meaning:
    """A source: its columns, and how its rows are to be understood. zone: the time zone in which it reads timestamps,
    where it goes by one.
    """
    zone = zone and zones.zone(zone)
    told = _digest(["source", name, list(columns), list(changes), zone])
    return Meaning(told, told, {} if zone is None else {TIME_ZONE: zone})


def of_view(name: str, meaning: Meaning) -> Meaning:
    """A view, as it is read by another one."""
    return Meaning(_digest(["view", meaning.whole]), _digest(["view", name]))


def of_recomputed(meaning: Meaning) -> Meaning:
    """A query that is computed anew in every epoch."""
    whole, query = (_digest(["recomputed", each]) for each in (meaning.whole, meaning.query))
    return Meaning(whole, query, meaning.settings, meaning.functions)


def of_node(
    description: Description, inputs: Sequence[Meaning], session: Mapping[str, str] | None = None
) -> Meaning:
    """A node over its inputs. session: the settings of its session."""
    telling = _Telling(description.get("inputs", ()), session or {})
    own = telling.node(description)
    functions = _merged(telling.functions, *(each.functions for each in inputs))
    settings = _merged(telling.settings, *(each.settings for each in inputs))
    said = [own, sorted(telling.felt.items())]
    return Meaning(
        whole=_digest([said, [each.whole for each in inputs]]),
        query=_digest([said, [each.query for each in inputs]]),
        settings=settings,
        functions=functions,
    )


class Meant(Protocol):
    """What a catalog says of a view's meaning."""

    @property
    def settings(self) -> Mapping[str, str]: ...
    @property
    def functions(self) -> Mapping[str, str]: ...


def differences(before: Meant, now: Meant) -> list[str]:
    """Why two entries of a catalog mean different things, in sentences, as far as settings and functions say it."""
    settings = [entry.settings for entry in (before, now)]
    functions = [entry.functions for entry in (before, now)]
    told = []
    for key in sorted({*settings[0], *settings[1]}):
        was, is_now = (each.get(key, DEFAULTS.get(key, "not set")) for each in settings)
        alike = was == is_now or (key in (TIME_ZONE, PYTHON) and "not set" in (was, is_now))
        if not alike:
            told.append(f"{_SAID.get(key, key)} was {was} and is {is_now}")
    known = functions[0].keys() & functions[1].keys()
    changed = sorted(name for name in known if functions[0][name] != functions[1][name])
    return told + [f"the code of the Python function '{name}' changed" for name in changed]


class _Telling:
    """One node in canonical form, and what was met on the way."""

    def __init__(self, inputs: Sequence[Sequence[int]], session: Mapping[str, str]) -> None:
        self._session = session
        self._places = {
            number: f"{i}.{j}" for i, given in enumerate(inputs) for j, number in enumerate(given)
        }
        self.felt: dict[str, str] = {}  # settings that the form does not tell itself
        self.settings: dict[str, str] = {}
        self.functions: dict[str, str] = {}

    def node(self, description: Description) -> Any:
        fields = dict(description["fields"])
        if description["class"] == "Filter":
            fields["condition"] = self._condition(fields["condition"])
            return [description["class"], self._fields(fields, told={"condition"})]
        return [description["class"], self._fields(fields)]

    def _value(self, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [self._value(each) for each in value]
        if not isinstance(value, Mapping):
            return value
        if "class" in value:
            return self._object(value)
        if "set" in value:
            return sorted((self._value(each) for each in value["set"]), key=json.dumps)
        return self._fields(value)

    def _object(self, value: Mapping[str, Any]) -> Any:
        kind, fields = value["class"], dict(value.get("fields", {}))
        if kind == "Alias":
            return self._value(fields["child"])
        if value.get("expression") and kind not in _BLIND:
            self._feel(key for key in self._session if key not in (TIME_ZONE, PYTHON))
        if kind in _NAMED or CODE in fields:
            name = str(fields.pop("name", ""))
        if CODE in fields:
            self._function(name, fields)
        if not _writes_zone(kind, fields):
            fields = {key: _zone(each) if key in _ZONES else each for key, each in fields.items()}
        told = self._fields(fields)
        if "id" in value:
            place = self._places.setdefault(value["id"], f"new {len(self._places)}")
            return [kind, place, told]
        return [kind, told]

    def _function(self, name: str, fields: Mapping[str, Any]) -> None:
        self.functions = _merged(self.functions, {name: fields[CODE]})
        self._feel([PYTHON])
        if '"timestamp"' in json.dumps(fields):
            self._feel([TIME_ZONE])

    def _feel(self, keys: Iterable[str]) -> None:
        for key in keys:
            value = self._session.get(key)
            value = _zone(value) if key == TIME_ZONE else value
            if value is not None and value != DEFAULTS.get(key):
                self.settings.setdefault(key, value)
                if key != PYTHON:  # the code tells it itself
                    self.felt[key] = value

    def _fields(self, fields: Mapping[str, Any], told: Iterable[str] = ()) -> dict[str, Any]:
        shown: dict[str, Any] = {}
        for key, value in fields.items():
            if key in _ZONES and isinstance(value, str):
                zones = {value, *self.settings.get(TIME_ZONE, value).split(", ")}
                self.settings[TIME_ZONE] = ", ".join(sorted(zones))
            if key not in _DROPPED and not _is_empty(value):
                shown[key] = value if key in told else self._value(value)
        return {key: value for key, value in shown.items() if not _is_empty(value)}

    def _condition(self, condition: Mapping[str, Any]) -> Any:
        """A condition that only keeps rows or drops them, whatever the order of its conjuncts and of what they equate.
        Each is told for itself: what a lambda function calls its variables is its own business.
        """
        kind, fields = condition["class"], condition.get("fields", {})
        if kind == "And":
            parts = [self._condition(each) for each in _conjuncts(condition)]
            return ["And", sorted(parts, key=json.dumps)]
        if kind in ("EqualTo", "EqualNullSafe"):
            sides = [self._alone(fields[side]) for side in ("left", "right")]
            return [kind, sorted(sides, key=json.dumps)]
        return self._alone(condition)

    def _alone(self, value: Any) -> Any:
        places = dict(self._places)
        told = self._value(value)
        self._places = places
        return told


def _conjuncts(condition: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    if condition["class"] != "And":
        return [condition]
    return [part for side in ("left", "right") for part in _conjuncts(condition["fields"][side])]


def _writes_zone(kind: str, fields: Mapping[str, Any]) -> bool:
    """Whether an expression may write the name of the zone that it goes by."""
    if kind in ("DateFormatClass", "FromUnixTime"):
        pattern = fields["right" if kind == "DateFormatClass" else "format"]
        return pattern["class"] != "Literal" or bool(re.search("[zvV]", str(pattern["fields"].get("value"))))
    return kind.startswith(("StructsToJson", "StructsToCsv")) and not _is_empty(fields.get("options"))


def _zone(value: Any) -> Any:
    return zones.zone(value) if isinstance(value, str) else value


def _is_empty(value: Any) -> bool:
    return value is None or value is False or (isinstance(value, list | tuple | Mapping) and not value)


def _merged(*parts: Mapping[str, str]) -> dict[str, str]:
    """What several parts say; under one key, everything that is said."""
    merged: dict[str, set[str]] = {}
    for part in parts:
        for key, value in part.items():
            merged.setdefault(key, set()).update(value.split(", "))
    return {key: ", ".join(sorted(values)) for key, values in sorted(merged.items())}


def _digest(told: Any) -> str:
    return hashlib.sha256(json.dumps(told, sort_keys=True, ensure_ascii=False).encode()).hexdigest()
