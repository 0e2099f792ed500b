"""One way to choose the output of every command: --format; and help that reads alike everywhere."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest
import typer

from command_line import FACT, FAST, judge_some
from harmonium.cli import app as cli
from harmonium.cli.console import FORMATS
from harmonium.config.settings import describe
from harmonium.data.formats.registry import targets
from harmonium.model.composition import Composition

GROUP = typer.main.get_command(cli.app).commands
COMMANDS = {name: command for name, command in GROUP.items() if name != "paper"}
COMMANDS |= {f"paper {name}": command for name, command in GROUP["paper"].commands.items()}
WITHOUT_FORMAT = {"demo", "mcp", "report", "serve"}  # they write a file or serve
CALLS = {
    "train": [
        "{space}/family",
        "--preset",
        "paper",
        *FAST,
        "--set",
        "train.epochs=1",
        "--overwrite",
        "--out",
        "{tmp}/run",
    ],
    "resume": ["{run}"],
    "plan": ["{space}/family", *FAST],
    "predict": ["{run}", "--head", "person 7", "--relation", "next"],
    "score": ["{run}", "{space}/family/test.txt"],
    "complete": ["{run}", "--top", "5"],
    "classify": ["{run}"],
    "evaluate": ["{run}"],
    "similar": ["{run}", "person 7", "--as", "next=person 8"],
    "explain": ["{run}", *FACT],
    "paper table": [
        "gain",
        "--dataset",
        "{space}/family",
        "--scale",
        "small",
        "--rows",
        "hhole-1",
        "--runs",
        "{tmp}",
        "--set",
        "model.entity_dim=4",
        "--set",
        "model.rank=none",
    ],
    "paper starts": [
        "{space}/family",
        "--seconds",
        "0",
        "--start",
        "sum",
        "--rows",
        "hhole-1",
        "--out",
        "{tmp}/a.json",
    ],
    "paper neighbours": ["{run}"],
    "paper dynamics": ["{run}", *FACT],
    "paper density": ["{run}"],
    "paper gain": ["{run}"],
    "diff": ["{run}", "{run}"],
    "review": ["{run}", "--judgements", "{tmp}/judged.sqlite"],
    "info": ["{run}"],
    "doctor": ["{space}/family"],
    "convert": ["{space}/family", "{tmp}/copy", "--overwrite"],
    "update": ["{run}", "--add", "{tmp}/new.tsv", "--overwrite", "--out", "{tmp}/more"],
    "export": ["{run}", "{tmp}/vectors.npz", "--overwrite"],
}


def test_every_command_that_prints_results_has_a_format() -> None:
    with_format = {name for name, command in COMMANDS.items() if any("--format" in p.opts for p in command.params)}
    assert with_format == set(COMMANDS) - WITHOUT_FORMAT


@pytest.mark.parametrize("name", CALLS)
def test_every_format_can_be_parsed(call, workspace: Path, run: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "new.tsv").write_text("person 99\tnext\tperson 8\n", encoding="utf-8")
    judge_some(tmp_path / "judged.sqlite")
    words = [word.format(space=workspace, run=run, tmp=tmp_path) for word in CALLS[name]]
    printed = {}
    for kind in FORMATS if name in ("predict", "info", "doctor") else ("jsonl", "csv"):  # which share their code
        result = call(*name.split(), *words, "--format", kind)
        assert result.code == 0, result.err
        printed[kind] = result.out
    assert json.loads(printed.get("json", "0"), parse_constant=pytest.fail) is not None  # no NaN
    rows = [json.loads(line, parse_constant=pytest.fail) for line in printed["jsonl"].splitlines()]
    assert rows or name == "complete"  # this graph lacks nothing
    columns = list(dict.fromkeys(key for row in rows for key in row))
    for kind in {"csv", "tsv"} & printed.keys():
        table = list(csv.reader(io.StringIO(printed[kind]), delimiter="," if kind == "csv" else "\t"))
        assert table[:1] == ([columns] if rows else [])
        assert {len(line) for line in table} <= {len(columns)}
        assert len(table) == len(rows) + bool(rows)
    assert "md" not in printed or "\n| --- |" in printed["md"]
    assert "\x1b" not in "".join(printed.values())


def test_the_same_numbers_in_every_format(call, run: Path) -> None:
    words = ["predict", run, "--head", "person 7", "--relation", "next", "--top", 3]
    answers = json.loads(call(*words, "--format", "json").out)["answers"]
    rows = list(csv.DictReader(io.StringIO(call(*words, "--format", "csv").out)))
    assert [float(row["score"]) for row in rows] == [answer["score"] for answer in answers]
    assert [row["tail"] for row in rows] == [answer["tail"] for answer in answers]
    assert {row["head"] for row in rows} == {"person 7"}


def test_cells_cannot_break_a_table(call, tmp_path: Path) -> None:
    (tmp_path / "odd.csv").write_text('head,relation,tail\n"a, ""b"" | c",r,x\n"<b>",r,x\n', encoding="utf-8")
    words = ["info", tmp_path / "odd.csv", "--format"]
    (row,) = csv.DictReader(io.StringIO(call(*words, "csv").out))
    assert row["example_head"] == 'a, "b" | c'
    line = call(*words, "md").out.splitlines()[-1]
    assert re.sub(r"\\.", "", line).count("|") == len(row) + 1


def test_an_unknown_format_is_refused_before_any_work(call) -> None:
    refused = call("train", "gone", "--format", "xml")
    assert refused.code == 2
    assert "--format must be one of table, json, jsonl, csv, tsv, md, not 'xml'" in refused.err


# Help ----------------------------------------------------------------------------------------------------------------


def test_every_format_that_can_be_written_is_named_by_convert(call) -> None:
    assert (
        f"--to must be one of {', '.join(targets())}, not 'xlsx'" in call("convert", "atlas", "out", "--to", "xlsx").err
    )


def test_settings_are_listed_with_their_values(call, tmp_path: Path) -> None:
    words = call("train", "--settings").words
    assert "train.optimiser" in words and "adam|adagrad|row-adagrad" in words
    rows = {row["key"]: row for row in json.loads(call("train", "--settings", "--format", "json").out)}
    assert list(rows) == [row.key for row in describe()]
    assert all(row["values"] and row["meaning"] for row in rows.values())
    assert rows["train.loss"]["value"] == '"full"'  # of the preset best, which train uses
    plain = json.loads(call("train", "--preset", "plain", "--set", "train.epochs=7", "--settings", "--json").out)
    assert {row["key"]: row["value"] for row in plain}["train.epochs"] == "7"
    names = [name for name, kind in Composition.registry.items() if kind.__module__.startswith("harmonium.")]
    assert set(names) <= set(rows["model.composition"]["values"].split("|"))
