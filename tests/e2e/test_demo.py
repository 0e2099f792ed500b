"""`harmonium demo` from a shell: from the embedded graph to what was learned."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import harmonium
from command_line import Result, shell
from harmonium.cli.demo import MISSING, ROLES, TABLEAU
from harmonium.data.triples import Slot

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo") / "runs" / "demo"


@pytest.fixture(scope="module")
def demo(folder: Path) -> Result:
    result = shell("demo", "--out", folder, timeout=500)
    assert result.code == 0, result.err
    return result


@pytest.fixture(scope="module")
def run(demo: Result, folder: Path) -> harmonium.Run:
    return harmonium.Run.load(folder)


def test_the_model_beats_the_baseline_and_prints_its_protocol(demo: Result, run: harmonium.Run) -> None:
    model, baseline = run.metrics["mrr"], run.evaluation.baselines["frequency"]["mrr"]
    assert model >= 3 * baseline
    assert model > 0.66
    assert re.search(rf"model .*\b{model:.3f}\b", demo.out)
    assert re.search(rf"frequency baseline .*\b{baseline:.3f}\b", demo.out)
    vectors = float(re.search(r"vectors alone +[\d.]+ +([\d.]+)", demo.out)[1])
    assert vectors + 0.05 < model
    assert f"protocol: {run.evaluation.describe()}" in demo.words
    assert "training 100%" in demo.err


def test_the_docs_show_what_it_prints(run: harmonium.Run) -> None:
    """The numbers of the docs come from results/demo.json; a processor that multiplies bfloat16 rounds otherwise."""
    file = Path(__file__).parents[2] / "results" / "demo.json"
    recorded = json.loads(file.read_text(encoding="utf-8"))
    for name in ("mrr", "hits@1", "hits@10"):
        assert abs(recorded["metrics"][name] - run.metrics[name]) < 0.02
    assert f"{recorded['metrics']['mrr']:.3f}" in recorded["printed"]["demo"]


@pytest.mark.parametrize("language", ROLES)
def test_it_shows_guises_that_differ(demo: Result, run: harmonium.Run, language: str) -> None:
    alike = harmonium.similar(run, "Switzerland", "official language", language, top=5)
    printed = demo.words[demo.words.index(alike.title) :]
    names = [one.name for one in alike]
    assert all(name in printed for name in names)
    others = [harmonium.similar(run, "Switzerland", "official language", other, top=5) for other in ROLES]
    assert sum([one.name for one in other] == names for other in others) == 1


def test_it_weighs_one_answer_against_others(demo: Result) -> None:
    head, relation, tail = TABLEAU
    printed = demo.out[demo.out.index(f"({head}, {relation}, ?)") :]
    assert f"> {tail}" in printed and "the harmony of a candidate" in demo.words


def test_it_shows_missing_facts_with_reasons(demo: Result, run: harmonium.Run) -> None:
    facts = harmonium.complete(run, top=MISSING)
    printed = demo.words[demo.words.index("The most probable facts that atlas lacks") :]
    assert len(facts) == MISSING
    assert all(fact.reason in printed and fact.tail in printed for fact in facts)
    stated = [fact.probability for fact in facts]
    assert stated == sorted(stated, reverse=True) and 0 < stated[-1] < stated[0] < 1


def test_it_leaves_a_complete_run_folder_and_a_figure(demo: Result, run: harmonium.Run, folder: Path) -> None:
    manifest = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    assert "fact_calibration.json" in manifest["files"]
    assert {file.name for file in folder.iterdir()} == {*manifest["files"], "run.json", "guises.png"}
    figure = (folder / "guises.png").read_bytes()
    assert figure.startswith(b"\x89PNG\r\n\x1a\n") and len(figure) > 20_000
    assert (run.config.data, repr(run.graph)) == ("atlas", repr(harmonium.load("atlas")))
    assert len(run.history.rows) >= run.history.best_epoch > 5


def test_the_next_command_that_it_names_works(demo: Result, folder: Path) -> None:
    line = demo.out.splitlines()[-1]
    assert line == f"next: harmonium complete {folder} --only-empty"
    facts = harmonium.complete(folder, only_empty=True, top=20)
    known = harmonium.load("atlas").known_answers(Slot.TAIL)
    graph = harmonium.load("atlas")
    for fact in facts:
        triple = graph.triple(fact.head, fact.relation, fact.tail)
        assert not len(known.of(triple)[1])
