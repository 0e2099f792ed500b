"""Batches of whole queries, for training against all entities on a CPU.

A fact answers two queries, (head, relation, ?) and (?, relation, tail). Facts that answer the same query share its scores
and its normaliser, most of the work, if they are in one batch. So an epoch visits the queries in random order, each with
all of its answers, and a batch has 2b answers, as many as b facts have. FB15K-237 has 544,230 answers to 149,689 queries.
"""

import torch
from torch import Tensor

from harmonium.data.triples import Triples
from harmonium.model.scoring import SharedQueries


class QueryBatches:
    """Training facts grouped by the queries that they answer. Answer i < n is the tail of fact i, answer n + i its head."""

    def __init__(self, facts: Triples, n_relations: int, reciprocal: bool) -> None:
        self.facts, self.n_relations, self.reciprocal = facts, n_relations, reciprocal
        known, relation = torch.cat([facts.head, facts.tail]), torch.cat([facts.relation, facts.relation + n_relations])
        _, self.query_of = torch.unique(known * (2 * n_relations) + relation, return_inverse=True)  # (2n,)

    @property
    def n_answers(self) -> int:
        return len(self.query_of)

    @property
    def n_queries(self) -> int:
        return int(self.query_of.max()) + 1 if self.n_answers else 0

    def order(self, generator: torch.Generator) -> Tensor:
        """(2n,): the answers of an epoch: queries in random order, with the answers to each query in a row."""
        rank = torch.randperm(self.n_queries, generator=generator)
        return rank[self.query_of].argsort(stable=True)

    def batch(self, answers: Tensor) -> tuple[Triples, SharedQueries]:
        """The facts of these answers, grouped by query.

        With reciprocal relations a fact whose head is the answer is reversed, (tail, relation + n_relations, head), so
        that all answers are tails (see `EmbeddingScorer.with_inverse_relations`).
        """
        gives_head = answers >= len(self.facts)
        answers = answers[gives_head.to(torch.int8).argsort(stable=True)]  # tails first, queries stay together
        tails = len(answers) - int(gives_head.sum())
        _, query_of = torch.unique_consecutive(self.query_of[answers], return_inverse=True)
        first = torch.searchsorted(query_of, torch.arange(int(query_of[-1]) + 1))
        facts = self.facts[answers % len(self.facts)]
        if self.reciprocal:
            facts, tails = Triples.cat([facts[:tails], self._inverse(facts[tails:])]), len(answers)
        return facts, SharedQueries(query_of, first, tails)

    def _inverse(self, facts: Triples) -> Triples:
        return Triples(facts.tail, facts.relation + self.n_relations, facts.head, facts.weight)
