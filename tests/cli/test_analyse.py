"""The commands similar, explain, rules and report print what the library returns."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import harmonium
from command_line import FACT
from small import run_with_constraints


@pytest.mark.parametrize(
    ("command", "function", "options", "arguments"),
    [
        ("explain", harmonium.explain, ["--top", 3], {"top": 3}),
        ("explain", harmonium.explain, ["--details", "--no-same-relation"], {"details": True, "same_relation": False}),
    ],
)
def test_json_is_that_of_the_library(
    call, run: Path, command: str, function: Callable[..., Any], options: list, arguments: dict
) -> None:
    expected = function(run, *FACT, **arguments).to_json()
    assert json.loads(call(command, run, *FACT, *options, "--format", "json").out) == json.loads(json.dumps(expected))


@pytest.mark.parametrize(
    ("options", "role"),
    [
        ([], {}),
        (["--as", "next=person 8"], {"relation": "next", "tail": "person 8"}),
        (
            ["--as-tail", "next=person 6", "--lambda", "inf"],
            {"relation": "next", "head": "person 6", "faithfulness": math.inf},
        ),
    ],
    ids=["in general", "as head", "as tail"],
)
def test_similar_entities_with_what_they_share(call, run: Path, options: list[str], role: dict[str, Any]) -> None:
    expected = harmonium.similar(run, "person 7", **role, top=4)
    printed = json.loads(call("similar", run, "person 7", *options, "--top", 4, "--json").out)
    assert printed == json.loads(json.dumps(expected.to_json())) and len(printed["entities"]) == 4
    words = call("similar", run, "person 7", *options, "--top", 4).words
    assert words.startswith(expected.title)
    assert all(f"{one.name} " in words and "; ".join(one.shared) in words for one in expected)


def test_names_in_a_role_may_contain_its_sign(call, tmp_path: Path) -> None:
    rows = "".join(f"a{i}\tx=y\tb=c\n" for i in range(8))
    run = harmonium.train(pairs_file(tmp_path, rows), "plain", dim=4, epochs=1, out=tmp_path / "run").path
    assert json.loads(call("similar", run, "a1", "--as", "x=y=b=c", "--json").out)["entities"][0]["known"] is True
    assert "a role is RELATION=ENTITY" in call("similar", run, "a1", "--as", "next").err
    assert "not both" in call("similar", run, "a1", "--as", "x=y=b=c", "--as-tail", "x=y=a1").err


def pairs_file(folder: Path, rows: str) -> Path:
    (folder / "facts.tsv").write_text(rows, encoding="utf-8")
    return folder / "facts.tsv"


def test_explain_leads_with_facts_in_words(call, run: Path, tmp_path: Path) -> None:
    figure, expected = tmp_path / "why.png", harmonium.explain(run, *FACT, top=3)
    words = call("explain", run, *FACT, "--top", 3, "--plot", figure).words
    assert words.startswith(f"person 7, next, person 8 a known fact (train); #{expected.rank['head']:g} as head")
    parts = [expected.evidence, " · ".join(expected.necessary[0].fact), expected.verdict, "--details shows"]
    assert [words.index(part) for part in parts] == sorted(words.index(part) for part in parts)
    assert f"{expected.reasons[0].effect:+.3f}" in words
    assert "Harmony" not in words and "Directions" not in words
    assert figure.stat().st_size > 1000


def test_explain_shows_how_the_score_comes_about(call, run: Path, tmp_path: Path) -> None:
    details = harmonium.explain(run, *FACT, top=3, details=True).details
    words = call("explain", run, *FACT, "--top", 3, "--details", "--plot", tmp_path / "why.png").words
    assert f"total {details.harmony['composed'].total:,.3f} {details.harmony['token'].total:,.3f}" in words
    assert f"{details.directions[0].contribution:+.3f}" in words
    assert f"{' · '.join(details.nearest[0].fact)} {details.nearest[0].distance:.3f}" in words


def test_rules_are_listed_written_and_changed(call, tmp_path: Path) -> None:
    run = run_with_constraints().save(tmp_path / "run")
    learned = harmonium.rules(run, relation="located in", top=3)
    options = ("--relation", "located in", "--top", 3)
    assert json.loads(call("rules", run, *options, "--format", "json").out) == learned.to_json()
    assert f"right in {learned.rules[0].support:,} of" in call("rules", run, *options).words
    file = tmp_path / "rules.tsv"
    for _ in range(2):  # a list of ours is replaced
        assert call("rules", run, *options, "--out", file).code == 0
    lines = file.read_text(encoding="utf-8").splitlines()
    assert lines[0].split("\t")[:2] == ["number", "relation"]
    assert len(lines) == 1 + len(learned.rules)

    number = learned.rules[0].number
    other = tmp_path / "other"
    assert call("rules", run, "--off", number, "--weight", f"{learned.rules[1].number}=0.25", "--out", other).code == 0
    weights = {rule.number: rule.weight for rule in harmonium.rules(other, top=10**6).rules}
    assert weights[number] == 0
    assert weights[learned.rules[1].number] == pytest.approx(0.25)
    assert call("rules", run, "--off", number, "--out", run, "--overwrite").code == 0
    assert harmonium.rules(run, top=10**6).rules[-1].weight == 0
    for arguments, message in (
        (("--off", number), "say where the changed run goes"),
        (("--weight", "7:1"), "not NUMBER=WEIGHT"),
        (("--out", tmp_path / "rules.nt"), "rules are no facts"),
    ):
        result = call("rules", run, *arguments)
        assert (result.code, message in result.err) == (2, True), result.err


def test_report_writes_a_page(call, run: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "page.html"
    result = call("report", run, "--out", out, "--limit", 8, "--fact", "person 0", "next", "person 1")
    assert (result.code, result.out) == (0, f"report: {out}\n"), result.err
    assert "person 0, next, person 1</th>" in out.read_text(encoding="utf-8")


def test_a_server_for_agents_refuses_a_wrong_folder_before_it_speaks(call, tmp_path) -> None:
    refused = call("mcp", tmp_path / "none")
    assert refused.code == 2 and "none" in refused.err and not refused.out
