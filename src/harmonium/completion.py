"""The best missing facts of a whole graph: every (head, relation, ?) is asked, the most probable answers are kept.

Memory is one chunk of heads against all tails and the best facts so far, whatever the size of the graph. A softmax over
the tails seen with the relation is at least that over all tails: this bounds what a head can give, at little cost, and
heads are asked by falling bound until none can better the facts at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from harmonium import kernels
from harmonium.calibration import Calibration, features
from harmonium.distributed import World
from harmonium.evaluation import CHUNK_NUMBERS, Scorer, steady, weigh
from harmonium.graph import Graph, Slot, Triples

ROUNDING = 1e-2  # by which a bound may be too low


@dataclass(frozen=True)
class Missing:
    """Facts that the graph does not have, most probable first."""

    triples: Triples
    scores: Tensor  # (n,)
    probabilities: Tensor | None  # (n,) float64, of the tail as the answer to (head, relation, ?)

    def __len__(self) -> int:
        return len(self.triples)

    def rows(self, graph: Graph) -> list[dict[str, Any]]:
        """One for each fact, by identifier, with its names as text."""
        chances = [None] * len(self) if self.probabilities is None else self.probabilities.tolist()
        columns = self.triples.rows().tolist(), self.scores.tolist(), chances, graph.spell(self.triples)
        return [
            {
                "head": graph.entities.ids[h],
                "relation": graph.relations.ids[r],
                "tail": graph.entities.ids[t],
                "rank": rank,
                "score": score,
                "probability": chance,
                "text": ", ".join(names),
            }
            for rank, ((h, r, t), score, chance, names) in enumerate(zip(*columns, strict=True), start=1)
        ]


def complete(
    scorer: Scorer,
    graph: Graph,
    relations: Sequence[int] | None = None,
    top: int = 1000,
    typed: bool = True,
    calibration: Calibration | None = None,
    watch: Callable[[int], None] | None = None,
    world: World | None = None,
) -> Missing:
    """The `top` most probable facts of some relations (all when left out) that no split has.

    In a `world` each process asks for a part of the heads, and all have the best of all.

    `typed`: heads and tails that the relation was seen with, and themselves as their own tail only where it has such
    facts. Equals come by relation, head and tail. Without a calibration the softmax stands for the probability.
    """
    scorer, known, everyone = steady(scorer), graph.answers(Slot.TAIL), torch.arange(graph.n_entities)
    fillers, facts = {slot: graph.fillers(slot) for slot in (Slot.HEAD, Slot.TAIL)}, graph.facts()
    loops = facts.relation[facts.head == facts.tail].unique()
    calibrated = calibration is not None and Slot.TAIL in calibration.fits

    def log_odds(scores: Tensor, total: Tensor, answered: Tensor) -> Tensor:
        if calibrated:
            return calibration.logits(Slot.TAIL, scores, total, answered)
        return features(scores, total, answered)[..., 0]

    narrow = typed and hasattr(
        scorer, "slot_map"
    )  # then nobody is scored but the tails, and the sum over all by blocks
    best = torch.empty(0, 5, dtype=torch.float64)  # log-odds, score, head, relation, tail
    for relation in range(graph.n_relations) if relations is None else sorted(set(relations)):
        number = torch.tensor([relation])
        heads, tails = (fillers[s].lookup(number)[1] if typed else everyone for s in (Slot.HEAD, Slot.TAIL))
        heads = heads if world is None else heads[world.rank :: world.size]
        if not len(heads):
            continue
        asked = Triples(heads, number.expand(len(heads)), torch.zeros_like(heads))
        place = torch.full((graph.n_entities,), -1).index_put((tails,), torch.arange(len(tails)))
        barred = place[heads] if typed and relation not in loops else torch.full_like(heads, -1)
        hopes = torch.full((len(heads),), torch.inf, dtype=torch.float64)  # no answer has higher log-odds
        size = max(1, CHUNK_NUMBERS["cpu"] // (max(len(tails), 1) if narrow else graph.n_entities))
        if narrow:
            for rows in torch.arange(len(heads)).split(size):
                scores = _scores_among(scorer, asked[rows], tails)
                total, answered = scores.logsumexp(1), _sink(scores, known.of(asked[rows]), place, barred[rows])
                hopes[rows] = log_odds(scores.amax(1), total, answered) + ROUNDING
        for rows in hopes.argsort(descending=True, stable=True).split(size):
            if watch:
                watch(len(rows))
            if len(best) == top and hopes[rows[0]] < best[-1, 0]:
                continue
            part = asked[rows]
            if narrow:
                total, scores = weigh(scorer, Slot.TAIL, part)[1], _scores_among(scorer, part, tails)  # (b, m)
            else:
                with torch.no_grad():
                    scores = scorer.score_slot(Slot.TAIL, part)
                total, scores = scores.logsumexp(1), scores[:, tails]
            answered = _sink(scores, known.of(part), place, barred[rows])
            least = scores.topk(min(top, scores.shape[1])).values[:, -1:]
            row, column = ((scores >= least) & (scores > -torch.inf)).nonzero(as_tuple=True)
            value = scores[row, column]
            odds = log_odds(value, total[row], answered[row])
            found = torch.stack([odds, value, part.head[row], part.relation[row], tails[column]], dim=1)
            best = _ordered(torch.cat([best, found]), graph.n_entities)[:top]
    if world is not None:
        best = _ordered(torch.cat(world.collect(best)), graph.n_entities)[:top]
    return Missing(Triples.from_rows(best[:, 2:].long()), best[:, 1], best[:, 0].sigmoid() if calibrated else None)


def _sink(scores: Tensor, known: tuple[Tensor, Tensor], place: Tensor, barred: Tensor) -> Tensor:
    """Sink the scores (b, m) of known facts, and the tail in one place (or -1) of each row; (b,): how many are known."""
    row, tail = known
    scores[row, place[tail]] = -torch.inf
    rows = (barred >= 0).nonzero()[:, 0]
    scores[rows, barred[rows]] = -torch.inf
    return row.bincount(minlength=len(scores))


def _ordered(found: Tensor, n_entities: int) -> Tensor:
    """Rows by falling log-odds; equals by relation, head and tail."""
    head, relation, tail = found[:, 2:].long().T
    found = found[((relation * n_entities + head) * n_entities + tail).argsort()]
    return found[found[:, 0].argsort(descending=True, stable=True)]


@torch.no_grad()
def _scores_among(scorer: Any, queries: Triples, tails: Tensor) -> Tensor:
    """(b, m): the scores of some tails alone."""
    return kernels.all_scores(scorer.form, scorer.slot_map(Slot.TAIL, queries), scorer.vectors(tails))
