"""The doctor against definitions spelt out with loops and sets, and on graphs whose faults are known."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import harmonium
from harmonium import datasets
from harmonium.doctor import (
    DOUBT,
    KINDS,
    SHARE,
    Diagnosis,
    Finding,
    RuleBaseline,
    Rules,
    answered,
    clean_copy,
    diagnose,
    gini,
    mine,
)  # fmt: skip
from harmonium.errors import HarmoniumError
from harmonium.graph import SPLITS, Graph, Slot, Triples, Vocabulary
from small import family, make_graph

doctor_module = sys.modules["harmonium.doctor"]  # the package's name is the function's


def graph_of(
    train: str, valid: str = "", test: str = "", entities: str = "", labels: dict[str, str] | None = None
) -> Graph:
    """A graph from lines like "a likes b, b likes c"; `entities` may name more."""
    texts = {"train": train, "valid": valid, "test": test}
    facts = {s: [line.split() for line in text.split(",") if line.strip()] for s, text in texts.items()}
    everything = [fact for rows in facts.values() for fact in rows]
    names = list(dict.fromkeys([*(end for h, _, t in everything for end in (h, t)), *entities.split()]))
    relations = list(dict.fromkeys(r for _, r, _ in everything))
    ids = {s: [[names.index(h), relations.index(r), names.index(t)] for h, r, t in rows] for s, rows in facts.items()}
    splits = {s: Triples.from_rows(rows) for s, rows in ids.items()}
    shown = [labels.get(name, name) for name in names] if labels else None
    return Graph(Vocabulary(names, shown), Vocabulary(relations, kind="relation"), **splits, name="made")


def finding(found: Diagnosis, name: str) -> Finding:
    return next(each for each in found.findings if each.name == name)


def slowly(facts: Triples) -> dict[tuple[int, int, bool], tuple[int, float, float]]:
    """(body, head, reversed) -> support, confidence, coverage, from the definition."""
    known = {(h, r, t) for h, r, t in facts.rows().tolist() if h != t}
    relations = {r for _, r, _ in known}
    size = {r: sum(fact[1] == r for fact in known) for r in relations}
    found = {}
    for body in relations:
        for head in relations:
            for reversed in (False, True):
                support = sum(((t, head, h) if reversed else (h, head, t)) in known for h, r, t in known if r == body)
                if support and (reversed or body != head):
                    found[body, head, reversed] = (support, support / size[body], support / size[head])
    return found


def as_dict(rules: Rules) -> dict[tuple[int, int, bool], tuple[int, float, float]]:
    keys = zip(rules.body.tolist(), rules.head.tolist(), rules.reversed.tolist(), strict=True)
    values = zip(rules.support.tolist(), rules.confidence.tolist(), rules.coverage.tolist(), strict=True)
    return dict(zip(keys, values, strict=True))


@pytest.mark.parametrize("joined", [1, 7, 1 << 22])
def test_rules_are_what_the_definition_says_however_the_join_is_cut(
    joined: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_module, "JOINED", joined)
    facts = make_graph(6, 4, (70, 1, 1)).train
    facts = Triples.cat([facts, facts[:9]])  # repeated facts count once
    expected = slowly(facts)
    assert as_dict(mine(facts, 6, 4, confidence=0, support=1)) == expected
    assert as_dict(mine(facts, 6, 4, confidence=0.5, support=4)) == {
        rule: numbers for rule, numbers in expected.items() if numbers[1] >= 0.5 and numbers[0] >= 4
    }
    cells = mine(facts, 6, 4, confidence=0, support=1).cell
    assert (cells.diff() > 0).all()


def test_no_facts_give_no_rules() -> None:
    none = Triples.from_rows([])
    rules = mine(none, 3, 2)
    assert len(rules) == 0
    assert answered(Triples.from_rows([[0, 0, 1]]), none, rules, 3)[0].tolist() == [[False]] * 4


def ladder(pattern: str, count: int = 10) -> str:
    """Facts for i = 0, 1, ... with {i} and {j} filled in."""
    return ", ".join(pattern.format(i=f"x{i}", j=f"y{i}") for i in range(count))


def kinds_of(graph: Graph) -> dict[str, set[tuple[str, str]]]:
    rules = mine(graph.facts(), graph.n_entities, graph.n_relations)
    found: dict[str, set[tuple[str, str]]] = {}
    for kind, body, head in zip(rules.kind.tolist(), rules.body.tolist(), rules.head.tolist(), strict=True):
        found.setdefault(KINDS[kind], set()).add((graph.relations.ids[body], graph.relations.ids[head]))
    return found


def test_kinds_of_rules() -> None:
    inverse = graph_of(ladder("{i} parent {j}, {j} child {i}"))
    assert kinds_of(inverse) == {"inverse": {("parent", "child"), ("child", "parent")}}
    duplicate = graph_of(ladder("{i} in {j}") + "," + ladder("{i} within {j}", 8))
    assert kinds_of(duplicate) == {"duplicate": {("in", "within"), ("within", "in")}}  # 8 of 10 is just enough
    implied = graph_of(ladder("{i} in {j}") + "," + ladder("{i} capital {j}", 7))
    assert kinds_of(implied) == {"implied": {("capital", "in")}}
    assert kinds_of(graph_of(ladder("{i} near {j}, {j} near {i}"))) == {"symmetric": {("near", "near")}}
    assert kinds_of(graph_of(ladder("{i} near {i}"))) == {}  # self-loops tell no direction
    assert kinds_of(graph_of(ladder("{i} in {j}, {i} within {j}", 2))) == {}  # too few to tell


def test_answered_is_what_the_definition_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_module, "JOINED", 5)
    graph = make_graph(6, 4, (60, 1, 40), seed=3)
    rules = mine(graph.facts(), 6, 4, confidence=0.45, support=1)
    train = {tuple(row) for row in graph.train.rows().tolist()}
    flags, finds = torch.zeros(4, 40, dtype=torch.bool), [0] * len(rules)
    for number, (body, head, reversed) in enumerate(as_dict(rules)):
        for row, (h, r, t) in enumerate(graph.test.rows().tolist()):
            if r == head and ((t, body, h) if reversed else (h, body, t)) in train:
                flags[rules.kind[number], row] = True
                finds[number] += 1
    got = answered(graph.test, graph.train, rules, 6)
    assert got[0].equal(flags) and got[1].tolist() == finds
    assert flags.any() and not flags.all() and sum(finds) > flags.sum()


@pytest.mark.parametrize("slot", [Slot.HEAD, Slot.TAIL])
def test_the_rule_baseline_scores_by_noisy_or(slot: Slot) -> None:
    graph = make_graph(6, 3, (50, 1, 12), seed=1)
    baseline = RuleBaseline(graph, confidence=0.2)
    train = [tuple(row) for row in graph.train.rows().tolist()]
    size = {r: sum(fact[1] == r and fact[0] != fact[2] for fact in train) for r in range(3)}
    rules = {
        rule: n[0] / (size[rule[0]] + DOUBT) for rule, n in slowly(graph.train).items() if n[1] >= 0.2 and n[0] >= 3
    }
    expected = torch.zeros(12, 6, dtype=torch.float64)
    for row, (h, r, t) in enumerate(graph.test.rows().tolist()):
        for e in range(6):
            one, other = (e, t) if slot is Slot.HEAD else (h, e)
            fails = [
                1 - sure
                for (body, head, reversed), sure in rules.items()
                if head == r and ((other, body, one) if reversed else (one, body, other)) in train
            ]
            expected[row, e] = -math.log(math.prod(fails))
    assert len(rules) > 4 and expected.unique().numel() > 6
    torch.testing.assert_close(baseline.score_slot(slot, graph.test).double(), expected, rtol=1e-5, atol=1e-6)


def test_a_graph_that_leaks() -> None:
    graph = family(60)
    found = diagnose(graph)
    train = {tuple(row) for row in graph.train.rows().tolist()}
    tested = graph.test.rows().tolist()
    inverse = sum((t, 1 - r, h) in train for h, r, t in tested if r < 2)
    symmetric = sum((t, 2, h) in train for h, r, t in tested if r == 2)
    assert inverse >= 4 and symmetric >= 2
    assert finding(found, "redundant relations").numbers["inverse"] == inverse
    assert finding(found, "redundant relations").numbers["with symmetric"] == inverse + symmetric
    assert finding(found, "symmetric leakage").numbers["facts"] == symmetric
    assert found.verdict == "leaking" and "follow from another relation" in found.reason and "--clean" in found.advice
    assert found.baseline and found.baseline.metrics["hits@1"] == (inverse + symmetric) / len(tested)
    rows = {(row["kind"], row["relation"], row["other"]): row for row in found.relations}
    assert rows.keys() == {("inverse", "next", "before"), ("symmetric", "twin", "twin")}
    assert rows["inverse", "next", "before"]["finds"] == inverse
    assert rows["inverse", "next", "before"]["pairs"] == 60
    assert rows["symmetric", "twin", "twin"]["share"] == 1


def test_the_honest_split_of_the_same_facts_is_calm() -> None:
    found = diagnose(datasets.split(family(60), valid=0.1, test=0.1))
    assert found.verdict == "calm" and "still" not in found.reason and found.advice == "nothing needs doing"
    assert finding(found, "linked pairs").numbers["either"] == 0
    assert found.baseline and found.baseline.metrics["hits@10"] < 0.2


def test_symmetry_alone_is_said_calmly() -> None:
    """A third of test reversed in train, as in WN18RR: not redundant relations, but worth a sentence."""
    graph = graph_of(
        ladder("{i} near {j}") + "," + ladder("{j} near {i}", 9) + ", p in q, q in r, s in t",
        test="y9 near x9, p in t, s in q",
    )
    found = diagnose(graph)
    assert found.verdict == "calm"
    assert "still, 1 of 3 test facts are a train fact of a symmetric relation" in found.reason
    assert "apart" in found.advice


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
    assert finding(found, "unseen entities").numbers == {
        "valid": {"entities": 1, "facts": 1},
        "test": {"entities": 2, "facts": 1},
    }
    assert finding(found, "unseen relations").numbers["test"] == {"relations": 1, "facts": 1}
    assert finding(found, "unseen relations").level == "careful"
    assert finding(found, "self-loops").examples == ["c · r · c"]
    assert finding(found, "isolated entities").examples == ["alone", "lonely"]
    assert finding(found, "one-sided relations").examples == ["t", "u", "v"]
    assert finding(found, "linked pairs").numbers == {"same": 3, "reversed": 0, "either": 3}
    assert finding(found, "degree skew").examples[0] == "b 12"
    assert found.verdict == "leaking"
    assert finding(found, "repeated triples").level == "careful"


def test_repeated_lines_dropped_on_reading_are_counted(write_folder) -> None:
    lines = "a\tr\tb\nb\tr\tc\na\tr\tb\na\tr\tb\n"
    found = harmonium.doctor(write_folder({"train.txt": lines, "test.txt": "c\tr\ta\n"}))
    assert finding(found, "repeated triples").numbers["dropped"] == {"train": 2, "valid": 0, "test": 0}
    assert found.verdict == "calm" and found.notes


def test_cartesian_relations() -> None:
    full = ", ".join(
        f"x{i} full y{j}" for i in range(4) for j in range(5) if (i, j) not in {(0, 0), (1, 1), (2, 2), (3, 3)}
    )
    sparse = ", ".join(f"x{i} sparse y{j}" for i in range(4) for j in range(5) if (i + j) % 3)
    two = ", ".join(f"x{i} two y{j}" for i in range(2) for j in range(5))  # too few heads to say
    found = finding(diagnose(graph_of(f"{full}, {sparse}, {two}", test="x0 full y0, x3 two y3")), "Cartesian relations")
    assert found.examples == ["full"] and found.numbers == {"relations": 1, "facts": 1} and found.level == "careful"


def test_names_that_read_alike_or_have_stray_blanks() -> None:
    graph = graph_of("New_York in USA, new_york in usa, Rome in Italy")
    spelt = finding(diagnose(graph), "names of entities")
    assert spelt.numbers == {"alike": 2, "stray": 0} and spelt.level == "careful"
    assert spelt.examples == ["'New_York' = 'new_york'", "'USA' = 'usa'"] and "'USA' = 'usa'" in spelt.sentence
    labelled = graph_of("q1 in q2, q3 in q2", labels={"q1": "Football", "q3": "football"})
    shared = finding(diagnose(labelled), "names of entities")
    assert shared.numbers["alike"] == 1 and shared.level == "calm"  # two things may share a name, not an identifier
    blank = replace(graph, relations=Vocabulary([" in"], kind="relation"))
    assert finding(diagnose(blank), "names of relations").examples == ["' in'"]
    assert diagnose(blank).verdict == "careful"


@given(st.lists(st.integers(0, 50), min_size=1, max_size=30))
def test_gini_is_half_the_relative_mean_difference(counts: list[int]) -> None:
    total, n = sum(counts), len(counts)
    expected = sum(abs(a - b) for a in counts for b in counts) / (2 * n * total) if total else 0.0
    assert gini(torch.tensor(counts)) == pytest.approx(expected, abs=1e-12)


def test_cleaning_leaves_no_leak_and_says_what_went() -> None:
    graph = family(60)
    graph = replace(
        graph, valid=Triples.cat([graph.valid, graph.train[:2]]), test=Triples.cat([graph.test, graph.valid[:3]])
    )
    copy, told = clean_copy(graph)
    after = diagnose(copy)
    assert diagnose(graph).verdict == "leaking" and after.verdict == "calm" and "still" not in after.reason
    assert told["dropped"]["repeated"] == {"train": 0, "valid": 2, "test": 3}
    (gone,) = told["relations"]
    assert {gone["dropped"], gone["kept"]} == {"next", "before"}
    before = {split: {tuple(row) for row in getattr(graph, split).rows().tolist()} for split in SPLITS}
    lost = graph.relations.index(gone["dropped"])
    train = {row for row in before["train"] if row[1] != lost}
    assert {tuple(row) for row in copy.train.rows().tolist()} == train
    expected = {
        (h, r, t) for h, r, t in before["test"] - before["valid"] if r != lost and not (r == 2 and (t, r, h) in train)
    }
    assert {tuple(row) for row in copy.test.rows().tolist()} == expected
    for split in SPLITS:
        assert len(getattr(graph, split)) - sum(d[split] for d in told["dropped"].values()) == told["triples"][split]
        assert told["triples"][split] == len(getattr(copy, split))


def test_the_larger_of_redundant_relations_stays() -> None:
    facts = ladder("{i} small {j}", 8) + "," + ladder("{j} large {i}", 10) + "," + ladder("{i} middle {j}", 9)
    copy, told = clean_copy(graph_of(facts))
    assert told["relations"] == [{"dropped": "middle", "kept": "large"}, {"dropped": "small", "kept": "large"}]
    assert {names[1] for names in copy.spell(copy.train)} == {"large"}


def test_a_cleaned_copy_can_be_read_again(tmp_path: Path) -> None:
    plain = family(60)
    labels = [f"Person number {i}" for i in range(60)]
    graph = replace(plain, entities=Vocabulary(plain.entities.ids, labels))
    found = harmonium.doctor(graph, clean=tmp_path / "deep" / "clean")
    again = harmonium.load(tmp_path / "deep" / "clean")
    assert found.cleaned and {s: len(getattr(again, s)) for s in SPLITS} == found.cleaned["triples"]
    assert set(again.spell(again.facts())) <= set(graph.spell(graph.facts()))
    assert harmonium.doctor(tmp_path / "deep" / "clean").verdict == "calm"
    with pytest.raises(HarmoniumError, match="is there already; choose another name"):
        harmonium.doctor(graph, clean=tmp_path / "deep" / "clean")
    (tmp_path / "file").touch()
    with pytest.raises(HarmoniumError, match="cannot be written"):
        harmonium.doctor(graph, clean=tmp_path / "file" / "clean")
    harmonium.doctor(graph, clean=tmp_path / "clean.graph")
    assert harmonium.load(tmp_path / "clean.graph").train.rows().equal(clean_copy(graph)[0].train.rows())


def test_graphs_without_a_test_split() -> None:
    graph = family(60)
    none = Triples.from_rows([])
    found = diagnose(replace(graph, valid=none, test=none))
    assert found.baseline is None and found.to_json()["rule_baseline"] is None
    assert found.verdict == "calm" and "no valid or test facts" in found.reason
    only_valid = diagnose(replace(graph, test=none))
    assert only_valid.baseline and only_valid.baseline.protocol.split == "valid"
    assert only_valid.verdict == "leaking" and "valid facts" in only_valid.reason
    assert found.to_markdown().startswith("**calm**")


def test_the_report_as_json_and_markdown() -> None:
    graph = family(60)
    graph = replace(graph, relations=Vocabulary(["<b>next</b>", "be|fore", "twin"], kind="relation"))
    found = diagnose(graph)
    told = json.loads(json.dumps(found.to_json()))
    assert told["verdict"] == "leaking" and told["triples"] == {"train": 160, "valid": 10, "test": 10}
    assert (
        told["rule_baseline"]["metrics"] == found.baseline.metrics and "filtered" in told["rule_baseline"]["protocol"]
    )
    text = found.to_markdown()
    assert r"\<b\>next\</b\>" in text and r"be\|fore" in text and "| twin | itself | 100% |" in text
    assert f"{found.baseline.metrics['mrr']:.3f}" in text
    assert SHARE == 0.8  # what docs/doctor.md says


def test_the_public_function_stays_when_its_module_is_imported() -> None:
    harmonium.doctor = doctor_module  # what importing the module does to its package
    assert harmonium.doctor is doctor_module.doctor
