"""export(): vectors by name for other tools (Parquet, npz, FAISS), a plain model for PyKEEN; and vectors read back in."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from harmonium import folder
from harmonium.errors import HarmoniumError
from harmonium.graph import SPLITS, Graph
from harmonium.harmony import Sum
from harmonium.model import GradientGraph
from harmonium.run import Run

ENDINGS = {".npz": "npz", ".parquet": "parquet", ".faiss": "faiss"}
PYKEEN = ("distmult", "complex", "hole")
KINDS = ("entity", "relation", "inverse")  # inverse: the second vector of a relation, in reciprocal models


class Table(NamedTuple):
    """Vectors of one kind, with their names."""

    names: Sequence[str]
    vectors: np.ndarray  # (n, slot_dim)


def export(run: Run | str | Path, out: str | Path, to: str | None = None, overwrite: bool = False) -> list[Path]:
    """Write the vectors of a run with their names, or (`to="pykeen"`) a folder that PyKEEN loads; returns what was written.

    The ending of `out` says the format: .npz and .parquet hold all vectors, .faiss an index of the entities by inner
    product and, in .faiss.json, their names. Vectors are those that scores are made of: of length one if normalised.

    >>> harmonium.export("runs/demo", "vectors.parquet")
    """
    out, run = Path(out), run if isinstance(run, Run) else Run.load(run)
    kind = to or ENDINGS.get(out.suffix)
    if kind not in (*ENDINGS.values(), "pykeen"):
        raise HarmoniumError(f"{out}: cannot tell the format; end it in {', '.join(ENDINGS)}, or say --to pykeen")
    if out.exists() and not (overwrite and (out.is_file() if kind != "pykeen" else (out / "pykeen.json").is_file())):
        raise HarmoniumError(f"{out} is there; choose another name, or say --overwrite to replace an earlier export")
    if kind == "pykeen":
        return _write_pykeen(run, out)
    found = tables(run.model, run.graph)
    files = {"npz": _npz, "parquet": _parquet, "faiss": _faiss}[kind](found)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        written = [out.with_name(out.name + more) for more in files]
        for path, content in zip(written, files.values(), strict=True):
            folder.write(path, content)
    except OSError as error:
        raise HarmoniumError(f"{out}: cannot be written ({error.strerror or error})") from error
    return written


def tables(model: GradientGraph, graph: Graph) -> dict[str, Table]:
    """All vectors of a model by kind, as scores are made of them."""
    entities, relations = (part.detach().cpu().numpy() for part in (model.entities(), model.relations()))
    n, names = model.n_relations, list(graph.relations.ids)
    found = {"entity": Table(list(graph.entities.ids), entities), "relation": Table(names, relations[:n])}
    return found | ({"inverse": Table(names, relations[n:])} if model.reciprocal else {})


def _npz(found: dict[str, Table]) -> dict[str, bytes]:
    arrays = {f"{kind}_names": np.array(table.names, dtype=str) for kind, table in found.items()}
    file = io.BytesIO()
    np.savez(file, **arrays, **{f"{kind}_vectors": table.vectors for kind, table in found.items()})
    return {"": file.getvalue()}


def _parquet(found: dict[str, Table]) -> dict[str, bytes]:
    import polars as pl

    frames = [
        pl.DataFrame({"kind": [kind] * len(table.names), "name": table.names}).with_columns(
            pl.Series("vector", table.vectors).cast(pl.List(pl.Float32))
        )
        for kind, table in found.items()
    ]
    file = io.BytesIO()
    pl.concat(frames).write_parquet(file)
    return {"": file.getvalue()}


def _faiss(found: dict[str, Table]) -> dict[str, bytes]:
    try:
        import faiss
    except ImportError as error:
        raise HarmoniumError("a FAISS index needs FAISS: pip install 'harmonium[ann]'") from error
    names, vectors = found["entity"]
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(np.ascontiguousarray(vectors, dtype=np.float32))
    return {"": faiss.serialize_index(index).tobytes(), ".json": folder.to_json(list(names))}


def _write_pykeen(run: Run, out: Path) -> list[Path]:
    """A folder with tensors, names and the few lines that make a PyKEEN model of them."""
    tensors, about = pykeen_parts(run)
    file = io.BytesIO()
    np.savez(file, **{name: value.numpy() for name, value in tensors.items()})
    files = {
        "pykeen.npz": file.getvalue(),
        "pykeen.json": json.dumps(about, ensure_ascii=False, indent=1).encode(),
        "load_pykeen.py": Path(__file__).with_name("load_pykeen.py").read_bytes(),
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    with folder.replacing(out) as draft:
        for name, content in files.items():
            folder.write(draft / name, content)
    return [out / name for name in files]


def pykeen_parts(run: Run) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """The tensors of a plain model as PyKEEN keeps them, its triples, and the rest of what makes it.

    The scale of our scores goes into the relations. PyKEEN's complex vectors are pairs (n, dim, 2), and the inverse of
    relation r is its relation 2r + 1.
    """
    model, graph = run.model, run.graph
    name = model.composition.name
    if not isinstance(model.form, Sum) or name not in PYKEEN:
        raise HarmoniumError(
            f"PyKEEN has no {'harmonic ' if not isinstance(model.form, Sum) else ''}{name}; plain {', '.join(PYKEEN)} "
            "(model.harmony=false) can be exported to it. The vectors of any model go to .npz, .parquet or .faiss"
        )
    entity, relation = model.entities().cpu(), model.relations().cpu() * model.form.scale.cpu()
    if model.reciprocal:
        relation = torch.stack(relation.chunk(2), dim=1).flatten(0, 1)
    if name == "complex":
        entity, relation = (torch.stack(part.chunk(2, dim=-1), dim=-1) for part in (entity, relation))
    tensors = {"entity": entity, "relation": relation} | {s: getattr(graph, s).rows() for s in SPLITS}
    about = {
        "interaction": name,
        "shape": entity.shape[1],
        "dtype": "cfloat" if name == "complex" else "float",
        "create_inverse_triples": model.reciprocal,
        "entities": list(graph.entities.ids),
        "relations": list(graph.relations.ids),
    }
    return {key: value.detach().contiguous() for key, value in tensors.items()}, about


def import_embeddings(model: GradientGraph, graph: Graph, file: str | Path) -> dict[str, int]:
    """Put the vectors of an .npz or .parquet file into a model, by name, and say how many; names it lacks keep theirs.

    The file is as `export` writes it: columns name, vector and (for more than entities) kind, or in .npz entity_names
    and entity_vectors, and so on.

    >>> harmonium.import_embeddings(model, graph, "vectors.parquet")
    """
    found = {}
    with torch.no_grad():
        for kind, table in read_tables(file).items():
            names = graph.entities if kind == "entity" else graph.relations
            if kind == "inverse" and not model.reciprocal:
                continue
            place = model.entity if kind == "entity" else model.relation
            if table.vectors.ndim != 2 or table.vectors.shape != (len(table.names), place.shape[1]):
                setting = "entity_dim" if kind == "entity" else "relation_dim"
                sizes = " x ".join(map(str, table.vectors.shape))
                raise HarmoniumError(
                    f"{file}: {len(table.names):,} names of kind {kind} with {sizes} numbers, but the model's vectors "
                    f"have {place.shape[1]}; say --set model.{setting}={table.vectors.shape[-1]}, or import others"
                )
            if not np.isfinite(table.vectors).all():
                raise HarmoniumError(f"{file}: some vectors of kind {kind} are not made of finite numbers")
            known = [position for position, name in enumerate(table.names) if name in names]
            rows = torch.tensor([names.index(table.names[position]) for position in known], dtype=torch.long)
            rows = rows + (model.n_relations if kind == "inverse" else 0)
            vectors, found[kind] = torch.as_tensor(table.vectors[known]), len(known)
            if kind == "entity":  # of several processes each has rows of its own
                mine = (rows >= model.held.start) & (rows < model.held.stop)
                rows, vectors = rows[mine] - model.held.start, vectors[mine]
            place[rows.to(place.device)] = vectors.to(place)
    if not any(found.values()):
        raise HarmoniumError(f"{file}: none of its names is in {graph.name}")
    return found


def read_tables(file: str | Path) -> dict[str, Table]:
    """Vectors with their names from an .npz or .parquet file."""
    file = Path(file)
    if file.suffix not in (".npz", ".parquet"):
        raise HarmoniumError(f"{file}: embeddings are read from .npz or .parquet")
    if not file.is_file():
        raise HarmoniumError(f"{file}: no such file of embeddings; `harmonium export` writes one")
    try:
        if file.suffix == ".npz":
            with np.load(file, allow_pickle=False) as arrays:
                kinds = [kind for kind in KINDS if f"{kind}_names" in arrays]
                return {k: Table(arrays[f"{k}_names"].tolist(), arrays[f"{k}_vectors"]) for k in kinds}
        from harmonium.formats.parquet import read_frame

        frame = read_frame(file).collect()
        parts = frame.partition_by("kind", as_dict=True) if "kind" in frame.columns else {("entity",): frame}
        return {
            kind: Table(part["name"].to_list(), np.array(part["vector"].to_list(), dtype=np.float32))
            for (kind,), part in parts.items()
            if kind in KINDS
        }
    except Exception as error:  # of numpy, zipfile or polars, whichever was given what it cannot read
        raise HarmoniumError(
            f"{file}: not embeddings with names as `harmonium export` writes them ({error})"
        ) from error
