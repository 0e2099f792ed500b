"""Score given facts: score, probability, rank."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, overload

from harmonium.answers.calibration.held_out import count_other_answers
from harmonium.answers.calibration.probability import Calibration, calibration_for, optional_floats
from harmonium.answers.query import fact_status, identifiers
from harmonium.answers.send.result_file import write_rows
from harmonium.data.graph import SPLITS, Graph
from harmonium.data.tables.columns import COLUMNS
from harmonium.data.tables.fact_file import read_triples
from harmonium.data.tables.skipped_rows import OnBad, SkippedRows
from harmonium.data.triples import Slot, Triples
from harmonium.evaluation.candidates import score_and_log_normaliser
from harmonium.evaluation.ranking import rank
from harmonium.model.scoring import Scorer
from harmonium.run.run import Run, open_run
from harmonium.runtime.displayed import Table, percent
from harmonium.runtime.frames import ResultList, index_of

Facts = Any  # a path, a list of (head, relation, tail) names, a frame, an array, a dict of columns or a graph
Progress = Callable[[int], None]


@dataclass(frozen=True)
class ScoredFact:
    """A fact as the answer to (head, relation, ?) and, in the fields named head_..., to (?, relation, tail)."""

    triple: tuple[str, str, str]  # identifiers
    text: str
    score: float
    probability: float | None
    rank: float  # among the answers that are not known facts; ties share the middle
    head_probability: float | None
    head_rank: float
    known: str | None  # the split in which it is a fact, if any

    @staticmethod
    def table(title: str, facts: Sequence["ScoredFact"]) -> Table:
        """Scored facts as people read them."""
        rows = [
            [
                fact.text, fact.score, percent(fact.probability), f"{fact.rank:g}", percent(fact.head_probability),
                f"{fact.head_rank:g}", fact_status(fact.known),
            ]
            for fact in facts
        ]  # fmt: skip
        columns = ["fact", "score", "as tail", "rank", "as head", "rank", ""]
        return Table(title, columns, rows, "ranks among answers that are not known facts")

    def to_json(self) -> dict[str, Any]:
        names = dict(zip(COLUMNS, self.triple, strict=True))
        return names | {key: value for key, value in asdict(self).items() if key != "triple"}


@overload
def score(
    run: Run | str | Path,
    facts: Facts,
    out: None = None,
    progress: Progress | None = None,
    on_bad: OnBad | SkippedRows = "error",
    **options: Any,
) -> ResultList[ScoredFact]: ...


@overload
def score(
    run: Run | str | Path,
    facts: Facts,
    out: str | Path,
    progress: Progress | None = None,
    on_bad: OnBad | SkippedRows = "error",
    **options: Any,
) -> int: ...


def score(
    run: Run | str | Path,
    facts: Facts,
    out: str | Path | None = None,
    progress: Progress | None = None,
    on_bad: OnBad | SkippedRows = "error",
    **options: Any,
) -> ResultList[ScoredFact] | int:
    """The score, probability and rank of each fact, in the order of the rows, and whether it is known.

    `facts` are a file, a frame, a list of (head, relation, tail), or an array. The rows of `to_pandas()` have the index of
    a pandas frame, so that its columns can be assigned to it. With `out`, rows are written to that file as they come, and
    their number is returned. Rows that cannot be used, such as those with unknown names, are an error that counts them;
    `on_bad="skip"` leaves them out, and the result's `notes` say how many. `options` say how to read the facts (see
    `load`): columns, delimiter, encoding, header, quotes.

    >>> harmonium.score("runs/demo", [("Switzerland", "official language", "French")])
    >>> frame["probability"] = run.score(frame).to_pandas()["probability"]
    >>> harmonium.score("runs/demo", "facts.csv", on_bad="skip").notes
    """
    run, skipped = open_run(run), SkippedRows.of(on_bad)
    calibration, kept = calibration_for(run), list[int]()

    def results() -> Iterator[ScoredFact]:
        for batch in read_triples(facts, run.graph, skipped, kept, **options):
            yield from score_triples(run.model, run.graph, batch, calibration)
            if progress:
                progress(len(batch))

    if out is None:
        scored = ResultList(results())
        scored.notes, scored.index_of_rows = tuple(skipped.notes()), index_of(facts, kept)
        return scored
    return write_rows(out, (result.to_json() for result in results()), str(run.path))


def score_triples(
    scorer: Scorer, graph: Graph, triples: Triples, calibration: Calibration | None = None
) -> Iterator[ScoredFact]:
    """Each triple with its score, probabilities and ranks; one pass over the graph for all of them."""
    if not len(triples):
        return
    scorer = scorer.prepare()
    tails = _rate(scorer, graph, Slot.TAIL, triples, calibration)
    heads = _rate(scorer, graph, Slot.HEAD, triples, calibration)
    splits = split_of(graph, triples)
    rows = zip(triples.to_rows().tolist(), graph.names_of(triples), tails, heads, splits, strict=True)
    for row, names, tail, (_, head_probability, head_rank), split in rows:
        yield ScoredFact(identifiers(graph, row), ", ".join(names), *tail, head_probability, head_rank, split)


def split_of(graph: Graph, triples: Triples) -> list[str | None]:
    """The first split in which each triple is a fact, or None."""
    splits: list[str | None] = [None] * len(triples)
    for split in reversed(SPLITS):
        known = graph.known_answers(Slot.TAIL, (split,), triples).contain(triples)
        for row in known.nonzero()[:, 0].tolist():
            splits[row] = split
    return splits


def _rate(
    scorer: Scorer, graph: Graph, slot: Slot, triples: Triples, calibration: Calibration | None
) -> list[tuple[float, float | None, float]]:
    """Score, probability and filtered rank of what fills the slot of each triple."""
    known = graph.known_answers(slot, queries=triples)
    fit = None if calibration is None else calibration.fits.get(slot)
    scores, log_normaliser = score_and_log_normaliser(scorer, slot, triples, fit.temperature if fit else 1.0)
    others = count_other_answers(known, triples)
    probabilities = None if fit is None else fit.probabilities(triples.relation, scores, log_normaliser, others)
    if calibration is not None and probabilities is not None:
        probabilities = calibration.unite_directions(probabilities, scorer, graph, triples)
    exact = scorer.exact_scores(slot, triples)
    if exact is not None:  # the score that `predict` gives, whatever the batch
        scores = exact.of_truth[0].to(scores.dtype)
    ranks = rank(scorer, triples, slot, known).values().tolist()
    return list(zip(scores.tolist(), optional_floats(probabilities, len(triples)), ranks, strict=True))
