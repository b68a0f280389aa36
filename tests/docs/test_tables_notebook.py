"""The notebook of tables shows what it still answers."""

import json
from pathlib import Path
from typing import Any, cast

import nbformat
import pytest
from nbclient import NotebookClient

from doc_support import ROOT

NOTEBOOK = ROOT / "examples" / "tables.ipynb"
RUN_SECONDS_MAX = 900


def results(cells: list[dict[str, Any]]) -> list[str]:
    """What the cells of a notebook say, without their plots."""
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    texts = [one.get("text") or one.get("data", {}).get("text/plain") for one in outputs]
    joined = ["".join(cast("list[str]", one)) for one in texts if one]
    return [one for one in joined if not one.startswith(("<", "WARNING"))]


def test_the_notebook_has_its_plot_and_no_errors() -> None:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    assert {output["output_type"] for output in outputs} <= {
        "stream", "display_data", "execute_result",
    }  # fmt: skip
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 1
    assert not any(output.get("name") == "stderr" for output in outputs)
    assert "1200 rows, 2 rejects\n" in results(cells)


@pytest.mark.long
@pytest.mark.spark
def test_the_notebook_answers_as_it_shows(tmp_path: Path) -> None:
    shown = results(json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"])
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    place = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=RUN_SECONDS_MAX, resources=place).execute()
    assert [one for one in results(notebook.cells) if "Warn" not in one] == shown
