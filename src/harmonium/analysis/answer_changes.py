"""How first answers, probabilities of held-out facts and their calibration changed between two runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from harmonium.analysis.graph_changes import Listed
from harmonium.analysis.metric_changes import HELD_OUT, sample
from harmonium.answers.calibration.probability import Calibration
from harmonium.answers.predict import answer_all
from harmonium.answers.relation_traits import RelationTraits
from harmonium.data.entity_types import EntityTypes
from harmonium.data.joint_facts import JointFacts
from harmonium.data.triples import Slot, Triples
from harmonium.run.run import Run

ANSWERED = 1000  # questions whose first answers are compared
NOTICEABLE = 0.1  # change of a probability that is counted
SIDES = (Slot.HEAD, Slot.TAIL)
Pair = tuple[Run, Run]


@dataclass(frozen=True)
class AnswerChanges:
    """First answers to questions about held-out facts, which each run is asked without knowing them."""

    questions: int
    changed: int  # questions with another first answer
    right: tuple[int, int]  # first answers that are the held-out fact, before and after
    gained: int  # questions that became right
    lost: int
    rows: Listed  # changed answers, those that became right and wrong first


@dataclass(frozen=True)
class ProbabilityChanges:
    """Probabilities of the same facts by both runs."""

    facts: int
    noticeable: int  # facts whose probability changed by NOTICEABLE or more
    mean: tuple[float, float]  # before and after
    rows: Listed  # largest changes first


# First answers --------------------------------------------------------------------------------------------------------


def compare_answers(facts: JointFacts, runs: Pair, limit: int, seed: int, top: int) -> AnswerChanges | None:
    """The first answers to at most `limit` questions; None where no fact is held out in both."""
    held_out = _held_out(facts)
    if not len(held_out):
        return None
    chosen = sample(held_out, max(1, min(limit, ANSWERED) // 2), seed)
    known = facts.triples[((facts.splits & 1) > 0).any(0)]  # that either was trained on
    answers = torch.stack([_first_answers(facts, side, run, chosen, known) for side, run in enumerate(runs)])
    truth = torch.cat([chosen[slot] for slot in SIDES])
    right = answers == truth  # (2, questions)
    changed, gained, lost = answers[0] != answers[1], ~right[0] & right[1], right[0] & ~right[1]
    order = torch.cat([_alternating(gained, lost), (changed & ~gained & ~lost).nonzero()[:, 0]])
    rows = [_answer_row(facts, chosen, int(row), answers[:, row]) for row in order[:top]]
    totals = int(right[0].sum()), int(right[1].sum())
    counts = int(changed.sum()), totals, int(gained.sum()), int(lost.sum())
    return AnswerChanges(len(truth), *counts, Listed(len(order), rows))


def _alternating(first: Tensor, second: Tensor) -> Tensor:
    """The positions of both flags (n,), in turn as long as there are any of both."""
    positions = [flags.nonzero()[:, 0] for flags in (first, second)]
    turn = torch.cat([torch.arange(len(part)) for part in positions])
    return torch.cat(positions)[turn.argsort(stable=True)]


def _held_out(facts: JointFacts) -> Triples:
    """Test facts of both or, where there are none, validation facts of both; in joint ids."""
    for split in HELD_OUT:
        rows = facts.held_out_in_both(split)
        if rows.any():
            return facts.triples[rows]
    return facts.triples[:0]


def _first_answers(facts: JointFacts, side: int, run: Run, chosen: Triples, known: Triples) -> Tensor:
    """(2 facts,) in joint ids: the first answer for the head, then for the tail, of each fact; -1 for none."""
    graph = run.graph
    train, _ = facts.joint.from_joint(side, known)
    questions, _ = facts.joint.from_joint(side, chosen)
    asked = replace(graph, train=train, valid=graph.valid[:0], test=graph.test[:0])
    types, traits = EntityTypes.infer(graph), RelationTraits.infer(graph)
    first = [
        answers[0].index if answers else -1
        for slot in SIDES
        for answers in answer_all(run.model, asked, slot, questions, 1, new_only=True, types=types, traits=traits)
    ]
    ids = torch.tensor(first, dtype=torch.int64)
    if side == 0:
        return ids
    return torch.where(ids < 0, -1, facts.joint.entities.joint_of_second[ids.clamp(min=0)])


def _answer_row(facts: JointFacts, chosen: Triples, question: int, answers: Tensor) -> dict[str, Any]:
    names = facts.joint.entities
    slot = SIDES[question // len(chosen)]
    head, relation, tail = chosen.to_rows()[question % len(chosen)].tolist()
    truth = head if slot is Slot.HEAD else tail
    words = ["?" if slot is Slot.HEAD else names.name(head), facts.joint.relations.name(relation)]
    words.append("?" if slot is Slot.TAIL else names.name(tail))
    before, after = (None if answer < 0 else names.name(answer) for answer in answers.tolist())
    is_right = [answer == truth for answer in answers.tolist()]
    change = {(False, True): "became right", (True, False): "became wrong"}.get(
        (is_right[0], is_right[1]), "still wrong"
    )
    return {
        "question": ", ".join(words),
        "before": before,
        "after": after,
        "held_out": names.name(truth),
        "change": change,
    }


# Probabilities of held-out facts ----------------------------------------------------------------------------------------


def compare_probabilities(
    facts: JointFacts, runs: Pair, calibrations: Sequence[Calibration], limit: int, seed: int, top: int
) -> ProbabilityChanges | None:
    """Probabilities, as `score` gives them, of at most half of `limit` held-out facts; None where a run has none."""
    held_out = _held_out(facts)
    if not len(held_out):
        return None
    chosen, columns = sample(held_out, max(1, limit // 2), seed), []
    for side, (run, calibration) in enumerate(zip(runs, calibrations, strict=True)):
        triples, _ = facts.joint.from_joint(side, chosen)
        probabilities = calibration.of_facts(run.model, run.graph, triples)
        if probabilities is None or probabilities.isnan().all():
            return None
        columns.append(probabilities)
    return probability_changes(facts, chosen, torch.stack(columns), top)


def probability_changes(facts: JointFacts, triples: Triples, values: Tensor, top: int) -> ProbabilityChanges:
    """From probabilities (2, n), NaN where a run cannot rate a fact."""
    rated = ~values.isnan().any(0)
    triples, values = triples[rated], values[:, rated]
    change = values[1] - values[0]
    order = change.abs().argsort(descending=True, stable=True)
    order = order[change[order] != 0]
    rows = [
        row | {"before": before, "after": after, "change": after - before}
        for row, before, after in zip(
            facts.joint.rows(triples[order[:top]]), *values[:, order[:top]].tolist(), strict=True
        )
    ]
    means = [float(column.mean()) if len(column) else float("nan") for column in values]
    noticeable = int((change.abs() >= NOTICEABLE).sum())
    return ProbabilityChanges(len(triples), noticeable, (means[0], means[1]), Listed(len(order), rows))


# Calibration ----------------------------------------------------------------------------------------------------------


def compare_calibrations(calibrations: Sequence[Calibration]) -> list[dict[str, Any]]:
    """How far the probabilities of each run can be trusted: a row for each open slot and kind of question."""
    sides = [
        {(slot, kind): judged for slot, fit in each.fits.items() for kind, judged in fit.reliability.items()}
        for each in calibrations
    ]
    rows: list[dict[str, Any]] = []
    for key in dict.fromkeys([*sides[0], *sides[1]]):
        row: dict[str, Any] = {"slot": key[0].value, "questions": key[1].text}
        for name, side in zip(("before", "after"), sides, strict=True):
            judged = side.get(key)
            row |= {
                f"largest_error_{name}": judged and judged.largest_error,
                f"log_loss_{name}": judged and judged.log_loss,
            }
        rows.append(row)
    return rows
