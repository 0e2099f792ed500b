"""Review in a real Chromium: by the keyboard alone, two reviewers at once, names and comments that are code."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright import sync_api as browsers

from harmonium.data.vocabulary import Vocabulary
from harmonium.review.store import load_judgements
from harmonium.run.run import Run
from harmonium.server.server import ReviewOptions
from html_page import needs_chromium
from serving import Server
from small import CONFIGS, make_graph, save_untrained

pytestmark = [pytest.mark.browser, pytest.mark.slow, needs_chromium]
SCRIPT = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """Entities and relations of the graph have names that are code."""
    bare = make_graph(n_entities=30, sizes=(150, 40, 10))
    entities = Vocabulary([f"e{i}" for i in range(30)], [f"{SCRIPT}{i}" for i in range(30)], "entity")
    relations = Vocabulary(["r0", "r1", "r2"], [f"<b>r{i}</b>" for i in range(3)], "relation")
    graph = dataclasses.replace(bare, entities=entities, relations=relations)
    run = Run.load(save_untrained(graph, CONFIGS["plain"], tmp_path / "demo"))
    options = ReviewOptions(["Ana", f"Ben {SCRIPT[:40]}"], tmp_path / "judged.sqlite", top=20)
    with Server(run, review=options) as started:
        yield started


@pytest.fixture
def visit(browser: Any, server: Server) -> Iterator[Callable[..., Any]]:
    """Opens the page of a reviewer; at the end no script may have failed."""
    pages, faults = [], []

    def open_page(reviewer: str | None = "Ana", view: str = "review", **options: Any) -> Any:
        page = browser.new_context(viewport={"width": 1200, "height": 850}, **options).new_page()
        page.set_default_timeout(30_000)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda message: "Content Security" in message.text and faults.append(message.text))
        token = next(
            (token for name, token in server.app.issued.items() if reviewer and name.startswith(reviewer)), None
        )
        fragment = f"#token={token}&view={view}" if token else f"#view={view}"
        page.goto(f"http://127.0.0.1:{server.port}/{fragment}")
        pages.append(page)
        return page

    yield open_page
    for page in pages:
        page.context.close()
    assert faults == []


def judge_by_key(page: Any, key: str) -> str:
    """Press a key, and wait for the next fact; returns the one that was judged."""
    fact = page.locator(".judged-fact")
    before = fact.inner_text()
    page.keyboard.press(key)
    browsers.expect(fact).not_to_have_text(before)
    return str(before)


def kept(server: Server) -> list[tuple[str, str, str]]:
    path = server.app.app.state.review.review.store.path
    return [(each.reviewer, each.verdict, each.comment) for each in load_judgements(path)]


def broken_rules(page: Any) -> list[tuple[str, list[str]]]:
    """What axe finds."""
    broken = Axe().run(page).response["violations"]
    return [(rule["id"], [node["html"] for node in rule["nodes"]][:3]) for rule in broken]


def test_a_review_by_the_keyboard_alone(visit: Callable[..., Any], server: Server) -> None:
    page = visit()
    browsers.expect(page.locator(".judged-fact")).to_be_visible()
    assert "token" not in page.url and "view=review" in page.url
    first = judge_by_key(page, "a")
    browsers.expect(page.locator("#status")).to_have_text(re.compile("^accepted: .*Next: "))
    second = judge_by_key(page, "r")
    third = judge_by_key(page, "u")
    assert len({first, second, third}) == 3
    page.keyboard.press("c")
    browsers.expect(page.get_by_role("textbox", name="Comment")).to_be_focused()
    page.keyboard.type("a rare case: u, z and r are letters here")
    assert len(kept(server)) == 3  # letters of a comment judge nothing
    page.keyboard.press("Enter")
    fourth = judge_by_key(page, "r")
    assert kept(server)[3:] == [("Ana", "rejected", "a rare case: u, z and r are letters here")]
    page.keyboard.press("z")
    browsers.expect(page.locator(".judged-fact")).to_have_text(fourth)
    browsers.expect(page.get_by_role("textbox", name="Comment")).to_have_value(
        "a rare case: u, z and r are letters here"
    )
    browsers.expect(page.locator("main")).to_contain_text("1 fact accepted, 1 rejected, 1 unsure, 0 disputed")
    page.keyboard.press("e")
    browsers.expect(page.get_by_text("Details", exact=True)).to_be_visible()
    page.keyboard.press("Control+a")
    page.get_by_label(re.compile("^Keys:")).uncheck()
    page.locator(".judged-fact").focus()
    page.keyboard.press("a")
    page.wait_for_timeout(500)
    assert [verdict for _, verdict, _ in kept(server)] == ["accepted", "rejected", "unsure"]
    page.get_by_role("link", name="Ask").click()
    browsers.expect(page.get_by_role("heading", name="What is missing?")).to_be_visible()
    page.locator("h2").click()
    page.keyboard.press("a")
    page.wait_for_timeout(500)
    assert len(kept(server)) == 3  # keys judge nothing on other pages


def test_the_model_is_updated_with_the_judgements_and_opened_for_everyone(
    visit: Callable[..., Any], server: Server, tmp_path: Path
) -> None:
    ana, ben = visit("Ana"), visit("Ben")
    for page in (ana, ben):
        browsers.expect(page.locator(".judged-fact")).to_be_visible()
    card = ana.locator(".card", has=ana.get_by_role("heading", name="Update the model"))
    browsers.expect(card).to_contain_text("reflects all judgements")
    judge_by_key(ana, "a")
    rejected = judge_by_key(ana, "r")
    browsers.expect(card).to_contain_text("1 to add, 1 to record as false")
    form = ana.locator("details", has=ana.get_by_text("Add or remove a fact yourself"))
    form.locator("summary").click()
    for label, name in (("Head", "Zoë <b>"), ("Relation", "r0"), ("Tail", "e1")):
        form.get_by_label(label, exact=True).fill(name)
    form.get_by_role("button", name="Add").click()
    browsers.expect(form.get_by_role("alert")).to_contain_text("no entity named 'Zoë <b>'")
    form.get_by_label("names may be new").check()
    form.get_by_role("button", name="Add").click()
    browsers.expect(form).to_contain_text("Your judgement is kept: add Zoë <b>")
    card.get_by_role("button", name="Update the model with 3 judgements").click()
    card.get_by_role("button", name="Open demo.update-1").click()
    browsers.expect(ana.locator("#run-name")).to_have_text("demo.update-1")
    browsers.expect(card).to_contain_text("reflects all judgements")
    updated = Run.load(tmp_path / "demo.update-1")
    assert "Zoë <b>" in updated.graph.entities and len(updated.rejected) == 1
    assert ana.locator(".judged-fact").inner_text() != rejected
    ben.keyboard.press("a")  # of the run before: kept, and the page learns of the other run
    ben.get_by_role("button", name="Go on with it").click()
    browsers.expect(ben.locator("#run-name")).to_have_text("demo.update-1")
    browsers.expect(ben.locator(".judged-fact")).to_be_visible()
    ana.get_by_role("link", name="This run").click()
    browsers.expect(ana.locator("main")).to_contain_text("2 added, 1 recorded as false, 1 new entity")
    browsers.expect(ana.locator("main")).to_contain_text("harmonium update demo --judgements judged.sqlite")
    assert str(tmp_path) not in ana.content()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_the_page_breaks_no_rule_of_axe_and_fits_a_phone(visit: Callable[..., Any], scheme: str, width: int) -> None:
    page = visit("Ana", color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 800})
    browsers.expect(page.locator(".judged-fact")).to_be_visible()
    judge_by_key(page, "a")
    judge_by_key(page, "r")
    browsers.expect(page.locator("svg.reliability")).to_have_count(1)
    browsers.expect(page.get_by_text("…", exact=False).and_(page.locator(".card p"))).to_have_count(0)
    for summary in page.locator("summary").all():
        summary.click()
    page.get_by_role("button", name="Remove", exact=True).click()  # nothing is filled in: an error in the form
    browsers.expect(page.get_by_role("alert")).to_contain_text("Fill head, relation and tail")
    assert broken_rules(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.get_by_role("button", name=re.compile("^Update the model")).click()
    browsers.expect(page.get_by_role("button", name="Open demo.update-1")).to_be_visible(timeout=90_000)
    assert broken_rules(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
