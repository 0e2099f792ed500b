from __future__ import annotations

import dataclasses
from itertools import chain

import pytest
import torch

import harmonium
from harmonium import evaluation
from harmonium import model as model_module
from harmonium.calibration import calibrate, probabilities
from harmonium.config import Config, ModelConfig
from harmonium.errors import HarmoniumError
from harmonium.graph import SPLITS, Graph, Slot, Triples, Vocabulary
from harmonium.model import GradientGraph
from harmonium.prediction import Answer, answer, answer_all, ask, score_all
from harmonium.run import Run
from harmonium.training import History
from small import make_graph

GIVEN = {
    Slot.HEAD: {"relation": "r1", "tail": "e3"},
    Slot.RELATION: {"head": "e2", "tail": "e3"},
    Slot.TAIL: {"head": "e2", "relation": "r1"},
}
FORMS = {
    "harmony": ModelConfig("hole", 6, faithfulness=2.0),
    "low rank": ModelConfig("distmult", 6, rank=2),
    "plain": ModelConfig("complex", 6, harmony=False),
    "reciprocal": ModelConfig("complex", 6, reciprocal=True),
}


def random_model(graph: Graph, config: ModelConfig = FORMS["harmony"]) -> GradientGraph:
    return harmonium.build_model(config, graph.n_entities, graph.n_relations, seed=3)


def brute_force(model: GradientGraph, graph: Graph, slot: Slot) -> list[tuple[str, float, str | None]]:
    """Every candidate written into the triple, scored by the definition, sorted; with the first split that has it."""
    columns = {Slot.HEAD: 2, Slot.RELATION: 1, Slot.TAIL: 3}
    names = graph.relations.ids if slot is Slot.RELATION else graph.entities.ids
    facts = {split: {tuple(row) for row in getattr(graph, split).rows().tolist()} for split in SPLITS}
    form, found = model.form.fold(), []
    for candidate, name in enumerate(names):
        head, relation, tail = row = tuple(candidate if place is slot else columns[place] for place in Slot)
        turned = model.reciprocal and slot is Slot.HEAD
        ids = (tail, relation + model.n_relations, head) if turned else row
        vectors = [table(torch.tensor(i)) for table, i in zip(tables(model), ids, strict=True)]
        score = form(model.composition.compose(*vectors)) - form.constant
        found.append((name, score.item(), next((split for split in SPLITS if row in facts[split]), None)))
    return sorted(found, key=lambda entry: -entry[1])


def tables(model: GradientGraph) -> tuple:
    return model.entities, model.relations, model.entities


def shown(answers: list[Answer]) -> list[tuple[str, float, str | None]]:
    return [(a.id, pytest.approx(a.score, rel=1e-4, abs=1e-4), a.known) for a in answers]


@pytest.mark.parametrize("config", FORMS.values(), ids=FORMS.keys())
@pytest.mark.parametrize("slot", list(Slot))
def test_answers_are_the_best_of_all_candidates(slot: Slot, config: ModelConfig) -> None:
    graph = make_graph(sizes=(120, 60, 60))
    model = random_model(graph, config)
    query = ask(graph, **GIVEN[slot])
    expected = brute_force(model, graph, slot)
    assert shown(answer(model, graph, query, top=99)) == expected
    assert shown(answer(model, graph, query, top=2)) == expected[:2]
    assert [a.rank for a in answer(model, graph, query, top=2)] == [1, 2]
    new = [entry for entry in expected if entry[2] is None]
    assert shown(answer(model, graph, query, top=99, new_only=True)) == new
    assert len(new) < len(expected)


def test_a_known_answer_says_in_which_split() -> None:
    graph = make_graph()
    model = random_model(graph)
    for split in SPLITS:
        head, relation, tail = graph.spell(getattr(graph, split))[0]
        marks = {a.id: a.known for a in answer(model, graph, ask(graph, head, relation), top=99)}
        assert marks[tail] == split
    assert Answer(1, "Q39", "Switzerland", 0.5, "train").to_json() == {
        "rank": 1, "id": "Q39", "name": "Switzerland", "score": 0.5, "known": "train", "probability": None,
    }  # fmt: skip


def test_a_query_is_written_with_a_question_mark() -> None:
    graph = make_graph()
    assert ask(graph, head="e1", relation="r0").text == "e1, r0, ?"
    assert ask(graph, head="e1", tail="e2").text == "e1, ?, e2"
    assert ask(graph, relation="r0", tail="e2").text == "?, r0, e2"
    assert ask(graph, head="e1", tail="e2").slot is Slot.RELATION


@pytest.mark.parametrize(
    ("given", "count"),
    [({}, 0), ({"head": "e1"}, 1), ({"relation": "r1"}, 1), ({"head": "e1", "relation": "r1", "tail": "e2"}, 3)],
)
def test_a_query_has_one_open_slot(given: dict[str, str], count: int) -> None:
    with pytest.raises(HarmoniumError, match=f"give exactly two of head, relation and tail; {count} given"):
        ask(make_graph(), **given)


def test_an_unknown_name_says_which_kind() -> None:
    with pytest.raises(HarmoniumError, match="no entity named 'e99' among 12; did you mean"):
        ask(make_graph(), head="e99", relation="r0")
    with pytest.raises(HarmoniumError, match="no relation named 'r9' among 3"):
        ask(make_graph(), head="e1", relation="r9")


def test_predict_answers_by_label_from_a_run() -> None:
    bare = make_graph()
    labels = Vocabulary(bare.entities.ids, [f"person {i}" for i in range(12)], "entity")
    graph = dataclasses.replace(bare, entities=labels)
    model = random_model(graph)
    run = Run(Config(), graph, model, History(), {})
    by_label = harmonium.predict(run, head="person 2", relation="r1", top=3)
    assert by_label == harmonium.predict(run, head="e2", relation="r1", top=3)
    assert [a.name for a in by_label] == [f"person {a.id[1:]}" for a in by_label]
    expected = brute_force(model, graph, Slot.TAIL)[:3]
    assert [a.id for a in by_label] == [name for name, _, _ in expected]


# Many queries, filters, probabilities ----------------------------------------------------------------------------


def big() -> tuple[GradientGraph, Graph]:
    graph = make_graph(20, 3, (200, 60, 60))
    return random_model(graph), graph


@pytest.mark.parametrize("slot", list(Slot))
def test_candidates_in_blocks_answer_alike(monkeypatch, slot: Slot) -> None:
    model, graph = big()
    sure, queries, allowed = calibrate(model, graph), graph.test[:30], torch.tensor([0, 1, 2])
    options = [{}, {"new_only": True}, {"allowed": allowed}] + ([] if slot is Slot.RELATION else [{"typed": True}])
    ask_all = lambda: [list(answer_all(model, graph, slot, queries, 5, calibration=sure, **o)) for o in options]  # noqa: E731
    whole, facts = ask_all(), list(score_all(model, graph, queries, sure))
    for block in (1, 3, 7, 19):
        monkeypatch.setitem(model_module.BLOCK, "cpu", block)
        for one, other in zip(chain(*chain(*ask_all())), chain(*chain(*whole)), strict=True):
            assert (one.rank, one.id, one.known) == (other.rank, other.id, other.known)
            assert one.score == pytest.approx(other.score, abs=1e-5)
            assert one.probability == pytest.approx(other.probability, rel=1e-4)
        for one, other in zip(score_all(model, graph, queries, sure), facts, strict=True):
            assert (one.rank, one.head_rank) == (other.rank, other.head_rank)
            assert [one.score, one.probability] == pytest.approx([other.score, other.probability], rel=1e-4)


@pytest.mark.parametrize("slot", list(Slot))
def test_many_queries_are_answered_as_one_is(monkeypatch, slot: Slot) -> None:
    model, graph = big()
    sure, queries = calibrate(model, graph), graph.test[:9]
    alone = [next(answer_all(model, graph, slot, one, 5, new_only=True, calibration=sure)) for one in queries.chunks(1)]
    for rows in (1, 4, 100):
        monkeypatch.setitem(evaluation.CHUNK_NUMBERS, "cpu", rows * (3 if slot is Slot.RELATION else 20))
        together = list(answer_all(model, graph, slot, queries, 5, new_only=True, calibration=sure))
        assert [[(a.rank, a.id, a.known) for a in found] for found in together] == [
            [(a.rank, a.id, a.known) for a in found] for found in alone
        ]
        for one, other in zip(chain(*together), chain(*alone), strict=True):
            assert one.score == pytest.approx(other.score, abs=1e-5)
            assert one.probability == pytest.approx(other.probability, rel=1e-4)


def test_only_the_candidates_that_are_asked_for_answer() -> None:
    """Filters leave scores and probabilities as they are."""
    model, graph = big()
    graph = dataclasses.replace(graph, **{s: getattr(graph, s)[getattr(graph, s).tail < 15] for s in SPLITS})
    sure, query = calibrate(model, graph), ask(graph, "e2", "r1")
    everyone = answer(model, graph, query, 99, calibration=sure)
    seen = {t for h, r, t in graph.facts().rows().tolist() if r == 1}
    assert len(everyone) == 20
    assert len(seen) < 20

    def numbers(answers: list[Answer]) -> dict[str, tuple]:
        return {a.id: (a.score, a.probability, a.known) for a in answers}

    typed = next(answer_all(model, graph, query.slot, query.triple, 99, calibration=sure, typed=True))
    assert numbers(typed) == {k: v for k, v in numbers(everyone).items() if int(k[1:]) in seen}
    assert [a.rank for a in typed] == list(range(1, len(typed) + 1))
    few = answer(model, graph, query, 99, calibration=sure, allowed=torch.tensor([3, 17, 4]))
    assert numbers(few) == {k: v for k, v in numbers(everyone).items() if k in ("e3", "e4", "e17")}
    both = answer_all(model, graph, query.slot, query.triple, 99, False, sure, torch.tensor([3, 17]), True)
    assert [a.id for a in next(both)] == ["e3"]
    with pytest.raises(HarmoniumError, match="a relation has no type"):
        next(answer_all(model, graph, Slot.RELATION, query.triple, typed=True))


@pytest.mark.parametrize("slot", list(Slot))
def test_an_answer_has_the_probability_of_its_triple(slot: Slot) -> None:
    model, graph = big()
    sure, query = calibrate(model, graph), graph.test[:1]
    found = next(answer_all(model, graph, slot, query, 99, calibration=sure))
    for a in found:
        row = [int(query[s]) if s is not slot else int(a.id[1:]) for s in Slot]
        triple = Triples.from_rows([row])
        assert a.probability == pytest.approx(probabilities(model, graph, sure, slot, triple).item(), rel=1e-5)
    assert len({a.known for a in found}) > 1
    assert {a.probability for a in answer(model, graph, ask(graph, "e1", "r1"))} == {None}


def test_facts_are_scored_with_their_ranks() -> None:
    model, graph = big()
    sure, triples = calibrate(model, graph), Triples.cat([graph.test[:7], Triples.from_rows([[0, 0, 0]])])
    found = list(score_all(model, graph, triples, sure))
    for slot, rank, chance in ((Slot.TAIL, "rank", "probability"), (Slot.HEAD, "head_rank", "head_probability")):
        expected = harmonium.rank(model, triples, slot, graph.answers(slot)).values().tolist()
        assert [getattr(one, rank) for one in found] == expected
        chances = probabilities(model, graph, sure, slot, triples).tolist()
        assert [getattr(one, chance) for one in found] == pytest.approx(chances)
    form = model.form.fold()
    assert [one.score for one in found] == pytest.approx((model.score(triples) - form.constant).tolist(), abs=1e-4)
    facts = {tuple(row) for row in graph.facts().rows().tolist()}
    assert [one.known for one in found] == ["test"] * 7 + [None] * ((0, 0, 0) not in facts)
    assert found[0].triple == graph.spell(triples)[0]
    run = Run(Config(), graph, model, History(), {})
    assert harmonium.score(run, [one.triple for one in found])[3].to_json() == pytest.approx(found[3].to_json())
