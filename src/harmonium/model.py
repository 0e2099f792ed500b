"""GradientGraph = embeddings + a composition + a quadratic form. score(h, r, t) = form(compose(h, r, t))."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from harmonium import kernels
from harmonium.composition import Composition, SlotMap
from harmonium.distributed import World
from harmonium.errors import HarmoniumError
from harmonium.graph import Slot, Triples
from harmonium.harmony import Harmony, QuadraticForm, Sum
from harmonium.kernels.fused import unit_rows
from harmonium.kernels.pruning import Pruner
from harmonium.kernels.quadratic import Loss
from harmonium.kernels.rows import KnownRows
from harmonium.tables import Dealt

BLOCK = {"cpu": 1 << 13, "cuda": 1 << 18}  # candidates that many queries are compared with at once
CALIBRATION_TRIPLES = 4096
DRAWN_ROWS = 1 << 14  # a multiple of 16, which is how many numbers are drawn at a time
INITIALISATIONS = ("calibrated", "paper")


class GradientGraph(nn.Module):
    """A model of a graph; `form` is a Harmony, or a Sum for the plain models.

    `normalise` divides every embedding by its length inside the graph of computation (as the paper's code does).
    `reciprocal` gives each relation a second vector, used to answer head queries as tail queries.
    In a `world` of several processes `entity` holds this one's rows alone. `entity` may be kept in fewer bits, and in
    other memory, than what computes (`place`): its rows become vectors where and as the relations are.
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
        if form.dim != (dim := composition.dim(entity_dim, relation_dim)):
            raise HarmoniumError(f"the form has {form.dim} dimensions, {composition.name} composes {dim}")
        self.composition, self.form = composition, form
        self.n_entities, self.n_relations = n_entities, n_relations
        self.normalise, self.reciprocal = normalise, reciprocal
        self.world, self.held = world, slice(0, n_entities) if world is None else world.rows(n_entities)
        self.entity = nn.Parameter(torch.empty(self.held.stop - self.held.start, entity_dim, dtype=entity_dtype))
        self.relation = nn.Parameter(torch.empty(n_relations * (2 if reciprocal else 1), relation_dim))

    def initialise(self, how: str = "calibrated", generator: torch.Generator | None = None) -> GradientGraph:
        """`paper`: random directions, small W and b. `calibrated`: also scores of unit spread, W along b."""
        if how not in INITIALISATIONS:
            raise HarmoniumError(f"no initialisation '{how}'; there are {', '.join(INITIALISATIONS)}")
        with torch.no_grad():
            draw_rows(self.entity, self.n_entities, self.held, generator)
            draw_rows(self.relation, len(self.relation), slice(0, len(self.relation)), generator)
            if isinstance(self.form, Harmony):
                self.form.initialise(generator)
            if how == "calibrated":
                self.form.calibrate(self.compose(self._random_triples(generator)))
        return self

    def _random_triples(self, generator: torch.Generator | None) -> Triples:
        sizes = (self.n_entities, self.n_relations, self.n_entities)
        return Triples(*(torch.randint(size, (CALIBRATION_TRIPLES,), generator=generator) for size in sizes))

    def place(self, device: torch.device | str, table: str = "device") -> GradientGraph:
        """Compute on a device; the entity table goes there too, or stays in the memory of the `host`."""
        for part in self.children():
            part.to(device)
        self.relation.data = self.relation.data.to(device)
        self.entity.data = self.entity.data.to(device if table == "device" else "cpu")
        return self

    def gather(self) -> None:
        """Bring the rows that other processes hold into the first one, which then has the whole model."""
        whole = self.world.gather(self.entity, self.n_entities)
        if whole is not None:
            self.entity, self.world, self.held = nn.Parameter(whole), None, slice(0, self.n_entities)

    # Vectors ---------------------------------------------------------------------------------------------------------

    def entities(self, ids: Tensor | None = None) -> Tensor:
        """(..., entity_dim): all entity vectors, or those of some ids."""
        if self.world is not None:
            held, ids = (torch.arange(self.n_entities) if ids is None else ids).unique(return_inverse=True)
            return self._vectors(Dealt(self.entity, self.n_entities, None, self.world).fetch(held), ids)
        return self._vectors(self.entity, ids)

    def relations(self, ids: Tensor | None = None) -> Tensor:
        """(..., relation_dim)."""
        return self._vectors(self.relation, ids)

    def _vectors(self, table: Tensor, ids: Tensor | None) -> Tensor:
        rows = (table if ids is None else F.embedding(ids.to(table.device), table)).to(self.relation)
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

        A table is not normalised whole where that can be spared: a large one is by blocks where no gradient is wanted,
        and a linear form divides scores instead.

        With `rows` (m, entity_dim), raw entity vectors, those are the only entities and ids count along them; with
        `relation_ids` (k,) those are the only relations, likewise, and queries come in their order.
        """
        table = self.entity if rows is None else rows
        block = len(table) if torch.is_grad_enabled() else BLOCK.get(self.relation.device.type, BLOCK["cpu"])
        form = self.form.fold()
        large = len(table) > block or (self.world is not None and rows is None)
        spared = large or (torch.is_grad_enabled() and form.core is None)
        table = table if spared else self._vectors(table, None)
        bare = replace(form, constant=torch.zeros_like(form.constant))
        relations, n_relations = self.relations(), self.n_relations
        if relation_ids is not None:
            both = [relation_ids, relation_ids + n_relations] if self.reciprocal else [relation_ids]
            relations, n_relations = F.embedding(torch.cat(both), relations), len(relation_ids)
        in_order = relation_ids is not None
        dealt = (
            Dealt(self.entity, self.n_entities, None, self.world) if self.world is not None and rows is None else None
        )
        return Snapshot(
            self.composition, table, relations, bare, n_relations, self.reciprocal, in_order,
            spared and self.normalise, block, dealt,
        )  # fmt: skip


def draw_rows(table: Tensor, n: int, held: slice, generator: torch.Generator | None) -> None:
    """Fill with random directions the rows `held` of a table (n, dim): the same, whoever holds which of them.

    Blocks of all rows are drawn in order and those of others left; their size gives the numbers of one long draw.
    """
    starts = [*range(0, max(1, n - DRAWN_ROWS), DRAWN_ROWS), n]
    for first, last in itertools.pairwise(starts):
        block = torch.empty(last - first, table.shape[1]).normal_(generator=generator).div_(table.shape[1] ** 0.5)
        low, high = max(first, held.start), min(last, held.stop)
        if low < high:
            table[low - held.start : high - held.start] = block[low - first : high - first]


@dataclass(frozen=True)
class Snapshot:
    """Scores that leave out the constant of the form: it is the same for every triple and large, and costs precision."""

    composition: Composition
    table: Tensor  # (n_entities, entity_dim)
    relations: Tensor  # (n_relations or, reciprocal, twice as many, relation_dim)
    form: QuadraticForm
    n_relations: int
    reciprocal: bool
    in_order: bool = False  # whether the relations of queries rise
    raw: bool = False  # whether rows of the table are still to be normalised
    block: int | None = None  # candidates scored at once; all when left out
    dealt: Dealt | None = None  # the table is this process's rows of a larger one
    gathered: dict = field(default_factory=dict)  # what one training step gathered

    @cached_property
    def entities(self) -> Tensor:
        """(n_entities, entity_dim): all entity vectors."""
        return self._unit(self.table)

    def vectors(self, ids: Tensor) -> Tensor:
        """(..., entity_dim): those of some entities."""
        if self.dealt is not None:
            ids, place = ids.unique(return_inverse=True)
            return self._unit(F.embedding(place, self.dealt.fetch(ids)))
        return self._once(ids, self.table, lambda: self._unit(F.embedding(ids.to(self.table.device), self.table)))

    def _unit(self, rows: Tensor) -> Tensor:
        rows = rows.to(self.relations)
        return unit_rows(rows) if self.raw else rows

    def slot_map(self, slot: Slot, queries: Triples) -> SlotMap:
        """How candidates for the open slot become composed vectors.

        A head query to a reciprocal model is a tail query of the second vector of its relation.
        """
        relation = queries.relation
        if slot is Slot.HEAD and self.reciprocal:
            relation = relation + self.n_relations
        head, tail = queries.head, queries.tail
        slot_dim = (self.relations if slot is Slot.RELATION else self.table).shape[-1]
        if slot is Slot.HEAD and self.reciprocal:
            slot, head = Slot.TAIL, tail
        relations = None if slot is Slot.RELATION else self.gather(relation, self.relations)
        if slot is Slot.RELATION:
            first, second = self.vectors(head), self.vectors(tail)
        elif slot is Slot.HEAD:
            first, second = relations, self.vectors(tail)
        else:
            first, second = self.vectors(head), relations
        return SlotMap(self.composition, slot, first, second, slot_dim, relation, self.relations, self.in_order)

    def gather(self, ids: Tensor, table: Tensor) -> Tensor:
        """Rows of a table."""
        return self._once(ids, table, lambda: F.embedding(ids, table))

    def _once(self, ids: Tensor, table: Tensor, make: Callable[[], Tensor]) -> Tensor:
        """In training the same ids are gathered once: every gather costs a gradient of the table's size."""
        if not torch.is_grad_enabled():
            return make()
        key = (id(ids), id(table))
        if key not in self.gathered:
            self.gathered[key] = (make(), ids, table)
        return self.gathered[key][0]

    def gather_both(self, queries: Triples) -> Tensor:
        """Gather heads and tails together; returns the table for whom else uses it in this step (see `KnownRows`)."""
        both, table = KnownRows.apply(self.table, torch.cat([queries.head, queries.tail]))
        for ids, rows in zip((queries.head, queries.tail), self._unit(both).split(len(queries)), strict=True):
            self._once(ids, self.table, lambda rows=rows: rows)
        return table

    def candidates(self, slot: Slot) -> Tensor:
        """(n_candidates, slot_dim): the vectors that can fill a slot."""
        return self.relations[: self.n_relations] if slot is Slot.RELATION else self.entities

    def _blocks(self, slot: Slot) -> Iterator[tuple[int, Tensor]]:
        """Candidates that follow each other: the first one's id, and their vectors (m, slot_dim)."""
        if slot is Slot.RELATION:
            yield 0, self.candidates(slot)
            return
        size, first = self.block or len(self.table), self.dealt.first if self.dealt is not None else 0
        if len(self.table) <= size:
            yield first, self.entities
            return
        for start in range(0, len(self.table), size):
            yield first + start, self._unit(self.table[start : start + size])

    def score_blocks(self, slot: Slot, queries: Triples) -> Iterator[tuple[int, Tensor]]:
        """For each block of candidates the first one's id, and their scores (n, m)."""
        slot_map = self.slot_map(slot, queries)
        for start, rows in self._blocks(slot):
            yield start, kernels.all_scores(self.form, slot_map, rows)

    def score_slot(self, slot: Slot, queries: Triples) -> Tensor:
        """(n, n_candidates): every entity (or relation) in the open slot."""
        parts = [scores for _, scores in self.score_blocks(slot, queries)]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    @cached_property
    def pruner(self) -> Pruner:
        return Pruner(self.form)

    def compare(self, slot: Slot, queries: Triples) -> Iterator[tuple[int, Tensor, Tensor]]:
        """For each block of candidates the first one's id, the truth's number (n, 1) and theirs (n, m), as scores compare.

        Where there are several blocks the truth stands in the product of each, so that equals stay equal.
        """
        slot_map, place, own = self.slot_map(slot, queries), queries[slot], self.table[:0]
        several = len(self.table) > (self.block or len(self.table)) or self.dealt is not None
        several = several and slot is not Slot.RELATION
        if several:
            own, place = self.vectors(place), torch.arange(len(place), device=place.device)
        for start, rows in self._blocks(slot):
            numbers = self.advantages(slot_map, torch.cat([own, rows]) if several else rows, place)
            yield start, numbers.gather(1, place[:, None]), numbers[:, len(own) :]

    def advantages(self, slot_map: SlotMap, candidates: Tensor, truth: Tensor) -> Tensor:
        """(n, m): numbers that compare with the truth's as the scores do, found by bounds where they pay."""
        if self.form.core is not None and kernels.pruning_allowed():
            found = self.pruner.advantages(slot_map, candidates, truth)
            if found is not None:
                return found
        return kernels.all_scores(self.form, slot_map, candidates)

    def score_sampled(self, queries: Triples, ids: Mapping[Slot, Tensor]) -> dict[Slot, Tensor]:
        """(n, m) for each slot: the scores of each query's own candidates ids (n, m) there, head and tail at once."""
        scores = kernels.sampled_scores(*self._sampled(queries, ids), self.raw and Slot.RELATION not in ids)
        return dict(zip(ids, scores, strict=True))

    def sampled_loss(self, queries: Triples, ids: Mapping[Slot, Tensor], of: Loss) -> Tensor:
        """`of` those scores, head before tail: see `kernels.sampled_loss`."""
        return kernels.sampled_loss(*self._sampled(queries, ids), of, self.raw)

    def _sampled(self, queries: Triples, ids: Mapping[Slot, Tensor]) -> tuple:
        table = self.gather_both(queries) if torch.is_grad_enabled() else self.table
        if Slot.RELATION in ids:
            table = self.candidates(Slot.RELATION)
        return self.form, [self.slot_map(slot, queries) for slot in ids], table, list(ids.values())

    def score_shared(self, slot: Slot, queries: Triples, ids: Tensor) -> Tensor:
        """(n, m): the scores of candidates ids (g, m) in a slot, each row of them shared by n / g queries in a row."""
        return kernels.shared_scores(self.form, self.slot_map(slot, queries), self.candidates(slot), ids)
