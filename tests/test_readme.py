"""The README's example runs, and prints what the README says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"


@pytest.mark.spark
@pytest.mark.slow
def test_the_example_prints_what_the_readme_says(tmp_path: Path) -> None:
    blocks = re.findall(r"```(\w*)\n(.*?)```", README.read_text(), re.S)
    at = next(i for i, (language, _) in enumerate(blocks) if language == "python")
    (tmp_path / "example.py").write_text(blocks[at][1])
    ran = subprocess.run(
        [sys.executable, "example.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == blocks[at + 1][1].strip()
