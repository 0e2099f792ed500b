"""Harmony after training: W and b fitted to validation facts, with the vectors of a plain model frozen.

A quadratic part is added to the plain score (quadratic_regression.py), its prior chosen by cross-validation over facts,
made smaller where held-out ranks are better so, and both are folded back into W and b within the cap on W. Held-out facts
also say whether the model gained. Where facts have weights, all means over them are weighted.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from harmonium.config.settings import Config, ModelConfig
from harmonium.data.graph import Graph
from harmonium.data.index import KnownAnswers
from harmonium.data.triples import Slot, Triples
from harmonium.errors import HarmoniumError
from harmonium.evaluation.candidates import chunk_size, select_block
from harmonium.kernels.quadratic_form import QuadraticForm
from harmonium.model.gradient_graph import GradientGraph
from harmonium.model.harmony import Harmony, Sum, default_cap
from harmonium.model.scoring import EmbeddingScorer
from harmonium.training.negatives import SIDES
from harmonium.training.quadratic_regression import (
    CANDIDATES,
    QuadraticPart,
    Queries,
    fit_quadratic_parts,
    gather_queries,
)
from harmonium.training.relative_weights import relative_weights

DEFAULT_RANK = 4
SPREADS = (0.003, 0.01, 0.03, 0.1)  # of the prior, in nats
FOLDS = 4
MIN_FACTS, MAX_FACTS = 20, 5000  # validation facts: below the first nothing is fitted, beyond the second sampled
MAX_NUMBERS = {"cpu": 1 << 26, "cuda": 1 << 29}  # of composed candidates: 256 MB, 2 GB
RELATIVE_CAP = 0.75  # |W| / lambda where lambda is chosen
FACTORS = (1.0, 0.5, 0.25, 0.1, 0.03, 0.01, 1e-3, 1e-4, 1e-6)  # of the quadratic part: held-out ranks choose one
MRR_TOLERANCE = 0.001  # difference of MRR that does not count


@dataclass(frozen=True)
class Comparison:
    """Held-out means over facts without W and with it, and the standard error of their difference."""

    plain: float
    harmony: float
    standard_error: float

    @property
    def change(self) -> float:
        return self.harmony - self.plain

    @classmethod
    def of(cls, plain: Tensor, harmony: Tensor) -> Comparison:
        """From values (facts,) of each fact."""
        error = (harmony - plain).double().std() / math.sqrt(len(plain))
        return cls(plain.double().mean().item(), harmony.double().mean().item(), error.item())


@dataclass(frozen=True)
class HarmonyFit:
    """A fitted Harmony, and how it compares with the plain model on validation facts that were held out of the fit."""

    form: Harmony
    settings: ModelConfig  # those that build the form: rank, faithfulness and cap
    facts: int  # validation facts used; 0: too few, so that W = 0
    spread: float  # of the prior on W, in nats
    scale: float  # factor of the plain score
    factor: float  # of the fitted quadratic part: below 1 where ranks are better so
    log_likelihood: Comparison  # nats per query; the plain score has its best factor too
    mrr: Comparison

    @property
    def rank(self) -> int:
        return len(self.form.free)

    @property
    def is_worse(self) -> bool:
        """Whether held-out likelihood or ranks lose more than a standard error, and the MRR more than .001."""
        likelihood, mrr = self.log_likelihood, self.mrr
        return likelihood.change < -likelihood.standard_error or mrr.change < -max(mrr.standard_error, MRR_TOLERANCE)

    @property
    def is_better(self) -> bool:
        """Whether held-out likelihood or ranks gain more than a standard error, and neither loses as much."""
        gains = any(pair.change > pair.standard_error for pair in (self.log_likelihood, self.mrr))
        return gains and not self.is_worse

    @property
    def preferred(self) -> bool:
        """Whether held-out answers become more likely and ranks do not fall."""
        return self.log_likelihood.change > 0 and not self.is_worse

    @property
    def summary(self) -> str:
        if not self.facts:
            return f"W = 0: a fit needs at least {MIN_FACTS} validation facts"
        verdict = "better than" if self.is_better else "worse than" if self.is_worse else "as good as"
        text = (
            f"W of rank {self.rank} fitted to {self.facts:,} validation facts, {verdict} none on facts held out: "
            f"log-likelihood {self.log_likelihood.plain:.3f} -> {self.log_likelihood.harmony:.3f} nats, "
            f"MRR {self.mrr.plain:.4f} -> {self.mrr.harmony:.4f} (± {self.mrr.standard_error:.4f})"
        )
        return (
            text
            if self.factor == 1
            else f"{text}; W is scaled by {self.factor:g}, with which held-out facts rank higher"
        )

    def to_json(self) -> dict[str, Any]:
        names = ("facts", "rank", "spread", "scale", "factor", "is_better", "is_worse", "preferred", "summary")
        comparisons = {name: asdict(getattr(self, name)) if self.facts else None for name in ("log_likelihood", "mrr")}
        limits = {"faithfulness": self.form.faithfulness, "cap": self.form.cap}
        return {name: getattr(self, name) for name in names} | limits | comparisons


@torch.no_grad()
def fit_harmony(model: GradientGraph, graph: Graph, config: Config) -> HarmonyFit:
    """Fit b and a W of rank `model.rank` (default 4) to the validation facts of a plain model, which stays as it is.

    lambda is the smallest one with |W| <= 0.75 lambda: W is then not restricted, whatever the size of the vectors, and
    tokens differ from composed vectors as much as they can. A lambda or cap that differs from its default is kept, and W
    stays within it. The result is deterministic on a CPU.
    """
    if not isinstance(model.form, Sum):
        raise HarmoniumError("W and b are fitted after training to a plain model only; set model.harmony=false")
    if model.world is not None:
        raise HarmoniumError("W and b are fitted after training by one process; set train.harmony=joint")
    limit = _Limit(config.model, min(config.model.rank or DEFAULT_RANK, model.form.dim))
    graph, seed = replace(graph, valid=graph.valid.positive()), config.train.seed
    facts = sample_facts(model, graph, seed)
    if len(facts) < MIN_FACTS:
        return _without_facts(model, limit)
    facts = relative_weights(facts)
    weight = torch.ones(()) if facts.weight is None else facts.weight
    queries = validation_queries(model, graph, facts, seed)
    folds = _CrossValidation.fit(queries, Folds.draw(facts, graph.n_entities, seed), limit, seed)
    spread = max(SPREADS, key=lambda spread: (weight * folds.log_likelihood(spread)).mean().item())
    factor, mrr = _choose_factor(_reciprocal_ranks(model, graph, facts, folds, spread) * weight)
    likelihood = Comparison.of(weight * folds.log_likelihood(0.0), weight * folds.log_likelihood(spread, factor))
    fitted = fit_quadratic_parts(queries, limit.rank, SPREADS[: SPREADS.index(spread) + 1], _generator(seed))[-1]
    form = limit.harmony(limit.apply(fitted).times(factor), model.form.fold().vector)
    return HarmonyFit(form, limit.settings_of(form), len(facts), spread, fitted.scale, factor, likelihood, mrr)


def _choose_factor(reciprocal_ranks: Tensor) -> tuple[float, Comparison]:
    """The largest factor at which held-out ranks are within a standard error of the best, the plain ones included.

    From the reciprocal ranks (1 + factors, facts) without a quadratic part and with each of FACTORS.
    """
    plain, *others = reciprocal_ranks
    comparisons = dict(zip(FACTORS, (Comparison.of(plain, harmony) for harmony in others), strict=True))
    best = max(0.0, *(comparison.change for comparison in comparisons.values()))
    for factor, comparison in comparisons.items():
        if comparison.change >= best - max(comparison.standard_error, MRR_TOLERANCE):
            return factor, comparison
    return factor, comparison


def _without_facts(model: GradientGraph, limit: _Limit) -> HarmonyFit:
    """The plain model as a Harmony with W = 0."""
    vector = model.form.fold().vector
    nothing, zero = Comparison(math.nan, math.nan, math.nan), vector.new_zeros(limit.rank, limit.rank)
    basis = torch.eye(len(vector), limit.rank, dtype=vector.dtype, device=vector.device)
    form = limit.harmony(QuadraticPart(1.0, zero, basis), vector)
    return HarmonyFit(form, limit.settings_of(form), 0, 0.0, 1.0, 1.0, nothing, nothing)


def sample_facts(model: GradientGraph, graph: Graph, seed: int) -> Triples:
    """The validation facts, or a sample of as many as time and memory allow."""
    numbers = MAX_NUMBERS.get(model.relation.device.type, MAX_NUMBERS["cpu"])
    count = min(MAX_FACTS, max(MIN_FACTS, numbers // (2 * CANDIDATES * model.form.dim)))
    order = torch.randperm(len(graph.valid), generator=_generator(seed))
    return graph.valid[order[:count].sort().values]


@dataclass(frozen=True)
class Folds:
    """Cross-validation by entity: a query is held out with its answer, and no fact of that entity is fitted then.

    What a split withholds of an entity goes to validation or to test. A fit that has seen one of its validation facts
    knows that it is scored too low, which helps with the others but not with test facts, nor with missing ones.
    """

    head: Tensor  # (facts,): the fold of the head
    tail: Tensor  # (facts,)

    @classmethod
    def draw(cls, facts: Triples, n_entities: int, seed: int) -> Folds:
        fold = torch.randperm(n_entities, generator=_generator(seed)) % FOLDS
        return cls(fold[facts.head], fold[facts.tail])

    def answers(self, fold: int) -> Tensor:
        """(2, facts) bool: the queries, of heads and of tails, that the fold holds out."""
        return torch.stack([self.head == fold, self.tail == fold])

    def fitted(self, fold: int) -> Tensor:
        """(facts,) bool: the facts without an entity of the fold."""
        return (self.head != fold) & (self.tail != fold)


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def validation_queries(model: GradientGraph, graph: Graph, facts: Triples, seed: int) -> Queries:
    """Both queries of each fact: heads of all facts, then tails. Test facts play no part."""
    scorer, generator = model.scorer(), _generator(seed)
    queries = facts.to(scorer.relations.device)
    known = {slot: graph.known_answers(slot, ("train", "valid"), facts).to(queries.head.device) for slot in SIDES}
    return Queries.cat([gather_queries(scorer, slot, queries, known[slot], generator) for slot in SIDES])


@dataclass(frozen=True)
class _CrossValidation:
    """Fits to the facts outside each fold."""

    queries: Queries
    folds: Folds
    parts: list[dict[float, QuadraticPart]]  # by fold and spread of the prior, 0 included

    @classmethod
    def fit(cls, queries: Queries, folds: Folds, limit: _Limit, seed: int) -> _CrossValidation:
        parts, spreads = [], (0.0, *SPREADS)
        for fold in range(FOLDS):
            fitted = queries[folds.fitted(fold).repeat(2).to(queries.linear.device)]
            fits = fit_quadratic_parts(fitted, limit.rank, spreads, _generator(seed))
            parts.append({spread: limit.apply(part) for spread, part in zip(spreads, fits, strict=True)})
        return cls(queries, folds, parts)

    @property
    def asked(self) -> list[Tensor]:
        """(2, facts) bool for each fold: the queries it holds out."""
        return [self.folds.answers(fold) for fold in range(FOLDS)]

    def select(self, spread: float, factor: float = 1.0) -> list[QuadraticPart]:
        """The fit of each fold, its quadratic part multiplied by a factor."""
        return [parts[spread].times(factor) for parts in self.parts]

    def log_likelihood(self, spread: float, factor: float = 1.0) -> Tensor:
        """(facts,): nats per query, by the fits that did not see it."""
        values = torch.empty(2, len(self.folds.head))
        for part, asked in zip(self.select(spread, factor), self.asked, strict=True):
            unseen = self.queries[asked.flatten().to(self.queries.linear.device)]
            values[asked] = part.log_likelihood(unseen).cpu()
        return values.mean(0)


@torch.no_grad()
def _reciprocal_ranks(
    model: GradientGraph, graph: Graph, facts: Triples, folds: _CrossValidation, spread: float
) -> Tensor:
    """(1 + factors, facts): mean reciprocal filtered ranks without the quadratic part, and with each factor of it.

    Each query is ranked by the fit that did not see its answer. Both parts of the score are computed once for all
    factors. Answers in train and validation are filtered; test facts play no part.
    """
    plain, device = model.scorer(), model.relation.device
    values = torch.empty(1 + len(FACTORS), 2, len(facts), dtype=torch.float64)
    for side, slot in enumerate(SIDES):
        known = graph.known_answers(slot, ("train", "valid"), facts).to(device)
        for part, asked in zip(folds.select(spread), folds.asked, strict=True):
            form = QuadraticForm(part.core, torch.zeros_like(plain.form.vector), plain.form.constant, part.basis)
            quadratic = replace(plain, form=form)
            for rows in asked[side].nonzero().flatten().split(chunk_size(plain, slot)):
                ranks = _ranks(plain, quadratic, slot, facts[rows].to(device), known, part.scale)
                values[:, side, rows] = 1 / ranks.cpu()
    return values.mean(1)


def _ranks(
    plain: EmbeddingScorer,
    quadratic: EmbeddingScorer,
    slot: Slot,
    queries: Triples,
    known: KnownAnswers,
    scale: float,
) -> Tensor:
    """(1 + factors, n): filtered ranks by scale * plain + factor * quadratic score; ties rank in the middle."""
    truth = plain.entity_vectors.of(queries[slot])
    composed = plain.slot_map(slot, queries).apply(truth)
    true_linear, true_quadratic = (scorer.form(composed)[:, None] for scorer in (plain, quadratic))
    weights = [0.0, *(factor / scale for factor in FACTORS)]
    ranks = torch.ones(len(weights), len(queries), dtype=torch.float64, device=truth.device)
    known_pairs = known.of(queries)  # the true answers among them
    blocks = zip(plain.score_blocks(slot, queries), quadratic.score_blocks(slot, queries), strict=True)
    for (start, linear), (_, block) in blocks:
        linear[select_block(known_pairs, start, linear.shape[1])] = -torch.inf
        for number, weight in enumerate(weights):
            scores, true_score = torch.add(linear, block, alpha=weight), true_linear + weight * true_quadratic
            ranks[number] += (scores > true_score).sum(1) + (scores == true_score).sum(1) / 2
    return ranks


# From a quadratic part to W and b ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Limit:
    """The settings of the Harmony, and how a quadratic part is made to fit them.

    A = W S / 2 with S = (I - tau W)^-1, so that an eigenvalue a of A belongs to w = 2a / (1 + 2 tau a) of W.
    """

    settings: ModelConfig
    rank: int

    @property
    def chooses_faithfulness(self) -> bool:
        """Whether lambda and the cap are chosen by the fit: where the settings have the defaults."""
        return self.settings.faithfulness == ModelConfig.faithfulness and self.settings.cap is None

    @property
    def cap(self) -> float:
        return default_cap(self.settings.faithfulness) if self.settings.cap is None else self.settings.cap

    def apply(self, part: QuadraticPart) -> QuadraticPart:
        """The same with the largest factor, at most 1, at which W is within the cap of the settings."""
        if self.chooses_faithfulness:
            return part
        values, tau = torch.linalg.eigvalsh(part.core.double()), 1 / self.settings.faithfulness
        return part.times(_largest(lambda factor: self.norm(factor * values, tau) <= self.cap))

    def norm(self, values: Tensor, tau: float) -> float:
        """The norm of W that the constraint limits; infinite where there is no such W."""
        if (1 + 2 * tau * values <= 0).any():
            return math.inf
        order = 2 if self.settings.constraint == "frobenius" else math.inf
        return float(torch.linalg.vector_norm(2 * values / (1 + 2 * tau * values), order))

    def faithfulness(self, values: Tensor) -> float:
        """lambda, of the settings or the smallest one at which W is within its relative cap."""
        largest = values.abs().max().item()
        if not self.chooses_faithfulness or largest == 0:
            return self.settings.faithfulness
        tau = RELATIVE_CAP / (1 - RELATIVE_CAP) / (2 * largest)  # for a single positive eigenvalue, otherwise too large
        return 1 / (tau * _largest(lambda factor: factor * tau * self.norm(values, factor * tau) <= RELATIVE_CAP))

    def harmony(self, part: QuadraticPart, vector: Tensor) -> Harmony:
        """The Harmony with this quadratic part and the linear part of `vector`, the plain model's c."""
        values, directions = torch.linalg.eigh(part.core.double())
        faithfulness, settings = self.faithfulness(values), self.settings
        cap = RELATIVE_CAP * faithfulness if self.chooses_faithfulness else self.cap
        form = Harmony(len(vector), faithfulness, settings.constraint, cap, self.rank, settings.dropout).to(vector)
        assert form.basis is not None, "a Harmony with a rank has a basis"
        basis, linear = part.basis.double(), (part.scale * vector).double()
        core = directions @ torch.diag(2 * values / (1 + 2 * values / faithfulness)) @ directions.T
        form.free.copy_(core)
        form.basis.copy_(basis)
        form.bias.copy_(2 * (linear - basis @ (core @ (basis.T @ linear)) / faithfulness))  # c = Sb / 2
        return form

    def settings_of(self, form: Harmony) -> ModelConfig:
        """The settings that build this form."""
        return replace(self.settings, harmony=True, rank=self.rank, faithfulness=form.faithfulness, cap=form.cap)


def _largest(is_allowed: Callable[[float], bool]) -> float:
    """The largest number in (0, 1] that is allowed, where all smaller ones are, by bisection."""
    if is_allowed(1.0):
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if is_allowed(middle) else (low, middle)
    return low
