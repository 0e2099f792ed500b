"""A graph in canonical order, so that what is learned does not depend on the order of the rows of a file."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from harmonium.data.graph import Graph
from harmonium.data.triples import Triples
from harmonium.data.vocabulary import Vocabulary


def in_canonical_order(graph: Graph) -> Graph:
    """A copy of the graph with names sorted by length, then alphabetically, and facts sorted by the new ids.

    Without it, initial vectors, batches and negatives would depend on the order of rows in the file, as ids are numbered by
    first appearance. Equal identifiers keep their order.
    """
    entities, entity_ids = _sorted_names(graph.entities)
    relations, relation_ids = _sorted_names(graph.relations)

    def ordered(facts: Triples) -> Triples:
        return _sorted_facts(
            replace(
                facts,
                head=entity_ids[facts.head],
                relation=relation_ids[facts.relation],
                tail=entity_ids[facts.tail],
            )
        )

    graph = replace(graph, entities=entities, relations=relations, rejected=ordered(graph.rejected))
    return replace(graph, train=ordered(graph.train), valid=ordered(graph.valid), test=ordered(graph.test))


def _sorted_names(names: Vocabulary) -> tuple[Vocabulary, Tensor]:
    """The sorted vocabulary, and (n,): the new id of each old one."""
    ids = list(names.ids)
    order = sorted(range(len(ids)), key=lambda index: (len(ids[index]), ids[index]))
    new_ids = torch.empty(len(ids), dtype=torch.int64)
    new_ids[torch.tensor(order, dtype=torch.int64)] = torch.arange(len(ids))
    labels = None if names.labels is None else list(names.labels)
    in_order = [labels[index] for index in order] if labels is not None else None
    return Vocabulary([ids[index] for index in order], in_order, names.kind), new_ids


def _sorted_facts(facts: Triples) -> Triples:
    """The facts sorted by head, then relation, then tail; repeated facts by weight."""
    order = torch.arange(len(facts)) if facts.weight is None else facts.weight.argsort(stable=True)
    for ids in (facts.tail, facts.relation, facts.head):
        order = order[ids[order].argsort(stable=True)]
    return facts[order]
