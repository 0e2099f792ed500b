"""The HTML report: complete, self-contained, safe with any name, and able to be printed."""

from __future__ import annotations

import json
import re
import resource
import shlex
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from markupsafe import Markup

import harmonium
from harmonium.analysis import report as html_report
from harmonium.analysis.report import render
from harmonium.answers.audit.audit import METHOD, Suspects
from harmonium.answers.calibration.hidden_facts import find_hidden
from harmonium.config.settings import Config, ModelConfig
from harmonium.data.graph import Graph, Note
from harmonium.data.triples import Triples
from harmonium.data.vocabulary import Vocabulary
from harmonium.errors import HarmoniumError
from harmonium.model.build import build_model
from harmonium.run.run import History, Run
from html_page import Page
from small import family, make_graph

FAST = ["model.entity_dim=8", "model.rank=4", "train.epochs=3", "train.negatives=8", "train.batch_size=64"]


def trained(graph: Graph, *overrides: str, out: Path | None = None) -> Run:
    return harmonium.train(graph, "paper", overrides=[*FAST, *overrides], out=out)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    settings = "train.evaluate_every=10", "train.epochs=30", "train.learning_rate=0.05"  # enough for probabilities
    return trained(family(), *settings, out=tmp_path_factory.mktemp("runs") / "family")


@pytest.fixture(scope="module")
def text(run: Run) -> str:
    return harmonium.report(run).read_text(encoding="utf-8")


@pytest.fixture
def without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw nothing where only words matter: figures take most of the time."""
    monkeypatch.setattr(html_report, "inline_svg", lambda key, draw, *arguments: Markup("<svg></svg>"))


def test_the_page_is_whole_and_asks_for_nothing(text: str) -> None:
    page = Page(text)
    assert len(text) < 1_500_000
    assert not {"script", "link", "iframe", "object"} & set(page.tags)
    assert all(href.startswith(("#", "data:")) for name in ("href", "xlink:href", "src") for href in page.all(name))
    assert not re.search(r"url\((?!#)|@import", text)
    assert "default-src 'none'" in text
    ids = page.all("id")
    assert len(ids) == len(set(ids))
    used = re.findall(r'(?:href="|url\()#([^")]+)', text) + page.all("aria-labelledby")
    assert set(used) <= set(ids)


def test_it_shows_what_the_run_reached(run: Run, text: str) -> None:
    words = Page(text).words
    metrics, baseline = run.metrics, run.evaluation.baselines["frequency"]
    assert f"Mean reciprocal rank {metrics['mrr']:.3f} baseline {baseline['mrr']:.3f}" in words
    assert f"Mean rank, lower is better {metrics['mr']:,.1f} baseline {baseline['mr']:,.1f}" in words
    assert "protocol: test heads and tails, filtered by train+valid+test, all entities are candidates" in words
    for name, row in run.evaluation.by_relation.items():
        assert f"{name} {row['queries']} {row['mr']:,.1f} {row['mrr']:.3f} {row['hits@1']:.3f}" in words
    assert "The doctor's verdict: " in words
    for name, record in json.loads((run.path / "run.json").read_bytes())["files"].items():
        assert f"{name} {record['sha256']}" in words


def test_it_lists_the_missing_facts_that_complete_gives_and_judges_their_probabilities() -> None:
    graph, config = make_graph(20, 3, (200, 60, 60)), Config(model=ModelConfig("distmult", 8))
    run = Run(config, graph, build_model(config.model, 20, 3), History([{"epoch": 1, "loss": 1.0, "seconds": 1.0}], 1))
    words, hidden = Page(render(run, 100, 0)).words, find_hidden(run)
    for fact in harmonium.complete(run)[:20]:
        name = f"{fact.head} · {fact.relation} · {fact.tail}"
        assert f"{fact.probability:.1%} {name} {fact.reason}" in words
    assert "harmonium complete RUN --top 1000" in words
    assert f"With the 60 test facts hidden from it, complete lists {hidden.listed} facts" in words
    for band in hidden.bands:
        assert f"{band.facts} {band.expected:,.0f} {band.in_test}" in words


def test_facts_to_check_are_listed_once_the_graph_was_audited(
    run: Run, text: str, without_figures: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "the graph was not audited" in text
    fact = run.graph.train[:1]
    found = Suspects(METHOD, 120, 0.05, 0.02, 0.1, fact.to_rows().tolist(), [2.0], [[]])
    monkeypatch.setattr(html_report, "kept_suspects", lambda opened: found)
    page = Page(render(run, 100, 0))
    assert "about 6 of 120 facts are wrong (95 %: 2 to 12)" in page.words
    assert "88.1%" in page.words and " · ".join(run.graph.names_of(fact)[0]) in page.words


def test_it_says_what_is_wrong_with_the_data_and_what_to_do(run: Run, text: str) -> None:
    words = Page(text).words
    findings = harmonium.doctor(run.graph).findings
    problems = [finding for finding in findings if finding.level != "ok"]
    assert problems
    for finding in problems:
        assert f"{finding.name} {finding.level} {finding.sentence} {finding.advice}" in words
    for finding in findings:
        assert f"{finding.name} {finding.level} {finding.text}" in words


def command_lines(text: str) -> list[list[str]]:
    found = re.findall(r"<code>(harmonium .*?)</code>", text)
    return [shlex.split(line.replace("&#39;", "'").replace("&#34;", '"').replace("&amp;", "&")) for line in found]


def test_its_commands_make_the_run_and_its_numbers_again(run: Run, text: str, without_figures: None) -> None:
    assert ["harmonium", "evaluate", str(run.path)] in command_lines(text)  # the default protocol
    run = replace(run, evaluation=replace(run.evaluation, protocol=replace(run.evaluation.protocol, ties="optimistic")))
    lines = command_lines(render(run, 100, 3))
    (train,) = [line for line in lines if line[1] == "train"]
    overrides = [train[i + 1] for i, part in enumerate(train) if part == "--set"]
    assert Config.read(None, [*overrides, "data=family"]) == run.config
    assert train[-2:] == ["--out", str(run.path)]
    expected = {"evaluate": "--ties=optimistic", "classify": "--seed 3"}
    for command, options in expected.items():
        assert ["harmonium", command, str(run.path), *options.split()] in lines


def test_names_cannot_do_anything() -> None:
    names = ["<script>alert(1)</script>", '"><img src=x onerror=alert(2)>', "$x_ $ & {{ 7 * 7 }}", "-->]]>", "漢字"]
    graph = make_graph(n_entities=8, sizes=(60, 12, 12))
    entities = Vocabulary([*names, "e5", "e6", "</style>"], kind="entity")
    relations = Vocabulary(["<b onclick='x'>", "</td>", "r & s"], kind="relation")
    graph = replace(graph, entities=entities, relations=relations, name="<i>graph</i>", notes=(Note("<u>note</u>"),))
    page = Page(render(trained(graph), 100, 0, fact=(names[0], "</td>", names[2])))
    assert not {"script", "img", "b", "i", "u"} & set(page.tags)
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    for name in (names[0], names[2], "<b onclick='x'>", "</td>", "r & s", "<i>graph</i>", "<u>note</u>"):
        assert name in page.words
    assert f"The guises of {names[0]}: " in page.words  # in the figure too


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, "plain hole has no harmony"),
        ({"test": True}, "the test split of 'family' has no triples"),
        ({"valid": True, "test": True}, "there are no metrics"),
    ],
)
def test_what_a_run_does_not_have_is_left_out(change: dict[str, bool], reason: str, without_figures: None) -> None:
    graph = replace(family(), **{split: Triples.from_rows([]) for split in change})
    overrides = [] if change else ["model.harmony=false", "model.rank=none"]
    words = Page(render(trained(graph, *overrides), 100, 0)).words
    assert reason in words
    assert ("protocol: valid heads" in words) == (list(change) == ["test"])
    assert ("By relation" in words) == (len(change) < 2)


def test_a_report_must_have_a_place(run: Run, tmp_path: Path) -> None:
    with pytest.raises(HarmoniumError, match=r"out=FILE.html"):
        harmonium.report(replace(run, path=None))
    (tmp_path / "file").touch()
    for name, message in (("x.pdf", "x.pdf: a report ends in .html"), ("file/x.html", "cannot be written")):
        with pytest.raises(HarmoniumError, match=message):
            harmonium.report(run, tmp_path / name)


# Figures -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"<html>my page</html>", b"", b"\x00\xff"])
def test_a_page_that_is_no_report_is_not_replaced(run: Run, tmp_path: Path, content: bytes) -> None:
    page = tmp_path / "page.html"
    page.write_bytes(content)
    with pytest.raises(HarmoniumError, match="page.html: .*will not be replaced"):
        harmonium.report(run, page)
    assert page.read_bytes() == content


def test_a_report_that_cannot_be_written_is_named(run: Run, tmp_path: Path) -> None:
    """Under a limit on the size of files: drawing figures writes no other file, which an error would name instead."""
    path, limits = tmp_path / "report.html", resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(HarmoniumError, match=re.escape(str(path))):
            harmonium.report(run, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
