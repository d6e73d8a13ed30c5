"""Damage to a layer's file: whatever it is, it is found on first use of what is damaged, and gives no wrong row."""

from __future__ import annotations

import errno
import json
import resource
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest, xxh3_128_hexdigest

from slipstream.core.errors import BadLayer, DamagedLayer
from slipstream.trace import (
    PLACES,
    Layer,
    LayerName,
    Span,
    TraceReader,
    TraceWriter,
    check_layer,
    layer,
    layer_digest,
    list_layers,
    open_layer,
    sealing,
    write_layer,
)
from slipstream.trace.seal import TAIL, BrokenSeal, Seal, SealedPart, closed, outside_digest

WHOLE = Span.whole()
PARTS, ROWS = 3, 50
NAME = LayerName(1, 1, 1, 0, PLACES)


def keyed(keys: range, value: int = 0, epoch: int = 1) -> pa.Table:
    size = len(keys)
    return pa.table(
        {
            "h": np.array(keys, dtype=np.int64) << 40,
            "k0": np.array(keys, dtype=np.int64),
            "v0": pa.array([f"{value} of {key}" if key % 7 else None for key in keys], pa.string()),
            "epoch": np.full(size, epoch, dtype=np.int64),
            "diff": np.ones(size, dtype=np.int64),
        }
    )


def write(directory: Path, *, name: LayerName = NAME, value: int = 0) -> Path:
    """A layer of several parts."""
    directory.mkdir(parents=True, exist_ok=True)
    batches = [keyed(range(i * ROWS, (i + 1) * ROWS), value, name.hi).to_batches()[0] for i in range(PARTS)]
    write_layer(directory, name, batches[0].schema, batches)
    return directory / name.filename


def seal_of(path: Path) -> Seal:
    body = path.read_bytes()
    length, _, _ = TAIL.unpack(body[-TAIL.size :])
    return Seal.decode(body[-TAIL.size - length : -TAIL.size])


def contents(directory: Path, name: LayerName = NAME) -> list[dict[str, Any]]:
    return [row for part in open_layer(directory, name).parts for row in part.batch.to_pylist()]


def looked_up(directory: Path, keys: list[int]) -> list[str | None]:
    h = np.array(keys, dtype=np.int64) << 40
    found, values = TraceReader(directory, 1, WHOLE).newest(h, [pa.array(keys, pa.int64())])
    assert found.all()
    column: list[str | None] = values.column("v0").to_pylist()
    return column


def change(path: Path, how: Callable[[bytearray], Any]) -> None:
    body = bytearray(path.read_bytes())
    changed = how(body)
    path.unlink()
    path.write_bytes(body if changed is None else changed)


def flip(path: Path, at: int, bit: int = 0) -> None:
    def flipped(body: bytearray) -> None:
        body[at] ^= 1 << bit

    change(path, flipped)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return tmp_path / "traces" / "view" / "1-view"


@pytest.fixture
def path(trace: Path) -> Path:
    return write(trace)


def test_a_sound_layer_says_what_it_is(path: Path, trace: Path) -> None:
    opened = open_layer(trace, NAME)
    assert [(part.rows, part.first, part.last) for part in opened.parts] == [
        (ROWS, i * ROWS << 40, ((i + 1) * ROWS - 1) << 40) for i in range(PARTS)
    ]
    assert (opened.rows, opened.bytes) == (PARTS * ROWS, path.stat().st_size)
    assert contents(trace) == keyed(range(PARTS * ROWS)).to_pylist()
    assert (check_layer(trace, NAME, deep=False), check_layer(trace, NAME, deep=True)) == (None, None)


def test_the_seal_is_laid_out_as_documented(path: Path) -> None:
    file = path.read_bytes()
    length, digest, magic = struct.unpack("<QQ8s", file[-24:])
    body = file[-24 - length : -24]
    assert (magic, digest) == (b"SLIPSEAL", xxh3_64_intdigest(body))
    said = json.loads(body)
    assert (said["format"], said["layer"], said["trace"]) == (2, path.name, "view/1-view")
    assert said["bytes"] == len(file) - length - 24
    arrow = pa.ipc.open_file(pa.py_buffer(file[: said["bytes"]]))
    assert arrow.num_record_batches == len(said["parts"]) == PARTS
    for i, (offset, size, rows, first, last, digest) in enumerate(said["parts"]):
        assert xxh3_64_intdigest(file[offset : offset + size]) == digest
        h = arrow.get_batch(i).column("h")
        assert (rows, first, last) == (len(h), h[0].as_py(), h[-1].as_py())


REGIONS = {
    "magic of Arrow": lambda seal, size: range(8),
    "schema": lambda seal, size: range(8, seal.parts[0].offset),
    "metadata of a part": lambda seal, size: range(seal.parts[1].offset, seal.parts[1].offset + 64),
    "body of a part": lambda seal, size: range(seal.parts[1].offset + 200, seal.parts[1].end),
    "footer": lambda seal, size: range(seal.parts[-1].end, seal.length),
    "body of the seal": lambda seal, size: range(seal.length, size - 24),
    "end of the seal": lambda seal, size: range(size - 24, size),
}


@pytest.mark.parametrize("region", REGIONS)
def test_a_flipped_bit_is_found_wherever_it_is(trace: Path, path: Path, region: str) -> None:
    sound = path.read_bytes()
    places = REGIONS[region](seal_of(path), len(sound))
    in_part = "of a part" in region
    for at in places if region == "end of the seal" else places[:: max(1, len(places) // 40)]:
        for bit in (0, 7):
            flip(path, at, bit)
            assert (check_layer(trace, NAME, deep=False) is None) == in_part
            assert check_layer(trace, NAME, deep=True) is not None
            with pytest.raises(DamagedLayer) as error:
                contents(trace)
            assert (error.value.trace, error.value.layer) == ("traces/view/1-view", NAME)
            if in_part:
                assert looked_up(trace, [1, 149]) == ["0 of 1", "0 of 149"], "the other parts are whole"
                with pytest.raises(DamagedLayer, match="are not those that were written"):
                    looked_up(trace, [1, 60])
            path.write_bytes(sound)


def test_the_error_says_which_layer_and_what_to_do(trace: Path, path: Path) -> None:
    part = seal_of(path).parts[1]
    flip(path, part.offset + 300)
    with pytest.raises(DamagedLayer) as error:
        contents(trace)
    assert str(error.value) == (
        f"The layer traces/view/1-view/{path.name} is damaged: its bytes {part.offset} to {part.end} are not those "
        "that were written. Nothing was computed from it. Replace it from a replica with `slipstream fsck STORE "
        "--repair --from URL`."
    )


def unsealed(body: bytearray) -> bytearray:
    (length,) = struct.unpack("<Q", body[-24:-16])
    return body[: -24 - length]


DAMAGES: dict[str, tuple[Callable[[bytearray], Any], str]] = {
    "empty": (lambda body: b"", "does not end with a seal"),
    "shorter than a seal": (lambda body: body[:10], "does not end with a seal"),
    "cut by a byte": (lambda body: body[:-1], "does not end with a seal"),
    "first half only": (lambda body: body[: len(body) // 2], "does not end with a seal"),
    "zero-filled": (lambda body: bytes(len(body)), "does not end with a seal"),
    "second half zeros": (
        lambda body: body[: len(body) // 2] + bytes(len(body) - len(body) // 2),
        "does not end with a seal",
    ),
    "first byte gone": (lambda body: body[1:], "bytes before its seal, and was written with"),
    "a byte too many": (lambda body: b"A" + body, "bytes before its seal, and was written with"),
    "something appended": (lambda body: body + b"\0", "does not end with a seal"),
    "an Arrow file without a seal": (unsealed, "does not end with a seal"),
    "the seal alone": (
        lambda body: body[len(unsealed(body)) :],
        "bytes before its seal, and was written with",
    ),
    "a length beyond the file": (
        lambda body: body[:-24] + struct.pack("<Q", 1 << 60) + body[-16:],
        "its seal is damaged",
    ),
    "a length that is short": (
        lambda body: body[:-24] + struct.pack("<Q", 0) + body[-16:],
        "its seal is damaged",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_file_that_is_not_what_was_written_is_not_opened(trace: Path, path: Path, damage: str) -> None:
    how, problem = DAMAGES[damage]
    change(path, how)
    with pytest.raises(DamagedLayer, match=problem):
        open_layer(trace, NAME)
    assert problem in (check_layer(trace, NAME, deep=False) or "")
    if "its seal" not in problem.partition("before")[2]:
        with pytest.raises(DamagedLayer, match=problem):
            layer_digest(trace, NAME)


def test_a_hole_in_a_part_is_found_when_the_part_is_used(trace: Path, path: Path) -> None:
    part = seal_of(path).parts[2]

    def hole(body: bytearray) -> None:
        body[part.end - 256 : part.end] = bytes(256)

    change(path, hole)
    assert looked_up(trace, [3]) == ["0 of 3"]
    with pytest.raises(DamagedLayer, match="are not those that were written"):
        list(TraceReader(trace, 1, WHOLE).snapshot())


def test_a_layer_of_another_trace_is_not_this_one(trace: Path, path: Path) -> None:
    others = (write(trace.parent / "2-view", value=value) for value in range(1, 10))
    other = next(other for other in others if other.stat().st_size == path.stat().st_size)
    shutil.copy(other, path)
    problem = f"it was written as the layer {path.name} of view/2-view"
    with pytest.raises(DamagedLayer, match=problem):
        open_layer(trace, NAME)
    with pytest.raises(DamagedLayer, match=problem):
        layer_digest(trace, NAME)
    assert check_layer(trace, NAME, deep=False) == problem


def test_two_layers_that_were_swapped_are_not_each_other(trace: Path, path: Path) -> None:
    second = replace(NAME, lo=2, hi=2)
    other = write(trace, name=second, value=7)
    between = trace / "between"
    path.rename(between)
    other.rename(path)
    between.rename(other)
    for name in (NAME, second):
        with pytest.raises(DamagedLayer, match="it was written as the layer"):
            open_layer(trace, name)


def test_a_store_may_be_moved(trace: Path, path: Path, tmp_path: Path) -> None:
    digest = layer_digest(trace, NAME)
    shutil.move(tmp_path / "traces", tmp_path / "elsewhere")
    assert contents(tmp_path / "elsewhere" / "view" / "1-view") == keyed(range(PARTS * ROWS)).to_pylist()
    assert layer_digest(tmp_path / "elsewhere" / "view" / "1-view", NAME) == digest


damages = st.one_of(
    st.tuples(st.just("flip"), st.integers(0, 1 << 40), st.integers(0, 7)),
    st.tuples(st.just("zeros"), st.integers(0, 1 << 40), st.integers(1, 5000)),
    st.tuples(st.just("random"), st.integers(0, 1 << 40), st.integers(1, 1 << 62)),
    st.tuples(st.just("cut"), st.integers(0, 1 << 40), st.just(0)),
    st.tuples(st.just("remove"), st.integers(0, 1 << 40), st.integers(1, 3000)),
    st.tuples(st.just("copy"), st.integers(0, 1 << 40), st.integers(0, 1 << 40)),
)


def damaged(body: bytes, damage: tuple[str, int, int]) -> bytes:
    kind, at, much = damage
    at %= len(body)
    match kind:
        case "flip":
            return body[:at] + bytes([body[at] ^ 1 << much]) + body[at + 1 :]
        case "zeros":
            return body[:at] + bytes(len(body[at : at + much])) + body[at + much :]
        case "random":
            return (body[:at] + much.to_bytes(8, "little") + body[at + 8 :])[: len(body)]
        case "cut":
            return body[:at]
        case "remove":
            return body[:at] + body[at + much :]
        case _:
            other = much % len(body)
            return (body[:at] + body[other : other + 64] + body[at + 64 :])[: len(body)]


@pytest.fixture(scope="module")
def original() -> Iterator[tuple[Path, bytes]]:
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder) / "view" / "1-view")
        yield path, path.read_bytes()


@settings(max_examples=600)
@given(st.lists(damages, min_size=1, max_size=3), st.lists(st.integers(0, PARTS * ROWS - 1), max_size=4))
def test_random_damage_never_gives_a_wrong_row(
    original: tuple[Path, bytes], done: list[tuple[str, int, int]], asked: list[int]
) -> None:
    path, sound = original
    body = sound
    for damage in done:
        body = damaged(body, damage) if body else body
    path.unlink()
    path.write_bytes(body)
    layer._OPEN.entries.clear()
    keys = sorted(set(asked))
    try:
        assert looked_up(path.parent, keys) == [f"0 of {key}" if key % 7 else None for key in keys]
    except DamagedLayer:
        assert body != sound
    try:
        layer_digest(path.parent, NAME)
    except DamagedLayer:
        assert body != sound
    problem = check_layer(path.parent, NAME, deep=True)
    assert (problem is None) == (body == sound)
    if problem is not None:
        with pytest.raises(DamagedLayer):
            contents(path.parent)


def forged(path: Path, arrow: bytes, parts: tuple[SealedPart, ...]) -> None:
    """A file with a sound seal around any bytes."""
    outside = outside_digest(memoryview(arrow), parts)
    path.write_bytes(arrow + closed(Seal(path.name, "view/1-view", len(arrow), outside, parts).encode()))


def arrow_file(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def test_bytes_that_arrow_cannot_read_are_damage_even_under_a_seal(trace: Path, path: Path) -> None:
    forged(path, b"ARROW1\0\0" + bytes(range(256)) * 4, ())
    with pytest.raises(DamagedLayer, match="it cannot be read"):
        open_layer(trace, NAME)
    table = keyed(range(5))
    head = 8 + table.schema.serialize().size
    arrow = arrow_file(table)
    garbage = b"\xff" * 640
    part = SealedPart(head, len(garbage), 5, 0, 4 << 40, xxh3_64_intdigest(garbage))
    forged(path, arrow[:head] + garbage, (part,))
    with pytest.raises(DamagedLayer, match="it cannot be read"):
        contents(trace)
    assert "it cannot be read" in (check_layer(trace, NAME, deep=True) or "")


def test_a_schema_that_no_layer_has_is_damage(trace: Path, path: Path) -> None:
    for table in (
        keyed(range(0)).drop_columns(["epoch"]),
        pa.table({**EMPTY, "h": pa.array([], pa.string())}),
    ):
        forged(path, arrow_file(table), ())
        with pytest.raises(DamagedLayer, match=r"it cannot be read|not one of whole numbers"):
            open_layer(trace, NAME)


EMPTY = {name: pa.array([], pa.int64()) for name in ("h", "k0", "epoch", "diff")}


def test_a_seal_that_does_not_tell_of_its_rows_is_damage(trace: Path, path: Path) -> None:
    seal, file = seal_of(path), path.read_bytes()
    for wrong in (
        seal.parts[0]._replace(rows=ROWS - 1),
        seal.parts[0]._replace(first=-5),
        seal.parts[0]._replace(last=seal.parts[0].last + 1),
    ):
        forged(path, file[: seal.length], (wrong, *seal.parts[1:]))
        with pytest.raises(DamagedLayer, match="its seal does not tell of its rows"):
            contents(trace)


PART = SealedPart(offset=100, length=50, rows=2, first=1, last=5, digest=9)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"format": 2}',
        b"\xff\xfe",
        Seal("l", "v/t", 200, 1, (PART._replace(rows=0),)).encode(),
        Seal("l", "v/t", 200, 1, (PART._replace(offset=0),)).encode(),
        Seal("l", "v/t", 200, 1, (PART._replace(last=0),)).encode(),
        Seal("l", "v/t", 149, 1, (PART,)).encode(),
        Seal("l", "v/t", 200, 1, (PART, PART)).encode(),
        Seal("l", "v/t", 200, 1, (PART, PART._replace(offset=150))).encode(),
        Seal("l", "v/t", 200, 1, (PART, PART._replace(offset=151, first=6, last=7))).encode(),
        Seal("l", "v/t", 200, 1, (PART._replace(first=1.5),)).encode(),  # type: ignore[arg-type]
        Seal("l", "v/t", "200", 1, ()).encode(),  # type: ignore[arg-type]
    ],
)
def test_a_seal_that_makes_no_sense_is_refused(body: bytes) -> None:
    with pytest.raises(BrokenSeal, match="makes no sense"):
        Seal.decode(body)


def test_a_seal_of_another_format_is_refused() -> None:
    with pytest.raises(BrokenSeal, match="it has the format 3, and this version reads 2"):
        Seal.decode(b'{"format": 3}')


def test_a_seal_survives_being_bytes() -> None:
    following = PART._replace(offset=150, first=6, last=2**63 - 1, digest=2**64 - 1)
    seal = Seal("l", 'vü/"t"', 201, 2**64 - 1, (PART, following))
    assert Seal.decode(seal.encode()) == seal


def test_the_digest_of_a_layer_stands_for_its_bytes(trace: Path, path: Path) -> None:
    digest = layer_digest(trace, NAME)
    assert digest == open_layer(trace, NAME).digest == xxh3_128_hexdigest(seal_of(path).encode())
    write(trace)
    assert layer_digest(trace, NAME) == digest
    write(trace, value=1)
    assert layer_digest(trace, NAME) != digest
    flip(path, -30)
    with pytest.raises(DamagedLayer, match="its seal is damaged"):
        layer_digest(trace, NAME)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        layer_digest(trace, NAME)


def test_the_digest_of_a_layer_with_a_long_seal(trace: Path) -> None:
    trace.mkdir(parents=True)
    batches = [keyed(range(i, i + 1)).to_batches()[0] for i in range(200)]
    write_layer(trace, NAME, batches[0].schema, batches)
    assert layer_digest(trace, NAME) == open_layer(trace, NAME).digest


def test_a_layer_that_is_gone_is_not_a_damaged_one(trace: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_layer(trace, NAME)
    with pytest.raises(FileNotFoundError):
        check_layer(trace, NAME, deep=True)


def test_a_folder_in_place_of_a_layer_is_damage(trace: Path) -> None:
    (trace / NAME.filename).mkdir(parents=True)
    with pytest.raises(DamagedLayer, match="it cannot be read"):
        layer_digest(trace, NAME)
    with pytest.raises(DamagedLayer, match="it cannot be read"):
        open_layer(trace, NAME)
    assert "it cannot be read" in (check_layer(trace, NAME, deep=False) or "")


@pytest.mark.parametrize(
    ("code", "raised"), [(errno.EIO, DamagedLayer), (errno.EMFILE, OSError), (errno.ENOMEM, OSError)]
)
def test_running_out_of_handles_or_memory_is_no_damage(
    trace: Path, path: Path, monkeypatch: pytest.MonkeyPatch, code: int, raised: type[Exception]
) -> None:
    def fails(_: str) -> pa.MemoryMappedFile:
        raise OSError(code, "failed")

    monkeypatch.setattr(pa, "memory_map", fails)
    with pytest.raises(raised, match="failed"):
        open_layer(trace, NAME)


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The offsets of the parts that are checked, in order."""
    offsets: list[int] = []
    check = SealedPart.check

    def noted(part: SealedPart, message: Any) -> None:
        offsets.append(part.offset)
        check(part, message)

    monkeypatch.setattr(SealedPart, "check", noted)
    return offsets


def test_only_parts_that_may_hold_what_is_asked_for_are_checked_and_only_once(
    trace: Path, path: Path, loaded: list[int]
) -> None:
    first, second, third = (part.offset for part in seal_of(path).parts)
    opened = TraceReader(trace, 1, WHOLE)
    assert (opened.stats().rows, opened.schema.names[0], loaded) == (PARTS * ROWS, "h", [])
    assert looked_up(trace, [60, 61]) == ["0 of 60", "0 of 61"]
    assert loaded == [second]
    assert looked_up(trace, [60, 140]) == ["0 of 60", None]
    assert loaded == [second, third]
    between = np.array([(ROWS << 40) - 1])
    found, _ = opened.newest(between, [pa.array([1])])
    assert (found.tolist(), loaded) == ([False], [second, third]), "no part has hashes between two parts"
    list(opened.snapshot())
    assert loaded == [second, third, first]


def test_a_layer_of_one_part_is_not_checked_for_hashes_that_it_cannot_hold(
    trace: Path, loaded: list[int]
) -> None:
    TraceWriter(trace, 1).write(1, WHOLE, keyed(range(10, 20)).drop_columns(["epoch"]))
    opened = TraceReader(trace, 1, WHOLE)
    outside = np.array([3, 30], dtype=np.int64)
    found, _ = opened.newest(outside << 40, [pa.array(outside)])
    assert (found.tolist(), loaded) == ([False, False], [])
    assert looked_up(trace, [12]) == ["0 of 12"]
    assert len(loaded) == 1


def spread(parts: int) -> list[pa.RecordBatch]:
    """Batches with hashes over all places."""
    step = (1 << 64) // (parts * ROWS) + 1
    batches = []
    for i in range(parts):
        h = np.array([row * step - (1 << 63) for row in range(i * ROWS, (i + 1) * ROWS)], dtype=np.int64)
        table = keyed(range(i * ROWS, (i + 1) * ROWS))
        batches.append(table.set_column(0, "h", pa.array(h)).to_batches()[0])
    return batches


def test_a_span_is_cut_out_of_the_parts_on_its_borders_alone(trace: Path, loaded: list[int]) -> None:
    trace.mkdir(parents=True)
    batches = spread(8)
    write_layer(trace, NAME, batches[0].schema, batches)
    opened = open_layer(trace, NAME)
    h = np.concatenate([batch.column("h").to_numpy() for batch in batches])
    for start, stop, checked in (
        (0, PLACES // 2, 0),
        (PLACES // 8 * 3 + 5, PLACES // 2, 1),
        (5 * PLACES // 16, 13 * PLACES // 16, 2),
    ):
        span = Span(start, stop)
        loaded.clear()
        opened = reopened(trace)
        parts = opened.within(span)
        assert len(loaded) == checked
        least, beyond = span.bounds(h)
        assert np.array_equal(np.concatenate([part.h for part in parts]), h[least:beyond])
        assert [(part.first, part.last) for part in parts] == [
            (int(part.h[0]), int(part.h[-1])) for part in parts
        ]
    assert opened.within(Span(PLACES - 1, PLACES)) == ()


def reopened(trace: Path) -> Layer:
    layer._OPEN.entries.clear()
    return open_layer(trace, NAME)


@pytest.mark.parametrize("order", [(1, 0), (0, 0)])
def test_batches_that_do_not_follow_one_another_are_refused(trace: Path, order: tuple[int, int]) -> None:
    trace.mkdir(parents=True)
    batches = [keyed(range(i * ROWS, (i + 1) * ROWS)).to_batches()[0] for i in order]
    with pytest.raises(BadLayer, match="do not follow one another in the order of hashes"):
        write_layer(trace, NAME, batches[0].schema, batches)
    assert list(trace.iterdir()) == []


def test_a_batch_whose_last_hash_is_before_its_first_is_refused(trace: Path) -> None:
    trace.mkdir(parents=True)
    table = keyed(range(ROWS))
    backwards = table.take(pa.array(range(ROWS - 1, -1, -1)))
    with pytest.raises(BadLayer, match="do not follow one another in the order of hashes"):
        write_layer(trace, NAME, table.schema, backwards.to_batches())


def test_a_file_in_which_parts_do_not_begin_where_the_seal_would_say_is_not_written(
    trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace.mkdir(parents=True)
    monkeypatch.setattr(sealing, "MAGIC_BYTES", 16)
    with pytest.raises(BadLayer, match="Arrow did not write its schema as announced"):
        write(trace)
    assert list(trace.iterdir()) == []


def test_a_disk_that_takes_no_more_is_an_error_that_says_so_and_leaves_nothing(trace: Path) -> None:
    trace.mkdir(parents=True)
    table = keyed(range(20_000))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, before[1]))
    try:
        with pytest.raises(OSError, match="File too large") as error:
            write_layer(trace, NAME, table.schema, table.to_batches())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert error.value.errno == errno.EFBIG
    assert list(trace.iterdir()) == []


@pytest.mark.parametrize("rows", [1, 1000, 60_000])
def test_layers_of_any_size_are_written_in_bounded_parts(
    trace: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(sealing, "PART_BYTES", 1 << 18)
    table = keyed(range(rows)).drop_columns(["epoch"])
    size = TraceWriter(trace, 1).write(1, WHOLE, table)
    (name,) = list_layers(trace)
    opened = open_layer(trace, name)
    assert opened.bytes == size
    assert all(part.batch.nbytes <= 1 << 18 for part in opened.parts)
    assert len(opened.parts) == max(1, -(-opened.bytes // (1 << 18)))
    assert [key for part in opened.parts for key in part.batch.column("k0").to_pylist()] == list(range(rows))
    assert looked_up(trace, [0, rows - 1]) == [None, f"0 of {rows - 1}" if (rows - 1) % 7 else None][:2]


def test_a_part_never_ends_inside_a_run_of_equal_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "PART_BYTES", 4096)
    h = np.sort(np.repeat(np.array([1, 5, 6, 9, 12], dtype=np.int64), [3, 700, 2, 1, 400]))
    table = pa.table({"h": h, "v0": np.arange(len(h))})
    batches = list(sealing.table_batches(table))
    assert pa.Table.from_batches(batches).equals(table)
    assert [batch.column("h").to_numpy()[0] for batch in batches] == [1, 5, 12]


def test_where_a_table_is_cut_depends_on_its_rows_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "PART_BYTES", 1 << 14)
    table = keyed(range(3000))
    wider = pa.concat_tables([table, table]).combine_chunks().slice(0, 3000)
    chunked = pa.concat_tables([table.slice(0, 10), table.slice(10)])
    masked = table.set_column(1, "k0", pa.array(table["k0"].to_numpy(), mask=np.zeros(3000, dtype=bool)))
    expected = [batch.num_rows for batch in sealing.table_batches(table)]
    assert len(expected) > 3
    for same in (wider, chunked, masked):
        assert [batch.num_rows for batch in sealing.table_batches(same)] == expected
