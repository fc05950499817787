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

# Counted again from the facts alone: what the notebook's tables, which its pictures draw, have to say.
AGAIN = {
    "assignment_history": """
kinds = facts["kind"].value_counts()
assert len(owned) == kinds["Granted"] >= 10
assert len(found) == kinds["HandoffStarted"] > 0
assert list(analysis.statuses(facts)["status"])[1:] == list(facts.loc[facts["kind"] == "StatusChanged", "status"])
moved = analysis.moves(facts)
assert moved["handoffs"].sum() == kinds["HandoffStarted"]
cost = analysis.costs(facts, acks)
assert (cost["how"] == "expired").sum() == kinds["MemberLeft"] > 0
assert sorted(lag["partition"].unique()) == list(range(6))
last = lag.sort_values("at", kind="stable").groupby("partition")["lag"].last()
assert last.sum() == now.lag, (last, now)
""",
    "queue": """
assert (about.depth, messages.count(), sum(p.depth for p in about.partitions)) == (3000, 3000, 3000)
assert [bar.get_height() for bar in ax.patches] == [p.depth for p in about.partitions]
""",
}


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
    """U3: each cell runs, with no name of another notebook, in a Spark session of its own, and what it shows is what happened."""
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    notebook.cells.insert(0, nbformat.v4.new_code_cell("%reset -f"))
    assert notebook.cells[-1].source == "spark.stop()"
    notebook.cells.insert(-1, nbformat.v4.new_code_cell(AGAIN[name]))
    # The manager of a kernel that somebody else started neither starts nor ends it.
    NotebookClient(notebook, km=kernel, timeout=180).execute(cleanup_kc=False)
    found = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert len([output for output in found if "image/png" in output.get("data", {})]) == PICTURES[name]


def test_all_of_them_run() -> None:
    assert sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb")) == sorted(PICTURES)
