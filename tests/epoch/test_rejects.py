"""The traces of rejected rows."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from slipstream.epoch.rejects import Rejects, begin_rejects
from slipstream.trace import list_layers


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="what is flushed is looked up in /proc")
def test_what_stands_for_epochs_before_a_source_came_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[Path] = []
    fsync = os.fsync

    def noted(number: int) -> None:
        flushed.append(Path(f"/proc/self/fd/{number}").readlink())
        fsync(number)

    monkeypatch.setattr(os, "fsync", noted)
    rejects = {
        name: Rejects(
            f"traces/{name}_rejected/rows", pa.schema({"reason": pa.string()}), lambda _: pa.table({})
        )
        for name in ("old", "new")
    }
    begin_rejects(tmp_path, 1, rejects, {"old"}, 7)
    assert not (tmp_path / rejects["old"].trace).exists()
    folder = tmp_path / rejects["new"].trace
    (name,) = list_layers(folder)
    assert (name.lo, name.hi, name.kind) == (1, 7, "flat")
    assert folder in flushed
    assert any(path.parent == folder for path in flushed)


def test_before_the_first_epoch_there_is_nothing_to_stand_for(tmp_path: Path) -> None:
    """A layer that begins after it ends is none."""
    rejects = {
        "new": Rejects("traces/new_rejected/rows", pa.schema({"reason": pa.string()}), lambda _: pa.table({}))
    }
    begin_rejects(tmp_path, 1, rejects, set(), 0)
    assert list(tmp_path.iterdir()) == []
