"""Summaries of the relations and types of a graph, and search by them."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from harmonium.answers.relation_traits import RelationTraits
from harmonium.data.entity_types import type_relations
from harmonium.data.graph import Graph
from harmonium.data.triples import Slot
from harmonium.server.name_search import GraphNames
from harmonium.server.results import Match, Named, RelationSummary

EXAMPLES_OF_RELATION = 3


def summarise_relations(
    graph: Graph, names: GraphNames, traits: RelationTraits, complete: Mapping[str, str]
) -> list[RelationSummary]:
    """All relations in descending order of facts; `complete` says how complete each is, by name."""
    facts, summaries = graph.facts(), []
    for relation in names.relations.by_count:
        of_relation = facts[facts.relation == relation]
        heads, tails = of_relation.head.unique(), of_relation.tail.unique()
        both_ways, one_tail, one_head = (
            bool(trait[relation]) for trait in (traits.symmetric, traits.functional, traits.inverse_functional)
        )
        summaries.append(
            RelationSummary(
                names.relations.named(relation),
                len(of_relation),
                len(heads),
                len(tails),
                _examples(heads, names),
                _examples(tails, names),
                both_ways,
                one_tail,
                one_head,
                complete.get(graph.relations.name(relation)),
            )
        )
    return summaries


def _examples(entities: Tensor, names: GraphNames) -> list[Named]:
    counts = torch.tensor(names.entities.counts)[entities]
    best = entities[counts.argsort(descending=True, stable=True)[:EXAMPLES_OF_RELATION]]
    return [names.entities.named(entity) for entity in best.tolist()]


def stated_types(graph: Graph, names: GraphNames) -> list[Match]:
    """The types that the graph states (instance of, rdf:type), with the number of entities that have each."""
    facts = graph.facts()
    is_type = torch.isin(facts.relation, torch.tensor(type_relations(graph), dtype=torch.int64))
    types, counts = facts.tail[is_type].unique(return_counts=True)
    order = counts.argsort(descending=True, stable=True)
    vocabulary = names.entities.vocabulary
    rows = zip(types[order].tolist(), counts[order].tolist(), strict=True)
    return [Match(vocabulary.ids[type], vocabulary.name(type), count) for type, count in rows]


def entities_with(graph: Graph, relation: int | None, slot: Slot | None, type: int | None) -> Sequence[int] | None:
    """The entities in a slot of a relation (None: in any) and with a stated type; None if neither is given."""
    facts, parts = graph.facts(), []
    if relation is not None:
        of_relation = facts[facts.relation == relation]
        slots = [slot] if slot is not None else [Slot.HEAD, Slot.TAIL]
        parts.append(torch.cat([of_relation[each] for each in slots]).unique())
    if type is not None:
        is_type = torch.isin(facts.relation, torch.tensor(type_relations(graph), dtype=torch.int64))
        parts.append(facts.head[is_type & (facts.tail == type)].unique())
    if not parts:
        return None
    common = parts[0] if len(parts) == 1 else parts[0][torch.isin(parts[0], parts[1])]
    return list(common.tolist())
