"""The updates of a run: what each one changed, when, by which command, and how to undo it.

updates.jsonl               one line per update: counts, date, command, sizes and metrics before it
update.0001.safetensors     the facts it added and removed, and the vectors it moved as they were before
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from harmonium.data import graph_changes
from harmonium.data.graph import Graph
from harmonium.data.graph_changes import GraphChange, GraphSizes
from harmonium.data.triples import Triples
from harmonium.errors import HarmoniumError
from harmonium.evaluation.evaluation import EvaluationSummary
from harmonium.model.gradient_graph import GradientGraph
from harmonium.run import manifest as manifests
from harmonium.run.manifest import Manifest
from harmonium.runtime import schema, storage, tensor_file
from harmonium.runtime.displayed import Displayed, Line, Part, notes, one_line

LOG = "updates.jsonl"
FINAL_PREFIX = "final."  # of the tensors of the model that was trained on all facts


@dataclass(frozen=True)
class UpdateRecord:
    """A line of updates.jsonl."""

    made: str  # date and time
    command: str
    added: schema.Count  # training facts
    removed: schema.Count  # facts of any split
    rejected: schema.Count  # facts recorded as false, including the removed ones
    accepted: schema.Count  # added facts that had been recorded as false
    new_entities: list[str]
    new_relations: list[str]
    moved_entities: schema.Count  # whose vectors changed, new ones included
    moved_relations: schema.Count
    notes: list[str]
    seconds: schema.NonNegative  # spent on the vectors
    before: str  # fingerprint of the run before
    sizes: GraphSizes  # of the graph before
    metrics: dict[str, Any]  # metrics.json before


@dataclass(frozen=True, eq=False)
class Update(Displayed):
    """An update of a run."""

    record: UpdateRecord
    tensors: dict[str, Tensor] = field(repr=False)  # by the names of graph_changes.to_tensors, and vectors before

    def __repr__(self) -> str:
        return one_line(self, self.record.made, self.summary())

    def display(self) -> Iterator[Part]:
        """The changes that the update made."""
        record = self.record
        rejected = max(0, record.rejected - record.removed)
        facts = "fact" if record.added == 1 else "facts"
        counts = f"{record.added:,} {facts} added, {record.removed:,} removed, {rejected:,} more recorded as false"
        yield Line(counts, "bold")
        for kind, names in (("entities", record.new_entities), ("relations", record.new_relations)):
            if names:
                yield Line(f"new {kind}: {', '.join(names[:10])}{', ...' if len(names) > 10 else ''}")
        yield Line(f"vectors moved: {record.moved_entities:,} entities, {record.moved_relations:,} relations")
        yield from notes(record.notes)

    def summary(self) -> str:
        record = self.record
        entities, relations = len(record.new_entities), len(record.new_relations)
        counts = {
            "added": record.added, "removed": record.removed, "recorded as false": record.rejected - record.removed,
            "new entity" if entities == 1 else "new entities": entities,
            "new relation" if relations == 1 else "new relations": relations,
        }  # fmt: skip
        return ", ".join(f"{count:,} {what}" for what, count in counts.items() if count > 0) or "nothing changed"

    def to_json(self) -> dict[str, Any]:
        """An entry of the log, as `info`, the report and the explorer show it."""
        record = self.record
        return {
            "made": record.made,
            "change": self.summary(),
            "command": record.command,
            "added": record.added,
            "removed": record.removed,
            "recorded_as_false": record.rejected,
            "new_entities": len(record.new_entities),
            "new_relations": len(record.new_relations),
            "notes": record.notes,
            "metrics_before": record.metrics.get("metrics", {}),
        }

    @property
    def added(self) -> Triples:
        """The facts that were added, in the ids of the run."""
        return graph_changes.read_facts(self.tensors, "added")

    @property
    def removed(self) -> Triples:
        """The facts that were removed, from all splits."""
        return Triples.cat([graph_changes.read_facts(self.tensors, split) for split in ("train", "valid", "test")])

    @classmethod
    def of(cls, record: UpdateRecord, change: GraphChange, moved: Mapping[str, MovedVectors]) -> Update:
        """Build an update from the vectors that it moved in each model (by the prefix of the tensors of that model)."""
        tensors = graph_changes.to_tensors(change)
        for prefix, vectors in moved.items():
            tensors |= {f"{prefix}{name}": tensor for name, tensor in vectors.to_tensors().items()}
        return cls(record, tensors)

    def restore_graph(self, graph: Graph) -> Graph:
        """The graph before the update, restored from the graph after it."""
        return graph_changes.restore_graph(graph, self.record.sizes, self.tensors)

    def restore(self, graph: Graph, model: GradientGraph, prefix: str = "") -> GradientGraph:
        """The model before the update, restored from the model after it and the graph before it."""
        tensors = self.tensors
        halves = model.relation.detach().split(model.n_relations)
        entity = model.entity.detach()[: graph.n_entities].clone()
        relation = torch.cat([half[: graph.n_relations] for half in halves])
        entity[tensors[f"{prefix}entity.ids"]] = tensors[f"{prefix}entity.vectors"]
        relation[tensors[f"{prefix}relation.ids"]] = tensors[f"{prefix}relation.vectors"]
        smaller = deepcopy(model)
        smaller.n_entities, smaller.local_rows = graph.n_entities, slice(0, graph.n_entities)
        smaller.n_relations = graph.n_relations
        smaller.entity, smaller.relation = nn.Parameter(entity), nn.Parameter(relation)
        return smaller


@dataclass(frozen=True)
class MovedVectors:
    """The vectors of a model before an update moved them."""

    model: GradientGraph  # before the update
    entities: Tensor  # ids, those of new ones included
    relations: Tensor

    def to_tensors(self) -> dict[str, Tensor]:
        model = self.model
        entities = self.entities[self.entities < len(model.entity)]
        relations = self.relations[self.relations < model.n_relations]
        if model.reciprocal:
            relations = torch.cat([relations, relations + model.n_relations])
        return {
            "entity.ids": entities,
            "entity.vectors": model.entity.detach()[entities],
            "relation.ids": relations,  # rows of the table before
            "relation.vectors": model.relation.detach()[relations],
        }


def file_name(number: int) -> str:
    """Name of the file with the tensors of an update; numbers start at 1."""
    return f"update.{number:04d}.safetensors"


def to_files(updates: tuple[Update, ...]) -> dict[str, bytes | Iterable[Any]]:
    """The contents of the files of a run's updates, by name."""
    if not updates:
        return {}
    lines = [json.dumps(storage.plain(asdict(update.record))) + "\n" for update in updates]
    files: dict[str, bytes | Iterable[Any]] = {LOG: "".join(lines).encode()}
    return files | {file_name(n): tensor_file.parts(update.tensors) for n, update in enumerate(updates, start=1)}


def read_files(folder: Path, manifest: Manifest, graph: Graph) -> tuple[Update, ...]:
    """The updates of a run folder; `graph` is the one after all of them."""
    if LOG not in manifest.files:
        return ()
    updates = []
    with manifests.unreadable(folder / LOG):
        lines = storage.read_verified(folder / LOG, manifest.files[LOG]).splitlines()
        records = [_read_record(json.loads(line), f"line {n}") for n, line in enumerate(lines, start=1)]
    for number, record in enumerate(records, start=1):
        path = folder / file_name(number)
        if path.name not in manifest.files:
            raise HarmoniumError(f"{folder / LOG}: names update {number}, whose file {path.name} is missing")
        storage.verify(path, manifest.files[path.name])
        with manifests.unreadable(path):
            tensors, _ = tensor_file.read(path)
            _check_tensors(tensors, graph)
        updates.append(Update(record, tensors))
    return tuple(updates)


def _read_record(value: Any, key: str) -> UpdateRecord:
    record = schema.read(UpdateRecord, value, key)
    if record.metrics:
        EvaluationSummary.from_json(record.metrics)
    return record


def _check_tensors(tensors: dict[str, Tensor], graph: Graph) -> None:
    """Raise a ValueError unless these are the tensors of an update of this graph."""
    graph_changes.check_tensors(tensors, graph)
    for kind, rows in (("entity", graph.n_entities), ("relation", 2 * graph.n_relations)):
        ids, vectors = tensors.get(f"{kind}.ids"), tensors.get(f"{kind}.vectors")
        if ids is None or vectors is None:
            raise ValueError(f"{kind}.ids or {kind}.vectors are missing")
        if ids.dtype != torch.int64 or ids.dim() != 1 or (len(ids) and not 0 <= ids.min() <= ids.max() < rows):
            raise ValueError(f"{kind}.ids are not rows of the model")
        if not vectors.is_floating_point() or vectors.dim() != 2 or len(vectors) != len(ids):
            raise ValueError(f"{kind}.vectors are not one vector for each of {kind}.ids")
        if not vectors.isfinite().all():
            raise ValueError(f"{kind}.vectors hold a number that is not finite")
