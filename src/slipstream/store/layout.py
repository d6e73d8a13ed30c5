"""Every path of a store, in one place.

    format.json           the version of the layout, the app's name and its identity
    catalog.json          sources and views: what readers need to read a view's trace
    copies/               a second copy of either of them, and of what progress.json promises
    lock                  held by the running engine (flock: it falls with the process, however that ends)
    incarnations/N        created once, by the start that claimed number N; says so once N has begun
    lineage/N.log         the lineage log of incarnation N, a chain of checked lines
    lineage/base.json     what the logs add up to as of an epoch, so that a start reads only what follows
    lineage/earlier.json  the base before that one
    sums/N.log            the epoch checksums that incarnation N's agent noted, a chain of checked lines
    sources/NAME/         whatever a source keeps
    traces/VIEW/TRACE/    layers, and the fences that say which of them count
    progress.json         how far the local disk and the replicas are; what went wrong last, by part
    sinks.json            how far sinks are, for people
    sinks/NAME.json       how far a sink is whose target cannot tell
    events/               what engine and agent did, a line an event, bounded in size
    suspected.json        layers that an engine found damaged, and nobody could replace
    away.json             layers that a restore left on a replica
    lost.json             what a start said to be lost of what views were
    restoring             there while a restore is under way

Names are relative to the store's root and use `/`. What comes from outside (a manifest, a note) is checked by
`trace.naming.checked_trace` before it becomes a path.
"""

from __future__ import annotations

from functools import lru_cache

FORMAT = "format.json"
CATALOG = "catalog.json"
COPIES = "copies"
LOCK = "lock"
INCARNATIONS = "incarnations"
LINEAGE = "lineage"
BASE = "lineage/base.json"
EARLIER_BASE = "lineage/earlier.json"
SUMS = "sums"
SOURCES = "sources"
TRACES = "traces"
PROGRESS = "progress.json"
SINKS = "sinks.json"
SINK_NOTES = "sinks"
EVENTS = "events"
SUSPECTED = "suspected.json"
AWAY = "away.json"
LOST = "lost.json"
RESTORING = "restoring"
SPOOL = ".spool"
REBUILD = ".rebuild"
PROBE = ".probe"

_DIGITS = 18  # of a number within 64 bits

OWN = frozenset(
    [
        FORMAT,
        CATALOG,
        COPIES,
        INCARNATIONS,
        LINEAGE,
        SUMS,
        TRACES,
        PROGRESS,
        EVENTS,
        SUSPECTED,
        AWAY,
        LOST,
        RESTORING,
    ]
)
"""What nothing but a store is taken to have: a folder with none of it is no store."""

FOLDERS = (INCARNATIONS, LINEAGE, SUMS, SOURCES, TRACES, COPIES, EVENTS)


def sink_note(name: str) -> str:
    return f"{SINK_NOTES}/{name}.json"


def lineage_log(incarnation: int) -> str:
    return f"{LINEAGE}/{incarnation}.log"


def sums_log(incarnation: int) -> str:
    return f"{SUMS}/{incarnation}.log"


def claim_of(incarnation: int) -> str:
    return f"{INCARNATIONS}/{incarnation}"


def copy_of(name: str) -> str:
    return f"{COPIES}/{name}"


@lru_cache(maxsize=1 << 10)
def number_of(name: str) -> int | None:
    """The incarnation that a name is the number of, as it is written here; None for anything else."""
    plain = name.isascii() and name.isdigit() and len(name) <= _DIGITS
    return int(name) if plain and str(int(name)) == name else None


def log_number(name: str) -> int | None:
    """The incarnation whose log a file of `lineage/` or `sums/` is; None for anything else."""
    stem, dot, suffix = name.rpartition(".")
    return number_of(stem) if dot and suffix == "log" else None
