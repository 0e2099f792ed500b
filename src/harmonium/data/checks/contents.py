"""What a graph contains: counts, and its relations with an example."""

from typing import Any

import torch

from harmonium.data.graph import Graph


def describe_graph(graph: Graph) -> dict[str, Any]:
    """Sizes, notes of reading, and relations, most frequent first: what `harmonium info` prints."""
    relation, size = graph.train.relation, len(graph.train)
    counts = relation.bincount(minlength=graph.n_relations)
    first = torch.full((graph.n_relations,), size).scatter_reduce_(0, relation, torch.arange(size), "amin")
    categories = graph.categories()
    return {
        "name": graph.name,
        "entities": graph.n_entities,
        "relations": graph.n_relations,
        "triples": {split: len(facts) for split, facts in graph.splits.items()},
        "unseen": {split: int(graph.unseen(graph.splits[split]).sum()) for split in ("valid", "test")},
        "rejected": len(graph.rejected),
        "notes": [str(note) for note in graph.notes],
        "by_relation": [
            {
                "name": graph.relations.name(r),
                "train": int(counts[r]),
                "category": categories[r],
                "example": graph.names_of(graph.train[first[r : r + 1]])[0] if counts[r] else None,
            }
            for r in counts.argsort(descending=True, stable=True).tolist()
        ],
    }
