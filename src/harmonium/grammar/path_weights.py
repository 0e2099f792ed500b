"""Weights of path rules: softmax regression on train facts.

Each sampled fact of a relation asks: among all entities but the other known answers, which one is the true answer? Weights
maximise the log-likelihood; it is concave, and a Gaussian prior keeps weights small where facts are few. The fact itself is
hidden from the walks to its answer. Entities that no walk reaches all have the score zero and enter the softmax by their
number; of the wrong answers that are reached a uniform sample stands for all.

Facts with the same given entity are one query and share its wrong answers. Hidden from the walks to these is one of the
facts, drawn at random: of a query with a single fact that very one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize, sparse

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
    query: Array  # (facts,): which query each fact answers
    first_wrong: Array  # (queries + 1,): the wrong answers of a query lie together
    share: Array  # (queries,): how many wrong answers each sampled one stands for
    unreached: Array  # (queries,): wrong answers that no walk reaches
    importance: Array  # (facts,): weights relative to their mean

    @classmethod
    def gather(
        cls,
        steps: Steps,
        known: KnownAnswers,
        facts: Triples,
        bodies: Sequence[Body],
        generator: np.random.Generator,
    ) -> PathQueries:
        """Queries for the slot of the known answers; facts are of one relation and in random order."""
        slot, n = known.slot, steps.n_entities
        bodies = steps.from_known_end(bodies, slot)
        step = steps.step_to(slot, int(facts.relation[0]))
        truth = facts[slot].numpy()
        given, representative, query = np.unique(facts[OTHER_END[slot]].numpy(), return_index=True, return_inverse=True)
        position, answer = (column.numpy() for column in known.of(facts[representative.tolist()]))
        first_known = np.searchsorted(position, np.arange(len(given) + 1))
        order = np.argsort(query, kind="stable")
        first_fact = np.searchsorted(query[order], np.arange(len(given) + 1))
        is_hidden_step = np.array([body[0] == step for body in bodies])
        is_representative = np.zeros(len(facts), dtype=bool)
        is_representative[representative] = True

        true, wrong = _Cells(), _Cells()
        n_reached, n_drawn = np.zeros(len(given), dtype=np.int64), np.zeros(len(given), dtype=np.int64)
        walked = steps.count_walks(BodyTree.of(bodies), given, (step, truth[representative]))
        for block, reached in walked:
            m = block.stop - block.start
            is_wrong = np.zeros(m * n, dtype=bool)
            for level in reached:
                is_wrong[level.cell] = True
            known_rows = slice(first_known[block.start], first_known[block.stop])
            is_wrong[(position[known_rows] - block.start) * n + answer[known_rows]] = False
            cell = np.flatnonzero(is_wrong)
            n_reached[block] = np.bincount(cell // n, minlength=m)
            drawn = cell[_draw_of_each(n_reached[block], WRONG_ANSWERS, generator)]
            number = np.full(m * n, -1)
            number[drawn] = n_drawn.sum() + np.arange(len(drawn))
            n_drawn[block] = np.bincount(drawn // n, minlength=m)
            wrong.add(reached, number)
            number[:] = -1
            of_block = order[first_fact[block.start] : first_fact[block.stop]]
            number[(query[of_block] - block.start) * n + truth[of_block]] = of_block
            true.add(reached, number, lambda row, rule: is_representative[row] | ~is_hidden_step[rule])
        others = np.flatnonzero(~is_representative)
        affected = [body if hidden else () for body, hidden in zip(bodies, is_hidden_step, strict=True)]
        tree = BodyTree.of(affected)
        for block, reached in (
            steps.count_walks(tree, given[query[others]], (step, truth[others])) if len(others) else ()
        ):
            number = np.full((block.stop - block.start) * n, -1)
            number[np.arange(block.stop - block.start) * n + truth[others[block]]] = others[block]
            true.add(reached, number)

        importance = facts.weights().numpy()
        return cls(
            true.matrix(len(facts), len(bodies)),
            wrong.matrix(int(n_drawn.sum()), len(bodies)),
            query,
            np.concatenate([[0], n_drawn.cumsum()]),
            n_reached / np.maximum(n_drawn, 1),
            (n - n_reached - np.diff(first_known)).astype(float),
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

        start = np.zeros(self.true.shape[1])
        options = {"maxiter": MAX_ITERATIONS}
        weights: Array = optimize.minimize(objective, start, jac=True, method="L-BFGS-B", options=options).x
        return weights

    def loss(self, true: Array, wrong: Array) -> tuple[float, Array, Array]:
        """The negative log-likelihood of the true answers under scores of all answers, and its gradients."""
        true, wrong = true.astype(np.float64), wrong.astype(np.float64)
        sizes = np.diff(self.first_wrong)
        highest = np.zeros(len(sizes))  # of a query: unreached entities have the score 0
        np.maximum.at(highest, self.query, true)
        has_wrong = np.flatnonzero(sizes)
        starts = self.first_wrong[has_wrong]
        if len(wrong):
            highest[has_wrong] = np.maximum(highest[has_wrong], np.maximum.reduceat(wrong, starts))
        mass = np.repeat(self.share, sizes) * np.exp(wrong - np.repeat(highest, sizes))
        others = self.unreached * np.exp(-highest)
        if len(wrong):
            others[has_wrong] += np.add.reduceat(mass, starts)
        own = np.exp(true - highest[self.query])
        total = own + others[self.query]
        losses = np.log(total) + highest[self.query] - true
        true_slope = self.importance * (own / total - 1)
        per_query = np.bincount(self.query, self.importance / total, minlength=len(sizes))
        return float(losses @ self.importance), true_slope, mass * np.repeat(per_query, sizes)


class _Cells:
    """Collects the cells of a matrix of answers by rules."""

    def __init__(self) -> None:
        self.parts: list[tuple[Array, Array, Array]] = []

    def add(
        self, reached: Sequence[Reached], number: Array, select: Callable[[Array, Array], Array] | None = None
    ) -> None:
        """Cells of answers that have a row number; `select` says which of (row, rule)."""
        for level in reached:
            row = number[level.cell]
            kept = np.flatnonzero(row >= 0)
            row, rule = row[kept], level.rule[kept]
            if select is not None:
                chosen = select(row, rule)
                kept, row, rule = kept[chosen], row[chosen], rule[chosen]
            strengths = strength(level.walks[kept])
            self.parts.append((row.astype(np.int32), rule.astype(np.int32), strengths.astype(np.float32)))

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
