"""Object stores in memory, with the failures of real ones.

A `Bucket` is what is stored under one URL, and outlives every process. Each call takes its time and may fail, before or
after it took effect, for as long as the bucket is *flaky* or *down*.

Listings are complete: `durability.replica.Objects` demands that a listing knows of everything that was put before,
because claims are compared by listing them. Objects may be lost or damaged at rest.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from slipstream.testing.simulation.disk import Damage, damaged
from slipstream.testing.simulation.scheduler import Scheduler

_QUICK, _SLOW = 0.03, 0.4
_SLOW_SHARE = 0.05


@dataclass(eq=False)
class Bucket:
    """What is under a URL. flaky: the share of calls that fail. down: every call fails. slow: how many times as long as
    usual calls take. well_since: when calls ceased to fail.
    """

    url: str
    objects: dict[str, bytes] = field(default_factory=dict)
    flaky: float = 0.0
    down: bool = False
    slow: float = 1.0
    well_since: float = -math.inf
    watch: Callable[[str, Bucket, str], None] = lambda what, bucket, name: None

    def recover(self, now: float) -> None:
        """Calls do not fail any more."""
        self.down, self.flaky, self.well_since = False, 0.0, now

    def damage(self, kind: Damage, name: str, chance: random.Random) -> None:
        """Lose or damage an object at rest."""
        if kind == "delete":
            del self.objects[name]
        else:
            self.objects[name] = damaged(kind, self.objects[name], chance)


class SimulatedObjects:
    """A bucket as a process uses it; see `durability.replica.Objects`."""

    def __init__(self, scheduler: Scheduler, bucket: Bucket) -> None:
        self._scheduler, self._bucket = scheduler, bucket

    @property
    def url(self) -> str:
        return self._bucket.url

    def put(self, name: str, body: bytes | Path) -> None:
        assert isinstance(body, bytes)
        self._pass()
        self._bucket.watch("put", self._bucket, name)
        if self._fails():
            if self._scheduler.random.random() < 0.5:  # it arrived, and the answer did not
                self._bucket.objects[name] = body
            raise ConnectionError(f"putting {name} failed")
        self._bucket.objects[name] = body
        self._pass()

    def get(self, name: str) -> bytes:
        self._pass()
        if self._fails():
            raise ConnectionError(f"getting {name} failed")
        if name not in self._bucket.objects:
            raise FileNotFoundError(name)
        return self._bucket.objects[name]

    def fetch(self, name: str, to: Path) -> str:
        return hashlib.sha256(self.get(name)).hexdigest()

    def open(self, name: str) -> pa.NativeFile:
        return pa.BufferReader(self.get(name))

    def list(self, folder: str) -> dict[str, int]:
        self._pass()
        if self._fails():
            raise ConnectionError(f"listing {folder} failed")
        under = f"{folder}/" if folder else ""
        return {
            name: len(body)
            for name, body in sorted(self._bucket.objects.items())
            if name.startswith(under) and "/" not in name[len(under) :]
        }

    def delete(self, name: str) -> None:
        self._pass()
        if self._fails():
            raise ConnectionError(f"deleting {name} failed")
        self._bucket.watch("delete", self._bucket, name)
        self._bucket.objects.pop(name, None)

    def _fails(self) -> bool:
        return self._bucket.down or (
            self._bucket.flaky > 0.0 and self._scheduler.random.random() < self._bucket.flaky
        )

    def _pass(self) -> None:
        drawn = self._scheduler.random.random()
        slow = drawn < _SLOW_SHARE
        self._scheduler.point(drawn * (_SLOW / _SLOW_SHARE if slow else _QUICK) * self._bucket.slow)
