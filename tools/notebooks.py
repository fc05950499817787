"""Runs the notebooks and keeps what they show in them: ``python -m tools.notebooks [name …]``.

What a run leaves is made small and fit for everybody: pictures get a palette, and of this machine neither the host's name nor a path is
left. A notebook also keeps the hash of its code, so that a test can tell outputs of other code. The tests run the same notebooks.
"""

from __future__ import annotations

import base64
import getpass
import hashlib
import io
import os
import re
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat

ROOT = Path(__file__).parents[1]
NOTEBOOKS = ROOT / "notebooks"
MOST_BYTES = 150_000
COLOURS = 48


def main(names: list[str]) -> None:
    from jupyter_client.manager import KernelManager
    from nbclient import NotebookClient

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        if names and path.stem not in names:
            continue
        notebook = nbformat.read(path, as_version=4)
        kernel = KernelManager()
        with tempfile.TemporaryDirectory() as folder:
            NotebookClient(notebook, km=kernel, timeout=300, resources={"metadata": {"path": folder}}).execute()
        tidy(notebook)
        written = nbformat.writes(notebook) + "\n"
        if len(written) >= MOST_BYTES:
            raise SystemExit(f"{path.name} has {len(written):,} bytes; show less")
        path.write_text(written)
        print(f"{path.relative_to(ROOT)}: {len(written):,} bytes")


def code_hash(notebook: Any) -> str:
    """Of the code cells, in order."""
    code = "\0".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    return hashlib.sha256(code.encode()).hexdigest()[:16]


def tidy(notebook: Any) -> None:
    """Leave out what tells of the machine or only of this run."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for number, cell in enumerate(notebook.cells):
        cell.id, cell.metadata = f"cell-{number}", {}
    for number, cell in enumerate(code, 1):
        cell.execution_count = number
        cell.outputs = [tidied(output, number) for output in cell.outputs if output.get("name") != "stderr"]
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
        "code": code_hash(notebook),
    }
    notebook.nbformat_minor = 5


def tidied(output: Any, number: int) -> Any:
    if "text" in output:
        output.text = impersonal(output.text)
    if "execution_count" in output:
        output.execution_count = number
    output.pop("metadata", None)
    if "data" in output:
        output.metadata = {}
        data = output.data
        if "image/png" in data:
            output.data = {"image/png": small(data["image/png"]), "text/plain": data["text/plain"]}
        else:
            for kind, shown in data.items():
                data[kind] = without_style(impersonal(shown)) if isinstance(shown, str) else shown
    return output


def impersonal(shown: str) -> str:
    """Without the names of this machine and its folders."""
    shown = re.sub(rf"{re.escape(tempfile.gettempdir())}/[\w./-]+", "folder", shown)
    for name in (socket.gethostname(), socket.getfqdn()):
        shown = shown.replace(name, "host")
    return shown.replace(f"/home/{getpass.getuser()}", "home")


def without_style(shown: str) -> str:
    """A table without pandas' rules for its looks, which a page has of its own."""
    return re.sub(r"<style scoped>.*?</style>\n?", "", shown, flags=re.DOTALL)


def small(picture: str) -> str:
    """A PNG with few colours: a plot needs no more."""
    from PIL import Image

    image = Image.open(io.BytesIO(base64.b64decode(picture))).convert("RGB")
    packed = io.BytesIO()
    image.quantize(COLOURS, dither=Image.Dither.NONE).save(packed, "PNG", optimize=True)
    return base64.b64encode(packed.getvalue()).decode()


if __name__ == "__main__":
    main(sys.argv[1:])
