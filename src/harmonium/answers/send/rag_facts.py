"""Predicted facts for retrieval tools: a table of relationships for GraphRAG, a custom knowledge graph for LightRAG."""

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from harmonium.answers.send.neo4j_facts import Provenance
from harmonium.data.compressed import create_file
from harmonium.data.entity_types import type_relations
from harmonium.data.graph import Graph
from harmonium.run.run import Run
from harmonium.runtime import storage

FILE_PATH_PREFIX = "harmonium:"  # of the attribute file_path, marks predicted links

Row = dict[str, Any]


def links(rows: Sequence[Row], graph: Graph) -> list[Row]:
    """The facts between entities; facts that state a type are left out."""
    states_type = {graph.relations.ids[relation] for relation in type_relations(graph)}
    return [row for row in rows if row["relation"] not in states_type]


def write_graphrag(path: Path, rows: Sequence[Row], run: Run) -> None:
    """Write Parquet with the columns of GraphRAG's relationships.parquet, and probability, predicted and run.

    The weight is the probability. There are no text units, as no text supports a prediction.
    """
    import polars as pl

    provenance, facts = Provenance.of(run), links(rows, run.graph)
    degree = _degrees(run.graph)
    columns: dict[str, Any] = {
        "id": [_identifier(row, provenance) for row in facts],
        "human_readable_id": [sum(map(len, run.graph.splits.values())) + int(row["rank"]) for row in facts],
        "source": [row["head"] for row in facts],
        "target": [row["tail"] for row in facts],
        "description": [describe(row) for row in facts],
        "weight": [_weight(row) for row in facts],
        "combined_degree": [degree[row["head"]] + degree[row["tail"]] for row in facts],
        "text_unit_ids": [[] for _ in facts],
        "relation": [row["relation"] for row in facts],
        "probability": [row["probability"] for row in facts],
        "predicted": [True] * len(facts),
        "run": [provenance.run] * len(facts),
    }
    kinds: dict[str, Any] = {
        "human_readable_id": pl.Int64, "weight": pl.Float64, "combined_degree": pl.Int64,
        "text_unit_ids": pl.List(pl.String), "probability": pl.Float64, "predicted": pl.Boolean,
    }  # fmt: skip
    schema = {name: kinds.get(name, pl.String) for name in columns}
    with create_file(path) as file:
        pl.DataFrame(columns, schema=schema).write_parquet(file)


def _degrees(graph: Graph) -> dict[str, int]:
    """Number of neighbours of each entity, regardless of direction and of the number of facts between two."""
    facts = graph.facts()
    facts = facts[~torch.isin(facts.relation, torch.tensor(type_relations(graph), dtype=torch.int64))]
    pairs = torch.stack([torch.minimum(facts.head, facts.tail), torch.maximum(facts.head, facts.tail)], dim=1)
    counts = pairs.unique(dim=0).flatten().bincount(minlength=graph.n_entities)
    return dict(zip(graph.entities.ids, counts.tolist(), strict=True))


def _identifier(row: Row, provenance: Provenance) -> str:
    """Stable identifier of a predicted fact: equal for equal facts of one run."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, "\t".join([provenance.run, row["head"], row["relation"], row["tail"]])))


def write_lightrag(path: Path, rows: Sequence[Row], run: Run) -> None:
    """Write JSON for LightRAG's insert_custom_kg: relationships, and one chunk of text that states their origin."""
    provenance, facts = Provenance.of(run), links(rows, run.graph)
    source = f"{FILE_PATH_PREFIX}{provenance.run}"
    relationships = [
        {
            "src_id": row["head"],
            "tgt_id": row["tail"],
            "description": describe(row),
            "keywords": row["relation"],
            "weight": _weight(row),
            "source_id": source,
            "file_path": source,
            "predicted": True,
            "probability": row["probability"],
        }
        for row in facts
    ]
    origin = f"run {provenance.run}, model {provenance.model}"
    text = f"Links predicted by harmonium ({origin}) from the graph alone, not from a text."
    chunk = {"content": text, "source_id": source, "file_path": source}
    content = {"chunks": [chunk], "entities": [], "relationships": relationships}
    with create_file(path) as file:
        file.write(storage.to_json(content))


def describe(row: Row) -> str:
    """A predicted fact in words, with its probability and its reason."""
    probability = "" if row["probability"] is None else f", probability {row['probability']:.2f}"
    reason = f": {row['reason']}" if row.get("reason") else ""
    return f"{row['text']} (predicted{probability}){reason}"


def _weight(row: Row) -> float:
    return 0.0 if row["probability"] is None else float(row["probability"])
