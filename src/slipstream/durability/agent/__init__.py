"""The agent: a process beside the engine that persists, replicates and merges, behind the computation."""

from slipstream.durability.agent.process import Agent, Charge, assemble
from slipstream.durability.agent.sums import rest_within
from slipstream.durability.board import Word

__all__ = ["Agent", "Charge", "Word", "assemble", "rest_within"]
