"""Learn what constraints count: a maximum-entropy grammar, fitted to facts that nobody has learned from.

    P(answer | query) = exp(harmony(answer)) / sum over candidates of exp(harmony(candidate))

Held-out facts give two queries each; other known answers are no candidates. The weights of a relation and an open slot are
those common to all plus a deviation, both with Gaussian priors: relations with few facts use the common weights. The
log-likelihood is concave; L-BFGS finds its maximum. Of the candidates those that any constraint prefers are kept, and
of the others a random sample stands for all.

A family whose removal costs less than Schwarz's criterion allows (log(queries) / 2 for each of its common weights) gets no
weight, and costs no time afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from harmonium.data.graph import Graph
from harmonium.data.triples import Slot, Triples
from harmonium.grammar.family import Family
from harmonium.grammar.grammar import CELLS, ENTITY_SLOTS, OTHER_END, Weights
from harmonium.kernels.lbfgs import minimise
from harmonium.model.scoring import Scorer
from harmonium.runtime.distributed import World, run_on_main

MAX_FACTS = 5000  # held-out facts that are used
PREFERRED, SAMPLED = 20, 60  # candidates that each constraint ranks first, and others
COMMON_PRECISION, PRECISION = 0.3, 3.0  # of the priors of common weights and of deviations, per standardised constraint
MAX_ITERATIONS = 80


@dataclass(frozen=True)
class HeldOutQueries:
    """Candidates of queries with the strengths of all constraints; the first candidate is the true answer."""

    strengths: Tensor  # (queries, candidates, 1 + constraints) float32: the vectors, then the constraints
    log_share: Tensor  # (queries, candidates): log of how many candidates each one stands for; -inf: none
    group: Tensor  # (queries,): 2 * relation + (0: heads, 1: tails)

    @classmethod
    def gather(
        cls,
        vectors: Scorer,
        families: Sequence[Family],
        graph: Graph,
        facts: Triples,
        known: Sequence[str],
        progress: Callable[[int], None] | None = None,
        world: World | None = None,
    ) -> HeldOutQueries:
        """The queries of some facts; the answers of the splits `known` are no candidates.

        The processes of a `world` share the queries; the main one has all, the others only their own.
        """
        parts: list[tuple[Tensor, Tensor, Tensor]] = []
        vectors, number = vectors.prepare(), 0
        for slot in ENTITY_SLOTS:
            index = graph.known_answers(slot, known)
            for relation in facts.relation.unique().tolist():
                of_relation = facts[facts.relation == relation]
                for queries in of_relation.chunks(max(1, CELLS // graph.n_entities)):
                    number += 1
                    if world is not None and number % world.size != world.rank:
                        parts.append(_no_queries(families))
                        continue
                    generator = torch.Generator().manual_seed(number)
                    strengths = _all_strengths(vectors, families, slot, relation, queries)
                    row, answer = index.of(queries)
                    other = answer != queries[slot][row]
                    selected = _select(strengths, queries[slot], (row[other], answer[other]), generator)
                    group = torch.full((len(queries),), 2 * relation + ENTITY_SLOTS.index(slot))
                    parts.append((*selected, group))
                    if progress:
                        progress(len(queries))
        if world is not None and (gathered := world.gather(parts)) is not None:
            size = world.size
            parts = [gathered[number % size][number - 1] for number in range(1, len(parts) + 1)]
        return cls(*(torch.cat(columns) for columns in zip(*parts, strict=True)))


def _no_queries(families: Sequence[Family]) -> tuple[Tensor, Tensor, Tensor]:
    k = 1 + sum(len(family.constraints) for family in families)
    width = _width(k)
    return torch.empty(0, width, k), torch.empty(0, width), torch.empty(0, dtype=torch.int64)


def _width(k: int) -> int:
    """Candidates that are kept of a query, at most: the truth, those that a constraint ranks first, and a sample."""
    return k * PREFERRED + SAMPLED + 1


@torch.no_grad()
def _all_strengths(vectors: Scorer, families: Sequence[Family], slot: Slot, relation: int, queries: Triples) -> Tensor:
    """(n, n_entities, 1 + constraints) float32."""
    given = queries[OTHER_END[slot]].numpy()
    columns = [vectors.score_slot(slot, queries).float()]
    for family in families:
        columns += [torch.from_numpy(s).float() for s in family.strengths(slot, relation, given)]
    return torch.stack(columns, dim=-1)


def _select(
    strengths: Tensor, truth: Tensor, others: tuple[Tensor, Tensor], generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """(n, c, k) strengths and (n, c) log-shares: the truth, those that a constraint ranks first, a sample of the others."""
    n, n_candidates, k = strengths.shape
    rows = torch.arange(n)
    excluded = torch.zeros(n, n_candidates, dtype=torch.bool)
    excluded[others] = True
    excluded[rows, truth] = True
    n_free = (~excluded).sum(1)
    chosen = torch.zeros_like(excluded)
    count = min(PREFERRED, n_candidates)
    for column in range(k):
        values = strengths[..., column].masked_fill(excluded, -torch.inf)
        if (values.amax(1) > values.masked_fill(excluded, torch.inf).amin(1)).any():  # it prefers some to others
            chosen.scatter_(1, values.topk(count).indices, True)
    chosen &= ~excluded
    drawn = torch.rand(n, n_candidates, generator=generator).masked_fill_(excluded | chosen, -1)
    sample = drawn.topk(min(SAMPLED, n_candidates))
    is_drawn = torch.zeros_like(excluded).scatter_(1, sample.indices, sample.values >= 0)
    n_rest, n_drawn = n_free - chosen.sum(1), is_drawn.sum(1)
    log_share = (n_rest / n_drawn.clamp(min=1)).clamp(min=1).log()
    width = int((chosen | is_drawn).sum(1).max())
    order = (chosen.float() * 2 + is_drawn.float()).topk(width)
    ids = torch.cat([truth[:, None], order.indices], dim=1)
    weights = torch.where(order.values == 2, 0.0, torch.where(order.values == 1, log_share[:, None], -torch.inf))
    size = _width(k) - ids.shape[1]
    ids, weights = _pad(ids, size, 0), _pad(torch.cat([torch.zeros(n, 1), weights], dim=1), size, -torch.inf)
    return strengths.gather(1, ids[..., None].expand(-1, -1, k)), weights


def _pad(columns: Tensor, count: int, value: float) -> Tensor:
    return torch.nn.functional.pad(columns, (0, count), value=value)


def learn_weights(
    vectors: Scorer,
    families: Sequence[Family],
    graph: Graph,
    held_out: Triples,
    known: Sequence[str] = ("train", "valid"),
    progress: Callable[[int], None] | None = None,
    world: World | None = None,
) -> Weights:
    """The weights under which held-out facts are most likely; families and vectors have seen none of them.

    The processes of a `world` share the queries; the main one fits the weights.
    """
    order = torch.randperm(len(held_out), generator=torch.Generator().manual_seed(0))
    sample = held_out[order[:MAX_FACTS].sort().values]
    queries = HeldOutQueries.gather(vectors, families, graph, sample, known, progress, world)
    return run_on_main(world, lambda: _fit_weights(queries, families, graph.n_relations))


def _fit_weights(queries: HeldOutQueries, families: Sequence[Family], n_relations: int) -> Weights:
    """The weights of all families but those that explain too little."""
    kept = torch.ones(queries.strengths.shape[-1], dtype=torch.bool)
    columns, first = [], 1
    for family in families:
        columns.append(range(first, first + len(family.constraints)))
        first += len(family.constraints)
    common, deviations, value = _fit(queries, kept, n_relations)
    for of_family in sorted(columns, key=lambda c: float((common[list(c)].abs()).sum())):
        without = kept.clone()
        without[list(of_family)] = False
        attempt = _fit(queries, without, n_relations)
        if value - attempt[2] < math.log(len(queries.group)) / 2 * len(of_family):
            kept, (common, deviations, value) = without, attempt
    weights = (common + deviations).double()  # (n_relations, 2, k)
    return Weights(weights.transpose(0, 1).contiguous())


def _fit(queries: HeldOutQueries, kept: Tensor, n_relations: int) -> tuple[Tensor, Tensor, float]:
    """Common weights (k,), deviations (n_relations, 2, k), and the penalised log-likelihood; zero where not kept."""
    strengths = queries.strengths[..., kept]
    valid = queries.log_share > -torch.inf
    spread = strengths[valid].std(0).clamp(min=0.05)
    strengths = strengths / spread
    k = strengths.shape[-1]
    start = torch.zeros(k), torch.zeros(2 * n_relations, k)
    target = torch.zeros(len(strengths), dtype=torch.long)

    def loss(common: Tensor, deviations: Tensor) -> Tensor:
        weights = (common + deviations)[queries.group]  # (queries, k)
        logits = torch.bmm(strengths, weights[..., None])[..., 0] + queries.log_share
        likelihood = torch.nn.functional.cross_entropy(logits, target, reduction="sum")
        prior = COMMON_PRECISION * common.square().sum() + PRECISION * deviations.square().sum()
        return likelihood + prior / 2

    common, deviations = minimise(loss, start, MAX_ITERATIONS)
    value = -float(loss(common, deviations))
    full, full_deviations = torch.zeros(len(kept)), torch.zeros(2 * n_relations, len(kept))
    full[kept] = common / spread
    full_deviations[:, kept] = deviations / spread
    return full, full_deviations.view(n_relations, 2, -1), value
