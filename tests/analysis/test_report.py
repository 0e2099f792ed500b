"""The HTML report: complete, self-contained, safe with any name, and able to be printed."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from markupsafe import Markup

import harmonium
from harmonium.analysis import figures
from harmonium.analysis import report as html_report
from harmonium.analysis.figures import ranks_figure, spectrum_figure, training_figure
from harmonium.analysis.page import write_page
from harmonium.analysis.report import choose_examples, render
from harmonium.answers.calibration.hidden_facts import HiddenBand, HiddenFacts, find_hidden
from harmonium.config.settings import Config, ModelConfig
from harmonium.data.graph import Graph, Note
from harmonium.data.triples import Triples
from harmonium.data.vocabulary import Vocabulary
from harmonium.errors import HarmoniumError
from harmonium.evaluation.metrics import Ranks
from harmonium.model.build import build_model
from harmonium.model.harmony import Harmony
from harmonium.paper import figures as paper_figures
from harmonium.paper.dynamics import dynamics
from harmonium.paper.figures import dynamics_figure, gain_figure
from harmonium.paper.gain import gain
from harmonium.run.run import History, Run
from html_page import Page, count_printed_sheets, needs_chromium
from kills import largest_file
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


def test_it_can_be_read_without_seeing_it(text: str) -> None:
    page = Page(text)
    assert page.tags.count("h1") == 1
    assert page.tags.count("svg") == page.tags.count("figure") == page.all("role").count("img") == 5
    assert all(page.all("aria-label"))
    assert page.tags.count("table") == page.tags.count("caption") == page.tags.count("thead")
    assert page.tags.count("th") == len(page.all("scope"))


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


def test_it_shows_the_log_of_updates(run: Run, text: str, without_figures: None) -> None:
    assert "Updates since the training" not in Page(text).words
    updated = run.update(
        remove=[("person 1", "next", "person 5")],
        add=[("<b>", "next", "person 1")],
        command="harmonium update <script>",
    )
    words, made = Page(render(updated, 100, 0)).words, updated.updates[0].record.made
    assert (
        f"{made} 1 added, 1 recorded as false, 1 new entity {run.metrics['mrr']:.3f} harmonium update <script>" in words
    )
    assert "Updates since the training; 1 facts are recorded as false" in words


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


def test_an_example_has_tails_that_many_share_but_not_most() -> None:
    rows = [[h, 0, 9] for h in range(8)]  # all share tail 9: nothing to tell apart
    rows += [[h, 0, 10] for h in (0, 1, 2, 3)] + [[h, 0, 11] for h in (3, 4, 5)] + [[3, 0, 12], [0, 0, 12], [7, 0, 13]]
    graph = replace(make_graph(14, 1, (1, 0, 0)), train=Triples.from_rows(rows))
    assert [triple.to_rows().tolist()[0] for triple in choose_examples(graph)] == [[3, 0, 10], [3, 0, 11], [3, 0, 12]]
    dull = replace(graph, train=Triples.from_rows(rows[:2]))
    assert [triple.to_rows().tolist()[0] for triple in choose_examples(dull)] == [[0, 0, 9]]


# Figures -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., list[Any]]:
    """Draw a figure and give back its axes."""
    kept, make = [], figures.new_figure
    for module in (figures, paper_figures):
        monkeypatch.setattr(module, "new_figure", lambda *size: kept.append(make(*size)) or kept[-1])

    def draw(how: Callable[..., Path], *about: Any) -> list[Any]:
        assert how(*about, tmp_path / "figure.svg").stat().st_size > 1000
        return kept[-1].axes

    return draw


def test_ranks_are_shared_out_whole(drawn) -> None:
    better = torch.tensor([0, 0, 1, 2, 5, 40, 99])
    zero = torch.zeros_like(better)
    ranks = Ranks(better, zero, zero + 100, zero, zero.bool())
    spread, share = drawn(ranks_figure, {"model": ranks, "frequency baseline": ranks[:1]}, "realistic")
    heights = [bar.get_height() for bar in spread.containers[0]]
    assert heights == pytest.approx([2 / 7, 2 / 7, 1 / 7, 0, 0, 1 / 7, 1 / 7])
    steps = dict(zip(*share.lines[0].get_data(), strict=True))
    assert steps[3.0] == pytest.approx(4 / 7)
    assert steps[100.0] == pytest.approx(1)


def test_training_shows_the_model_that_was_kept(drawn) -> None:
    rows = [{"epoch": e, "loss": 3.0 / e, "seconds": 1.0} for e in (1, 2, 3)]
    rows[1]["valid"] = {"mrr": 0.5}
    loss, metric = drawn(training_figure, History(rows, best_epoch=2), "mrr")
    assert list(loss.lines[0].get_ydata()) == [3.0, 1.5, 1.0]
    assert list(metric.lines[0].get_ydata()) == [0.5]
    assert [text.get_text() for axes in (loss, metric) for text in axes.texts] == ["kept: 1.500", "kept: 0.500"]
    assert len(drawn(training_figure, History([rows[0]], best_epoch=1), "mrr")) == 1


@pytest.mark.parametrize("rank", [None, 3])
def test_the_spectrum_is_of_w_and_of_what_scores(drawn, rank: int | None) -> None:
    harmony = Harmony(6, 2.0, rank=rank).double()
    with torch.no_grad():
        harmony.free.normal_(generator=torch.Generator().manual_seed(0))
        if rank:
            harmony.basis.normal_(generator=torch.Generator().manual_seed(1))  # not orthogonal
        shown = [torch.tensor(axes.lines[0].get_ydata()) for axes in drawn(spectrum_figure, harmony)]
        expected = torch.linalg.eigvalsh(harmony.matrix())
        expected = expected[expected.abs() > 1e-9].flip(0)
    assert len(expected) == (rank or 6)
    torch.testing.assert_close(shown[0], expected, atol=1e-12, rtol=0)
    torch.testing.assert_close(shown[1], expected / (2 - expected), atol=1e-12, rtol=0)  # w / (2 (1 - w / 2))


def test_legends_hide_nothing(drawn, run: Run) -> None:
    """Each is inside the figure and outside of all axes, and covers no label of theirs."""
    rank = torch.tensor([0, 0, 1, 2, 5, 40, 99])
    zero = torch.zeros_like(rank)
    ranks = Ranks(rank, zero, zero + 100, zero, zero.bool())
    gains, bands = gain(run), [HiddenBand(0.5, 40, 30.0, 28.0), HiddenBand(0.0, 9, 1.0, 0.0)]
    for draw, *about in (
        (gain_figure, gains),
        (dynamics_figure, dynamics(run, "person 7", "next", "person 8")),
        (figures.calibration_figure, HiddenFacts("family", 60, bands, [])),
        (figures.classification_figure, harmonium.classify(run)),
        (ranks_figure, {"model": ranks, "frequency baseline": ranks}, "realistic"),
    ):
        panels = drawn(draw, *about)
        figure = panels[0].figure
        figure.draw_without_rendering()  # measures in the pixels of the figure, not of the file
        legends = [*figure.legends, *(axes.get_legend() for axes in panels if axes.get_legend())]
        assert legends, draw.__name__
        for legend in legends:
            box = legend.get_window_extent()
            assert -2 < box.x0 < box.x1 < figure.bbox.x1 + 2  # pixels
            assert -2 < box.y0 < box.y1 < figure.bbox.y1 + 2
            for axes in panels:
                labels = [axes.title, axes.xaxis.label, axes.yaxis.label, *axes.get_xticklabels()]
                others = {label.get_text(): label.get_window_extent() for label in labels if label.get_text()}
                others["axes"] = axes.get_window_extent()
                assert [name for name, other in others.items() if box.overlaps(other)] == [], draw.__name__


@pytest.mark.browser
@needs_chromium
def test_a_browser_prints_it(run: Run, text: str, tmp_path: Path) -> None:
    assert run.path is not None
    assert 3 <= count_printed_sheets(run.path / "report.html", tmp_path) <= 15


@pytest.mark.parametrize("content", [b"<html>my page</html>", b"", b"\x00\xff"])
def test_a_page_that_is_no_report_is_not_replaced(run: Run, tmp_path: Path, content: bytes) -> None:
    page = tmp_path / "page.html"
    page.write_bytes(content)
    with pytest.raises(HarmoniumError, match="page.html: .*will not be replaced"):
        harmonium.report(run, page)
    assert page.read_bytes() == content


@pytest.mark.parametrize("name", ["report.html", "figure.png", "figure.svg", "figure.pdf"])
def test_a_full_disk_is_an_error_and_the_earlier_file_stays(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("earlier")
    history = History([{"epoch": 1, "loss": 1.0, "seconds": 1.0}])
    figures.training_figure(history, "mrr", tmp_path / "other.png")  # matplotlib writes caches once
    with largest_file(1), pytest.raises(HarmoniumError, match=f"{name}: cannot be written .*File too large"):
        if path.suffix == ".html":
            write_page(path, "a page")
        else:
            figures.training_figure(history, "mrr", path)
    assert path.read_text() == "earlier"
    assert {each.name for each in tmp_path.iterdir()} == {name, "other.png"}
