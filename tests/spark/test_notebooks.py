"""The notebooks run from top to bottom."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"

PICTURES = {"assignment_history": 5, "queue": 1}


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KernelManager]:
    """One kernel, and so one JVM, for all notebooks."""
    kernel = KernelManager()
    kernel.start_kernel(cwd=str(tmp_path_factory.mktemp("notebooks")))
    yield kernel
    kernel.shutdown_kernel(now=True)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "queue" else pytest.mark.long) for name in PICTURES]
)
def test_runs(kernel: KernelManager, name: str) -> None:
    """U3: each cell runs, with no name of another notebook, in a Spark session of its own."""
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    notebook.cells.insert(0, nbformat.v4.new_code_cell("%reset -f"))
    # The manager of a kernel that somebody else started neither starts nor ends it.
    NotebookClient(notebook, km=kernel, timeout=180).execute(cleanup_kc=False)
    found = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert len([output for output in found if "image/png" in output.get("data", {})]) == PICTURES[name]


def test_all_of_them_run() -> None:
    assert sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb")) == sorted(PICTURES)
