"""Harmonies and ranks of a whole grammar are those of an independent program: walks, names and sums, one by one.

The other program knows only lists of facts and names, and reads what families mean from their documentation. Entities have
twins with the same facts, words and vectors, so that every true answer ties with another candidate.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from harmonium.config.settings import EvaluateConfig, ModelConfig
from harmonium.data.graph import Graph
from harmonium.data.triples import Slot, Triples
from harmonium.data.vocabulary import Vocabulary
from harmonium.evaluation.evaluation import evaluate_scorer
from harmonium.grammar.grammar import Grammar, Weights
from harmonium.grammar.names import words_of
from harmonium.grammar.parameters import FAMILIES, N_WEIGHTS, GrammarParameters
from harmonium.grammar.path_rules import PathRules, RelationRules
from harmonium.grammar.walks import Steps
from harmonium.model.build import build_model
from harmonium.model.gradient_graph import GradientGraph
from plain_walks import count_walks

N, R = 24, 3  # entities before they are twinned, and relations
WORDS = ["copper", "oxide", "ii", *(str(number) for number in range(60, 80))]  # common ones and rare ones
SLOTS = (Slot.HEAD, Slot.TAIL)
Fact = tuple[int, int, int]


@pytest.fixture(scope="module")
def graph() -> Graph:
    random = np.random.default_rng(3)
    rows = np.unique(np.stack([random.integers(0, size, 80) for size in (N, R, N)], axis=1), axis=0)
    random.shuffle(rows)
    train, test = rows[:-8], rows[-8:]
    twinned = np.concatenate([train + np.array([h, 0, t]) for h, t in itertools.product((0, N), repeat=2)])
    names = [" ".join(random.choice(WORDS, random.integers(1, 4), replace=False)) for _ in range(N)]
    entities = Vocabulary([f"id{i}" for i in range(2 * N)], [*names, *(name.upper() for name in names)])
    relations = Vocabulary([f"r{i}" for i in range(R)], kind="relation")
    return Graph(entities, relations, *(Triples.from_rows(part.tolist()) for part in (twinned, test[:3], test[3:])))


@pytest.fixture(scope="module")
def vectors(graph: Graph) -> GradientGraph:
    model = build_model(ModelConfig("distmult", 6, harmony=False, normalise=False), graph.n_entities, R, seed=1).eval()
    with torch.no_grad():
        model.entity[N:] = model.entity[:N]
    return model


@pytest.fixture(scope="module")
def parameters(graph: Graph) -> GrammarParameters:
    """Random rules and weights, some of them negative and some zero."""
    random = np.random.default_rng(4)
    bodies = [(3,), (1, 2), (0, 3, 1), (4, 4), (2, 5)]
    rules = {
        (slot, relation): RelationRules(bodies, random.normal(size=len(bodies)))
        for slot in SLOTS
        for relation in range(R)
    }
    weights = random.normal(size=(2, R, N_WEIGHTS))
    weights[1, 0, 1:4] = 0
    return GrammarParameters(Weights(torch.from_numpy(weights)), PathRules(Steps.build(graph.train, 2 * N, R), rules))


@pytest.fixture(scope="module")
def grammar(graph: Graph, vectors: GradientGraph, parameters: GrammarParameters) -> Grammar:
    return parameters.on(vectors, graph, ("train",)).prepare()


# An independent program -----------------------------------------------------------------------------------------------


ByHand = Callable[["Plain", Slot, int, int, int], list[float]]
BY_HAND: dict[str, ByHand] = {}  # strengths of the constraints of a family for (slot, relation, given, candidate)


def by_hand(strengths: ByHand) -> ByHand:
    """Declare what a family of this name computes; a family without it fails here."""
    BY_HAND[strengths.__name__] = strengths
    return strengths


class Plain:
    """The facts as sets."""

    def __init__(self, graph: Graph, rules: PathRules) -> None:
        self.facts: list[Fact] = [tuple(row) for row in graph.train.to_rows().tolist()]  # type: ignore[misc]
        self.n, self.rules = graph.n_entities, rules
        self.steps: dict[int, set[tuple[int, int]]] = {e: set() for e in range(self.n)}  # (step, entity) of each entity
        for head, relation, tail in self.facts:
            self.steps[head].add((relation, tail))
            self.steps[tail].add((relation + R, head))
        self.words = {e: set(words_of(graph.entities.name(e))) for e in range(self.n)}
        pairs = [pair for of_entity in self.steps.values() for pair in of_entity]
        self.frequency = {pair: pairs.count(pair) for pair in set(pairs)}

    def answers(self, slot: Slot, relation: int) -> dict[int, set[int]]:
        """The known entities of the queries of a relation, with their answers."""
        found: dict[int, set[int]] = {}
        for head, r, tail in self.facts:
            given, answer = (head, tail) if slot is Slot.TAIL else (tail, head)
            if r == relation:
                found.setdefault(given, set()).add(answer)
        return found

    def having(self, attribute: object) -> set[int]:
        """Entities with a (step, entity), or with a step to anything."""
        return {e for e, pairs in self.steps.items() if attribute in pairs or attribute in {step for step, _ in pairs}}

    def cosine(self, first: int, second: int) -> float:
        def weight(pair: tuple[int, int]) -> float:
            return math.log(self.n / self.frequency[pair]) if self.frequency[pair] >= 2 else 0.0

        def length(entity: int) -> float:
            return math.sqrt(sum(weight(pair) ** 2 for pair in self.steps[entity]))

        common = sum(weight(pair) ** 2 for pair in self.steps[first] & self.steps[second])
        return common / (length(first) * length(second)) if common else 0.0

    def roles(self, slot: Slot, relation: int, candidate: int) -> float:
        """Naive Bayes over the other slots that the candidate fills; it counts itself as one that does not fill this one."""
        target = relation if slot is Slot.HEAD else relation + R
        filling = {step: self.having(step) for step in range(2 * R)}
        fills = filling[target] - {candidate}
        n_with_roles = sum(bool(pairs) for pairs in self.steps.values())
        others = n_with_roles - len(fills)
        log_odds = math.log((len(fills) + 0.5) / (others + 0.5))
        for role in {step for step, _ in self.steps[candidate]} - {target}:
            both = len(filling[role] & fills)
            log_odds += math.log((both + 0.5) / (len(fills) + 1))
            log_odds -= math.log((len(filling[role]) - both + 0.5) / (others + 1))
        return min(7.0, max(-7.0, log_odds))

    def n_members(self, slot: Slot, relation: int) -> int:
        return len(set().union(*self.answers(slot, relation).values()))


def confidence_of(answered: list[set[int]], candidate: int, usual: float) -> float:
    """The share of the entities with a trait, given by their answers, that have the candidate; 0 if none has."""
    count = sum(candidate in of_entity for of_entity in answered)
    return min((count + 2 * usual) / (len(answered) + 2), 0.999) if count else 0.0


@by_hand
def paths(plain: Plain, slot: Slot, relation: int, given: int, candidate: int) -> list[float]:
    of_relation, total = plain.rules.by_relation[slot, relation], 0.0
    for body, weight in zip(of_relation.bodies, of_relation.weights, strict=True):
        walked = body if slot is Slot.TAIL else tuple((step + R) % (2 * R) for step in reversed(body))
        total += weight * math.log2(1 + count_walks(plain.facts, R, walked, given)[candidate])
    return [total]


@by_hand
def values(plain: Plain, slot: Slot, relation: int, given: int, candidate: int) -> list[float]:
    answers = plain.answers(slot, relation)
    usual = sum(candidate in of_entity for of_entity in answers.values()) / len(answers)
    attributes: set[object] = {pair for pair in plain.steps[given] if plain.frequency[pair] >= 2}
    attributes |= {step for step, _ in plain.steps[given]}
    best, together = 0.0, 0.0
    for attribute in attributes:
        answered = [answers[e] for e in plain.having(attribute) if e in answers]
        confidence = confidence_of(answered, candidate, usual)
        if confidence:
            best, together = max(best, confidence), together + max(0.0, math.log(confidence / usual))
    return [best, together / math.sqrt(max(1, len(attributes)))]


@by_hand
def neighbours(plain: Plain, slot: Slot, relation: int, given: int, candidate: int) -> list[float]:
    having = [e for e, of_entity in plain.answers(slot, relation).items() if candidate in of_entity and e != given]
    return [math.log1p(10 * sum(plain.cosine(given, e) ** 2 for e in having))]


@by_hand
def usual(plain: Plain, slot: Slot, relation: int, given: int, candidate: int) -> list[float]:
    count = sum(candidate in of_entity for of_entity in plain.answers(slot, relation).values())
    return [math.log1p(count), float(count > 0), plain.roles(slot, relation, candidate)]


@by_hand
def names(plain: Plain, slot: Slot, relation: int, given: int, candidate: int) -> list[float]:
    everywhere = [word for words in plain.words.values() for word in words]
    count = {word: everywhere.count(word) for word in set(everywhere)}
    first, second = plain.words[given], plain.words[candidate]

    def rarity(word: str) -> float:
        return math.log(plain.n / count[word])

    compared = {word for word in first if 2 <= count[word] <= max(2, 0.3 * plain.n)}
    common = sum(rarity(word) ** 2 for word in compared & second)
    lengths = [math.sqrt(sum(rarity(word) ** 2 for word in words)) for words in (first, second)]
    inside = [common / math.prod(lengths), float(second <= first), float(first <= second)]
    members = set().union(*plain.answers(slot, relation).values()) - {candidate}
    fit = 0.0
    for word in second:
        with_word = sum(word in plain.words[e] for e in members)
        fit += math.log((max(with_word, 0) + 0.5) / (plain.n_members(slot, relation) + 1))
        n_others = plain.n - plain.n_members(slot, relation)
        fit -= math.log((count[word] - with_word + 0.5) / (n_others + 1))
    fit = min(7.0, max(-7.0, fit / math.sqrt(len(second))))
    answers = plain.answers(slot, relation)
    usual = sum(candidate in of_entity for of_entity in answers.values()) / len(answers)
    sharing = [[answers[e] for e in answers if word in plain.words[e]] for word in compared]
    like = max((confidence_of(answered, candidate, usual) for answered in sharing), default=0.0)
    return [*(inside if given != candidate else [0.0, 0.0, 0.0]), fit, like]


@pytest.fixture(scope="module")
def plain(graph: Graph, parameters: GrammarParameters) -> Plain:
    return Plain(graph, parameters.rules)


@pytest.fixture(scope="module")
def harmonies(plain: Plain, parameters: GrammarParameters, vectors: GradientGraph) -> Callable[..., list[float]]:
    entities, relations = (table.detach().double().numpy() for table in (vectors.entity, vectors.relation))

    def of_all(slot: Slot, relation: int, given: int) -> list[float]:
        scores = entities @ (relations[relation] * entities[given])  # DistMult is symmetric
        weights = parameters.weights.of(slot, relation)
        totals = []
        for candidate in range(2 * N):
            strengths = [scores[candidate]]
            for family in FAMILIES:
                strengths += BY_HAND[family.name](plain, slot, relation, given, candidate)
            totals.append(float(np.dot(weights, strengths)))
        return totals

    return of_all


@pytest.mark.parametrize("number", range(len(FAMILIES)), ids=[family.name for family in FAMILIES])
@pytest.mark.parametrize("slot", SLOTS)
def test_strengths_are_those_of_an_enumeration(grammar: Grammar, plain: Plain, number: int, slot: Slot) -> None:
    family = grammar.families[number]
    for relation in range(R):
        strengths = family.strengths(slot, relation, np.array([1, 9, N + 4]))
        for row, given in enumerate((1, 9, N + 4)):
            for candidate in (0, 1, 5, 9, N, N + 1, N + 9):
                expected = BY_HAND[family.name](plain, slot, relation, given, candidate)
                found = [strength[row, candidate] for strength in strengths]
                assert found == pytest.approx(expected, abs=1e-9), (relation, given, candidate)


def test_ranks_are_those_of_the_sums_in_float64(graph: Graph, grammar: Grammar, harmonies) -> None:
    known = {tuple(row) for row in graph.facts().to_rows().tolist()}
    better, tied = [], []
    for slot in SLOTS:
        for head, relation, tail in graph.test.to_rows().tolist():
            given, truth = (head, tail) if slot is Slot.TAIL else (tail, head)
            totals = harmonies(slot, relation, given)
            fact = [(given, relation, e) if slot is Slot.TAIL else (e, relation, given) for e in range(2 * N)]
            ahead = [totals[e] - totals[truth] for e in range(2 * N) if e != truth and fact[e] not in known]
            better.append(sum(difference > 1e-9 for difference in ahead))
            tied.append(sum(abs(difference) <= 1e-9 for difference in ahead))
    assert sum(tied) >= len(tied)  # each with its twin
    for chunk in (None, 1, 3):
        ranks = evaluate_scorer(grammar, graph, EvaluateConfig(split="test"), chunk=chunk).ranks
        assert ranks.better.tolist() == better
        assert ranks.tied.tolist() == tied


def test_one_fact_is_scored_as_it_is_ranked(graph: Graph, grammar: Grammar, harmonies) -> None:
    for slot, (head, relation, tail) in itertools.product(SLOTS, graph.test.to_rows().tolist()):
        given, truth = (head, tail) if slot is Slot.TAIL else (tail, head)
        exact = grammar.exact_scores(slot, Triples.from_rows([[head, relation, tail]]))
        assert exact is not None
        assert exact.of_truth[0].item() == pytest.approx(harmonies(slot, relation, given)[truth], abs=1e-9)
