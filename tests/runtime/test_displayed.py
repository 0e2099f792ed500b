"""Every result shows itself: HTML in a notebook, text when printed, one short line as repr."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import polars as pl
import pytest

import harmonium
from harmonium.analysis.neighbours import guise_of
from harmonium.answers.open_run import open_run
from harmonium.data import graph as graphs
from harmonium.data.graph import Graph
from harmonium.data.vocabulary import Vocabulary
from harmonium.run.run import Run
from harmonium.runtime.displayed import Displayed
from harmonium.runtime.frames import ResultList, Tabular
from small import family

EVIL = '<script>alert("x")</script> & \x1b[31m'


@pytest.fixture(scope="module")
def run() -> Run:
    """Trained on names that would be markup, or control a terminal."""
    graph = family()
    entities = Vocabulary([f"{EVIL} {i}" for i in range(graph.n_entities)], kind="entity")
    relations = Vocabulary([f"{EVIL} next", "before", "twin"], kind="relation")
    train = graph.train[5:]  # so that something is missing
    graph = replace(graph, entities=entities, relations=relations, train=train, name=EVIL)
    return harmonium.train(graph, "paper", dim=8, epochs=3, batch_size=32)


Make = Callable[[Run], Any]
FACT = (f"{EVIL} 0", f"{EVIL} next", f"{EVIL} 1")
RESULTS: dict[str, Make] = {
    "graph": lambda run: run.graph,
    "run": lambda run: run,
    "answers": lambda run: run.predict(head=FACT[0], relation=FACT[1]),
    "answers to a table": lambda run: run.predict([(FACT[0], FACT[1], None)]),
    "missing facts": lambda run: run.complete(top=30),
    "missing facts of one": lambda run: run.predict(head=FACT[0]),
    "scored facts": lambda run: run.score([FACT] * 30),
    "no facts": lambda run: ResultList(title=run.graph.name),
    "evaluation": lambda run: run.evaluate(),
    "summary": lambda run: run.evaluation,
    "explanation": lambda run: run.explain(*FACT),
    "neighbourhood": lambda run: guise_of(open_run(run), run.graph.triple(*FACT)).neighbourhood(),
    "similar entities": lambda run: run.similar(FACT[0]),
    "similar in a role": lambda run: run.similar(*FACT),
    "diagnosis": lambda run: harmonium.doctor(run.graph),
    "diagnosis since": lambda run: harmonium.doctor(
        run.graph, since=replace(run.graph, train=run.graph.train[:50], valid=run.graph.test)
    ),
    "difference": lambda run: run.diff(replace(run, graph=replace(run.graph, train=run.graph.train[:50]))),
    "classification": lambda run: run.classify(),
    "plan": lambda run: harmonium.plan(run.graph, "paper", dim=4, epochs=1),
    "update": lambda run: run.update(add=pl.DataFrame({"head": ["new"], "relation": FACT[1], "tail": FACT[0]})).updates[
        -1
    ],
}


class Tags(HTMLParser):
    """The tags of a page, which must be closed in order, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += f" {data} "


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_shows_itself(run: Run, name: str) -> None:
    result = RESULTS[name](run)
    assert isinstance(result, Displayed)
    short = repr(result)
    assert len(short) < 300 and "\n" not in short and "\x1b" not in short
    html = result._repr_html_()
    page = Tags()
    page.feed(html)
    assert page.tags <= {"div", "table", "tr", "th", "td", "br", "b", "span"} and not page.open
    assert page.text.strip() and "<script" not in html and "\x1b" not in html
    text = str(result)
    assert text and "\x1b" not in text
    words = set(re.findall(r"[a-z]{4,}", text.replace("\n", " ")))
    assert len(words - set(re.findall(r"[a-z]{4,}", page.text))) <= 0.2 * len(words)  # lines are broken elsewhere


def test_every_result_declares_what_it_shows() -> None:
    for module in pkgutil.walk_packages(harmonium.__path__, "harmonium."):
        if not module.name.endswith("__main__") and ".serve" not in module.name and "triton" not in module.name:
            importlib.import_module(module.name)
    kinds = _subclasses(Displayed)
    assert len(kinds) > 15
    assert not [kind.__name__ for kind in kinds - {Tabular} if kind.display is Displayed.display]


def _subclasses(kind: type) -> set[type]:
    return {each for sub in kind.__subclasses__() for each in ({sub} | _subclasses(sub))}


def test_a_long_table_says_how_much_is_left_out(run: Run) -> None:
    scored = run.score([FACT] * 30)
    assert "10 more rows; to_pandas()" in scored._repr_html_()
    assert scored._repr_html_().count("<tr>") == 21
    assert "10 more rows" in str(scored)


def test_a_large_graph_is_shown_by_its_size_alone(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "LARGE_GRAPH", 3)
    monkeypatch.setattr(Graph, "categories", None)
    assert "40 entities" in run.graph._repr_html_()
