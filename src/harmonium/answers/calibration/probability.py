"""The probability of an answer to a question: one calibrated number in every command but `complete` (fact_probability.py).

    margin      = log p / (1 - p),  p = the softmax of temperature * score over all candidates of the question
    log-odds    = curve(slope_r * margin + known * log(k) + intercept_r),  r the relation, k = known answers * share
    probability = sigmoid(log-odds)

All of it is fitted for each open slot on held-out facts of validation, and separately for two kinds of questions, for
which a probability means two things:

- A question with known answers may have no other, and most have none. Its probability is that over all such questions of
  the graph: facts of valid are true, everything that is no fact is false. True facts that the graph lacks thus count
  against an answer, so the probability is right when the graph lacks about as many facts as validation holds.
- A question without any known answer is asked by someone who expects one. Its probability is that over the questions
  that have an answer in valid and none in train.

The slope and the intercept of a relation are shrunk to those of all relations: one with few validation facts has the
common ones. The curve is monotone, and so is the slope: of two answers to one question the one with the higher score
never has the lower probability. `share` is the share of train among the facts that are known when the question is asked,
as known answers were those in train when the fit was made; k is at least 1. A kind of question of which validation has
too few has no probability.

A fact of a symmetric relation has one probability, in both directions and as the answer to each of its questions: that of
the mean of these four log-odds. Its order among the answers to a question is still that of the scores.

The fit is judged on test, with the facts of train and valid known, and on as many facts as validation has: of more a
random sample is true and the others are left out; with fewer the odds of questions with known answers are lowered in
proportion.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from harmonium.answers.calibration.calibration_fit import fit_slot, judge
from harmonium.answers.calibration.held_out import count_other_answers
from harmonium.answers.calibration.slot_calibration import SlotCalibration
from harmonium.answers.relation_traits import RelationTraits
from harmonium.data.graph import Graph
from harmonium.data.triples import Slot, Triples
from harmonium.evaluation.candidates import score_and_log_normaliser
from harmonium.model.scoring import Scorer
from harmonium.run import manifest
from harmonium.run.run import Run
from harmonium.runtime import schema
from harmonium.runtime.displayed import Displayed, Line, Part, Table, percent

FILE, FORMAT = "calibration.json", 4  # in a run folder; fitted again when the model, the facts or the format change


@dataclass(frozen=True)
class Calibration(Displayed):
    """Turns scores into probabilities; a slot with too few validation facts has no fit, and its answers no probability."""

    graph: str
    fits: dict[Slot, SlotCalibration]
    symmetric: list[schema.Count] = field(default_factory=list)  # relations of which both directions are one fact

    def of_facts(self, scorer: Scorer, graph: Graph, triples: Triples, slot: Slot = Slot.TAIL) -> Tensor | None:
        """(n,): the probability of each triple as the answer to its query with `slot` open; NaN where not calibrated."""
        if slot not in self.fits:
            return None
        probabilities = self._log_odds(scorer, graph, triples, slot).sigmoid()
        return probabilities if slot is Slot.RELATION else self.unite_directions(probabilities, scorer, graph, triples)

    def unite_directions(self, probabilities: Tensor, scorer: Scorer, graph: Graph, triples: Triples) -> Tensor:
        """(n,): probabilities of triples as answers for the head or the tail; one for both directions if symmetric."""
        rows = torch.isin(triples.relation, torch.tensor(self.symmetric, dtype=torch.int64)).nonzero()[:, 0]
        if not len(rows):
            return probabilities
        facts = triples[rows]
        directions = facts, Triples(facts.tail, facts.relation, facts.head)
        slots = [slot for slot in (Slot.HEAD, Slot.TAIL) if slot in self.fits]
        readings = [self._log_odds(scorer, graph, facts, slot) for slot in slots for facts in directions]
        return probabilities.index_copy(0, rows, torch.stack(readings).nanmean(0).sigmoid())

    def _log_odds(self, scorer: Scorer, graph: Graph, triples: Triples, slot: Slot) -> Tensor:
        """(n,) float64: of each triple as the answer to its query with `slot` open, for which there is a fit."""
        fit = self.fits[slot]
        others = count_other_answers(graph.known_answers(slot, queries=triples), triples)
        scores, log_normaliser = score_and_log_normaliser(scorer, slot, triples, fit.temperature)
        return fit.logits(triples.relation, scores, log_normaliser, others)

    def display(self) -> Iterator[Part]:
        """For each slot and kind of query: how often answers of a given probability are true."""
        if not self.fits:
            yield Line(f"'{self.graph}' has too few validation facts for probabilities", "yellow")
        for slot, fit in self.fits.items():
            for kind, judged in fit.reliability.items():
                rows = []
                for part in judged.bins:
                    if part["facts"]:
                        interval, expected = f"{part['from']:.0%} to {part['to']:.0%}", part["probability"]
                        chance = (
                            f"± {2 * (expected * (1 - expected) / part['facts']) ** 0.5:.1%}"  # two standard errors
                        )
                        rows.append([interval, part["facts"], percent(expected), percent(part["true"]), chance])
                columns = ["probability", "answers", "mean probability", "true", "by chance"]
                title = f"Predicted {slot}s, queries {kind.text}, {self.graph}"
                yield Table(title, columns, rows, judged.caption)

    def records(self) -> list[dict[str, Any]]:
        """The bins of every reliability curve that have answers."""
        return [
            {"slot": slot.value, "questions": kind.value, **part}
            for slot, fit in self.fits.items()
            for kind, judged in fit.reliability.items()
            for part in judged.bins
            if part["facts"]
        ]

    def to_json(self) -> dict[str, Any]:
        return {"graph": self.graph, "slots": {slot.value: asdict(fit) for slot, fit in self.fits.items()}}


def optional_floats(probabilities: Tensor | None, count: int) -> list[float | None]:
    """The probabilities of `count` facts, None for those that have none."""
    if probabilities is None:
        return [None] * count
    return [None if math.isnan(value) else value for value in probabilities.tolist()]


# The calibration of a run ---------------------------------------------------------------------------------------------


def calibration_for(run: Run, scorer: Scorer, progress: Callable[[int], None] | None = None) -> Calibration:
    """The calibration of a run and its scorer: fitted on first use, then kept in its folder (`OpenRun.calibration`)."""
    graph = run.graph
    parse = partial(_parse, n_relations=graph.n_relations)
    return manifest.compute_once(
        run.path, run.fingerprint, FILE, parse, lambda: _Kept(FORMAT, fit_calibration(scorer, graph, progress))
    ).calibration


def _parse(value: Any, n_relations: int) -> _Kept | None:
    """What is kept in a run folder; None if it has another format, a ValueError if its numbers cannot be used."""
    kept = schema.read(_Kept, value)
    if kept.format != FORMAT:
        return None
    for slot, fit in kept.calibration.fits.items():
        fit.check(1 if slot is Slot.RELATION else n_relations)
    if max(kept.calibration.symmetric, default=0) >= n_relations:
        raise ValueError("relations that the graph does not have")
    return kept


@dataclass(frozen=True)
class _Kept:
    """The contents of the file."""

    format: int
    calibration: Calibration


def fit_calibration(scorer: Scorer, graph: Graph, progress: Callable[[int], None] | None = None) -> Calibration:
    """Fit on valid and judge on test, or on valid again where there is no test split."""
    scorer, fits = scorer.prepare(), {}
    share = len(graph.train) / max(1, sum(map(len, graph.splits.values())))
    for slot in Slot:
        fit = fit_slot(scorer, graph, slot, progress)
        if fit is not None:
            fits[slot] = replace(fit.with_share(share), reliability=judge(scorer, graph, slot, fit, progress))
    symmetric = RelationTraits.infer(graph).symmetric.nonzero()[:, 0].tolist()
    return Calibration(graph.name, fits, symmetric)
