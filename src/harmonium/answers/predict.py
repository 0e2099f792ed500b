"""Answer open queries: the best candidates for the open slot, with their probability."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harmonium.answers.probability import Calibration, are_known, calibration_for, exclude
from harmonium.answers.query import Answer, Query, ask, identifiers, read_queries, vocabulary
from harmonium.answers.result_file import write_rows
from harmonium.data.columns import COLUMNS
from harmonium.data.fact_file import CHUNK
from harmonium.data.graph import SPLITS, Graph
from harmonium.data.triples import Slot, Triples
from harmonium.data.vocabulary import Vocabulary
from harmonium.evaluation.candidates import Mask, TopCandidates, chunk_size, select_block, top_candidates
from harmonium.model.scoring import Scorer
from harmonium.run.run import Run, open_run
from harmonium.runtime.errors import HarmoniumError, error_at
from harmonium.runtime.frames import ResultList
from harmonium.runtime.untrusted import refuse_pickle

Pairs = tuple[Tensor, Tensor]  # (row of a query, candidate)


def predict(
    run: Run | str | Path,
    head: str | None = None,
    relation: str | None = None,
    tail: str | None = None,
    top: int = 10,
    new_only: bool = False,
    typed: bool = False,
    among: Sequence[str] | str | Path | None = None,
    probability: bool = True,
    progress: Callable[[int], None] | None = None,
) -> ResultList[Answer]:
    """The best answers to a query by name with one open slot, and the probability that each is true.

    `typed` keeps only entities seen in that slot of the relation, `among` only those of a list, or of a file with one
    name per line. The first call for a run takes longer, as it fits the probabilities. `predict_file` answers many.

    >>> harmonium.predict("runs/demo", head="Switzerland", relation="official language")
    """
    run = open_run(run)
    query = ask(run.graph, head, relation, tail)
    allowed = _candidate_ids(run.graph, query.slot, among)
    calibration = calibration_for(run, progress) if probability else None
    answers = answer_all(run.model, run.graph, query.slot, query.triple, top, new_only, calibration, allowed, typed)
    return ResultList(next(answers))


def predict_file(
    run: Run | str | Path,
    queries: str | Path,
    out: str | Path,
    top: int = 10,
    new_only: bool = False,
    typed: bool = False,
    among: Sequence[str] | str | Path | None = None,
    probability: bool = True,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Answer every query of a file (one of head, relation and tail is '?') into another file; returns the row count.

    >>> predict_file("runs/demo", "questions.tsv", "answers.parquet", top=5, new_only=True)
    """
    run = open_run(run)
    graph, calibration = run.graph, calibration_for(run) if probability else None

    @cache  # a file of candidates is read once per slot
    def allowed(slot: Slot) -> Tensor | None:
        return _candidate_ids(graph, slot, among)

    def rows() -> Iterator[dict[str, Any]]:
        for slot, batch in batches_of_queries(read_queries(queries, graph)):
            triples = Triples.cat([query.triple for query in batch])
            answers = answer_all(run.model, graph, slot, triples, top, new_only, calibration, allowed(slot), typed)
            for query, best_answers in zip(batch, answers, strict=True):
                yield from answer_rows(graph, query, best_answers)
                if progress:
                    progress(1)

    return write_rows(out, rows(), str(run.path))


def batches_of_queries(queries: Iterator[Query]) -> Iterator[tuple[Slot, list[Query]]]:
    """Queries in their order; consecutive ones with the same open slot form batches."""
    for slot, group in groupby(queries, key=lambda query: query.slot):
        while batch := list(islice(group, CHUNK)):
            yield slot, batch


def answer_rows(graph: Graph, query: Query, answers: list[Answer]) -> Iterator[dict[str, Any]]:
    """Each answer as a completed fact by identifier, with its rank, score and probability."""
    given = dict(zip(COLUMNS, identifiers(graph, query.triple.to_rows()[0].tolist()), strict=True))
    for answer in answers:
        values = answer.to_json()
        yield given | {query.slot.value: values.pop("id"), "open": query.slot.value} | values


def _candidate_ids(graph: Graph, slot: Slot, names: Sequence[str] | str | Path | None) -> Tensor | None:
    """The ids of the only candidates allowed, or None for all."""
    if names is None:
        return None
    if isinstance(names, str | Path):
        refuse_pickle(Path(names))
        try:
            lines = Path(names).read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise HarmoniumError(f"--among {names}: cannot be read ({error}); give one name per line") from error
        located = [(f"{names}:{number}", line) for number, line in enumerate(lines, start=1) if line.strip()]
    else:
        located = [("among", name) for name in names]
    if not located:
        raise HarmoniumError(f"--among {names}: no names in it; give one name per line")
    ids = []
    for location, name in located:
        with error_at(location):
            ids.append(vocabulary(graph, slot).index(name))
    return torch.tensor(ids)


def answer_all(
    scorer: Scorer,
    graph: Graph,
    slot: Slot,
    queries: Triples,
    top: int = 10,
    new_only: bool = False,
    calibration: Calibration | None = None,
    allowed: Tensor | None = None,
    typed: bool = False,
) -> Iterator[list[Answer]]:
    """The answers to each query with `slot` open, in order; memory holds one chunk of queries.

    Known facts are marked, or excluded by `new_only`. `allowed` (m,) are the only candidates; `typed` keeps those seen in
    that slot of the query's relation.
    """
    if typed and slot is Slot.RELATION:
        raise HarmoniumError("a relation has no type; ask for the head or the tail, or drop the type filter")
    scorer, names = scorer.prepare(), vocabulary(graph, slot)
    known = graph.known_answers(slot, queries=queries)
    by_split = {split: graph.known_answers(slot, (split,), queries) for split in SPLITS}
    candidates = graph.slot_candidates(slot) if typed else None
    barred = None if allowed is None else torch.ones(len(names), dtype=torch.bool).index_fill(0, allowed, False)
    fit = None if calibration is None else calibration.fits.get(slot)
    for chunk in queries.chunks(chunk_size(scorer, slot, queries) if len(queries) else 1):
        known_pairs = known.of(chunk)
        typed_pairs = None if candidates is None else candidates.lookup(chunk.relation)
        mask = _mask(barred, typed_pairs, known_pairs if new_only else None)
        best = top_candidates(scorer, slot, chunk, top, mask)
        in_split = {split: are_known(facts, slot, chunk, best.ids) for split, facts in by_split.items()}
        is_known = torch.stack(list(in_split.values())).any(0)  # (n, k)
        others = known_pairs[0].bincount(minlength=len(chunk))[:, None] - is_known.long()
        probabilities = None if fit is None else fit.probabilities(best.scores, best.log_normaliser, others)
        yield from _to_answers(names, best, in_split, probabilities)


def _mask(barred: Tensor | None, typed: Pairs | None, known: Pairs | None) -> Mask:
    """Exclude candidates by a flag for each (n_candidates,), those not among the typed pairs, and the known pairs."""

    def mask(start: int, scores: Tensor) -> None:
        width = scores.shape[1]
        if barred is not None:
            scores.masked_fill_(barred[start : start + width], -torch.inf)
        if typed is not None:
            outside = torch.ones_like(scores, dtype=torch.bool)
            outside[select_block(typed, start, width)] = False
            scores.masked_fill_(outside, -torch.inf)
        if known is not None:
            exclude(known)(start, scores)

    return mask


def _to_answers(
    names: Vocabulary, best: TopCandidates, in_split: dict[str, Tensor], probabilities: Tensor | None
) -> Iterator[list[Answer]]:
    """The finite candidates of each query as answers."""
    splits = {split: flags.tolist() for split, flags in in_split.items()}
    rated = None if probabilities is None else probabilities.tolist()
    for row, (indices, scores) in enumerate(zip(best.ids.tolist(), best.scores.tolist(), strict=True)):
        answers = []
        for column, (index, score) in enumerate(zip(indices, scores, strict=True)):
            if score > -torch.inf:
                split = next((split for split in SPLITS if splits[split][row][column]), None)
                probability = None if rated is None else rated[row][column]
                identity = index, names.ids[index], names.name(index)
                answers.append(Answer(column + 1, *identity, score, split, probability))
        yield answers
