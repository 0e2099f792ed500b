"""Weights of path rules: softmax regression on train facts.

Each sampled fact of a relation is a query: among all entities but the other known answers, which one is the true answer?
Weights maximise the log-likelihood; it is concave, and a Gaussian prior keeps weights small where facts are few. The fact
itself is hidden from all walks of its query. Entities that no walk reaches all have the score zero and enter the softmax
by their number; of the wrong answers that are reached a uniform sample stands for all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from harmonium.data.index import KnownAnswers
from harmonium.data.triples import Triples
from harmonium.grammar.walks import OTHER_END, Array, Body, BodyTree, Reached, Steps, strength

WRONG_ANSWERS = 200  # of a query, sampled from those that walks reach
PRIOR_PRECISION = 5.0  # of each weight
MAX_ITERATIONS = 40


@dataclass(frozen=True)
class PathQueries:
    """Queries of one relation and slot: the strengths of rules for true answers and sampled wrong ones."""

    true: sparse.csr_array  # (facts, rules) float32
    wrong: sparse.csr_array  # (wrong answers, rules) float32
    first_wrong: Array  # (facts + 1,): the wrong answers to a query lie together
    share: Array  # (facts,): how many wrong answers each sampled one stands for
    unreached: Array  # (facts,): wrong answers that no walk reaches
    importance: Array  # (facts,): weights relative to their mean

    @classmethod
    def gather(
        cls,
        steps: Steps,
        known: KnownAnswers,
        facts: Triples,
        bodies: Sequence[Body],
        generator: np.random.Generator,
        budget: float = math.inf,
    ) -> PathQueries:
        """Queries for the slot of the known answers; facts are of one relation and in random order.

        Facts are taken until their walks, counted by the entities that each rule reaches, exceed the `budget`.
        """
        slot, n = known.slot, steps.n_entities
        given, truth = facts[OTHER_END[slot]].numpy(), facts[slot].numpy()
        position, answer = (column.numpy() for column in known.of(facts))
        first_known = np.searchsorted(position, np.arange(len(facts) + 1))
        tree = BodyTree.of(steps.from_known_end(bodies, slot))
        true, wrong = _Cells(), _Cells()
        n_reached, n_drawn = np.zeros(len(facts), dtype=np.int64), np.zeros(len(facts), dtype=np.int64)
        taken, spent = 0, 0
        hidden = steps.step_to(slot, int(facts.relation[0])), truth
        for block, reached in steps.count_walks(tree, given, hidden):
            m = block.stop - block.start
            is_wrong = np.zeros(m * n, dtype=bool)
            for level in reached:
                is_wrong[level.cell] = True
            of_block = slice(first_known[block.start], first_known[block.stop])
            is_wrong[(position[of_block] - block.start) * n + answer[of_block]] = False
            cell = np.flatnonzero(is_wrong)
            n_reached[block] = np.bincount(cell // n, minlength=m)
            drawn = cell[_draw_of_each(n_reached[block], WRONG_ANSWERS, generator)]
            number = np.full(m * n, -1, dtype=np.int32)  # of the row in either matrix
            number[drawn] = n_drawn.sum() + np.arange(len(drawn))
            wrong.add(reached, number)
            n_drawn[block] = np.bincount(drawn // n, minlength=m)
            number[drawn] = -1
            number[np.arange(m) * n + truth[block]] = np.arange(block.start, block.stop)
            true.add(reached, number)
            taken, spent = block.stop, spent + sum(len(level.cell) for level in reached)
            if spent > budget:
                break
        n_reached, n_drawn, importance = n_reached[:taken], n_drawn[:taken], facts.weights().numpy()[:taken]
        return cls(
            true.matrix(taken, len(bodies)),
            wrong.matrix(int(n_drawn.sum()), len(bodies)),
            np.concatenate([[0], n_drawn.cumsum()]),
            n_reached / np.maximum(n_drawn, 1),
            (n - n_reached - np.diff(first_known)[:taken]).astype(float),
            importance / importance.mean(),
        )

    def most_likely_weights(self) -> Array:
        """(rules,) float64: the maximum of the log-likelihood with its prior, by L-BFGS."""
        true_t, wrong_t = self.true.T, self.wrong.T

        def objective(weights: Array) -> tuple[float, Array]:
            single = weights.astype(np.float32)
            loss, true_slope, wrong_slope = self.loss(self.true @ single, self.wrong @ single)
            slope = true_t @ true_slope.astype(np.float32) + wrong_t @ wrong_slope.astype(np.float32)
            return (
                loss + PRIOR_PRECISION / 2 * float(weights @ weights),
                slope.astype(np.float64) + PRIOR_PRECISION * weights,
            )

        from scipy import optimize  # a third of a second, which answers need not wait for

        start = np.zeros(self.true.shape[1])
        options = {"maxiter": MAX_ITERATIONS}
        weights: Array = optimize.minimize(objective, start, jac=True, method="L-BFGS-B", options=options).x
        return weights

    def loss(self, true: Array, wrong: Array) -> tuple[float, Array, Array]:
        """The negative log-likelihood of the true answers under scores of all answers, and its gradients."""
        true, wrong = true.astype(np.float64), wrong.astype(np.float64)
        sizes = np.diff(self.first_wrong)
        highest = np.maximum(true, 0)  # of a query: unreached entities have the score 0
        has_wrong = np.flatnonzero(sizes)
        starts = self.first_wrong[has_wrong]
        if len(wrong):
            highest[has_wrong] = np.maximum(highest[has_wrong], np.maximum.reduceat(wrong, starts))
        mass = np.repeat(self.share, sizes) * np.exp(wrong - np.repeat(highest, sizes))
        own = np.exp(true - highest)
        total = own + self.unreached * np.exp(-highest)
        if len(wrong):
            total[has_wrong] += np.add.reduceat(mass, starts)
        losses = np.log(total) + highest - true
        slope = self.importance / total
        return float(losses @ self.importance), slope * own - self.importance, mass * np.repeat(slope, sizes)


class _Cells:
    """Collects the cells of a matrix of answers by rules."""

    def __init__(self) -> None:
        self.parts: list[tuple[Array, Array, Array]] = []

    def add(self, reached: Sequence[Reached], number: Array) -> None:
        """The cells of answers that have a row number; -1: none."""
        for level in reached:
            row = number[level.cell]
            kept = np.flatnonzero(row >= 0)
            strengths = strength(level.walks[kept])
            self.parts.append((row[kept], level.rule[kept], strengths.astype(np.float32)))

    def matrix(self, n_rows: int, n_columns: int) -> sparse.csr_array:
        empty = np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.float32)
        row, rule, value = (np.concatenate(column) for column in zip(empty, *self.parts, strict=True))
        return sparse.coo_array((value, (row, rule)), shape=(n_rows, n_columns)).tocsr()


def _draw_of_each(sizes: Array, count: int, generator: np.random.Generator) -> Array:
    """Ascending positions of at most `count` random members of consecutive groups; all of a group that is not larger.

    Drawn with replacement and kept once each, so that of larger groups there are somewhat fewer.
    """
    first = sizes.cumsum() - sizes
    small, large = np.flatnonzero(sizes <= count), np.flatnonzero(sizes > count)
    within = (generator.random((len(large), count)) * sizes[large][:, None]).astype(np.int64)
    drawn = np.unique(first[large][:, None] + np.minimum(within, sizes[large][:, None] - 1))
    whole = np.repeat(first[small], sizes[small]) + _ranges(sizes[small])
    drawn_or_all: Array = np.sort(np.concatenate([drawn, whole]))
    return drawn_or_all


def _ranges(sizes: Array) -> Array:
    """0, 1, ... size - 1 for each size."""
    within: Array = np.arange(sizes.sum()) - np.repeat(sizes.cumsum() - sizes, sizes)
    return within
