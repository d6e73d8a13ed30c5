"""The decision how to start, from what is there alone: no files, no replicas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from slipstream.core.errors import CannotRecover, OtherApp, OtherReplica, WouldLose
from slipstream.durability.board import Progress, Replication
from slipstream.durability.evidence import Commit, Local, Remote, Restoring
from slipstream.durability.families import families_of, strangers_of
from slipstream.durability.losses import LostPast
from slipstream.durability.manifest import CommitName, Kept, Manifest, Stored
from slipstream.durability.recovery import Kind, Plan, decide, substitutes_for
from slipstream.durability.splice import Chain, splice
from slipstream.store import chain
from slipstream.store.catalog import Catalog, Generation, HeldSince, ViewEntry
from slipstream.store.records import Began, Computed, Cut, Record, encode_record
from slipstream.store.store import Identity
from slipstream.trace import PLACES, Fence, LayerName

US = Identity("shop", "a1")
T = "traces/v/t"
CATALOG = Catalog(
    views={"v": ViewEntry(schema={}, fingerprint="f", contents={"trace": T}, traces=(T,))},
)


def layer(lo: int, hi: int, kind: str = "log", incarnation: int = 1) -> LayerName:
    return LayerName(incarnation, lo, hi, 0, PLACES, "log" if kind == "log" else "flat")


def log(*records: Record) -> bytes:
    digest, raw = chain.START, b""
    for record in records:
        digest, line = chain.encode(digest, encode_record(record))
        raw += line
    return raw


def lineage(computed: int, cut: int = 0, safe: int = 0, mark: float = 0.0, kept: int | None = None) -> bytes:
    """The log of incarnation 1: so many epochs computed, and more cut."""
    records: list[Record] = [Began(1, 0, 0, US.id)]
    for epoch in range(1, max(computed, cut) + 1):
        records.append(Cut(epoch, mark, {"files": {"files": [[f"f{epoch}.json", 1, 1]]}}))
        if epoch <= computed:
            promised = min(safe, epoch)
            records.append(Computed(epoch=epoch, clock=mark, seconds=0.5, rows=1, safe=promised, kept=kept))
    return log(*records)


def store(raw: bytes | None, *layers: LayerName, **more: object) -> Local:
    """What is left of a store with this log and these sound layers."""
    copies = {} if raw is None else {1: [raw]}
    known = Local(
        root="STORE",
        identity=US,
        catalog=CATALOG,
        chain=splice([copies], US.id),
        copies=copies,
        layers={T: layers},
        life=True,
    )
    return replace(known, **more)  # type: ignore[arg-type]


GONE = Local(root="STORE", copies={})


def remote(
    url: str,
    epoch: int = 0,
    layers: Sequence[LayerName] = (),
    raw: bytes | None = None,
    *,
    damaged: int | None = None,
    safe: int = 0,
    lost: Sequence[str] = (),
    **more: object,
) -> Remote:
    """A replica with a commit of an epoch, and perhaps a damaged one of a later epoch."""
    commits = [Commit(CommitName(damaged, 1, 2, 7), problem="flipped")] if damaged is not None else []
    objects: dict[str, int] = {}
    if epoch:
        kept = tuple(Kept(each, 1, 100, f"data/{each.lo}-{each.hi}", 0, 1, "d") for each in layers)
        stored = {each.object: Stored(each.object, 10, "s") for each in kept}
        manifest = Manifest(
            app=US.app,
            id=US.id,
            incarnation=1,
            sequence=1,
            epoch=epoch,
            clock=0.0,
            catalog=("catalog/c",),
            objects=stored,
            layers={T: kept},
            schemas={T: "schema"},
            identities=CATALOG.identities(),
            lineage=(),
            safe=safe,
        )
        commits.append(Commit(CommitName(epoch, 1, 1, 1), manifest, catalog=CATALOG))
        objects = {name: 10 for name in stored if name not in lost}
    found = Remote(
        url=url,
        owner=US,
        commits=tuple(commits),
        copies={} if raw is None else {1: [raw]},
        objects=objects,
        incarnation=1,
        life=bool(commits),
    )
    return replace(found, **more)  # type: ignore[arg-type]


def silent(url: str) -> Remote:
    return Remote(url, error="timed out")


def plan(local: Local, *remotes: Remote, accept_loss: bool = False, safe_on: int = 1) -> Plan:
    return decide(local, remotes, app="shop", safe_on=safe_on, accept_loss=accept_loss)


def told(
    local: Local, *remotes: Remote, accept_loss: bool = False, safe_on: int = 1
) -> tuple[Kind, int, int]:
    made = plan(local, *remotes, accept_loss=accept_loss, safe_on=safe_on)
    return made.kind, made.epoch, made.upto


SINGLES = [layer(1, 1), layer(2, 2), layer(3, 3)]
WHOLE = store(lineage(3), *SINGLES)


def test_a_whole_store_goes_on() -> None:
    assert told(WHOLE) == (Kind.GO_ON, 3, 3)
    assert told(WHOLE, silent("s")) == (Kind.GO_ON, 3, 3)
    assert told(store(lineage(3, cut=5), *SINGLES)) == (Kind.GO_ON, 3, 5)


def test_nothing_anywhere_is_a_new_app_and_only_if_everybody_was_heard() -> None:
    empty = Remote("e")
    assert told(GONE) == (Kind.START_EMPTY, 0, 0)
    assert told(GONE, empty) == (Kind.START_EMPTY, 0, 0)
    assert isinstance(plan(GONE, empty, silent("s")).error, CannotRecover)


def test_gaps_are_filled_layer_by_layer_from_several_replicas() -> None:
    a = remote("a", 3, SINGLES, lineage(3), lost=["data/1-1"])
    b = remote("b", 1, [layer(1, 1)], lineage(1))
    made = plan(store(lineage(3), layer(3, 3)), a, b)
    assert (made.kind, made.epoch) == (Kind.FETCH, 3)
    assert [(each.url, each.kept.layer) for each in made.fetch] == [("b", layer(1, 1)), ("a", layer(2, 2))]


def test_a_lost_newest_layer_steps_back_and_computes_the_rest_as_it_was_cut() -> None:
    made = plan(store(lineage(3), *SINGLES[:2], damaged={(T, layer(3, 3)): "zeros"}))
    assert (made.kind, made.epoch, made.upto) == (Kind.STEP_BACK, 2, 3)
    assert made.drop == ((T, layer(3, 3)),)
    assert made.why == (
        "1 damaged layer(s) of 'v' were dropped",
        "epochs 3 to 3 are computed again, from the same input",
    )


def test_a_layer_that_reaches_past_the_epoch_is_no_cover_of_it() -> None:
    """It goes when the new incarnation begins."""
    made = plan(
        store(lineage(4), layer(1, 2, "flat"), layer(1, 4, "log"), damaged={(T, layer(4, 4)): "zeros"})
    )
    assert (made.kind, made.epoch) == (Kind.GO_ON, 4)
    made = plan(store(lineage(3), layer(1, 2, "flat"), layer(3, 4, "flat")))
    assert (made.kind, made.epoch) == (Kind.STEP_BACK, 2)


def test_the_newest_epoch_of_all_copies_wins() -> None:
    a = remote("a", 2, SINGLES[:2], lineage(2))
    b = remote("b", 3, SINGLES, lineage(3))
    for replicas in ([a, b], [b, a]):
        made = plan(GONE, *replicas)
        assert (made.kind, made.epoch) == (Kind.RESTORE, 3)
    assert told(store(lineage(1), layer(1, 1)), b)[:2] == (Kind.RESTORE, 3)


def test_f6_lineage_ahead_of_layers_is_computed_again_as_it_was_cut() -> None:
    made = plan(GONE, remote("a", 2, SINGLES[:2], lineage(3, cut=4)))
    assert (made.kind, made.epoch, made.upto, made.again) == (Kind.RESTORE, 2, 4, 2)


def test_f12_a_whole_second_replica_is_used_where_the_first_is_damaged() -> None:
    a = remote("a", 3, SINGLES, lineage(3), lost=["data/2-2"])
    b = remote("b", 3, SINGLES, lineage(3))
    assert told(GONE, a, b)[:2] == (Kind.RESTORE, 3)


def test_f3_a_damaged_newest_commit_does_not_give_way_in_silence() -> None:
    a = remote("a", 2, SINGLES[:2], lineage(3), damaged=3)
    made = plan(GONE, a)
    assert isinstance(made.error, WouldLose)
    assert str(made.error) == (
        "the store 'STORE' can go on from epoch 2 only: epochs 3 to 3 were called safe. Epochs after it took this "
        "input, which is taken again in new epochs as far as it is still there: source 'files': f3.json. Replicas: a "
        "holds epoch 2, and damaged commits: "
        "commits/0000000003-000001-00000002-00000007.json of epoch 3. Nothing was changed. Bring a replica or the "
        "store's folder back, if there is another copy. To go on without it, from whatever input is still there, run "
        "the app with `slipstream run FILE.py --accept-loss`; where layers of one view are all that is missing, "
        "compute that view anew with `slipstream run FILE.py --rebuild VIEW`. `slipstream recover --plan` says what a "
        "start would do."
    )
    assert told(GONE, a, accept_loss=True) == (Kind.RESTORE, 2, 2), "later epochs are cut anew"
    assert told(GONE, a, remote("b", 3, SINGLES, lineage(3)))[:2] == (Kind.RESTORE, 3)
    assert told(WHOLE, a)[:2] == (Kind.GO_ON, 3), "the store itself has it"


def test_what_consent_does_is_what_is_said() -> None:
    """Epochs that are known, computed or only cut, are not computed as they were: their input may be gone."""
    local = store(lineage(3, safe=3), *SINGLES[:2])
    refused, accepted = plan(local), plan(local, accept_loss=True)
    assert refused.lost == accepted.lost == ("source 'files': f3.json",)
    assert accepted.upto == accepted.epoch == 2, "nothing is pending"
    again = (
        "the input of epochs 3 to 3 is taken again as far as it is still there, in epochs that are cut anew"
    )
    assert again in accepted.why
    assert not any("from the same input" in each for each in accepted.why)


def test_going_back_behind_what_was_safe_needs_consent() -> None:
    local = store(lineage(3, safe=3), *SINGLES[:2])
    assert isinstance(plan(local).error, WouldLose)
    assert told(local, accept_loss=True) == (Kind.STEP_BACK, 2, 2), "later epochs are cut anew"
    told_safe = Replication(persisted=3, replicas={"a": Progress(durable=3)}, incarnation=1, safe=3)
    local = store(lineage(3), *SINGLES[:2], progress=told_safe)
    assert isinstance(plan(local).error, WouldLose)


def test_f13_a_replica_that_lost_everything_may_have_been_ahead() -> None:
    stale, empty = remote("a", 2, SINGLES[:2], lineage(2)), Remote("b")
    for other in (empty, silent("b")):
        made = plan(GONE, stale, other)
        assert isinstance(made.error, WouldLose)
        assert "newer epochs may have been called safe, on what cannot be read or is empty: b" in str(
            made.error
        )
        assert told(GONE, stale, other, accept_loss=True)[:2] == (Kind.RESTORE, 2)
        assert told(GONE, stale, other, safe_on=2)[:2] == (Kind.RESTORE, 2), "it took both to be safe"
    assert told(GONE, stale, Remote("b", owner=US))[:2] == (Kind.RESTORE, 2), "it is new, and says so"
    assert told(WHOLE, empty, silent("b"))[:2] == (Kind.GO_ON, 3), "a store never lags its replica"


def test_f5_1_layers_without_lineage_are_never_an_empty_start() -> None:
    local = store(b"", *SINGLES)
    for consent in (False, True):
        made = plan(local, accept_loss=consent)
        assert isinstance(made.error, CannotRecover)
        assert "the lineage of incarnation 1 is missing; no lineage can be read anywhere" in str(made.error)
    assert told(local, remote("a", 3, SINGLES, lineage(3)))[:2] == (Kind.RESTORE, 3)


def test_f5_2_a_replica_of_damaged_commits_alone_is_no_empty_start() -> None:
    for consent in (False, True):
        assert isinstance(plan(GONE, remote("a", damaged=3), accept_loss=consent).error, CannotRecover)


def test_f5_3_commits_that_an_idle_incarnation_overrules_come_back_with_consent() -> None:
    a = remote("a", 3, SINGLES, lineage(3))
    overruled = replace(a, commits=(), overruled=a.commits, incarnation=99)
    made = plan(GONE, overruled)
    assert isinstance(made.error, WouldLose)
    assert "a later incarnation began before the commits that are there" in str(made.error)
    assert told(GONE, overruled, accept_loss=True)[:2] == (Kind.RESTORE, 3)


def test_f5_4_a_recovery_that_was_begun_is_a_sign_of_life() -> None:
    note = Restoring(2, 1, "d", "from file:///r")
    made = plan(replace(GONE, restoring=note, life=True))
    assert isinstance(made.error, CannotRecover)
    assert "a recovery was begun and not finished (from file:///r)" in str(made.error)


def test_f2_a_hole_in_the_lineage_is_never_read_over() -> None:
    lines = lineage(3).splitlines(keepends=True)
    holed = b"".join(lines[:3] + lines[4:])
    local = store(holed, *SINGLES)
    made = plan(local)
    assert isinstance(made.error, WouldLose)
    assert "lineage/1.log: lines after the first 3 are missing" in str(made.error)
    assert told(local, accept_loss=True)[1:] == (1, 1), "what comes after is cut anew"
    made = plan(local, remote("a", 3, SINGLES, lineage(3)))
    assert (made.kind, made.epoch, made.fetch) == (Kind.GO_ON, 3, ())
    assert made.chain.logs[1] == lineage(3)
    assert made.why == ("lineage of incarnation 1 was fetched from replicas",)


def test_a_hole_in_what_was_never_flushed_is_what_a_power_cut_leaves() -> None:
    lines = lineage(3).splitlines(keepends=True)
    holed = b"".join(lines[:3] + lines[4:])
    local = store(holed, *SINGLES, progress=Replication(persisted=1, incarnation=1))
    assert told(local) == (Kind.GO_ON, 1, 1)
    assert plan(local).why == (
        "lineage/1.log: lines after the first 3 are missing: what it told of is computed again",
    )
    local = replace(local, progress=Replication(persisted=2, incarnation=1))
    assert isinstance(plan(local).error, WouldLose)


def test_lineage_that_was_on_disk_and_is_not_is_lost_not_torn() -> None:
    said = Replication(persisted=3, incarnation=1)
    made = plan(store(lineage(2), *SINGLES, progress=said))
    assert isinstance(made.error, WouldLose)
    assert "lineage up to epoch 3 was on the disk, and ends at epoch 2" in str(made.error)
    assert told(store(lineage(2), *SINGLES, progress=Replication(persisted=2, incarnation=1)))[1:] == (2, 2)


def test_a_log_that_is_gone_is_missed_by_the_fence_that_it_put_up() -> None:
    made = plan(store(lineage(3), *SINGLES, fences=frozenset({Fence(2, 3)})))
    assert isinstance(made.error, WouldLose)
    assert "the lineage of incarnation 2 is missing" in str(made.error)


def test_everything_anew_needs_consent_once_anything_was_persisted() -> None:
    assert told(store(lineage(3))) == (Kind.STEP_BACK, 0, 3), "a power cut in the first seconds"
    persisted = store(lineage(3), progress=Replication(persisted=2, incarnation=1))
    assert isinstance(plan(persisted).error, WouldLose)
    assert isinstance(plan(replace(persisted, progress=None)).error, WouldLose), "nobody knows"
    assert told(persisted, accept_loss=True) == (Kind.STEP_BACK, 0, 0)


def test_what_was_said_before_a_step_back_counts_no_more() -> None:
    """Consent was given once; the agent has not said anything since."""
    one = lineage(3)
    upto = one.splitlines(keepends=True)[:5]
    two = log(Began(2, 2, 2, US.id, (1, upto[-1][:16].decode())))
    copies = {1: [one], 2: [two]}
    said = Replication(persisted=3, replicas={"a": Progress(durable=3)}, incarnation=1, safe=3)
    local = store(one, *SINGLES[:2], progress=said)
    local = replace(local, copies=copies, chain=splice([copies], US.id))
    assert told(local) == (Kind.GO_ON, 2, 2)


def test_histories_that_parted_are_never_mixed() -> None:
    other = lineage(5, mark=9.0)
    theirs = [layer(1, 5, "flat")]
    made = plan(store(lineage(3), *SINGLES), remote("a", 5, theirs, other))
    assert (made.kind, made.epoch, made.own) == (Kind.RESTORE, 5, False)
    assert made.chain.logs[1] == other
    assert made.drop == tuple((T, each) for each in SINGLES), "of another history"
    gap = plan(store(lineage(6), *SINGLES, layer(4, 4), layer(6, 6)), remote("a", 5, [layer(5, 5)], other))
    assert gap.fetch == (), "a layer of another history does not fill the gap"


def test_layers_without_a_log_count_if_a_commit_has_their_digest() -> None:
    a = remote("a", 3, SINGLES, lineage(3))
    known = {(T, each): "d" for each in SINGLES[:2]} | {(T, SINGLES[2]): "other"}
    made = plan(store(None, *SINGLES, digests=known), a)
    assert [each.kept.layer for each in made.fetch] == [layer(3, 3)]
    assert made.drop == ((T, layer(3, 3)),)


def test_a_recovery_that_was_cut_short_keeps_what_it_brought_for_this_history() -> None:
    raw = lineage(3)
    a = remote("a", 3, SINGLES, raw)
    brought = replace(layer(1, 1), incarnation=2)
    note = Restoring(2, 1, raw.splitlines()[-1][:16].decode(), "from a")
    kept = plan(store(None, brought, restoring=note), a)
    assert [each.kept.layer for each in kept.fetch] == SINGLES[1:]
    other = plan(store(None, brought, restoring=replace(note, digest="0" * 16)), a)
    assert [each.kept.layer for each in other.fetch] == SINGLES
    assert other.drop == ((T, brought),)


def test_layers_that_a_record_does_not_name_are_strangers() -> None:
    records: list[Record] = [Began(1, 0, 0, US.id)]
    for epoch in (1, 2):
        records += [
            Cut(epoch, 0.0, {}),
            Computed(epoch=epoch, clock=0.0, seconds=0.1, rows=1, layers={T: "another digest"}),
        ]
    raw = log(*records)
    local = store(raw, layer(1, 1), layer(2, 2), digests={(T, layer(2, 2)): "digest"})
    assert plan(local).epoch == 1
    assert plan(local).drop == ((T, layer(2, 2)),)
    two = replace(layer(2, 2), incarnation=2)
    restored = store(raw, layer(1, 1), two, digests={(T, two): "digest"}, fences=frozenset({Fence(2, 2)}))
    two_log = log(Began(2, 2, 2, US.id, (1, raw.splitlines()[-1][:16].decode())))
    copies = {1: [raw], 2: [two_log]}
    restored = replace(restored, copies=copies, chain=splice([copies], US.id))
    assert plan(restored).epoch == 2, (
        "what was brought by an incarnation that did not compute it is not named"
    )


def test_what_a_view_held_where_its_history_begins_was_made_by_no_epoch() -> None:
    """Also of what it was before it was replaced."""
    records: list[Record] = [Began(1, 0, 0, US.id)]
    for epoch in (1, 2, 3):
        named = {T: "another digest", WAS: "another digest"}
        records += [Cut(epoch, 0.0, {}), Computed(epoch, 0.0, 0.1, 1, layers=named)]
    past = (Generation(2, 3, schema={}, contents={"trace": WAS}),)
    catalog = Catalog(views={"v": replace(CATALOG.views["v"], since=2, past=past)})
    here = {(trace, layer(epoch, epoch)): "digest" for trace in (T, WAS) for epoch in (1, 2, 3)}
    layers = {trace: tuple(name for at, name in here if at == trace) for trace in (T, WAS)}
    local = store(log(*records), catalog=catalog, layers=layers, digests=here)
    (family,) = families_of(local, (), US, overruled=False)
    assert strangers_of(family, catalog) == {(T, layer(3, 3)), (WAS, layer(3, 3))}


def test_f16_history_is_brought_back_too() -> None:
    local = store(lineage(3), layer(1, 3, "flat"), layer(3, 3))
    made = plan(local, remote("a", 3, SINGLES, lineage(3)))
    assert [each.kept.layer for each in made.fetch] == SINGLES[:2]
    holed = store(lineage(3, kept=0), layer(1, 3, "flat"), layer(1, 1), layer(3, 3))
    made = plan(holed)
    assert (made.kind, made.epoch) == (Kind.GO_ON, 3)
    assert made.why == (
        "the history of 'v' before epoch 3 is lost (it was kept from epoch 0 on): no copy is left",
    )


@pytest.mark.parametrize(("kept", "lost"), [(0, True), (1, True), (2, False), (3, False), (None, False)])
def test_history_that_no_record_let_go_is_told_to_be_lost(kept: int | None, lost: bool) -> None:
    """The oldest layer is gone from the only replica, the store is gone, and the present is whole."""
    layers = [layer(1, 4, "flat"), layer(1, 2, "flat"), layer(2, 2), layer(3, 3), layer(4, 4)]
    a = remote("a", 4, layers, lineage(4, kept=kept), lost=["data/2-2"])
    made = plan(GONE, a)
    assert (made.kind, made.epoch, made.error) == (Kind.RESTORE, 4, None)
    said = [each for each in made.why if "history" in each]
    assert said == (
        [f"the history of 'v' before epoch 2 is lost (it was kept from epoch {kept} on): no copy is left"]
        if lost
        else []
    )


def test_history_that_another_replica_has_is_brought_from_there() -> None:
    flat = layer(1, 3, "flat")
    a = remote("a", 3, [flat, *SINGLES], lineage(3, kept=0), lost=["data/1-1"])
    b = remote("b", 3, [flat, *SINGLES], lineage(3, kept=0), lost=["data/3-3"])
    made = plan(GONE, a, b)
    assert {each.kept.layer for each in made.fetch} == {flat, *SINGLES}
    assert not [each for each in made.why if "history" in each]


def test_the_history_of_a_view_begins_where_it_was_computed_anew() -> None:
    anew = Catalog(views={"v": replace(CATALOG.views["v"], since=2)})
    local = store(lineage(3, kept=0), layer(1, 2, "flat"), layer(3, 3), catalog=anew)
    assert plan(local).why == ()
    assert plan(replace(local, catalog=CATALOG)).why != ()


WAS = "traces/v/was"
HELD = ViewEntry(
    schema={}, fingerprint="h", contents={"trace": "traces/h/t"}, traces=(), held=HeldSince(1, "why"), last=1
)


def changed(**more: object) -> Local:
    """A store of three epochs whose view was another up to epoch 2, and of another that is held since epoch 1."""
    was = Generation(0, 2, schema={}, contents={"trace": WAS})
    catalog = Catalog(views={"v": replace(CATALOG.views["v"], since=3, past=(was,))}, held={"h": HELD})
    layers = {T: (layer(1, 3, "flat"),), WAS: tuple(SINGLES[:2]), "traces/h/t": (SINGLES[0],)}
    return store(lineage(3, kept=0), catalog=catalog, layers={**layers, **more})


def lost(view: str, trace: str, first: int, last: int) -> LostPast:
    return LostPast(view, trace, first, last)


@pytest.mark.parametrize(
    ("gone", "said"),
    [
        ({}, ()),
        ({WAS: ()}, (lost("v", WAS, 1, 2),)),
        ({WAS: (layer(2, 2),)}, (lost("v", WAS, 1, 2),)),
        ({WAS: (layer(1, 1),)}, (lost("v", WAS, 2, 2),)),
        ({WAS: (layer(1, 2, "flat"), layer(2, 2))}, (lost("v", WAS, 1, 1),)),
        ({"traces/h/t": ()}, (lost("h", "traces/h/t", 1, 1),)),
        ({WAS: (), "traces/h/t": ()}, (lost("h", "traces/h/t", 1, 1), lost("v", WAS, 1, 2))),
    ],
)
def test_what_is_lost_of_what_views_were_is_told_once_and_keeps_nobody_from_going_on(
    gone: dict[str, tuple[LayerName, ...]], said: tuple[LostPast, ...]
) -> None:
    local = changed(**gone)
    made = plan(local)
    assert (made.kind, made.epoch, set(made.pasts)) == (Kind.GO_ON, 3, set(said))
    assert set(made.why) == set(map(str, said))
    again = plan(replace(local, told=frozenset(said)))
    assert (again.pasts, again.why) == (made.pasts, ())


def test_more_that_is_lost_than_was_told_is_told() -> None:
    local = changed(**{WAS: ()})
    assert plan(replace(local, told=frozenset([lost("v", WAS, 1, 1)]))).why == (
        "what 'v' was from epoch 1 to 2 is lost: it is in the store that it ran in, never on replicas",
    )
    assert plan(replace(local, told=frozenset([lost("v", WAS, 0, 2)]))).why == ()


def test_what_was_let_go_of_what_a_view_was_is_not_missed() -> None:
    local = changed(**{WAS: ()})
    let_go = store(lineage(3, kept=3), catalog=local.catalog, layers={**local.layers, "traces/h/t": ()})
    assert plan(let_go).pasts == (lost("h", "traces/h/t", 1, 1),), "what a held view shows is kept"
    partly = store(lineage(3, kept=2), catalog=local.catalog, layers=local.layers)
    assert plan(partly).pasts == (lost("v", WAS, 2, 2),)


def test_what_a_held_view_shows_is_not_missed_where_it_is_computed_anew() -> None:
    local = changed(**{"traces/h/t": ()})
    assert decide(local, (), app="shop", rebuild=["h"]).pasts == ()


def test_a_store_that_comes_back_from_a_replica_says_what_views_were_is_lost() -> None:
    catalog = changed().catalog
    a = remote("a", 3, [layer(1, 3, "flat")], lineage(3, kept=0))
    a = replace(a, commits=tuple(replace(each, catalog=catalog) for each in a.commits))
    made = plan(GONE, a)
    assert made.kind is Kind.RESTORE
    assert set(made.pasts) == {lost("v", WAS, 1, 2), lost("h", "traces/h/t", 1, 1)}
    assert {str(each) for each in made.pasts} <= set(made.why)


def test_a_damaged_layer_of_what_a_view_was_is_dropped_and_told_whose_it_was() -> None:
    local = replace(changed(**{WAS: (layer(1, 1),)}), damaged={(WAS, layer(2, 2)): "flipped"})
    made = plan(local)
    assert made.drop == ((WAS, layer(2, 2)),)
    assert made.why == (
        "1 damaged layer(s) of 'v' were dropped",
        "what 'v' was at epoch 2 is lost: it is in the store that it ran in, never on replicas",
    )


def test_what_was_let_go_by_records_that_do_not_count_any_more_is_not_missed() -> None:
    """The agent was told at epoch 3 that history before epoch 2 may go; a power cut took epoch 3."""
    first = log(
        Began(1, 0, 0, US.id),
        *(each for e in (1, 2) for each in (Cut(e, 0.0, {}), Computed(e, 0.0, 0.1, 1, kept=0))),
        *(Cut(3, 0.0, {}), Computed(3, 0.0, 0.1, 1, kept=2)),
    )
    digest = chain.scan(first).lines[-1].digest
    second = log(Began(2, 2, 2, US.id, (1, digest)))
    copies = {1: [first], 2: [second]}
    local = store(first, layer(1, 2, "flat"))
    local = replace(local, copies=copies, chain=splice([copies], US.id))
    assert (plan(local).epoch, plan(local).why) == (2, ())


def test_a_trace_that_means_something_else_on_a_replica_is_not_used() -> None:
    rebuilt = Catalog(views={"v": replace(CATALOG.views["v"], rebuilt=7)})
    local = store(lineage(3), *SINGLES[1:], catalog=rebuilt)
    assert plan(local, remote("a", 3, SINGLES, lineage(3))).fetch == ()


def test_a_view_that_is_computed_anew_needs_no_layers() -> None:
    local = store(lineage(3, safe=3))
    assert isinstance(plan(local).error, WouldLose)
    assert decide(local, (), app="shop", rebuild=["v"]).kind is Kind.GO_ON


def test_f9_what_is_another_apps_is_refused() -> None:
    other = Identity("shop", "b2")
    assert isinstance(plan(WHOLE, remote("a", 3, SINGLES, lineage(3), owner=other)).error, OtherReplica)
    assert isinstance(decide(WHOLE, (), app="till").error, OtherApp)
    theirs = remote("a", 3, SINGLES, lineage(3), owner=Identity("till", "c3"))
    assert isinstance(plan(GONE, theirs).error, OtherReplica)
    two = plan(GONE, remote("a", 3, SINGLES, lineage(3)), remote("b", owner=other))
    assert isinstance(two.error, OtherReplica)


def test_f15_a_damaged_identity_is_told_by_the_lineage() -> None:
    local = store(lineage(3), *SINGLES, identity=None, documents=("format.json: it is empty",))
    made = plan(local)
    assert (made.kind, made.identity) == (Kind.GO_ON, US)


def test_f15_a_catalog_that_nobody_has_is_an_error_that_says_so() -> None:
    local = store(lineage(3), *SINGLES, catalog=None, documents=("catalog.json: it is empty",))
    made = plan(local)
    assert isinstance(made.error, CannotRecover)
    assert "catalog.json: it is empty; no catalog can be read anywhere" in str(made.error)
    assert told(local, remote("a", 2, SINGLES[:2], lineage(3)))[:2] == (Kind.RESTORE, 3)


def test_an_older_catalog_is_used_where_it_knows_all_that_the_newest_commit_has() -> None:
    a = remote("a", 3, SINGLES, lineage(3))
    assert a.commits[0].manifest is not None
    later = replace(a.commits[0].manifest, sequence=2)
    newest = Commit(CommitName(3, 1, 2, 2), later)
    assert told(GONE, replace(a, commits=(newest, *a.commits)))[:2] == (Kind.RESTORE, 3)
    grown = replace(later, identities={**later.identities, "traces/w/t": "f.0"})
    made = plan(GONE, replace(a, commits=(replace(newest, manifest=grown), *a.commits)))
    assert isinstance(made.error, WouldLose)
    assert "the catalog of the newest commit cannot be read, and an older one lacks w" in str(made.error)


def test_a_store_that_was_read_from_its_base_is_judged_without_its_logs() -> None:
    known = Chain(splice([{1: [lineage(3)]}], US.id).lineage)
    local = replace(WHOLE, copies=None, chain=known)
    assert told(local) == (Kind.GO_ON, 3, 3)


@pytest.mark.parametrize(
    ("damaged", "mine", "wanted"),
    [
        (layer(1, 4, "flat"), SINGLES, ()),
        (layer(1, 4, "flat"), [], [layer(1, 4, "flat")]),
        (layer(2, 2), [layer(1, 3, "flat")], [layer(2, 2)]),
    ],
)
def test_what_stands_in_for_a_damaged_layer(
    damaged: LayerName, mine: list[LayerName], wanted: Sequence[LayerName]
) -> None:
    a = remote("a", 4, [layer(1, 4, "flat"), layer(2, 2)], lineage(4))
    local = store(lineage(4), *mine, layer(4, 4), damaged={(T, damaged): "rot"})
    found = substitutes_for((T, damaged), local, [a])
    assert found is not None
    assert [each.kept.layer for each in found] == list(wanted)


def test_history_is_given_up_only_if_every_replica_was_heard() -> None:
    local = store(lineage(3), layer(1, 3, "flat"), damaged={(T, layer(2, 2)): "rot"})
    assert substitutes_for((T, layer(2, 2)), local, [silent("s")]) is None
    assert substitutes_for((T, layer(2, 2)), local, []) is None, "there is nobody who might have had it"
    assert substitutes_for((T, layer(2, 2)), local, [remote("a", 3, [layer(1, 3, "flat")], lineage(3))]) == ()
    assert substitutes_for((T, layer(1, 3, "flat")), store(lineage(3), layer(3, 3)), []) is None
