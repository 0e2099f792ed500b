"""What a grammar has learned: path rules and the weights of all constraints; over the facts of a graph it is a Grammar.

The same parameters serve the metrics (constraints over train facts alone, so that held-out facts are really held out) and
the answers (constraints over every known fact). They are stored in one file of tensors; everything else is computed from
the graph when a run is opened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from harmonium.data.graph import SPLITS, Graph
from harmonium.errors import HarmoniumError
from harmonium.grammar.family import Family
from harmonium.grammar.further_answers import FurtherAnswers
from harmonium.grammar.grammar import Grammar, Weights
from harmonium.grammar.known_facts import KnownFacts
from harmonium.grammar.names import Names
from harmonium.grammar.neighbours import Neighbours
from harmonium.grammar.path_rules import PathRules
from harmonium.grammar.paths import Paths
from harmonium.grammar.usual import Usual
from harmonium.grammar.values import Values
from harmonium.model.scoring import Scorer

FAMILIES: tuple[type[Family], ...] = (Paths, Values, Neighbours, Usual, Names)
N_WEIGHTS = 1 + sum(len(family.constraints) for family in FAMILIES)


def build_families(known: KnownFacts) -> list[Family]:
    """All families, in the order of FAMILIES, over the facts of a graph."""
    return [family.over(known) for family in FAMILIES]


@dataclass(frozen=True)
class GrammarParameters:
    """Path rules and the weights of constraints, of graphs with these relations."""

    weights: Weights
    rules: PathRules

    def on(self, vectors: Scorer, graph: Graph, splits: Sequence[str] = SPLITS, without: Sequence[str] = ()) -> Grammar:
        """The grammar over the facts of some splits; families named in `without` have no say."""
        unknown = set(without) - {family.name for family in FAMILIES}
        if unknown:
            names = ", ".join(family.name for family in FAMILIES)
            raise HarmoniumError(f"no family of constraints '{min(unknown)}'; there are {names}")
        weights, first = self.weights.by_slot.clone(), 1
        for family in FAMILIES:
            if family.name in without:
                weights[..., first : first + len(family.constraints)] = 0
            first += len(family.constraints)
        known = KnownFacts(graph, self.rules.on(graph.facts(splits), graph.n_entities), splits)
        further = FurtherAnswers(known.attributes)
        return Grammar(vectors, build_families(known), Weights(weights), graph.n_entities, further)

    def with_relations(self, count: int) -> GrammarParameters:
        """For a graph with more relations, or fewer (the last ones left out); new ones have the mean weights of all."""
        before = self.weights.by_slot.shape[1]
        if count == before:
            return self
        new = self.weights.by_slot.mean(1, keepdim=True).expand(-1, max(0, count - before), -1)
        weights = torch.cat([self.weights.by_slot[:, :count], new], dim=1)
        return GrammarParameters(Weights(weights), self.rules.with_relations(count))

    def to_tensors(self) -> dict[str, Tensor]:
        rules = {f"rules.{name}": tensor for name, tensor in self.rules.to_tensors().items()}
        return {"weights": self.weights.by_slot, **rules}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], graph: Graph) -> GrammarParameters:
        """What `to_tensors` wrote; a ValueError if it does not belong to a graph of this size."""
        weights = tensors.get("weights")
        if weights is None or weights.shape != (2, graph.n_relations, N_WEIGHTS) or weights.dtype != torch.float64:
            raise ValueError("it has no weights of constraints for the relations of this graph")
        if not bool(weights.isfinite().all()):
            raise ValueError("it has a weight that is not finite")
        rules = {name.removeprefix("rules."): t for name, t in tensors.items() if name.startswith("rules.")}
        facts = graph.train[:0]
        return cls(Weights(weights), PathRules.from_tensors(rules, facts, graph.n_entities, graph.n_relations))
