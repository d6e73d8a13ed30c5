"""Epochs: cut, one job, publish."""

from slipstream.epoch.cut import Bounds, Budget
from slipstream.epoch.job import Given, Job, Result
from slipstream.epoch.ledger import Ledger
from slipstream.epoch.loop import Input, Loop, Options
from slipstream.epoch.machine import Policy
from slipstream.epoch.rehearsal import Rehearsal
from slipstream.epoch.rejects import Rejects
from slipstream.epoch.report import EpochReport, Summary, percentile
from slipstream.epoch.spark_job import Place, Planned, SparkJob
from slipstream.epoch.template import Outcome, Template
from slipstream.epoch.watermarks import Watermarks

__all__ = [
    "Bounds",
    "Budget",
    "EpochReport",
    "Given",
    "Input",
    "Job",
    "Ledger",
    "Loop",
    "Options",
    "Outcome",
    "Place",
    "Planned",
    "Policy",
    "Rehearsal",
    "Rejects",
    "Result",
    "SparkJob",
    "Summary",
    "Template",
    "Watermarks",
    "percentile",
]
