"""Tokens: an entity as it appears in one fact, near the others that really play the same role.

A token adds to the composed vector x of a fact one unit that says how true the fact is:

    h = (x / |x|,  t / sqrt(lambda)),    t = logistic(slope * score + intercept)

t is what the unit settles at: t * z plus the entropy of t is largest at logistic(z), where z is the harmony of the fact in
units learned for its relation. Squared distances of tokens are 2 (1 - cosine of composed vectors) + (t - t')^2 / lambda:
with lambda = infinity tokens are composed vectors of unit length (the type), a small lambda lets truth alone count.

The score is that of all that a run has learned, constraints such as paths and names included; ranking does not depend on
tokens. Why a truth unit and no learned S: docs/decisions/027-tokens-with-a-truth-unit.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from harmonium.data.graph import Graph
from harmonium.data.triples import Slot, Triples
from harmonium.errors import HarmoniumError
from harmonium.kernels.lbfgs import minimise
from harmonium.model.scoring import EmbeddingScorer, Scorer
from harmonium.run import manifest
from harmonium.run.run import Run
from harmonium.runtime import schema

FAITHFULNESS = 0.5  # lambda: the best on atlas and UMLS, on facts held out for validation (benchmarks/bench_tokens.py)
SIDES = (Slot.HEAD, Slot.TAIL)
FILE, METHOD = "tokens.json", 1
MAX_FACTS, MIN_FACTS = 1000, 20  # held-out facts of a side that are used, and below which known ones take their place
FALSE_CANDIDATES = 64  # of a slot of a relation, shared by its queries
QUERIES_AT_ONCE = 256
ITERATIONS = 200


@dataclass(frozen=True)
class TruthUnit:
    """t = logistic(slope * score + intercept), with a slope and an intercept for each slot of each relation."""

    slope: dict[str, list[float]]  # of "head" and "tail": by relation
    intercept: dict[str, list[float]]

    def truth(self, slot: Slot, relation: int, scores: Tensor) -> Tensor:
        """How true facts of a relation with these scores are, 0 to 1; not calibrated: `OpenRun.probabilities` is."""
        return torch.sigmoid(self.slope[slot][relation] * scores + self.intercept[slot][relation])


@dataclass(frozen=True, eq=False)
class RoleTokens:
    """The candidates for the open slot of one query, as they would appear in it."""

    composed: Tensor  # (n, dim) of unit length
    truth: Tensor  # (n,)

    def tokens(self, faithfulness: float = FAITHFULNESS) -> Tensor:
        """(n, dim + 1)."""
        if not faithfulness > 0:
            raise HarmoniumError(f"faithfulness (lambda) must be positive, not {faithfulness}")
        return torch.cat([self.composed, self.truth[:, None] / math.sqrt(faithfulness)], dim=1)


@dataclass(frozen=True, eq=False)
class TokenSpace:
    """What tokens are made of: vectors, what scores facts, and the truth unit."""

    vectors: EmbeddingScorer
    scorer: Scorer
    unit: TruthUnit

    @torch.no_grad()
    def role(self, slot: Slot, query: Triples, candidates: Tensor, known: Tensor | None = None) -> RoleTokens:
        """The candidates (n,) in the open slot of a query (one row); facts `known` (n,) bool to be true are just that."""
        entities = self.vectors.entity_vectors.of(candidates.to(self.vectors.device))
        composed = self.vectors.slot_map(slot, query).apply(entities)
        scores = self.scorer.score_slot(slot, query, candidates)[0]
        truth = self.unit.truth(slot, int(query.relation), scores).to(composed)
        return RoleTokens(F.normalize(composed, dim=-1), truth if known is None else truth.masked_fill(known, 1))


# Learning -------------------------------------------------------------------------------------------------------------


def truth_unit_for(run: Run, scorer: Scorer) -> TruthUnit:
    """The truth unit of a run: learned on first use by what knows train facts alone (`scorer`), then kept in its folder."""

    def compute() -> _Kept:
        return _Kept(METHOD, learn_truth_unit(scorer, run.graph, run.config.train.seed))

    parse = partial(_parse, n_relations=run.graph.n_relations)
    return manifest.compute_once(run.path, run.fingerprint, FILE, parse, compute).unit


@torch.no_grad()
def learn_truth_unit(scorer: Scorer, graph: Graph, seed: int = 0) -> TruthUnit:
    """Logistic regression that tells validation facts from false ones with another entity seen in the slot.

    The slope and the intercept of a slot of a relation are common ones plus deviations with a Gaussian prior: a convex
    problem of seconds. Test facts play no part. A graph without validation facts lends known ones.
    """
    generator = torch.Generator().manual_seed(seed)
    held_out = graph.valid.positive()
    facts = held_out if len(held_out) >= MIN_FACTS else graph.train.positive()
    examples = _Examples()
    for slot in SIDES:
        chosen = facts[torch.randperm(len(facts), generator=generator)[:MAX_FACTS]]
        known = graph.known_answers(slot, ("train", "valid"), chosen)
        seen = graph.slot_candidates(slot, ("train", "valid"))
        for relation in chosen.relation.unique().tolist():
            candidates = seen.lookup(torch.tensor([relation]))[1]
            sample = candidates[torch.randperm(len(candidates), generator=generator)[:FALSE_CANDIDATES]]
            queries = chosen[chosen.relation == relation]
            for rows in torch.arange(len(queries)).split(QUERIES_AT_ONCE):
                part = queries[rows]
                columns = {s: part[s].repeat_interleave(len(sample)) for s in Slot} | {slot: sample.repeat(len(part))}
                is_false = ~known.contain(Triples(*(columns[s] for s in Slot))).view(len(part), -1)
                scores = scorer.score_slot(slot, part, sample)
                examples.add(slot, relation, scorer.score_facts(slot, part), scores, is_false)
    return examples.fit(graph.n_relations)


@dataclass
class _Examples:
    """Scores of true and of false facts; the false ones of a query weigh as much as its true one."""

    scores: list[Tensor] = field(default_factory=list)
    labels: list[Tensor] = field(default_factory=list)
    weights: list[Tensor] = field(default_factory=list)
    groups: list[Tensor] = field(default_factory=list)  # slots of relations: relation, or n_relations + relation
    keys: dict[tuple[Slot, int], int] = field(default_factory=dict)

    def add(self, slot: Slot, relation: int, true: Tensor, false: Tensor, is_false: Tensor) -> None:
        """The scores of true facts (q,) and of candidates (q, n), of which some are false."""
        has_false = is_false.any(1)
        weight = (is_false / is_false.sum(1, keepdim=True).clamp(min=1))[is_false]
        scores = torch.cat([true[has_false].cpu(), false.cpu()[is_false]]).double()
        n_true = int(has_false.sum())
        self.scores.append(scores)
        self.labels.append((torch.arange(len(scores)) < n_true).double())
        self.weights.append(torch.cat([torch.ones(n_true), weight]).double())
        self.groups.append(torch.full((len(scores),), self.keys.setdefault((slot, relation), len(self.keys))))

    def fit(self, n_relations: int) -> TruthUnit:
        scores, labels = torch.cat(self.scores), torch.cat(self.labels)
        weights, groups = torch.cat(self.weights), torch.cat(self.groups)
        mean, scale = scores.mean().item(), max(scores.std().item(), 1e-9) if len(scores) > 1 else 1.0
        inputs = torch.stack([(scores - mean) / scale, torch.ones_like(scores)], dim=1)
        start = torch.tensor([1.0, 0.0]).double(), torch.zeros(len(self.keys), 2).double()

        def loss(common: Tensor, deviations: Tensor) -> Tensor:
            logits = (inputs * (common + deviations[groups])).sum(1)
            fit = F.binary_cross_entropy_with_logits(logits, labels, weights, reduction="sum")
            return fit + deviations.square().sum() / 2 + common.square().sum() / 100

        common, deviations = minimise(loss, start, ITERATIONS, history=100)
        coefficients = common.expand(2, n_relations, 2).clone()
        for (slot, relation), deviation in zip(self.keys, deviations, strict=True):
            coefficients[SIDES.index(slot), relation] += deviation
        slope = coefficients[..., 0].clamp(min=0) / scale  # a higher score never makes a fact less true
        intercept = coefficients[..., 1] - slope * mean
        slopes, intercepts = (
            {slot.value: row for slot, row in zip(SIDES, part.tolist(), strict=True)} for part in (slope, intercept)
        )
        return TruthUnit(slopes, intercepts)


@dataclass(frozen=True)
class _Kept:
    """The contents of the file."""

    method: int
    unit: TruthUnit


def _parse(value: Any, n_relations: int) -> _Kept | None:
    """What is kept in a run folder; None if it is of another method, a ValueError if its numbers cannot be used."""
    if not isinstance(value, dict) or value.get("method") != METHOD:
        return None
    kept = schema.read(_Kept, value)
    for columns in (kept.unit.slope, kept.unit.intercept):
        if any(len(columns.get(slot, ())) != n_relations for slot in SIDES):
            raise ValueError("numbers of other relations")
    return kept
