"""A reason for each predicted fact, in words: the strongest evidence that the known facts give.

Kinds of evidence: a rule (a known fact between the same two entities that often comes with the predicted one), a path of
two known facts, similar entities (by the cosine of their vectors) of which the same is known, a frequent value. Counts
are those of the graph. In a run with a grammar a reason is the constraint that adds most to the harmony of the fact
(constraint_reasons.py); in one without it is evidence beside the score: `explain` says how that came about.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F

from harmonium.answers.constraint_reasons import LAST, most_telling
from harmonium.answers.two_step_paths import PathIndex
from harmonium.data.graph import Graph
from harmonium.data.index import CsrIndex
from harmonium.data.relation_rules import Rules, mine_rules, relations_by_pair
from harmonium.data.triples import Slot, Triples
from harmonium.grammar.family import readable
from harmonium.grammar.grammar import Grammar
from harmonium.model.gradient_graph import GradientGraph

MIN_SHARE = 0.1  # of the cases in which a rule or a path holds
REASON_PRIOR_FAILURES = 3  # cases in which each is assumed to have failed beforehand
NEAREST, MIN_NEAREST = 10, 3  # similar entities looked at, and at least to be had
MIN_SIMILAR = 2  # of them that must have the value
LIFT = 1.3  # by how much these must exceed the share of all entities
MIN_FREQUENCY = 0.05  # of a frequent value
FREQUENCY_WEIGHT = 0.9  # of frequency beside other evidence, which says more about this fact
MAX_SIMILARITIES = 1 << 24  # similarities computed at once
KIND_OF_FAMILY = {"paths": "path", "values": "value", "neighbours": "similar", "names": "name", "usual": "frequent"}
NO_REASON = "no similar known fact: by the model's score alone"
OTHER = {Slot.HEAD: Slot.TAIL, Slot.TAIL: Slot.HEAD}


@dataclass(frozen=True)
class Reason:
    """Evidence for one fact."""

    kind: str  # rule, path, value, similar, name, frequent or none
    strength: float  # 0 to 1: share of comparable cases in which it was right, shrunk where they are few
    text: str


def find_reasons(known: Evidence, triples: Triples, progress: Callable[[int], None] | None = None) -> list[Reason]:
    """The strongest evidence for each fact: why it is likely, by what the graph knows."""
    if known.grammar is not None:
        return _of_constraints(known, known.grammar, triples, progress)
    best = [Reason("none", 0.0, NO_REASON)] * len(triples)
    for evidence in (_rules(known, triples), _paths(known, triples, progress), _similar(known, triples)):
        for row, reason in evidence:
            if reason.strength > best[row].strength:
                best[row] = reason
    return best


class Evidence:
    """What reasons are made of: what a graph knows, in indexes that are built on first use, and vectors of entities."""

    def __init__(self, graph: Graph, model: GradientGraph, grammar: Grammar | None = None) -> None:
        self.grammar = grammar
        self.graph, self.model, self.facts = graph, model, graph.facts()
        self.n_entities, self.n_relations = graph.n_entities, graph.n_relations
        self.answers = {slot: graph.keep_known_answers(slot) for slot in OTHER}

    @cached_property
    def rules(self) -> tuple[Rules, dict[tuple[int, int, bool], int]]:
        """The rules of the graph, and their numbers by body, head and direction."""
        facts = replace(self.facts, weight=None)  # reasons name numbers of facts
        rules = mine_rules(facts, self.n_entities, self.n_relations, MIN_SHARE)
        columns = (column.tolist() for column in (rules.body, rules.head, rules.reversed))
        return rules, {key: number for number, key in enumerate(zip(*columns, strict=True))}

    @cached_property
    def pairs(self) -> CsrIndex:
        """head * n_entities + tail -> relations between the two."""
        return relations_by_pair(self.facts, self.n_entities)

    @cached_property
    def paths(self) -> PathIndex:
        return PathIndex(self.facts, self.n_entities, self.n_relations)

    def fact(self, head: int, relation: int, tail: int) -> str:
        return " ".join((self.entity(head), self.relation(relation), self.entity(tail)))

    def step(self, start: int, step: int, end: int) -> str:
        """The fact of one step of a path."""
        if step < self.n_relations:
            return self.fact(start, step, end)
        return self.fact(end, step - self.n_relations, start)

    def entity(self, entity: int) -> str:
        return self.graph.entities.name(entity)

    def relation(self, relation: int) -> str:
        return readable(self.graph.relations.name(relation))


# Constraints ----------------------------------------------------------------------------------------------------------


def _of_constraints(
    known: Evidence, grammar: Grammar, triples: Triples, progress: Callable[[int], None] | None
) -> list[Reason]:
    """What the constraints of the run say for each fact as an answer for its tail or, failing that, for its head."""
    tellings = most_telling(grammar, Slot.TAIL, triples, known.facts, progress)
    weak = [row for row, telling in enumerate(tellings) if telling is None or telling.family in LAST]
    as_heads = most_telling(grammar, Slot.HEAD, triples[torch.tensor(weak, dtype=torch.int64)], known.facts)
    for row, telling in zip(weak, as_heads, strict=True):
        if telling is not None and (tellings[row] is None or telling.family not in LAST):
            tellings[row] = telling
    return [
        Reason("none", 0.0, NO_REASON)
        if telling is None
        else Reason(KIND_OF_FAMILY[telling.family], 1 - math.exp(-telling.gain), telling.text)
        for telling in tellings
    ]


# Rules ----------------------------------------------------------------------------------------------------------------


def _rules(known: Evidence, triples: Triples) -> Iterator[tuple[int, Reason]]:
    """Known facts between the two entities of a triple, whose relation often comes with that of the triple."""
    rules, number = known.rules
    for reversed, heads, tails in ((False, triples.head, triples.tail), (True, triples.tail, triples.head)):
        row, body = known.pairs.lookup(heads * known.n_entities + tails)
        for triple, relation in zip(row.tolist(), body.tolist(), strict=True):
            rule = number.get((relation, int(triples.relation[triple]), reversed))
            if rule is not None:
                yield triple, _rule_reason(known, triples[triple : triple + 1], rules, rule)


def _rule_reason(known: Evidence, triple: Triples, rules: Rules, rule: int) -> Reason:
    head, relation, tail = triple.to_rows()[0].tolist()
    body, support = int(rules.body[rule]), int(rules.support[rule])
    cases = int(rules.facts[body])
    if not rules.reversed[rule]:
        text = f"known: {known.fact(head, body, tail)}; {support:,} of {cases:,} such facts come with this one"
    elif body == relation:
        fact = known.fact(tail, body, head)
        text = f"known the other way round: {fact}; {support:,} of {cases:,} such facts hold both ways"
    else:
        text = f"known: {known.fact(tail, body, head)}; {support:,} of {cases:,} such facts come with this one"
    return Reason("rule", support / (cases + REASON_PRIOR_FAILURES), text)


# Paths ----------------------------------------------------------------------------------------------------------------


def _paths(known: Evidence, triples: Triples, progress: Callable[[int], None] | None) -> Iterator[tuple[int, Reason]]:
    """The path of two known facts whose ends have the relation most often."""
    index = known.paths
    for row, (head, relation, tail) in enumerate(triples.to_rows().tolist()):
        if progress:
            progress(1)
        best = None
        for path in index.between(head, tail):
            support, cases = index.confidence(path, relation)
            strength = support / (cases + REASON_PRIOR_FAILURES)
            if support and support >= MIN_SHARE * cases and (best is None or strength > best[0]):
                best = strength, path, support, cases
        if best is not None:
            strength, path, support, cases = best
            steps = known.step(head, path.first, path.middle), known.step(path.middle, path.second, tail)
            text = f"known: {' and '.join(steps)}; {support:,} of {cases:,} such pairs have this relation"
            yield row, Reason("path", strength, text)


# Similar entities and frequent values ---------------------------------------------------------------------------------


def _similar(known: Evidence, triples: Triples) -> Iterator[tuple[int, Reason]]:
    """Entities similar to the head that have the tail, entities similar to the tail that the head has, and frequency."""
    for slot in OTHER:
        for relation in triples.relation.unique().tolist():
            fillers = known.facts[slot][known.facts.relation == relation].unique()
            if not len(fillers):
                continue
            vectors = F.normalize(_vectors(known, fillers), dim=1)
            rows = (triples.relation == relation).nonzero()[:, 0]
            for chunk in rows.split(max(1, MAX_SIMILARITIES // len(fillers))):
                queries = triples[chunk]
                similarity = F.normalize(_vectors(known, queries[slot]), dim=1) @ vectors.T
                similarity[fillers[None, :] == queries[slot][:, None]] = -torch.inf
                nearest = similarity.topk(min(NEAREST, len(fillers)), dim=1)
                for row, ids, cosine in zip(chunk.tolist(), fillers[nearest.indices], nearest.values, strict=True):
                    triple = triples[row : row + 1]
                    yield from ((row, r) for r in _of_slot(known, triple, slot, ids[cosine > -torch.inf], len(fillers)))


@torch.no_grad()
def _vectors(known: Evidence, ids: Tensor) -> Tensor:
    """(n, entity_dim) float32."""
    return known.model.entities(ids).detach().float().cpu()


def _of_slot(known: Evidence, triple: Triples, slot: Slot, nearest: Tensor, n_fillers: int) -> Iterator[Reason]:
    """How many entities similar to the one in `slot` are known in its place, and how many of all are."""
    answers = known.answers[slot].of(triple)[1]
    similar = nearest[torch.isin(nearest, answers)]
    share, base = len(similar) / max(1, len(nearest)), len(answers) / n_fillers
    if len(nearest) >= MIN_NEAREST and len(similar) >= MIN_SIMILAR and share >= LIFT * base:
        count = f"{len(similar) if share < 1 else 'all'} of the {len(nearest)}"
        names = _list([known.entity(index) for index in similar[:3].tolist()])
        text = f"{count} most similar entities with this relation have this value, such as {names}"
        if slot is Slot.TAIL:
            text = (
                f"the same is known of {count} values most similar to {known.entity(int(triple.tail))}, such as {names}"
            )
        yield Reason(
            "similar", len(similar) / (len(nearest) + REASON_PRIOR_FAILURES), f"{text} ({_percent(base)} of all)"
        )
    elif base >= MIN_FREQUENCY and len(answers) >= MIN_SIMILAR:
        only = "only " * (base < 0.5)
        count = f"{len(answers):,} of {n_fillers:,}"
        text = f"{only}a frequent value: {count} entities with this relation have it"
        if slot is Slot.TAIL:
            text = f"{only}a frequent head: {count} tails of this relation have it"
        yield Reason("frequent", FREQUENCY_WEIGHT * base, text)


def _percent(share: float) -> str:
    return "under 1 %" if share < 0.005 else f"{share:.0%}".replace("%", " %")


def _list(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
