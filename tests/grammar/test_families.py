"""Laws of every family of constraints, and the grammar that adds them up."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from harmonium.config.settings import EvaluateConfig
from harmonium.data.graph import Graph
from harmonium.data.triples import Slot, Triples
from harmonium.data.vocabulary import Vocabulary
from harmonium.evaluation.evaluation import evaluate_scorer
from harmonium.grammar.family import Family
from harmonium.grammar.grammar import Grammar
from harmonium.grammar.known_facts import KnownFacts
from harmonium.grammar.names import words_of
from harmonium.grammar.parameters import FAMILIES, N_WEIGHTS, GrammarParameters, build_families
from harmonium.grammar.path_rules import PathRules
from harmonium.model.gradient_graph import GradientGraph
from harmonium.training.constraints import learn_constraints
from small import countries, small_vectors


@pytest.fixture(scope="module")
def graph() -> Graph:
    return countries()


@pytest.fixture(scope="module")
def vectors(graph: Graph) -> GradientGraph:
    return small_vectors(graph)


@pytest.fixture(scope="module")
def parameters(graph: Graph, vectors: GradientGraph) -> GrammarParameters:
    learned = learn_constraints(vectors, graph)
    assert learned is not None
    return learned


@pytest.fixture(scope="module")
def families(graph: Graph, parameters: GrammarParameters) -> list[Family]:
    train = graph.train
    rules = PathRules.from_tensors(parameters.rules.to_tensors(), train, graph.n_entities, graph.n_relations)
    return build_families(KnownFacts(graph, rules, ("train",)))


NUMBERS = range(len(FAMILIES))
NAMES = [family.name for family in FAMILIES]
SLOTS = [Slot.HEAD, Slot.TAIL]


@pytest.mark.parametrize("slot", SLOTS)
@pytest.mark.parametrize("number", NUMBERS, ids=NAMES)
def test_strengths_among_candidates_are_their_columns(families, graph, number: int, slot: Slot) -> None:
    family, given = families[number], np.arange(graph.n_entities)[::-1].copy()
    candidates = np.random.default_rng(0).permutation(graph.n_entities)[: graph.n_entities // 3]
    for relation in range(graph.n_relations):
        among = family.strengths_among(slot, relation, given, candidates)
        for strengths, columns in zip(family.strengths(slot, relation, given), among, strict=True):
            np.testing.assert_allclose(columns, strengths[:, candidates], atol=1e-12)


@pytest.mark.parametrize("slot", SLOTS)
@pytest.mark.parametrize("number", NUMBERS, ids=NAMES)
def test_strengths_are_finite_and_do_not_depend_on_the_block(families, graph, number: int, slot: Slot) -> None:
    family, given = families[number], np.arange(graph.n_entities)
    for relation in range(graph.n_relations):
        together = family.strengths(slot, relation, given)
        assert len(together) == len(family.constraints)
        alone = family.strengths(slot, relation, given[7:8])
        for whole, part in zip(together, alone, strict=True):
            assert whole.shape == (graph.n_entities, graph.n_entities)
            assert whole.dtype == np.float64
            assert np.isfinite(whole).all()
            assert (whole[7] == part[0]).all()


@pytest.mark.parametrize("number", NUMBERS, ids=NAMES)
def test_evidence_adds_up_to_the_strengths(families, graph, number: int) -> None:
    family = families[number]
    for slot in SLOTS:
        for relation in range(graph.n_relations):
            strengths = family.strengths(slot, relation, np.array([3]))
            for answer in (0, 4, 13, 85, 90):
                evidence = family.evidence(slot, relation, 3, answer)
                assert all(each.text and each.constraint for each in evidence)
                total = sum(float(strength[0, answer]) for strength in strengths)
                assert sum(each.strength for each in evidence) == pytest.approx(total, abs=1e-9)
                for head, step, tail in (fact for each in evidence for fact in each.facts):
                    fact = Triples.from_rows([[head, step, tail]])
                    assert graph.known_answers(Slot.TAIL, ("train",)).contain(fact).all()


@pytest.mark.parametrize("number", NUMBERS, ids=NAMES)
def test_evidence_adds_up_where_a_fact_is_hidden(families, graph, number: int) -> None:
    """For the hidden answer itself and for another candidate."""
    family = families[number]
    for head, relation, tail in graph.train.to_rows()[::7].tolist():
        for slot, given, answer in ((Slot.TAIL, head, tail), (Slot.HEAD, tail, head)):
            strengths = family.strengths(slot, relation, np.array([given]), np.array([answer]))
            for candidate in (answer, 5, 75):
                evidence = family.evidence(slot, relation, given, candidate, answer)
                total = sum(float(strength[0, candidate]) for strength in strengths)
                assert sum(each.strength for each in evidence) == pytest.approx(total, abs=1e-9)


@pytest.mark.parametrize("number", NUMBERS, ids=NAMES)
def test_a_hidden_fact_does_not_speak_for_itself(families, graph, number: int) -> None:
    family, train = families[number], graph.train
    for relation in range(graph.n_relations):
        facts = train[train.relation == relation]
        for slot, given, answer in ((Slot.TAIL, facts.head, facts.tail), (Slot.HEAD, facts.tail, facts.head)):
            known = family.strengths(slot, relation, given.numpy())
            hidden = family.strengths(slot, relation, given.numpy(), answer.numpy())
            rows = np.arange(len(facts))
            if family.name in ("values", "neighbours", "usual"):  # counts can only shrink
                assert (hidden[0][rows, answer] <= known[0][rows, answer] + 1e-9).all()
            others = hidden[0].copy()
            others[rows, answer] = 0
            assert np.isfinite(others).all()


def test_a_value_that_only_the_hidden_fact_supports_has_no_support(graph: Graph) -> None:
    """Two entities share an attribute and one has an answer: hidden, that answer is supported by nobody."""
    facts = Triples.from_rows([[0, 0, 2], [1, 0, 2], [0, 1, 3]])
    small = Graph(Vocabulary(list("abcd")), Vocabulary(["r", "s"]), facts, facts[:0], facts[:0])
    values = build_families(KnownFacts(small, PathRules.from_tensors(_no_rules(), facts, 4, 2)))[1]
    ((best, _), (hidden, _)) = (
        values.strengths(Slot.TAIL, 1, np.array([0]), answer) for answer in (None, np.array([3]))
    )
    assert best[0, 3] == pytest.approx((1 + 2.0 * 1) / (1 + 2.0), abs=1e-2)
    assert hidden[0, 3] == 0  # 0 of 0 entities with the attribute are left


def _no_rules() -> dict[str, torch.Tensor]:
    dtypes = {"relation": torch.int64, "is_head": torch.bool, "weight": torch.float64}
    columns = {name: torch.zeros(0, dtype=dtype) for name, dtype in dtypes.items()}
    return {**columns, "body": torch.zeros(0, 0, dtype=torch.int64)}


# The grammar ----------------------------------------------------------------------------------------------------------


def test_the_grammar_ranks_held_out_facts_better_than_its_vectors(graph, vectors, parameters) -> None:
    protocol = EvaluateConfig(split="valid")
    alone = evaluate_scorer(vectors, graph, protocol).metrics["mrr"]
    grammar = parameters.on(vectors, graph, ("train",))
    assert evaluate_scorer(grammar, graph, protocol).metrics["mrr"] > max(0.5, 2 * alone)


def test_harmony_is_the_weighted_sum_of_vectors_and_constraints(graph, vectors, parameters) -> None:
    grammar = parameters.on(vectors, graph, ("train",)).prepare()
    assert isinstance(grammar, Grammar)
    for slot in SLOTS:
        queries = graph.valid
        scores, exact = grammar.score_slot(slot, queries), grammar.exact_scores(slot, queries)
        assert exact is not None
        rows, candidates = torch.arange(len(queries)).repeat_interleave(5), torch.arange(5).repeat(len(queries))
        values, errors = exact.of(rows, candidates)
        assert (errors < 1e-6).all()
        assert torch.allclose(scores[rows, candidates].double(), values, atol=1e-4)
        vector_scores = vectors.prepare().score_slot(slot, queries).detach().double()
        for row in (0, 1, len(queries) - 1):
            relation = int(queries.relation[row])
            given = int(queries.head[row] if slot is Slot.TAIL else queries.tail[row])
            weight = float(parameters.weights.of(slot, relation)[0])
            for candidate in (0, 3):
                parts = grammar.contributions(slot, relation, given, candidate)
                total = weight * float(vector_scores[row, candidate]) + sum(part.value for part in parts)
                assert total == pytest.approx(float(scores[row, candidate].detach()), abs=1e-4)


def test_a_family_left_out_has_no_say(graph, vectors, parameters) -> None:
    without = parameters.on(vectors, graph, ("train",), without=NAMES)
    queries = graph.valid
    assert (without.symbolic(Slot.TAIL, queries) == 0).all()
    with pytest.raises(Exception, match="no family of constraints 'nonsense'; there are paths, values"):
        parameters.on(vectors, graph, without=["nonsense"])


def test_parameters_are_read_as_they_were_written(graph, vectors, parameters) -> None:
    tensors = parameters.to_tensors()
    again = GrammarParameters.from_tensors(tensors, graph)
    queries = graph.valid
    for slot in SLOTS:
        first, second = (p.on(vectors, graph, ("train",)).score_slot(slot, queries) for p in (parameters, again))
        assert torch.equal(first, second)
    for damaged in (
        {**tensors, "weights": tensors["weights"][:, 1:]},
        {**tensors, "weights": torch.full((2, graph.n_relations, N_WEIGHTS), torch.nan, dtype=torch.float64)},
        {name: tensor for name, tensor in tensors.items() if name != "weights"},
        {name: tensor for name, tensor in tensors.items() if name != "rules.body"},
    ):
        with pytest.raises(ValueError):
            GrammarParameters.from_tensors(damaged, graph)


def test_words_of_names() -> None:
    assert words_of("Jordanian dinar") == ["jordanian", "dinar", "jord…", "dina…"]
    assert words_of("Copper(II) oxide-64") == ["copper", "ii", "oxide", "64", "copp…", "oxid…"]
    assert words_of("Málaga") == words_of("malaga")
