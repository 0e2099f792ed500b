"""From a file of facts to a run: trained, used again while the facts stay the same, or an error that says what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import harmonium
from harmonium.answers import open_or_train as module
from harmonium.answers.open_or_train import open_or_train
from harmonium.config.settings import Config
from harmonium.data.graph import Graph
from harmonium.errors import HarmoniumError
from harmonium.run.run import Run
from small import make_run, untrained

FACTS = [(f"a{i}", "r", f"a{(i * i + 1) % 12}") for i in range(12)] + [(f"a{i}", "q", f"b{i % 4}") for i in range(12)]


def write(file: Path, facts: list[tuple[str, str, str]]) -> Path:
    file.write_text("head,relation,tail\n" + "".join(",".join(fact) + "\n" for fact in facts))
    return file


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[dict[str, Any]]:
    """The arguments of `train`, which saves a model as it is initialised."""
    monkeypatch.chdir(tmp_path)
    calls: list[dict[str, Any]] = []

    def train(data: Graph, config: Any = None, out: Path | None = None, **arguments: Any) -> Run:
        calls.append({"data": data, "config": config, "out": out, **arguments})
        run = make_run(data, untrained(data, Config().model))
        if out is None:
            return run
        run.save(out, overwrite=arguments["overwrite"])
        return Run.load(out)

    monkeypatch.setattr(module, "train", train)
    return calls


def test_a_file_is_trained_on_once(trained: list[dict[str, Any]], tmp_path: Path) -> None:
    file = write(tmp_path / "facts.csv", [*FACTS, ("", "r", "b")])
    first = open_or_train("facts.csv", preset="fast", minutes=2)
    assert (trained[0]["out"], trained[0]["config"], trained[0]["minutes"]) == (Path("runs/facts"), "fast", 2)
    assert trained[0]["data"].notes[0].kind == "skipped rows"
    assert open_or_train(file).fingerprint == first.fingerprint
    assert open_or_train("runs/facts").fingerprint == first.fingerprint
    assert open_or_train(first) is first
    assert len(trained) == 1


def test_other_facts_are_not_confused_with_it(trained: list[dict[str, Any]], tmp_path: Path) -> None:
    write(tmp_path / "facts.csv", FACTS)
    open_or_train("facts.csv")
    for changed in (
        FACTS[:-1],
        [*FACTS[:-1], ("a11", "q", "b0")],
        [("x", *fact[1:]) if fact[0] == "a3" else fact for fact in FACTS],
    ):
        write(tmp_path / "facts.csv", changed)
        with pytest.raises(HarmoniumError, match="runs/facts is a run on other facts .*--overwrite .*--run OTHER"):
            open_or_train("facts.csv")
    open_or_train("facts.csv", folder="runs/other")
    open_or_train("facts.csv", overwrite=True)
    assert [call["out"] for call in trained] == [Path("runs/facts"), "runs/other", Path("runs/facts")]
    open_or_train("facts.csv")
    with pytest.raises(HarmoniumError, match="runs/facts is a run on these facts already"):
        open_or_train("facts.csv", minutes=3)
    assert len(trained) == 3


def test_a_folder_that_is_no_run_is_left_alone(trained: list[dict[str, Any]], tmp_path: Path) -> None:
    write(tmp_path / "facts.csv", FACTS)
    (tmp_path / "runs" / "facts").mkdir(parents=True)
    (tmp_path / "runs" / "facts" / "mine.txt").write_text("")
    with pytest.raises(HarmoniumError, match="runs/facts exists and is no run folder"):
        open_or_train("facts.csv")
    assert not trained


def test_values_in_memory_are_trained_on_without_a_folder(trained: list[dict[str, Any]]) -> None:
    frame = pl.DataFrame([*FACTS, ("a", None, "b")], schema=["s", "p", "o"], orient="row")
    run = open_or_train(frame)
    assert (trained[0]["out"], run.path) == (None, None)
    assert len(harmonium.complete(run.graph, top=3)) == 3
    assert len(trained) == 2


def test_reading_options_reach_the_reader(trained: list[dict[str, Any]], tmp_path: Path) -> None:
    (tmp_path / "facts.csv").write_text("".join(f"{t}|1|{h}|{r}\n" for h, r, t in FACTS))
    run = open_or_train("facts.csv", columns="3,4,1", separator="|")
    assert set(run.graph.names_of(run.graph.facts())) == set(FACTS)
    with pytest.raises(HarmoniumError, match="unknown keyword 'seperator'; did you mean 'separator'"):
        open_or_train("facts.csv", seperator="|")


def test_a_table_that_is_no_list_of_facts_is_refused(trained: list[dict[str, Any]], tmp_path: Path) -> None:
    (tmp_path / "films.csv").write_text("title,director,year\n" + "".join(f"f{i},d{i},{i % 9}\n" for i in range(50)))
    with pytest.raises(HarmoniumError, match=r"films\.csv:1: the second column.*--columns"):
        open_or_train("films.csv")
    assert not trained


def test_what_cannot_be_written_is_said_before_training(trained: list[dict[str, Any]], tmp_path: Path) -> None:
    write(tmp_path / "facts.csv", FACTS)
    for out, message in (("missing.xlsx", "unknown format"), ("nowhere/missing.csv", "is nowhere a folder")):
        with pytest.raises(HarmoniumError, match=message):
            harmonium.complete("facts.csv", out=out)
    assert not trained
