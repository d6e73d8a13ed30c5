"""Slipstream keeps the results of PySpark and Spark SQL queries up to date as their inputs change.

The names below are loaded when they are first used: a task in a Spark worker, and the agent, import parts of
the package and need not load all of it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from slipstream.core.version import __version__

if TYPE_CHECKING:
    from slipstream.app import App
    from slipstream.core.errors import SlipstreamError
    from slipstream.core.settings import Limits, Settings
    from slipstream.epoch import EpochReport, Summary
    from slipstream.observe import read_view
    from slipstream.sinks import foreach, to_delta, to_folder, to_postgres
    from slipstream.sources import files, memory, ranged, rate, stream, table

__all__ = [
    "App",
    "EpochReport",
    "Limits",
    "Settings",
    "SlipstreamError",
    "Summary",
    "__version__",
    "files",
    "foreach",
    "memory",
    "ranged",
    "rate",
    "read_view",
    "stream",
    "table",
    "to_delta",
    "to_folder",
    "to_postgres",
]

_HOMES = {
    "App": "slipstream.app",
    "EpochReport": "slipstream.epoch",
    "Limits": "slipstream.core.settings",
    "Settings": "slipstream.core.settings",
    "SlipstreamError": "slipstream.core.errors",
    "Summary": "slipstream.epoch",
    "read_view": "slipstream.observe",
    **dict.fromkeys(("foreach", "to_delta", "to_folder", "to_postgres"), "slipstream.sinks"),
    **dict.fromkeys(("files", "memory", "ranged", "rate", "stream", "table"), "slipstream.sources"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'slipstream' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)
