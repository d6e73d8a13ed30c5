"""Only the owner removes, cuts off or replaces: whoever was succeeded cannot, wherever it was when that happened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from slipstream.core.errors import Superseded
from slipstream.store.owned import Owned
from slipstream.store.store import Claim, Identity, Store, claim_store
from slipstream.testing.simulation.disk import SimulatedDisk
from slipstream.testing.simulation.layers import ModelLayers
from slipstream.testing.simulation.scheduler import Scheduler

IDENTITY = Identity("shop", "id")

CHANGES: tuple[Callable[[Owned], object], ...] = (
    lambda owned: owned.replace("file", b"other", flushed=True),
    lambda owned: owned.truncate("file", 2),
    lambda owned: owned.remove("file"),
)
OWNERS: tuple[Callable[[Claim], Owned], ...] = (
    lambda claim: claim.owned,
    lambda claim: claim.store.owned_by(claim.incarnation),
)


@pytest.fixture
def claim() -> Claim:
    disk = SimulatedDisk(Scheduler(1))
    claim = claim_store(Store(disk, ModelLayers(disk)), "shop")
    claim.write_identity(IDENTITY)
    disk.create("file", b"bytes")
    return claim


@pytest.mark.parametrize("owner", OWNERS)
@pytest.mark.parametrize("change", CHANGES)
def test_an_owner_that_was_succeeded_changes_nothing(
    claim: Claim, owner: Callable[[Claim], Owned], change: Callable[[Owned], object]
) -> None:
    owned = owner(claim)
    claim_store(claim.store, "shop", takeover=True)
    with pytest.raises(Superseded):
        change(owned)
    assert claim.store.disk.read("file") == b"bytes"


@pytest.mark.parametrize("owner", OWNERS)
def test_an_owner_that_is_succeeded_while_a_file_is_flushed_does_not_put_it_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Callable[[Claim], Owned]
) -> None:
    """As an engine that is stopped while it flushes the catalog of a change, and woken after a takeover."""
    store = Store.at(tmp_path / "store")
    claim = claim_store(store, "shop")
    claim.write_identity(IDENTITY)
    store.disk.create("file", b"bytes")
    owned, claims = owner(claim), [claim]

    def flushed(_: int) -> None:
        monkeypatch.undo()
        claims.append(claim_store(store, "shop", takeover=True))

    monkeypatch.setattr("os.fsync", flushed)
    with pytest.raises(Superseded):
        owned.replace("file", b"other", flushed=True)
    assert store.disk.read("file") == b"bytes"
    assert not [name for name in store.disk.list("") if name.endswith(".tmp")]
    for each in claims:
        each.release()


@pytest.mark.parametrize("change", CHANGES)
def test_a_store_that_was_made_anew_is_not_changed(claim: Claim, change: Callable[[Owned], object]) -> None:
    owned = replace(claim.store, owner="another").owned_by(claim.incarnation)
    with pytest.raises(Superseded):
        change(owned)
    assert claim.store.disk.read("file") == b"bytes"


@pytest.mark.parametrize("change", CHANGES)
def test_a_store_that_is_being_made_anew_is_not_changed(
    claim: Claim, change: Callable[[Owned], object]
) -> None:
    """Its claims are numbered from 1 again, and nothing says yet whose it is (seed 1008343 of the simulation)."""
    disk = SimulatedDisk(Scheduler(1))
    anew = Store(disk, ModelLayers(disk))
    assert claim_store(anew, "shop").incarnation == claim.incarnation
    disk.create("file", b"bytes")
    with pytest.raises(Superseded):
        change(replace(anew, owner=IDENTITY.id).owned_by(claim.incarnation))
    assert disk.read("file") == b"bytes"


@pytest.mark.parametrize("owner", OWNERS)
def test_the_owner_changes_what_it_wants(claim: Claim, owner: Callable[[Claim], Owned]) -> None:
    owned = owner(claim)
    owned.truncate("file", 2)
    assert owned.read("file") == b"by"
    owned.replace("file", b"other", flushed=True)
    assert (owned.read("file", 1, 2), owned.size("file")) == (b"th", 5)
    owned.remove("file")
    assert not owned.exists("file")


def test_whoever_was_succeeded_may_still_read_and_add_to_what_is_its_own(claim: Claim) -> None:
    owned = claim.owned
    claim_store(claim.store, "shop", takeover=True)
    owned.append("file", b" more")
    owned.make_folder("folder")
    assert owned.create("folder/new", b"")
    owned.flush("file")
    owned.flush_folder("folder")
    assert (owned.read("file"), owned.list("folder")) == (b"bytes more", ["new"])
    assert owned.is_locked("lock")
    assert owned.root == claim.store.root
