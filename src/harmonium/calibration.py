"""How sure to be of an answer: one probability for every command, fitted on validation facts.

    probability = sigmoid(a * margin + b * log(1 + known) + c)

The margin is the log-odds of a candidate under the softmax over all candidates of its question, known answers included:
a question that is answered already leaves little to others. `known` counts its other known answers, as those share the
softmax. a, b and c are fitted for each open slot on a sample of all questions of train and valid, where the facts of
valid are true and whatever is not a fact counts as false. Facts that nobody wrote down are thus counted against an
answer: the probability is right when the graph lacks about as many facts as validation holds.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from harmonium import folder
from harmonium.classification import logistic, reliability
from harmonium.errors import HarmoniumError
from harmonium.evaluation import Scorer, best, chunk_size, inside, steady, weigh
from harmonium.graph import SPLITS, Answers, Graph, Slot, Triples

if TYPE_CHECKING:
    from harmonium.run import Run

FILE = "calibration.json"  # in a run folder; made again when the model or the facts are others
QUESTIONS = 600  # drawn for each slot, to fit and again to judge
BEST = 100  # candidates of each question that are looked at
MINIMUM = 10  # true answers among them without which there is no probability
GIVEN = {  # the two given slots of a question, in the order of Answers.keys
    Slot.HEAD: (Slot.RELATION, Slot.TAIL),
    Slot.RELATION: (Slot.HEAD, Slot.TAIL),
    Slot.TAIL: (Slot.RELATION, Slot.HEAD),
}


@dataclass(frozen=True)
class Fit:
    """The probabilities of one slot, and how they did on facts that were not used to choose them."""

    margin: float  # a, b and c
    known: float
    intercept: float
    split: str  # whose facts judged it
    questions: int
    answers: int  # looked at
    true: int
    log_loss: float  # for each answer looked at
    base_log_loss: float  # of giving all the same probability
    calibration_error: float  # mean distance from the share of true ones, of answers above the lowest bin
    reliability: list[dict[str, float | None]]


@dataclass(frozen=True)
class Calibration:
    """From scores to probabilities; a slot with too few validation facts has none."""

    graph: str
    fits: dict[Slot, Fit]

    def logits(self, slot: Slot, scores: Tensor, total: Tensor, known: Tensor) -> Tensor | None:
        """The log-odds of answers from their scores, the log-sum-exp of all scores, and other known answers."""
        fit = self.fits.get(slot)
        return None if fit is None else features(scores, total, known) @ _weights(fit) + fit.intercept

    def probabilities(self, slot: Slot, scores: Tensor, total: Tensor, known: Tensor) -> Tensor | None:
        """The same as probabilities, float64; None where the slot has none."""
        logits = self.logits(slot, scores, total, known)
        return None if logits is None else logits.sigmoid()

    def to_json(self) -> dict[str, Any]:
        return {"graph": self.graph, "slots": {slot.value: asdict(fit) for slot, fit in self.fits.items()}}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Calibration:
        return cls(value["graph"], {Slot(slot): Fit(**fit) for slot, fit in value["slots"].items()})


def _weights(fit: Fit) -> Tensor:
    return torch.tensor([fit.margin, fit.known], dtype=torch.float64)


def features(scores: Tensor, total: Tensor, known: Tensor) -> Tensor:
    """(..., 2) float64 on the CPU: the margin, log p / (1 - p) with p = exp(score - total), and log(1 + known)."""
    log_p = (scores.double() - total.double()).cpu().clamp(max=-1e-7)  # what float32 scores can tell from 0
    margin = log_p - torch.log(-torch.expm1(log_p))
    return torch.stack([margin, torch.log1p(known.double().cpu()).expand_as(margin)], dim=-1)


def questions(graph: Graph, slot: Slot, splits: Sequence[str]) -> Triples:
    """Every distinct question with that slot open that the facts of these splits answer."""
    keys = graph.answers(slot, splits).groups.keys
    first, second = GIVEN[slot]
    columns = {first: keys // graph.n_entities, second: keys % graph.n_entities, slot: torch.zeros_like(keys)}
    return Triples(*(columns[place] for place in Slot))


def calibrate(
    scorer: Scorer, graph: Graph, count: int = QUESTIONS, watch: Callable[[int], None] | None = None
) -> Calibration:
    """Fit probabilities on valid and judge them on test, or on valid again where there is no test split."""
    scorer, fits = steady(scorer), {}
    for slot in Slot:
        inputs, labels, _ = _examples(scorer, graph, slot, "valid", count, watch)
        if not MINIMUM <= labels.sum() < len(labels):
            continue
        slopes, intercept = logistic(inputs, labels)
        if slopes[0] <= 0:  # the model knows nothing
            continue
        split = "test" if len(graph.test) else "valid"
        inputs, labels, asked = _examples(scorer, graph, slot, split, count, watch)
        logits, truth = inputs @ slopes + intercept, labels.double()
        bins, base = reliability(logits.sigmoid(), labels), truth.mean().expand_as(truth)
        gaps = [(b["facts"], abs(b["probability"] - b["true"])) for b in bins[1:] if b["facts"]]
        fits[slot] = Fit(
            *slopes.tolist(), intercept, split, asked, len(labels), int(labels.sum()),
            F.binary_cross_entropy_with_logits(logits, truth).item(), F.binary_cross_entropy(base, truth).item(),
            sum(facts * gap for facts, gap in gaps) / max(sum(facts for facts, _ in gaps), 1), bins,
        )  # fmt: skip
    return Calibration(graph.name, fits)


def _examples(
    scorer: Scorer, graph: Graph, slot: Slot, split: str, count: int, watch: Callable[[int], None] | None
) -> tuple[Tensor, Tensor, int]:
    """Features (n, 2) and truth (n,) of the best answers to a sample of questions, and how many were asked.

    What stands in earlier splits is known; what stands in later ones is neither true nor false.
    """
    place = SPLITS.index(split)
    asked = questions(graph, slot, SPLITS[: place + 1])
    asked = asked[torch.randperm(len(asked), generator=torch.Generator().manual_seed(place))[:count]]
    known, true = graph.answers(slot, SPLITS[:place]), graph.answers(slot, (split,))
    later = graph.answers(slot, SPLITS[place + 1 :]) if place + 1 < len(SPLITS) else None
    parts = [(torch.empty(0, 2, dtype=torch.float64), torch.empty(0, dtype=torch.bool))]
    for part in asked.chunks(chunk_size(scorer, slot, asked) if len(asked) else 1):
        own, unasked = known.of(part), later.of(part) if later else None

        def sink(start: int, scores: Tensor, all_pairs: Sequence = (own, unasked)) -> None:
            for pairs in all_pairs:
                if pairs is not None:
                    scores[inside(pairs, start, scores.shape[1])] = -torch.inf

        found = best(scorer, slot, part, BEST, sink)
        there = found.values.isfinite().cpu()
        inputs = features(found.values, found.total, own[0].bincount(minlength=len(part))[:, None])
        parts.append((inputs[there], holds(true, slot, part, found.indices)[there]))
        if watch:
            watch(len(part))
    return *(torch.cat(column) for column in zip(*parts, strict=True)), len(asked)


def holds(answers: Answers, slot: Slot, queries: Triples, fillers: Tensor) -> Tensor:
    """(n, k) bool: whether each of the fillers (n, k) of a query's open slot makes a fact that is known."""
    rows = torch.arange(len(queries)).repeat_interleave(fillers.shape[1])
    columns = {place: queries[place].cpu()[rows] for place in Slot} | {slot: fillers.cpu().flatten()}
    return answers.contain(Triples(*(columns[place] for place in Slot))).view(fillers.shape)


_made: dict[str, Calibration] = {}  # by the content that they are of


def calibration_of(run: Run, watch: Callable[[int], None] | None = None) -> Calibration:
    """The calibration of a run, made once and kept in its folder."""
    content = hashlib.sha256()
    for part in _content(run):
        content.update(part.flatten().view(torch.uint8).numpy())
    of, path = content.hexdigest(), run.path / FILE if run.path else None
    if of not in _made and path is not None:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            kept = json.loads(path.read_bytes())
            if kept["of"] == of:
                _made[of] = Calibration.from_json(kept)
    if of not in _made:
        _made[of] = calibrate(run.model, run.graph, watch=watch)
        if path is not None:
            with contextlib.suppress(OSError):  # a folder that may only be read
                folder.write(path, folder.to_json({"of": of, **_made[of].to_json()}))
    return _made[of]


def _content(run: Run) -> Iterator[Tensor]:
    for value in run.model.state_dict().values():
        yield value.detach().cpu().contiguous()
    for split in SPLITS:
        yield getattr(run.graph, split).rows()


def probabilities(scorer: Scorer, graph: Graph, calibration: Calibration, slot: Slot, triples: Triples) -> Tensor:
    """(n,): the probability of each triple as the answer to its question with that slot open."""
    if slot not in calibration.fits:
        raise HarmoniumError(f"'{graph.name}' has too few validation facts to give {slot} answers a probability")
    others = count_others(graph.answers(slot, queries=triples), triples)
    return calibration.probabilities(slot, *weigh(scorer, slot, triples), others)


def count_others(known: Answers, triples: Triples) -> Tensor:
    """(n,): how many known answers the question of each triple has beside it."""
    return known.of(triples)[0].bincount(minlength=len(triples)) - known.contain(triples).long()
