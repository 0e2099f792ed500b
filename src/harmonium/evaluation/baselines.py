"""Baselines that every model should beat: the frequency of candidates, and one-step rules between relations."""

import torch
from torch import Tensor

from harmonium.data.graph import Graph
from harmonium.data.index import CsrIndex, KnownAnswers
from harmonium.data.relation_rules import join, mine_rules
from harmonium.data.triples import Slot, Triples
from harmonium.model.scoring import Scorer, of_candidates

MIN_CONFIDENCE = 0.1  # of the rules that RuleBaseline uses
RULE_PRIOR_FAILURES = 5  # added to the failures of each rule, so that a rule seen a few times is not certain


class Frequency(Scorer):
    """Scores a candidate by how often it fills that slot of the relation in train; facts count by their weights."""

    def __init__(self, graph: Graph) -> None:
        self.n_entities = graph.n_entities
        self.counts: dict[Slot, tuple[Tensor, Tensor]] = {}  # (relation * n_entities + filler, ascending; how often)
        for slot in (Slot.HEAD, Slot.TAIL):
            fillers = graph.train.relation * graph.n_entities + graph.train[slot]
            pairs, inverse, counts = torch.unique(fillers, return_inverse=True, return_counts=True)
            if graph.train.weight is not None:
                counts = torch.zeros(len(pairs), dtype=torch.float64).index_add_(0, inverse, graph.train.weight)
            self.counts[slot] = pairs, counts

    def n_candidates(self, slot: Slot) -> int:
        return self.n_entities

    def score_slot(self, slot: Slot, queries: Triples, candidates: Tensor | None = None) -> Tensor:
        """(n, n_entities or m)."""
        relations, inverse = torch.unique(queries.relation, return_inverse=True)
        pairs, counts = self.counts[slot]
        starts = torch.searchsorted(pairs, relations * self.n_entities).tolist()
        ends = torch.searchsorted(pairs, (relations + 1) * self.n_entities).tolist()
        scores = torch.zeros(len(relations), self.n_entities)
        for row, relation, start, end in zip(scores, relations.tolist(), starts, ends, strict=True):
            row[pairs[start:end] - relation * self.n_entities] = counts[start:end].float()
        return of_candidates(scores, candidates)[inverse]


class RuleBaseline(Scorer):
    """Scores candidates by one-step rules over train alone: a noisy-or of the confidence of the rules that imply them."""

    def __init__(self, graph: Graph, confidence: float = MIN_CONFIDENCE) -> None:
        self.n_entities = graph.n_entities
        self.rules = mine_rules(graph.train, graph.n_entities, graph.n_relations, confidence)
        smoothed = self.rules.support / (self.rules.facts[self.rules.body] + RULE_PRIOR_FAILURES)
        self.weight = -torch.log1p(-smoothed).float()
        self.by_head = CsrIndex.build(self.rules.head, torch.arange(len(self.rules)))  # relation -> rules that imply it
        train = graph.train.positive()
        self.known = {s: KnownAnswers.build(s, train, graph.n_entities).index for s in (Slot.HEAD, Slot.TAIL)}

    def n_candidates(self, slot: Slot) -> int:
        return self.n_entities

    def score_slot(self, slot: Slot, queries: Triples, candidates: Tensor | None = None) -> Tensor:
        """(n, n_entities or m)."""
        scores = torch.zeros(len(queries) * self.n_entities)
        given = Slot.TAIL if slot is Slot.HEAD else Slot.HEAD
        for row, rule in join(self.by_head, queries.relation):
            for reversed, open_slot in ((False, slot), (True, given)):
                applies = self.rules.reversed[rule] == reversed
                query, applied = row[applies], rule[applies]
                keys = self.rules.body[applied] * self.n_entities + queries[given][query]
                for match, filler in join(self.known[open_slot], keys):
                    scores.index_add_(0, query[match] * self.n_entities + filler, self.weight[applied[match]])
        return of_candidates(scores.view(len(queries), -1), candidates)
