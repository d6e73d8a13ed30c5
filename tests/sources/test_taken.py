"""Files that were taken long ago: found again, all of them and no other, and never read over damage. No Spark here."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slipstream.core.errors import DamagedSummary
from slipstream.sources import taken as module
from slipstream.sources.taken import RECORD, Seen, Taken, merged_with


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK", 8)


def files(first: int, last: int) -> list[Seen]:
    return [Seen(f"part-{n}.json", 100 + n, 10**18 + n) for n in range(first, last)]


def filled(folder: Path, *sizes: int) -> Taken:
    taken, at = Taken("s", folder), 0
    for size in sizes:
        taken = taken.with_more(files(at, at + size))
        at += size
    return taken


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("taken-*"))


def test_every_file_is_found_as_it_was_and_no_other(tmp_path: Path) -> None:
    described = filled(tmp_path, 100, 30, 7, 1).described()
    taken = Taken("s", tmp_path, described)
    names = [f"part-{n}.json" for n in range(150)]
    assert taken.find(names) == {file.name: file for file in files(0, 138)}
    assert taken.find(["part-138.json", "", "Part-1.json"]) == {}
    assert taken.find([]) == {}


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sets(st.text(min_size=1, max_size=3), max_size=40), max_size=8), st.text(max_size=3))
def test_what_was_added_in_whatever_portions_is_found(
    tmp_path_factory: pytest.TempPathFactory, portions: list[set[str]], asked: str
) -> None:
    folder = tmp_path_factory.mktemp("taken")
    taken = Taken("s", folder)
    model: dict[str, Seen] = {}
    for time, names in enumerate(portions):
        added = [Seen(name, len(name), time) for name in sorted(names)]
        model |= {file.name: file for file in added}
        taken = Taken("s", folder, taken.with_more(added).described())
    assert taken.find([*model, asked]) == model


def test_segments_grow_in_tiers_and_large_ones_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert merged_with([], 5) == 0
    assert merged_with([5], 5) == 1
    assert merged_with([1000, 10], 6) == 1
    assert merged_with([20, 10], 6) == 2
    assert merged_with([1000, 10], 1) == 0
    monkeypatch.setattr(module, "LARGEST", 15)
    assert merged_with([8, 8], 7) == 1
    rows: list[int] = []
    written = 0
    monkeypatch.setattr(module, "LARGEST", 1 << 20)
    for _ in range(1000):
        count = merged_with(rows, 1)
        rows = [*rows[: len(rows) - count], 1 + sum(rows[len(rows) - count :])]
        written += rows[-1]
    assert sum(rows) == 1000
    assert len(rows) <= 8
    assert written < 15 * 1000


def test_a_replaced_segment_outlives_the_summary_after_it(tmp_path: Path) -> None:
    first = filled(tmp_path, 10)
    second = first.with_more(files(10, 20))
    assert len(second.described()) == 1
    assert len(segments(tmp_path)) == 2, "a crash may leave the summary that names the first"
    second.with_more(files(20, 22))
    names = {path.name.removeprefix("taken-") for path in segments(tmp_path)}
    assert first.described()[0][0] not in names
    assert second.described()[0][0] in names


def test_the_same_files_again_are_the_same_segment(tmp_path: Path) -> None:
    first = filled(tmp_path, 20)
    assert first.with_more(files(20, 25)).described() == first.with_more(files(20, 25)).described()


def test_segments_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    filled(tmp_path, 20)
    (segment,) = segments(tmp_path)
    assert segment.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("at", [0, 20, 8 * RECORD.itemsize + 5, -1, -48, -96, -120])
def test_one_flipped_bit_is_never_read_over(tmp_path: Path, at: int) -> None:
    described = filled(tmp_path, 40).described()
    (segment,) = segments(tmp_path)
    raw = bytearray(segment.read_bytes())
    raw[at] ^= 4
    segment.write_bytes(raw)
    with pytest.raises(DamagedSummary, match=r"Source 's': .*is not what was written.* Start the app again"):
        Taken("s", tmp_path, described).find([file.name for file in files(0, 40)])
    assert not segment.exists(), "the next start finds it missing, and makes it anew"


def test_a_damaged_segment_is_not_merged(tmp_path: Path) -> None:
    described = filled(tmp_path, 40).described()
    (segment,) = segments(tmp_path)
    raw = bytearray(segment.read_bytes())
    raw[33 * RECORD.itemsize] ^= 4
    segment.write_bytes(raw)
    with pytest.raises(DamagedSummary, match="block 4 of it"):
        Taken("s", tmp_path, described).with_more(files(40, 80))


@pytest.mark.parametrize("damage", ["gone", "cut", "empty", "longer"])
def test_a_segment_that_is_not_whole_is_found_when_it_is_opened(tmp_path: Path, damage: str) -> None:
    described = filled(tmp_path, 40).described()
    (segment,) = segments(tmp_path)
    raw = segment.read_bytes()
    if damage == "gone":
        segment.unlink()
    else:
        segment.write_bytes({"cut": raw[:-1], "empty": b"", "longer": raw + b"x"}[damage])
    with pytest.raises(DamagedSummary, match=r"it is missing|its size"):
        Taken("s", tmp_path, described)


def test_a_summary_names_no_path(tmp_path: Path) -> None:
    with pytest.raises(DamagedSummary, match="not named as a segment is"):
        Taken("s", tmp_path, [["../../etc/passwd", 3]])
