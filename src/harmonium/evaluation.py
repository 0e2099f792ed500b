"""Ranking: where does the true answer stand among all candidates, under which protocol.

Ranks are found by counting (docs/math.md 2.10): the scores of a chunk of queries against all candidates, compared with
the score of the truth, minus the known answers among them. Memory is one chunk; no mask over triples exists.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from harmonium.config import EvaluateConfig
from harmonium.errors import HarmoniumError
from harmonium.graph import SPLITS, Answers, Graph, Groups, Slot, Triples
from harmonium.kernels.fused import keep_freed_memory
from harmonium.rows import Tabular

CHUNK_NUMBERS = {"cpu": 1 << 22, "cuda": 1 << 26}  # scores held at once: 16 MB on a CPU stay in its cache
METRICS = ("mr", "mrr", "hits@1", "hits@3", "hits@10", "amri")


class Scorer(Protocol):
    """Anything that scores every candidate of an open slot can be ranked."""

    def score_slot(self, slot: Slot, queries: Triples) -> Tensor:
        """(n, n_candidates).

        A scorer may have a `snapshot()`, prepared for many comparisons, and that may have `advantages(slot, queries)`:
        the same shape, numbers that compare with the truth's as the scores do.
        """


def steady(scorer: Scorer) -> Scorer:
    """The scorer itself, or what it prepares for many comparisons."""
    return scorer.snapshot() if hasattr(scorer, "snapshot") else scorer


@dataclass(frozen=True)
class Ranks:
    """For each query: how many candidates were better, how many tied (the truth apart), out of how many."""

    better: Tensor  # (n,) int64
    tied: Tensor  # (n,) int64
    candidates: Tensor  # (n,) int64, the truth included
    relation: Tensor  # (n,) int64
    is_head: Tensor  # (n,) bool: the head was asked for

    def __len__(self) -> int:
        return len(self.better)

    def __getitem__(self, index: Tensor | slice) -> Ranks:
        return Ranks(*(getattr(self, f.name)[index] for f in dataclasses.fields(self)))

    @classmethod
    def cat(cls, parts: Sequence[Ranks]) -> Ranks:
        return cls(*(torch.cat([getattr(part, f.name) for part in parts]) for f in dataclasses.fields(cls)))

    def values(self, ties: str = "realistic") -> Tensor:
        """(n,) float64 ranks from 1; among equals the truth stands in the middle, first, or last."""
        weight = {"realistic": 0.5, "optimistic": 0.0, "pessimistic": 1.0}[ties]
        return 1 + self.better.double() + weight * self.tied.double()

    def metrics(self, ties: str = "realistic") -> dict[str, float]:
        """mr, mrr, hits@1/3/10 and amri = 1 - (mr - 1) / (mr expected by chance - 1)."""
        if not len(self):
            return dict.fromkeys(METRICS, float("nan"))
        ranks = self.values(ties)
        chance = (self.candidates.double() + 1).mean().item() / 2
        mr = ranks.mean().item()
        hits = {f"hits@{k}": (ranks <= k).double().mean().item() for k in (1, 3, 10)}
        amri = 1 - (mr - 1) / (chance - 1) if chance > 1 else float("nan")
        return {"mr": mr, "mrr": ranks.reciprocal().mean().item(), **hits, "amri": amri}


def rank(
    scorer: Scorer,
    triples: Triples,
    slot: Slot,
    known: Answers | None = None,
    candidates: Groups | None = None,
    chunk: int | None = None,
    watch: Callable[[int], None] | None = None,
) -> Ranks:
    """Rank the true filler of `slot` in each triple.

    `known` answers other than the truth are left out; `candidates` (relation -> entities) limits who competes, the
    truth always included. The result does not depend on `chunk`, the number of queries scored at once.
    """
    if not len(triples):
        raise HarmoniumError("there are no triples to rank")
    keep_freed_memory()
    parts, done = [], 0
    with torch.no_grad():
        scorer = steady(scorer)
        first = scorer.score_slot(slot, triples[:1])
        size = chunk or max(1, CHUNK_NUMBERS.get(first.device.type, 1 << 24) // first.shape[1])
        while done < len(triples):
            queries = triples[done : done + size]
            try:
                scores = (scorer.advantages if hasattr(scorer, "advantages") else scorer.score_slot)(slot, queries)
                parts.append(_count(scores, queries, slot, known, candidates))
            except (MemoryError, RuntimeError) as error:
                failed = no_memory(error, "choose a smaller model, or a device with more memory")
                if size == 1:
                    raise failed from error
                size = (min(size, len(queries)) + 1) // 2
                continue
            done += len(queries)
            if watch:
                watch(len(queries))
    return Ranks.cat(parts)


def no_memory(error: Exception, advice: str) -> HarmoniumError:
    """What to tell when memory ran out; any other error is raised again."""
    text, words = str(error), "(out of|allocate) memory|overflow"
    if not isinstance(error, MemoryError | torch.OutOfMemoryError) and not re.search(words, text):
        raise error
    return HarmoniumError(f"out of memory ({(text or 'MemoryError').splitlines()[0]}); {advice}")


def _count(scores: Tensor, queries: Triples, slot: Slot, known: Answers | None, candidates: Groups | None) -> Ranks:
    truth = queries[slot]
    target = scores.gather(1, truth[:, None])  # (b, 1)
    if torch.isnan(scores.sum()) and torch.isnan(scores).any():  # the sum alone also fails for opposite infinities
        raise HarmoniumError("the model gave scores that are not numbers; train again with a smaller learning rate")
    if candidates is None:
        flags = torch.empty_like(scores)  # sums of floating-point ones are quick, and exact up to 2^24 candidates
        better = torch.gt(scores, target, out=flags).sum(1, dtype=_whole(scores)).long()
        tied = torch.eq(scores, target, out=flags).sum(1, dtype=_whole(scores)).long() - 1
        total = torch.full_like(truth, scores.shape[1])
    else:
        row, value = candidates.lookup(queries.relation)
        better, tied, total = _compare(scores, target, truth, row, value)
        total += 1
    if known is not None:
        row, value = known.of(queries)
        if candidates is not None:
            allowed = candidates.contains(queries.relation[row], value)
            row, value = row[allowed], value[allowed]
        known_better, known_tied, known_total = _compare(scores, target, truth, row, value)
        better, tied, total = better - known_better, tied - known_tied, total - known_total
    is_head = torch.full_like(truth, slot is Slot.HEAD, dtype=torch.bool)
    return Ranks(*(column.cpu() for column in (better, tied, total, queries.relation, is_head)))


def _whole(scores: Tensor) -> torch.dtype:
    return torch.float32 if scores.shape[1] < 2**24 else torch.float64


def _compare(scores: Tensor, target: Tensor, truth: Tensor, row: Tensor, value: Tensor) -> tuple[Tensor, ...]:
    """Per query, over listed candidates other than the truth: how many are better, tied, and how many there are."""
    other = value != truth[row]
    row, value = row[other], value[other]
    listed, bar = scores[row, value], target[row, 0]
    zero = torch.zeros_like(truth)
    return tuple(zero.index_add(0, row, flags.long()) for flags in (listed > bar, listed == bar, torch.ones_like(row)))


@dataclass(frozen=True)
class Evaluation(Tabular):
    """Metrics with the protocol that made them."""

    protocol: EvaluateConfig
    graph: str
    ranks: Ranks
    relations: Sequence[str]
    categories: Sequence[str]

    @property
    def metrics(self) -> dict[str, float]:
        return self.ranks.metrics(self.protocol.ties)

    def by_side(self) -> dict[str, dict[str, float]]:
        sides = {"head": self.ranks.is_head, "tail": ~self.ranks.is_head}
        return {name: self.ranks[mask].metrics(self.protocol.ties) for name, mask in sides.items() if mask.any()}

    def by_relation(self) -> dict[str, dict[str, float]]:
        """Metrics of each relation that was tested, most frequent first; `queries` counts them."""
        ids, counts = self.ranks.relation.unique(return_counts=True)
        found = {}
        for index in counts.argsort(descending=True, stable=True).tolist():
            part = self.ranks[self.ranks.relation == ids[index]]
            found[self.relations[int(ids[index])]] = {"queries": len(part), **part.metrics(self.protocol.ties)}
        return found

    def by_category(self) -> dict[str, dict[str, dict[str, float]]]:
        """Metrics for 1-1, 1-N, N-1 and N-N relations, by side."""
        kinds = ("1-1", "1-N", "N-1", "N-N")
        category = torch.tensor([kinds.index(c) for c in self.categories])[self.ranks.relation]
        found = {}
        for number, kind in enumerate(kinds):
            inside = category == number
            sides = {"head": inside & self.ranks.is_head, "tail": inside & ~self.ranks.is_head}
            found[kind] = {
                side: {"queries": int(mask.sum()), **self.ranks[mask].metrics(self.protocol.ties)}
                for side, mask in sides.items()
                if mask.any()
            }
        return {kind: sides for kind, sides in found.items() if sides}

    def records(self) -> list[dict[str, Any]]:
        """Metrics of all queries, then by side, category and relation: columns by, name, side, queries and metrics."""
        sides = {"head": int(self.ranks.is_head.sum()), "tail": int((~self.ranks.is_head).sum())}
        rows = [("all", "all", "both", {"queries": len(self.ranks), **self.metrics})]
        rows += [("side", side, side, {"queries": sides[side], **found}) for side, found in self.by_side().items()]
        parts = self.by_category().items()
        rows += [("category", kind, side, found) for kind, both in parts for side, found in both.items()]
        rows += [("relation", name, "both", found) for name, found in self.by_relation().items()]
        return [{"by": by, "name": name, "side": side, **found} for by, name, side, found in rows]

    def to_json(self) -> dict[str, Any]:
        return {
            "graph": self.graph,
            "protocol": dataclasses.asdict(self.protocol) | {"filter": filter_splits(self.protocol)},
            "queries": len(self.ranks),
            "metrics": self.metrics,
            "by_side": self.by_side(),
            "by_category": self.by_category(),
            "by_relation": self.by_relation(),
        }


def filter_splits(protocol: EvaluateConfig) -> list[str]:
    return list(SPLITS) if protocol.filtered else []


def describe(protocol: EvaluateConfig) -> str:
    """The protocol in words, printed with every number."""
    sides = {"both": "heads and tails", "head": "heads", "tail": "tails"}[protocol.side]
    known = f"filtered by {'+'.join(filter_splits(protocol))}" if protocol.filtered else "unfiltered"
    who = {
        "full": "all entities are candidates",
        "typed-train": "candidates seen in that slot in train",
        "typed-all": "candidates seen in that slot in train+valid+test (test-aware)",
    }[protocol.candidates]
    return f"{protocol.split} {sides}, {known}, {who}, {protocol.ties} ties, unseen entities {protocol.unseen}"


def evaluate(
    scorer: Scorer,
    graph: Graph,
    protocol: EvaluateConfig | None = None,
    triples: Triples | None = None,
    chunk: int | None = None,
    device: torch.device | str = "cpu",
    watch: Callable[[int], None] | None = None,
) -> Evaluation:
    """Rank a split (or the given triples) under a protocol."""
    protocol = protocol or EvaluateConfig()
    triples = graph.split(protocol.split) if triples is None else triples
    if protocol.unseen == "drop":
        triples = triples[~graph.unseen(triples)]
    seen_in = {"full": None, "typed-train": ("train",), "typed-all": SPLITS}[protocol.candidates]
    parts = []
    for slot in (Slot.HEAD, Slot.TAIL):
        if protocol.side in ("both", slot.value):
            known = graph.answers(slot).to(device) if protocol.filtered else None
            allowed = graph.fillers(slot, seen_in).to(device) if seen_in else None
            parts.append(rank(scorer, triples.to(device), slot, known, allowed, chunk, watch))
    return Evaluation(protocol, graph.name, Ranks.cat(parts), graph.relations.titles(), graph.categories())


class Frequency:
    """The baseline to beat: a filler is as likely as it was frequent in that slot of the relation in train."""

    def __init__(self, graph: Graph) -> None:
        self.train, self.n_entities, self.n_relations = graph.train, graph.n_entities, graph.n_relations

    def score_slot(self, slot: Slot, queries: Triples) -> Tensor:
        used, place = queries.relation.unique(return_inverse=True)
        inside = torch.isin(self.train.relation, used)
        relation = torch.searchsorted(used, self.train.relation[inside])
        cell = relation * self.n_entities + self.train[slot][inside]
        counts = torch.bincount(cell, minlength=len(used) * self.n_entities).view(len(used), -1)
        return counts.float()[place]
