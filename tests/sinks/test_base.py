"""Stamps and sinks as they are declared."""

from __future__ import annotations

import json

import pytest

from slipstream.core.errors import BadSinkOption, DamagedStamp
from slipstream.sinks import Stamp
from slipstream.testing.targets import MemorySink, stamped


def test_a_stamp_comes_back_as_it_was() -> None:
    stamp = stamped(7, 3, cut="ab", lineage=({"cut": 7, "clock": 1.5, "ranges": {"t": [1, 2]}},))
    assert Stamp.decode(stamp.encode(), "here") == stamp


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", "null", stamped(1).encode()[:-2], stamped(1).encode().replace("1", '"1"', 1)],
)
def test_what_is_no_stamp_is_told(text: str) -> None:
    with pytest.raises(DamagedStamp, match="what a sink wrote"):
        Stamp.decode(text, "here")


@pytest.mark.parametrize("field", ["app", "sink", "epoch", "incarnation", "cut", "form", "lineage"])
def test_a_stamp_that_lacks_something_is_none(field: str) -> None:
    said = json.loads(stamped(1).encode())
    del said[field]
    with pytest.raises(DamagedStamp):
        Stamp.decode(json.dumps(said), "here")


def test_modes_and_keys_go_together() -> None:
    with pytest.raises(BadSinkOption, match="without key="):
        MemorySink(mode="upsert")
    with pytest.raises(BadSinkOption, match="key= with mode='changes'"):
        MemorySink(key=("k",))
    with pytest.raises(BadSinkOption, match="'changes', 'upsert', 'replace'"):
        MemorySink(mode="append")  # type: ignore[arg-type]
