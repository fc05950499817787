"""The pictures of docs/console.md: ``python -m tests.console.pictures`` takes them anew, of queues that are in use."""

from __future__ import annotations

import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, Route, expect, sync_playwright

from tests.console.scene import GROUP, Scene
from tests.console.served import Served, console
from tests.helpers import ROOT, eventually

IMAGES = ROOT / "docs" / "images"
MISSING = "the browser of these tests is missing: run apt-get install chromium"
_PATIENCE_MS = 60_000  # of what is waited for in a browser, on a machine that is busy, too
_WIDE, _NARROW = {"width": 1280, "height": 860}, {"width": 400, "height": 860}


@contextmanager
def browser() -> Iterator[Browser]:
    """Debian's Chromium.

    Raises
    ------
    RuntimeError
        If it is not installed.
    """
    found = shutil.which("chromium")
    if found is None:
        raise RuntimeError(MISSING)
    expect.set_options(timeout=_PATIENCE_MS)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        try:
            yield started
        finally:
            started.close()


def opened(browser: Browser, served: Served, fragment: str = "#/", *, dark: bool = False, narrow: bool = False) -> Page:
    """The console in a new window, when its first picture is there. A fault of a script ends the test that shows it."""
    page = browser.new_page(viewport=_NARROW if narrow else _WIDE, color_scheme="dark" if dark else "light")  # type: ignore[arg-type]
    page.set_default_timeout(_PATIENCE_MS)
    page.on("pageerror", _raise)
    page.goto(f"http://127.0.0.1:{served.port}/{fragment}")
    expect(page.locator("main table").first).to_be_visible()
    return page


def _raise(error: Any) -> None:
    raise AssertionError(f"a script of the page failed: {error}")


def take(browser: Browser, scene: Scene, served: Served, folder: Path) -> list[Path]:
    """All pictures, of a group that two clients share and a third one joins."""
    names = {socket.gethostname(): "worker-1", str(Path(scene.store).parent): "/srv"}
    group = f"#/group/{GROUP}"
    taken = []
    for name, fragment, look, part in (
        ("console-overview", "#/", {}, None),
        ("console-group", group, {}, None),
        ("console-group-dark", group, {"dark": True}, None),
        ("console-timeline", f"{group}?range=300", {}, "#timeline"),
        ("console-history", f"{group}?kind=Granted", {}, "#history"),
        ("console-explain", f"{group}?why=orders/3", {}, "dialog"),
        ("console-queue", "#/queue/orders", {}, None),
        ("console-narrow", group, {"narrow": True}, None),
    ):
        page = opened(browser, served, fragment, **look)
        page.route("**/api/**", lambda route: _renamed(route, names))
        page.reload()
        expect(page.locator("#trail")).to_contain_text("/srv/store" if "narrow" not in look else "partq")
        if "group" in fragment:
            expect(page.locator("#timeline svg")).to_be_visible()
            expect(page.locator("#history tbody tr").first).to_be_visible()
        if "queue" in fragment:
            expect(page.locator("#settings tbody tr").first).to_be_visible()
        if part == "dialog":
            expect(page.locator("dialog .steps li").first).to_be_visible()
        if part is None and "narrow" not in look:
            height = page.evaluate("document.querySelector('main').getBoundingClientRect().bottom")
            page.set_viewport_size({"width": 1280, "height": min(1180, int(height))})
        path = folder / f"{name}.png"
        shown = page.locator(part) if part and part != "dialog" else page
        shown.screenshot(path=path)
        page.unroute_all(behavior="wait")  # what is under way ends before its page does
        page.close()
        taken.append(path)
    return taken


def _renamed(route: Route, names: dict[str, str]) -> None:
    """An answer without the names of this machine."""
    answer = route.fetch()
    body = answer.text()
    for name, instead in names.items():
        body = body.replace(name, instead)
    route.fulfill(response=answer, body=body)


@contextmanager
def busy() -> Iterator[tuple[Scene, Served]]:
    """Three clients of a group, of which one came later, and one of another group; and a console."""
    with tempfile.TemporaryDirectory() as folder:
        scene = Scene(Path(folder))
        try:
            scene.join("billing-a")
            scene.join("billing-b", flows=1)
            scene.wait_until(2)
            scene.join("audit-1", flows=1, group="audit", queue="orders,refunds")
            with console(scene.store, every_s=0.5) as served:
                yield scene, served
        finally:
            scene.end()


def watch(served: Served, looks: int) -> None:
    """Until so many looks were taken: rates and trends are of several."""
    eventually(lambda: served.found("/api/store")["look"] >= looks, f"look {looks}", every_s=0.2)


def main() -> int:
    IMAGES.mkdir(exist_ok=True)
    with busy() as (scene, served), browser() as chromium:
        watch(served, 30)
        scene.join("billing-c")
        scene.wait_until(3)
        watch(served, 60)
        for path in take(chromium, scene, served, IMAGES):
            print(f"{path.relative_to(ROOT)}: {path.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
