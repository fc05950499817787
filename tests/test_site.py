"""The documentation site: it is built, shows what the documents say, and a fault in them ends its build."""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from urllib.parse import unquote

import pytest
from markdown_it import MarkdownIt

import spark_partq as partq
from tests.core.test_documents import DOCUMENTS
from tools import commands

ROOT = Path(__file__).parents[1]
PAGES = [path for path in DOCUMENTS if path.name != "api.md"]  # that is made from docstrings
BLOCKS = ("<li", "<tr", "<td", "<pre", "<ul", "<ol", "<h1", "<h2", "<h3")


def build(config: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Without a network: what asks for a page meets a proxy that is not there."""
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), "http://127.0.0.1:9")
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(config), "--site-dir", str(site)],
        env={**os.environ, **nowhere, "NO_MKDOCS_2_WARNING": "1"},
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT / "mkdocs.yml", folder)
    assert done.returncode == 0, done.stderr
    return folder


def page_of(document: Path, site: Path) -> str:
    """The part of its page that the document makes, without the marks that lead to headings."""
    path = document.relative_to(ROOT / "docs" if document.is_relative_to(ROOT / "docs") else ROOT)
    page = (site / ("overview.html" if path.name == "README.md" else path.with_suffix(".html"))).read_text()
    inner = page[page.index("<h1", page.index("<article")) : page.index("</article>")]
    return re.sub(r'<a class="headerlink".*?</a>', "", inner, flags=re.DOTALL)


def shown(text: str) -> str:
    return re.sub(r"\s+", "", html.unescape(re.sub(r"<[^>]+>", "", text)))


@pytest.mark.parametrize("document", PAGES, ids=lambda path: path.name)
def test_a_page_shows_what_a_code_host_shows(site: Path, document: Path) -> None:
    """Code hosts and the site read Markdown by different rules: a list that is not indented enough is no list on the site."""
    there = MarkdownIt("commonmark").enable("table").render(document.read_text())
    here = page_of(document, site)
    assert shown(here) == shown(there)
    assert Counter(re.findall("|".join(BLOCKS), here)) == Counter(re.findall("|".join(BLOCKS), there))


def test_links_of_the_site_lead_somewhere(site: Path) -> None:
    pages = {path: path.read_text() for path in site.rglob("*.html") if path.name != "404.html"}
    ids = {path: set(re.findall(r'\bid="([^"]+)"', text)) for path, text in pages.items()}
    links = 0
    for path, text in pages.items():
        for link in re.findall(r'\b(?:href|src)="([^"]*)"', text):
            target, _, anchor = unquote(html.unescape(link)).partition("#")
            if not target.startswith(("http:", "https:")):
                file = (path.parent / target).resolve() if target else path
                assert file.exists(), (path, link)
                assert not anchor or anchor in ids[file] or anchor.startswith("__"), (path, link)
                links += 1
    assert links > len(pages)


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    """Only Mermaid may be: see tools/site_hooks.py."""
    for path in site.rglob("*.html"):
        loaded = re.findall(r'<(?:script|img|iframe)[^>]*\bsrc="([^"]*)"|<link[^>]*\bhref="([^"]*)"', path.read_text())
        assert [link for pair in loaded for link in pair if link.startswith(("http", "//"))] == [], path


def test_diagrams(site: Path) -> None:
    found = 0
    for document in DOCUMENTS:
        drawn = re.findall(r"```mermaid\n(.*?)```", document.read_text(), re.DOTALL)
        if drawn:
            page = page_of(document, site)
            assert page.count('<pre class="mermaid">') == len(drawn), document
            found += len(drawn)
        for diagram in drawn:
            assert ";" not in diagram, "Mermaid takes a semicolon for the end of a line"
    assert found


def test_notebooks(site: Path) -> None:
    """U3: their pages have the text, the code, the pictures and the tables of the last run."""
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        page = (site / "notebooks" / f"{path.stem}.html").read_text()
        cells = json.loads(path.read_text())["cells"]
        outputs = [output.get("data", {}) for cell in cells for output in cell.get("outputs", [])]
        assert page.count("<img alt=") == len([data for data in outputs if "image/png" in data]) > 0
        assert page.count('class="dataframe"') == len([data for data in outputs if "text/html" in data])
        code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        assert all(shown(html.escape(text)) in shown(page) for text in code)


def test_public_names() -> None:
    told = re.findall(r"^::: spark_partq\.(\w+)$", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE)
    errors = {name for name in partq.__all__ if name.endswith("Error") and name != "PartqError"}  # docs/errors.md
    assert sorted(told) == sorted({*partq.__all__} - errors)


def test_commands_are_those_of_the_program() -> None:
    assert commands.PAGE.read_text() == commands.page(), "python -m tools.commands writes it anew"


def test_faults_of_documents_end_the_build(tmp_path: Path) -> None:
    """A page that nobody can find, and links to a page, a heading and a file that are not there."""
    docs = tmp_path / "docs"
    for path in [*(ROOT / "docs").rglob("*.md"), *(ROOT / "docs").rglob("*.png")]:
        copy = docs / path.relative_to(ROOT / "docs")
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    (docs / "orphan.md").write_text("# Orphan\n")
    links = ["[a](nowhere.md)", "[b](rebalance.md#nowhere)", "[c](../spark_partq/nowhere.py)"]
    (docs / "options.md").write_text(
        "# Options\n\n" + "\n".join(links) + "\n\n## Settings of a queue\n\n## On the command line\n\n## Credentials\n"
    )
    config = tmp_path / "mkdocs.yml"
    config.write_text(
        f"INHERIT: {ROOT / 'mkdocs.yml'}\ndocs_dir: {docs}\nhooks: [{ROOT / 'tools' / 'site_hooks.py'}]\nplugins: []\n"
    )
    done = build(config, tmp_path / "site")
    assert done.returncode != 0
    faults = [line for line in done.stderr.splitlines() if line.startswith("WARNING")]
    faults += re.findall(r"^  - .*$", done.stderr, re.MULTILINE)
    for what in ("orphan.md", "'nowhere.md'", "'rebalance.md#nowhere'", "'../spark_partq/nowhere.py'"):
        assert any(what in fault for fault in faults), (what, done.stderr)
    assert len(faults) == 5, done.stderr  # one line says that pages like the orphan follow
