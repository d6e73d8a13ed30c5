"""What an operator did in the last epoch and what it keeps, for people to read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from slipstream.dataflow.graph import Step
from slipstream.trace import Span, TraceReader


def notes(root: Path, epoch: int, measured: Mapping[str, Mapping[str, int]]) -> Callable[[Step], str]:
    """For each step that keeps a trace: rows in and out and time of the last epoch, and the rows and bytes it keeps.

    `measured` is by the operator's own trace. What a process that has run no epoch yet cannot know is left out.
    """

    def note(step: Step) -> str:
        if not step.traces or step.kind == "Shared":
            return ""
        said = []
        figures = measured.get(step.traces[0], {})
        if "rows_in" in figures:
            said.append(f"{figures['rows_in']:,} rows in")
        if figures:
            said.append(f"{figures['rows_out']:,} out, {figures['milliseconds']:,} ms in Python")
        return ", ".join([*said, _state(root, epoch, step.traces)])

    return note


def _state(root: Path, epoch: int, traces: tuple[str, ...]) -> str:
    stats = [TraceReader(root / trace, epoch, Span.whole()).stats() for trace in traces if epoch]
    rows, size, layers = (sum(getattr(each, name) for each in stats) for name in ("rows", "bytes", "layers"))
    return f"keeps {rows:,} rows, {size / 1e6:,.1f} MB in {layers} layers"
