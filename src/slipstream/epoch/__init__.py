"""Epochs: cut, one Spark job, publish."""

from slipstream.epoch.advice import SMALL, Looks, Seen, Stillness, advise
from slipstream.epoch.cut import Bounds, Budget
from slipstream.epoch.loop import Loop, Rejects, Upkeep
from slipstream.epoch.rehearsal import Rehearsal
from slipstream.epoch.report import EpochReport, Summary, percentile
from slipstream.epoch.template import Outcome, Template
from slipstream.epoch.watermarks import Watermarks

__all__ = [
    "SMALL",
    "Bounds",
    "Budget",
    "EpochReport",
    "Looks",
    "Loop",
    "Outcome",
    "Rehearsal",
    "Rejects",
    "Seen",
    "Stillness",
    "Summary",
    "Template",
    "Upkeep",
    "Watermarks",
    "advise",
    "percentile",
]
