"""Start a training from vectors stored by name."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZipFile, is_zipfile

import numpy as np
import torch
from numpy.typing import NDArray

from harmonium.data.graph import Graph
from harmonium.errors import HarmoniumError
from harmonium.model.gradient_graph import GradientGraph
from harmonium.runtime.untrusted import (
    ALWAYS_ALLOWED,
    MAX_RATIO,
    is_file,
    is_folder,
    is_neither,
    not_regular,
    open_regular,
)

VECTOR_KINDS = ("entity", "relation", "inverse")  # inverse: the second vector of a relation, in reciprocal models


class VectorTable(NamedTuple):
    """Vectors of one kind, with their names."""

    names: Sequence[str]
    vectors: NDArray[Any]  # (n, slot_dim)


def import_embeddings(model: GradientGraph, graph: Graph, file: str | Path) -> dict[str, int]:
    """Copy the vectors of an .npz or .parquet file into a model by name; returns how many of each kind.

    The file is one that `export` writes: columns name, vector and kind (default: entity), or in .npz entity_names
    and entity_vectors, and so on. Entities and relations that are not in the file keep their vectors.
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
    if len(shape) != 2:
        raise HarmoniumError(f"{file}: vectors of kind {kind} have shape {shape}; expected a row for each name")
    if shape != (len(table.names), dim):
        setting = "entity_dim" if kind == "entity" else "relation_dim"
        raise HarmoniumError(
            f"{file}: {len(table.names):,} names of kind {kind} with vectors of shape {' x '.join(map(str, shape))}, but "
            f"the model has dimension {dim}; use --set model.{setting}={shape[-1]}, or import other vectors"
        )
    if not np.issubdtype(table.vectors.dtype, np.floating) and not np.issubdtype(table.vectors.dtype, np.integer):
        raise HarmoniumError(f"{file}: vectors of kind {kind} are {table.vectors.dtype}; expected real numbers")
    if not np.isfinite(table.vectors).all():
        raise HarmoniumError(f"{file}: some vectors of kind {kind} are not finite")
    with np.errstate(over="ignore"):
        if not np.isfinite(table.vectors.astype(np.float32)).all():
            raise HarmoniumError(f"{file}: some vectors of kind {kind} are too large for float32")
    name, count = Counter(table.names).most_common(1)[0] if len(table.names) else ("", 0)
    if count > 1:
        raise HarmoniumError(f"{file}: '{name}' occurs {count} times among the names of kind {kind}; keep one vector")


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
    if is_folder(file) or is_neither(file):
        raise not_regular(file)
    if not is_file(file):
        raise HarmoniumError(f"{file}: no such file of embeddings; `harmonium export` writes one")
    try:
        return _read_npz(file) if file.suffix == ".npz" else _read_parquet(file)
    except HarmoniumError:
        raise
    except Exception as error:  # numpy, zipfile and polars raise errors of many types for unreadable files
        raise HarmoniumError(f"{file}: not embeddings as `harmonium export` writes them ({error})") from error


def _read_npz(file: Path) -> dict[str, VectorTable]:
    if not is_zipfile(file):
        raise HarmoniumError(f"{file}: not an .npz archive, as `harmonium export` writes it")
    with open_regular(file) as stream, np.load(stream, allow_pickle=False) as arrays:
        _check_archive(file, arrays.zip)
        kinds = [kind for kind in VECTOR_KINDS if f"{kind}_names" in arrays]
        return {kind: VectorTable(_names(file, arrays[f"{kind}_names"]), arrays[f"{kind}_vectors"]) for kind in kinds}


def _check_archive(file: Path, archive: ZipFile) -> None:
    """Refuse an archive that holds an array twice, or that unpacks to far more than its size."""
    members = archive.infolist()
    if len({member.filename for member in members}) < len(members):
        raise HarmoniumError(f"{file}: holds an array twice; `harmonium export` writes each once")
    if sum(member.file_size for member in members) > max(ALWAYS_ALLOWED, MAX_RATIO * file.stat().st_size):
        raise HarmoniumError(f"{file}: unpacks to more than {MAX_RATIO} times its size, which vectors never do")


def _names(file: Path, names: NDArray[Any]) -> list[str]:
    if names.ndim != 1 or names.dtype.kind != "U":
        raise HarmoniumError(f"{file}: names must be a list of texts, not {names.dtype} of shape {names.shape}")
    texts: list[str] = names.tolist()
    return texts


def _read_parquet(file: Path) -> dict[str, VectorTable]:
    import polars as pl

    from harmonium.data.formats.parquet import read_tables

    frame = pl.concat(read_tables(file))
    if frame["vector"].list.len().n_unique() > 1:
        raise HarmoniumError(f"{file}: its vectors have different lengths")
    parts = frame.partition_by("kind", as_dict=True) if "kind" in frame.columns else {("entity",): frame}
    return {
        str(kind): VectorTable(part["name"].to_list(), np.array(part["vector"].to_list(), dtype=np.float32))
        for (kind,), part in parts.items()
        if kind in VECTOR_KINDS
    }
