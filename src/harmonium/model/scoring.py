"""Scoring of open slots: what can be ranked, and the scorer of a GradientGraph."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.weak import WeakIdKeyDictionary

from harmonium.data.triples import Slot, Triples
from harmonium.kernels import dispatch
from harmonium.kernels.cross_entropy import Shard
from harmonium.kernels.gather import gather_with_table
from harmonium.kernels.interfaces import Loss
from harmonium.kernels.pair_scores import PairScores
from harmonium.kernels.pruning import Pruner
from harmonium.kernels.quadratic_form import QuadraticForm
from harmonium.model.composition import Composition, SlotMap
from harmonium.model.dropout import QueryDropout
from harmonium.model.entity_vectors import EntityVectors
from harmonium.model.exact_scores import Comparison, ExactScores, ExactSlotScores

if TYPE_CHECKING:
    from harmonium.runtime.distributed import World


FACTS_PER_CHUNK = 8192  # composed at once
MAX_FACT_SCORES = 1 << 24  # held at once when facts are scored through the scores of all candidates


def of_candidates(scores: Tensor, candidates: Tensor | None) -> Tensor:
    """Select the columns of these candidates (m,) from the scores of all; None: all columns."""
    return scores if candidates is None else scores[:, candidates]


class Scorer(ABC):
    """Scores the candidates of an open slot: all that ranking and answers need.

    A subclass must define `score_slot` and `n_candidates`. Call `prepare` before scoring many queries.
    """

    @property
    def works_by_relation(self) -> bool:
        """Whether queries of one relation are cheaper when scored together."""
        return False

    @abstractmethod
    def score_slot(self, slot: Slot, queries: Triples, candidates: Tensor | None = None) -> Tensor:
        """(n, m): the score of each candidate id (m,) in the open slot of each query; default: of all of them."""

    @abstractmethod
    def n_candidates(self, slot: Slot) -> int:
        """Number of entities (or relations) that can fill a slot."""

    def block_width(self, slot: Slot) -> int:
        """Maximum number of candidates that `score_blocks` scores at once; determines the memory for one query."""
        return self.n_candidates(slot)

    @property
    def device(self) -> torch.device:
        """Where scores are computed."""
        return torch.device("cpu")

    def score_facts(self, slot: Slot, triples: Triples) -> Tensor:
        """(n,): the score of each triple, computed with `slot` as the open slot."""
        rows = max(1, MAX_FACT_SCORES // max(1, self.n_candidates(slot)))
        parts = [self.score_slot(slot, part).gather(1, part[slot][:, None])[:, 0] for part in triples.chunks(rows)]
        return torch.cat(parts)

    def prepare(self) -> Scorer:
        """An equivalent scorer with all work done that does not depend on queries; worth it for many queries."""
        return self

    def score_blocks(self, slot: Slot, queries: Triples) -> Iterator[tuple[int, Tensor]]:
        """For each block of candidates: the id of its first one, and the scores (n, block)."""
        yield 0, self.score_slot(slot, queries)

    def exact_scores(self, slot: Slot, queries: Triples) -> ExactScores | None:
        """Exact scores (float64) for close comparisons; None if the scores of `score_slot` are compared as they are."""
        return None

    def compare_blocks(self, slot: Slot, queries: Triples) -> Iterator[Comparison]:
        """Each block of candidates compared with the true answer of each query."""
        exact = self.exact_scores(slot, queries)
        if exact is not None:
            for start, scores in self.score_blocks(slot, queries):
                yield Comparison.within_error(start, scores, exact)
            return
        scores = self.score_slot(slot, queries)
        true_scores = scores.gather(1, queries[slot][:, None])
        yield Comparison(0, scores, true_scores, true_scores)

    @property
    def world(self) -> World | None:
        """The processes over which the candidates are sharded; each one scores its shard."""
        return None


@dataclass(frozen=True)
class EmbeddingScorer(Scorer):
    """A snapshot of a GradientGraph for many comparisons.

    Scores omit the constant of the form: it is equal for all triples, and large, so adding it would cost precision.
    """

    composition: Composition
    form: QuadraticForm
    entity_vectors: EntityVectors
    relations: Tensor  # (n_relations, relation_dim), or twice as many rows with reciprocal relations
    reciprocal: bool
    sorted_by_relation: bool = False  # whether queries come in the order of their relations
    exact: EmbeddingScorer | None = None  # this scorer in float64, which decides comparisons

    def prepare(self) -> EmbeddingScorer:
        """Add a float64 copy that decides close comparisons (a device without float64 compares rounded scores)."""
        if self.exact is not None or self.relations.device.type == "mps":
            return self
        relations = self.relations.double()
        exact = replace(
            self,
            form=self.form.double(),
            entity_vectors=replace(self.entity_vectors, like=relations),
            relations=relations,
        )
        return replace(self, exact=exact)

    def with_form(self, form: QuadraticForm) -> EmbeddingScorer:
        """This scorer with another form, of any precision; its constant is dropped."""
        form = replace(form, constant=torch.zeros_like(form.constant))
        exact = None if self.exact is None else replace(self.exact, form=form.double())
        return replace(self, form=form.to(self.relations.dtype), exact=exact)

    @property
    def n_relations(self) -> int:
        return len(self.relations) // (2 if self.reciprocal else 1)

    @property
    def world(self) -> World | None:
        return None if self.entity_vectors.sharded is None else self.entity_vectors.sharded.world

    @property
    def device(self) -> torch.device:
        return self.relations.device

    @property
    def entities(self) -> Tensor:
        """(n_entities, entity_dim)."""
        return self.entity_vectors.all

    def n_candidates(self, slot: Slot) -> int:
        return self.n_relations if slot is Slot.RELATION else self.entity_vectors.n_entities

    def block_width(self, slot: Slot) -> int:
        return self.n_relations if slot is Slot.RELATION else self.entity_vectors.block_width

    @cached_property
    def _gathered(self) -> WeakIdKeyDictionary:
        """Cache: tensor of candidate ids -> their vectors, as many blocks of queries share them."""
        return WeakIdKeyDictionary()

    @cached_property
    def pruner(self) -> Pruner:
        form = self.form if self.exact is None else self.exact.form
        return Pruner(form.double(), self.relations.dtype)

    @cached_property
    def longest(self) -> dict[Slot, Tensor]:
        """The length of the longest candidate for each slot."""
        entity, relation = self.entity_vectors.longest, torch.linalg.vector_norm(self.relations, dim=-1).max()
        return {Slot.HEAD: entity, Slot.RELATION: relation, Slot.TAIL: entity}

    def for_batch(
        self, batch: Triples, dropout: QueryDropout | None = None, queries: SharedQueries | None = None
    ) -> BatchScorer:
        return BatchScorer(self, batch, dropout, queries)

    def with_inverse_relations(self) -> EmbeddingScorer:
        """Expand reciprocal relations to separate ones: (tail, r + n_relations, head) is (head, r, tail) reversed."""
        return replace(self, reciprocal=False)

    def slot_map(self, slot: Slot, queries: Triples) -> SlotMap:
        """The maps from candidates for the open slot to composed vectors."""
        return self.for_batch(queries).slot_map(slot)

    def candidates(self, slot: Slot) -> Tensor:
        """(n_candidates, slot_dim): the vectors of all candidates for a slot."""
        return self.relations[: self.n_relations] if slot is Slot.RELATION else self.entities

    def candidate_blocks(self, slot: Slot) -> Iterator[tuple[int, Tensor]]:
        """For each block of candidates: the id of its first one, and their vectors (block, slot_dim)."""
        if slot is Slot.RELATION:
            yield 0, self.candidates(slot)
        else:
            yield from self.entity_vectors.blocks()

    def score_blocks(self, slot: Slot, queries: Triples) -> Iterator[tuple[int, Tensor]]:
        slot_map = self.slot_map(slot, queries)
        for start, candidates in self.candidate_blocks(slot):
            yield start, dispatch.all_scores(self.form, slot_map, candidates)

    def score_slot(self, slot: Slot, queries: Triples, candidates: Tensor | None = None) -> Tensor:
        if candidates is None:
            return self.for_batch(queries).score_slot(slot)
        return dispatch.all_scores(self.form, self.slot_map(slot, queries), self._vectors_of(slot, candidates))

    def _vectors_of(self, slot: Slot, candidates: Tensor) -> Tensor:
        """(m, slot_dim): the vectors of candidates by id."""
        if slot is Slot.RELATION:
            return self.candidates(slot)[candidates]
        if torch.is_grad_enabled():
            return self.entity_vectors.of(candidates)
        vectors: Tensor | None = self._gathered.get(candidates)
        if vectors is None:
            self._gathered[candidates] = vectors = self.entity_vectors.of(candidates)
        return vectors

    def score_facts(self, slot: Slot, triples: Triples) -> Tensor:
        parts = []
        for part in triples.chunks(FACTS_PER_CHUNK):
            ids = part[slot]
            vectors = self.candidates(slot)[ids] if slot is Slot.RELATION else self.entity_vectors.of(ids)
            parts.append(self.form(self.slot_map(slot, part).apply(vectors)))
        return torch.cat(parts)

    def exact_scores(self, slot: Slot, queries: Triples) -> ExactSlotScores | None:
        if self.exact is None:
            return None
        exact = self.exact
        pairs = PairScores(exact.form, exact.slot_map(slot, queries))
        candidates = exact.candidates(slot) if slot is Slot.RELATION else exact.entity_vectors
        return ExactSlotScores(pairs, candidates, queries[slot], exact.longest[slot], self.relations.dtype)

    def compare_blocks(self, slot: Slot, queries: Triples) -> Iterator[Comparison]:
        """Uses bounds if that is faster (kernels/pruning.py)."""
        exact = self.exact_scores(slot, queries)
        if exact is None:
            yield from super().compare_blocks(slot, queries)
            return
        slot_map = exact.slot_map.to(self.relations.dtype)
        true_scores, true_errors = (
            exact.of_truth
        )  # a collective call: all processes must make it, with or without candidates
        for start, candidates in self.candidate_blocks(slot):
            if not len(candidates):
                continue
            values = None
            if self.form.core is not None and dispatch.pruning_allowed():
                decide = exact.decide_from(start)
                values = self.pruner.comparable_scores(slot_map, candidates, true_scores, 4 * true_errors, decide)
            if values is None:
                scores = dispatch.all_scores(self.form, slot_map, candidates)
                yield Comparison.within_error(start, scores, exact)
            else:
                zero = values.new_zeros(len(queries), 1)
                yield Comparison(start, values, zero, zero)


class SharedQueries(NamedTuple):
    """Facts of a batch grouped by the query that they answer. Each fact answers one query: for its tail or its head."""

    of_fact: Tensor  # (b,): the query that a fact answers, ascending
    first: Tensor  # (q,): the first fact that answers each query
    tails: int  # number of facts that answer a query for a tail; they come before those for a head

    def slots(self) -> dict[Slot, Tensor]:
        """Open slot -> one fact (row) of each query."""
        n_tails = int((self.first < self.tails).sum())
        parts = {Slot.TAIL: self.first[:n_tails], Slot.HEAD: self.first[n_tails:]}
        return {slot: facts for slot, facts in parts.items() if len(facts)}


class EntityShard(NamedTuple):
    """The entities of which this process scores candidates; those of the batch may be others'."""

    vectors: Tensor  # (n_local, entity_dim)
    ids: Tensor  # (m,): the entities that ids of the batch index
    candidates: Shard


class BatchScorer:
    """Scores of one batch. Its vectors are gathered once: in training each gather costs a gradient of the table's size.

    Dropout applies to queries only: `head`, `relation` and `tail`, which regularisers use, have none.
    """

    def __init__(
        self,
        scorer: EmbeddingScorer,
        batch: Triples,
        dropout: QueryDropout | None = None,
        queries: SharedQueries | None = None,
    ) -> None:
        self.scorer, self.batch, self.dropout, self.queries = scorer, batch, dropout, queries
        self.composition, self.form, self.entity_vectors = scorer.composition, scorer.form, scorer.entity_vectors
        self.relations, self.n_relations, self.reciprocal = scorer.relations, scorer.n_relations, scorer.reciprocal

    @cached_property
    def head(self) -> Tensor:
        """(b, entity_dim)."""
        return self.entity_vectors.of(self.batch.head)

    @cached_property
    def tail(self) -> Tensor:
        """(b, entity_dim)."""
        return self.entity_vectors.of(self.batch.tail)

    @cached_property
    def entity_rows(self) -> Tensor:
        """(2b, entity_dim): the heads, then the tails."""
        return torch.cat([self.head, self.tail])

    @cached_property
    def relation(self) -> Tensor:
        """(b, relation_dim)."""
        return F.embedding(self.batch.relation, self.relations)

    def weights(self, times: int) -> Tensor | None:
        """(times * b,): the weights of the facts, repeated; None if they have no weights."""
        weight = self.batch.weight
        return None if weight is None else weight.to(self.relations.dtype).repeat(times)

    @cached_property
    def reciprocal_ids(self) -> Tensor:
        return self.batch.relation + self.n_relations

    @cached_property
    def reciprocal_relation(self) -> Tensor:
        """(b, relation_dim): the second vector of each relation, which answers head queries as tail queries."""
        return F.embedding(self.reciprocal_ids, self.relations)

    @cached_property
    def relation_rows(self) -> Tensor:
        """(b, relation_dim), or (2b, relation_dim) with reciprocal relations: the first vectors, then the second ones."""
        return torch.cat([self.relation, self.reciprocal_relation]) if self.reciprocal else self.relation

    def slot_map(self, slot: Slot) -> SlotMap:
        """The maps from candidates for the open slot to composed vectors."""
        slot_map = self._whole_slot_map(slot)
        return slot_map if self.dropout is None else self.dropout.apply(slot, slot_map, len(self.form.vector))

    def _whole_slot_map(self, slot: Slot) -> SlotMap:
        """The slot map before dropout."""
        ids, slot_dim = self.batch.relation, self.entity_vectors.table.shape[-1]
        if slot is Slot.RELATION:
            first, second, slot_dim = self.head, self.tail, self.relations.shape[-1]
        elif slot is Slot.TAIL:
            first, second = self.head, self.relation
        elif self.reciprocal:
            slot, ids = Slot.TAIL, self.reciprocal_ids
            first, second = self.tail, self.reciprocal_relation
        else:
            first, second = self.relation, self.tail
        by_relation = self.scorer.sorted_by_relation
        return SlotMap(self.composition, slot, first, second, slot_dim, ids, self.relations, by_relation)

    def score_slot(self, slot: Slot) -> Tensor:
        """(b, n_candidates): the score of every entity (or relation) in the open slot."""
        slot_map, blocks = self.slot_map(slot), self.scorer.candidate_blocks(slot)
        scores = [dispatch.all_scores(self.form, slot_map, candidates) for _, candidates in blocks]
        return scores[0] if len(scores) == 1 else torch.cat(scores, dim=1)

    def entity_cross_entropy(
        self, smoothing: float = 0.0, answer_weights: Tensor | None = None, shard: EntityShard | None = None
    ) -> Tensor:
        """The mean cross-entropy of the true tails, then heads against all entities (see `dispatch.cross_entropy`).

        An answer is weighted by its fact and, if given, by `answer_weights` (2b,). With shared queries each fact contributes
        its tail or its head, so there are b answers. With a `shard`, the result is the part of this process.
        """
        batch, entities, weights = self.batch, self._gather_once(), self.weights(1 if self.queries else 2)
        query_of = None
        if self.queries is not None:
            maps = [self.slot_map(slot).select(facts) for slot, facts in self.queries.slots().items()]
            target = torch.cat([batch.tail[: self.queries.tails], batch.head[self.queries.tails :]])
            query_of = self.queries.of_fact
        elif self.reciprocal and self.dropout is None:  # both sides are tail queries
            slot_dim = self.entity_rows.shape[-1]
            maps = [SlotMap(self.composition, Slot.TAIL, self.entity_rows, self.relation_rows, slot_dim)]
            target = torch.cat([batch.tail, batch.head])
        else:
            maps = [self.slot_map(Slot.TAIL), self.slot_map(Slot.HEAD)]
            target = torch.cat([batch.tail, batch.head])
        if answer_weights is not None:
            weights = answer_weights if weights is None else weights * answer_weights
        candidates = None
        if shard is not None:
            entities, target, candidates = shard.vectors, shard.ids[target], shard.candidates
        return dispatch.cross_entropy(self.form, maps, entities, target, smoothing, weights, query_of, candidates)

    def relation_cross_entropy(self, smoothing: float = 0.0) -> Tensor:
        """The mean cross-entropy of the true relations against all relation vectors; each fact counts with its weight.

        With reciprocal relations the first vector is the answer for a triple, the second one for the reversed triple.
        """
        maps, target = [self._relation_map()], self.batch.relation
        if self.reciprocal:
            maps.append(self._relation_map(reverse=True))
            target = torch.cat([target, self.reciprocal_ids])
        return dispatch.cross_entropy(self.form, maps, self.relations, target, smoothing, self.weights(len(maps)))

    def _relation_map(self, reverse: bool = False) -> SlotMap:
        """The maps from relation vectors to composed vectors, for the triples or the reversed triples."""
        first, second = (self.tail, self.head) if reverse else (self.head, self.tail)
        slot_map = SlotMap(self.composition, Slot.RELATION, first, second, self.relations.shape[-1])
        if self.dropout is None:
            return slot_map
        return self.dropout.apply((Slot.RELATION, reverse), slot_map, len(self.form.vector))

    def _gather_once(self) -> Tensor:
        """Gather the vectors of all slots, each table once (`gather_with_table`); returns all entity vectors."""
        batch = self.batch
        ids = torch.cat([batch.head, batch.tail])
        self.entity_rows, entities = gather_with_table(self.entity_vectors.all, ids)
        self.head, self.tail = self.entity_rows.split(len(batch))
        ids = torch.cat([batch.relation, self.reciprocal_ids]) if self.reciprocal else batch.relation
        self.relation_rows, self.relations = gather_with_table(self.relations, ids)
        self.relation, *reciprocal = self.relation_rows.split(len(batch))
        if reciprocal:
            self.reciprocal_relation = reciprocal[0]
        return entities

    def score_sampled(self, ids: Mapping[Slot, Tensor]) -> dict[Slot, Tensor]:
        """(b, n) for each slot: the scores of the candidates ids (b, n) of each query, all slots at once."""
        return dict(zip(ids, dispatch.sampled_scores(*self._sampled(ids)), strict=True))

    def sampled_loss(self, ids: Mapping[Slot, Tensor], loss: Loss) -> Tensor:
        """A loss of the scores of `score_sampled`, stacked: see `dispatch.sampled_loss`."""
        return dispatch.sampled_loss(*self._sampled(ids), loss)

    def score_shared(self, slot: Slot, ids: Tensor) -> Tensor:
        """(b, n): the scores of candidates ids (g, n), each row of which b / g consecutive queries share."""
        return dispatch.shared_scores(self.form, self.slot_map(slot), self.scorer.candidates(slot), ids)

    def _sampled(self, ids: Mapping[Slot, Tensor]) -> tuple[QuadraticForm, list[SlotMap], Tensor, list[Tensor], bool]:
        """The form, slot maps, table of candidates, ids, and whether rows of the table must still be normalised.

        In training heads and tails are gathered together, with the table for its other use (`gather_with_table`).
        """
        table, normalise = self.entity_vectors.table, self.entity_vectors.normalise
        if torch.is_grad_enabled():
            rows, table = gather_with_table(table, torch.cat([self.batch.head, self.batch.tail]))
            self.entity_rows = self.entity_vectors.convert(rows)
            self.head, self.tail = self.entity_rows.split(len(self.batch))
        if Slot.RELATION in ids:
            table, normalise = self.scorer.candidates(Slot.RELATION), False
        return self.form, [self.slot_map(slot) for slot in ids], table, list(ids.values()), normalise
