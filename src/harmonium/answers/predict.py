"""Answer queries: the best candidates for the open slot, or the facts with a name that the graph lacks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby, islice
from numbers import Number
from pathlib import Path
from typing import Any, Unpack, overload

import torch
from torch import Tensor

from harmonium.answers.complete import find_missing
from harmonium.answers.open_run import OpenRun, open_run
from harmonium.answers.prediction import Prediction, optional_floats, to_predictions, vocabulary
from harmonium.answers.query import Query, ask, read_queries
from harmonium.answers.send.result_file import write_rows
from harmonium.data.compressed import numbered_lines
from harmonium.data.graph import Graph
from harmonium.data.tables.fact_file import FACTS_PER_CHUNK
from harmonium.data.tables.reading_options import FACT_NAMES as READING
from harmonium.data.tables.reading_options import FactReading
from harmonium.data.tables.skipped_rows import OnBad, SkippedRows
from harmonium.data.triples import Slot, Triples
from harmonium.errors import HarmoniumError, error_at, refuse_unknown, whole_number
from harmonium.evaluation.candidates import (
    Mask,
    RankedCandidates,
    chunk_size,
    exclude,
    ranked_candidates,
    select_block,
    with_candidates,
)
from harmonium.run.run import Run
from harmonium.runtime.frames import ResultList, index_of

Pairs = tuple[Tensor, Tensor]  # (row of a query, candidate)
Allowed = Callable[[Triples], Pairs]  # the only candidates of each of some queries
Names = Sequence[str] | str | Path


@overload
def predict(
    run: Run | OpenRun | str | Path, head: Any = None, relation: Any = None, tail: Any = None, *, out: None = None,
    top: int = 10, new_only: bool = False, typed: bool = True, among: Names | None = None, probability: bool = True,
    coverage: float | None = None, progress: Callable[[int], None] | None = None,
    on_bad: OnBad | SkippedRows = "error", **reading: Unpack[FactReading],
) -> ResultList[Prediction]: ...  # fmt: skip


@overload
def predict(
    run: Run | OpenRun | str | Path, head: Any = None, relation: Any = None, tail: Any = None, *, out: str | Path,
    top: int = 10, new_only: bool = False, typed: bool = True, among: Names | None = None, probability: bool = True,
    coverage: float | None = None, progress: Callable[[int], None] | None = None,
    on_bad: OnBad | SkippedRows = "error", **reading: Unpack[FactReading],
) -> int: ...  # fmt: skip


def predict(
    run: Run | OpenRun | str | Path,
    head: Any = None,
    relation: Any = None,
    tail: Any = None,
    *,
    top: int = 10,
    new_only: bool = False,
    typed: bool = True,
    among: Names | None = None,
    probability: bool = True,
    coverage: float | None = None,
    out: str | Path | None = None,
    progress: Callable[[int], None] | None = None,
    on_bad: OnBad | SkippedRows = "error",
    **reading: Unpack[FactReading],
) -> ResultList[Prediction] | int:
    """The best answers to queries, best first, each with the probability that it is true.

    What is asked:
    - two names: what could fill the third slot (any slot may be the open one);
    - one name, a head, a tail or a relation: its most probable facts that the graph lacks;
    - lists of names, such as several heads: a query for each;
    - a table in place of the head (a frame, a list of (head, relation, tail) with one of them None, or a file given as a
      `Path`): a query for each row. The rows of `to_pandas()` have the index of the query's row in a pandas frame.
      `on_bad` and `reading` (columns, delimiter, ...) say how to read it, as for `load`.

    Options: `top` answers to each query; `new_only` leaves out known facts; `typed` keeps only entities that could fill the
    slot, by the types that the graph states and those inferred from all slots that an entity fills, and no second answer
    where a relation has one and it is known (a country is on one continent); `among` only candidates of a list, or of a
    file with one name per line, whatever their type; `coverage=0.9` instead of `top` a set of new answers that holds the
    answer that the graph lacks nine times of ten (conformal.py). With `out` the answers are written to that file as they
    come, and their number is returned.

    The first call for a run takes longer: it is opened, and probabilities are fitted, once.

    >>> harmonium.predict("runs/demo", head="Switzerland", relation="official language")
    >>> harmonium.predict("runs/demo", head="Switzerland")
    >>> harmonium.predict("runs/demo", head=["Switzerland", "Peru"], relation="borders", top=3)
    >>> harmonium.predict("runs/demo", pandas.DataFrame({"head": ["Switzerland", "Peru"], "relation": "borders"}))
    >>> harmonium.predict("runs/demo", head="Switzerland", relation="borders", coverage=0.9)
    """
    opened, skipped = open_run(run), SkippedRows.of(on_bad)
    is_table = not _are_names(head)
    refuse_unknown(reading, OPTIONS, READING if is_table else ())
    queries: Iterable[Query]
    if is_table:
        if relation is not None or tail is not None:
            raise HarmoniumError("a table of queries has columns for head, relation and tail; give no others beside it")
        queries = read_queries(head, opened.graph, skipped, **reading)
    else:
        queries = _queries_by_name(opened.graph, head, relation, tail)
        if probability and any(len(query.open) == 1 for query in queries):
            opened.fact_calibration(progress=progress)
        progress = None  # the queries of a table are counted
    answers = answer(
        opened,
        queries,
        top=top,
        new_only=new_only,
        typed=typed,
        among=among,
        probability=probability,
        coverage=coverage,
    )
    if out is not None:
        rows = (each.to_json() for _, best in _counted(answers, progress) for each in best)
        return write_rows(out, rows, str(opened.run.path))
    predictions: ResultList[Prediction] = ResultList()
    positions: list[int] = []
    for query, best in _counted(answers, progress):
        predictions += best
        positions += [query.row] * len(best)
        predictions.title = query.text
    if len(set(positions)) > 1 or is_table:
        predictions.title = ""
    predictions.notes, predictions.index_of_rows = tuple(skipped.notes()), index_of(head, positions)
    return predictions


OPTIONS = tuple(inspect.signature(predict).parameters)[:-1]


def _counted(
    answers: Iterator[tuple[Query, list[Prediction]]], progress: Callable[[int], None] | None
) -> Iterator[tuple[Query, list[Prediction]]]:
    for each in answers:
        yield each
        if progress:
            progress(1)


def _are_names(head: Any) -> bool:
    """Whether the first argument is a name, none, or a list of names; or else a table of queries."""
    values = _listed(head)
    return values is not None and all(isinstance(value, str | Number | None) for value in values)


def _listed(names: Any) -> list[Any] | None:
    """A name or several as a list; None for anything with rows."""
    if isinstance(names, str | Number | None):
        return [names]
    if isinstance(names, list | tuple):
        return list(names)
    if getattr(names, "ndim", 2) == 1 or type(names).__name__ == "Series":  # of numpy, pandas or polars
        return list(names.tolist() if hasattr(names, "tolist") else names.to_list())
    return None


def _queries_by_name(graph: Graph, head: Any, relation: Any, tail: Any) -> list[Query]:
    """One query for each row of the lists of names; a single name goes with all rows."""
    columns = [_listed(names) for names in (head, relation, tail)]
    if any(column is None for column in columns):
        raise HarmoniumError(
            "give names or lists of names for head, relation and tail; a table goes in place of the head"
        )
    lists = [column for column in columns if column is not None]
    count = max(len(column) for column in lists)
    if any(len(column) not in (1, count) for column in lists):
        raise HarmoniumError(
            f"lists of names have the same length; given: {', '.join(str(len(each)) for each in lists)}"
        )
    rows = zip(*(column if len(column) == count else column * count for column in lists), strict=True)
    return [replace(ask(graph, *row), row=number) for number, row in enumerate(rows)]


def answer(
    opened: OpenRun,
    queries: Iterable[Query],
    *,
    top: int = 10,
    new_only: bool = False,
    typed: bool = True,
    among: Names | None = None,
    probability: bool = True,
    coverage: float | None = None,
) -> Iterator[tuple[Query, list[Prediction]]]:
    """Each query with its best answers, in order: what every way to ask goes through. The options are those of `predict`.

    Memory holds a batch of queries with the same open slots.
    """
    if among is not None and coverage is not None:
        raise HarmoniumError("an answer set needs all candidates: give a coverage or candidates (among), not both")
    listed: dict[Slot, Allowed] = {}
    for open_slots, batch in batches_of_queries(queries):
        triples = Triples.cat([query.triple for query in batch])
        if len(open_slots) == 2:
            if among is not None or coverage is not None:
                name = "candidates (among)" if among is not None else "a coverage"
                raise HarmoniumError(f"{name} goes with a query of two names; drop it, or give a second name")
            answers: Iterator[list[Prediction]] = (
                missing_facts(opened, query, top, typed, probability) for query in batch
            )
        elif coverage is not None:
            answers = answer_sets(opened, open_slots[0], triples, coverage, typed, probability)
        else:
            (slot,), allowed = open_slots, None
            if among is not None:
                allowed = listed.get(slot) or listed.setdefault(slot, listed_candidates(opened.graph, slot, among))
            elif typed and slot is not Slot.RELATION:
                allowed = typed_candidates(opened, slot)
            answers = best_answers(opened, slot, triples, allowed, top=top, new_only=new_only, probability=probability)
        yield from zip(batch, answers, strict=True)


def batches_of_queries(queries: Iterable[Query]) -> Iterator[tuple[tuple[Slot, ...], list[Query]]]:
    """Queries in their order; consecutive ones with the same open slots form batches."""
    for open_slots, group in groupby(queries, key=lambda query: query.open):
        while batch := list(islice(group, FACTS_PER_CHUNK)):
            yield open_slots, batch


def missing_facts(
    opened: OpenRun, query: Query, top: int = 10, typed: bool = True, probability: bool = True
) -> list[Prediction]:
    """The most probable facts with one given name that the graph lacks."""
    (given,) = (slot for slot in Slot if slot not in query.open)
    index, calibration = int(query.triple[given]), opened.fact_calibration() if probability else None
    find = partial(find_missing, opened.search(typed), top=top, calibration=calibration)
    missing = find([index]) if given is Slot.RELATION else find(given=(given, index))
    missing = missing if typed else missing.restated(opened)
    return missing.predictions(opened.graph, Slot.HEAD if given is Slot.TAIL else Slot.TAIL)


def answer_sets(
    opened: OpenRun, slot: Slot, queries: Triples, coverage: float, typed: bool = True, probability: bool = True
) -> Iterator[list[Prediction]]:
    """The answer set of each query with `slot` open: new answers only, best first (conformal.py)."""
    types = opened.types if typed else None
    sizes, are_typed = opened.answer_sets().sizes(opened.scorer, opened.graph, slot, queries, coverage, types)
    for query, size, is_typed in zip(queries.chunks(1), sizes.tolist(), are_typed.tolist(), strict=True):
        allowed = typed_candidates(opened, slot, one_answer=False) if is_typed else None
        yield from best_answers(opened, slot, query, allowed, top=size, new_only=True, probability=probability)


def best_answers(
    opened: OpenRun,
    slot: Slot,
    queries: Triples,
    allowed: Allowed | None = None,
    *,
    top: int = 10,
    new_only: bool = False,
    probability: bool = True,
) -> Iterator[list[Prediction]]:
    """The answers to each query with `slot` open, in order; memory holds one chunk of queries.

    Known facts are marked, or left out with `new_only`; facts known to be false are left out. `allowed` gives the only
    candidates of each query; default: all entities (or relations).
    """
    top, scorer, known = whole_number("top", top), opened.scorer, opened.known(slot)
    for chunk in queries.chunks(chunk_size(scorer, slot)):
        known_pairs = known.of(chunk)
        excluded = [opened.rejected(slot).of(chunk), *([known_pairs] if new_only else [])]
        mask = _mask(None if allowed is None else allowed(chunk), excluded)
        best = ranked_candidates(scorer, slot, chunk, top, mask)
        triples = with_candidates(slot, chunk, best.ids)
        probabilities = opened.probabilities(triples) if probability else None
        yield from _to_predictions(opened, slot, best, triples, probabilities)


def typed_candidates(opened: OpenRun, slot: Slot, one_answer: bool = True) -> Allowed:
    """Candidates by type; the entity that is given is none, unless the relation has such facts.

    With `one_answer`, where a query can have one answer, and it is known, that one alone is a candidate.
    """
    types, known = opened.types, opened.known(slot)

    def allowed(queries: Triples) -> Pairs:
        row, candidate = types.candidates(slot, queries.relation).lookup(queries.relation)
        given = queries.tail if slot is Slot.HEAD else queries.head
        kept = (candidate != given[row]) | types.has_loops[queries.relation[row]]
        if one_answer:
            known_row, answer = known.of(queries)
            is_answered = torch.zeros(len(queries), dtype=torch.bool).index_fill_(0, known_row, True)
            is_answered &= opened.traits.has_one_answer(slot)[queries.relation]
            n = opened.graph.n_entities
            kept &= ~is_answered[row] | torch.isin(row * n + candidate, known_row * n + answer)
        return row[kept], candidate[kept]

    return allowed


def listed_candidates(graph: Graph, slot: Slot, names: Names) -> Allowed:
    """The candidates of a list, or of a file with one name per line, whatever their type."""
    ids = _candidate_ids(graph, slot, names)
    return lambda queries: (torch.arange(len(queries)).repeat_interleave(len(ids)), ids.repeat(len(queries)))


def _candidate_ids(graph: Graph, slot: Slot, names: Names) -> Tensor:
    """(m,): the ids of candidates by name."""
    if isinstance(names, str | Path):
        with error_at("--among"):
            lines = numbered_lines(Path(names))
            located = [(f"{names}:{number}", line.rstrip("\r\n")) for number, line in lines if line.strip()]
    else:
        located = [("among", name) for name in names]
    if not located:
        raise HarmoniumError(f"--among {names}: no names in it; give one name per line")
    ids = []
    for location, name in located:
        with error_at(location):
            ids.append(vocabulary(graph, slot).index(name))
    return torch.tensor(ids)


def _mask(allowed: Pairs | None, excluded: Sequence[Pairs]) -> Mask:
    """Exclude candidates that are not among the allowed pairs, and those of other pairs."""

    def mask(start: int, scores: Tensor) -> None:
        if allowed is not None:
            outside = torch.ones_like(scores, dtype=torch.bool)
            outside[select_block(allowed, start, scores.shape[1])] = False
            scores.masked_fill_(outside, -torch.inf)
        for pairs in excluded:
            exclude(pairs)(start, scores)

    return mask


def _to_predictions(
    opened: OpenRun, slot: Slot, best: RankedCandidates, triples: Triples, probabilities: Tensor | None
) -> Iterator[list[Prediction]]:
    """The candidates of each query that are not excluded."""
    kept = best.scores > -torch.inf  # (n, k)
    triples = triples[kept.flatten()]
    rated = optional_floats(None if probabilities is None else probabilities[kept.flatten()], len(triples))
    columns = best.scores[kept].tolist(), best.ranks[kept].tolist(), rated, opened.splits_of(triples)
    predictions = iter(to_predictions(opened.graph, triples.to_rows().tolist(), slot, *columns))
    for count in kept.sum(1).tolist():
        yield list(islice(predictions, count))
