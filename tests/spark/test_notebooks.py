"""The notebooks run from top to bottom, and what is kept of their last run is of their present code."""

from __future__ import annotations

import re
from collections.abc import Iterator

import nbformat
import pytest
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient

from tools.notebooks import MOST_BYTES, NOTEBOOKS, code_hash

PICTURES = {"assignment_history": 5, "capacity": 3, "quickstart": 2}

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
assert last.sum() == now.lag == 0, (last, now)
assert "forced" in set(found["outcome"])
assert cost["unnoticed_ms"].min() > 0
of_all = lag.pivot_table(index="at", columns="partition", values="lag", aggfunc="last").ffill().sum(axis=1)
assert (of_all.diff() < 0).sum() >= 8, of_all  # it goes down while messages are consumed
""",
    # Predictions and runs on a machine that does other things, too: of the same size, and in the same order.
    "capacity": """
assert max(abs(a - b) for a, b in zip(shares.partitions, observed.partitions, strict=True)) < 1e-9
assert list(measured.index) == [1, 2, 4]
ratio = measured / predicted.set_index("flows")["most_per_s"].loc[[1, 2, 4]]
assert ratio.between(0.5, 2).all(), ratio
assert measured[1] < min(measured[2], measured[4]), measured
assert lags["depth"].iloc[-1] <= ENOUGH < depth
assert 1 / 3 < until["measured"] / until["predicted"] < 3, until
assert skewed.loc[12 * 4, "limited_by"].iloc[-1] == "key"
assert (uneven["messages"] - uneven["busiest"]).abs().max() <= 12, uneven  # a message of each partition is rounding
assert uneven["messages"].iloc[-1] == MAX_ROWS  # in the end one flow has all
assert (choices["utilisation_after_crash"].dropna() <= 0.9).all()
""",
    "quickstart": """
assert (about.depth, sum(p.depth for p in about.partitions)) == (3000, 3000)
assert (now.depth, messages.count(), billed.count()) == (500, 3500, 3000)
depths = [[p.depth for p in description.partitions] for description in (about, now)]
assert [[bar.get_height() for bar in bars] for bars in ax.containers] == depths
""",
}


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KernelManager]:
    """One kernel, and so one JVM, for all notebooks."""
    kernel = KernelManager()
    kernel.start_kernel(cwd=str(tmp_path_factory.mktemp("notebooks")))
    yield kernel
    kernel.shutdown_kernel(now=True)


@pytest.mark.long
@pytest.mark.parametrize("name", PICTURES)
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


@pytest.mark.parametrize("name", PICTURES)
def test_what_is_kept(name: str) -> None:
    """U3: a reader who runs nothing sees results, of the code that the tests run, and nothing of the machine that made them."""
    text = (NOTEBOOKS / f"{name}.ipynb").read_text()
    notebook = nbformat.reads(text, as_version=4)
    nbformat.validate(notebook)
    assert notebook.metadata["code"] == code_hash(notebook), f"run: python -m tools.notebooks {name}"
    assert len(text) < MOST_BYTES
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert {output.output_type for output in outputs} == {"stream", "execute_result", "display_data"}
    assert {output.name for output in outputs if output.output_type == "stream"} == {"stdout"}
    assert len([output for output in outputs if "image/png" in output.get("data", {})]) == PICTURES[name]
    for output in outputs:
        shown = output.get("text", "") + "".join(v for k, v in output.get("data", {}).items() if k.startswith("text/"))
        assert not re.search(r"(?<![\w.<:/])/(?:\w[\w.-]*/)+\w", shown), shown


def test_all_of_them_run() -> None:
    assert sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb")) == sorted(PICTURES)
