"""The probability of a given fact that the graph lacks, as on every page of the explorer."""

from __future__ import annotations

from dataclasses import dataclass

from harmonium.answers.candidate_facts import CandidateFacts
from harmonium.answers.open_run import OpenRun
from harmonium.answers.prediction import optional_floats
from harmonium.data.triples import Slot, Triples
from harmonium.server.name_search import GraphNames
from harmonium.server.results import Prediction


@dataclass(frozen=True, eq=False)
class FactRatings:
    """Probabilities of facts, computed as in the search for missing facts."""

    opened: OpenRun
    names: GraphNames

    def probability(self, head: int, relation: int, tail: int) -> float | None:
        """The probability of a fact, as in `predict` and `score`; None for a known fact, or without a calibration."""
        triple = Triples.from_rows([[head, relation, tail]])
        if self.opened.known(Slot.TAIL).contain(triple).any():
            return None
        return optional_floats(self.opened.probabilities(triple), 1)[0]

    def links_between(self, first: int, second: int, count: int) -> list[Prediction]:
        """The most probable facts between two entities that the graph lacks; `first` is the head if symmetric."""
        predictions = []
        for head, tail in ((first, second), (second, first)):
            for relation in self.opened.search().relations_of(Slot.HEAD, head):
                if head == first or not self.opened.traits.symmetric[relation]:
                    facts = self.opened.search().of_pair(head, relation, tail)
                    for score, probability in zip(facts.scores.tolist(), self._probabilities(facts), strict=True):
                        names = self.names.of((head, relation, tail))
                        predictions.append(Prediction(*names, None, Slot.TAIL, score, probability))
        return sorted(predictions, key=lambda fact: (-(fact.probability or 0), -fact.score))[:count]

    def _probabilities(self, facts: CandidateFacts) -> list[float | None]:
        calibration = self.opened.fact_calibration()
        log_odds = None if calibration is None else calibration.log_odds(facts)
        return optional_floats(None if log_odds is None else log_odds.sigmoid(), len(facts))
