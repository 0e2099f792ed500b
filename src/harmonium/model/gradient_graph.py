"""GradientGraph = embeddings + a composition + a quadratic form. score(h, r, t) = form(compose(h, r, t))."""

from __future__ import annotations

import itertools
from copy import deepcopy
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from harmonium.data.triples import Slot, Triples
from harmonium.errors import HarmoniumError
from harmonium.kernels.unit_rows import unit_rows
from harmonium.model.composition import Composition
from harmonium.model.composition_check import check_own_composition
from harmonium.model.entity_vectors import EntityVectors
from harmonium.model.harmony import Harmony, Sum, xavier_limit
from harmonium.model.scoring import EmbeddingScorer, Scorer
from harmonium.runtime.distributed import World
from harmonium.runtime.sharding import ShardedTable

CANDIDATES_PER_BLOCK = {"cpu": 1 << 13, "cuda": 1 << 18}  # compared at once with many queries
CALIBRATION_TRIPLES = 4096  # whose scores calibrate the initial values
ROWS_PER_DRAW = 1 << 14  # a multiple of 16, as PyTorch draws 16 numbers at a time
INITIALISATIONS = ("calibrated", "paper", "xavier")


class GradientGraph(nn.Module, Scorer):
    """A model of a graph; `form` is a Harmony, or a Sum for the plain models.

    `normalise` divides every embedding by its length, as part of the computation (as the paper's code does).
    `reciprocal` gives each relation a second vector, used to answer head queries as tail queries.
    In a `world` of several processes the entity table is sharded: `entity` holds the rows `local_rows` alone.
    The entity table may have a smaller dtype than the relations, and may stay in host memory (`move_to`): vectors are
    converted to the device and dtype of the relations.
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
        world: World | None = None,
        entity_dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        relation_dim = relation_dim or composition.relation_dim(entity_dim)
        dim = composition.dim(entity_dim, relation_dim)
        check_own_composition(composition, entity_dim, relation_dim)
        if form.dim != dim:
            raise HarmoniumError(f"the form has {form.dim} dimensions, {composition.name} composes {dim}")
        self.composition, self.form = composition, form
        self.n_entities, self.n_relations = n_entities, n_relations
        self.normalise, self.reciprocal = normalise, reciprocal
        self._world = world
        self.local_rows = slice(0, n_entities) if world is None else world.shard(n_entities)
        n_local = self.local_rows.stop - self.local_rows.start
        self.entity = nn.Parameter(torch.empty(n_local, entity_dim, dtype=entity_dtype))
        self.relation = nn.Parameter(torch.empty(n_relations * (2 if reciprocal else 1), relation_dim))

    def initialise(
        self, how: str = "calibrated", generator: torch.Generator | None = None, spread: float | None = None
    ) -> GradientGraph:
        """`paper`: random vectors, small W and b. `calibrated`: also scores of unit spread, W along b. `xavier`: uniform.

        Xavier's limit sqrt(6 / (rows + columns)) counts all rows of a table, so that vectors start far shorter than one
        (.26 for 14,951 entities of 512 numbers): if they are normalised, a step of Adam turns them further.
        `spread` is the standard deviation of vectors, default 1 / sqrt(dim). If vectors are not normalised, a given
        spread decides the spread of scores, and a calibrated Harmony starts as the plain model (`Harmony.start_as_sum`).
        """
        if how not in INITIALISATIONS:
            raise HarmoniumError(f"no initialisation '{how}'; there are {', '.join(INITIALISATIONS)}")
        is_xavier = how == "xavier"
        if is_xavier and spread is not None:
            raise HarmoniumError("model.initialisation=xavier has its own spread; remove model.initial_spread")
        with torch.no_grad():
            draw_rows(self.entity, self.n_entities, self.local_rows, generator, spread, is_xavier)
            draw_rows(self.relation, len(self.relation), slice(0, len(self.relation)), generator, spread, is_xavier)
            if isinstance(self.form, Harmony):
                self.form.initialise(generator, is_xavier)
            if how == "calibrated" and spread is not None and not self.normalise:
                self.form.start_as_sum()
            elif how == "calibrated":
                sizes, count = (self.n_entities, self.n_relations, self.n_entities), (CALIBRATION_TRIPLES,)
                triples = Triples(*(torch.randint(size, count, generator=generator) for size in sizes))
                self.form.calibrate(self.compose(triples))
        return self

    def move_to(self, device: torch.device | str, table: str = "device") -> GradientGraph:
        """Move to a device; with table="host" the entity table stays in host memory."""
        self.form.to(device)
        self.relation.data = self.relation.data.to(device)
        self.entity.data = self.entity.data.to(device if table == "device" else "cpu")
        return self

    def gather_entities(self, everywhere: bool = False) -> None:
        """Gather a sharded entity table into the main process, or every one, which then has the whole model."""
        table = None if self.world is None else self.world.gather_rows(self.entity, self.n_entities, everywhere)
        if table is not None:
            self.entity, self._world, self.local_rows = nn.Parameter(table), None, slice(0, self.n_entities)

    @property
    def world(self) -> World | None:
        return self._world

    # Vectors ---------------------------------------------------------------------------------------------------------

    def entities(self, ids: Tensor | None = None) -> Tensor:
        """(..., entity_dim): the vectors of these entities; default: of all."""
        vectors = EntityVectors(self.entity, self.relation, self.normalise, len(self.entity), self._sharded_table())
        if ids is None and self.world is None:
            return vectors.all
        return vectors.of(torch.arange(self.n_entities) if ids is None else ids)

    def local_entities(self) -> Tensor:
        """(n_local, entity_dim): the vectors of the entities that this process holds."""
        return self._convert(self.entity)

    def relations(self, ids: Tensor | None = None) -> Tensor:
        """(..., relation_dim): the vectors of these relations; default: of all, then the reciprocal ones."""
        rows = self.relation if ids is None else F.embedding(ids.to(self.relation.device), self.relation)
        return self._convert(rows)

    def _convert(self, rows: Tensor) -> Tensor:
        return unit_rows(rows) if self.normalise else rows

    def _sharded_table(self) -> ShardedTable | None:
        return None if self.world is None else ShardedTable(self.entity, self.n_entities, self.world)

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

    def score_slot(self, slot: Slot, queries: Triples, candidates: Tensor | None = None) -> Tensor:
        """(n, m): the score of each candidate (default: every entity or relation) in the open slot."""
        return self.scorer().score_slot(slot, queries, candidates) + self.form.fold().constant

    def score_facts(self, slot: Slot, triples: Triples) -> Tensor:
        return self.scorer().score_facts(slot, triples) + self.form.fold().constant

    def n_candidates(self, slot: Slot) -> int:
        return self.n_relations if slot is Slot.RELATION else self.n_entities

    @property
    def device(self) -> torch.device:
        return self.relation.device

    def scorer(self, rows: Tensor | None = None, relation_ids: Tensor | None = None) -> EmbeddingScorer:
        """A snapshot of the model for many comparisons: vectors are normalised and the form is folded once.

        With `rows` (m, entity_dim), unnormalised entity vectors, those are the only entities and ids count along them;
        with `relation_ids` (k,) those are the only relations, ids count along them, and queries must be in their order.
        """
        form, relations = self.form.fold(), self.relations()
        if relation_ids is not None:
            both = [relation_ids, relation_ids + self.n_relations] if self.reciprocal else [relation_ids]
            relations = F.embedding(torch.cat(both), relations)
        entity_vectors = self._entity_vectors(rows, has_linear_form=form.core is None)
        comparable = replace(form, constant=torch.zeros_like(form.constant))
        return EmbeddingScorer(
            self.composition, comparable, entity_vectors, relations, self.reciprocal, relation_ids is not None
        )

    @torch.no_grad()
    def prepare(self) -> EmbeddingScorer:
        """A scorer whose close comparisons are decided in float64, from the stored parameters."""
        scorer = self.scorer().prepare()
        if scorer.exact is None:
            return scorer
        exact = replace(scorer.exact, relations=self._convert(self.relation.double()))
        table = replace(scorer.entity_vectors, table=self.entity, like=exact.relations, normalise=self.normalise)
        scorer = replace(scorer, exact=replace(exact, entity_vectors=table))
        return scorer.with_form(deepcopy(self.form).double().fold())

    def _entity_vectors(self, rows: Tensor | None, has_linear_form: bool) -> EntityVectors:
        """The entity vectors, normalised as a whole only if that is cheapest.

        Without gradients a large table is normalised block by block; in training a linear form divides scores instead.
        """
        table, training = self.entity if rows is None else rows, torch.is_grad_enabled()
        block_size = (
            len(table) if training else CANDIDATES_PER_BLOCK.get(self.relation.device.type, CANDIDATES_PER_BLOCK["cpu"])
        )
        sharded = self._sharded_table() if rows is None else None
        vectors = EntityVectors(table, self.relation, self.normalise, block_size, sharded)
        if len(table) > block_size or sharded is not None or (training and has_linear_form):
            return vectors
        return EntityVectors(vectors.all, self.relation, False, block_size)


def draw_rows(
    table: Tensor,
    n: int,
    local_rows: slice,
    generator: torch.Generator | None,
    spread: float | None = None,
    is_xavier: bool = False,
) -> None:
    """Fill the rows `local_rows` of a table (n, dim) with normal numbers, equal however the table is sharded.

    Their standard deviation is `spread`, default 1 / sqrt(dim); Xavier's numbers are uniform instead. All rows are drawn
    in order, block by block, and those of other processes are discarded.
    """
    divisor = table.shape[1] ** 0.5 if spread is None else 1 / spread
    limit = xavier_limit(n, table.shape[1])
    starts = [*range(0, max(1, n - ROWS_PER_DRAW), ROWS_PER_DRAW), n]
    for first, last in itertools.pairwise(starts):
        block = torch.empty(last - first, table.shape[1])
        if is_xavier:
            block.uniform_(-limit, limit, generator=generator)
        else:
            block.normal_(generator=generator).div_(divisor)
        low, high = max(first, local_rows.start), min(last, local_rows.stop)
        if low < high:
            table[low - local_rows.start : high - local_rows.start] = block[low - first : high - first]
