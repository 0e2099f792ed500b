"""The candidates for missing facts and their features, against their definitions."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from harmonium.answers import candidate_facts
from harmonium.answers.candidate_facts import FEATURES, REVERSE, CandidateFacts, CandidateSearch, one_per_slot
from harmonium.answers.relation_traits import RelationTraits
from harmonium.data.entity_types import EntityTypes
from harmonium.data.graph import Graph
from harmonium.data.triples import Slot, Triples
from harmonium.grammar.further_answers import FurtherAnswers
from harmonium.model.scoring import Scorer
from small import TableScorer, graph_of, ladder, make_graph, random_table

ALL = 10_000  # wanted: every pair is a candidate


def rows(facts: CandidateFacts) -> list[tuple[int, int, int]]:
    return [tuple(row) for row in facts.triples.to_rows().tolist()]


def features(facts: CandidateFacts) -> dict[tuple[int, int, int], list[float]]:
    return dict(zip(rows(facts), facts.features.tolist(), strict=True))


def search(scorer: Scorer, graph: Graph, **options) -> CandidateSearch:
    return CandidateSearch.prepare(scorer, graph, **options)


def random_floats(graph: Graph) -> TableScorer:
    shape = (2, graph.n_relations, graph.n_entities, graph.n_entities)
    return TableScorer(*(5 * torch.rand(shape, generator=torch.Generator().manual_seed(0))))


def log_odds(scores: torch.Tensor, index: int) -> float:
    p = scores.double().softmax(0)[index].item()
    return min(max(math.log(p / (1 - p)) if p < 1 else 99, -15), 8)


def by_definition(scorer: Scorer, graph: Graph, relation: int, typed: bool) -> dict[tuple[int, int, int], list[float]]:
    """Features of every pair that is no fact and no loop, one triple at a time."""
    known = {tuple(row) for row in graph.facts().to_rows().tolist()}
    types, further = EntityTypes.infer(graph), FurtherAnswers.of(graph)
    heads, tails = (types.of_slot(slot, relation, typed) for slot in (Slot.HEAD, Slot.TAIL))
    expected = {}
    for h, likely_head in zip(heads.entities.tolist(), heads.log_odds.clamp(-7, 7).tolist(), strict=True):
        for t, likely_tail in zip(tails.entities.tolist(), tails.log_odds.clamp(-7, 7).tolist(), strict=True):
            triple = Triples.from_rows([[h, relation, t]])
            if (h, relation, t) in known or h == t:
                continue
            with torch.no_grad():
                tail_scores = scorer.score_slot(Slot.TAIL, triple)[0, tails.entities]
                head_scores = scorer.score_slot(Slot.HEAD, triple)[0, heads.entities]
            n_tails = sum((h, relation, e) in known for e in range(graph.n_entities))
            n_heads = sum((e, relation, t) in known for e in range(graph.n_entities))
            expected[h, relation, t] = [
                log_odds(tail_scores, tails.entities.tolist().index(t)),
                log_odds(head_scores, heads.entities.tolist().index(h)),
                float(n_tails == 0), float(n_heads == 0), math.log(1 + n_tails), math.log(1 + n_heads),
                0.0 if n_tails else likely_head,
                0.0 if n_heads else likely_tail,
                further.log_odds(Slot.TAIL, relation, triple.head.numpy())[0],
                further.log_odds(Slot.HEAD, relation, triple.tail.numpy())[0],
                float((t, relation, h) in known),
                0.0,  # random facts agree in nothing
            ]  # fmt: skip
    return expected


def without_loops(graph: Graph) -> Graph:
    return replace(graph, **{split: facts[facts.head != facts.tail] for split, facts in graph.splits.items()})


@pytest.mark.parametrize("kept", [0, 1 << 24], ids=["computed twice", "kept"])
@pytest.mark.parametrize("block", [1, 30, 1 << 20])
@pytest.mark.parametrize("typed", [True, False])
def test_features_are_as_defined(monkeypatch: pytest.MonkeyPatch, typed: bool, block: int, kept: int) -> None:
    monkeypatch.setattr(candidate_facts, "SCORES_AT_ONCE", block)
    monkeypatch.setattr(candidate_facts, "MAX_KEPT", kept)
    graph = without_loops(make_graph(sizes=(14, 3, 3)))
    scorer = random_table(graph, 5, seed=1)
    for relation in range(3):
        found = features(search(scorer, graph, typed=typed).of_relation(relation, ALL))
        expected = by_definition(scorer, graph, relation, typed)
        assert list(found) == sorted(expected)
        for triple, values in found.items():
            assert values == pytest.approx(expected[triple], abs=1e-5)


def test_a_candidate_is_among_the_best_answers_to_one_of_its_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidate_facts, "PER_QUERY", 2)
    graph = make_graph(30, 3, (60, 8, 10))
    scorer = random_floats(graph)
    everything = search(scorer, graph).of_relation(0, ALL)
    expected = set()
    for given, margin in ((everything.triples.head, 0), (everything.triples.tail, 1)):
        for entity in given.unique():
            query = (given == entity).nonzero()[:, 0]
            best = query[everything.features[query, margin].argsort(descending=True)][:2]
            expected |= {rows(everything)[row] for row in best.tolist()}
    assert rows(search(scorer, graph).of_relation(0)) == sorted(expected)
    assert len(search(scorer, graph).of_relation(0, 200)) >= 200


def test_known_facts_and_loops_are_no_candidates() -> None:
    """Typed or not: loops only of a relation that has some."""
    graph = without_loops(make_graph(sizes=(60, 8, 10)))
    scorer = random_table(graph, 5, seed=1)
    one = replace(graph, valid=Triples.from_rows([[3, 1, 3]]))
    known = {tuple(row) for row in graph.facts().to_rows().tolist()}
    for typed in (True, False):
        for relation in range(3):
            found = rows(search(scorer, graph, typed=typed).of_relation(relation, ALL))
            assert not known & set(found)
            assert all(h != t for h, _, t in found)
            found = rows(search(scorer, one, typed=typed).of_relation(relation, ALL))
            assert {h for h, _, t in found if h == t} == ({*range(12)} - {3} if relation == 1 else set())


def test_only_empty_slots() -> None:
    graph = make_graph(sizes=(14, 3, 3))
    scorer = random_table(graph, 5, seed=1)
    facts = graph.facts()
    for relation in range(3):
        everything = features(search(scorer, graph).of_relation(relation, ALL))
        answered = set(facts.head[facts.relation == relation].tolist())
        expected = {triple: values for triple, values in everything.items() if triple[0] not in answered}
        assert expected
        assert features(search(scorer, graph, only_empty=True).of_relation(relation, ALL)) == expected


def test_a_functional_relation_lacks_no_second_answer() -> None:
    """`capital`: neither another capital of a country that has one, nor another country of a capital."""
    graph = graph_of(ladder("{i} capital {j}, {i} part EU", 25) + ", z part EU, w twin y0, w twin y1, w twin z")
    scorer = random_table(graph, 5, seed=1)
    names = graph.names_of(search(scorer, graph, typed=False).of_relation(0, ALL).triples)
    heads, tails = ({fact[slot] for fact in names} for slot in (0, 2))
    assert heads == {*graph.entities.ids} - {f"x{i}" for i in range(25)}
    assert tails == {*graph.entities.ids} - {f"y{i}" for i in range(25)}


@pytest.mark.parametrize("slot", [Slot.HEAD, Slot.TAIL])
def test_a_given_entity_has_the_candidates_of_its_query(slot: Slot) -> None:
    graph = make_graph(30, 3, (60, 8, 10))
    scorer = random_floats(graph)
    found = search(scorer, graph)
    everything = features(found.of_relation(1, ALL))
    for entity in range(30):
        expected = {
            triple: values for triple, values in everything.items() if triple[0 if slot is Slot.HEAD else 2] == entity
        }
        given = found.of_relation(1, ALL, (slot, entity))
        assert rows(given) == list(expected)
        assert given.features.tolist() == [pytest.approx(values, abs=1e-6) for values in expected.values()]
        assert bool(expected) == (1 in found.relations_of(slot, entity))


def test_directions_of_a_symmetric_relation_are_one_candidate() -> None:
    """With the mean features; the direction is that of the entity that was named first, unless it is known."""
    graph = graph_of(ladder("{i} borders {j}, {j} borders {i}, {i} borders c, c borders {i}", 6) + ", y0 borders x1")
    scorer, none = random_table(graph, 50, seed=1), torch.zeros(1, dtype=torch.bool)
    one_way = search(scorer, graph)
    assert one_way.traits.symmetric.all()
    both_ways = replace(one_way, traits=replace(one_way.traits, symmetric=none))
    merged, separate = (features(s.of_relation(0, ALL)) for s in (one_way, both_ways))
    known = {tuple(row) for row in graph.facts().to_rows().tolist()}
    backward = next((h, r, t) for h, r, t in merged if h > t)
    assert [triple for triple in merged if triple[0] > triple[2]] == [backward]
    assert backward[::-1] in known
    assert {frozenset((h, t)) for h, _, t in merged} == {frozenset((h, t)) for h, _, t in separate}
    for (h, r, t), values in merged.items():
        if (t, r, h) in separate:
            mean = (torch.tensor(separate[h, r, t]) + torch.tensor(separate[t, r, h])) / 2
            mean[REVERSE] = float((t, r, h) in known)  # what is known is no mean
            assert values == pytest.approx(mean.tolist(), abs=1e-6)


def test_a_fact_has_the_features_of_the_candidate_that_it_is() -> None:
    """Also of symmetric relations of which one direction is known: rated by itself or found by a search."""
    graph = graph_of(ladder("{i} borders {j}, {j} borders {i}, {i} borders c, c borders {i}", 6) + ", y0 borders x1")
    found = search(random_table(graph, 50, seed=1), graph)
    candidates = found.of_relation(0, ALL)
    assert (candidates.features[:, REVERSE] == 1).sum() == 1
    rated = found.rate(candidates.triples)
    torch.testing.assert_close(rated.features, candidates.features)


def test_where_a_query_has_one_answer_the_best_candidate_is_listed() -> None:
    graph = graph_of("a one b, a pair b, b pair a, a many b")
    triples = [("c", "one", "x"), ("c", "one", "y"), ("d", "one", "y"), ("c", "many", "x"), ("c", "many", "y"),
               ("c", "pair", "d"), ("x", "pair", "c"), ("x", "pair", "y")]  # fmt: skip
    names = graph_of("", entities="a b c d x y").entities
    relations = graph.relations
    ids = [[names.index(h), relations.index(r), names.index(t)] for h, r, t in triples]
    facts = CandidateFacts(Triples.from_rows(ids), torch.zeros(8).double(), torch.zeros(8, len(FEATURES)).double())
    is_one, is_pair = (torch.tensor([name == wanted for name in relations.ids]) for wanted in ("one", "pair"))
    none = torch.zeros_like(is_one)
    traits = RelationTraits(is_one | is_pair, none, is_pair, none)
    odds = torch.tensor([1.0, 2, 0, 0, 1, 5, 6, 7]).double()
    listed = [triples[row] for row in one_per_slot(facts, odds, traits).nonzero()[:, 0].tolist()]
    assert listed == [triples[row] for row in (1, 2, 3, 4, 5, 7)]
    inverse = replace(traits, inverse_functional=is_one)
    listed = [triples[row] for row in one_per_slot(facts, odds, inverse).nonzero()[:, 0].tolist()]
    assert listed == [triples[row] for row in (1, 3, 4, 5, 7)]
    odds[1], odds[2] = 0, 2  # d takes y, so c gets x
    listed = [triples[row] for row in one_per_slot(facts, odds, inverse).nonzero()[:, 0].tolist()]
    assert listed == [triples[row] for row in (0, 2, 3, 4, 5, 7)]
    assert len(one_per_slot(CandidateFacts.cat([]), odds[:0], inverse)) == 0


def test_one_pair_is_rated_as_among_all_candidates() -> None:
    """And is none where it is known, a loop, or excluded; both directions of a symmetric relation are rated alike."""
    graph = graph_of(
        ladder("{i} borders {j}, {j} borders {i}, {i} borders c, c borders {i}", 6)
        + ladder(", {i} capital {j}, {i} in Europe", 20)
        + ", z in Asia"
    )
    found = search(random_table(graph, 50, seed=1), graph, typed=False)
    for relation, name in enumerate(graph.relations.ids):
        everything = features(found.of_relation(relation, ALL))
        for head in range(0, graph.n_entities, 5):
            for tail in range(graph.n_entities):
                pair = found.of_pair(head, relation, tail)
                reverse = name == "borders" and (tail, relation, head) in everything
                expected = everything.get(
                    (head, relation, tail), everything.get((tail, relation, head)) if reverse else None
                )
                if reverse and (head, relation, tail) not in everything and not len(pair):
                    continue  # this direction is known
                assert len(pair) == (expected is not None)
                if expected is not None:
                    assert pair.features[0].tolist() == pytest.approx(expected, abs=1e-6)
