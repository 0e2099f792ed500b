"""Reading options are on every command that reads a graph or facts, and do there what they do in `load`."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest

import harmonium
from command_line import FAST
from harmonium.cli import reading
from harmonium.data.tables.reading_options import Options
from small import family

GRAPH_COMMANDS = ("info", "doctor", "convert", "train", "plan", "complete", "update", "evaluate")
FACT_COMMANDS = ("score", "predict", "classify", "paper density")


def test_every_option_of_load_is_an_option_of_the_command_line() -> None:
    assert set(reading.GRAPH_OPTIONS) - {"separator"} == {field.name for field in fields(Options)} - {"progress"}


@pytest.mark.parametrize("command", [*GRAPH_COMMANDS, *FACT_COMMANDS])
def test_every_command_that_reads_has_the_options(call, command: str) -> None:
    text = call(*command.split(), "--help").out
    names = reading.GRAPH_OPTIONS if command in GRAPH_COMMANDS else reading.FACTS
    for name in names:
        assert (reading.option_name(name) in text) == (name != "separator")  # another name of --delimiter
    assert "error|skip" in text


@pytest.fixture
def messy(tmp_path: Path) -> Path:
    """The family with its own column names, semicolons, Latin-1 and three bad rows."""
    graph = family()
    rows = [";".join((str(n), *names)) for n, names in enumerate(graph.names_of(graph.facts()))]
    rows[5:5] = ["1;person 1;;person 2", "2;person 1;next", "3;;next;person 3"]
    text = "\n".join(["nr;who;tie;whom\u00e9", *rows, ""])
    (tmp_path / "messy.csv").write_bytes(text.encode("cp1252"))
    return tmp_path / "messy.csv"


HOW = ("--columns", "who,tie,whom\u00e9", "--encoding", "cp1252", "--delimiter", ";")


@pytest.mark.parametrize("command", ["info", "doctor", "plan", "convert", "train", "complete"])
def test_a_messy_file_is_refused_with_counts_or_read_with_notes(
    call, messy: Path, tmp_path: Path, command: str
) -> None:
    fast = ["--set", "train.epochs=1", "--set", "model.entity_dim=4", "--set", "train.loss=full"]
    arguments: dict[str, list[str | Path]] = {
        "info": [messy],
        "doctor": [messy],
        "plan": ["--data", messy, *fast],
        "convert": [messy, tmp_path / "out"],
        "train": ["--data", messy, "--preset", "paper", "--out", tmp_path / "run", *FAST],
        "complete": [messy, "--preset", "paper", "--run", tmp_path / "run", "--minutes", "0.01"],
    }
    refused = call(command, *arguments[command], *HOW, "--on-bad", "error")
    assert refused.code == 2
    assert re.search(r"messy\.csv:7: the relation \(column 'tie'\) is empty; 3 rows cannot be used", refused.err)
    assert "--on-bad skip" in refused.err
    if command == "complete":
        return  # trains, as tested elsewhere
    read = call(command, *arguments[command], *HOW, "--on-bad", "skip")
    assert read.code == 0, read.err
    assert "skipped 1 row: the head (column 'who') is empty: messy.csv:9" in read.words


def test_files_of_facts_are_read_as_told(call, run: Path, tmp_path: Path) -> None:
    facts = tmp_path / "facts.csv"
    rows = ["a|person 1|next|person 2", "b|person 1|nexxt|person 2", "c|persn 3|next|person 4", "d||next|person 2"]
    facts.write_text("\n".join(["n|x|y|z", *rows, ""]))
    how = ("--columns", "x,y,z", "--delimiter", "|")
    refused = call("score", run, facts, *how)
    assert refused.code == 2
    assert "facts.csv:3: no relation named 'nexxt' among 3; did you mean 'next'?" in refused.err
    assert "3 rows cannot be used" in refused.err and "--on-bad skip" in refused.err
    scored = call("score", run, facts, *how, "--on-bad", "skip", "--json")
    assert len(json.loads(scored.out)) == 1
    assert "unknown relation: facts.csv:3 (nexxt; did you mean 'next'?" in " ".join(scored.err.split())
    assert "unknown entity: facts.csv:4 (persn 3; did you mean" in " ".join(scored.err.split())
    out = tmp_path / "scored.tsv"
    written = call("score", run, facts, *how, "--on-bad", "skip", "--out", out)
    assert (written.code, len(out.read_text().splitlines())) == (0, 2)
    assert "skipped 1 row: the head is empty" in " ".join(written.err.split())
    labels = call("classify", run, "--data", facts, *how, "--on-bad", "skip", "--json")
    assert len(json.loads(labels.out)) == 1
    evaluated = call("evaluate", run, "--data", facts, *how, "--on-bad", "skip", "--json")
    assert json.loads(evaluated.out)["queries"] == 2
    assert "unknown entity" in evaluated.err
    assert call("evaluate", run, "--data", facts, *how).code == 2


def test_queries_are_skipped_with_counts(call, run: Path, tmp_path: Path) -> None:
    queries, out = tmp_path / "queries.tsv", tmp_path / "answers.tsv"
    queries.write_text("person 1\tnext\t?\nnobody\tnext\t?\nperson 1\t?\t?\n")
    refused = call("predict", run, "--queries", queries, "--out", out)
    assert (refused.code, "queries.tsv:2: no entity named 'nobody'" in refused.err) == (2, True)
    assert "2 rows cannot be used" in refused.err and not out.exists()
    answered = call("predict", run, "--queries", queries, "--out", out, "--top", "1", "--on-bad", "skip")
    assert (answered.code, len(out.read_text().splitlines())) == (0, 2)
    assert "unknown entity: queries.tsv:2 (nobody" in " ".join(answered.err.split())


def test_bad_rows_of_an_update_are_skipped(call, run: Path, tmp_path: Path) -> None:
    facts = tmp_path / "facts.csv"
    facts.write_text("head,relation,tail\nnew one,next,person 1\nnew one,likes,person 2\nnew one,,person 3\n")
    refused = call("update", run, "--add", facts, "--out", tmp_path / "more")
    assert (refused.code, "the relation is empty" in refused.err) == (2, True)
    added = call("update", run, "--add", facts, "--out", tmp_path / "more", "--on-bad", "skip")
    assert added.code == 0, added.err
    assert "2 facts added" in added.words and "new entities: new one" in added.words
    assert "new relations: likes" in added.words and "the relation is empty" in added.words
    refused = call("update", run, "--remove", facts, "--out", tmp_path / "less", "--on-bad", "skip")
    assert "skipped 2 facts to remove with unknown names" in refused.words, refused.err


def test_reading_options_do_not_go_with_a_run(call, run: Path) -> None:
    for command in ("info", "complete"):
        refused = call(command, run, "--columns", "1,2,3")
        assert (refused.code, "drop" in refused.err and "columns" in refused.err) == (2, True)


def test_spellings_are_united_unless_the_user_says_no(call, tmp_path: Path) -> None:
    facts = tmp_path / "facts.csv"
    rows = [f"Person {i},knows,Person {(i * i + 1) % 7}" for i in range(7)]
    facts.write_text(
        "head,relation,tail\n" + "\n".join([*rows, "PERSON 1,knows,person_3", "Person 2,Knows,Person 5", ""])
    )
    for command in ("doctor", "info"):
        shown = call(command, facts).words
        assert "united 2 other spellings of entities" in shown and "united 1 other spellings of relations" in shown
        assert "other spellings" not in call(command, facts, "--no-unite").words
    call("doctor", facts, "--clean", tmp_path / "clean.tsv")
    copy = harmonium.load(tmp_path / "clean.tsv", valid=0, test=0)
    assert (copy.n_entities, list(copy.relations.ids)) == (7, ["knows"])
    whole = tmp_path / "whole.tsv"
    call("convert", facts, whole)
    assert "PERSON 1" in harmonium.load(whole, valid=0, test=0).entities.ids  # which changes no names
    call("convert", facts, whole, "--unite", "--overwrite")
    assert "PERSON 1" not in harmonium.load(whole, valid=0, test=0).entities.ids
