"""Summary of a graph: sizes, and each relation with an example fact."""

from typing import Any

from harmonium.data.graph import Graph


def describe_graph(graph: Graph) -> dict[str, Any]:
    """Sizes, notes on how it was read, and relations in descending order of frequency: what `harmonium info` prints."""
    return {
        "name": graph.name,
        "entities": graph.n_entities,
        "relations": graph.n_relations,
        "triples": {split: len(facts) for split, facts in graph.splits.items()},
        "unseen": {split: int(graph.unseen(graph.splits[split]).sum()) for split in ("valid", "test")},
        "rejected": len(graph.rejected),
        "notes": [str(note) for note in graph.notes],
        "by_relation": graph.by_relation(),
    }
