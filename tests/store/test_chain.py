"""A log as a chain: it is read no further than it is right, and a hole is told from a torn tail."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slipstream.store import chain


def log_of(count: int) -> tuple[bytes, list[bytes]]:
    before, lines = chain.START, []
    for i in range(count):
        before, line = chain.encode(before, {"cut": i, "ranges": {"orders": {"files": [f"{i}.json"]}}})
        lines.append(line)
    return b"".join(lines), lines


def test_a_whole_log_is_read_to_its_end() -> None:
    raw, _ = log_of(5)
    found = chain.scan(raw)
    assert [line.body["cut"] for line in found.lines] == list(range(5))
    assert (found.end, found.problem) == ("whole", None)
    assert found.lines[-1].end == len(raw)
    assert (
        chain.scan(raw[found.lines[2].end :], found.lines[2].digest, found.lines[2].end).lines
        == found.lines[3:]
    )


def test_a_missing_line_is_a_hole() -> None:
    _, lines = log_of(5)
    found = chain.scan(b"".join(lines[:1] + lines[2:]))
    assert len(found.lines) == 1
    assert found.end == "hole"


def test_a_doubled_line_is_a_hole() -> None:
    _, lines = log_of(5)
    assert chain.scan(b"".join([*lines[:2], *lines[1:]])).end == "hole"


def test_a_line_of_another_log_is_a_hole() -> None:
    _, lines = log_of(5)
    other = chain.encode("f" * 16, {"cut": 2})[1]
    assert chain.scan(b"".join([*lines[:2], other, *lines[2:]])).end == "hole"


def test_a_cut_tail_is_torn() -> None:
    raw, _ = log_of(3)
    found = chain.scan(raw[:-4])
    assert (len(found.lines), found.end) == (2, "torn")


def test_a_zero_filled_tail_is_torn() -> None:
    raw, lines = log_of(3)
    found = chain.scan(raw[: -len(lines[2])] + b"\0" * len(lines[2]))
    assert (len(found.lines), found.end) == (2, "torn")
    assert chain.scan(b"\0" * 4096).end == "torn"


@given(st.data())
def test_no_damage_is_ever_read_as_something_else(data: st.DataObject) -> None:
    raw, _ = log_of(6)
    whole = chain.scan(raw).lines
    at = data.draw(st.integers(0, len(raw) - 1))
    bit = data.draw(st.integers(0, 7))
    damaged = bytearray(raw)
    damaged[at] ^= 1 << bit
    found = chain.scan(bytes(damaged))
    assert found.lines == whole[: len(found.lines)]
    assert found.end != "whole"
