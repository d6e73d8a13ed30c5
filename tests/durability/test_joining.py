"""Whose replica it is: one app's, whatever another one is called and however it came there."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from slipstream.core.errors import OtherReplica, ReplicaTrouble, SupersededOnReplica
from slipstream.durability.ahead import Shipping
from slipstream.durability.board import read_replication
from slipstream.durability.joining import UNKNOWN, Guarded, Origin, held, join, read_owner, swept
from slipstream.durability.manifest import ClaimName
from slipstream.durability.replica import Replica
from slipstream.store import documents
from slipstream.store.store import Identity
from slipstream.testing.copies import check_replica_holds, objects_of
from slipstream.testing.pretend import Pretend


def replicated(folder: Path, url: str, epochs: int = 5) -> Pretend:
    engine = Pretend.on(folder)
    agent = engine.agent(url)
    for _ in range(epochs):
        agent.all(engine.run(1))
        agent.lineage()
    return engine


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/replica"


def everything(url: str) -> dict[str, bytes]:
    return {name: Replica(url).get(name) for name in objects_of(url)}


@pytest.mark.parametrize(
    "lost", ["nothing", "owner.json", "owner.json flipped", "owner.json and commits", "owner.json and claims"]
)
@pytest.mark.parametrize("starts", [1, 6])
def test_an_app_on_another_ones_replica_is_refused_and_harms_nothing(
    tmp_path: Path, url: str, lost: str, starts: int
) -> None:
    """Both are called "pretend"; the second one has the higher incarnation, or the lower."""
    shop = replicated(tmp_path / "shop", url)
    shop.close()
    owner = tmp_path / "replica" / "owner.json"
    if lost == "owner.json flipped":
        owner.write_bytes(owner.read_bytes().replace(b"pretend", b"qretend"))
    elif lost != "nothing":
        owner.unlink()
    for folder in ("commits", "claims"):
        if lost == f"owner.json and {folder}":
            for each in (tmp_path / "replica" / folder.replace("claims", "incarnations")).iterdir():
                each.write_bytes(b"")
    before = everything(url)
    for _ in range(starts):
        other = Pretend.on(tmp_path / "other")
        other.close()
    agent = other.agent(url)
    agent.hear(other.run(9))
    for part in ("follow", "lineage"):
        with pytest.raises(OtherReplica) as error:
            getattr(agent, part)()
        assert str(error.value) == (
            f"replica '{url}' belongs to the app 'pretend' ({shop.identity.id}), and this is the app 'pretend' "
            f"({other.identity.id}). Nothing was written or deleted there. Give each app replicas of its own "
            "(App(..., replicas=[URL])). If this is to be the app 'pretend' on another store, recover that store from "
            "the replica first."
        )
    assert everything(url) == before
    said = read_replication(other.store.disk)
    assert "belongs to the app" in str(said.replicas[url].error)
    assert said.replicas[url].durable == 0


@pytest.mark.parametrize("damage", ["gone", "zeros"])
def test_the_owner_puts_its_name_back(tmp_path: Path, url: str, damage: str) -> None:
    engine = replicated(tmp_path / "shop", url)
    owner = tmp_path / "replica" / "owner.json"
    if damage == "gone":
        owner.unlink()
    else:
        owner.write_bytes(bytes(100))
    agent = engine.agent(url)
    agent.hear(engine.run(1))
    agent.follow()
    assert documents.decode(owner.read_bytes()) == {"app": "pretend", "id": engine.identity.id}
    check_replica_holds(url, tmp_path / "back", 1, 6)
    engine.close()


def test_two_apps_that_find_a_new_replica_at_once_do_not_share_it(tmp_path: Path, url: str) -> None:
    """Another app writes its name between this one's writing and its looking again."""
    engine = Pretend.on(tmp_path / "shop")
    other = Identity.new("other")

    class Raced(Replica):
        def put(self, name: str, body: bytes | Path) -> None:
            super().put(name, body)
            if name == "owner.json":
                super().put(name, documents.encode(dict(vars(other))))

    agent = engine.agent(url, objects=Raced)
    agent.hear(engine.run(1))
    with pytest.raises(OtherReplica):
        agent.follow()
    assert objects_of(url) == {"owner.json"}
    engine.close()


def test_whose_replica_it_is(tmp_path: Path, url: str) -> None:
    replica = Replica(url)
    assert read_owner(replica) is None, "nothing is there"
    replica.put("data/000001-0000000001-0000000001-ab-0.parquet", b"something")
    assert read_owner(replica) == UNKNOWN
    replica.put("incarnations/000001-0000000000-ab", json.dumps({"app": "shop", "id": "x"}).encode())
    assert read_owner(replica) == Identity("shop", "x")
    replica.put("owner.json", documents.encode({"app": "shop", "id": "y"}))
    assert read_owner(replica) == Identity("shop", "y")


def test_failures_of_storage_have_one_name_and_mistakes_keep_theirs(tmp_path: Path, url: str) -> None:
    guarded = Guarded(f"faulty+{url}?fail_at=1", Replica)
    with pytest.raises(ReplicaTrouble) as error:
        guarded.list("data")
    assert str(error.value) == (
        f"replica 'faulty+{url}': listing data failed (OSError: [Errno 5] scripted fault: operation 1 fails). It is "
        "tried again by itself; see to the storage if that goes on."
    )
    assert guarded.list("data") == {}
    with pytest.raises(FileNotFoundError):
        guarded.get("owner.json")
    with pytest.raises(TypeError):
        guarded.get()  # type: ignore[call-arg]


def origin_of(folder: Path) -> Origin:
    engine = Pretend.on(folder)
    engine.close()
    return replace(engine.origin(), token=uuid.uuid4().hex[:8])


def test_what_puts_is_had_only_where_the_claim_is(tmp_path: Path, url: str) -> None:
    origin = origin_of(tmp_path / "shop")
    objects = Replica(url)
    with pytest.raises(ReplicaTrouble, match="it is claimed again"):
        held(objects, origin)
    join(objects, origin)
    held(objects, origin).put("data/object", b"bytes")
    assert objects.get("data/object") == b"bytes"


def test_what_deletes_is_had_only_for_a_replica_of_this_app(tmp_path: Path, url: str) -> None:
    join(Replica(url), origin_of(tmp_path / "shop"))
    before = everything(url)
    with pytest.raises(OtherReplica):
        swept(Replica(url), origin_of(tmp_path / "other"))
    assert everything(url) == before


def test_a_claim_that_comes_at_the_same_moment_is_given_way_to(tmp_path: Path, url: str) -> None:
    """A later incarnation claims between this one's looking and its claim."""
    origin = origin_of(tmp_path / "shop")

    class Raced(Replica):
        def put(self, name: str, body: bytes | Path) -> None:
            if name == origin.claim:
                later = ClaimName(origin.incarnation + 1, 0, "beef").object
                super().put(later, json.dumps(vars(origin.identity)).encode())
            super().put(name, body)

    with pytest.raises(SupersededOnReplica):
        join(Raced(url), origin)
    assert url not in origin.joined


class Stopped(Exception):
    """A process that ends here."""


@pytest.mark.parametrize("dies", [None, "owner.json", "its claim"])
@pytest.mark.parametrize("starts", [1, 3])
def test_one_of_two_apps_has_a_new_replica_if_one_joins_between_the_others_look_and_its_name(
    tmp_path: Path, url: str, dies: str | None, starts: int
) -> None:
    """The other one's whole join falls between this one's finding nothing and its writing its name."""
    first, second = origin_of(tmp_path / "first"), origin_of(tmp_path / "second")
    for _ in range(starts - 1):
        second = origin_of(tmp_path / "second")

    class Late(Replica):
        raced = False

        def put(self, name: str, body: bytes | Path) -> None:
            if not self.raced:
                self.raced = True
                join(Replica(url), first)
            if dies == "its claim" and name == second.claim:
                raise Stopped
            super().put(name, body)
            if dies == name:
                raise Stopped

    with pytest.raises((OtherReplica, Stopped)):
        join(Late(url), second)
    for _ in range(2):  # it is tried again and again
        with pytest.raises(OtherReplica):
            join(Replica(url), second)
    join(Replica(url), first)
    assert read_owner(Replica(url)) == first.identity
    assert [*Replica(url).list("incarnations")] == [first.claim]


def test_of_two_apps_that_claim_a_new_replica_at_once_one_has_it(tmp_path: Path, url: str) -> None:
    """Each finds nothing, and writes its name and its claim before the other has looked again."""
    first, second = origin_of(tmp_path / "first"), origin_of(tmp_path / "second")

    class Between(Replica):
        def put(self, name: str, body: bytes | Path) -> None:
            super().put(name, body)
            if name == first.claim:
                super().put("owner.json", documents.encode(dict(vars(second.identity))))
                super().put(second.claim, json.dumps(vars(second.identity)).encode())

    with pytest.raises(OtherReplica):
        join(Between(url), first)
    join(Replica(url), second)
    with pytest.raises(OtherReplica):
        join(Replica(url), first)
    assert read_owner(Replica(url)) == second.identity
    assert [*Replica(url).list("incarnations")] == [second.claim]


def written(folder: Path, url: str, what: str) -> Identity:
    """An app that has joined, and written no more than that. The app."""
    shop = Pretend.on(folder)
    word = shop.run(1)
    if what == "commits":
        shop.agent(url).all(word)
    else:
        join(Replica(url), shop.origin())
    if what == "lineage":
        Shipping(shop.origin(), Replica(url), {}).send()
    shop.close()
    return shop.identity


def claimed_later(folder: Path, url: str) -> Origin:
    """An app that puts its claim, of a higher incarnation, and does not look again."""
    origin_of(folder)
    origin = origin_of(folder)
    Replica(url).put(origin.claim, json.dumps(vars(origin.identity)).encode())
    return origin


@pytest.mark.parametrize("dies", [False, True])
@pytest.mark.parametrize("what", ["claim", "lineage", "commits"])
def test_a_claim_that_was_put_and_not_looked_at_again_gives_no_right(
    tmp_path: Path, url: str, dies: bool, what: str
) -> None:
    """The first one has joined. The second one, which found the replica new too, puts its name and its claim, and ends
    there, or fails to list them.
    """
    first = written(tmp_path / "first", url, what)
    second, replica = claimed_later(tmp_path / "second", url), Replica(url)
    replica.put("owner.json", documents.encode(dict(vars(second.identity))))
    if dies:
        second = origin_of(tmp_path / "second")
    with pytest.raises(OtherReplica):
        join(replica, second)
    assert read_owner(replica) == first
    assert {json.loads(replica.get(name))["id"] for name in replica.list("incarnations")} == {first.id}
    join(replica, origin_of(tmp_path / "first"))


@pytest.mark.parametrize("what", ["lineage", "commits"])
def test_who_has_written_does_not_give_way_to_a_claim(tmp_path: Path, url: str, what: str) -> None:
    written(tmp_path / "first", url, what)
    claimed_later(tmp_path / "second", url)
    for _ in range(2):
        again = origin_of(tmp_path / "first")
    join(Replica(url), again)
    assert url in again.joined


def test_nothing_is_deleted_once_a_later_incarnation_is_claimed(tmp_path: Path, url: str) -> None:
    origin = origin_of(tmp_path / "shop")
    objects = Replica(url)
    join(objects, origin)
    for name in ("data/first", "data/second"):
        held(objects, origin).put(name, b"bytes")
    replica = swept(objects, origin)
    replica.delete("data/first")
    objects.put(ClaimName(origin.incarnation + 1, 0, "beef").object, b"{}")
    with pytest.raises(SupersededOnReplica):
        replica.delete("data/second")
    assert [*objects.list("data")] == ["data/second"]
