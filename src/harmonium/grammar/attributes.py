"""The facts of a graph as sparse matrices: which attributes each entity has, and which answers each query.

An attribute of an entity is a step (a relation, forwards or backwards) with the entity it leads to ("born in: Lyon"), or
the step alone ("is the head of a 'born in'"). Only attributes that at least two entities share say anything about others.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import scipy.sparse as sp

from harmonium.data.graph import Graph
from harmonium.data.triples import Slot, Triples
from harmonium.grammar.family import Array, Ids

SHARED = 2  # entities that must share an attribute
CACHED_RELATIONS = 64  # whose matrices are kept


class Attributes:
    """Sparse matrices of the facts; attribute columns are the shared (step, entity) pairs, then the 2 R steps alone."""

    def __init__(self, facts: Triples, n_entities: int, n_relations: int) -> None:
        self.n_entities, self.n_relations = n_entities, n_relations
        facts = facts.positive()
        self.head, self.relation, self.tail = (facts[slot].numpy() for slot in (Slot.HEAD, Slot.RELATION, Slot.TAIL))
        entity = np.concatenate([self.head, self.tail])
        step = np.concatenate([self.relation, self.relation + n_relations])
        code = step * n_entities + np.concatenate([self.tail, self.head])
        codes, column, count = np.unique(code, return_inverse=True, return_counts=True)
        shared = count >= SHARED
        self.codes: Ids = codes[shared]  # step * n_entities + entity of each attribute with a value
        number = np.cumsum(shared) - 1
        kept = shared[column]
        values = _binary(entity[kept], number[column[kept]], (n_entities, len(self.codes)))
        self.values = values  # (n_entities, attributes with a value)
        self.matrix = sp.hstack([values, _binary(entity, step, (n_entities, 2 * n_relations))], format="csr")
        self.transposed = self.matrix.T.tocsr()
        self._answers = lru_cache(CACHED_RELATIONS)(self._build_answers)

    @classmethod
    def of(cls, graph: Graph, splits: Sequence[str]) -> Attributes:
        """Those of the facts of some splits."""
        return cls(graph.facts(splits), graph.n_entities, graph.n_relations)

    def answers(self, slot: Slot, relation: int) -> sp.csr_matrix:
        """(n_entities, n_entities): 1 where a known entity (row) has an answer (column) in the open slot."""
        return self._answers(slot, relation)

    def _build_answers(self, slot: Slot, relation: int) -> sp.csr_matrix:
        rows = self.relation == relation
        given, answer = (self.head, self.tail) if slot is Slot.TAIL else (self.tail, self.head)
        return _binary(given[rows], answer[rows], (self.n_entities, self.n_entities))

    def column_of(self, slot: Slot, relation: int, answer: Ids) -> Ids:
        """The attribute that a query's own fact gives to its known entity; -1 where no other entity shares it."""
        step = relation if slot is Slot.TAIL else relation + self.n_relations
        code = step * self.n_entities + answer
        if not len(self.codes):
            return np.full_like(code, -1)
        position = np.searchsorted(self.codes, code).clip(max=len(self.codes) - 1)
        return np.where(self.codes[position] == code, position, -1)

    def meaning(self, column: int) -> tuple[int, int | None]:
        """The step and the entity of an attribute; no entity for a step alone."""
        if column >= len(self.codes):
            return column - len(self.codes), None
        step, entity = divmod(int(self.codes[column]), self.n_entities)
        return step, entity

    def fact_of(self, entity: int, column: int) -> tuple[int, int, int] | None:
        """The fact that gives an entity an attribute; None for a step alone."""
        step, value = self.meaning(column)
        if value is None:
            return None
        if step < self.n_relations:
            return entity, step, value
        return value, step - self.n_relations, entity


def _binary(rows: Ids, columns: Ids, shape: tuple[int, int]) -> sp.csr_matrix:
    matrix = sp.csr_matrix((np.ones(len(rows)), (rows, columns)), shape=shape)
    matrix.sum_duplicates()
    matrix.data[:] = 1.0
    return matrix


def dense(matrix: sp.spmatrix) -> Array:
    return np.asarray(matrix.toarray(), dtype=np.float64)
