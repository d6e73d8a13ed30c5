"""One node of Spark's plan as plain data, for `plan/meaning.py`.

Nodes and expressions are products: a class, and fields by name. They are taken as they are, field by field, because
what Spark writes of a plan leaves things out. Its text and its JSON both do: of an IN with many values, the mode of an
overflow, the options of a parser, a function, a timestamp whatever the zone. What is left to be read as text are values
of classes that are not known here, with no address in it.

Inputs of the node are not described, only which attributes they give.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from slipstream.plan.catalyst.handles import Expr, Node
from slipstream.plan.catalyst.reading import SESSION, WATERMARK, WATERMARK_DELAY, Reading
from slipstream.plan.functions import digest, load
from slipstream.plan.meaning import CODE

_ADDRESS = re.compile(r"(\$\$Lambda[\w$./]*)?@[0-9a-f]+")
_EXPRESSION_ID = re.compile(r"#\d+L?")
_MARKS = (WATERMARK, WATERMARK_DELAY, SESSION)
_TAKEN: dict[str, tuple[type, ...]] = {
    "plain": (type(None), bool, int, float, str),
    "bytes": (bytes, bytearray),
    "number": (Decimal,),
    "array": (Sequence,),
}
"""What py4j makes values of Python of."""

_SHAPES = {
    "expression": "org.apache.spark.sql.catalyst.expressions.Expression",
    "plan": "org.apache.spark.sql.catalyst.plans.logical.LogicalPlan",
    "type": "org.apache.spark.sql.types.DataType",
    "metadata": "org.apache.spark.sql.types.Metadata",
    "id": "org.apache.spark.sql.catalyst.expressions.ExprId",
    "function": "org.apache.spark.api.python.PythonFunction",
    "text": "org.apache.spark.unsafe.types.UTF8String",
    "class": "java.lang.Class",
    "option": "scala.Option",
    "map": "scala.collection.Map",
    "set": "scala.collection.Set",
    "sequence": "scala.collection.Seq",
    "product": "scala.Product",
}
"""What others can be, most special first."""


class Describer:
    """Describes nodes of one session's plans."""

    def __init__(self, catalyst: Reading) -> None:
        self._catalyst = catalyst
        self._shapes: dict[str, str] = {}  # by class

    def node(self, node: Node) -> dict[str, Any]:
        catalyst = self._catalyst
        given = [
            [catalyst.expr_id(each) for each in catalyst.output(child)] for child in catalyst.children(node)
        ]
        kind = catalyst.kind(node)
        fields = self._rows(node) if kind == "LocalRelation" else self._fields(node.java, inputs=True)
        return {"class": kind, "fields": fields, "inputs": given}

    def _fields(self, product: Any, inputs: bool = False) -> dict[str, Any]:
        """The fields of a product. inputs: whether it is a node, whose inputs are left out."""
        fields: dict[str, Any] = {}
        for i in range(product.productArity()):
            name, value = product.productElementName(i), product.productElement(i)
            if not (inputs and self._is_input(value)):
                fields[name] = self._value(value)
        return fields

    def _is_input(self, value: Any) -> bool:
        shape = self._shape(value)
        if shape == "sequence":
            return value.size() > 0 and self._shape(value.apply(0)) == "plan"
        return shape == "plan"

    def _value(self, value: Any) -> Any:
        catalyst, shape = self._catalyst, self._shape(value)
        match shape:
            case "plain":
                return value
            case "bytes":
                return value.hex()
            case "number":
                return str(value)
            case "array":
                return [self._value(each) for each in value]
            case "expression":
                return self._expression(Expr(value))
            case "plan":
                return _EXPRESSION_ID.sub("", catalyst.text(Node(value)))
            case "type":
                return json.loads(value.json())
            case "metadata":
                kept = json.loads(value.json())
                return {mark: kept[mark] for mark in _MARKS if mark in kept}
            case "id":
                return None
            case "function":
                return self._function(value)
            case "text":
                return value.toString()
            case "class":
                return value.getName()
            case "option":
                return self._value(value.get()) if value.isDefined() else None
            case "map" | "set":
                return {"set": [self._value(each) for each in catalyst.items(value.toSeq())]}
            case "sequence":
                return [self._value(each) for each in catalyst.items(value)]
            case "product":
                return {"class": _class(value), "fields": self._fields(value)}
        return self._text(value)

    def _expression(self, expr: Expr) -> dict[str, Any]:
        catalyst = self._catalyst
        kind = catalyst.kind(expr)
        told: dict[str, Any] = {"class": kind, "expression": True}
        if kind == "Literal":
            return {
                **told,
                "fields": {"value": self._literal(expr), "dataType": self._value(expr.java.dataType())},
            }
        if kind == "NamedLambdaVariable":
            fields = {"dataType": self._value(expr.java.dataType()), "nullable": catalyst.nullable(expr)}
            return {**told, "id": catalyst.expr_id(expr), "fields": fields}
        if kind == "AttributeReference":
            told["id"] = catalyst.expr_id(expr)
        fields = self._fields(expr.java)
        if kind == "Cast" and not catalyst.goes_by_zone(expr):
            fields["timeZoneId"] = None
        if isinstance(fields.get("func"), Mapping):
            fields |= fields.pop("func")
        return {**told, "fields": fields}

    def _literal(self, literal: Expr) -> Any:
        """A literal's value as Spark keeps it: a timestamp in microseconds, whatever the time zone."""
        told = self._kept(literal.java.value())
        return f"={self._catalyst.sql(literal)}" if isinstance(told, str) and _ADDRESS.search(told) else told

    def _kept(self, value: Any) -> Any:
        """A value of a row; never one that counts as empty."""
        if value is None:
            return "NULL"
        if self._shape(value) in (*_TAKEN, "product"):
            told = self._value(value)
            return told if isinstance(told, Mapping) else f"={told!r}"
        return f"={value.toString()}"

    def _rows(self, relation: Node) -> dict[str, Any]:
        """The rows of a relation that is part of the query."""
        catalyst = self._catalyst
        types = [each.java.dataType() for each in catalyst.output(relation)]
        rows = [
            [self._kept(row.get(i, kind)) for i, kind in enumerate(types)]
            for row in catalyst.items(relation.java.data())
        ]
        return {"types": [self._value(kind) for kind in types], "rows": {"set": rows}}

    def _function(self, function: Any) -> dict[str, Any]:
        return {CODE: digest(load(*self._catalyst.python_command(function)))}

    def _text(self, value: Any) -> Any:
        return {"class": _class(value), "fields": {"text": _ADDRESS.sub("", value.toString())}}

    def _shape(self, value: Any) -> str:
        for shape, kinds in _TAKEN.items():
            if isinstance(value, kinds):
                return shape
        name = value.getClass().getName()
        if name not in self._shapes:
            found = (shape for shape, of in _SHAPES.items() if self._catalyst.is_a(value, of))
            self._shapes[name] = next(found, "other")
        return self._shapes[name]


def _class(value: Any) -> str:
    return str(value.getClass().getSimpleName())
