"""How true the stated probabilities are: the test facts are hidden, the missing facts listed, and those in test counted.

The probabilities are fitted as if there were no test facts: these are among the facts that the graph lacks. What was
learned from train facts alone lists the facts that train and validation lack; of those with a probability of about p a
share of about p should be test facts, if the graph lacks nothing else. A true fact that no split has counts as false, so
that the share found is a lower bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from harmonium.answers.calibration.completeness import completeness_of
from harmonium.answers.calibration.fact_probability import fit_fact_calibration
from harmonium.answers.candidate_facts import CandidateSearch
from harmonium.answers.complete import BANDS, find_missing
from harmonium.answers.open_run import OpenRun, open_run
from harmonium.data.checks.completeness import completeness_table
from harmonium.data.triples import Slot, Triples
from harmonium.errors import HarmoniumError
from harmonium.run.run import Run
from harmonium.runtime.displayed import Displayed, Part, Table, one_line

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
class HiddenFacts(Displayed):
    """A list of missing facts, made without knowing the test facts, and how complete the whole graph is."""

    graph: str
    hidden: int  # test facts
    bands: list[HiddenBand]
    completeness: list[dict[str, Any]]  # of each relation of the whole graph, most facts first

    def __repr__(self) -> str:
        return one_line(
            self, self.graph, f"expected {self.expected:,.0f} of {self.listed:,}, in test {self.in_test:,.0f}"
        )

    def display(self) -> Iterator[Part]:
        """How many facts of each band of probability are test facts, then the relations."""
        rows, high = [], 1.0
        for band in self.bands:
            if band.facts:
                rows.append([f"{band.low:.0%} to {high:.0%}", band.facts, round(band.expected), round(band.in_test)])
            high = band.low
        title = f"Missing facts of {self.graph} without its {self.hidden:,} test facts"
        caption = "true facts that are not in test either count as false"
        yield Table(title, ["probability", "listed", "expected true", "in test"], rows, caption)
        yield from completeness_table(self.completeness)

    def records(self) -> list[dict[str, Any]]:
        """The bands."""
        return [asdict(band) for band in self.bands]

    def to_json(self) -> dict[str, Any]:
        return {
            "graph": self.graph,
            "hidden": self.hidden,
            "listed": self.listed,
            "expected": self.expected,
            "in_test": self.in_test,
            "bands": self.records(),
            "completeness": self.completeness,
        }

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
    unlabelled = replace(graph, test=graph.test[:0])  # test facts are missing ones here
    calibration = fit_fact_calibration(opened.held_out_scorer, unlabelled, progress=progress)
    if calibration is None:
        raise HarmoniumError(f"'{graph.name}' has too few validation facts for probabilities of missing facts")
    search = CandidateSearch.prepare(opened.held_out_scorer, graph, ("train", "valid"))
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
    return HiddenFacts(graph.name, len(graph.test), bands, completeness_of(opened))
