"""Ranking: where does the true answer stand among all candidates, under which protocol.

Ranks are found by counting (docs/math.md 2.10): the scores of a chunk of queries against a block of candidates, compared
with the score of the truth, minus the known answers among them. Memory is one chunk against one block; no mask over
triples exists, and no second table of vectors.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from harmonium.config import EvaluateConfig
from harmonium.distributed import World
from harmonium.errors import HarmoniumError
from harmonium.graph import SPLITS, Answers, Graph, Groups, Slot, Triples
from harmonium.kernels.memory import keep_freed_memory
from harmonium.rows import Tabular

if TYPE_CHECKING:
    from harmonium.gaps import Gaps

CHUNK_NUMBERS = {"cpu": 1 << 22, "cuda": 1 << 26}  # scores held at once: 16 MB on a CPU stay in its cache
Z = 1.96  # standard errors on either side of an interval of 95 %
METRICS = ("mr", "mrr", "hits@1", "hits@3", "hits@10", "amri")


class Scorer(Protocol):
    """Anything that scores every candidate of an open slot can be ranked."""

    def score_slot(self, slot: Slot, queries: Triples) -> Tensor:
        """(n, n_candidates).

        A scorer may have a `snapshot()`, prepared for many comparisons, and that may give candidates in blocks:
        `score_blocks` their scores, `compare` what ranks them beside the truth (see `Snapshot` for both).
        """


@torch.no_grad()
def steady(scorer: Scorer) -> Scorer:
    """The scorer itself, or what it prepares for many comparisons."""
    return scorer.snapshot() if hasattr(scorer, "snapshot") else scorer


def world_of(scorer: Scorer) -> World | None:
    """The processes over which a scorer's candidates are dealt: each counts its own."""
    dealt = getattr(scorer, "dealt", None)
    return dealt.world if dealt is not None else None


def score_blocks(scorer: Scorer, slot: Slot, queries: Triples) -> Iterator[tuple[int, Tensor]]:
    """For each block of candidates the first one's id, and their scores (b, m); one block where a scorer has no others."""
    if hasattr(scorer, "score_blocks"):
        yield from scorer.score_blocks(slot, queries)
    else:
        yield 0, scorer.score_slot(slot, queries)


def compare(scorer: Scorer, slot: Slot, queries: Triples) -> Iterator[tuple[int, Tensor, Tensor]]:
    """For each block of candidates the first one's id, the truth's score (b, 1), and theirs (b, m)."""
    if hasattr(scorer, "compare"):
        yield from scorer.compare(slot, queries)
    else:
        scores = scorer.score_slot(slot, queries)
        yield 0, scores.gather(1, queries[slot][:, None]), scores


def inside(pairs: tuple[Tensor, ...], start: int, count: int) -> tuple[Tensor, ...]:
    """Of (row, candidate, ...) columns those whose candidate is in a block, as (row, place in the block, ...)."""
    row, value, *rest = pairs
    here = (value >= start) & (value < start + count)
    return row[here], value[here] - start, *(column[here] for column in rest)


def chunk_size(scorer: Scorer, slot: Slot, queries: Triples) -> int:
    """How many queries to score at once, so that their scores of a block of candidates take bounded memory."""
    width, device = next(((s.shape[1], s.device.type) for _, s in score_blocks(scorer, slot, queries[:1])), (1, "cpu"))
    size = max(1, CHUNK_NUMBERS.get(device, 1 << 24) // width)
    return size if (world := world_of(scorer)) is None else world.least(size)


@dataclass(frozen=True)
class Best:
    """The best candidates of each query, best first."""

    values: Tensor  # (n, k)
    indices: Tensor  # (n, k)
    total: Tensor  # (n, 1): log-sum-exp of the scores of all candidates


@torch.no_grad()
def best(
    scorer: Scorer, slot: Slot, queries: Triples, top: int, sink: Callable[[int, Tensor], None] | None = None
) -> Best:
    """The `top` candidates of a chunk of queries; `sink(start, scores)` may lower scores (n, m) of a block before."""
    values = indices = total = None
    for start, scores in score_blocks(scorer, slot, queries):
        here = scores.logsumexp(1, keepdim=True)
        total = here if total is None else total.logaddexp(here)
        if sink:
            sink(start, scores)
        found = scores.topk(min(top, scores.shape[1]))
        values = found.values if values is None else torch.cat([values, found.values], dim=1)
        ids = start + found.indices
        indices = ids if indices is None else torch.cat([indices, ids], dim=1)
        values, order = values.topk(min(top, values.shape[1]))
        indices = indices.gather(1, order)
    return Best(values, indices, total)


@torch.no_grad()
def weigh(scorer: Scorer, slot: Slot, triples: Triples) -> tuple[Tensor, Tensor]:
    """(n,) twice: the score of what stands in the slot of each triple, and the log-sum-exp over all that could."""
    scorer, parts = steady(scorer), []
    for part in triples.chunks(chunk_size(scorer, slot, triples) if len(triples) else 1):
        own = total = None
        for start, scores in score_blocks(scorer, slot, part):
            row, place = inside((torch.arange(len(part), device=scores.device), part[slot]), start, scores.shape[1])
            here = scores.logsumexp(1)
            total = here if total is None else total.logaddexp(here)
            own = scores.new_zeros(len(part)) if own is None else own
            own[row] = scores[row, place]
        parts.append((own, total))
    return tuple(torch.cat(column) for column in zip(*parts, strict=True)) if parts else (torch.empty(0),) * 2


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
        size = chunk or chunk_size(scorer, slot, triples)
        while done < len(triples):
            queries = triples[done : done + size]
            try:
                better, tied, others = count(scorer, queries, slot, known, candidates)
            except (MemoryError, RuntimeError) as error:
                failed = no_memory(error, "choose a smaller model, or a device with more memory")
                if size == 1 or world_of(scorer) is not None:  # other processes would not follow
                    raise failed from error
                size = (min(size, len(queries)) + 1) // 2
                continue
            is_head = torch.full_like(better, slot is Slot.HEAD, dtype=torch.bool)
            columns = (better, tied, others + 1, queries.relation, is_head)
            parts.append(Ranks(*(column.cpu() for column in columns)))
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


def count(scorer: Scorer, queries: Triples, slot: Slot, known: Answers | None, candidates: Groups | None) -> Tensor:
    """(3, b): how many candidates beside the truth are better, tied, and there at all; sums over blocks of candidates."""
    listed, counts = _listed(queries, slot, known, candidates), queries.head.new_zeros(3, len(queries))
    for start, target, scores in compare(scorer, slot, queries):
        if torch.isnan(scores.sum()) and torch.isnan(scores).any():  # the sum alone also fails for opposite infinities
            raise HarmoniumError("the model gave scores that are not numbers; train again with a smaller learning rate")
        if candidates is None:
            flags = torch.empty_like(scores)  # sums of floating-point ones are quick, and exact up to 2^24 candidates
            whole = torch.float32 if scores.shape[1] < 2**24 else torch.float64
            counts[0] += torch.gt(scores, target, out=flags).sum(1, dtype=whole).long()
            counts[1] += torch.eq(scores, target, out=flags).sum(1, dtype=whole).long()
            counts[2] += scores.shape[1]
        row, place, sign = inside(listed, start, scores.shape[1])
        score, bar = scores[row, place], target[row, 0]
        for number, flags in enumerate((score > bar, score == bar, torch.ones_like(row))):
            counts[number].index_add_(0, row, sign * flags)
    if (world := world_of(scorer)) is not None:
        world.sum([counts])
    return counts


def _listed(
    queries: Triples, slot: Slot, known: Answers | None, candidates: Groups | None
) -> tuple[Tensor, Tensor, Tensor]:
    """(row, candidate, sign): who is counted one by one, +1 the candidates of a type, -1 known answers and the truth."""
    truth = queries[slot]
    row, value = torch.arange(len(truth), device=truth.device), truth
    if known is not None:
        others, fillers = known.of(queries)
        new = fillers != truth[others]
        row, value = torch.cat([row, others[new]]), torch.cat([value, fillers[new]])
    if candidates is None:
        return row, value, torch.full_like(row, -1)
    allowed = candidates.contains(queries.relation[row], value)
    row, value, more = row[allowed], value[allowed], candidates.lookup(queries.relation)
    sign = torch.cat([torch.full_like(row, -1), torch.ones_like(more[0])])
    return torch.cat([row, more[0]]), torch.cat([value, more[1]]), sign


@dataclass(frozen=True)
class Evaluation(Tabular):
    """Metrics with the protocol that made them."""

    protocol: EvaluateConfig
    graph: str
    ranks: Ranks
    relations: Sequence[str]
    categories: Callable[[], Sequence[str]]  # of the relations; found when asked for
    gaps: Gaps | None = None
    estimate: Estimate | None = None  # where only a sample was ranked

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
        category = torch.tensor([kinds.index(c) for c in self.categories()])[self.ranks.relation]
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
        label = {"estimated": self.estimate.words} if self.estimate else {}
        return [{"by": by, "name": name, "side": side, **found, **label} for by, name, side, found in rows]

    def to_json(self) -> dict[str, Any]:
        return {
            "graph": self.graph,
            "protocol": dataclasses.asdict(self.protocol) | {"filter": filter_splits(self.protocol)},
            "queries": len(self.ranks),
            **({"estimate": self.estimate.to_json()} if self.estimate else {}),
            "metrics": self.metrics,
            "by_side": self.by_side(),
            "by_category": self.by_category(),
            "by_relation": self.by_relation(),
        } | ({"gaps": dataclasses.asdict(self.gaps)} if self.gaps else {})


def filter_splits(protocol: EvaluateConfig) -> list[str]:
    return list(SPLITS) if protocol.filtered else []


@dataclass(frozen=True)
class Estimate:
    """What the ranks of some facts, drawn at random, say of the whole split."""

    facts: int  # that were drawn
    of: int
    intervals: dict[str, tuple[float, float]]  # which hold a metric of the whole split 95 times in 100

    @property
    def words(self) -> str:
        return f"estimated from {self.facts:,} of {self.of:,} facts drawn at random"

    def to_json(self) -> dict[str, Any]:
        return {"words": f"{self.words}; intervals of 95 %", **dataclasses.asdict(self)}

    @classmethod
    def of_ranks(cls, ranks: Ranks, ties: str, facts: int, of: int) -> Estimate:
        """The ranks of a fact, (sides, facts) in all, belong together: facts were drawn, not queries.

        A metric is R = mean y / mean x over facts, and its error that of the mean of y - R x. Shares and mrr have
        Wilson's interval for as many free draws as would have this error; mr and amri that of a normal logarithm, as
        few ranks may hold most of their sum (with under 2,000 facts it can still be too narrow).
        """
        rank, chance = ranks.values(ties).view(-1, facts), (ranks.candidates.double().view(-1, facts) - 1) / 2
        one, found = torch.ones_like(rank), {}
        ratios = {"mr": (rank, one), "amri": (rank - 1, chance), "mrr": (1 / rank, one)}
        ratios |= {f"hits@{k}": ((rank <= k).double(), one) for k in (1, 3, 10)}
        for name, parts in ratios.items():
            y, x = (part.mean(0) for part in parts)
            ratio = (y.mean() / x.mean()).item()
            error = math.sqrt((1 - facts / of) / facts * (y - ratio * x).var().item()) / x.mean().item()
            factor = math.exp(Z * error / ratio) if ratio else 1.0
            if name == "mr":
                found[name] = ratio / factor, ratio * factor
            elif name == "amri":
                found[name] = 1 - ratio * factor, 1 - ratio / factor
            else:
                found[name] = _wilson(ratio, ratio * (1 - ratio) / error**2 if error else facts)
        return cls(facts, of, {name: found[name] for name in METRICS})


def _wilson(share: float, draws: float) -> tuple[float, float]:
    """The shares that would not be surprised by this one in so many draws."""
    weight = Z**2 / draws
    middle, half = share + weight / 2, math.sqrt(weight * share * (1 - share) + weight**2 / 4)
    return (middle - half) / (1 + weight), (middle + half) / (1 + weight)


def describe(protocol: EvaluateConfig, of: int | None = None) -> str:
    """The protocol in words, printed with every number; `of`: the facts there were, where a sample was ranked."""
    sides = {"both": "heads and tails", "head": "heads", "tail": "tails"}[protocol.side]
    known = f"filtered by {'+'.join(filter_splits(protocol))}" if protocol.filtered else "unfiltered"
    who = {
        "full": "all entities are candidates",
        "typed-train": "candidates seen in that slot in train",
        "typed-all": "candidates seen in that slot in train+valid+test (test-aware)",
    }[protocol.candidates]
    drawn = f"{protocol.sample:,} of {of:,} facts" if of else f"{protocol.sample:,} facts" if protocol.sample else ""
    sample = f", estimated from {drawn} drawn at random" if drawn else ""
    return f"{protocol.split} {sides}, {known}, {who}, {protocol.ties} ties, unseen entities {protocol.unseen}{sample}"


def evaluate(
    scorer: Scorer,
    graph: Graph,
    protocol: EvaluateConfig | None = None,
    triples: Triples | None = None,
    chunk: int | None = None,
    device: torch.device | str = "cpu",
    watch: Callable[[int], None] | None = None,
    world: World | None = None,
) -> Evaluation:
    """Rank a split (or a sample of it, or the given triples) under a protocol; in a `world`, each process a part of it."""
    protocol = protocol or EvaluateConfig()
    count = protocol.sample if triples is None else None
    triples = graph.split(protocol.split) if triples is None else triples
    if protocol.unseen == "drop":
        triples = triples[~graph.unseen(triples)]
    whole = len(triples)
    if not whole:
        raise HarmoniumError(f"no {protocol.split} facts are left to rank; say unseen=keep, or choose another split")
    if count is not None and count < whole:  # the same facts for every model
        triples = triples[torch.randperm(whole, generator=torch.Generator().manual_seed(0))[:count].sort().values]
    seen_in = {"full": None, "typed-train": ("train",), "typed-all": SPLITS}[protocol.candidates]
    parts = []
    for slot in (Slot.HEAD, Slot.TAIL):
        if protocol.side in ("both", slot.value):
            known = graph.answers(slot, queries=triples).to(device) if protocol.filtered else None
            allowed = graph.fillers(slot, seen_in).to(device) if seen_in else None
            own = triples if world is None else triples[world.part(len(triples))]
            ranks = [rank(scorer, own.to(device), slot, known, allowed, chunk, watch)] if len(own) else []
            parts += ranks if world is None else itertools.chain(*world.collect(ranks))
    ranks, sampled = Ranks.cat(parts), count is not None and count < whole
    protocol = dataclasses.replace(protocol, sample=count if sampled else None)
    estimate = Estimate.of_ranks(ranks, protocol.ties, len(triples), whole) if sampled else None
    names = graph.relations.titles()
    return Evaluation(protocol, graph.name, ranks, names, graph.categories, estimate=estimate)


class Frequency:
    """The baseline to beat: a filler is as likely as it was frequent in that slot of the relation in train."""

    def __init__(self, graph: Graph) -> None:
        self.n_entities, self.counted = graph.n_entities, {}
        for slot in (Slot.HEAD, Slot.TAIL):
            cells = graph.train.relation * graph.n_entities + graph.train[slot]
            self.counted[slot] = cells.unique(return_counts=True)  # by relation, then filler

    def score_slot(self, slot: Slot, queries: Triples) -> Tensor:
        used, place = queries.relation.unique(return_inverse=True)
        cells, counts = self.counted[slot]
        edges = torch.searchsorted(cells, torch.stack([used, used + 1]) * self.n_entities)
        scores = torch.zeros(len(used), self.n_entities)
        for row, (relation, low, high) in zip(scores, torch.stack([used, *edges], dim=1).tolist(), strict=True):
            row[cells[low:high] - relation * self.n_entities] = counts[low:high].float()
        return scores[place]
