"""The explorer page in a real Chromium: typing, clicking, the slider, the keyboard alone, names that are code."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright import sync_api as browsers

import harmonium
from harmonium.config.settings import ModelConfig
from harmonium.data.vocabulary import Vocabulary
from html_page import needs_chromium
from serving import Server, untrained
from small import make_graph

pytestmark = [pytest.mark.browser, pytest.mark.slow, needs_chromium]
SCRIPT = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
FACT = "#view=fact&head=Switzerland&relation=official+language&tail=French"
VIEWS = [
    "", "#view=entity&name=Switzerland", FACT, f"{FACT}&why=1", "#view=ask", "#view=ask&head=Austria&relation=borders",
    "#view=map", "#view=map&name=Switzerland", "#view=run", "#view=browse", "#view=browse&relation=borders&slot=head",
    "#view=compare", "#view=compare&first=Switzerland&second=Austria", "#view=entity&name=nobody",
]  # fmt: skip


@pytest.fixture(scope="module")
def atlas() -> Iterator[Server]:
    with Server(untrained(harmonium.load("atlas"), ModelConfig("hole", 32, rank=8))) as server:
        yield server


@pytest.fixture
def visit(browser: Any, atlas: Server) -> Iterator[Callable[..., Any]]:
    """Opens the page; at the end no script may have failed and nothing may have been asked of another server."""
    pages, faults, elsewhere = [], [], []

    def open_page(address: str = "", server: Server = atlas, **options: Any) -> Any:
        page = browser.new_page(viewport={"width": 1200, "height": 850}, **options)
        page.set_default_timeout(30_000)
        page.on("pageerror", lambda error: faults.append(str(error)))
        home = f"http://127.0.0.1:{server.port}/"
        page.on("request", lambda request: request.url.startswith((home, "data:")) or elsewhere.append(request.url))
        page.on("console", lambda message: "Content Security" in message.text and faults.append(message.text))
        page.goto(home + address)
        pages.append(page)
        return page

    yield open_page
    for page in pages:
        page.close()
    assert faults == []
    assert elsewhere == []


def settled(page: Any, heading: str) -> None:
    browsers.expect(page.locator("main[aria-busy=false] h2")).to_contain_text(heading)


def test_typing_a_name_and_clicking_through(visit: Callable[..., Any]) -> None:
    page = visit()
    settled(page, "Explore")
    page.get_by_role("combobox", name="Find an entity").press_sequentially("switz")
    page.get_by_role("option", name=re.compile("Switzerland")).click()
    settled(page, "Switzerland")
    assert "name=Switzerland" in page.url
    assert page.title() == "Switzerland · harmonium"
    browsers.expect(page.locator("#status")).to_have_text(re.compile("predicted facts of Switzerland"))
    assert page.locator("table tbody tr").count() == 20
    assert page.get_by_role("heading", name="Known facts (33)").is_visible()
    page.get_by_role("link", name="Austria", exact=True).first.click()
    settled(page, "Austria")
    page.go_back()
    settled(page, "Switzerland")
    page.get_by_role("link", name="Details: Switzerland, official language, French").click()
    settled(page, "Switzerland official language French")
    page.get_by_role("button", name="Explain this fact").click()
    browsers.expect(
        page.get_by_role("heading", name=re.compile("Facts (it depends on|that support it most)"))
    ).to_be_visible()
    browsers.expect(page.get_by_text("Nearest training facts")).to_have_count(0)
    page.get_by_text("Details", exact=True).click()
    browsers.expect(page.get_by_text("Nearest training facts")).to_be_visible()
    page.reload()  # a deep link brings the same back, explanation and all
    settled(page, "Switzerland official language French")
    browsers.expect(
        page.get_by_role("heading", name=re.compile("Facts (it depends on|that support it most)"))
    ).to_be_visible()
    page.get_by_role("link", name="Map", exact=True).click()
    settled(page, "All entities")
    assert page.locator("svg.map circle").count() == 1000
    page.get_by_role("button", name="Zoom in").click()
    assert page.locator("svg.map circle").count() < 1000
    page.get_by_role("link", name="This run").click()
    browsers.expect(page.get_by_text("3,334")).to_be_visible()


def test_a_wrong_name_gets_suggestions_that_work(visit: Callable[..., Any]) -> None:
    page = visit()
    page.get_by_role("combobox", name="Find an entity").fill("Swizerland")
    page.get_by_role("combobox", name="Find an entity").press("Enter")
    alert = page.get_by_role("alert")
    browsers.expect(alert).to_contain_text("no entity named 'Swizerland'")
    alert.get_by_role("link", name="Switzerland").click()
    settled(page, "Switzerland")
    page.goto(page.url.split("#")[0] + "#view=ask&head=Austria&relation=bordres")
    page.get_by_role("alert").get_by_role("link", name="borders").click()
    browsers.expect(page.get_by_role("heading", name="Austria, borders, ?")).to_be_visible()
    assert page.locator("tbody tr").count() == 20


def test_the_keyboard_is_enough(visit: Callable[..., Any]) -> None:
    page = visit()
    focused = page.locator("*:focus")
    settled(page, "Explore")
    page.keyboard.press("Tab")
    browsers.expect(focused).to_have_text("Skip to the content")
    page.keyboard.press("Enter")
    browsers.expect(focused).to_have_id("main")
    page.keyboard.press("/")
    page.keyboard.type("switzer")
    browsers.expect(page.get_by_role("option").first).to_be_visible()
    page.keyboard.press("ArrowDown")
    box = page.get_by_role("combobox", name="Find an entity")
    chosen = page.locator(f"#{box.get_attribute('aria-activedescendant')}")
    assert chosen.get_attribute("aria-selected") == "true"
    assert "Switzerland" in chosen.inner_text()
    page.keyboard.press("Enter")
    settled(page, "Switzerland")
    browsers.expect(focused).to_have_id("main")
    page.keyboard.press("Tab")
    browsers.expect(focused).to_have_text("On the map")
    page.keyboard.press("Enter")
    settled(page, "Around Switzerland")


def test_names_that_are_code_stay_text(visit: Callable[..., Any]) -> None:
    bare = make_graph()
    graph = dataclasses.replace(
        bare,
        entities=Vocabulary([f"{SCRIPT}{i}" for i in range(12)], kind="entity"),
        relations=Vocabulary([f"<b>r{i}</b>" for i in range(3)], kind="relation"),
    )
    with Server(untrained(graph, ModelConfig("distmult", 6))) as server:
        page = visit("", server)
        settled(page, "Explore")
        page.locator(".chips a").first.click()
        settled(page, SCRIPT)
        page.locator("a", has_text="details").first.click()
        settled(page, "<b>r")
        page.get_by_role("button", name="Explain this fact").click()
        browsers.expect(page.get_by_text("Details", exact=True)).to_be_visible()
        for address in (
            "",
            "#view=browse",
            "#view=browse&relation=<b>r1</b>",
            f"#view=compare&first={SCRIPT}1&second={SCRIPT}2",
        ):
            page.goto(page.url.partition("#")[0] + address)
            browsers.expect(page.locator("main[aria-busy=false] h2")).to_be_visible()
            browsers.expect(page.locator(".problem")).to_have_count(0)
            assert page.locator("main script, main img, main b").count() == 0
        page.get_by_role("link", name="Map", exact=True).click()
        settled(page, "All entities")
        assert page.locator("main script, main img, main b, header script").count() == 0
        assert "owned" not in page.title().replace(SCRIPT, "")


# The start page ------------------------------------------------------------------------------------------------------


def test_the_start_page_shows_missing_facts_questions_and_a_picture(visit: Callable[..., Any]) -> None:
    page = visit()
    settled(page, "Explore atlas")
    assert page.locator(".lead").inner_text().count(".") == 2
    facts = page.locator(".probable li")
    browsers.expect(facts).to_have_count(8)
    for text in facts.all_inner_texts():
        assert re.search(r"\d %", text)
        assert "\n" in text.strip()  # the reason below
    page.get_by_role("button", name=re.compile("Show .* more")).click()
    assert facts.count() == 24
    assert page.locator("svg.map circle").count() == 400
    assert page.locator("svg.map path").count() == 600
    page.locator(".questions a").first.click()
    settled(page, "What is missing?")
    browsers.expect(page.locator("tbody tr").first).to_be_visible()
    page.get_by_role("link", name="harmonium").click()
    settled(page, "Explore atlas")
    page.get_by_role("link", name="Open the map").focus()
    page.keyboard.press("Enter")
    settled(page, "All entities")


# Pictures ------------------------------------------------------------------------------------------------------------


def test_the_picture_of_a_neighbourhood(visit: Callable[..., Any]) -> None:
    """Known facts are solid, predicted ones dashed; every entity and relation is a link that the keyboard reaches."""
    page = visit("#view=entity&name=Switzerland")
    settled(page, "Switzerland")
    browsers.expect(page.locator("#status")).to_have_text(re.compile("predicted facts of Switzerland"))
    picture = page.locator("svg.neighbourhood.wide")
    assert picture.is_visible()
    assert page.locator("svg.neighbourhood.narrow").is_hidden()
    known, predicted = picture.locator("circle.known"), picture.locator("circle.predicted")
    assert known.count() >= 10
    dashes = "all => all.map(e => getComputedStyle(e).strokeDasharray)"
    assert set(picture.locator(".lines path:not(.predicted)").evaluate_all(dashes)) == {"none"}
    assert "none" not in picture.locator(".lines path.predicted").evaluate_all(dashes)
    assert predicted.count() == picture.get_by_role("link", name=re.compile(": predicted")).count()
    colours = picture.locator("circle.known").evaluate_all("all => all.map(e => getComputedStyle(e).fill)")
    assert len(set(colours)) >= 4
    described = page.locator("figure details li").all_inner_texts()
    assert len(described) == known.count() + predicted.count()
    picture.get_by_role("link", name="Switzerland borders Austria: known").focus()
    page.keyboard.press("Enter")
    settled(page, "Austria")
    page.go_back()
    settled(page, "Switzerland")
    picture.get_by_role("link", name=re.compile("Guise of Switzerland: Switzerland official language")).click()
    settled(page, "Switzerland official language")
    page.set_viewport_size({"width": 360, "height": 740})
    page.go_back()
    settled(page, "Switzerland")
    assert picture.is_hidden()
    assert (
        page.locator("svg.neighbourhood.narrow")
        .get_by_role("link", name="Switzerland borders Austria: known")
        .is_visible()
    )


# Search, comparison, answers -----------------------------------------------------------------------------------------


def test_two_runs_side_by_side(visit: Callable[..., Any]) -> None:
    graphs = [make_graph(seed=seed) for seed in (0, 1)]
    runs = [
        untrained(dataclasses.replace(g, name=f"graph{i}"), ModelConfig("distmult", 6)) for i, g in enumerate(graphs)
    ]
    with Server(runs) as server:
        page = visit("", server)
        settled(page, "Explore graph0")
        page.get_by_label("Run", exact=True).select_option("graph1")
        settled(page, "Explore graph1")
        page.get_by_role("link", name="Ask").click()  # links keep the run
        page.get_by_role("combobox", name="Head").fill("e1")
        page.get_by_role("combobox", name="Relation").fill("r0")
        page.get_by_role("combobox", name="Relation").press("Tab")  # closes the suggestions
        page.get_by_label("all runs side by side").check()
        page.get_by_role("button", name="Ask").click()
        browsers.expect(page.locator("table").get_by_role("columnheader")).to_have_text(["answer", "graph0", "graph1"])
        assert "run=1" in page.url
        for number in (0, 1):
            answers = server.get("answers", head="e1", relation="r0", limit=20, run=number).json["answers"]
            best = answers[0]["tail"]["name"]
            row = page.locator("tbody tr", has=page.get_by_role("link", name=best, exact=True))
            assert "no. 1" in row.locator("td").nth(number + 1).inner_text()
        page.get_by_role("link", name="This run").click()
        settled(page, "graph1")
        page.get_by_role("link", name="graph0").click()
        settled(page, "graph0")


# Accessibility -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (360, "dark")])
def test_no_view_breaks_a_rule_of_axe(visit: Callable[..., Any], scheme: str, width: int) -> None:
    """Contrast, names, roles, keyboard: WCAG 2.2 A and AA and best practices, by axe-core."""
    axe = Axe()
    for address in VIEWS:
        page = visit(address, color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 800})
        browsers.expect(page.locator("main[aria-busy=false] h2, main [role=alert]").first).to_be_visible()
        browsers.expect(page.get_by_text("…", exact=False).and_(page.locator(".card p"))).to_have_count(0)
        for summary in page.locator("summary").all():
            summary.click()
        broken = axe.run(page).response["violations"]
        assert [(rule["id"], [node["html"] for node in rule["nodes"]][:3]) for rule in broken] == [], address
        assert page.evaluate("document.documentElement.scrollWidth") <= width, address
