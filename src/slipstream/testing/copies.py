"""A replica or a store as somebody reads it who knows its format and nothing of recovery: for tests."""

from __future__ import annotations

from pathlib import Path

from slipstream.durability.ahead import covers, segments_of
from slipstream.durability.manifest import Manifest, valid_commits
from slipstream.durability.replica import Replica, checked_body
from slipstream.durability.work import LocalWork
from slipstream.store import chain, documents
from slipstream.store.disk import Disk
from slipstream.store.layout import lineage_log
from slipstream.store.lineage import Lineage, read_lineage
from slipstream.store.records import Began, Record, decode_record
from slipstream.store.store import Store
from slipstream.testing.pretend import BAG, KEYED, contents, expected


def newest_manifest(url: str) -> Manifest:
    replica = Replica(url)
    name = valid_commits(replica.list("commits"), replica.list("incarnations"))[0]
    return Manifest.decode(name, replica.get(name.object), url)


def objects_of(url: str) -> set[str]:
    folder = Path(url.removeprefix("file://"))
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def brought_back(url: str, to: Path) -> Manifest:
    """Everything that the newest commit of a replica names, under a folder."""
    Store.at(to).disk.make_folder("")
    replica, manifest = Replica(url), newest_manifest(url)
    work = LocalWork(Store.at(to))
    bodies = {name: checked_body(replica, each, to / "spool") for name, each in manifest.objects.items()}
    for trace, layers in manifest.layers.items():
        for kept in layers:
            body = bodies[kept.object] if kept.object else None
            work.unpack(body, kept, manifest.schemas[trace], trace, kept.layer)
    return manifest


def lineage_on(url: str, to: Path) -> Lineage:
    """The lineage that is on a replica, whether a commit names it or not."""
    replica = Replica(url)
    (to / "lineage").mkdir(parents=True, exist_ok=True)
    for log, (tile, *_) in covers(segments_of(replica.list("lineage"))).items():
        body = b""
        for segment in tile:
            body += replica.get(segment.object)[len(body) - segment.start :]
        (to / lineage_log(log)).write_bytes(body)
    return read_lineage(Store.at(to).disk)


def check_replica_holds(url: str, to: Path, earliest: int, epoch: int) -> Manifest:
    """A replica holds every epoch from one to another, the lineage of all, and the checksums as of the last."""
    manifest = brought_back(url, to)
    assert manifest.epoch == epoch
    for each in range(earliest, epoch + 1):
        assert contents(to, BAG, each) == expected(BAG, each)
    assert contents(to, KEYED, epoch) == expected(KEYED, epoch)
    lineage = lineage_on(url, to)
    assert (lineage.torn, lineage.broken) == (None, None)
    assert [each.epoch for each in lineage.history.computed] == list(range(1, epoch + 1))
    assert {each.object for each in manifest.lineage} <= set(Replica(url).list("lineage"))
    sums = documents.decode(Replica(url).get(manifest.sums))
    assert isinstance(sums, dict)
    work = LocalWork(Store.at(to))
    assert sums == {"epoch": epoch, "totals": {BAG: f"{work.state_sum(BAG, epoch):x}"}}
    return manifest


def records_of(disk: Disk) -> list[Record]:
    """Every record of a store's lineage that counts, oldest first."""
    found = read_lineage(disk)
    records: list[Record] = []
    number, digest = found.incarnation, found.digest
    while number:
        lines = chain.scan(disk.read(lineage_log(number))).lines
        last = [line.digest for line in lines].index(digest)
        part = [decode_record(line.body) for line in lines[: last + 1]]
        records = part + records
        assert isinstance(part[0], Began)
        number, digest = part[0].follows or (0, "")
    return records
