"""Recovery: the decision, from names alone; and carried out, on a store that is filled without Spark."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from slipstream.durability.agent import tend
from slipstream.durability.board import Board
from slipstream.durability.follower import Follower
from slipstream.durability.inbox import newest_manifest
from slipstream.durability.recovery import Fetch, GoOn, Local, Refuse, Remote, Restore, StartEmpty, decide
from slipstream.durability.replica import Replica
from slipstream.durability.restore import recover
from slipstream.durability.store import Store
from slipstream.errors import CannotRecover, DamagedObject, OtherApp
from slipstream.testing.pretend import BAG, KEYED, Pretend, contents, expected
from slipstream.trace import PLACES, LayerName, validate


def layer(lo: int, hi: int, kind: str = "log") -> LayerName:
    return LayerName(1, lo, hi, 0, PLACES, "log" if kind == "log" else "flat")


WHOLE = Local(True, True, 3, ("t",), {"t": [layer(1, 2, "flat"), layer(3, 3)]})
GAP = Local(True, True, 3, ("t",), {"t": [layer(3, 3)]})
GONE = Local(False, False)
RUINED = Local(False, True)
A = Remote("a", 2, {"t": [layer(1, 2, "flat")]})
B = Remote("b", 1, {"t": [layer(1, 1)]})
EMPTY = Remote("e")
SILENT = Remote("s", error="timed out")


@pytest.mark.parametrize(
    ("local", "remotes", "instruction"),
    [
        (WHOLE, [], GoOn()),
        (WHOLE, [A, SILENT], GoOn()),
        (WHOLE, [Remote("n", 5, {})], Restore("n", 5, 0, certain=True)),
        (GAP, [B, A], Fetch("a", {"t": [layer(1, 2, "flat")]})),
        (GAP, [B], Restore("b", 1, 2, certain=True)),
        (GONE, [], StartEmpty()),
        (GONE, [EMPTY], StartEmpty()),
        (GONE, [A, B], Restore("a", 2, 0, certain=True)),
        (GONE, [SILENT, B], Restore("b", 1, 0, certain=False)),
        (RUINED, [EMPTY, A], Restore("a", 2, 0, certain=True)),
        (
            GONE,
            [EMPTY, SILENT],
            Refuse("there is no store", ("e holds nothing", "s cannot be read (timed out)")),
        ),
        (
            RUINED,
            [EMPTY],
            Refuse(
                "the store has no lineage or no catalog, so that nobody can say how far it goes",
                ("e holds nothing",),
            ),
        ),
        (
            GAP,
            [EMPTY],
            Refuse(
                "The trace in 't' has no layer for epochs 1 to 2 in the places 0 to 2147483648",
                ("e holds nothing",),
            ),
        ),
    ],
)
def test_the_decision(local: Local, remotes: list[Remote], instruction: object) -> None:
    assert decide(local, remotes, safe_on=1) == instruction


def test_a_damaged_layer_is_replaced_and_its_history_with_it() -> None:
    local = Local(True, True, 3, ("t",), {"t": [layer(1, 3, "flat"), layer(3, 3)]}, {"t": [layer(1, 2)]})
    assert decide(local, [A], 1) == Fetch("a", {"t": []}), "its history is lost, the present is not"
    kept = Remote("a", 2, {"t": [layer(1, 1), layer(2, 2)]})
    assert decide(local, [kept], 1) == Fetch("a", {"t": [layer(1, 1), layer(2, 2)]})


@pytest.fixture
def pretend(tmp_path: Path) -> Pretend:
    """An engine that has computed seven epochs, five of which are on the replica."""
    engine = Pretend.on(tmp_path / "store")
    board = Board(engine.root, engine.claim.incarnation, (url(tmp_path),))
    follower = Follower(engine.origin(), url(tmp_path), board)
    board.tell(engine.run(5))
    follower.step()
    tend(engine.root, engine.run(2), board.barriers())
    engine.close()
    return engine


def url(tmp_path: Path, name: str = "replica") -> str:
    return f"file://{tmp_path}/{name}"


def check(root: Path, epoch: int) -> Pretend:
    """A store stands at an epoch, whole, and an engine goes on from there."""
    again = Pretend.on(root)
    assert again.epoch == epoch
    for trace in (BAG, KEYED):
        assert contents(root, trace, epoch) == expected(trace, epoch)
    again.run(2)
    for trace in (BAG, KEYED):
        assert contents(root, trace, epoch + 2) == expected(trace, epoch + 2)
        validate(root / trace, epoch + 2)
    again.close()
    return again


def test_a_whole_store_goes_on_and_asks_nobody(pretend: Pretend, tmp_path: Path) -> None:
    assert recover(pretend.root, "pretend", ["nowhere://x"], 1).epoch == 7
    check(pretend.root, 7)


def test_a_deleted_store_is_restored_and_goes_on(pretend: Pretend, tmp_path: Path) -> None:
    shutil.rmtree(pretend.root)
    pretend.root.mkdir()
    done = recover(pretend.root, "pretend", [url(tmp_path, "gone"), url(tmp_path)], 1)
    assert (done.epoch, done.anew) == (5, True)
    assert done.said == f"the store was restored from {url(tmp_path)}, as of epoch 5"
    assert check(pretend.root, 5).claim.incarnation == 2


def test_lost_layers_are_fetched_and_nothing_is_rolled_back(pretend: Pretend, tmp_path: Path) -> None:
    (lost, *_) = sorted((pretend.root / KEYED).glob("*.arrow"))
    assert LayerName.parse(lost.name).hi <= 5  # type: ignore[union-attr]
    lost.unlink()
    done = recover(pretend.root, "pretend", [url(tmp_path)], 1)
    assert (done.epoch, done.anew) == (7, False)
    check(pretend.root, 7)


def test_what_no_replica_has_is_rolled_back_to_what_one_has(pretend: Pretend, tmp_path: Path) -> None:
    for path in (pretend.root / KEYED).glob("*.arrow"):
        path.unlink()
    done = recover(pretend.root, "pretend", [url(tmp_path)], 1)
    assert (done.epoch, done.anew) == (5, True)
    assert done.said is not None
    assert done.said.endswith("as of epoch 5; 2 epoch(s) after it are computed again, as one")
    check(pretend.root, 5)


def test_a_cut_short_restore_is_done_again(pretend: Pretend, tmp_path: Path) -> None:
    (pretend.root / "restoring").touch()
    shutil.rmtree(pretend.root / BAG)
    recover(pretend.root, "pretend", [url(tmp_path)], 1)
    check(pretend.root, 5)


def test_without_a_copy_the_error_says_what_is_missing(pretend: Pretend, tmp_path: Path) -> None:
    for path in (pretend.root / KEYED).glob("*.arrow"):
        path.unlink()
    with pytest.raises(CannotRecover) as error:
        recover(pretend.root, "pretend", [url(tmp_path, "other")], 1)
    assert str(error.value) == (
        f"the store '{pretend.root}' cannot be started: The trace in '{KEYED}' has no layer for epochs 1 to 7 in the "
        f"places 0 to 2147483648. Replicas: {url(tmp_path, 'other')} holds nothing. Nothing was changed, and an app is "
        "never started from nothing where something was expected. Bring a replica back, or put the store's folder "
        "back; `slipstream fsck` says what is there. To begin again from the input, give the app a new store and "
        "new replicas."
    )


def test_the_replica_of_another_app_is_refused(pretend: Pretend, tmp_path: Path) -> None:
    shutil.rmtree(pretend.root)
    with pytest.raises(OtherApp, match="belongs to the app 'pretend', not to 'shop'"):
        Store.claim(pretend.root, "shop", prepare=lambda root: _recovered(root, "shop", url(tmp_path)))


def _recovered(root: Path, app: str, replica: str) -> None:
    recover(root, app, [replica], 1)


def test_a_damaged_object_is_an_error_that_names_it(pretend: Pretend, tmp_path: Path) -> None:
    shutil.rmtree(pretend.root)
    pretend.root.mkdir()
    manifest = newest_manifest(Replica(url(tmp_path)))
    assert manifest is not None
    name = next(name for name in manifest.objects if name.startswith("data"))
    path = tmp_path / "replica" / name
    flipped = bytearray(path.read_bytes())
    flipped[len(flipped) // 2] ^= 1
    path.write_bytes(flipped)
    with pytest.raises(DamagedObject) as error:
        recover(pretend.root, "pretend", [url(tmp_path)], 1)
    assert str(error.value) == (
        f"replica '{url(tmp_path)}': the object {name} is damaged: its contents are not those that were written. "
        "Recover from another replica, or let the running app write this one anew; `slipstream fsck` says what else is "
        "wrong."
    )
