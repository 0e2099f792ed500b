"""What families of constraints are built over: the facts of some splits of a graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from harmonium.data.entity_types import EntityTypes
from harmonium.data.graph import SPLITS, Graph
from harmonium.grammar.attributes import Attributes
from harmonium.grammar.path_rules import PathRules


@dataclass(frozen=True)
class KnownFacts:
    """The facts of some splits, as several families look at them; each view is computed once, when it is first needed."""

    graph: Graph
    rules: PathRules  # over these facts
    splits: Sequence[str] = SPLITS

    @cached_property
    def attributes(self) -> Attributes:
        """As sparse matrices of entities by what they have."""
        return Attributes.of(self.graph, self.splits)

    @cached_property
    def types(self) -> EntityTypes:
        """As roles of entities."""
        return EntityTypes.infer(self.graph, self.splits)
