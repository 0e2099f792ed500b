"""How `complete` does on facts that it does not know: the test facts are hidden from it, and it lists the missing ones.

Its probabilities are fitted for a graph that lacks about as many facts as validation holds. Without its test facts a graph
lacks those: where test is about as large as validation, the probabilities of the list should add up to the number of test
facts in it. A true fact that no split has counts as false.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from harmonium.answers.candidate_facts import CandidateSearch
from harmonium.answers.complete import BANDS, find_missing
from harmonium.answers.open_run import OpenRun, open_run
from harmonium.data.triples import Slot, Triples
from harmonium.errors import HarmoniumError
from harmonium.run.run import Run

MIN_FACTS = 10  # test facts without which nothing is judged
LISTED = 1000  # facts


@dataclass(frozen=True)
class HiddenBand:
    """The listed facts with a probability from `low` up to that of the band before."""

    low: float
    facts: int
    expected: float  # true ones, by their probabilities
    in_test: float  # test facts among them; where facts have weights, the sum of these, each at most 1


@dataclass(frozen=True)
class HiddenFacts:
    """A list of missing facts, made without knowing the test facts."""

    hidden: int  # test facts
    validation: int  # validation facts, for as many missing ones the probabilities are right
    bands: list[HiddenBand]

    @property
    def listed(self) -> int:
        return sum(band.facts for band in self.bands)

    @property
    def expected(self) -> float:
        return sum(band.expected for band in self.bands)

    @property
    def in_test(self) -> float:
        return sum(band.in_test for band in self.bands)


def find_hidden(run: Run | OpenRun, top: int = LISTED, progress: Callable[[int], None] | None = None) -> HiddenFacts:
    """The `top` most probable missing facts of a graph without its test facts, and how many of them are test facts."""
    opened = open_run(run)
    graph = opened.graph
    if len(graph.test) < MIN_FACTS:
        raise HarmoniumError(f"'{graph.name}' has too few test facts to judge the probabilities of missing facts")
    calibration = opened.fact_calibration(progress=progress)
    if calibration is None:
        raise HarmoniumError(f"'{graph.name}' has too few validation facts for probabilities of missing facts")
    search = CandidateSearch.prepare(opened.scorer, graph, ("train", "valid"))
    missing = find_missing(search, None, top, calibration, progress=progress)
    facts, symmetric = missing.triples, search.traits.symmetric[missing.triples.relation]
    hidden = graph.known_answers(Slot.TAIL, ("test",))
    reversed_facts = Triples(facts.tail, facts.relation, facts.head)
    in_test = (hidden.contain(facts) | (hidden.contain(reversed_facts) & symmetric)).long()
    if graph.test.weight is not None:
        in_test = graph.test.confidence_of(facts).maximum(graph.test.confidence_of(reversed_facts) * symmetric)
    assert missing.probabilities is not None, "there is a calibration"
    bands, high = [], 1.1
    for low in BANDS:
        rows = (missing.probabilities >= low) & (missing.probabilities < high)
        bands.append(
            HiddenBand(low, int(rows.sum()), float(missing.probabilities[rows].sum()), in_test[rows].sum().item())
        )
        high = low
    return HiddenFacts(len(graph.test), len(graph.valid), bands)
