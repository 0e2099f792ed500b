"""The most probable missing facts of a graph, of some relations or of one entity: the best of the candidates are kept."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harmonium.answers.calibration.fact_probability import FactCalibration, fact_calibration_for, uncalibrated_log_odds
from harmonium.answers.calibration.probability import optional_floats
from harmonium.answers.candidate_facts import CandidateFacts, CandidateSearch, one_per_slot
from harmonium.answers.open_or_train import open_or_train
from harmonium.answers.query import identifiers
from harmonium.answers.reasons import Reason, find_reasons
from harmonium.answers.send.destinations import check_destination, send
from harmonium.answers.send.result_file import check_path, write_rows
from harmonium.data.formats.neo4j.address import is_neo4j
from harmonium.data.graph import Graph
from harmonium.data.tables.columns import COLUMNS
from harmonium.data.triples import Slot, Triples
from harmonium.errors import whole_number
from harmonium.run.run import Run
from harmonium.runtime import distributed, torchrun
from harmonium.runtime.distributed import World, run_on_main
from harmonium.runtime.frames import ResultList

BANDS = (0.9, 0.5, 0.2, 0.0)  # lower ends of bands of probability


def complete(
    graph_or_run: Any,
    relations: str | Sequence[str] | None = None,
    top: int = 1000,
    typed: bool = True,
    only_empty: bool = False,
    out: str | Path | None = None,
    progress: Callable[[int], None] | None = None,
    reasons: bool = True,
    preset: str | None = None,
    minutes: float | None = None,
    folder: str | Path | None = None,
    overwrite: bool = False,
    to: str | None = None,
    **options: Any,
) -> ResultList[dict[str, Any]]:
    """The most probable facts that a graph lacks, of some relations or (default) of all, most probable first.

    A run, or a graph as `load` reads it with these `options`. A graph is trained on first: rows of a file that cannot be
    used are skipped, `preset` and `minutes` are those of `train`, the run is kept in `folder` (default: runs/NAME), and
    one on the same facts is used again unless `overwrite`.

    `typed` keeps to entities that could fill the slot, by the types that the graph states and those inferred from all
    slots that an entity fills; `only_empty` to (head, relation, ?) without any known answer. A fact of a symmetric
    relation is listed in one direction, with the entity that the graph names first as the head. The probabilities add up
    to the number of true facts if the graph lacks about as many facts as its validation split holds. `reasons` gives each
    fact a reason in words. With `out` the facts are also written to that file; with `to` they are merged into a Neo4j
    database (bolt://HOST/DATABASE), or the file is one for `neo4j`, `graphrag` or `lightrag`.

    >>> harmonium.complete("facts.csv", out="missing.csv")
    >>> harmonium.complete("runs/demo", "borders", top=20)
    """
    check_destination(to, out)
    if out is not None and (to is None or is_neo4j(to)):
        check_path(out)
    run = open_or_train(graph_or_run, preset=preset, minutes=minutes, folder=folder, overwrite=overwrite, **options)
    names = [relations] if isinstance(relations, str) else relations
    relation_ids = None if names is None else [run.graph.relations.index(name) for name in names]
    with distributed.process_group() as world:
        calibration = run_on_main(world, lambda: fact_calibration_for(run, typed, progress))
        search = CandidateSearch.prepare(run.model, run.graph, typed=typed, only_empty=only_empty)
        missing = find_missing(search, relation_ids, top, calibration, progress=progress, world=world)
    is_main = torchrun.rank() == 0
    rows = missing.to_rows(run.graph, find_reasons(run, missing.triples, progress) if reasons and is_main else None)
    if to is not None and is_main:
        send(to, rows, run, out, bool(options.get("allow_internal")))
    if out is not None and (to is None or is_neo4j(to)) and is_main:
        rounded = ({name: _round(cell) for name, cell in row.items()} for row in rows)
        write_rows(out, rounded, str(run.path))
    return ResultList(rows, f"missing from {run.graph.name}")


def _round(cell: Any) -> Any:
    """Numbers of a list to be read: four digits after the point."""
    return round(cell, 4) if isinstance(cell, float) else cell


def missing_facts_of(
    run: Run,
    slot: Slot,
    name: str,
    top: int = 10,
    typed: bool = True,
    progress: Callable[[int], None] | None = None,
) -> ResultList[dict[str, Any]]:
    """The most probable facts of one entity, as head or as tail, that the graph lacks; rows as those of `complete`."""
    given = slot, run.graph.entities.index(name)
    calibration = fact_calibration_for(run, typed, progress)
    search = CandidateSearch.prepare(run.model, run.graph, typed=typed)
    missing = find_missing(search, None, top, calibration, given)
    return ResultList(missing.to_rows(run.graph), f"missing facts of {name}")


@dataclass(frozen=True)
class MissingFacts:
    """Facts that the graph does not have, most probable first."""

    triples: Triples
    scores: Tensor  # (n,) of the tail as the answer to (head, relation, ?)
    probabilities: Tensor | None  # (n,) float64; None if there is no calibration

    def __len__(self) -> int:
        return len(self.triples)

    def to_rows(self, graph: Graph, reasons: Sequence[Reason] | None = None) -> list[dict[str, Any]]:
        """One row for each fact.

        head, relation, tail (identifiers), probability, known_answers (tails that the graph has for this head and
        relation: 0 is an empty slot), reason (if there are reasons), rank, score, and text: the names.
        """
        known = graph.known_answers(Slot.TAIL, queries=self.triples).of(self.triples)[0]
        columns = {
            "probability": optional_floats(self.probabilities, len(self)),
            "known_answers": known.bincount(minlength=len(self)).tolist(),
            **({} if reasons is None else {"reason": [reason.text for reason in reasons]}),
            "rank": list(range(1, len(self) + 1)),
            "score": self.scores.tolist(),
            "text": [", ".join(names) for names in graph.names_of(self.triples)],
        }
        rows = [
            dict(zip(COLUMNS, identifiers(graph, triple), strict=True)) for triple in self.triples.to_rows().tolist()
        ]
        for name, column in columns.items():
            for row, cell in zip(rows, column, strict=True):
                row[name] = cell
        return rows


@dataclass(frozen=True)
class ProbabilityBand:
    """The facts of a list with a probability from `low` up to that of the band before."""

    low: float
    count: int
    expected: float  # true ones, by their probabilities


def probability_bands(rows: Sequence[Mapping[str, Any]]) -> list[ProbabilityBand]:
    """How many facts are how probable; empty without probabilities."""
    probabilities = [row["probability"] for row in rows if row["probability"] is not None]
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
    """The `top` most probable candidates of some relations (default: all), or of those with a `given` head or tail.

    Ties are ordered by relation, head and tail. Without a calibration the candidates have an order but no probability.
    The processes of a `world` share the relations.
    """
    top = whole_number("top", top)
    if relations is None:
        relations = range(search.types.n_relations) if given is None else search.relations_of(*given)
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
    """The best of all parts with their log-odds, or other values, by falling value; ties by relation, head and tail."""
    facts, log_odds = CandidateFacts.cat([part for part, _ in parts]), torch.cat([odds for _, odds in parts])
    order = torch.arange(len(facts))
    for column in (facts.triples.tail, facts.triples.head, facts.triples.relation, -log_odds):
        order = order[column[order].argsort(stable=True)]
    return facts[order[:count]], log_odds[order[:count]]
