"""Learn path rules from train facts: bodies that connect the ends of many facts, and weights by softmax regression.

Bodies are found from both ends of a sample of a relation's facts, by walks that meet in the middle; those that connect the
most facts are kept. Their weights maximise the log-likelihood of a sample of train facts, each as two questions: among all
entities but other known answers, which one is the true answer? The fact in question is hidden from the walks. The
log-likelihood is concave, and a Gaussian prior keeps weights small where facts are few.

Entities that no walk reaches all have the score zero and enter the softmax by their number. Of wrong answers that are
reached a uniform sample stands for all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import accumulate

import torch
from torch import Tensor

from harmonium.data.graph import Graph
from harmonium.data.index import CsrIndex
from harmonium.data.triples import Slot, Triples
from harmonium.grammar.path_rules import (
    BLOCK,
    OTHER_END,
    Body,
    PathRules,
    RelationRules,
    Steps,
    steps_between,
    strength,
)

LENGTHS = 3, 5  # the longest body: at least and at most
MANY_WALKS = 100_000  # bodies are no longer than the length at which the median entity of a fact starts so many walks
EDGES = 100, 30, 10  # followed at most from each entity, at the first, second and third step from an end of a fact
MIN_SUPPORT = 3  # sampled facts that a body must connect
MAX_RULES = 33_000, (50, 3000)  # in all; and of one relation at least and at most
MAX_FACTS = 55_000, (200, 5000)  # whose answers are learned; likewise
LARGEST_CODE = 2**62 // MAX_FACTS[1][1]  # of a body as one number, so that it fits 64 bits with the number of a fact
WRONG_ANSWERS = 200  # of a question, sampled from those that walks reach
PRIOR_PRECISION = 5.0  # of each weight
NEGLIGIBLE = 1e-3  # weight
MAX_ITERATIONS = 40


def learn_path_rules(
    graph: Graph, device: torch.device | str = "cpu", progress: Callable[[int], None] | None = None
) -> PathRules:
    """Path rules of all relations, for heads and tails. `progress` receives the numbers of finished train facts."""
    train = graph.train.positive()
    steps = Steps.build(train, graph.n_entities, graph.n_relations)
    on_device = steps.to(device)
    edges = steps_between(train, graph.n_relations)
    length = longest_body(train, graph.n_entities, graph.n_relations)
    generator = torch.Generator().manual_seed(0)
    learned: dict[tuple[Slot, int], RelationRules] = {}
    for relation in train.relation.unique().tolist():
        facts = train[train.relation == relation]
        sample = _draw(facts[facts.head != facts.tail], _share(MAX_FACTS, graph.n_relations), generator)
        bodies = find_bodies(edges, sample, graph.n_relations, length, generator)
        bodies = bodies[: _share(MAX_RULES, graph.n_relations)]
        for slot in (Slot.HEAD, Slot.TAIL) if bodies else ():
            questions = WalkQuestions.gather(on_device, graph, slot, sample.to(device), bodies, generator)
            weights = questions.most_likely_weights()
            kept = (weights.abs() >= NEGLIGIBLE).nonzero()[:, 0].tolist()
            if kept:
                learned[slot, relation] = RelationRules([bodies[number] for number in kept], weights[kept])
        if progress:
            progress(len(facts))
    return PathRules(steps, learned)


def _share(limits: tuple[int, tuple[int, int]], n_relations: int) -> int:
    total, (least, most) = limits
    return min(most, max(least, total // n_relations))


def _draw(facts: Triples, count: int, generator: torch.Generator) -> Triples:
    return facts[torch.randperm(len(facts), generator=generator)[:count]]


def longest_body(facts: Triples, n_entities: int, n_relations: int) -> int:
    """How many steps bodies may have: more where entities have few facts, so that long walks are few."""
    least, most = LENGTHS
    most = min(most, int(math.log(LARGEST_CODE) / math.log(2 * n_relations + 1)))
    walks = torch.ones(n_entities, dtype=torch.float64)
    for length in range(1, most + 1):
        ahead, back = walks[facts.tail], walks[facts.head]
        walks = torch.zeros_like(walks).index_add_(0, facts.head, ahead).index_add_(0, facts.tail, back)
        if length > least and walks[torch.cat([facts.head, facts.tail])].median() > MANY_WALKS:
            return length - 1
    return most


# --------------------------------------------------------------------------- bodies


@dataclass(frozen=True)
class _Walks:
    """Walks from one end of facts."""

    fact: Tensor  # (m,) number of the fact
    entities: list[Tensor]  # (m,) each, from the start on
    steps: list[Tensor]  # (m,) each

    def extend(self, edges: CsrIndex, count: int, n_steps: int, generator: torch.Generator) -> _Walks:
        """One step further, along at most `count` edges of each entity, to entities that a walk has not visited."""
        source, edge = edges.sample(self.entities[-1], count, generator)
        entity, step = edge // n_steps, edge % n_steps
        visited = torch.stack([before[source] == entity for before in self.entities]).any(0)
        source, entity, step = source[~visited], entity[~visited], step[~visited]
        before = [each[source] for each in self.entities]
        return _Walks(self.fact[source], [*before, entity], [*(each[source] for each in self.steps), step])


def find_bodies(
    edges: CsrIndex, facts: Triples, n_relations: int, length: int, generator: torch.Generator
) -> list[Body]:
    """Bodies that connect the heads of facts of one relation with their tails, those that connect the most facts first."""
    n_steps, numbers = 2 * n_relations, torch.arange(len(facts))
    forwards, backwards = ([_Walks(numbers, [end], [])] for end in (facts.head, facts.tail))
    for count in EDGES[: (length + 1) // 2]:
        forwards.append(forwards[-1].extend(edges, count, n_steps, generator))
    for count in EDGES[: length // 2]:
        backwards.append(backwards[-1].extend(edges, count, n_steps, generator))
    halves = ((forwards[(n + 1) // 2], backwards[n // 2]) for n in range(1, length + 1))
    connected = torch.cat([_connect(*half, len(facts), n_relations) for half in halves]).unique()
    codes, support = (connected // max(1, len(facts))).unique_consecutive(return_counts=True)
    codes, support = codes[support >= MIN_SUPPORT], support[support >= MIN_SUPPORT]
    ranked = codes[support.argsort(descending=True, stable=True)].tolist()
    bodies = [_decode(code, n_steps) for code in ranked]
    return [body for body in bodies if body != (int(facts.relation[0]),)]


def _decode(code: int, n_steps: int) -> Body:
    """The steps of a body from one number, whose digits they are in base n_steps + 1; no digit is zero."""
    steps = []
    while code:
        code, digit = divmod(code, n_steps + 1)
        steps.append(digit - 1)
    return tuple(reversed(steps))


def _connect(forwards: _Walks, backwards: _Walks, n_facts: int, n_relations: int) -> Tensor:
    """(m,): walks from heads joined with walks from tails where they meet: the code of the body * n_facts + the fact."""
    n_steps = 2 * n_relations
    meeting = CsrIndex.build(backwards.entities[-1] * n_facts + backwards.fact, torch.arange(len(backwards.fact)))
    first, second = meeting.lookup(forwards.entities[-1] * n_facts + forwards.fact)
    disjoint = torch.ones(len(first), dtype=torch.bool)
    for before in forwards.entities[:-1]:
        for after in backwards.entities[:-1]:
            disjoint &= before[first] != after[second]
    first, second = first[disjoint], second[disjoint]
    steps = [step[first] for step in forwards.steps]
    steps += [(step[second] + n_relations) % n_steps for step in reversed(backwards.steps)]
    code = torch.zeros_like(first)
    for step in steps:
        code = code * (n_steps + 1) + step + 1
    return code * n_facts + forwards.fact[first]


# --------------------------------------------------------------------------- weights


@dataclass(frozen=True)
class WalkQuestions:
    """Questions about facts of one relation: their answers that walks reach, and by which rules."""

    answer: Tensor  # (cells,): an answer,
    rule: Tensor  # (cells,): a rule that walks to it,
    strength: Tensor  # (cells,): and the strength of these walks
    n_rules: int
    question: Tensor  # (answers,): of which question
    log_share: Tensor  # (answers,): the log of how many answers each one stands for
    truth: Tensor  # (questions,): the true answer
    unreached: Tensor  # (questions,): wrong answers that no walk reaches
    importance: Tensor  # (questions,): the weights of the facts relative to their mean

    @classmethod
    def gather(
        cls, steps: Steps, graph: Graph, slot: Slot, facts: Triples, bodies: list[Body], generator: torch.Generator
    ) -> WalkQuestions:
        """The questions for the given slot of facts of one relation; walks of a block of them are counted at once."""
        bodies = steps.from_known_end(bodies, slot)
        facts = replace(facts, weight=facts.weights().to(facts.head.device) / facts.weights().mean())
        size = max(1, BLOCK // steps.n_entities)
        blocks = (facts[start : start + size] for start in range(0, len(facts), size))
        return cls._join([cls._of_block(steps, graph, slot, block, bodies, generator) for block in blocks])

    @classmethod
    def _of_block(
        cls, steps: Steps, graph: Graph, slot: Slot, facts: Triples, bodies: list[Body], generator: torch.Generator
    ) -> WalkQuestions:
        n, device, rows = steps.n_entities, facts.head.device, torch.arange(len(facts), device=facts.head.device)
        step = int(facts.relation[0]) + (steps.n_relations if slot is Slot.HEAD else 0)
        walked = list(steps.count_walks(bodies, facts[OTHER_END[slot]], (step, facts[slot])))
        row, known = graph.known_answers(slot, ("train",), facts.to("cpu")).to(device).of(facts)
        is_wrong = torch.zeros(len(facts) * n, dtype=torch.bool, device=device)  # and a walk reaches it
        for _, pairs, _ in walked:
            is_wrong[pairs] = True
        is_wrong[row * n + known] = False  # the true answer is among them
        wrong = is_wrong.nonzero()[:, 0]
        n_wrong = (wrong // n).bincount(minlength=len(facts))
        drawn = wrong[_draw_of_each(wrong // n, WRONG_ANSWERS, generator)]
        answers = torch.cat([rows * n + facts[slot], drawn])  # as pairs of a question and an entity
        number = torch.full((len(facts) * n,), -1, device=device)
        number[answers] = torch.arange(len(answers), device=device)
        cells = [(rule, number[pairs], strength(walks)) for rule, pairs, walks in walked]
        cells = [(rule, answer[answer >= 0], strengths[answer >= 0]) for rule, answer, strengths in cells]
        shares = (n_wrong / n_wrong.clamp(max=WRONG_ANSWERS)).log()[drawn // n]
        return cls(
            torch.cat([rows[:0], *(answer for _, answer, _ in cells)]),
            torch.cat([rows[:0], *(torch.full_like(answer, rule) for rule, answer, _ in cells)]),
            torch.cat([shares[:0], *(strengths for _, _, strengths in cells)]),
            len(bodies),
            answers // n,
            torch.cat([torch.zeros(len(facts), device=device), shares]),
            rows,
            (n - n_wrong - row.bincount(minlength=len(facts))).double(),
            facts.weights(),
        )

    @classmethod
    def _join(cls, blocks: list[WalkQuestions]) -> WalkQuestions:
        """All questions of all blocks, answers and questions numbered through."""
        first_answer = list(accumulate((len(block.question) for block in blocks), initial=0))
        first_question = list(accumulate((len(block.truth) for block in blocks), initial=0))
        return cls(
            torch.cat([block.answer + first for block, first in zip(blocks, first_answer, strict=False)]),
            torch.cat([block.rule for block in blocks]),
            torch.cat([block.strength for block in blocks]),
            blocks[0].n_rules,
            torch.cat([block.question + first for block, first in zip(blocks, first_question, strict=False)]),
            torch.cat([block.log_share for block in blocks]),
            torch.cat([block.truth + first for block, first in zip(blocks, first_answer, strict=False)]),
            torch.cat([block.unreached for block in blocks]),
            torch.cat([block.importance for block in blocks]),
        )

    def most_likely_weights(self) -> Tensor:
        """(rules,): the maximum of the log-likelihood with its prior, by L-BFGS."""
        weights = torch.zeros(self.n_rules, device=self.question.device, requires_grad=True)
        optimiser = torch.optim.LBFGS([weights], max_iter=MAX_ITERATIONS, line_search_fn="strong_wolfe")

        @torch.no_grad()
        def evaluate() -> float:
            parts = weights[self.rule] * self.strength
            loss, slope = self.loss(torch.zeros_like(self.log_share).index_add_(0, self.answer, parts))
            parts = slope[self.answer] * self.strength
            weights.grad = (PRIOR_PRECISION * weights).index_add_(0, self.rule, parts)
            return loss + PRIOR_PRECISION / 2 * float(weights.square().sum())

        optimiser.step(evaluate)
        return weights.detach().cpu()

    def loss(self, scores: Tensor) -> tuple[float, Tensor]:
        """The negative log-likelihood of the true answers under scores (answers,), and its gradient."""
        logits = (scores + self.log_share).double()
        highest = torch.zeros_like(self.unreached).scatter_reduce_(0, self.question, logits, "amax")
        share = (logits - highest[self.question]).exp()
        total = (self.unreached * (-highest).exp()).index_add_(0, self.question, share)
        losses = highest + total.log() - logits[self.truth]
        slope = share / total[self.question]
        slope[self.truth] -= 1
        return float(losses @ self.importance.double()), (slope * self.importance[self.question]).float()


def _draw_of_each(groups: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Positions of at most `count` random members of each group; groups are ascending numbers."""
    order = (groups + torch.rand(len(groups), generator=generator, dtype=torch.float64).to(groups.device)).argsort()
    sizes = groups.bincount()
    first = sizes.cumsum(0) - sizes
    return order[torch.arange(len(groups), device=groups.device) - first[groups] < count]
