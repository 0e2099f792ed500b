"""Score given facts: score, probability, rank."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, Unpack, overload

from harmonium.answers.open_run import OpenRun, open_run
from harmonium.answers.prediction import Prediction, optional_floats, to_predictions
from harmonium.answers.send.result_file import write_rows
from harmonium.data.tables.fact_file import read_triples
from harmonium.data.tables.reading_options import FACT_NAMES as READING
from harmonium.data.tables.reading_options import FactReading
from harmonium.data.tables.skipped_rows import OnBad, SkippedRows
from harmonium.data.triples import Slot, Triples
from harmonium.errors import HarmoniumError, refuse_unknown
from harmonium.evaluation.ranking import rank
from harmonium.run.run import Run
from harmonium.runtime.frames import ResultList, index_of

Facts = Any  # a path, a list of (head, relation, tail) names, a frame, an array, a dict of columns or a graph
Progress = Callable[[int], None]
Side = Literal["head", "tail"]


@overload
def score(
    run: Run | OpenRun | str | Path, facts: Facts, *, out: None = None, side: Side = "tail",
    progress: Progress | None = None, on_bad: OnBad | SkippedRows = "error", **reading: Unpack[FactReading],
) -> ResultList[Prediction]: ...  # fmt: skip


@overload
def score(
    run: Run | OpenRun | str | Path, facts: Facts, *, out: str | Path, side: Side = "tail",
    progress: Progress | None = None, on_bad: OnBad | SkippedRows = "error", **reading: Unpack[FactReading],
) -> int: ...  # fmt: skip


def score(
    run: Run | OpenRun | str | Path,
    facts: Facts,
    *,
    out: str | Path | None = None,
    side: Side = "tail",
    progress: Progress | None = None,
    on_bad: OnBad | SkippedRows = "error",
    **reading: Unpack[FactReading],
) -> ResultList[Prediction] | int:
    """The score, probability and rank of each fact, in the order of the rows, and whether it is known.

    A fact is rated as `predict` rates it: as the answer for its tail, or with `side="head"` for its head; the rank counts
    the answers that are not known facts.

    `facts` are a file, a frame, a list of (head, relation, tail), or an array. The rows of `to_pandas()` have the index of
    a pandas frame, so that its columns can be assigned to it. With `out`, rows are written to that file as they come, and
    their number is returned. Rows that cannot be used, such as those with unknown names, are an error that counts them;
    `on_bad="skip"` leaves them out, and the result's `notes` say how many. `reading` says how to read the facts (see
    `load`): columns, delimiter, encoding, header, quotes.

    >>> harmonium.score("runs/demo", [("Switzerland", "official language", "French")])
    >>> frame["probability"] = run.score(frame).to_pandas()["probability"]
    >>> harmonium.score("runs/demo", "facts.csv", on_bad="skip").notes
    """
    if side not in ("head", "tail"):
        raise HarmoniumError(f"side is head or tail, not '{side}'")
    refuse_unknown(reading, OPTIONS, READING)
    opened, skipped, kept = open_run(run), SkippedRows.of(on_bad), list[int]()

    def results() -> Iterator[Prediction]:
        for batch in read_triples(facts, opened.graph, skipped, kept, **reading):
            yield from score_triples(opened, batch, Slot(side))
            if progress:
                progress(len(batch))

    if out is not None:
        return write_rows(out, (result.to_json() for result in results()), str(opened.run.path))
    scored = ResultList(results())
    scored.notes, scored.index_of_rows = tuple(skipped.notes()), index_of(facts, kept)
    return scored


OPTIONS = tuple(inspect.signature(score).parameters)[:-1]


def score_triples(opened: OpenRun, triples: Triples, slot: Slot = Slot.TAIL) -> list[Prediction]:
    """Each triple, rated as the answer for what fills the slot; one pass over the graph for all of them."""
    if not len(triples):
        return []
    scorer, known = opened.scorer, opened.known(slot)
    scores = scorer.score_facts(slot, triples)
    exact = scorer.exact_scores(slot, triples)
    if exact is not None:  # the score that `predict` gives, whatever the batch
        scores = exact.of_truth[0].to(scores.dtype)
    ranks = rank(scorer, triples, slot, known).values().tolist()
    columns = (
        scores.tolist(),
        ranks,
        optional_floats(opened.probabilities(triples), len(triples)),
        opened.splits_of(triples),
    )
    return to_predictions(opened.graph, triples.to_rows().tolist(), slot, *columns)
