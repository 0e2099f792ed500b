"""GradientGraph = embeddings + a composition + a quadratic form. score(h, r, t) = form(compose(h, r, t))."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from harmonium import kernels
from harmonium.composition import Composition, SlotMap
from harmonium.errors import HarmoniumError
from harmonium.graph import Slot, Triples
from harmonium.harmony import Harmony, QuadraticForm, Sum
from harmonium.kernels.fused import unit_rows
from harmonium.kernels.pruning import Pruner

CALIBRATION_TRIPLES = 4096
INITIALISATIONS = ("calibrated", "paper")


class GradientGraph(nn.Module):
    """A model of a graph; `form` is a Harmony, or a Sum for the plain models.

    `normalise` divides every embedding by its length inside the graph of computation (as the paper's code does).
    `reciprocal` gives each relation a second vector, used to answer head queries as tail queries.
    """

    def __init__(
        self,
        composition: Composition,
        n_entities: int,
        n_relations: int,
        entity_dim: int,
        form: Harmony | Sum,
        relation_dim: int | None = None,
        normalise: bool = True,
        reciprocal: bool = False,
    ) -> None:
        super().__init__()
        relation_dim = relation_dim or composition.relation_dim(entity_dim)
        if form.dim != (dim := composition.dim(entity_dim, relation_dim)):
            raise HarmoniumError(f"the form has {form.dim} dimensions, {composition.name} composes {dim}")
        self.composition, self.form = composition, form
        self.n_entities, self.n_relations = n_entities, n_relations
        self.normalise, self.reciprocal = normalise, reciprocal
        self.entity = nn.Parameter(torch.empty(n_entities, entity_dim))
        self.relation = nn.Parameter(torch.empty(n_relations * (2 if reciprocal else 1), relation_dim))

    def initialise(self, how: str = "calibrated", generator: torch.Generator | None = None) -> GradientGraph:
        """`paper`: random directions, small W and b. `calibrated`: also scores of unit spread, W along b."""
        if how not in INITIALISATIONS:
            raise HarmoniumError(f"no initialisation '{how}'; there are {', '.join(INITIALISATIONS)}")
        with torch.no_grad():
            for table in (self.entity, self.relation):
                table.normal_(generator=generator).div_(table.shape[-1] ** 0.5)
            if isinstance(self.form, Harmony):
                self.form.initialise(generator)
            if how == "calibrated":
                self.form.calibrate(self.compose(self._random_triples(generator)))
        return self

    def _random_triples(self, generator: torch.Generator | None) -> Triples:
        sizes = (self.n_entities, self.n_relations, self.n_entities)
        return Triples(*(torch.randint(size, (CALIBRATION_TRIPLES,), generator=generator) for size in sizes))

    # Vectors ---------------------------------------------------------------------------------------------------------

    def entities(self, ids: Tensor | None = None) -> Tensor:
        """(..., entity_dim): all entity vectors, or those of some ids."""
        return self._vectors(self.entity, ids)

    def relations(self, ids: Tensor | None = None) -> Tensor:
        """(..., relation_dim)."""
        return self._vectors(self.relation, ids)

    def _vectors(self, table: Tensor, ids: Tensor | None) -> Tensor:
        rows = table if ids is None else F.embedding(ids, table)
        return unit_rows(rows) if self.normalise else rows

    def compose(self, triples: Triples) -> Tensor:
        """(n, dim): the composed (type) embeddings."""
        return self.composition.compose(
            self.entities(triples.head), self.relations(triples.relation), self.entities(triples.tail)
        )

    @property
    def harmony(self) -> Harmony:
        if not isinstance(self.form, Harmony):
            raise HarmoniumError(f"plain {self.composition.name} has no harmony, so no tokens; train with faithfulness")
        return self.form

    def tokens(self, triples: Triples) -> Tensor:
        """(n, dim): the token embeddings, the harmony-maximising states."""
        return self.harmony.optimise(self.compose(triples))

    # Scores ----------------------------------------------------------------------------------------------------------

    def score(self, triples: Triples) -> Tensor:
        """(n,): the harmony of each triple at its optimum."""
        return self.form.fold()(self.compose(triples))

    def score_slot(self, slot: Slot, queries: Triples) -> Tensor:
        """(n, n_candidates): the score of every entity (or relation) in the open slot."""
        return self.snapshot().score_slot(slot, queries) + self.form.fold().constant

    def snapshot(self, rows: Tensor | None = None, relation_ids: Tensor | None = None) -> Snapshot:
        """The model at this instant, for many comparisons: vectors made and the form folded once.

        With `rows` (m, entity_dim), raw entity vectors, those are the only entities and ids count along them; with
        `relation_ids` (k,) those are the only relations, likewise, and queries come in their order.
        """
        table = self.entity if rows is None else rows
        entities = unit_rows(table) if self.normalise else table
        form = self.form.fold()
        bare = replace(form, constant=torch.zeros_like(form.constant))
        relations, n_relations = self.relations(), self.n_relations
        if relation_ids is not None:
            both = [relation_ids, relation_ids + n_relations] if self.reciprocal else [relation_ids]
            relations, n_relations = F.embedding(torch.cat(both), relations), len(relation_ids)
        in_order = relation_ids is not None
        return Snapshot(self.composition, entities, relations, bare, n_relations, self.reciprocal, in_order)


@dataclass(frozen=True)
class Snapshot:
    """Scores that leave out the constant of the form: it is the same for every triple and large, and costs precision."""

    composition: Composition
    entities: Tensor  # (n_entities, entity_dim)
    relations: Tensor  # (n_relations or, reciprocal, twice as many, relation_dim)
    form: QuadraticForm
    n_relations: int
    reciprocal: bool
    in_order: bool = False  # whether the relations of queries rise
    gathered: dict = field(default_factory=dict)  # what one training step gathered

    def slot_map(self, slot: Slot, queries: Triples) -> SlotMap:
        """How candidates for the open slot become composed vectors.

        A head query to a reciprocal model is a tail query of the second vector of its relation.
        """
        relation = queries.relation
        if slot is Slot.HEAD and self.reciprocal:
            relation = relation + self.n_relations
        head, tail, slot_dim = queries.head, queries.tail, self.candidates(slot).shape[-1]
        if slot is Slot.HEAD and self.reciprocal:
            slot, head = Slot.TAIL, tail
        relations = None if slot is Slot.RELATION else self.gather(relation, self.relations)
        if slot is Slot.RELATION:
            first, second = self.gather(head, self.entities), self.gather(tail, self.entities)
        elif slot is Slot.HEAD:
            first, second = relations, self.gather(tail, self.entities)
        else:
            first, second = self.gather(head, self.entities), relations
        return SlotMap(self.composition, slot, first, second, slot_dim, relation, self.relations, self.in_order)

    def gather(self, ids: Tensor, table: Tensor) -> Tensor:
        """Rows of a table; in training the same ids are gathered once: every gather costs a gradient of the table's size."""
        if not torch.is_grad_enabled():
            return F.embedding(ids, table)
        key = (id(ids), id(table))
        if key not in self.gathered:
            self.gathered[key] = (F.embedding(ids, table), ids, table)
        return self.gathered[key][0]

    def gather_both(self, queries: Triples) -> None:
        """Gather heads and tails together: one gradient of the table's size instead of two."""
        sparse = self.entities.grad_fn is not None  # a table's own gradient stays dense
        both = F.embedding(torch.cat([queries.head, queries.tail]), self.entities, sparse=sparse).split(len(queries))
        for ids, rows in zip((queries.head, queries.tail), both, strict=True):
            self.gathered[id(ids), id(self.entities)] = (rows, ids, self.entities)

    def candidates(self, slot: Slot) -> Tensor:
        """(n_candidates, slot_dim): the vectors that can fill a slot."""
        return self.relations[: self.n_relations] if slot is Slot.RELATION else self.entities

    def score_slot(self, slot: Slot, queries: Triples) -> Tensor:
        """(n, n_candidates): every entity (or relation) in the open slot."""
        return kernels.all_scores(self.form, self.slot_map(slot, queries), self.candidates(slot))

    @cached_property
    def pruner(self) -> Pruner:
        return Pruner(self.form)

    def advantages(self, slot: Slot, queries: Triples) -> Tensor:
        """(n, n_candidates): numbers that compare with the truth's as the scores do, found by bounds where they pay."""
        if self.form.core is not None and kernels.pruning_allowed():
            found = self.pruner.advantages(self.slot_map(slot, queries), self.candidates(slot), queries[slot])
            if found is not None:
                return found
        return self.score_slot(slot, queries)

    def score_sampled(self, queries: Triples, ids: Mapping[Slot, Tensor]) -> dict[Slot, Tensor]:
        """(n, m) for each slot: the scores of each query's own candidates ids (n, m) there, head and tail at once."""
        if torch.is_grad_enabled():
            self.gather_both(queries)
        slot_maps, table = [self.slot_map(slot, queries) for slot in ids], self.candidates(next(iter(ids)))
        scores = kernels.sampled_scores(self.form, slot_maps, table, list(ids.values()))
        return dict(zip(ids, scores, strict=True))
