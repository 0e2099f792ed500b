"""The command complete: from a run or a messy file to a list of missing facts."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path

import pytest

import harmonium

FAST = ("--preset", "fast", "--minutes", "0.02")


def towns_and_tastes() -> list[tuple[str, str, str]]:
    """People of four groups, each with a town, and a taste for five things of which they know four or five."""
    draw, facts = random.Random(0), []
    for person in range(80):
        group = person % 4
        facts.append((f"person {person}", "lives in", f"town {group}"))
        likes = draw.sample(range(5), 4 if person % 2 else 5)
        facts += [(f"person {person}", "likes", f"thing {5 * group + i}") for i in likes]
    return [fact for fact in facts if fact[1] == "likes" or draw.random() < 0.8]


@pytest.fixture
def messy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of facts with defects, in the current folder."""
    monkeypatch.chdir(tmp_path)
    rows = [";".join(fact) for fact in towns_and_tastes()]
    rows[7:7] = ["person 3;;town 4", rows[0], "person 3;likes", "person 3;likes;N/A", rows[1] + " "]
    file = tmp_path / "people.csv"
    file.write_text("\ufeffSubject;Predicate;Object\r\n" + "\r\n".join(rows), encoding="utf-8")
    return file


def test_a_messy_file_becomes_a_list_and_its_run_is_used_again(call, messy: Path) -> None:
    first, n_facts = call("complete", "people.csv", "--out", "missing.csv", "--top", 30, *FAST), len(towns_and_tastes())
    assert first.code == 0, first.err
    for words in (
        f"people.csv: {n_facts + 5} rows, {n_facts} facts about 104 entities, 2 relations",
        "is empty: people.csv:9 (person 3, , town 4)",
        f"dropped 2 repeated triples of {n_facts + 2}",
        "Link prediction on people",
        "frequency baseline",
        "Missing from people",
        "expected true",
        "all 30 facts: missing.csv",
        "3 rows of the data were skipped",
        "run folder: runs/people",
    ):
        assert words in first.words, words
    with open("missing.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0])[:6] == ["head", "relation", "tail", "probability", "reason", "known"]
    assert len(rows) == 30
    assert not set(towns_and_tastes()) & {(row["head"], row["relation"], row["tail"]) for row in rows}
    assert all(row["reason"] for row in rows)

    printed = json.loads(call("complete", "people.csv", "--top", 30, "--format", "json").out)
    assert (printed["run"], len(printed["facts"])) == ("runs/people", 30)
    assert sum(band["count"] for band in printed["bands"]) == 30
    assert [fact["tail"] for fact in printed["facts"]] == [row["tail"] for row in rows]
    assert any("the relation (column" in note for note in printed["notes"])
    assert "is used again" in call("complete", "people.csv", "--top", 2).words

    shown = call("complete", "runs/people", "--relation", "likes", "--only-empty", "--top", 2)
    assert "nothing is missing" in shown.words
    shown = call("complete", "runs/people", "--relation", "likes", "--top", 2).words
    best = harmonium.complete("runs/people", "likes", top=2)[0]
    assert " · ".join(best.names) in shown
    assert best.reason in shown

    assert call("complete", "runs/people", "--out", "bare.tsv", "--no-reasons").code == 0
    assert "such facts" not in Path("bare.tsv").read_text(encoding="utf-8")

    refused = call("complete", "runs/people", "--minutes", 2)
    assert (
        refused.code,
        "runs/people is a run, which is not trained again; drop minutes (--minutes)" in refused.err,
    ) == (
        2,
        True,
    )

    messy.write_text("a;r;b\nb;r;c\nc;r;a\n")
    changed = call("complete", "people.csv")
    assert (changed.code, "runs/people is a run on other facts" in changed.err) == (2, True)


def test_what_cannot_work_is_refused_at_once(call, messy: Path) -> None:
    for options, message in (
        (("--out", "missing.xlsx"), "must end in .tsv, .csv"),
        (("--preset", "better"), "--preset must be one of"),
        (("--columns", "who,likes,what"), "no column 'who'; there are Subject, Predicate, Object"),
    ):
        refused = call("complete", "people.csv", *options)
        assert (refused.code, message in refused.err) == (2, True), refused.err
    assert not (messy.parent / "runs").exists()
