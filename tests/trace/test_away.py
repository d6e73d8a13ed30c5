"""Notes in place of layers: data that is checked, for kinds that are code."""

from __future__ import annotations

import json
import shutil
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from slipstream.core.errors import DamagedLayer
from slipstream.trace import PLACES, LayerName, Span, TraceWriter, away, check_layer, layer, open_layer
from slipstream.trace.away import BRINGERS, HOMES, bring, is_away, leave_note, register_bringer

NAME = LayerName(1, 1, 1, 0, PLACES)
SAID = {"url": "file:///secret", "rows": 3}


@pytest.fixture
def brought(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What a bringer of the kind "toy" was told; it puts a layer of three rows there."""
    told: list[dict[str, Any]] = []

    def bring_toy(path: Path, said: dict[str, Any]) -> None:
        told.append(said)
        ones = np.ones(3, dtype=np.int64)
        TraceWriter(path.parent, 1).write(
            1, Span.whole(), pa.table({"h": [1, 2, 3], "k0": ones, "diff": ones})
        )

    monkeypatch.setattr(away, "BRINGERS", {})
    register_bringer("toy", bring_toy)
    return told


@pytest.fixture
def path(tmp_path: Path) -> Path:
    trace = tmp_path / "traces" / "view" / "1-view"
    trace.mkdir(parents=True)
    return trace / NAME.filename


def test_a_layer_is_brought_when_it_is_first_opened(path: Path, brought: list[dict[str, Any]]) -> None:
    leave_note(path, "toy", SAID)
    assert is_away(path)
    assert path.stat().st_mode & 0o077 == 0
    assert check_layer(path.parent, NAME, deep=True) is None
    assert brought == []
    assert open_layer(path.parent, NAME).rows == 3
    assert brought == [{"away": "toy", "trace": "view/1-view", "layer": path.name, **SAID}]
    assert not is_away(path)
    bring(path)
    assert len(brought) == 1


def test_a_damaged_note_is_a_damaged_layer(path: Path, brought: list[dict[str, Any]]) -> None:
    leave_note(path, "toy", SAID)
    sound = path.read_bytes()
    for at in range(len(sound)):
        path.write_bytes(sound[:at] + bytes([sound[at] ^ 1]) + sound[at + 1 :])
        layer._OPEN.entries.clear()
        with pytest.raises(DamagedLayer):
            open_layer(path.parent, NAME)
        assert check_layer(path.parent, NAME, deep=False) is not None
    for length in range(len(sound)):
        path.write_bytes(sound[:length])
        with pytest.raises(DamagedLayer):
            open_layer(path.parent, NAME)
    assert brought == []


def test_a_note_that_was_left_for_another_layer_is_damage(
    path: Path, tmp_path: Path, brought: list[dict[str, Any]]
) -> None:
    leave_note(path, "toy", SAID)
    other = tmp_path / "traces" / "view" / "2-view" / path.name
    later = LayerName(1, 2, 2, 0, PLACES)
    other.parent.mkdir()
    shutil.copy(path, other)
    shutil.copy(path, path.parent / later.filename)
    for directory, name in ((other.parent, NAME), (path.parent, later)):
        with pytest.raises(DamagedLayer, match=f"that was left for view/1-view/{path.name}"):
            open_layer(directory, name)
    assert brought == []


@pytest.mark.parametrize("kind", ["os:remove", "slipstream.durability.inbox:bring_home", "other"])
def test_a_note_of_an_unknown_kind_is_damage_and_nothing_is_called(
    path: Path, brought: list[dict[str, Any]], kind: str
) -> None:
    leave_note(path, kind, SAID)
    with pytest.raises(DamagedLayer, match=f"of the kind '{kind}', which is unknown"):
        open_layer(path.parent, NAME)
    assert brought == []


def test_a_note_without_a_checksum_is_damage(path: Path, brought: list[dict[str, Any]]) -> None:
    path.write_text(json.dumps({"away": "toy", "trace": "view/1-view", "layer": path.name}))
    with pytest.raises(DamagedLayer, match="the note is damaged"):
        open_layer(path.parent, NAME)
    path.write_text('{"away": 3}')
    with pytest.raises(DamagedLayer, match="the note is damaged"):
        open_layer(path.parent, NAME)


def test_a_process_that_has_not_imported_the_bringer_does_so(
    path: Path, tmp_path: Path, brought: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a_late_bringer.py").write_text(
        "from slipstream.trace import away\n"
        "away.register_bringer('late', lambda path, said: away.BRINGERS['toy'](path, said))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(HOMES, "late", "a_late_bringer")
    leave_note(path, "late", SAID)
    assert open_layer(path.parent, NAME).rows == 3
    assert [said["away"] for said in brought] == ["late"]


def test_every_home_registers_its_kind() -> None:
    for kind, home in HOMES.items():
        import_module(home)
        assert kind in BRINGERS
