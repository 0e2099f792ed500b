"""`harmonium demo`, once, from a shell: the whole way from the embedded graph to what was learned."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import harmonium

LANGUAGES = ("German", "French", "Italian")


class Demo(NamedTuple):
    folder: Path
    out: str
    err: str

    @property
    def words(self) -> str:
        return " ".join(self.out.split())


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    folder = tmp_path_factory.mktemp("demo") / "runs" / "demo"
    command = [sys.executable, "-m", "harmonium", "demo", "--out", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return Demo(folder, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def run(demo: Demo) -> harmonium.Run:
    return harmonium.Run.load(demo.folder)


def test_it_trains_in_under_two_minutes(demo: Demo, run: harmonium.Run) -> None:
    printed = re.search(r"trained ([\d.]+) s, best at epoch (\d+) of (\d+); (.*)", demo.out)
    assert printed is not None
    assert float(printed[1]) == pytest.approx(run.history.seconds, abs=0.06)
    assert run.history.seconds < 120
    assert int(printed[2]) == run.history.best_epoch > 5
    assert "training 100%" in demo.err


def test_it_beats_the_baseline_and_says_by_which_protocol(demo: Demo, run: harmonium.Run) -> None:
    model, baseline = run.metrics["metrics"]["mrr"], run.metrics["frequency_baseline"]["mrr"]
    assert model >= 1.5 * baseline
    assert model > 0.3
    assert re.search(rf"model .*\b{model:.3f}\b", demo.out)
    assert re.search(rf"frequency baseline .*\b{baseline:.3f}\b", demo.out)
    assert (
        "protocol: test heads and tails, filtered by train+valid+test, all entities are candidates, "
        "realistic ties, unseen entities keep" in demo.words
    )


def test_it_answers_two_questions_by_name(demo: Demo, run: harmonium.Run) -> None:
    for title, query in (
        ("(?, official language, German)", {"relation": "official language", "tail": "German"}),
        ("(North Macedonia, borders, ?)", {"head": "North Macedonia", "relation": "borders"}),
    ):
        assert title in demo.out
        answers = harmonium.predict(run, **query, top=8)
        printed = demo.words[demo.words.index(title) :]
        for answer in answers:
            assert f"{answer.rank} {answer.name} " in printed
        assert sum(answer.known is not None for answer in answers) >= 3


def test_it_shows_three_guises_in_which_tokens_differ(demo: Demo, run: harmonium.Run) -> None:
    differ = 0
    for language in LANGUAGES:
        title = f"Switzerland in (Switzerland, official language, {language})"
        assert title in demo.words
        found = harmonium.neighbours(run, "Switzerland", "official language", language)
        printed = demo.words[demo.words.index(title) :]
        for neighbour in (*found.composed, *found.token):
            assert f"{neighbour.name} {neighbour.distance:.3f}" in printed
        differ += {n.name for n in found.composed} != {n.name for n in found.token}
    assert differ >= 1


def test_it_leaves_a_figure(demo: Demo) -> None:
    figure = (demo.folder / "guises.png").read_bytes()
    assert figure.startswith(b"\x89PNG\r\n\x1a\n")
    assert len(figure) > 20_000
    assert f"figure: {demo.folder / 'guises.png'}\n" in demo.out


def test_it_leaves_a_complete_run_folder(demo: Demo, run: harmonium.Run) -> None:
    manifest = json.loads((demo.folder / "run.json").read_text(encoding="utf-8"))
    assert {file.name for file in demo.folder.iterdir()} == {
        *manifest["files"],
        "run.json",
        "calibration.json",
        "guises.png",
    }
    assert len(run.history.rows) >= run.history.best_epoch
    assert run.config.data == "atlas"
    assert repr(run.graph) == repr(harmonium.load("atlas"))


def test_evaluating_the_folder_gives_its_metrics_again(run: harmonium.Run) -> None:
    again = harmonium.evaluate(run).to_json()
    stored = {key: value for key, value in run.metrics.items() if key != "frequency_baseline"}
    assert json.loads(json.dumps(again)) == stored


def test_the_next_command_that_it_names_works(demo: Demo) -> None:
    line = demo.out.splitlines()[-1]
    assert line == f'next: harmonium predict {demo.folder} --head Switzerland --relation "official language"'
    answers = harmonium.predict(demo.folder, head="Switzerland", relation="official language", top=4)
    assert len({"German", "French", "Italian", "Romansh"} & {answer.name for answer in answers}) >= 2
