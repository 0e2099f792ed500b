"""Start a training from vectors stored by name."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from harmonium.data.graph import Graph
from harmonium.model.gradient_graph import GradientGraph
from harmonium.runtime.errors import HarmoniumError

KINDS = ("entity", "relation", "inverse")  # inverse: the second vector of a relation, in reciprocal models


class VectorTable(NamedTuple):
    """Vectors of one kind, with their names."""

    names: Sequence[str]
    vectors: NDArray[Any]  # (n, slot_dim)


def import_embeddings(model: GradientGraph, graph: Graph, file: str | Path) -> dict[str, int]:
    """Copy the vectors of an .npz or .parquet file into a model by name; returns how many of each kind.

    The file is one that `export` writes: columns name, vector and kind (default: entity), or in .npz entity_names
    and entity_vectors, and so on. Entities and relations that it lacks keep their vectors.
    """
    counts = {}
    for kind, table in read_vectors(file).items():
        if kind != "inverse" or model.reciprocal:
            _check_vectors(model, kind, table, file)
            counts[kind] = _copy_vectors(model, graph, kind, table)
    if not any(counts.values()):
        raise HarmoniumError(f"{file}: none of its names is in {graph.name}")
    return counts


def _check_vectors(model: GradientGraph, kind: str, table: VectorTable, file: str | Path) -> None:
    dim, shape = (model.entity if kind == "entity" else model.relation).shape[1], table.vectors.shape
    if shape != (len(table.names), dim):
        setting = "entity_dim" if kind == "entity" else "relation_dim"
        raise HarmoniumError(
            f"{file}: {len(table.names):,} names of kind {kind} with vectors of shape {' x '.join(map(str, shape))}, but "
            f"the model has dimension {dim}; use --set model.{setting}={shape[-1]}, or import other vectors"
        )
    if not np.isfinite(table.vectors).all():
        raise HarmoniumError(f"{file}: some vectors of kind {kind} are not finite")


@torch.no_grad()
def _copy_vectors(model: GradientGraph, graph: Graph, kind: str, table: VectorTable) -> int:
    vocabulary = graph.entities if kind == "entity" else graph.relations
    known = [position for position, name in enumerate(table.names) if name in vocabulary]
    rows = torch.tensor([vocabulary.index(table.names[position]) for position in known], dtype=torch.long)
    vectors = torch.as_tensor(table.vectors[known])
    parameter = model.relation
    if kind == "entity":  # each of several processes holds only some rows
        local = (rows >= model.local_rows.start) & (rows < model.local_rows.stop)
        rows, vectors, parameter = rows[local] - model.local_rows.start, vectors[local], model.entity
    elif kind == "inverse":
        rows = rows + model.n_relations
    parameter[rows.to(parameter.device)] = vectors.to(parameter)
    return len(known)


def read_vectors(file: str | Path) -> dict[str, VectorTable]:
    """Vectors by kind, with their names, from an .npz or .parquet file."""
    file = Path(file)
    if file.suffix not in (".npz", ".parquet"):
        raise HarmoniumError(f"{file}: embeddings are read from .npz or .parquet")
    if not file.is_file():
        raise HarmoniumError(f"{file}: no such file of embeddings; `harmonium export` writes one")
    try:
        return _read_npz(file) if file.suffix == ".npz" else _read_parquet(file)
    except Exception as error:  # of numpy, zipfile or polars, on files they cannot read
        raise HarmoniumError(f"{file}: not embeddings as `harmonium export` writes them ({error})") from error


def _read_npz(file: Path) -> dict[str, VectorTable]:
    with np.load(file, allow_pickle=False) as arrays:
        kinds = [kind for kind in KINDS if f"{kind}_names" in arrays]
        return {k: VectorTable(arrays[f"{k}_names"].tolist(), arrays[f"{k}_vectors"]) for k in kinds}


def _read_parquet(file: Path) -> dict[str, VectorTable]:
    from harmonium.data.formats.parquet import read_frame

    frame = read_frame(file).collect()
    parts = frame.partition_by("kind", as_dict=True) if "kind" in frame.columns else {("entity",): frame}
    return {
        str(kind): VectorTable(part["name"].to_list(), np.array(part["vector"].to_list(), dtype=np.float32))
        for (kind,), part in parts.items()
        if kind in KINDS
    }
