"""A part of a graph without leaks: python benchmarks/without_leaks.py SOURCE OUT.graph [--entities 6000] [--seed 0].

As FB15K-237 was made from FB15K (Toutanova & Chen 2015), on a random part of the graph:

    entities    a random sample of the heads with at least MIN_FACTS facts, with all facts whose tails occur twice or more
    relations   of two relations that share more than half of the entity pairs of one, in either direction, the larger stays
    splits      a tenth of the facts each for validation and test, less those whose two entities are linked in training
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import torch
from torch import Tensor

from harmonium.data import graph_file
from harmonium.data.datasets import load
from harmonium.data.graph import Graph
from harmonium.data.triples import Triples
from harmonium.data.vocabulary import Vocabulary
from harmonium.runtime.storage import write

MIN_FACTS = 10
MAX_SHARED = 0.5  # of the entity pairs of a relation
HELD_OUT = 0.1  # of the facts, for validation and for test each


def sample_facts(graph: Graph, n_entities: int, generator: torch.Generator) -> Triples:
    """All facts of a random sample of heads whose tails occur at least twice among them."""
    facts = Triples.cat(list(graph.splits.values()))
    heads = (facts.head.bincount(minlength=graph.n_entities) >= MIN_FACTS).nonzero()[:, 0]
    chosen = heads[torch.randperm(len(heads), generator=generator)[:n_entities]]
    facts = facts[torch.isin(facts.head, chosen)]
    occurrences = torch.cat([facts.head, facts.tail]).bincount(minlength=graph.n_entities)
    return facts[occurrences[facts.tail] >= 2]


def without_like_relations(facts: Triples, n_entities: int) -> Triples:
    """The facts of relations that share at most half of their entity pairs with a larger relation."""
    kept: list[set[int]] = []
    chosen = torch.zeros(len(facts), dtype=torch.bool)
    for relation in facts.relation.bincount().argsort(descending=True).tolist():
        of_relation = facts.relation == relation
        head, tail = facts.head[of_relation], facts.tail[of_relation]
        pairs, reversed_pairs = (set(p.tolist()) for p in (head * n_entities + tail, tail * n_entities + head))
        if not pairs or any(max(len(pairs & k), len(reversed_pairs & k)) > MAX_SHARED * len(pairs) for k in kept):
            continue
        kept.append(pairs)
        chosen |= of_relation
    return facts[chosen]


def split(facts: Triples, n_entities: int, generator: torch.Generator) -> tuple[Triples, Triples, Triples]:
    """Training, validation and test facts; held-out ones only with entities that training links to others alone."""
    order = torch.randperm(len(facts), generator=generator)
    size = round(HELD_OUT * len(facts))
    valid, test, train = facts[order[:size]], facts[order[size : 2 * size]], facts[order[2 * size :]]
    linked, seen = _pairs(train, n_entities), torch.cat([train.head, train.tail]).unique()

    def allowed(held_out: Triples) -> Triples:
        known = torch.isin(held_out.head, seen) & torch.isin(held_out.tail, seen)
        return held_out[known & ~torch.isin(_pairs(held_out, n_entities), linked)]

    return train, allowed(valid), allowed(test)


def _pairs(facts: Triples, n_entities: int) -> Tensor:
    """(n,): the two entities of each fact, in either order, as one number."""
    return facts.head.minimum(facts.tail) * n_entities + facts.head.maximum(facts.tail)


def without_leaks(graph: Graph, n_entities: int, seed: int) -> Graph:
    generator = torch.Generator().manual_seed(seed)
    facts = without_like_relations(sample_facts(graph, n_entities, generator), graph.n_entities)
    splits = split(facts, graph.n_entities, generator)
    entities = torch.cat([torch.cat([part.head, part.tail]) for part in splits]).unique()
    relations = torch.cat([part.relation for part in splits]).unique()
    train, valid, test = (
        replace(
            part,
            head=torch.searchsorted(entities, part.head),
            relation=torch.searchsorted(relations, part.relation),
            tail=torch.searchsorted(entities, part.tail),
        )
        for part in splits
    )
    names = Vocabulary([graph.entities.ids[i] for i in entities.tolist()])
    relation_names = Vocabulary([graph.relations.ids[i] for i in relations.tolist()], None, "relation")
    return Graph(names, relation_names, train, valid, test, f"{graph.name} without leaks")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help="dataset name, folder or file")
    parser.add_argument("out", type=Path, help="file of the part, .graph")
    parser.add_argument("--entities", type=int, default=6000, help="number of heads in the sample")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    graph = without_leaks(load(options.source), options.entities, options.seed)
    write(options.out, graph_file.parts(graph))
    sizes = " / ".join(f"{len(part):,}" for part in graph.splits.values())
    print(f"{graph.name}: {sizes} facts, {graph.n_entities:,} entities, {graph.n_relations} relations")


if __name__ == "__main__":
    main()
