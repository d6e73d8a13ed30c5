"""Merging adds up: what goes in comes out, or nothing is merged."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from slipstream.durability.agent import tend
from slipstream.errors import BadLayer
from slipstream.testing.pretend import BAG, Pretend, contents, expected
from slipstream.trace import list_layers, rows

EPOCHS = 20


def test_a_merge_that_would_lose_a_row_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend = Pretend.on(tmp_path / "store")
    pretend.histories = ()
    word = pretend.run(EPOCHS)
    before = list_layers(pretend.root / BAG)
    consolidate = rows.consolidate

    def losing(table: pa.Table, **options: bool) -> pa.Table:
        return consolidate(table, **options).slice(1)

    monkeypatch.setattr(rows, "consolidate", losing)
    with pytest.raises(BadLayer, match="do not add up to those that it is merged from"):
        tend(pretend.root, word)
    assert list_layers(pretend.root / BAG) == before
    monkeypatch.setattr(rows, "consolidate", consolidate)
    tend(pretend.root, word)
    assert len(list_layers(pretend.root / BAG)) < len(before)
    assert contents(pretend.root, BAG, EPOCHS) == expected(BAG, EPOCHS)
    pretend.close()
