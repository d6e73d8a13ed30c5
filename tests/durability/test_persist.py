"""What is flushed before nobody can go back any more."""

from __future__ import annotations

from pathlib import Path

import pytest

from slipstream.durability.persist import flush_after
from slipstream.store.disk import LocalDisk
from slipstream.testing.pretend import Pretend


def test_layers_after_an_epoch_their_folders_and_the_lineage_are_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Pretend.start(tmp_path / "store")
    engine.run(3)
    flushed: list[str] = []
    monkeypatch.setattr(LocalDisk, "flush", lambda disk, name: flushed.append(name))
    monkeypatch.setattr(LocalDisk, "flush_folder", lambda disk, name: flushed.append(f"{name}/"))
    flush_after(engine.store, 2)
    layers = {name for name in flushed if name.endswith(".arrow")}
    assert layers
    assert all("-0000000003-" in name for name in layers)
    assert {f"{name.rpartition('/')[0]}/" for name in layers} <= set(flushed)
    assert {"lineage/1.log", "lineage/", "traces/", "/"} <= set(flushed)
    engine.close()
