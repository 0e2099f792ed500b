"""The baseline that every model should beat."""

import torch
from torch import Tensor

from harmonium.data.graph import Graph
from harmonium.data.triples import Slot, Triples
from harmonium.model.scoring import Scorer


class Frequency(Scorer):
    """Scores a candidate by how often it fills that slot of the relation in train; facts count by their weights."""

    def __init__(self, graph: Graph) -> None:
        self.n_entities = graph.n_entities
        self.counts: dict[Slot, tuple[Tensor, Tensor]] = {}  # (relation * n_entities + filler, ascending; how often)
        for slot in (Slot.HEAD, Slot.TAIL):
            fillers = graph.train.relation * graph.n_entities + graph.train[slot]
            pairs, inverse, counts = torch.unique(fillers, return_inverse=True, return_counts=True)
            if graph.train.weight is not None:
                counts = torch.zeros(len(pairs), dtype=torch.float64).index_add_(0, inverse, graph.train.weight)
            self.counts[slot] = pairs, counts

    def score_slot(self, slot: Slot, queries: Triples) -> Tensor:
        """(n, n_entities)."""
        relations, inverse = torch.unique(queries.relation, return_inverse=True)
        pairs, counts = self.counts[slot]
        starts = torch.searchsorted(pairs, relations * self.n_entities).tolist()
        ends = torch.searchsorted(pairs, (relations + 1) * self.n_entities).tolist()
        scores = torch.zeros(len(relations), self.n_entities)
        for row, relation, start, end in zip(scores, relations.tolist(), starts, ends, strict=True):
            row[pairs[start:end] - relation * self.n_entities] = counts[start:end].float()
        return scores[inverse]
