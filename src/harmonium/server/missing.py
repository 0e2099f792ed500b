"""Time-limited search for the most interesting facts that a graph lacks: probable, with a reason, and diverse."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from harmonium.answers.candidate_facts import Progress
from harmonium.answers.complete import find_missing
from harmonium.answers.open_run import OpenRun
from harmonium.answers.prediction import optional_floats
from harmonium.answers.reasons import Reason, find_reasons
from harmonium.data.triples import Triples

SEARCH_SECONDS = 10.0  # for the search, and again for the reasons
FACTS_PER_RELATION = 20  # best candidates kept
CONSIDERED_PER_CHOSEN = 4  # facts whose reasons are computed for each fact that is chosen
FACTS_PER_BATCH = 24  # whose reasons are computed at once
MAX_FACTS_PER_ENTITY = 2  # in a list
IMPROBABLE = 0.2  # probability below which facts are chosen last
WEIGHT_OF_REASON = {"path": 1.0, "similar": 1.0, "rule": 0.9, "frequent": 0.6, "none": 0.4}  # factor by kind
NO_TIME = Reason("none", 0.0, "")


@dataclass(frozen=True)
class ProbableFact:
    """A fact that the graph lacks, and the evidence for it."""

    triple: tuple[int, int, int]
    score: float
    probability: float | None
    reason: Reason = field(default=NO_TIME)

    @property
    def interest(self) -> float:
        """The probability, reduced if little besides the score of the model supports the fact."""
        return (self.probability or 0.0) * WEIGHT_OF_REASON.get(self.reason.kind, 1.0)


@dataclass(frozen=True, eq=False)
class MissingFactSearch:
    """A search in limited time; relations that do not fit into it are left out."""

    opened: OpenRun
    seconds: float = SEARCH_SECONDS

    def most_probable(self, relation: int, count: int) -> tuple[list[ProbableFact], int]:
        """The `count` most probable facts of a relation, and the number of relations searched, 0 or 1."""
        facts, searched = self._search([relation], count)
        return self._with_reasons(facts[:count]), searched

    def most_interesting(self, relations: Sequence[int], count: int) -> tuple[list[ProbableFact], int]:
        """Diverse facts in descending order of probability, and the number of relations searched."""
        facts, searched = self._search(relations, FACTS_PER_RELATION)
        rated = self._with_reasons(choose_diverse(facts, CONSIDERED_PER_CHOSEN * count))
        rated.sort(key=lambda fact: -fact.interest)
        return choose_diverse(rated, count), searched

    def _search(self, relations: Sequence[int], top: int) -> tuple[list[ProbableFact], int]:
        """The best facts of each relation, in descending order of probability. Small relations are searched first."""
        progress, facts, searched = _deadline(self.seconds), [], 0
        search, calibration = self.opened.search(), self.opened.fact_calibration()
        for relation in sorted(relations, key=self._work):
            try:
                missing = find_missing(search, [relation], top, calibration, progress=progress)
            except TimeoutError:
                break
            searched += 1
            rows, scores = missing.triples.to_rows().tolist(), missing.scores.tolist()
            probabilities = optional_floats(missing.probabilities, len(missing))
            facts += [
                ProbableFact((h, r, t), *rest) for (h, r, t), *rest in zip(rows, scores, probabilities, strict=True)
            ]
        return sorted(facts, key=lambda fact: -fact.interest), searched

    def _work(self, relation: int) -> int:
        """Lower bound on the number of pairs of entities to score."""
        sizes = self.opened.types.sizes
        return int(sizes[relation]) * int(sizes[relation + self.opened.graph.n_relations])

    def _with_reasons(self, facts: Sequence[ProbableFact]) -> list[ProbableFact]:
        """Add reasons to facts in order, until time is up."""
        end, rated = time.monotonic() + self.seconds, []
        for start in range(0, len(facts), FACTS_PER_BATCH):
            batch = facts[start : start + FACTS_PER_BATCH]
            if time.monotonic() < end:
                reasons = find_reasons(self.opened.evidence, Triples.from_rows([fact.triple for fact in batch]))
            else:
                reasons = [NO_TIME] * len(batch)
            rated += [replace(fact, reason=reason) for fact, reason in zip(batch, reasons, strict=True)]
        return rated


def _deadline(seconds: float) -> Progress:
    """A progress callback that aborts the work after this many seconds."""
    end = time.monotonic() + seconds

    def progress(_: int) -> None:
        if time.monotonic() > end:
            raise TimeoutError

    return progress


def choose_diverse(facts: Sequence[ProbableFact], count: int) -> list[ProbableFact]:
    """At most `count` facts in their order: the first of each relation, then the second, ...; few per entity."""
    seen: Counter[int] = Counter()
    turns = []
    for position, fact in enumerate(facts):
        relation = fact.triple[1]
        turns.append(((fact.probability or 0.0) < IMPROBABLE, seen[relation], position))
        seen[relation] += 1
    chosen: list[int] = []
    entities: Counter[int] = Counter()
    for *_, position in sorted(turns):
        head, _, tail = facts[position].triple
        if len(chosen) < count and max(entities[head], entities[tail]) < MAX_FACTS_PER_ENTITY:
            chosen.append(position)
            entities.update({head, tail})
    return [facts[position] for position in sorted(chosen)]
