"""Where rows come from, by recorded range; `base` is the theory."""

from slipstream.sources.base import JSON, Changes, Cut, Source, changes
from slipstream.sources.files import files
from slipstream.sources.leaf import SESSION_SETTINGS
from slipstream.sources.memory import memory
from slipstream.sources.ranged import ranged
from slipstream.sources.rate import rate
from slipstream.sources.stream import stream
from slipstream.sources.table import table

__all__ = [
    "JSON",
    "SESSION_SETTINGS",
    "Changes",
    "Cut",
    "Source",
    "changes",
    "files",
    "memory",
    "ranged",
    "rate",
    "stream",
    "table",
]
