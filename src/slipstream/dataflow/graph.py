"""The operator graph as plain data: what `explain` prints and what `status` counts.

A step is one operator of one view (or source). Its traces are named by what the operator means, so that the same query
has the same traces, whenever and wherever it is compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

COSTS = {
    "Source": "the new input",
    "Shared": "nothing: it is computed once",
    "View": "the change of that view",
    "Constant": "nothing after the first epoch",
    "Linear": "the change",
    "Upsert": "one lookup for each key in the change",
    "Accumulate": "one lookup for each key in the change",
    "Partial": "the change",
    "Panes": "one lookup for each pane and key in the change",
    "Extreme": "one lookup for each key in the change, more where an extreme is taken away",
    "Join": "the change and its matches",
    "CrossJoin": "WARNING: the change times the whole other input, as there is no equality to look up by",
    "Semi": "the change, and the rows of keys that the other input comes to have or no longer has",
    "FirstSeen": "one lookup for each key in the change",
    "Regroup": "the touched groups, whole",
    "TopK": "the change and the first rows of each shard",
    "Whole": "all rows of its input",
    "Recompute": "WARNING: the whole query, over all rows of its inputs",
    "Record": "the change",
}


@dataclass(frozen=True)
class Step:
    """One operator: what it is, what it does in Spark's words, which traces it keeps, what feeds it.

    watermark: what becomes of rows and state that are behind it, where the operator follows one.
    """

    kind: str
    detail: str
    inputs: tuple[Step, ...] = ()
    traces: tuple[str, ...] = field(default=())
    watermark: str = ""

    def __post_init__(self) -> None:
        if self.kind not in COSTS:
            raise ValueError(f"unknown kind of step '{self.kind}'; there are {sorted(COSTS)}")

    def walk(self) -> Iterator[Step]:
        yield self
        for each in self.inputs:
            yield from each.walk()

    def render(self, indent: int = 0, note: Callable[[Step], str] | None = None) -> str:
        """The step and what feeds it, one line each; for what keeps a trace, which, and what an epoch costs it. `note`
        may say more of such a step, on a line of its own.
        """
        margin = "  " * indent
        kept = f"   [{', '.join(self.traces)}]   costs {COSTS[self.kind]}" if self.traces else ""
        behind = f"   behind {self.watermark}" if self.watermark else ""
        lines = [f"{margin}{self.kind:<10} {self.detail}{kept}{behind}"]
        if note is not None and (said := note(self)):
            lines.append(f"{margin}{' ':<10} {said}")
        return "\n".join([*lines, *(each.render(indent + 1, note) for each in self.inputs)])
