"""A history as data: what the app is like, which input arrives when, and what goes wrong. All of it comes from a seed.

A fault is due at a moment of virtual time, and comes so many operations after it: in the middle of whatever is going on
then. What is left open (which file, which bit, how long) is drawn from the fault's own seed, so that leaving out one
fault changes no other.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from slipstream.testing.simulation.model import InputFile

Kind = Literal[
    "kill engine",
    "kill agent",
    "kill supervisor",
    "freeze engine",
    "freeze agent",
    "take over",
    "stop engine",
    "power cut",
    "disk full",
    "disk read-only",
    "damage layer",
    "damage lineage",
    "damage document",
    "damage other file",
    "lose folder",
    "lose store",
    "clock jump",
    "replica down",
    "replica flaky",
    "replica slow",
    "damage object",
    "damage commit",
    "lose replica",
    "other app",
]

WEIGHTS: dict[Kind, int] = {
    "kill engine": 8,
    "kill agent": 4,
    "kill supervisor": 1,
    "freeze engine": 5,
    "freeze agent": 2,
    "take over": 4,
    "stop engine": 2,
    "power cut": 10,
    "disk full": 3,
    "disk read-only": 2,
    "damage layer": 5,
    "damage lineage": 5,
    "damage document": 3,
    "damage other file": 3,
    "lose folder": 2,
    "lose store": 5,
    "clock jump": 1,
    "replica down": 3,
    "replica flaky": 3,
    "replica slow": 2,
    "damage object": 3,
    "damage commit": 3,
    "lose replica": 2,
    "other app": 2,
}

REMOTE = (
    "replica down",
    "replica flaky",
    "replica slow",
    "damage object",
    "damage commit",
    "lose replica",
    "other app",
)
"""Faults that need a replica."""

SPAN = 20.0
"""Seconds of virtual time in which input arrives and faults happen."""

_KEYS = "abcde"


@dataclass(frozen=True)
class Fault:
    """after: the moment. points: so many operations later. seed: for what is left open."""

    after: float
    points: int
    kind: Kind
    seed: int


@dataclass(frozen=True)
class Arrival:
    """A file arrives. cost: seconds that an epoch takes longer for it, each time it is computed."""

    at: float
    file: InputFile
    cost: float = 0.0


@dataclass(frozen=True)
class Plan:
    """A history. history: epochs of which the updates are kept, None for all. deletes: whether input is deleted once
    it is safe. unsafe_seconds: for how long an epoch may be unsafe before input waits, None for ever. proof: whether
    in the end, when all is well, everything local is lost, to see that what was promised is there.
    """

    seed: int
    replicas: int
    safe_on: int
    shards: int
    history: int | None
    deletes: bool
    standby: bool
    unsafe_seconds: float | None
    arrivals: tuple[Arrival, ...]
    faults: tuple[Fault, ...]
    proof: bool

    @property
    def urls(self) -> tuple[str, ...]:
        return tuple(f"simulated://replica-{number}/shop" for number in range(1, self.replicas + 1))

    @property
    def size(self) -> int:
        """How much there is to tell."""
        return len(self.faults) + len(self.arrivals)


def draw(seed: int, among: Collection[Kind] = tuple(WEIGHTS)) -> Plan:
    """The history of a seed, with faults of some kinds."""
    chance = random.Random(seed)
    replicas = chance.choice((0, 1, 1, 1, 2, 2))
    kinds = [kind for kind in WEIGHTS if kind in among and (replicas or kind not in REMOTE)]
    count = chance.choice((0, 1, 1, 1, 2, 2, 3, 4)) if kinds else 0
    faults = tuple(
        sorted(
            (
                Fault(
                    after=round(chance.uniform(0.0, SPAN), 3),
                    points=chance.choice((0, chance.randrange(20), chance.randrange(120))),
                    kind=chance.choices(kinds, [WEIGHTS[kind] for kind in kinds])[0],
                    seed=chance.randrange(1 << 30),
                )
                for _ in range(count)
            ),
            key=lambda fault: (fault.after, fault.points),
        )
    )
    return Plan(
        seed=seed,
        replicas=replicas,
        safe_on=chance.choice((1, replicas)) if replicas else 1,
        shards=chance.choice((1, 1, 2)),
        history=chance.choice((None, 2, 5)),
        deletes=replicas > 0 and chance.random() < 0.6,
        standby=chance.random() < 0.2,
        unsafe_seconds=chance.choice((None, None, 3.0)) if replicas else None,
        arrivals=_arrivals(chance),
        faults=faults,
        proof=chance.random() < 0.3,
    )


def _arrivals(chance: random.Random) -> tuple[Arrival, ...]:
    long = chance.random() < 0.03
    made = []
    count = chance.randrange(3, 16)
    for number in range(count):
        source = chance.choice(("orders", "customers"))
        rows = tuple((chance.choice(_KEYS), chance.randrange(1, 100)) for _ in range(chance.randrange(1, 4)))
        file = InputFile(source, f"{source}-{number:02d}", chance.randrange(1000), rows)
        cost = chance.uniform(62.0, 140.0) if long and number == count // 2 else chance.uniform(0.0, 0.2)
        made.append(Arrival(round(chance.uniform(0.0, SPAN), 3), file, cost))
    return tuple(sorted(made, key=lambda arrival: arrival.at))
