"""Many histories: counted, and of each kind of failure one is shrunk to its shortest story."""

from __future__ import annotations

import re
import sys
from collections import Counter, deque
from collections.abc import Iterator, Sequence

from slipstream.testing.simulation.history import Outcome, run
from slipstream.testing.simulation.plan import Plan, draw
from slipstream.testing.simulation.shrink import shrink
from slipstream.testing.simulation.world import Told

_MOST_SHRUNK = 5
_REMEMBERED, _LONGEST_LINE = 12, 300


class Campaign:
    """Histories of one seed after another. failed: how often each rule was violated."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.count = 0
        self.epochs = self.starts = self.reads = self.points = 0
        self.faults: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.failures: list[str] = []

    def step(self) -> Outcome:
        """One history more."""
        outcome = run(draw(self._seed + self.count))
        self.count += 1
        self.epochs += outcome.epochs
        self.starts += outcome.starts
        self.reads += outcome.reads
        self.points += outcome.points
        self.faults.update(fault.kind for fault in outcome.faults)
        if outcome.rule is not None:
            self.failed[outcome.rule] += 1
            if self.failed[outcome.rule] == 1 and len(self.failures) < _MOST_SHRUNK:
                self.failures.append(told(shortest(outcome)))
        return outcome

    def summary(self, seconds: float) -> str:
        rate = 60.0 * self.count / max(seconds, 1e-9)
        failed = ", ".join(f"{rule} {count}" for rule, count in self.failed.most_common()) or "none"
        return (
            f"{self.count} histories in {seconds:.0f} s ({rate:.0f} a minute): {self.starts} starts, "
            f"{self.epochs} epochs, {self.reads} reads, {sum(self.faults.values())} faults; failures: {failed}"
        )

    def tell(self, seed: int) -> int:
        """Tell the story of one history, as it is."""
        outcome = run(draw(seed))
        sys.stdout.write(told(outcome) + "\n")
        return 1 if outcome.failure else 0


def shortest(outcome: Outcome) -> Outcome:
    """The smallest history that violates the same rule."""

    def fails(plan: Plan) -> bool:
        return run(plan).rule == outcome.rule

    return run(shrink(outcome.plan, fails))


def _without_repetition(story: Sequence[Told]) -> Iterator[str]:
    """The lines of a story; of those that come again and again, how many there were."""
    recent: deque[str] = deque(maxlen=_REMEMBERED)
    left_out = 0
    for line in story:
        plain = re.sub(r"[\d.]+", "", line.text)
        if plain in recent:
            left_out += 1
            continue
        if left_out:
            yield f"           ({left_out} more of the same)"
        left_out = 0
        recent.append(plain)
        yield str(line)[:_LONGEST_LINE]
        if line.text.startswith("VIOLATED"):
            return


def told(outcome: Outcome) -> str:
    """The story of a history."""
    plan = outcome.plan
    app = (
        f"{plan.replicas} replica(s), safe on {plan.safe_on}, {plan.shards} shard(s), history {plan.history}, "
        f"deletes {plan.deletes}, standby {plan.standby}, unsafe for {plan.unsafe_seconds}"
    )
    end = "nothing was violated" if outcome.failure is None else f"violated {outcome.failure}"
    lines = "\n".join(f"  {line}" for line in _without_repetition(outcome.story))
    return f"\nSeed {plan.seed} ({app})\n{lines}\n  => {end}"
