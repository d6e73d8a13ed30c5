"""What faults once did (docs/notes.md): each finding names a test that holds it, and the test is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
_ROW = re.compile(
    r"^\| (?P<finding>[FD]\d+)? *\|.*\| `(?P<file>tests/\S+\.py)::(?P<test>\w+)` \|$", re.MULTILINE
)


def test_every_finding_names_a_test_that_is_there() -> None:
    rows = list(_ROW.finditer((ROOT / "docs" / "notes.md").read_text()))
    found = [row["finding"] for row in rows if row["finding"]]
    assert found == [*(f"F{i}" for i in range(1, 18)), "D1", "D2", "D3"]
    for row in rows:
        assert f"def {row['test']}(" in (ROOT / row["file"]).read_text(), row["test"]


def test_the_simulation_finds_those_of_the_machines_again() -> None:
    mutations = (ROOT / "tests" / "simulation" / "test_mutations.py").read_text()
    names = re.findall(r'Mutation\(\s*"(\w+)"', mutations)
    assert {*(f"F{i}" for i in range(1, 10)), "D1", "D2"} <= set(names)
