"""The most probable missing facts of a whole graph: every (head, relation, ?) is asked, the best answers are kept.

Memory is one chunk of heads against all tails plus the best facts so far, whatever the size of the graph. A softmax over
the tails seen with the relation is at least that over all tails: a cheap upper bound for each head. Heads are asked by
falling bound, until none can improve on the facts at hand.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harmonium.answers.probability import Calibration, SlotCalibration, calibration_for, features
from harmonium.answers.query import identifiers
from harmonium.answers.result_file import write_rows
from harmonium.data.columns import COLUMNS
from harmonium.data.graph import Graph
from harmonium.data.triples import Slot, Triples
from harmonium.evaluation.candidates import MAX_SCORES, score_and_log_normaliser
from harmonium.kernels import dispatch
from harmonium.model.scoring import EmbeddingScorer, Scorer
from harmonium.run.run import Run
from harmonium.runtime import distributed, torchrun
from harmonium.runtime.distributed import World, run_on_main
from harmonium.runtime.errors import HarmoniumError
from harmonium.runtime.frames import ResultList
from harmonium.training.state import Progress
from harmonium.training.train import train

ROUNDING = 1e-2  # added to a bound, which rounding may make too low


def complete(
    graph_or_run: Run | Graph | str | Path,
    relations: str | Sequence[str] | None = None,
    top: int = 1000,
    typed: bool = True,
    out: str | Path | None = None,
    progress: Callable[[int], None] | None = None,
) -> ResultList[dict[str, Any]]:
    """The most probable facts that a graph lacks, of some relations or (default) of all, most probable first.

    A graph is trained on first (`open_or_train`). `typed` keeps to heads and tails seen with the relation. With `out`
    the facts are also written to that file.

    >>> harmonium.complete("runs/demo", "borders", top=20)
    """
    run = open_or_train(graph_or_run)
    names = [relations] if isinstance(relations, str) else relations
    relation_ids = None if names is None else [run.graph.relations.index(name) for name in names]
    with distributed.process_group() as world:
        calibration = run_on_main(world, lambda: calibration_for(run))
        missing = find_missing(run.model, run.graph, relation_ids, top, typed, calibration, progress, world)
    rows = missing.to_rows(run.graph)
    if out is not None and torchrun.rank() == 0:
        write_rows(out, iter(rows), str(run.path))
    return ResultList(rows)


def open_or_train(graph_or_run: Run | Graph | str | Path, progress: Callable[[Progress], None] | None = None) -> Run:
    """A run as it is or from its folder; a graph is trained on with the default settings.

    The run on a graph given by name or path is saved in runs/NAME, and must not exist yet; that on a `Graph` is not saved.
    """
    if isinstance(graph_or_run, Run):
        return graph_or_run
    if isinstance(graph_or_run, Graph):
        return train(data=graph_or_run, progress=progress)
    if is_run_folder(graph_or_run):
        return Run.load(graph_or_run)
    folder = Path("runs") / Path(graph_or_run).name.split(".")[0]
    if folder.exists():
        raise HarmoniumError(f"{folder} exists: complete that run, or `harmonium train` into another folder")
    return train(data=str(graph_or_run), out=folder, progress=progress)


def is_run_folder(path: str | Path) -> bool:
    return (Path(path) / "run.json").is_file()


@dataclass(frozen=True)
class MissingFacts:
    """Facts that the graph does not have, most probable first."""

    triples: Triples
    scores: Tensor  # (n,)
    probabilities: Tensor | None  # (n,) float64, of the tail as the answer to (head, relation, ?)

    def __len__(self) -> int:
        return len(self.triples)

    def to_rows(self, graph: Graph) -> list[dict[str, Any]]:
        """One row for each fact: identifiers, rank, score, probability, and the names as text."""
        probabilities = [None] * len(self) if self.probabilities is None else self.probabilities.tolist()
        columns = self.triples.to_rows().tolist(), self.scores.tolist(), probabilities, graph.names_of(self.triples)
        rows = []
        for rank, (triple, score, probability, names) in enumerate(zip(*columns, strict=True), start=1):
            row = dict(zip(COLUMNS, identifiers(graph, triple), strict=True))
            rows.append(row | {"rank": rank, "score": score, "probability": probability, "text": ", ".join(names)})
        return rows


def find_missing(
    scorer: Scorer,
    graph: Graph,
    relations: Sequence[int] | None = None,
    top: int = 1000,
    typed: bool = True,
    calibration: Calibration | None = None,
    progress: Callable[[int], None] | None = None,
    world: World | None = None,
) -> MissingFacts:
    """The `top` most probable facts of some relations (default: all) that are in no split.

    `typed`: only heads and tails seen with the relation, and loops only where it has some. Ties are ordered by relation,
    head and tail. Without a calibration the softmax orders the facts. The processes of a `world` share the heads.
    """
    search = _Search(scorer.prepare(), graph, top, typed, calibration.fits.get(Slot.TAIL) if calibration else None)
    for relation in range(graph.n_relations) if relations is None else sorted(set(relations)):
        search.add_relation(relation, world, progress)
    best = search.best if world is None else search.in_order(torch.cat(world.all_gather(search.best)))
    probabilities = None if search.fit is None else best[:, 0].sigmoid()
    return MissingFacts(Triples.from_rows(best[:, 2:].long()), best[:, 1], probabilities)


class _Search:
    """The best facts so far, and what their search needs of the graph."""

    def __init__(self, scorer: Scorer, graph: Graph, top: int, typed: bool, fit: SlotCalibration | None) -> None:
        self.scorer, self.top, self.typed, self.fit = scorer, top, typed, fit
        self.n_entities, self.known = graph.n_entities, graph.known_answers(Slot.TAIL)
        self.heads, self.tails = graph.slot_candidates(Slot.HEAD), graph.slot_candidates(Slot.TAIL)
        facts = graph.facts()
        self.with_loops = set(facts.relation[facts.head == facts.tail].tolist())
        self.best = torch.empty(0, 5, dtype=torch.float64)  # columns: log-odds, score, head, relation, tail

    def add_relation(self, relation: int, world: World | None, progress: Callable[[int], None] | None) -> None:
        """Ask every head of one relation (of this process) for its missing tails."""
        ids = torch.tensor([relation])
        everyone = torch.arange(self.n_entities)
        heads, tails = (index.lookup(ids)[1] if self.typed else everyone for index in (self.heads, self.tails))
        if world is not None:
            heads = heads[world.rank :: world.size]
        if not len(heads):
            return
        questions = _Questions(self, relation, heads, tails)
        bounds = questions.bounds()
        for rows in torch.split(bounds.argsort(descending=True, stable=True), questions.chunk):
            if progress:
                progress(len(rows))
            if len(self.best) < self.top or bounds[rows[0]] >= self.best[-1, 0]:
                self.best = self.in_order(torch.cat([self.best, questions.answers(rows)]))

    def log_odds(self, scores: Tensor, log_normaliser: Tensor, n_known: Tensor) -> Tensor:
        if self.fit is None:
            return features(scores, log_normaliser, n_known)[..., 0]
        return self.fit.logits(scores, log_normaliser, n_known)

    def in_order(self, facts: Tensor) -> Tensor:
        """The best rows by falling log-odds; ties by relation, head and tail."""
        head, relation, tail = facts[:, 2:].long().T
        facts = facts[((relation * self.n_entities + head) * self.n_entities + tail).argsort()]
        return facts[facts[:, 0].argsort(descending=True, stable=True)][: self.top]


class _Questions:
    """The questions (head, relation, ?) of one relation, with their candidate tails."""

    def __init__(self, search: _Search, relation: int, heads: Tensor, tails: Tensor) -> None:
        self.search, self.tails = search, tails
        self.queries = Triples(heads, torch.full_like(heads, relation), torch.zeros_like(heads))
        self.column = torch.full((search.n_entities,), -1).index_put((tails,), torch.arange(len(tails)))  # of a tail
        loops_allowed = not search.typed or relation in search.with_loops
        self.loop = torch.full_like(heads, -1) if loops_allowed else self.column[heads]  # excluded column, or -1
        # An embedding scorer scores the candidate tails alone, and the softmax over all tails block by block.
        self.narrow = search.scorer if search.typed and isinstance(search.scorer, EmbeddingScorer) else None
        width = max(len(tails), 1) if self.narrow else search.n_entities
        self.chunk = max(1, MAX_SCORES["cpu"] // width)

    def bounds(self) -> Tensor:
        """(n,): no missing tail of a head has higher log-odds than this."""
        bounds = torch.full((len(self.queries),), torch.inf, dtype=torch.float64)
        if self.narrow is not None:
            for rows in torch.split(torch.arange(len(bounds)), self.chunk):
                scores = self._tail_scores(self.narrow, self.queries[rows])
                log_normaliser, n_known = scores.logsumexp(1), self._exclude(scores, rows)
                bounds[rows] = self.search.log_odds(scores.amax(1), log_normaliser, n_known) + ROUNDING
        return bounds

    def answers(self, rows: Tensor) -> Tensor:
        """(m, 5): the best missing tails of some heads; columns as those of `_Search.best`."""
        queries = self.queries[rows]
        if self.narrow is not None:
            log_normaliser = score_and_log_normaliser(self.narrow, Slot.TAIL, queries)[1]
            scores = self._tail_scores(self.narrow, queries)  # (b, m)
        else:
            with torch.no_grad():
                scores = self.search.scorer.score_slot(Slot.TAIL, queries)
            log_normaliser, scores = scores.logsumexp(1), scores[:, self.tails]
        n_known = self._exclude(scores, rows)
        lowest = scores.topk(min(self.search.top, scores.shape[1])).values[:, -1:]
        row, column = ((scores >= lowest) & (scores > -torch.inf)).nonzero(as_tuple=True)
        values = scores[row, column]
        odds = self.search.log_odds(values, log_normaliser[row], n_known[row])
        return torch.stack([odds, values, queries.head[row], queries.relation[row], self.tails[column]], dim=1)

    @torch.no_grad()
    def _tail_scores(self, scorer: EmbeddingScorer, queries: Triples) -> Tensor:
        """(b, m): the scores of the candidate tails alone."""
        slot_map = scorer.slot_map(Slot.TAIL, queries)
        return dispatch.all_scores(scorer.form, slot_map, scorer.entity_vectors.of(self.tails))

    def _exclude(self, scores: Tensor, rows: Tensor) -> Tensor:
        """Lower the scores (b, m) of known facts, and of loops where excluded; (b,): how many answers are known."""
        row, tail = self.search.known.of(self.queries[rows])
        scores[row, self.column[tail]] = -torch.inf
        loop = self.loop[rows]
        with_loop = (loop >= 0).nonzero()[:, 0]
        scores[with_loop, loop[with_loop]] = -torch.inf
        return row.bincount(minlength=len(scores))
