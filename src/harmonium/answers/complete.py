"""The most probable missing facts of a graph, of some relations or of one entity: the best of the candidates are kept."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harmonium.answers.calibration.fact_probability import FactCalibration, uncalibrated_log_odds
from harmonium.answers.candidate_facts import CandidateFacts, CandidateSearch, one_per_slot
from harmonium.answers.contradictions import with_contradictions
from harmonium.answers.open_or_train import open_or_train
from harmonium.answers.open_run import OpenRun, open_run
from harmonium.answers.prediction import Prediction, optional_floats, to_predictions
from harmonium.answers.reasons import Reason, find_reasons
from harmonium.answers.send.destinations import check_destination, send
from harmonium.answers.send.result_file import check_path, write_rows
from harmonium.data.formats.neo4j.address import is_neo4j
from harmonium.data.graph import Graph
from harmonium.data.tables.reading_options import NAMES as READING
from harmonium.data.triples import Slot, Triples
from harmonium.errors import HarmoniumError, refuse_unknown, whole_number
from harmonium.runtime import distributed, torchrun
from harmonium.runtime.distributed import World, run_on_main
from harmonium.runtime.frames import ResultList

DEFAULT_TOP = 1000
LONGEST = 100_000  # facts of a list of a given precision
BANDS = (0.9, 0.5, 0.2, 0.0)  # lower ends of bands of probability


def complete(
    graph_or_run: Any,
    relation: str | Sequence[str] | None = None,
    *,
    top: int | None = None,
    precision: float | None = None,
    typed: bool = True,
    only_empty: bool = False,
    reasons: bool = True,
    out: str | Path | None = None,
    to: str | None = None,
    preset: str | None = None,
    minutes: float | None = None,
    folder: str | Path | None = None,
    overwrite: bool = False,
    progress: Callable[[int], None] | None = None,
    **reading: Any,
) -> ResultList[Prediction]:
    """The most probable facts that a graph lacks, of one or several relations or (default) of all, most probable first.

    The list has `top` facts (default: 1000); with a `precision` of, say, 0.9 instead as many as it can have while 90 % of
    them are true by their probabilities (and at most `top`, if that is given). Its `notes` say what this rests on.

    A run, or a graph as `load` reads it (`reading`: columns, delimiter, ...). A graph is trained on first: rows of a file
    that cannot be used are skipped, `preset` and `minutes` are those of `train`, the run is kept in `folder` (default:
    runs/NAME), and one on the same facts is used again unless `overwrite`.

    `typed` keeps to entities that could fill the slot, by the types that the graph states and those inferred from all
    slots that an entity fills; `only_empty` to (head, relation, ?) without any known answer. A fact of a symmetric
    relation is listed in one direction, with the entity that the graph names first as the head. The probabilities add up
    to the number of true facts, as far as held-out facts tell how many the graph lacks. `reasons` gives each
    fact a reason in words. With `out` the facts are also written to that file; with `to` they are merged into a Neo4j
    database (bolt://HOST/DATABASE), or the file is one for `neo4j`, `graphrag` or `lightrag`.

    >>> harmonium.complete("facts.csv", out="missing.csv")
    >>> harmonium.complete("runs/demo", "borders", top=20)
    """
    check_target(to, out)
    refuse_unknown(reading, OPTIONS, READING)
    if precision is not None and (not isinstance(precision, Real) or not 0 < precision < 1):
        raise HarmoniumError(f"a precision is a share between 0 and 1, such as 0.9, not {precision!r}")
    wanted = (DEFAULT_TOP if precision is None else LONGEST) if top is None else top
    allow_internal = bool(reading.get("allow_internal"))  # of a server to read from, or to write to
    with distributed.process_group() as world:
        opened = open_run(
            open_or_train(graph_or_run, preset=preset, minutes=minutes, folder=folder, overwrite=overwrite, **reading)
        )
        run, names = opened.run, [relation] if isinstance(relation, str) else relation
        relation_ids = None if names is None else [run.graph.relations.index(name) for name in names]
        calibration = run_on_main(world, lambda: opened.fact_calibration(progress))
        if calibration is None and precision is not None:
            raise HarmoniumError(
                f"a precision needs probabilities, and '{run.graph.name}' has too few validation facts"
            )
        search = opened.search(typed, only_empty)
        missing = find_missing(search, relation_ids, wanted, calibration, progress=progress, world=world)
        missing = missing if typed else missing.restated(opened)
        missing = missing if precision is None else missing.of_precision(precision)
    if torchrun.rank() > 0:
        return ResultList(missing.predictions(run.graph))
    why = None
    if reasons:
        why = with_contradictions(opened, missing.triples, find_reasons(opened.evidence, missing.triples, progress))
    predictions = ResultList(missing.predictions(run.graph, reasons=why), f"missing from {run.graph.name}")
    if calibration is not None and missing.probabilities is not None:
        predictions.notes = (_what_to_expect(calibration, missing, missing.probabilities),)
    rows = predictions.records()
    if to is not None:
        send(to, rows, run, out, allow_internal)
    if out is not None and (to is None or is_neo4j(to)):
        rounded = ({name: _round(cell) for name, cell in row.items()} for row in rows)
        write_rows(out, rounded, str(run.path))
    return predictions


OPTIONS = tuple(inspect.signature(complete).parameters)[:-1]


def _what_to_expect(calibration: FactCalibration, missing: MissingFacts, probabilities: Tensor) -> str:
    """How many facts of a list are true, and by what, in words."""
    expected, low, high = calibration.expected_true(probabilities, missing.triples.relation)
    sure = f"{round(expected):,} of {len(missing):,} are expected to be true"
    return f"{sure} ({round(low):,} to {round(high):,}), by probabilities calibrated on {calibration.true:,} held-out facts"


def check_target(to: str | None, out: str | Path | None) -> None:
    """Refuse a file or database that cannot be written before any work is done."""
    check_destination(to, out)
    if out is not None and (to is None or is_neo4j(to)):
        check_path(out)


def _round(cell: Any) -> Any:
    """Numbers of a list to be read: four digits after the point."""
    return round(cell, 4) if isinstance(cell, float) else cell


@dataclass(frozen=True)
class MissingFacts:
    """Facts that the graph does not have, most probable first."""

    triples: Triples
    scores: Tensor  # (n,) of the tail as the answer to (head, relation, ?)
    probabilities: Tensor | None  # (n,) float64; None if there is no calibration

    def __len__(self) -> int:
        return len(self.triples)

    def of_precision(self, precision: float) -> MissingFacts:
        """The longest list from the first fact on of which, by the probabilities, this share is true."""
        assert self.probabilities is not None, "there is a calibration"
        share = self.probabilities.cumsum(0) / torch.arange(1, len(self) + 1)
        count = int((share >= precision).sum())  # the share falls along the list
        return MissingFacts(self.triples[:count], self.scores[:count], self.probabilities[:count])

    def restated(self, opened: OpenRun) -> MissingFacts:
        """With the one probability of each fact: a search among all entities compares them with more than could be true."""
        if self.probabilities is None:
            return self
        probabilities = opened.probabilities(self.triples)
        assert probabilities is not None, "there is a calibration"
        order = probabilities.argsort(descending=True, stable=True)
        return MissingFacts(self.triples[order], self.scores[order], probabilities[order])

    def predictions(
        self, graph: Graph, open_slot: Slot = Slot.TAIL, reasons: Sequence[Reason] | None = None
    ) -> list[Prediction]:
        """One for each fact; the rank is its place in the list."""
        texts = [None] * len(self) if reasons is None else [reason.text for reason in reasons]
        ranks, rated = (
            [float(place) for place in range(1, len(self) + 1)],
            optional_floats(self.probabilities, len(self)),
        )
        columns = self.scores.tolist(), ranks, rated, [None] * len(self), texts
        return to_predictions(graph, self.triples.to_rows().tolist(), open_slot, *columns)


@dataclass(frozen=True)
class ProbabilityBand:
    """The facts of a list with a probability from `low` up to that of the band before."""

    low: float
    count: int
    expected: float  # true ones, by their probabilities


def probability_bands(facts: Sequence[Prediction]) -> list[ProbabilityBand]:
    """How many facts are how probable; empty without probabilities."""
    probabilities = [fact.probability for fact in facts if fact.probability is not None]
    bands, high = [], math.inf
    for low in BANDS if probabilities else ():
        inside = [probability for probability in probabilities if low <= probability < high]
        bands.append(ProbabilityBand(low, len(inside), sum(inside)))
        high = low
    return bands


def find_missing(
    search: CandidateSearch,
    relations: Sequence[int] | None = None,
    top: int = 1000,
    calibration: FactCalibration | None = None,
    given: tuple[Slot, int] | None = None,
    progress: Callable[[int], None] | None = None,
    world: World | None = None,
) -> MissingFacts:
    """The `top` most probable candidates of some relations, or of those with a `given` head or tail.

    Default: all relations but those whose tails are numbers or dates, of which only a name can ask.

    Ties are ordered by relation, head and tail. Without a calibration the candidates have an order but no probability.
    The processes of a `world` share the relations.
    """
    top = whole_number("top", top)
    if relations is None:
        relations = search.relations() if given is None else search.relations_of(*given)
    asked = sorted(set(relations))
    best = CandidateFacts.cat([]), torch.empty(0, dtype=torch.float64)
    for relation in asked if world is None else asked[world.rank :: world.size]:
        facts = search.of_relation(relation, top, given, progress)
        log_odds = uncalibrated_log_odds(facts) if calibration is None else calibration.log_odds(facts)
        listed = one_per_slot(facts, log_odds, search.traits)
        best = best_of([best, (facts[listed], log_odds[listed])], top)
    if world is not None:
        best = best_of(world.all_gather(best), top)
    facts, log_odds = best
    return MissingFacts(facts.triples, facts.scores, None if calibration is None else log_odds.sigmoid())


def best_of(parts: Sequence[tuple[CandidateFacts, Tensor]], count: int) -> tuple[CandidateFacts, Tensor]:
    """The best of all parts with their log-odds, or other values, descending; ties by relation, head and tail."""
    facts, log_odds = CandidateFacts.cat([part for part, _ in parts]), torch.cat([odds for _, odds in parts])
    order = torch.arange(len(facts))
    for column in (facts.triples.tail, facts.triples.head, facts.triples.relation, -log_odds):
        order = order[column[order].argsort(stable=True)]
    return facts[order[:count]], log_odds[order[:count]]
