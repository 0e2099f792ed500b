"""Answer open queries: the best candidates for the open slot, with their probability."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import groupby, islice
from numbers import Number
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harmonium.answers.calibration.conformal import answer_sets_for
from harmonium.answers.calibration.held_out import are_known, exclude, with_candidates
from harmonium.answers.calibration.probability import Calibration, calibration_for
from harmonium.answers.complete import complete, missing_facts_of
from harmonium.answers.query import Answer, Query, ask, identifiers, read_queries, vocabulary
from harmonium.answers.relation_traits import RelationTraits, false_answers
from harmonium.answers.send.result_file import write_rows
from harmonium.data.compressed import numbered_lines
from harmonium.data.entity_types import EntityTypes
from harmonium.data.graph import SPLITS, Graph
from harmonium.data.index import CsrIndex, KnownAnswers
from harmonium.data.tables.columns import COLUMNS
from harmonium.data.tables.fact_file import CHUNK
from harmonium.data.tables.skipped_rows import OnBad, SkippedRows
from harmonium.data.triples import Slot, Triples
from harmonium.data.vocabulary import Vocabulary
from harmonium.errors import HarmoniumError, error_at, whole_number
from harmonium.evaluation.candidates import Mask, RankedCandidates, chunk_size, ranked_candidates, select_block
from harmonium.model.scoring import Scorer
from harmonium.run.run import Run, open_run
from harmonium.runtime.frames import ResultList

Pairs = tuple[Tensor, Tensor]  # (row of a query, candidate)


def predict(
    run: Run | str | Path,
    head: Any = None,
    relation: str | None = None,
    tail: str | None = None,
    top: int = 10,
    new_only: bool = False,
    typed: bool = True,
    among: Sequence[str] | str | Path | None = None,
    probability: bool = True,
    progress: Callable[[int], None] | None = None,
    coverage: float | None = None,
) -> ResultList[Answer | Any]:
    """The best answers (`Answer`) to a query by name with one open slot, and the probability that each is true.

    `typed` keeps only entities that could fill the slot, by the types that the graph states and those inferred from all
    slots that an entity fills, and no second answer where a relation has one and it is known (a country is on one
    continent); `among` only those of a list, or of a file with one name per line, whatever their type.
    The first call for a run takes longer, as it fits the probabilities. `predict_file` answers many.

    With one name alone, a head, a tail or a relation: its most probable facts that the graph lacks, as rows like those
    of `complete`.

    With a table in place of the head (a frame, or a list of (head, relation, tail), one of them None): the best answers to
    each of its rows, as rows with the number of the question.

    With a `coverage` (conformal.py): instead of the `top` answers a set of new ones that holds the answer of a fact that
    the graph does not have yet, in so many of all such cases.

    >>> harmonium.predict("runs/demo", head="Switzerland", relation="official language")
    >>> harmonium.predict("runs/demo", head="Switzerland")
    >>> harmonium.predict("runs/demo", pandas.DataFrame({"head": ["Switzerland", "Peru"], "relation": "borders"}), top=3)
    >>> harmonium.predict("runs/demo", head="Switzerland", relation="borders", coverage=0.9)
    """
    run = open_run(run)
    if not isinstance(head, str | Number | None):
        if relation is not None or tail is not None or among is not None or coverage is not None:
            raise HarmoniumError(
                "a table of questions has columns for head, relation and tail; give no others beside it"
            )
        answered: ResultList[Any] = answer_table(run, head, top, new_only, typed, probability, progress)
        return answered
    head = str(head) if isinstance(head, Number) else head
    n_names = 3 - [head, relation, tail].count(None)
    if not n_names:
        raise HarmoniumError("give two of head, relation and tail, or one of them for its most probable missing facts")
    if n_names == 1:
        if among is not None or coverage is not None:
            name = "candidates (among)" if among is not None else "a coverage"
            raise HarmoniumError(f"{name} goes with a query of two names; drop it, or give a second name")
        missing: ResultList[Any] = missing_facts(run, head, relation, tail, top, typed, progress)
        return missing
    query = ask(run.graph, head, relation, tail)
    allowed = _candidate_ids(run.graph, query.slot, among)
    calibration = calibration_for(run, progress) if probability else None
    types = EntityTypes.infer(run.graph) if typed and among is None else None
    traits = RelationTraits.infer(run.graph) if types else None
    if coverage is not None:
        _refuse_among(among)
        answers = answer_sets(run, query.slot, query.triple, coverage, calibration, types, progress)
        return ResultList(next(answers), query.text)
    rules = allowed, types, traits
    answers = answer_all(run.model, run.graph, query.slot, query.triple, top, new_only, calibration, *rules)
    return ResultList(next(answers), query.text)


def answer_table(
    run: Run,
    questions: Any,
    top: int = 10,
    new_only: bool = False,
    typed: bool = True,
    probability: bool = True,
    progress: Callable[[int], None] | None = None,
) -> ResultList[dict[str, Any]]:
    """The best answers to each row of a table, in which one of head, relation and tail is missing.

    Rows have the number of the `question` from 0, the names that it gives, and the rank, id, name, ... of an answer.
    """
    queries = list(read_queries(questions, run.graph))
    calibration = calibration_for(run, progress) if probability else None
    types = EntityTypes.infer(run.graph) if typed else None
    traits = RelationTraits.infer(run.graph) if types else None
    rows: list[list[dict[str, Any]]] = [[] for _ in queries]
    for slot in Slot:
        numbers = [number for number, query in enumerate(queries) if query.slot is slot]
        if not numbers:
            continue
        triples = Triples.cat([queries[number].triple for number in numbers])
        answers = answer_all(
            run.model, run.graph, slot, triples, top, new_only, calibration, types=types, traits=traits
        )
        for number, best in zip(numbers, answers, strict=True):
            names = run.graph.names_of(queries[number].triple)[0]
            given = {"question": number, **dict(zip(COLUMNS, names, strict=True)), slot.value: None}
            rows[number] = [given | answer.to_json() for answer in best]
    return ResultList(row for answers_to_one in rows for row in answers_to_one)


def missing_facts(
    run: Run,
    head: str | None = None,
    relation: str | None = None,
    tail: str | None = None,
    top: int = 10,
    typed: bool = True,
    progress: Callable[[int], None] | None = None,
) -> ResultList[dict[str, Any]]:
    """The most probable facts with one given name that the graph lacks; rows as those of `complete`."""
    if relation is not None:
        return complete(run, relation, top, typed, progress=progress)
    slot, name = (Slot.TAIL, tail) if head is None else (Slot.HEAD, head)
    assert name is not None, "one name is given"
    return missing_facts_of(run, slot, name, top, typed, progress)


def predict_file(
    run: Run | str | Path,
    queries: Any,
    out: str | Path,
    top: int = 10,
    new_only: bool = False,
    typed: bool = True,
    among: Sequence[str] | str | Path | None = None,
    probability: bool = True,
    progress: Callable[[int], None] | None = None,
    coverage: float | None = None,
    on_bad: OnBad | SkippedRows = "error",
    **options: Any,
) -> int:
    """Answer every query of a file (one of head, relation and tail is '?') into another file; returns the row count.

    With a `coverage` the answers are those of `predict` with it. Queries may also be a list or a frame; `on_bad` and
    `options` are those of `harmonium.score`.

    >>> predict_file("runs/demo", "questions.tsv", "answers.parquet", top=5, new_only=True)
    """
    run = open_run(run)
    graph, calibration = run.graph, calibration_for(run) if probability else None
    types = EntityTypes.infer(graph) if typed and among is None else None
    traits = RelationTraits.infer(graph) if types else None
    if coverage is not None:
        _refuse_among(among)

    @cache  # a file of candidates is read once per slot
    def allowed(slot: Slot) -> Tensor | None:
        return _candidate_ids(graph, slot, among)

    def rows() -> Iterator[dict[str, Any]]:
        for slot, batch in batches_of_queries(read_queries(queries, graph, on_bad, **options)):
            triples = Triples.cat([query.triple for query in batch])
            if coverage is None:
                rules = allowed(slot), types, traits
                answers = answer_all(run.model, graph, slot, triples, top, new_only, calibration, *rules)
            else:
                answers = answer_sets(run, slot, triples, coverage, calibration, types)
            for query, best_answers in zip(batch, answers, strict=True):
                yield from answer_rows(graph, query, best_answers)
                if progress:
                    progress(1)

    return write_rows(out, rows(), str(run.path))


def answer_sets(
    run: Run,
    slot: Slot,
    queries: Triples,
    coverage: float,
    calibration: Calibration | None = None,
    types: EntityTypes | None = None,
    progress: Callable[[int], None] | None = None,
) -> Iterator[list[Answer]]:
    """The answer set of each query with `slot` open: new answers only, best first (conformal.py)."""
    sizes, are_typed = answer_sets_for(run, progress).sizes(run.model, run.graph, slot, queries, coverage, types)
    rejected = false_answers(run.graph, slot)
    for query, size, typed in zip(queries.chunks(1), sizes.tolist(), are_typed.tolist(), strict=True):
        kept_types = types if typed else None
        yield from answer_all(
            run.model, run.graph, slot, query, size, True, calibration, types=kept_types, rejected=rejected
        )


def _refuse_among(among: Sequence[str] | str | Path | None) -> None:
    if among is not None:
        raise HarmoniumError("an answer set needs all candidates: give a coverage or candidates (among), not both")


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


def answer_all(
    scorer: Scorer,
    graph: Graph,
    slot: Slot,
    queries: Triples,
    top: int = 10,
    new_only: bool = False,
    calibration: Calibration | None = None,
    allowed: Tensor | None = None,
    types: EntityTypes | None = None,
    traits: RelationTraits | None = None,
    rejected: KnownAnswers | None = None,
) -> Iterator[list[Answer]]:
    """The answers to each query with `slot` open, in order; memory holds one chunk of queries.

    Known facts are marked, or excluded by `new_only`; facts known to be false are excluded. `allowed` (m,) are the only
    candidates; `types` keep those that could fill the slot of the query's relation (all may, where the relation is asked
    for); an entity is related to itself only where the relation has such facts. With `traits` too, a query that has one
    answer, which is known, gets no other. `rejected` are the answers known to be false, if they are at hand.
    """
    top = whole_number("top", top)
    scorer, names = scorer.prepare(), vocabulary(graph, slot)
    known = graph.known_answers(slot, queries=queries)
    by_split = {split: graph.known_answers(slot, (split,), queries) for split in SPLITS}
    rejected = false_answers(graph, slot, traits) if rejected is None else rejected
    typed = None if types is None or slot is Slot.RELATION else types.candidates(slot, queries.relation)
    barred = None if allowed is None else torch.ones(len(names), dtype=torch.bool).index_fill(0, allowed, False)
    fit = None if calibration is None else calibration.fits.get(slot)
    for chunk in queries.chunks(chunk_size(scorer, slot, queries) if len(queries) else 1):
        known_pairs = known.of(chunk)
        typed_pairs = None if typed is None or types is None else _typed_pairs(typed, types, slot, chunk)
        if typed_pairs is not None and traits is not None:
            typed_pairs = _without_second_answers(typed_pairs, known_pairs, traits.has_one_answer(slot)[chunk.relation])
        mask = _mask(barred, typed_pairs, *([known_pairs] if new_only else []), rejected.of(chunk))
        best = ranked_candidates(scorer, slot, chunk, top, mask, fit.temperature if fit else 1.0)
        in_split = {split: are_known(facts, slot, chunk, best.ids) for split, facts in by_split.items()}
        is_known = torch.stack(list(in_split.values())).any(0)  # (n, k)
        others = known_pairs[0].bincount(minlength=len(chunk))[:, None] - is_known.long()
        rated = best.scores, best.log_normaliser, others
        probabilities = None if fit is None else fit.probabilities(chunk.relation, *rated)
        if calibration is not None and probabilities is not None and slot is not Slot.RELATION:
            triples = with_candidates(slot, chunk, best.ids)
            united = calibration.unite_directions(probabilities.flatten(), scorer, graph, triples)
            probabilities = united.view_as(probabilities)
        yield from _to_answers(names, best, in_split, probabilities)


def _typed_pairs(typed: CsrIndex, types: EntityTypes, slot: Slot, queries: Triples) -> Pairs:
    """The candidates of each query by type; the entity that is given is none, unless the relation has such facts."""
    row, candidate = typed.lookup(queries.relation)
    given = queries.tail if slot is Slot.HEAD else queries.head
    kept = (candidate != given[row]) | types.has_loops[queries.relation[row]]
    return row[kept], candidate[kept]


def _without_second_answers(typed: Pairs, known: Pairs, has_one: Tensor) -> Pairs:
    """The candidates of each query; where it `has_one` (n,) answer, and it is known, that one alone."""
    is_answered = torch.zeros_like(has_one).index_fill_(0, known[0], True)
    row, candidate = typed
    size = int(torch.cat([candidate, known[1], candidate.new_zeros(1)]).max()) + 1
    kept = ~(has_one & is_answered)[row] | torch.isin(row * size + candidate, known[0] * size + known[1])
    return row[kept], candidate[kept]


def _mask(barred: Tensor | None, typed: Pairs | None, *excluded: Pairs) -> Mask:
    """Exclude candidates by a flag for each (n_candidates,), those not among the typed pairs, and other pairs."""

    def mask(start: int, scores: Tensor) -> None:
        width = scores.shape[1]
        if barred is not None:
            scores.masked_fill_(barred[start : start + width], -torch.inf)
        if typed is not None:
            outside = torch.ones_like(scores, dtype=torch.bool)
            outside[select_block(typed, start, width)] = False
            scores.masked_fill_(outside, -torch.inf)
        for pairs in excluded:
            exclude(pairs)(start, scores)

    return mask


def _to_answers(
    names: Vocabulary, best: RankedCandidates, in_split: dict[str, Tensor], probabilities: Tensor | None
) -> Iterator[list[Answer]]:
    """The finite candidates of each query as answers."""
    splits = {split: flags.tolist() for split, flags in in_split.items()}
    rated = None if probabilities is None else probabilities.tolist()
    columns = best.ids.tolist(), best.scores.tolist(), best.ranks.tolist()
    for row, (indices, scores, ranks) in enumerate(zip(*columns, strict=True)):
        answers = []
        for column, (index, score, rank) in enumerate(zip(indices, scores, ranks, strict=True)):
            if score > -torch.inf:
                split = next((split for split in SPLITS if splits[split][row][column]), None)
                probability = None if rated is None or math.isnan(rated[row][column]) else rated[row][column]
                identity = index, names.ids[index], names.name(index)
                answers.append(Answer(rank, *identity, score, split, probability))
        yield answers
