"""Lowering: nodes to the plan of an epoch, one kind of node a file.

Each node becomes a Spark plan for its change (`builder.Delta`). Linear nodes stay as they are, in Catalyst. Any other
becomes a projection, a shuffle by shard and a Python stage (`Builder.stage`) that runs an operator of `dataflow/`. What
may differ from one plan of the same nodes to the next is chosen outside (`plan/choosing.py`) and handed in.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from slipstream.plan import nodes
from slipstream.plan.catalyst import Catalyst, Node
from slipstream.plan.compile import Compiled, View
from slipstream.plan.lower.accumulate import accumulate
from slipstream.plan.lower.alike import alike
from slipstream.plan.lower.builder import Builder, Delta, Leaf, Program, Unplaced, bind
from slipstream.plan.lower.cross import cross_join
from slipstream.plan.lower.firstseen import first_seen
from slipstream.plan.lower.join import join
from slipstream.plan.lower.leaves import constant, given, handed_in, once
from slipstream.plan.lower.linear import expand, passing, project, union
from slipstream.plan.lower.lowering import Lower, Lowering
from slipstream.plan.lower.panes import panes
from slipstream.plan.lower.recompute import recompute
from slipstream.plan.lower.record import record
from slipstream.plan.lower.regroup import regroup_aggregate, regroup_join, regroup_window
from slipstream.plan.lower.semi import semi
from slipstream.plan.lower.source import source
from slipstream.plan.lower.topk import topk

KINDS: Mapping[type[nodes.Op], Lower] = {
    nodes.Input: given,
    nodes.Once: once,
    nodes.Constant: constant,
    nodes.Project: project,
    nodes.Passing: passing,
    nodes.Expand: expand,
    nodes.Union: union,
    nodes.Accumulate: accumulate,
    nodes.Panes: panes,
    nodes.Alike: alike,
    nodes.Join: join,
    nodes.CrossJoin: cross_join,
    nodes.Semi: semi,
    nodes.RegroupAggregate: regroup_aggregate,
    nodes.RegroupWindow: regroup_window,
    nodes.RegroupJoin: regroup_join,
    nodes.TopK: topk,
    nodes.FirstSeen: first_seen,
    nodes.Recompute: recompute,
}


def lower(
    catalyst: Catalyst,
    compiled: Compiled,
    *,
    shards: int | None,
    hash_bits: int,
    partial: Collection[str],
    only: Collection[str] | None = None,
    held: Collection[str] = (),
    routed: Collection[str] = (),
) -> Program:
    """The plan of an epoch. shards: None for one that a single task runs. partial: the aggregations whose rows are
    added up before they are shuffled. only: the views that it is to compute, if not all. held: views, and
    sources, whose change is not computed but handed in. routed: those whose change has a route where it is
    computed; a view that is written by such a route cannot be written by another: `Unplaced` is raised.
    """
    build = Builder(catalyst, shards, hash_bits)
    low = Lowering(build, KINDS, partial)
    leaves: dict[str, Leaf] = {}
    for op in compiled.sources:
        if op.name in held:
            leaf, low.inputs[compiled.leaves[op.name]] = handed_in(
                build, op.schema, compiled.readers[op.name], unplaced=op.name in routed
            )
            leaves[op.name] = leaf
            continue
        leaves[op.name], delta = source(build, op)
        if compiled.readers[op.name] > 1:
            delta = replace(delta, plan=build.share(delta.plan))
        low.inputs[compiled.leaves[op.name]] = delta
    terminals: list[Node] = []
    views: dict[str, tuple[Node, ...]] = {}
    for view in compiled.views:
        low.view = view.name
        if view.name in held:
            leaves[view.name], low.inputs[compiled.leaves[view.name]] = handed_in(
                build, view.schema, compiled.readers[view.name], unplaced=view.name in routed
            )
        if only is not None and view.name not in only:
            continue
        own, change = _view(low, view)
        terminals += own
        views[view.name] = own or (() if change is None else (change.plan,))
        if change is not None:
            low.inputs[compiled.leaves[view.name]] = change
    return Program(
        leaves=leaves,
        shared=tuple(build.shared),
        constants=tuple(build.constants),
        terminals=tuple(terminals),
        views=views,
        routed=frozenset(name for name, leaf in compiled.leaves.items() if _has_route(low, leaf)),
    )


def _has_route(low: Lowering, leaf: int) -> bool:
    delta = low.inputs.get(leaf)
    return delta is not None and delta.route is not None


def _view(low: Lowering, view: View) -> tuple[tuple[Node, ...], Delta | None]:
    """What an epoch runs for a view, and the view's change if others read it."""
    root = view.root
    if isinstance(root, nodes.ReadElsewhere):
        return (), None
    if isinstance(root, nodes.Record):
        delta = low.delta(root.input)
        if view.readers:
            delta = low.shared(root.plan, delta)
        return (record(low, root, delta),), delta
    delta = low.delta(root)
    if isinstance(root, nodes.Once):
        return (), delta if view.readers else None
    if not view.readers:
        return (delta.plan,), None
    return (), delta if view.readers == 1 else low.shared(root.plan, delta)


__all__ = ["KINDS", "Leaf", "Program", "Unplaced", "bind", "lower"]
