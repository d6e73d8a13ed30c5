"""Whoever is superseded in the middle of a change ends as superseded, for it has nothing half done that counts; without
Spark.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from slipstream.app.assembly import Assembly, Changing
from slipstream.app.changing import Changes
from slipstream.core.errors import ChangeHalfDone, StoreFull, Superseded
from slipstream.store.store import Claim, Store, claim_store
from slipstream.testing.pretend import Pretend


class Joining:
    """A change whose last step fails, after the catalog has become another."""

    def __init__(self, claim: Claim, error: Exception) -> None:
        self._claim, self._error = claim, error

    def join(self, running: Any, changing: Any) -> None:
        catalog = self._claim.store.catalog()
        self._claim.write_catalog(replace(catalog, sources={}))
        raise self._error


@pytest.mark.parametrize(
    ("error", "ends"),
    [(Superseded("shop", 1), Superseded), (StoreFull("shop"), ChangeHalfDone)],
)
def test_a_change_that_is_cut_short_says_why(tmp_path: Path, error: Exception, ends: type[Exception]) -> None:
    engine = Pretend.start(tmp_path / "store")
    engine.run(1)
    engine.close()
    successor = claim_store(Store.at(engine.root), "pretend", takeover=True)
    changes = object.__new__(Changes)
    changes._running = cast("Any", SimpleNamespace(started=SimpleNamespace(claim=engine.claim)))
    changes._half_done = None
    with pytest.raises(ends):
        changes._swap(cast("Assembly", Joining(successor, error)), cast("Changing", None))
    assert isinstance(changes._half_done, ChangeHalfDone) == (ends is ChangeHalfDone)
    successor.release()
