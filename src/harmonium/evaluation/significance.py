"""Is one model better than another on the same queries? A bootstrap over seeds, relations and queries, and a sign-flip test.

The data are differences d[s, q] of a measure, such as the reciprocal rank, between a model and its control, trained with
seed s and asked query q. Queries of one relation are not independent: what helps one helps the others, and the two queries
of a fact share it. So relations are drawn, and queries within them; seeds are drawn too, crossed with the queries.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from harmonium.errors import HarmoniumError

SIGN_FLIPS = 5000  # samples of the sign-flip test
MAX_QUERIES_DRAWN = 1 << 21  # at once: 16 MB of random numbers
MAX_ENUMERATED_RELATIONS = 16  # all 2^16 combinations of signs are enumerated; with more relations they are sampled


@dataclass(frozen=True)
class PairedComparison:
    """How much larger a measure is for a model than for its control, and whether chance alone explains it."""

    model: float  # mean over seeds and queries
    control: float
    difference: float
    standard_error: float
    interval: tuple[float, float]  # confidence interval of the difference, symmetric
    level: float  # of the interval
    p: float  # two-sided, by the bootstrap; at most about 1 - level if the interval excludes 0
    sign_flip_p: float  # two-sided, by the sign-flip test
    better_relations: int  # relations whose mean difference is positive
    relations: int
    queries: int
    seeds: int  # 1: the conclusion holds for that seed
    samples: int

    def is_significant(self, alpha: float = 0.01) -> bool:
        """Whether both tests reject equality. With few relations of unequal size the bootstrap alone rejects too often."""
        return max(self.p, self.sign_flip_p) < alpha

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def compare_paired(
    model: Tensor, control: Tensor, relation: Tensor, samples: int = SIGN_FLIPS, level: float = 0.95, seed: int = 0
) -> PairedComparison:
    """Compare the values of a measure (seeds, queries) or (queries,) of two models; relation (queries,) has the clusters.

    Row s of both comes from trainings that differ in the model only. All in float64, on the device of the values.
    """
    model, control = (values.double().reshape(-1, values.shape[-1]) for values in (model, control))
    _check(model, control, relation, samples, level)
    difference = model - control
    totals = RelationTotals.of(difference, relation)
    by_relation = totals.sums.mean(-2)  # (relations,): the sum over queries, averaged over seeds
    observed = totals.statistic()
    deviations = _bootstrap(difference, relation, observed.means, samples, seed)
    critical = float(deviations.quantile(level, interpolation="higher"))
    half = critical * observed.error if observed.error else 0.0
    return PairedComparison(
        model=float(model.mean()),
        control=float(control.mean()),
        difference=observed.mean,
        standard_error=observed.error,
        interval=(observed.mean - half, observed.mean + half),
        level=level,
        p=(1 + int((deviations >= abs(observed.t)).sum())) / (1 + samples),
        sign_flip_p=sign_flip(by_relation, samples, seed),
        better_relations=int((by_relation > 0).sum()),
        relations=len(by_relation),
        queries=len(relation),
        seeds=len(model),
        samples=samples,
    )


def _check(model: Tensor, control: Tensor, relation: Tensor, samples: int, level: float) -> None:
    if model.shape != control.shape or model.shape[-1:] != relation.shape:
        shapes = f"{tuple(model.shape)}, {tuple(control.shape)} and {tuple(relation.shape)}"
        raise HarmoniumError(f"a paired comparison needs a value of both models for every query, not {shapes} values")
    if len(relation.unique()) < 2:
        raise HarmoniumError("a comparison by relation needs queries of at least two relations")
    if not (model.isfinite().all() and control.isfinite().all()):
        raise HarmoniumError("a comparison needs finite values; a measure of these models is infinite or not a number")
    if samples < 1 or not 0 < level < 1:
        raise HarmoniumError(f"a bootstrap needs samples and a level between 0 and 1, not {samples} and {level}")


# The statistic -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Statistic:
    """The mean difference, its standard error, and their ratio; tensors (b,) for b bootstrap samples."""

    means: Tensor
    errors: Tensor

    @property
    def mean(self) -> float:
        return float(self.means)

    @property
    def error(self) -> float:
        return float(self.errors)

    @property
    def t(self) -> float:
        return float(_ratio(self.means, self.errors))


@dataclass(frozen=True)
class RelationTotals:
    """Differences summed over the queries of each relation: sufficient for the statistic."""

    sums: Tensor  # (..., seeds, relations)
    sizes: Tensor  # (..., relations): queries

    @classmethod
    def of(cls, difference: Tensor, relation: Tensor) -> RelationTotals:
        """From differences (seeds, queries)."""
        _, cluster = relation.unique(return_inverse=True)
        sizes = cluster.bincount().double()
        sums = difference.new_zeros(len(difference), len(sizes)).index_add_(1, cluster, difference)
        return cls(sums, sizes)

    def statistic(self) -> Statistic:
        """The mean m over all queries and seeds, and its standard error.

        m is a ratio of sums over relations, sum_r D_r / sum_r n_r with D_r averaged over seeds, so its variance between
        relations is that of the residuals u_r = D_r - m n_r (linearisation). To it comes the variance between seeds.
        """
        n_seeds, n_relations = self.sums.shape[-2:]
        total = self.sizes.sum(-1)
        by_seed = self.sums.sum(-1) / total[..., None]  # (..., seeds): the mean difference of each seed
        mean = by_seed.mean(-1)
        residual = self.sums.mean(-2) - mean[..., None] * self.sizes  # (..., relations)
        variance = n_relations / (n_relations - 1) * residual.square().sum(-1) / total.square()
        if n_seeds > 1:
            variance = variance + by_seed.var(-1) / n_seeds
        return Statistic(mean, variance.sqrt())


def _ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    """numerator / denominator, with 0 / 0 = 0."""
    return torch.where(numerator == 0, 0.0, numerator / denominator)


# The bootstrap -------------------------------------------------------------------------------------------------------


def _bootstrap(difference: Tensor, relation: Tensor, mean: Tensor, samples: int, seed: int) -> Tensor:
    """(samples,): |m* - m| / error*, how far the statistic of a bootstrap sample is from the observed mean m.

    Studentised (bootstrap-t): each sample is measured by its own standard error. This counts the noise of the queries
    once, although queries are drawn within relations that already contain it, and it allows for the uncertainty of the
    standard error where relations or seeds are few (Davison & Hinkley 1997, sections 3.8 and 5.2).
    """
    order = relation.argsort(stable=True)
    by_query = difference[:, order].T.contiguous()  # (queries, seeds), relation after relation
    sizes = torch.unique_consecutive(relation[order], return_counts=True)[1]
    generator = torch.Generator(difference.device).manual_seed(seed)
    chunk = max(1, MAX_QUERIES_DRAWN // len(relation))
    parts = []
    for start in range(0, samples, chunk):
        statistic = _resample(by_query, sizes, min(chunk, samples - start), generator).statistic()
        parts.append(_ratio((statistic.means - mean).abs(), statistic.errors))
    return torch.cat(parts)


def _resample(by_query: Tensor, sizes: Tensor, samples: int, generator: torch.Generator) -> RelationTotals:
    """Bootstrap samples (samples, seeds, relations) of values (queries, seeds) that are sorted by relation.

    Each sample draws, with replacement, as many relations as there are; for each of them as many of its queries as it has;
    and as many seeds as there are, the same ones for all queries.
    """
    n_seeds, n_relations, device = by_query.shape[1], len(sizes), by_query.device
    first = sizes.cumsum(0) - sizes  # (relations,): the position of the first query of each
    relations = torch.randint(n_relations, (samples * n_relations,), generator=generator, device=device)
    drawn_sizes = sizes[relations]
    relation = relations.repeat_interleave(drawn_sizes)  # of each query drawn
    uniform = torch.rand(len(relation), generator=generator, device=device, dtype=torch.float64)
    queries = first[relation] + (uniform * sizes[relation]).long()
    sums = torch.segment_reduce(by_query[queries], "sum", lengths=drawn_sizes)  # (samples * relations, seeds)
    sums = sums.view(samples, n_relations, n_seeds).transpose(1, 2)
    seeds = torch.randint(n_seeds, (samples, n_seeds, 1), generator=generator, device=device)
    return RelationTotals(sums.gather(1, seeds.expand_as(sums)), drawn_sizes.view(samples, n_relations).double())


# The sign-flip test --------------------------------------------------------------------------------------------------


def sign_flip(totals: Tensor, samples: int = SIGN_FLIPS, seed: int = 0) -> float:
    """The two-sided p value of the sum of totals (relations,), were the sign of each as likely to be the opposite one.

    Exact for any number of relations of any sizes if models do not differ and differences are symmetric. The p value
    cannot be below 2^(1 - relations). Differences between seeds play no part.
    """
    n = len(totals)
    if n <= MAX_ENUMERATED_RELATIONS:
        bits = torch.arange(2**n, device=totals.device)[:, None] >> torch.arange(n, device=totals.device) & 1
    else:
        generator = torch.Generator(totals.device).manual_seed(seed)
        bits = torch.randint(2, (samples, n), generator=generator, device=totals.device)
    sums = ((2 * bits - 1).double() @ totals.double()).abs()
    observed = float(totals.double().sum().abs())
    tolerance = 1e-12 * float(totals.double().abs().sum())  # sums in another order differ by rounding
    as_large = int((sums >= observed - tolerance).sum())
    return as_large / 2**n if n <= MAX_ENUMERATED_RELATIONS else (1 + as_large) / (1 + samples)
