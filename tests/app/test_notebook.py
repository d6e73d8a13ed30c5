"""The notebook of the docs, executed as a user would, and what it shows."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")

pytestmark = pytest.mark.spark

NOTEBOOK = Path(__file__).parents[2] / "docs" / "notebook.ipynb"


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The cells with code, run in a kernel of this Python, in a folder of its own."""
    folder = tmp_path_factory.mktemp("notebook")
    kernels = folder / "kernels" / "kernels" / "here"
    kernels.mkdir(parents=True)
    spec = {
        "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": "here",
    }
    (kernels / "kernel.json").write_text(json.dumps({**spec, "language": "python"}))
    notebook = nbformat.read(NOTEBOOK, 4)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("JUPYTER_PATH", str(folder / "kernels"))
        client = nbclient.NotebookClient(
            notebook, timeout=300, kernel_name="here", resources={"metadata": {"path": str(folder)}}
        )
        client.execute()
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def shown(cells: list[Any], starts: str, last: int = 0) -> str:
    """The HTML that the cell shows that begins so, the `last` of several."""
    cell = [cell for cell in cells if cell.source.startswith(starts)][last]
    return "".join(each.data.get("text/html", "") for each in cell.outputs if "data" in each)


def test_the_notebook_in_the_docs_is_kept_without_outputs() -> None:
    cells = nbformat.read(NOTEBOOK, 4).cells
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)


def test_it_runs_and_shows_pictures(cells: list[Any]) -> None:
    assert "source" in shown(cells, "from pyspark")
    assert "computed when the app runs" in shown(cells, "@app.view")
    assert "caught up" in shown(cells, "customers.append"), "the bar"
    assert "&lt;b&gt;Zoë" in shown(cells, "leaders"), "text is text"
    assert "not running" in shown(cells, "app")


def test_it_watches_a_view_as_it_changes(cells: list[Any]) -> None:
    html = shown(cells, "import threading")
    assert "as of epoch 2" in html
    assert "ss-fresh" in html


def test_it_shows_changes_and_the_past(cells: list[Any]) -> None:
    assert "<th>_diff</th>" in shown(cells, "before = app.epoch")
    assert "8170.0" in shown(cells, 'app.read("revenue", as_of=1)')
    assert "closed" in shown(cells, "app.close()")


def test_it_breaks_a_view_and_mends_it(cells: list[Any]) -> None:
    held = shown(cells, "shares = app.view")
    assert "[DIVIDE_BY_ZERO]" in held
    assert "&#x27;oid&#x27;: 46" in held, "it says on which row"
    assert "as of epoch" in held
    assert "DIVIDE_BY_ZERO" not in shown(cells, "leaders", -1), "the others go on"
    assert "<td>45</td>" in shown(cells, "orders.retract")
    assert "DIVIDE_BY_ZERO" not in shown(cells, "shares", -1)


def test_nothing_went_wrong_on_the_way(cells: list[Any]) -> None:
    assert not [each for cell in cells for each in cell.outputs if each.output_type == "error"]
