"""Epochs: cut, one Spark job, publish."""

from slipstream.epoch.cut import Bounds, Budget
from slipstream.epoch.loop import Loop, Rejects, Upkeep
from slipstream.epoch.rehearsal import Rehearsal
from slipstream.epoch.report import EpochReport, Summary, percentile
from slipstream.epoch.template import Outcome, Template
from slipstream.epoch.watermarks import Watermarks

__all__ = [
    "Bounds",
    "Budget",
    "EpochReport",
    "Loop",
    "Outcome",
    "Rehearsal",
    "Rejects",
    "Summary",
    "Template",
    "Upkeep",
    "Watermarks",
    "percentile",
]
