"""The graph whose facts are ranked: the one a model was trained on, another with the same names, or facts of a file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harmonium.data.datasets import load
from harmonium.data.graph import Graph
from harmonium.data.tables.fact_file import reject_name
from harmonium.data.tables.skipped_rows import SkippedRows
from harmonium.data.triples import Slot
from harmonium.data.vocabulary import Vocabulary
from harmonium.runtime.untrusted import is_file


def graph_to_rank(graph: Graph, data: Any, split: str, reading: dict[str, Any]) -> Graph:
    """The graph itself or, given `data`: another graph in its ids, or this one with the facts of a file as the split."""
    if data is None:
        return graph
    if isinstance(data, Graph) or (isinstance(data, str | Path) and not is_file(data)):
        return _in_ids_of(graph, load(data, **reading), reading)
    facts = _in_ids_of(graph, load(data, valid=0, test=0, **reading), reading)
    train, valid, test = (graph.splits | {split: facts.train}).values()
    return replace(graph, name=facts.name, train=train, valid=valid, test=test, notes=facts.notes)


def _in_ids_of(graph: Graph, other: Graph, reading: dict[str, Any]) -> Graph:
    """The facts of another graph in the ids of this one; those with unknown names are an error, or skipped."""
    skipped = SkippedRows(reading.get("on_bad", "error"))
    entities, relations = _ids(graph.entities, other.entities), _ids(graph.relations, other.relations)
    has_splits, splits = bool(len(other.valid) or len(other.test)), []
    for split, facts in other.splits.items():
        ids = replace(facts, head=entities[facts.head], relation=relations[facts.relation], tail=entities[facts.tail])
        unknown = {slot: ids[slot] < 0 for slot in Slot}
        for slot, rows in unknown.items():
            kind = "relations" if slot is Slot.RELATION else "entities"
            for row in rows.nonzero()[:, 0].tolist():
                name = getattr(other, kind).ids[int(facts[slot][row])]
                where = f": {split} fact {row + 1}" if has_splits else f": fact {row + 1}"
                reject_name(skipped, getattr(graph, kind), name, other.name, where)
        splits.append(ids[~(unknown[Slot.HEAD] | unknown[Slot.RELATION] | unknown[Slot.TAIL])])
    skipped.finish()
    train, valid, test = splits
    return replace(graph, name=other.name, train=train, valid=valid, test=test, notes=(*other.notes, *skipped.notes()))


def _ids(vocabulary: Vocabulary, other: Vocabulary) -> Tensor:
    """(n,) the id of each name of another vocabulary; -1 for an unknown or ambiguous name."""
    matches = (vocabulary.find(name) for name in other.ids)
    return torch.tensor([ids[0] if len(ids) == 1 else -1 for ids in matches], dtype=torch.int64)
