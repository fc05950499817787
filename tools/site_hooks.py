"""What the documentation site needs beside mkdocs.yml: files outside docs/, which documents link; the pages of decisions and notebooks; diagrams.

Documents are also read on a code host, so a link leads to a file of the repository. Those of the documents outside docs/ are pages of the
site, too; of any other file that is linked the site has a copy as plain text. So the site is whole without the repository, and the build fails at
a link to a file that is not there.

Code hosts also take two or three spaces for the inside of a list, and \\| for a bar in the code of a table's cell. Python's Markdown wants four, and shows
the backslash.

The browser draws the diagrams, by the program Mermaid. `make docs-offline` fetches it, and the pages with diagrams load that copy; without it, they
load Mermaid from the network.
"""

from __future__ import annotations

import re
from pathlib import Path
from posixpath import dirname, normpath, relpath
from typing import Any

import site_notebooks  # MkDocs looks in the folder of this file, too
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
PAGES = {  # of the site, from files outside docs/; MkDocs takes a README.md for a start page
    "README.md": "overview.md",
    **{name: name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")},
}
WRITTEN = PAGES | site_notebooks.PAGES
FILES = {page: name for name, page in WRITTEN.items()}
MERMAID = ROOT / ".mermaid" / "mermaid.min.js"
DECISIONS = "adr"  # stands in mkdocs.yml for all pages in docs/adr/
LINK = re.compile(r"(?<=\]\()([^)#\s:]+)(?=(#[^)\s]*)?\))")
INSIDE = re.compile(r"^ {2,3}(?=\S)", re.MULTILINE)  # of a list
CELL = re.compile(r"<td.*?</td>", re.DOTALL)
BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def on_config(config: Any) -> None:
    decisions = sorted(path.name for path in (ROOT / "docs" / DECISIONS).glob("*.md"))
    for section in config.nav:
        for title, pages in section.items():
            if pages == DECISIONS:
                section[title] = [f"{DECISIONS}/{name}" for name in decisions]


def on_files(files: Files, config: Any) -> Files:
    for name, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / name)))
    documents = [file for file in files if file.is_documentation_page()]
    linked = {
        outside
        for file in documents
        for target in LINK.findall(BLOCK.sub("", file.content_string))
        if (outside := in_repository(target[0], file.src_uri)) is not None and copied(outside)
    }
    for path in sorted(linked):
        files.append(File.generated(config, f"source/{path}.txt", abs_src_path=str(ROOT / path)))
    for file in site_notebooks.files(config):
        files.append(file)
    if MERMAID.exists():
        files.append(File.generated(config, f"assets/{MERMAID.name}", abs_src_path=str(MERMAID)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    here = page.file.src_uri

    def on_the_site(found: re.Match[str]) -> str:
        path = in_repository(found[1], here)
        if path is None:
            return found[1]
        if copied(path):
            return relpath(f"source/{path}.txt", dirname(here) or ".")
        return relpath(page_of(path), dirname(here) or ".")

    parts = BLOCK.split(markdown)
    blocks = [*BLOCK.findall(markdown), ""]
    return "".join(
        LINK.sub(on_the_site, INSIDE.sub("    ", part)) + block for part, block in zip(parts, blocks, strict=True)
    )


def on_page_content(html: str, **_: Any) -> str:
    return CELL.sub(lambda cell: cell[0].replace("\\|", "|"), html)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    if not MERMAID.exists() or '<pre class="mermaid">' not in output:
        return output
    script = relpath(f"assets/{MERMAID.name}", dirname(page.file.dest_uri) or ".")
    return output.replace("</head>", f'<script src="{script}"></script></head>', 1)


def in_repository(target: str, document: str) -> str | None:
    """Which file or folder of the repository a link of a page means; None if there is none."""
    folder = dirname(FILES.get(document, f"docs/{document}"))
    path = normpath(f"{folder}/{target}" if folder else target)
    return path if not path.startswith("..") and (ROOT / path).exists() else None


def page_of(path: str) -> str:
    """Where a file is on the site; a folder begins with its first page."""
    if (ROOT / path).is_dir():
        path = str(min((ROOT / path).glob("*.md")).relative_to(ROOT))
    return WRITTEN.get(path, path.removeprefix("docs/"))


def copied(path: str) -> bool:
    """Whether the site has a copy of it: it is outside docs/, and no page."""
    return (ROOT / path).is_file() and path not in WRITTEN and not path.startswith("docs/")
