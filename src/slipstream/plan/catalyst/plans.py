"""Plans, put together. A plan that is made keeps the expression ids of the plans it came from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType, StructField, StructType

from slipstream.plan.catalyst.expressions import Expressions
from slipstream.plan.catalyst.handles import Expr, ExprList, Node


class Plans(Expressions):
    """Makes plans."""

    def placeholder(self, schema: StructType) -> DataFrame:
        """A relation with this schema that the optimiser does not know to be empty."""
        return self.spark.createDataFrame(self.spark.sparkContext.emptyRDD(), schema)

    def stand_in(self, schema: StructType, why: str) -> DataFrame:
        """A placeholder that a user's function is given: a job that asks it for rows fails, and says why."""
        failing = self.spark.range(1).select(F.raise_error(F.lit(why)))
        rows = failing._jdf.queryExecution().toRdd()
        said = self._jvm.org.apache.spark.sql.types.DataType.fromJson(schema.json())
        return DataFrame(self._jsession.internalCreateDataFrame(rows, said, False), self.spark)

    def frame(self, plan: Node) -> DataFrame:
        """A plan that is complete, as a frame to run. Analysing it again would give new ids to attributes
        that occur twice.
        """
        plan.java.setAnalyzed()
        dataset = self._jvm.org.apache.spark.sql.classic.Dataset
        return DataFrame(dataset.ofRows(self._jsession, plan.java), self.spark)

    def over(self, plan: Node, change: Callable[[DataFrame], DataFrame]) -> Node:
        """What DataFrame calls make of a plan. They see a stub with the plan's attributes, so each analyses
        only itself.
        """
        stub = Node(self._plans.LocalRelation(plan.java.output(), self._empty, False, self._none))
        return self.swap(self.analysed(change(self.frame(stub))), [(stub, plan)])

    def select(self, plan: Node, columns: Sequence[Column]) -> Node:
        return self.over(plan, lambda frame: frame.select(*columns))

    def where(self, plan: Node, condition: Column) -> Node:
        return self.over(plan, lambda frame: frame.where(condition))

    def schema_of(self, columns: Mapping[str, DataType]) -> pa.Schema:
        """The Arrow schema of an operator's input: Spark's types, timestamps in UTC."""
        fields = [StructField(name, kind) for name, kind in columns.items()]
        return to_arrow_schema(StructType(fields), timezone="UTC")

    def with_children(self, node: Node, children: Iterable[Node]) -> Node:
        return Node(node.java.withNewChildren(self._sequence(children)))

    def swap(self, plan: Node, pairs: Iterable[tuple[Node, Node]]) -> Node:
        """The plan with some of its nodes replaced by others."""
        return Node(plan.java.transformUp(self._mapping(pairs)))

    def rewrite_expressions(self, node: Node, pairs: Iterable[tuple[Expr, Expr]]) -> Node:
        """A node with some of its expressions replaced by others."""
        return Node(node.java.transformExpressionsDown(self._mapping(pairs)))

    def project(self, expressions: Iterable[Expr] | ExprList, child: Node) -> Node:
        return Node(self._plans.Project(self._sequence(expressions), child.java))

    def projected(self, project: Node) -> ExprList:
        """The list of a projection, to be used again."""
        return ExprList(project.java.projectList())

    def filter(self, condition: Expr, child: Node) -> Node:
        return Node(self._plans.Filter(condition.java, child.java))

    def union(self, children: Sequence[Node]) -> Node:
        if len(children) == 1:
            return children[0]
        return Node(self._plans.Union(self._sequence(children), False, False))

    def expand(self, node: Node, extra: Sequence[Expr], child: Node) -> tuple[Node, list[Expr]]:
        """An Expand that carries extra attributes along; their new attributes."""
        carried = [Expr(each.java.newInstance()) for each in extra]
        rows = [self._sequence([*self.items(row), *extra]) for row in self.items(node.java.projections())]
        output = self._sequence([*self.output(node), *carried])
        return Node(self._plans.Expand(self._sequence(rows), output, child.java)), carried

    def expanded(self, rows: Iterable[Sequence[Expr]], output: Sequence[Expr], child: Node) -> Node:
        """An Expand that makes these rows of each row of a plan."""
        made = self._sequence([self._sequence(row) for row in rows])
        return Node(self._plans.Expand(made, self._sequence(output), child.java))

    def table_function_over(self, node: Node, extra: Sequence[Expr], child: Node) -> Node:
        """A table function in Python that passes extra attributes on."""
        given = self._sequence([*self.items(node.java.requiredChildOutput()), *extra])
        parts = [node.java.udtf(), given, node.java.resultAttrs(), child.java]
        return Node(
            node.java.copy(*parts, *([node.java.evalType()] if node.kind.startswith("Arrow") else []))
        )

    def fewer_projections(self, expand: Node, rows: Sequence[int]) -> Node:
        """An Expand with only some of its projections."""
        kept = self._sequence([expand.java.projections().apply(i) for i in rows])
        return Node(self._plans.Expand(kept, expand.java.output(), expand.java.child()))

    def aggregate(self, keys: Iterable[Expr], results: Iterable[Expr], child: Node) -> Node:
        lists = (self._sequence(keys), self._sequence(results))
        return Node(self._plans.Aggregate(*lists, child.java, self._none))

    def window(self, node: Node, partition: Iterable[Expr], child: Node) -> Node:
        return self._window(node.java.windowExpressions(), partition, node.java.orderSpec(), child)

    def ordered_window(self, node: Node, orders: Sequence[Expr], child: Node) -> Node:
        """A Window without an order, in an order."""
        order = self._sequence(orders)
        parts = (part for each in self.expressions(node) for part in self.subtree(each))
        specs = [part for part in parts if part.kind == "WindowSpecDefinition"]
        pairs = [(spec, self._ordered_spec(spec, order)) for spec in specs]
        named = [self.replace(Expr(each), pairs) for each in self.items(node.java.windowExpressions())]
        return self._window(self._sequence(named), self.partition_keys(node), order, child)

    def _ordered_spec(self, spec: Expr, order: Any) -> Expr:
        parts = (spec.java.partitionSpec(), order, spec.java.frameSpecification())
        return Expr(self._exprs.WindowSpecDefinition(*parts))

    def _window(self, named: Any, partition: Iterable[Expr], order: Any, child: Node) -> Node:
        return Node(self._plans.Window(named, self._sequence(partition), order, child.java, self._none))

    def sort(self, orders: Sequence[Expr], child: Node, *, everywhere: bool = True) -> Node:
        """Rows in an order: all of them, or those of each partition."""
        return Node(self._plans.Sort(self._sequence(orders), everywhere, child.java, self._none))

    def join(self, node: Node, left: Node, right: Node, condition: Expr | None) -> Node:
        """A join of the same kind as another, with its hint, over other inputs."""
        return self._join_of(left, right, node.java.joinType(), condition, node.java.hint())

    def rejoin(self, node: Node, left: Node, right: Node, condition: Expr) -> Node:
        """A join of the same kind as another, over other inputs."""
        return self._join_of(left, right, node.java.joinType(), condition)

    def inner_join(self, left: Node, right: Node, condition: Expr | None) -> Node:
        """An inner join of two plans that have no attribute in common."""
        return self._join_of(left, right, self._join_type("Inner"), condition)

    def anti_join(self, left: Node, right: Node, condition: Expr) -> Node:
        return self._join_of(left, right, self._join_type("LeftAnti"), condition)

    def _join_of(
        self, left: Node, right: Node, how: Any, condition: Expr | None, hint: Any | None = None
    ) -> Node:
        hint = self._plans.JoinHint.NONE() if hint is None else hint
        return Node(self._plans.Join(left.java, right.java, how, self._some(condition), hint))

    def _join_type(self, name: str) -> Any:
        return getattr(getattr(self._joins, f"{name}$"), "MODULE$")
