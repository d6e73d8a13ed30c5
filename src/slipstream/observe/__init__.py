"""A read-only picture of an app: how a run goes, and what its store holds."""

from slipstream.durability.frontiers import Frontiers, Lag
from slipstream.epoch.report import EpochReport, Summary
from slipstream.observe.consumed import Consumed
from slipstream.observe.measured import notes
from slipstream.observe.progress import Backlog, Progress
from slipstream.observe.status import (
    EpochStatus,
    SourceStatus,
    Status,
    ViewStatus,
    read_frontiers,
    read_status,
)
from slipstream.observe.view import read_view

__all__ = [
    "Backlog",
    "Consumed",
    "EpochReport",
    "EpochStatus",
    "Frontiers",
    "Lag",
    "Progress",
    "SourceStatus",
    "Status",
    "Summary",
    "ViewStatus",
    "notes",
    "read_frontiers",
    "read_status",
    "read_view",
]
