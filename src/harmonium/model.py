"""GradientGraph = embeddings + a composition + a quadratic form. score(h, r, t) = form(compose(h, r, t))."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from harmonium import kernels
from harmonium.composition import Composition, SlotMap
from harmonium.errors import HarmoniumError
from harmonium.graph import Slot, Triples
from harmonium.harmony import Harmony, QuadraticForm, Sum

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
        return F.normalize(rows, dim=-1) if self.normalise else rows

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

    def slot_map(self, slot: Slot, queries: Triples, entities: Tensor) -> SlotMap:
        """How candidates for the open slot become composed vectors, given all entity vectors (n_entities, entity_dim).

        A head query to a reciprocal model is a tail query of the second vector of its relation.
        """
        relations, compose = self.relations, self.composition.slot_map
        if slot is Slot.RELATION:
            head, tail = F.embedding(queries.head, entities), F.embedding(queries.tail, entities)
            return compose(slot, head, tail, self.relation.shape[-1])
        relation = queries.relation + (self.n_relations if slot is Slot.HEAD and self.reciprocal else 0)
        if slot is Slot.HEAD and not self.reciprocal:
            return compose(Slot.HEAD, relations(relation), F.embedding(queries.tail, entities), entities.shape[-1])
        known = queries.tail if slot is Slot.HEAD else queries.head
        return compose(Slot.TAIL, F.embedding(known, entities), relations(relation), entities.shape[-1])

    def score_slot(self, slot: Slot, queries: Triples) -> Tensor:
        """(n, n_candidates): the score of every entity (or relation) in the open slot."""
        return self.compare_slot(slot, queries) + self.form.fold().constant

    def compare_slot(self, slot: Slot, queries: Triples) -> Tensor:
        """score_slot less the form's constant: that is the same for every triple and large, so it costs precision."""
        form, slot_map, candidates = self._parts(slot, queries)
        return kernels.all_scores(form, slot_map, candidates)

    def compare_sampled(self, slot: Slot, queries: Triples, ids: Tensor) -> Tensor:
        """(n, m): the same for each query's own candidates ids (n, m)."""
        form, slot_map, candidates = self._parts(slot, queries)
        return kernels.sampled_scores(form, slot_map, candidates, ids)

    def _parts(self, slot: Slot, queries: Triples) -> tuple[QuadraticForm, SlotMap, Tensor]:
        form, entities = self.form.fold(), self.entities()
        candidates = self.relations()[: self.n_relations] if slot is Slot.RELATION else entities
        return (
            replace(form, constant=torch.zeros_like(form.constant)),
            self.slot_map(slot, queries, entities),
            candidates,
        )
