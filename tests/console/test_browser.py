"""The console in a real browser, of queues that are in use: what it shows, that it is live, by keyboard, dark, narrow (K8, R7)."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

import spark_partq as partq
from tests.console import pictures
from tests.console.pictures import opened
from tests.console.scene import GROUP, PARTITIONS, Scene
from tests.console.served import Served, console
from tests.groups import Lasting
from tests.helpers import put

pytestmark = pytest.mark.long

MOST_BYTES = 200_000  # of a picture
MOST_ELEMENTS = 20_000  # of a page


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    if shutil.which("chromium") is None:
        pytest.fail(pictures.MISSING, pytrace=False)
    with pictures.browser() as found:
        yield found


@pytest.fixture
def busy() -> Iterator[tuple[Scene, Served]]:
    with pictures.busy() as found:
        yield found


@pytest.fixture
def still(store: str) -> str:
    """Group `g` with client `a`, and queue `q` of 4 partitions with 10 messages each; nothing happens there."""
    partq.create_queue(store, "q", "v long", partitions=4, rebalance_delay_ms=0, max_handoff_time_ms=60_000)
    for number in range(4):
        put(store, number, range(10))
    Lasting(store, "a", 2).ack(0, 3, delivered=5)
    return store


def cells(page: Page, table: str, column: int) -> list[str]:
    return page.locator(f"{table} tbody tr > :nth-child({column})").all_inner_texts()


# ---- of queues that are in use
def test_groups_clients_and_partitions(busy: tuple[Scene, Served], chromium: Browser) -> None:
    scene, served = busy
    page = opened(chromium, served)
    assert cells(page, "#groups", 1) == partq.list_groups(scene.store) and cells(
        page, "#queues", 1
    ) == partq.list_queues(scene.store)
    page.get_by_role("link", name=GROUP).first.click()
    expect(page.get_by_role("heading", name=f"Group {GROUP}")).to_be_visible()
    expect(page.locator(".about")).to_contain_text("balanced")
    expect(page.locator("#clients tbody tr")).to_have_count(len(scene.clients) - 1)
    found = partq.describe_group(scene.store, GROUP)
    owners = [p.flow for p in found.partitions]
    assert [text.strip() for text in cells(page, "#partitions", 2)] == owners
    expect(page.locator("#timeline .line")).to_have_count(PARTITIONS)
    expect(page.locator("#history tbody tr").first).to_contain_text("Ready")
    page.close()


def test_it_is_live(busy: tuple[Scene, Served], chromium: Browser) -> None:
    """A client that joins is shown with its partitions, and positions go on, without a reload; what has the focus keeps it."""
    scene, served = busy
    page = opened(chromium, served, f"#/group/{GROUP}")
    page.evaluate("window.same = true")
    before = cells(page, "#partitions", 3)
    why = page.get_by_role("link", name="Why is orders/2 where it is?")
    why.focus()
    scene.join("billing-late", flows=1)
    scene.wait_until(3)
    row = page.locator("#clients tbody tr", has_text="billing-late")
    expect(row).to_be_visible()
    expect(row.locator("td.p")).to_have_text(re.compile(r"^\d"))
    expect(page.locator("#timeline .legend")).to_contain_text("billing-late", timeout=30_000)
    expect(why).to_be_focused()
    assert cells(page, "#partitions", 3) != before and page.evaluate("window.same")
    page.close()


@pytest.mark.parametrize("after", [["b", "c"], ["b"], ["c", "b", "a"], ["new", "b"]], ids=" ".join)
def test_what_is_shown_anew_keeps_the_focus(still: str, chromium: Browser, after: list[str]) -> None:
    """Whatever comes, goes or moves around it."""
    with console(still) as served:
        page = opened(chromium, served)
        shown = page.evaluate(
            """async (after) => {
                const { h, show } = await import(new URL("dom.js", document.querySelector("script[type=module]").src));
                const items = (keys) => keys.map((key) => h("section", { "data-key": key }, h("a", { href: "#/", id: key }, key)));
                const place = document.body.appendChild(h("div"));
                show(place, items(["a", "b", "c"]));
                document.getElementById("b").focus();
                show(place, items(after));
                return [document.activeElement.id, place.innerText.split("\\n").map((line) => line.trim()).filter(Boolean)];
            }""",
            after,
        )
        assert shown == ["b", after]
        page.close()


def test_pictures(busy: tuple[Scene, Served], chromium: Browser, tmp_path: Path) -> None:
    """The document shows these, and they are small."""
    scene, served = busy
    taken = pictures.take(chromium, scene, served, tmp_path)
    told = (pictures.ROOT / "docs" / "console.md").read_text()
    for path in taken:
        kept = pictures.IMAGES / path.name
        assert path.stat().st_size < MOST_BYTES and kept.stat().st_size < MOST_BYTES
        assert f"images/{path.name}" in told
    assert {path.name for path in taken} == {path.name for path in pictures.IMAGES.glob("console-*.png")}


# ---- of a large store
def test_a_thousand_partitions(large: str, chromium: Browser) -> None:
    """The overview, then the group with what moved, its history and its timeline: rows are those that fit a page."""
    with console(large, every_s=3600.0) as served:
        page = opened(chromium, served)
        expect(page.locator("#queues tbody tr")).to_contain_text(["1,024"])
        page.get_by_role("link", name="g", exact=True).first.click()
        expect(page.locator("#clients tbody tr")).to_have_count(2)
        expect(page.locator("#timeline .line")).to_have_count(32)
        expect(page.locator("#history tbody tr")).to_have_count(50)
        assert page.locator("main *").count() < MOST_ELEMENTS
        assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
        page.close()


# ---- of a group in which nothing happens
def test_explain_by_keyboard(still: str, chromium: Browser) -> None:
    """Enter opens it, Escape closes it, and the focus is where it was; its address can be sent."""
    with console(still) as served:
        page = opened(chromium, served, "#/group/g")
        link = page.get_by_role("link", name="Why is q/0 where it is?")
        for _ in range(60):
            page.keyboard.press("Tab")
            if link.evaluate("(element) => element === document.activeElement"):
                break
        expect(link).to_be_focused()
        page.keyboard.press("Enter")
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("was given messages up to offset 5, and has acknowledged up to 3")
        expect(page).to_have_url(re.compile(r"#/group/g\?why=q%2F0$"))
        other = chromium.new_page()
        other.goto(page.url)
        expect(other.get_by_role("dialog")).to_contain_text("acknowledged up to 3")
        other.close()
        page.keyboard.press("Escape")
        expect(dialog).to_be_hidden()
        expect(link).to_be_focused()
        expect(page).to_have_url(re.compile("#/group/g$"))
        page.close()


def test_filters_and_the_address_of_a_fact(still: str, chromium: Browser) -> None:
    with console(still) as served:
        page = opened(chromium, served, "#/group/g")
        rows = page.locator("#history tbody tr")
        whole = served.found("/api/groups/g/history")["facts"]
        expect(rows).to_have_count(len(whole))
        page.get_by_label("kind").select_option("Granted")
        expect(rows).to_have_count(4)
        page.get_by_label("partition", exact=True).fill("q/2")
        expect(rows).to_have_count(1)
        expect(page).to_have_url(re.compile("kind=Granted"))
        expect(page).to_have_url(re.compile("partition=q%2F2"))
        page.reload()
        expect(rows).to_have_count(1)
        expect(page.get_by_label("kind")).to_have_value("Granted")
        page.get_by_label("text").fill("nothing is like that")
        expect(page.locator("#history")).to_contain_text("No fact is like that")
        page.get_by_role("button", name="Clear").click()
        expect(rows).to_have_count(len(whole))
        expect(page.get_by_label("text")).to_have_value("")
        rows.nth(2).locator("a").click()
        expect(page.locator("tr.wanted")).to_have_attribute("id", f"fact-{whole[2]['seq']}")
        expect(page.locator("tr.wanted a")).to_be_focused()
        page.close()


def contrast(page: Page, selector: str) -> float:
    """Between a text and what is behind it, as the WCAG define it."""
    return float(
        page.locator(selector).first.evaluate(
            """(element) => {
              const parts = (text) => text.match(/[\\d.]+/g).map(Number);
              const clear = (text) => parts(text).length === 4 && parts(text)[3] === 0;
              let behind = element;
              while (behind.parentElement && clear(getComputedStyle(behind).backgroundColor)) behind = behind.parentElement;
              const light = (text) => {
                const [r, g, b] = parts(text).map((part) => part / 255).map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
                return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
              };
              const [one, other] = [light(getComputedStyle(element).color), light(getComputedStyle(behind).backgroundColor)];
              return Math.max(one, other) / Math.min(one, other);
            }"""
        )
    )


@pytest.mark.parametrize("dark", [False, True])
def test_dark_and_light(still: str, chromium: Browser, dark: bool) -> None:
    """As the system asks for, and readable in both."""
    with console(still) as served:
        page = opened(chromium, served, "#/group/g", dark=dark)
        expect(page.locator("#history tbody tr").first).to_be_visible()
        red = int(page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0]"))
        assert (red < 60) == dark
        for selector in ("h1", "dt", "dd", "thead th", "td", "td a", ".badge", ".quiet", "#live"):
            assert contrast(page, selector) >= 4.5, selector
        page.close()


@pytest.mark.parametrize("fragment", ["#/", "#/group/g", "#/queue/q", "#/group/g?why=q/0"])
@pytest.mark.parametrize("narrow", [False, True])
def test_nothing_is_wider_than_the_screen(still: str, chromium: Browser, fragment: str, narrow: bool) -> None:
    with console(still) as served:
        page = opened(chromium, served, fragment, narrow=narrow)
        if "group" in fragment:
            expect(page.locator("#timeline svg")).to_be_visible()
            assert page.locator(".picture").evaluate("(picture) => picture.scrollWidth - picture.clientWidth") <= 0
        assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
        page.close()


def test_hostile_texts(still: str, chromium: Browser) -> None:
    """They are shown as they are: no element, no script and no picture comes of them."""
    text = '<img src="x" onerror="window.owned = true"><script>window.owned = true</script>'
    Lasting(still, "evil", application=text, executors=("javascript:alert(1)",))
    with console(still) as served:
        page = opened(chromium, served, "#/group/g")
        expect(page.locator("#clients")).to_contain_text(text)
        assert page.locator("main img, main script").count() == 0
        assert page.evaluate("window.owned") is None
        page.goto(f"http://127.0.0.1:{served.port}/#/group/%3Cimg%20src=x%20onerror=alert(1)%3E?text=%3Cb%3E")
        expect(page.locator("h1")).to_contain_text("<img src=x onerror=alert(1)>")
        assert page.locator("main img").count() == 0
        page.close()


def test_trouble(still: str, chromium: Browser) -> None:
    """A store that is gone is told of, with what was seen last; when it is there again that ends. So is a console that has ended."""
    with console(still, every_s=0.2) as served:
        page = opened(chromium, served, "#/group/g")
        expect(page.locator("#clients tbody tr")).to_have_count(1)
        expect(page.locator("#live")).to_contain_text("live, read")
        shutil.move(still, f"{still}-gone")
        alert = page.get_by_role("alert")
        expect(alert).to_contain_text("is not a store: it holds nothing")
        expect(alert).to_contain_text("What you see is of")
        expect(page.locator("#live")).to_contain_text("not live")
        expect(page.locator("#clients tbody tr")).to_have_count(1)
        shutil.move(f"{still}-gone", still)
        expect(alert).to_be_empty()
        expect(page.locator("#live")).to_contain_text("live, read")
    expect(alert).to_contain_text("The console does not answer")
    expect(page.locator("#clients tbody tr")).to_have_count(1)
    page.close()


def test_actions(still: str, chromium: Browser) -> None:
    """Only in the tab that was opened with the token, and after somebody has confirmed."""
    with console(still, every_s=0.2, token="t" * 32) as served:
        page = opened(chromium, served, "#/queue/q")
        expect(page.locator("#settings")).to_be_visible()
        expect(page.get_by_role("button", name="Disable ingress")).to_have_count(0)
        page.close()
        page = opened(chromium, served, f"#token={'t' * 32}")
        assert "token" not in page.url
        page.goto(f"http://127.0.0.1:{served.port}/#/queue/q")
        page.get_by_role("button", name="Disable ingress").click()
        assert partq.describe_queue(still, "q").ingress
        page.get_by_role("button", name="Do it").click()
        expect(page.get_by_role("dialog")).to_contain_text("ingress of queue q is disabled")
        page.get_by_role("button", name="Close").click()
        expect(page.get_by_role("button", name="Enable ingress")).to_be_visible()
        assert not partq.describe_queue(still, "q").ingress
        page.close()


def test_a_reset_is_shown_before_it_is_done(still: str, chromium: Browser) -> None:
    """H4: a second press before the answer does nothing."""
    reader = Lasting(still, "late", group="late")
    reader.ack(0, 2)
    reader.leave()

    def position() -> int:
        return partq.describe_group(still, "late").partitions[0].position

    with console(still, every_s=0.2, token="t" * 32) as served:
        page = opened(chromium, served, f"#token={'t' * 32}")
        page.goto(f"http://127.0.0.1:{served.port}/#/group/late")
        page.get_by_role("button", name="Reset offsets").click()
        do_it, said, asked = page.get_by_role("button", name="Do it"), page.locator("#done"), list[Any]()
        page.on("request", lambda request: asked.append(request.post_data_json) if request.method == "POST" else None)
        do_it.evaluate("button => { button.click(); button.click(); }")
        expect(said).to_contain_text("would")
        assert [body["dry_run"] for body in asked] == [True] and position() == 2
        do_it.click()
        expect(said).not_to_contain_text("would")
        expect(said).to_contain_text("set")
        assert position() == 0
        page.close()


def test_barrier_and_scaling(still: str, chromium: Browser) -> None:
    """Both counts, and what waits for what (S5, S8)."""
    partq.scale(still, "q", 6, timeout_s=60)
    put(still, 5, range(3), generation=1)
    with console(still) as served:
        page = opened(chromium, served, "#/queue/q")
        expect(page.locator(".about")).to_contain_text("in use6")
        expect(page.locator("#scaling")).to_contain_text("g: 1 partition at the barrier")
        page.locator("#scaling a").click()
        expect(page.locator("#waits")).to_contain_text("waits for partition")
        page.close()


def test_a_replica_says_so(still: str, chromium: Browser, tmp_path: Path) -> None:
    """Nobody takes it for the queue that producers write (S7)."""
    copy = str(tmp_path / "copy")
    partq.replicate(still, "q", copy)
    for store, shown in ((copy, 1), (still, 0)):
        with console(store) as served:
            page = opened(chromium, served, "#/queue/q")
            expect(page.locator("#partitions")).to_be_visible()
            expect(page.locator(".title", has_text=f"replica of {still}")).to_have_count(shown)
            page.close()
