"""Judged facts that a graph does not reflect yet: what an update by judgements would change."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from harmonium.data.graph import Graph
from harmonium.data.triples import Slot, Triples
from harmonium.review.judgements import by_fact
from harmonium.review.store import FactIds, Judgement


@dataclass(frozen=True)
class PendingFacts:
    """Facts on which all who decided agree, and of which the graph says something else."""

    add: list[FactIds]  # accepted, and not in the graph
    remove: list[FactIds]  # rejected, and in the graph
    record: list[FactIds]  # rejected, and neither in the graph nor recorded as false

    def __len__(self) -> int:
        return len(self.add) + len(self.remove) + len(self.record)


def pending_facts(judgements: Iterable[Judgement], graph: Graph) -> PendingFacts:
    """What an update of a run on this graph by judgements would change."""
    add, remove, record = list[FactIds](), list[FactIds](), list[FactIds]()
    facts = [each for each in by_fact(judgements) if each.verdict in ("accepted", "rejected")]
    triples, has_names = _match([each.fact for each in facts], graph)
    is_known = graph.known_answers(Slot.TAIL, queries=triples).contain(triples) & has_names
    is_recorded = graph.rejected_answers(Slot.TAIL).contain(triples) & has_names
    columns = is_known.tolist(), has_names.tolist(), is_recorded.tolist()
    for judged, known, named, recorded in zip(facts, *columns, strict=True):
        if judged.verdict == "accepted":
            add += [] if known else [judged.fact]
        elif known:
            remove.append(judged.fact)
        elif named and not recorded:  # a name that the graph does not have cannot be proposed
            record.append(judged.fact)
    return PendingFacts(add, remove, record)


def _match(facts: list[FactIds], graph: Graph) -> tuple[Triples, Tensor]:
    """Facts in the ids of a graph, and (n,) bool: of which it has all names. The ids of the others mean nothing."""
    vocabularies = graph.entities, graph.relations, graph.entities
    matches = [[names.find(name) for names, name in zip(vocabularies, fact, strict=True)] for fact in facts]
    has_names = [all(len(ids) == 1 for ids in each) for each in matches]
    rows = [[ids[0] for ids in each] if named else [0, 0, 0] for each, named in zip(matches, has_names, strict=True)]
    return Triples.from_rows(rows), torch.tensor(has_names, dtype=torch.bool)
