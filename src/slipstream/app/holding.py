"""Views that are held: they failed, and the app goes on without them.

A view that is declared with `on_error="hold"` and fails is taken out of what epochs compute, with all that reads it,
as if it had been dropped; but what it was read from stays, and the catalog says as of which epoch it is shown, what it
failed of and on which row. It joins again as a view does that was replaced: computed anew beside the epochs, up to one
at which it takes the place of what it was. So holding is nothing but two changes of an app, and what is promised of a
change is promised of it.

When it is tried again is `Pauses`: a pause that grows, and is never shorter than many times what the last try took, so
that trying costs a small share of the time however much there is to be computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from slipstream.core.errors import EpochFailed, listed
from slipstream.dataflow.graph import Step
from slipstream.store.catalog import Catalog, HeldSince, ViewEntry, owner_of

FIRST, LONGEST = 5.0, 600.0
"""Seconds until a held view is tried again: at first, and at most unless a try takes long."""
SHARE = 20
"""How many times as long as a try the pause after it is at least."""


@dataclass(frozen=True)
class Fault:
    """Why a view is held: of itself, or because another is that it reads. entry: the view as it is declared, for one
    that was never computed. step: how it would be maintained.
    """

    cause: str
    row: str = ""
    because: str = ""
    entry: ViewEntry | None = None
    step: Step | None = None

    def held(self, last: int, tried: int) -> HeldSince:
        return HeldSince(last, self.cause, self.row, self.because, tried)

    def told(self, view: str) -> str:
        """In one line, what became of a view."""
        if self.because:
            return f"'{view}' (because '{self.because}' is)"
        return f"'{view}' ({' '.join(f'{self.cause} {self.row}'.split())})"


@dataclass(frozen=True)
class Pauses:
    """When held views are tried again. due: by the monotonic clock. took: how long the last try did."""

    due: float = 0.0
    pause: float = FIRST
    took: float = 0.0

    def begun(self, now: float) -> Pauses:
        """After views were held. That others were tried for long before is not forgotten."""
        return Pauses(now + max(FIRST, SHARE * self.took), FIRST, self.took)

    def after(self, now: float, took: float) -> Pauses:
        """After a try that took so long."""
        pause = max(min(2 * self.pause, LONGEST), SHARE * took)
        return Pauses(now + pause, pause, took)


def faults_of(error: EpochFailed) -> dict[str, Fault]:
    """The views that are at fault."""
    return {view: Fault(error.causes[view].strip(), error.rows.get(view, "").strip()) for view in error.views}


def with_their_readers(
    faults: Mapping[str, Fault], inputs: Mapping[str, Iterable[str]], known: Catalog
) -> dict[str, Fault]:
    """Views that are held, and all that cannot be computed without them: what reads them, and their late rows."""
    found = dict(faults)
    while more := {
        name: Fault(f"it reads '{read}', which is held", because=read)
        for name, reads in inputs.items()
        if name not in found
        for read in [next((each for each in reads if each in found), None)]
        if read is not None
    }:
        found |= more
    late = {
        name: Fault(f"'{owner}' is held", because=owner)
        for name, view in known.views.items()
        if view.role == "late" and (owner := owner_of(view.trace)) in found
    }
    return {**found, **late}


def held_entries(held: Mapping[str, Fault], known: Catalog, epoch: int) -> dict[str, ViewEntry]:
    """What the catalog says of the views that are held from an epoch on, or still."""
    found = {}
    for name, fault in held.items():
        if name in known.views:
            was = _shown(known.views[name], epoch)
        elif name in known.held:  # also where its layers are lost: who reads it is told
            was = known.held[name]
        else:
            assert fault.entry is not None, "what is held is declared"
            was = replace(fault.entry, last=0)
        last = min(epoch, was.last if was.last is not None else epoch)
        found[name] = replace(was, traces=(), last=last, held=fault.held(last, epoch))
    return found


def _shown(view: ViewEntry, epoch: int) -> ViewEntry:
    """A view of which this is the newest epoch: if it was to be another from the next on, what it was before."""
    if epoch >= view.since or not view.past:
        return replace(view, past=view.past)
    was, past = view.past[-1], view.past[:-1]
    return replace(
        view,
        since=was.since,
        schema=was.schema,
        contents=was.contents,
        order=was.order,
        past=past,
        last=was.upto if was.last is None else was.last,
    )


def told(held: Mapping[str, Fault], epoch: int) -> str:
    """What is said when views are held."""
    own = [fault.told(view) for view, fault in sorted(held.items()) if not fault.because]
    with_them = [view for view, fault in sorted(held.items()) if fault.because]
    more = f"; with {listed(with_them)}, which cannot be computed without" if with_them else ""
    return f"from epoch {epoch + 1} on without {', '.join(own)}{more}"
