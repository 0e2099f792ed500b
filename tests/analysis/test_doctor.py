"""The doctor on graphs whose faults are known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import harmonium
from harmonium.analysis.doctor import rank_by_rules
from harmonium.data import datasets
from harmonium.data.checks.clean import clean_copy
from harmonium.data.checks.diagnosis import Diagnosis, diagnose
from harmonium.data.checks.findings import Finding
from harmonium.data.graph import SPLITS
from harmonium.data.triples import Triples
from harmonium.data.vocabulary import Vocabulary
from harmonium.errors import HarmoniumError
from small import family, graph_of


def finding(found: Diagnosis, name: str) -> Finding:
    return next(each for each in found.findings if each.name == name)


def test_a_graph_that_leaks() -> None:
    graph = family(60)
    found = diagnose(graph)
    train = {tuple(row) for row in graph.train.to_rows().tolist()}
    tested = graph.test.to_rows().tolist()
    inverse = sum((t, 1 - r, h) in train for h, r, t in tested if r < 2)
    symmetric = sum((t, 2, h) in train for h, r, t in tested if r == 2)
    assert inverse >= 4 and symmetric >= 2
    assert finding(found, "redundant relations").numbers["inverse"] == inverse
    assert finding(found, "redundant relations").numbers["with symmetric"] == inverse + symmetric
    assert finding(found, "symmetric leakage").numbers["facts"] == symmetric
    assert found.verdict == "leaking" and "follow from another relation" in found.reason and "--clean" in found.advice
    assert rank_by_rules(graph)["metrics"]["hits@1"] == (inverse + symmetric) / len(tested)
    rows = {(row["kind"], row["relation"], row["other"]): row for row in found.relations}
    assert rows.keys() == {("inverse", "next", "before"), ("symmetric", "twin", "twin")}
    assert rows["inverse", "next", "before"]["finds"] == inverse
    assert rows["inverse", "next", "before"]["pairs"] == 60
    assert rows["symmetric", "twin", "twin"]["share"] == 1


def test_the_honest_split_of_the_same_facts_is_ok() -> None:
    found = harmonium.doctor(datasets.split(family(60), valid=0.1, test=0.1))
    assert found.verdict == "ok" and "still" not in found.reason and found.advice == "nothing"
    assert finding(found, "linked pairs").numbers["either"] == 0
    assert found.rule_baseline["metrics"]["hits@10"] < 0.2


def test_every_count_on_a_graph_with_every_fault() -> None:
    graph = graph_of(
        train="a r b, a r b, b r c, c r c, a s b, d t b, e t b, only u a, only u b",
        valid="a r b, b s c, new s a",
        test="a r b, a s b, b s c, c v a, new s newer",
        entities="alone lonely",
    )
    found = diagnose(graph)
    assert finding(found, "repeated triples").numbers["left"] == {"train": 1, "valid": 0, "test": 0}
    overlap = finding(found, "split overlap")
    assert overlap.numbers == {"test in train": 2, "valid in train": 1, "test in valid": 2}
    assert overlap.level == "leaking"
    unseen = {"valid": {"entities": 1, "facts": 1}, "test": {"entities": 2, "facts": 1}}
    assert finding(found, "unseen entities").numbers == unseen
    assert finding(found, "unseen relations").numbers["test"] == {"relations": 1, "facts": 1}
    assert finding(found, "unseen relations").level == "warning"
    assert finding(found, "self-loops").examples == ["c · r · c"]
    assert finding(found, "isolated entities").examples == ["alone", "lonely"]
    assert finding(found, "one-sided relations").examples == ["t", "u", "v"]
    assert finding(found, "linked pairs").numbers == {"same": 3, "reversed": 0, "either": 3}
    assert finding(found, "degree skew").examples[0] == "b 12"
    assert found.verdict == "leaking"
    assert finding(found, "repeated triples").level == "warning"


def test_repeated_lines_dropped_on_reading_are_counted(write_folder) -> None:
    lines = "a\tr\tb\nb\tr\tc\na\tr\tb\na\tr\tb\n"
    found = harmonium.doctor(write_folder({"train.txt": lines, "test.txt": "c\tr\ta\n"}))
    assert finding(found, "repeated triples").numbers["dropped"] == {"train": 2, "valid": 0, "test": 0}
    assert found.verdict == "ok" and found.notes


def test_names_that_read_alike_or_have_stray_whitespace() -> None:
    facts = "New_York in America, new_york in AMERICA, Rome in Italy, St._John's in Italy, St_Johns in Italy, CO in US"
    graph = graph_of(facts)
    spelt = finding(diagnose(graph), "names of entities")
    assert spelt.numbers == {"united": 0, "alike": 2, "apart": 0, "punctuation": 1, "stray": 0}
    assert spelt.level == "warning"
    assert "'New_York' = 'new_york'" in spelt.examples and "'America' = 'AMERICA'" in spelt.sentence
    labelled = graph_of("q1 in q2, q3 in q2", labels={"q1": "Football", "q3": "football"})
    assert finding(diagnose(labelled), "names of entities").level == "ok"  # two things may share a name
    spaced = replace(graph, relations=Vocabulary([" in"], kind="relation"))
    assert finding(diagnose(spaced), "names of relations").examples == ["' in'"]
    assert diagnose(spaced).verdict == "warning"


def test_cleaning_leaves_no_leak_and_says_what_went() -> None:
    graph = family(60)
    repeated = Triples.cat([graph.valid, graph.train[:2]]), Triples.cat([graph.test, graph.valid[:3]])
    graph = replace(graph, valid=repeated[0], test=repeated[1])
    copy, report = clean_copy(graph)
    cleaned = diagnose(copy)
    assert diagnose(graph).verdict == "leaking" and cleaned.verdict == "ok" and "still" not in cleaned.reason
    assert report["dropped"]["repeated"] == {"train": 0, "valid": 2, "test": 3}
    (gone,) = report["relations"]
    assert {gone["dropped"], gone["kept"]} == {"next", "before"}
    before, after = (
        {s: set(map(tuple, facts.to_rows().tolist())) for s, facts in g.splits.items()} for g in (graph, copy)
    )
    lost = graph.relations.index(gone["dropped"])
    train = {row for row in before["train"] if row[1] != lost}
    assert after["train"] == train
    honest = {(h, r, t) for h, r, t in before["test"] - before["valid"] if r != 2 or (t, r, h) not in train}
    assert after["test"] == {row for row in honest if row[1] != lost}
    for split in SPLITS:
        dropped = sum(counts[split] for counts in report["dropped"].values())
        assert len(graph.splits[split]) - dropped == report["triples"][split] == len(copy.splits[split])


def test_a_cleaned_copy_can_be_read_again(tmp_path: Path) -> None:
    plain = family(60)
    labels = [f"Person number {i}" for i in range(60)]
    graph = replace(plain, entities=Vocabulary(plain.entities.ids, labels))
    found = harmonium.doctor(graph, clean=tmp_path / "deep" / "clean")
    again = harmonium.load(tmp_path / "deep" / "clean")
    assert found.cleaned and {s: len(getattr(again, s)) for s in SPLITS} == found.cleaned["triples"]
    assert set(again.names_of(again.facts())) <= set(graph.names_of(graph.facts()))
    assert harmonium.doctor(tmp_path / "deep" / "clean").verdict == "ok"
    with pytest.raises(HarmoniumError, match="exists already"):
        harmonium.doctor(graph, clean=tmp_path / "deep" / "clean")
    (tmp_path / "file").touch()
    with pytest.raises(HarmoniumError, match="cannot be written"):
        harmonium.doctor(graph, clean=tmp_path / "file" / "clean")
    harmonium.doctor(graph, clean=tmp_path / "clean.graph")
    assert harmonium.load(tmp_path / "clean.graph").train.to_rows().equal(clean_copy(graph)[0].train.to_rows())


def test_graphs_without_a_test_split() -> None:
    graph = family(60)
    none = Triples.from_rows([])
    found = harmonium.doctor(replace(graph, valid=none, test=none))
    assert found.to_json()["rule_baseline"] is None
    assert found.verdict == "ok" and "no valid or test facts" in found.reason
    only_valid = harmonium.doctor(replace(graph, test=none))
    assert only_valid.rule_baseline["protocol"].startswith("valid")
    assert only_valid.verdict == "leaking" and "valid facts" in only_valid.reason
    assert found.to_markdown().startswith("**ok**")
