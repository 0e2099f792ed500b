"""Entities in a role: given X as the head of a true fact (X, r, Y), which other entities play the same role?

A query is a held-out fact (Z, r, Y) with an anchor X, a training fact (X, r, Y): entities are ranked by their distance
from X in the role, and the value is the reciprocal rank of Z. Other known answers do not compete. Tails likewise. With `any`
anchor the value is a mean over a few random ones; with the `alike` anchor X is the one whose training facts are most like
Z's (Jaccard index): the query is then "who is like X, as X is in this fact?", which a score of (Z, r, Y) cannot tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch
from harmony_uses import SPLITS, Families, Measured, Setup, Values
from torch import Tensor

from harmonium.data.graph import Graph
from harmonium.data.triples import Slot, Triples
from harmonium.model.gradient_graph import GradientGraph
from harmonium.model.harmony import Harmony
from harmonium.model.scoring import EmbeddingScorer
from harmonium.model.stretched_harmony import SCORED_FACTS, stretched_harmony
from harmonium.training.harmony_fit import fit_harmony
from harmonium.training.negatives import SIDES

FACTS = 1000  # of each split and side, a random sample
ANCHORS, MAX_ANCHORS = 4, 32  # random anchors of a query, and those among which the most alike is sought
STRETCHES = (2.0, 4.0, 10.0, 30.0)  # of tokens along b; 4 is what the paper's cap gives at lambda = 1
NEAREST, MIN_FILLERS = 10, 3  # entities whose types are looked at, and fillers that a role has at least
ANCHOR_KINDS = ("any anchor", "alike anchor")


@dataclass(frozen=True)
class RoleQuery:
    """A held-out fact, and anchors in its place, the most alike first."""

    slot: Slot
    fact: Triples  # one row
    anchors: Tensor  # (a,)
    known: Tensor  # (k,): other answers, which do not compete


@dataclass(frozen=True)
class Metric:
    """Squared distances |v|^2 + (F'v)'M(F'v) of differences v of composed vectors: |Sv|^2 for tokens; M None: |v|^2."""

    basis: Tensor | None = None  # F (dim, rank); None is the identity
    matrix: Tensor | None = None  # M

    @classmethod
    def of_tokens(cls, form: Harmony) -> Metric:
        """S = I + tau F N F', so that S'S - I = F (2 tau N + tau^2 N F'F N) F'."""
        core = form.tau * form.folded_core().detach()
        gram = torch.eye(len(core)).to(core) if form.basis is None else form.basis.T @ form.basis
        return cls(None if form.basis is None else form.basis.detach(), (2 * core + core @ gram @ core).detach())

    def squared_distances(self, role: RoleVectors) -> Tensor:
        """(a, n): from each anchor to all entities, in the role."""
        distance = role.squared_distances
        if self.matrix is None:
            return distance
        projected = role.composed if self.basis is None else role.composed @ self.basis
        difference = projected - projected[role.anchors][:, None]  # (a, n, rank)
        return distance + ((difference @ self.matrix) * difference).sum(-1)


@dataclass(frozen=True)
class RoleVectors:
    """The vectors of all entities, and their composed vectors in one role."""

    entities: Tensor  # (n, entity_dim)
    composed: Tensor  # (n, dim)
    anchors: Tensor  # (a,): ids

    @cached_property
    def squared_distances(self) -> Tensor:
        """(a, n): of composed vectors."""
        return torch.cdist(self.composed[self.anchors], self.composed).square()


Space = Callable[[RoleVectors], Tensor]  # nearness (a, n) of each entity to each anchor
Spaces = Mapping[str, Mapping[str, Space]]  # by family and name


def euclidean_entities(role: RoleVectors) -> Tensor:
    return -torch.cdist(role.entities[role.anchors], role.entities)


def cosine_entities(role: RoleVectors) -> Tensor:
    return _cosine(role.entities, role.anchors)


def cosine_composed(role: RoleVectors) -> Tensor:
    return _cosine(role.composed, role.anchors)


def _cosine(vectors: Tensor, anchors: Tensor) -> Tensor:
    unit = torch.nn.functional.normalize(vectors, dim=-1)
    return unit[anchors] @ unit.T


def by_metric(metric: Metric) -> Space:
    return lambda role: -metric.squared_distances(role)


def by_score(vector: Tensor) -> Space:
    """The score c'x, whatever the anchor is."""
    return lambda role: (role.composed @ vector).expand(len(role.anchors), -1)


def plain_spaces(vector: Tensor) -> dict[str, dict[str, Space]]:
    """Families of spaces without W; composed vectors are the tokens of W = 0."""
    return {
        "composed": {"Euclidean": by_metric(Metric()), "cosine": cosine_composed},
        "entity": {"Euclidean": euclidean_entities, "cosine": cosine_entities},
        "score": {"score": by_score(vector)},
    }


def roles(setup: Setup) -> list[Measured]:
    """Tokens of the harmony that stretches along b, those of W fitted to validation likelihood, and spaces without W."""
    model = setup.plain
    vector, largest = model.form.fold().vector, largest_score(model, setup.graph)
    measured = measure_roles(setup, model, role_spaces(setup))
    if setup.types is not None:
        measured.append(measure_types(setup, model, role_spaces(setup)))
    ranks: Families = {"harmony": {}, "plain": {"plain": setup.reciprocal_ranks(model)}}
    scorer = model.prepare()
    for stretch in STRETCHES:
        form = replace(stretched_harmony(vector, stretch, largest).fold(), constant=scorer.form.constant)
        ranks["harmony"][f"stretch {stretch:g}"] = setup.reciprocal_ranks(replace(scorer, form=form))
    return [*measured, Measured("reciprocal rank of facts", setup.relations, ranks)]


def largest_score(model: GradientGraph, graph: Graph) -> float:
    return float(model.score(graph.train[:SCORED_FACTS].to(model.relation.device)).abs().max())


def role_spaces(setup: Setup) -> dict[str, dict[str, Space]]:
    """Tokens of the stretched harmonies and of W fitted to likelihood, and spaces without W."""
    model, graph = setup.plain, setup.graph
    vector, largest = model.form.fold().vector, largest_score(model, graph)
    stretched = {
        f"stretch {s:g}": by_metric(Metric.of_tokens(stretched_harmony(vector, s, largest))) for s in STRETCHES
    }
    fitted = Metric.of_tokens(fit_harmony(model, graph, setup.config("plain")).form)
    return {"harmony": stretched, "W by likelihood": {"tokens": by_metric(fitted)}, **plain_spaces(vector)}


def paper_roles(setup: Setup) -> list[Measured]:
    """The paper's HHolE with lambda = 1, W trained with the vectors, beside the same recipe with W = 0."""
    harmonic = setup.train("paper/controls/hole")
    control = setup.train("paper/controls/hole", "model.faithfulness=inf", "model.cap=1e-6")
    own = {"harmony": {"tokens": by_metric(Metric.of_tokens(harmonic.harmony))}}
    own |= {"its own composed vectors": {"Euclidean": by_metric(Metric()), "cosine": cosine_composed}}
    first = measure_roles(setup, harmonic, own)
    second = measure_roles(setup, control, plain_spaces(control.form.fold().vector))
    ranks: Families = {
        "harmony": {"lambda 1": setup.reciprocal_ranks(harmonic)}, "W = 0": {"linear": setup.reciprocal_ranks(control)}
    }  # fmt: skip
    merged = []
    for one, other in zip(first, second, strict=True):
        families = one.families | {f"{name}, W = 0": variants for name, variants in other.families.items()}
        merged.append(Measured(one.measure, one.relation, families))
    return [*merged, Measured("reciprocal rank of facts", setup.relations, ranks)]


def measure_roles(setup: Setup, model: GradientGraph, families: Spaces) -> list[Measured]:
    """Reciprocal ranks in each space, for each kind of anchor."""
    result: dict[str, Families] = {kind: {family: {} for family in families} for kind in ANCHOR_KINDS}
    relation: Values = {}
    scorer = model.prepare()
    for split in SPLITS:
        queries = role_queries(setup.graph, split)
        relation[split] = torch.cat([query.fact.relation for query in queries])
        values = [_reciprocal_ranks(scorer, query, families) for query in queries]
        for family, variants in families.items():
            for name in variants:
                for number, kind in enumerate(ANCHOR_KINDS):
                    column = torch.tensor([value[family, name][number] for value in values], dtype=torch.float64)
                    result[kind][family].setdefault(name, {})[split] = column
    return [Measured(f"role, {kind}", relation, result[kind]) for kind in ANCHOR_KINDS]


def role_queries(graph: Graph, split: str, seed: int = 0) -> list[RoleQuery]:
    """Queries from a random sample of held-out facts that share their role with training facts."""
    generator, profiles = torch.Generator().manual_seed(seed), fact_profiles(graph)
    queries: list[RoleQuery] = []
    for slot in SIDES:
        facts, count = graph.splits[split], 0
        trained, known = graph.known_answers(slot, ("train",), facts), graph.known_answers(slot, queries=facts)
        for index in torch.randperm(len(facts), generator=generator).tolist():
            fact = facts[[index]]
            anchors = trained.of(fact)[1]
            if not len(anchors):
                continue
            anchors = anchors[torch.randperm(len(anchors), generator=generator)[:MAX_ANCHORS]]
            truth = int(fact[slot])
            alike = [jaccard(profiles[anchor], profiles[truth]) for anchor in anchors.tolist()]
            nearest = max(range(len(anchors)), key=alike.__getitem__)
            answers = known.of(fact)[1]
            chosen = torch.cat([anchors[[nearest]], anchors[:ANCHORS]])
            queries.append(RoleQuery(slot, fact, chosen, answers[answers != truth]))
            count += 1
            if count == FACTS:
                break
    return queries


def fact_profiles(graph: Graph) -> list[set[tuple[int, int, int]]]:
    """For each entity its training facts: relation, side, other entity."""
    profiles: list[set[tuple[int, int, int]]] = [set() for _ in range(graph.n_entities)]
    for head, relation, tail in graph.train.to_rows().tolist():
        profiles[head].add((relation, 0, tail))
        profiles[tail].add((relation, 1, head))
    return profiles


def jaccard(one: set[tuple[int, int, int]], other: set[tuple[int, int, int]]) -> float:
    shared = len(one & other)
    return shared / max(1, len(one) + len(other) - shared)


@torch.no_grad()
def _reciprocal_ranks(
    scorer: EmbeddingScorer, query: RoleQuery, families: Spaces
) -> dict[tuple[str, str], tuple[float, float]]:
    """By family and space: the mean over random anchors, and the value of the most alike one; ties in the middle."""
    values, truth = {}, int(query.fact[query.slot])
    for key, nearness in _nearness(scorer, query, families):
        true = nearness[:, [truth]]
        better, tied = (nearness > true).sum(1), (nearness == true).sum(1) - 1
        reciprocal = 1 / (1 + better + tied / 2).double()
        values[key] = (reciprocal[1:].mean().item(), reciprocal[0].item())
    return values


def _nearness(scorer: EmbeddingScorer, query: RoleQuery, families: Spaces) -> Iterator[tuple[tuple[str, str], Tensor]]:
    """(family, space) and the nearness (a, n) of each entity to each anchor; known answers are infinitely far."""
    device = scorer.relations.device
    composed = scorer.slot_map(query.slot, query.fact.to(device)).apply(scorer.entities)
    role = RoleVectors(scorer.entities, composed, query.anchors.to(device))
    for family, variants in families.items():
        for name, space in variants.items():
            nearness = space(role).clone()
            nearness[:, query.known.to(device)] = -torch.inf
            yield (family, name), nearness


# Types -------------------------------------------------------------------------------------------------------------------


def measure_types(setup: Setup, model: GradientGraph, families: Spaces) -> Measured:
    """The share of the ten nearest entities, known answers apart, that have the type of the role.

    The type of X as the head of (X, r, Y) is the one of its types that is most frequent among the heads of (., r, Y),
    relative to all entities. Types come from a file and are no part of training; half of the queries are for validation.
    """
    assert setup.types is not None
    has_type = read_types(setup.types, setup.graph)  # (n_entities, types)
    scorer = model.prepare()
    values: dict[tuple[str, str], list[float]] = {}
    relations: list[int] = []
    for query in type_queries(setup.graph):
        anchor, fillers = int(query.anchors[0]), query.known
        lift = (has_type[fillers].float().mean(0) / has_type.float().mean(0).clamp(min=1e-6)) * has_type[anchor]
        if not lift.any():
            continue
        role_type = has_type[:, lift.argmax()]
        relations.append(int(query.fact.relation))
        for key, nearness in _nearness(scorer, query, families):
            nearest = nearness[0].topk(NEAREST).indices.cpu()
            values.setdefault(key, []).append(role_type[nearest].float().mean().item())
    relation = torch.tensor(relations)
    halves = {"valid": slice(0, len(relation), 2), "test": slice(1, len(relation), 2)}
    result: Families = {family: {} for family in families}
    for (family, name), column in values.items():
        numbers = torch.tensor(column, dtype=torch.float64)
        result[family][name] = {split: numbers[part] for split, part in halves.items()}
    return Measured(
        "role's type among the ten nearest", {split: relation[part] for split, part in halves.items()}, result
    )


def read_types(file: Path, graph: Graph) -> Tensor:
    """(n_entities, types) bool, from lines of an entity's identifier, a tab, and its types."""
    rows = dict(line.split("\t") for line in file.read_text(encoding="utf-8").splitlines())
    names = {name: number for number, name in enumerate(sorted({t for types in rows.values() for t in types.split()}))}
    has_type = torch.zeros(graph.n_entities, len(names), dtype=torch.bool)
    for entity, identifier in enumerate(graph.entities.ids):
        for name in rows.get(identifier, "").split():
            has_type[entity, names[name]] = True
    return has_type


def type_queries(graph: Graph, seed: int = 0) -> list[RoleQuery]:
    """Training facts whose role has several fillers; the anchor is the entity of the fact itself."""
    generator = torch.Generator().manual_seed(seed)
    queries: list[RoleQuery] = []
    for slot in SIDES:
        known, count = graph.known_answers(slot), 0
        for index in torch.randperm(len(graph.train), generator=generator).tolist():
            fact = graph.train[[index]]
            answers = known.of(fact)[1]
            if len(answers) >= MIN_FILLERS:
                queries.append(RoleQuery(slot, fact, fact[slot], answers))
                count += 1
            if count == FACTS:
                break
    return queries
