"""The notebooks run from top to bottom."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.helpers import in_parallel

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))

PICTURES = {"assignment_history": 5, "queue": 1}


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[nbformat.NotebookNode] | BaseException]:
    """What the cells of each notebook put out, or its error; all run at the same time."""

    def run(path: Path) -> list[nbformat.NotebookNode]:
        notebook = nbformat.read(path, as_version=4)
        folder = str(tmp_path_factory.mktemp(path.stem))
        NotebookClient(notebook, timeout=180, resources={"metadata": {"path": folder}}).execute()
        return [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]

    found = in_parallel([lambda path=path: run(path) for path in NOTEBOOKS])
    return {path.stem: outputs for path, outputs in zip(NOTEBOOKS, found, strict=True)}


@pytest.mark.parametrize("name", [path.stem for path in NOTEBOOKS])
def test_runs(outputs: dict[str, list[nbformat.NotebookNode] | BaseException], name: str) -> None:
    """U3: each cell runs, in a kernel and a Spark session of its own."""
    found = outputs[name]
    if isinstance(found, BaseException):
        raise found
    assert len([output for output in found if "image/png" in output.get("data", {})]) == PICTURES[name]
