"""Notebooks as pages of the documentation site: their text, their code, and what is kept of their last run."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
PAGES = {f"notebooks/{path.name}": f"notebooks/{path.stem}.md" for path in sorted((ROOT / "notebooks").glob("*.ipynb"))}


def files(config: Any) -> Iterator[File]:
    """The page of each notebook, and its pictures."""
    for notebook, page in PAGES.items():
        cells = json.loads((ROOT / notebook).read_text())["cells"]
        pictures: list[bytes] = []
        text = "\n\n".join(part for cell in cells for part in parts(cell, Path(page).stem, pictures))
        yield File.generated(config, page, content=f"{text}\n\n{told(notebook)}\n")
        for number, picture in enumerate(pictures):
            yield File.generated(config, f"{page.removesuffix('.md')}-{number}.png", content=picture)


def told(notebook: str) -> str:
    return f"This page is `{notebook}` of the repository, with the results of a run."


def parts(cell: dict[str, Any], name: str, pictures: list[bytes]) -> Iterator[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"```python\n{source}\n```"
    for output in cell["outputs"]:
        data = output.get("data", {})
        if "image/png" in data:
            pictures.append(base64.b64decode(data["image/png"]))
            yield f"![A plot, made by the code above]({name}-{len(pictures) - 1}.png)"
        elif "text/html" in data:
            table = "\n".join(line.strip() for line in "".join(data["text/html"]).splitlines() if line.strip())
            yield f'<div style="overflow-x: auto" markdown="0">\n{table}\n</div>'
        else:
            text = "".join(output.get("text", data.get("text/plain", ""))).rstrip("\n")
            yield f"```text\n{text}\n```"
