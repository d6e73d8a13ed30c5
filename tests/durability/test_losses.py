"""What views were, and is lost: a start says so once, `fsck` names it, a reader is told. On files, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slipstream.core.errors import HeldElsewhere, PastGone
from slipstream.core.settings import Durability
from slipstream.durability.fsck import Checked, check_store
from slipstream.durability.losses import LostPast, read_told, write_told
from slipstream.durability.recovery import Kind
from slipstream.durability.repair import repair
from slipstream.durability.start import Started, plan_start, start
from slipstream.durability.timetravel import check_there
from slipstream.store import documents, layout
from slipstream.store.catalog import Catalog, Generation, HeldSince
from slipstream.store.store import Store, claim_store
from slipstream.testing.pretend import Pretend, bag_rows
from slipstream.trace import Span, TraceWriter, list_layers

WAS, MENDED, HELD = (f"traces/{each}/view-1" for each in ("was", "mended", "held"))


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Pretend]:
    """Six epochs. 'events' was another up to epoch 2, then held at epoch 3 up to epoch 4, and is what it is since epoch
    5. 'held' is held since epoch 2.
    """
    made = Pretend.start(tmp_path / "store")
    agent = made.agent()
    word = made.run(6)
    for trace, epochs in ((WAS, (1, 2)), (MENDED, (3,)), (HELD, (1, 2))):
        writer = TraceWriter(made.root / trace, 1)
        if trace == MENDED:
            writer.write(1, Span.whole(), bag_rows(1).slice(0, 0))
            writer.write(2, Span.whole(), bag_rows(1).slice(0, 0))
        for epoch in epochs:
            writer.write(epoch, Span.whole(), bag_rows(epoch))
    agent.all(word)
    catalog = made.store.catalog()
    view = catalog.views["events"]

    def gave(since: int, upto: int, trace: str, last: int | None = None) -> Generation:
        return Generation(since, upto, view.schema, {**view.contents, "trace": trace}, last=last)

    past = (gave(0, 2, WAS), gave(3, 4, MENDED, last=3))
    held = replace(
        view, contents={**view.contents, "trace": HELD}, traces=(), held=HeldSince(2, "it fails"), last=2
    )
    views = {"events": replace(view, since=5, past=past)}
    made.claim.write_catalog(Catalog(catalog.sources, views, {"held": held}))
    yield made
    made.close()


def began(root: Path) -> Started:
    """A start of the app, which ends at once."""
    claim = claim_store(Store.at(root), "pretend")
    try:
        return start(claim, "pretend", Durability())
    finally:
        claim.release()


def remove(root: Path, trace: str, *, upto: int = 9) -> None:
    for name in list_layers(root / trace):
        if name.hi <= upto:
            (root / trace / name.filename).unlink()


def found(checked: Checked) -> dict[str, str]:
    return {each.where: each.what for each in checked.findings}


GONE = "is lost: it is in the store that it ran in, never on replicas"


def test_nothing_is_lost(engine: Pretend) -> None:
    engine.close()
    assert (began(engine.root).said, check_store(engine.root).findings) == (None, ())
    assert not (engine.root / layout.LOST).exists()


def test_a_start_says_once_what_is_lost_of_what_views_were(engine: Pretend) -> None:
    engine.close()
    for trace in (WAS, HELD):
        remove(engine.root, trace)
    told = f"what 'events' was from epoch 1 to 2 {GONE}", f"what 'held' was from epoch 1 to 2 {GONE}"
    planned = plan_start(engine.root, None, Durability()).plan
    assert (planned.kind, planned.why) == (Kind.GO_ON, told)
    assert not (engine.root / layout.LOST).exists(), "a plan changes nothing"
    started = began(engine.root)
    assert (started.plan.kind, started.said) == (Kind.GO_ON, "; ".join(told))
    assert began(engine.root).said is None
    remove(engine.root, MENDED)
    assert began(engine.root).said == f"what 'events' was from epoch 3 to 4 {GONE}"
    assert began(engine.root).said is None
    (engine.root / layout.LOST).write_bytes(b"?")
    assert layout.LOST in found(check_store(engine.root))
    assert began(engine.root).said is not None
    assert layout.LOST not in found(check_store(engine.root))


def test_a_note_of_what_was_lost_goes_with_the_loss(engine: Pretend) -> None:
    disk = engine.claim.owned
    lost = LostPast("events", WAS, 1, 2)
    write_told(disk, [lost])
    assert read_told(disk) == frozenset([lost])
    body = (engine.root / layout.LOST).read_bytes()
    write_told(disk, [LostPast("events", WAS, 2, 2)])
    assert (engine.root / layout.LOST).read_bytes() == body, "that was told"
    write_told(disk, [])
    assert not (engine.root / layout.LOST).exists()
    assert read_told(disk) == frozenset()


@pytest.mark.parametrize(
    ("trace", "asked", "said"),
    [
        (WAS, 1, "What 'events' was before it was computed anew at epoch 3 is not in the store"),
        (
            MENDED,
            3,
            "What 'events' was before it was computed anew at epoch 5 is not in the store",
        ),
        (
            MENDED,
            4,
            "What 'events' was before it was computed anew at epoch 5 is not in the store",
        ),
    ],
)
def test_a_reader_is_told_what_a_view_was_and_when_it_became_another(
    engine: Pretend, trace: str, asked: int, said: str
) -> None:
    check_there(engine.store, "events", asked, None, base=False)
    remove(engine.root, trace)
    with pytest.raises(PastGone) as told:
        check_there(engine.store, "events", asked, None, base=False)
    assert str(told.value) == (
        f"{said} '{engine.root}', and epoch {min(asked, 3)} was asked for. It is in the store that it ran in, "
        f"and never on replicas: it is lost with that store, or damaged, which `slipstream fsck {engine.root}` tells. "
        "Epoch 5 and later ones can be read."
    )


def test_a_reader_is_told_that_what_a_held_view_shows_is_lost(engine: Pretend) -> None:
    check_there(engine.store, "held", 6, None, base=False)
    remove(engine.root, HELD)
    with pytest.raises(HeldElsewhere, match="'held' is held, and what it showed as of epoch 2 is not in"):
        check_there(engine.store, "held", 6, None, base=False)


def test_of_what_was_let_go_of_a_past_a_reader_is_not_told_that_it_is_lost(engine: Pretend) -> None:
    """Whoever reads it says what is not there."""
    engine.keep_from = 3
    engine.run(1)
    remove(engine.root, WAS)
    remove(engine.root, MENDED)
    check_there(engine.store, "events", 2, None, base=False)
    with pytest.raises(PastGone):
        check_there(engine.store, "events", 3, None, base=False)


def test_a_view_that_was_held_before_it_had_a_first_row_shows_nothing_and_lacks_nothing(
    engine: Pretend,
) -> None:
    catalog = engine.store.catalog()
    held = replace(catalog.held["held"], contents={"trace": "traces/none/view-1"}, last=0)
    engine.claim.write_catalog(replace(catalog, held={"held": held}))
    check_there(engine.store, "held", 6, None, base=False)
    check_there(engine.store, "held", 6, 2, base=True)
    engine.close()
    assert began(engine.root).said is None


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"told": 1},
        {"told": [1]},
        {"told": ["abcd"]},
        {"told": [["v", "t", "1", 2]]},
        {"told": [["v"]]},
        {"told": [{}]},
    ],
)
def test_a_note_that_says_anything_else_cannot_be_read(engine: Pretend, body: dict[str, Any]) -> None:
    engine.claim.owned.replace(layout.LOST, documents.encode(body, layout.LOST), flushed=False)
    assert read_told(engine.store.disk) is None


def test_fsck_names_the_view_and_the_epochs_and_a_repair_what_it_leaves(engine: Pretend) -> None:
    engine.close()
    remove(engine.root, WAS, upto=1)
    assert found(check_store(engine.root)) == {WAS: f"what 'events' was from epoch 1 to 2 {GONE}"}
    done = repair(engine.root, [])
    assert (done.did, done.refused) == ((), f"what 'events' was from epoch 1 to 2 {GONE}")
    assert began(engine.root).said is None, "that was said"
