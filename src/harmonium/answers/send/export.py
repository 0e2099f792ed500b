"""Vectors by name for other tools (Parquet, npz, FAISS), plain models for PyKEEN and Neo4j, and runs for the Hub."""

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from harmonium.answers.send import gds_files, hub_folder
from harmonium.data.graph import Graph
from harmonium.errors import HarmoniumError
from harmonium.model.gradient_graph import GradientGraph
from harmonium.model.harmony import Sum
from harmonium.run.run import FILES as RUN_FILES
from harmonium.run.run import Run, open_run
from harmonium.runtime import storage
from harmonium.runtime.written_files import check_replaceable, replace_files
from harmonium.training.initial_vectors import VectorTable

FORMATS = {".npz": "npz", ".parquet": "parquet", ".faiss": "faiss"}
FAISS_NAMES = ".json"  # added to the name of a FAISS index: the names of its entities
PYKEEN = ("distmult", "complex", "hole")
PYKEEN_FILES = ("pykeen.npz", "pykeen.json", "load_pykeen.py")
HUB_FILES = ("README.md", "config.json", "graph.json", ".gitattributes", "run.json", *RUN_FILES)
FOLDERS: dict[str, Sequence[str]] = {
    "pykeen": PYKEEN_FILES,
    "gds": gds_files.FILES,
    "hub": HUB_FILES,
}  # and their files


def export(run: Run | str | Path, out: str | Path, to: str | None = None, overwrite: bool = False) -> list[Path]:
    """Write the vectors of a run with their names, or a folder for another tool (`to`); returns the paths.

    The ending of `out` gives the format: .npz and .parquet hold all vectors, .faiss an index of the entities by inner
    product with their names in .faiss.json. Vectors are those that scores are made of: of unit length if normalised.
    Folders: `pykeen` loads a plain model into PyKEEN, `gds` a plain DistMult into Neo4j's Graph Data Science, and `hub` is
    the run with a model card, as a repository of the Hugging Face Hub; `Run.load` opens it.

    >>> harmonium.export("runs/demo", "vectors.parquet")
    >>> harmonium.export("runs/demo", "my-model", to="hub")
    """
    run, out = open_run(run), Path(out)
    kind = to or FORMATS.get(out.suffix)
    if kind not in (*FORMATS.values(), *FOLDERS):
        raise HarmoniumError(f"{out}: unknown format; end it in {', '.join(FORMATS)}, or say --to {', '.join(FOLDERS)}")
    _check_replaceable(out, kind, overwrite)
    if kind in FOLDERS:
        return _write_folder(run, out, kind)
    files = {"npz": _npz, "parquet": _parquet, "faiss": _faiss}[kind](vector_tables(run.model, run.graph))
    written = [out.with_name(out.name + ending) for ending in files]
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        for path, content in zip(written, files.values(), strict=True):
            storage.write(path, content)
    except OSError as error:
        raise HarmoniumError(f"{out}: cannot be written ({error.strerror or error})") from error
    return written


def _check_replaceable(out: Path, kind: str, overwrite: bool) -> None:
    """Refuse to replace what no earlier export wrote, or anything unless `overwrite`."""
    if kind in FOLDERS and overwrite and out.is_dir():
        check_replaceable(out, FOLDERS[kind].__contains__)
    elif out.exists() and not (overwrite and out.is_file() and kind not in FOLDERS):
        raise HarmoniumError(f"{out} exists; choose another name, or say --overwrite to replace an earlier export")
    names = out.with_name(out.name + FAISS_NAMES)
    if kind == "faiss" and names.exists() and not out.exists():  # an earlier export has both
        raise HarmoniumError(f"{names}: would be replaced, but is not of an earlier export; choose another name")


def vector_tables(model: GradientGraph, graph: Graph) -> dict[str, VectorTable]:
    """All vectors of a model by kind (entity, relation, inverse), as scores are made of them."""
    entities, relations = model.entities().detach().cpu().numpy(), model.relations().detach().cpu().numpy()
    n, names = model.n_relations, list(graph.relations.ids)
    tables = {"entity": VectorTable(list(graph.entities.ids), entities), "relation": VectorTable(names, relations[:n])}
    if model.reciprocal:
        tables["inverse"] = VectorTable(names, relations[n:])
    return tables


def _npz(tables: dict[str, VectorTable]) -> dict[str, bytes]:
    names = {f"{kind}_names": np.array(table.names, dtype=str) for kind, table in tables.items()}
    return {"": _npz_bytes(names | {f"{kind}_vectors": table.vectors for kind, table in tables.items()})}


def _npz_bytes(arrays: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def _parquet(tables: dict[str, VectorTable]) -> dict[str, bytes]:
    import polars as pl

    frames = [
        pl.DataFrame({"kind": [kind] * len(table.names), "name": table.names}).with_columns(
            pl.Series("vector", table.vectors).cast(pl.List(pl.Float32))
        )
        for kind, table in tables.items()
    ]
    file = io.BytesIO()
    pl.concat(frames).write_parquet(file)
    return {"": file.getvalue()}


def _faiss(tables: dict[str, VectorTable]) -> dict[str, bytes]:
    try:
        import faiss
    except ImportError as error:
        raise HarmoniumError("a FAISS index needs FAISS: pip install 'harmonium[ann]'") from error
    names, vectors = tables["entity"]
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(np.ascontiguousarray(vectors, dtype=np.float32))
    return {"": faiss.serialize_index(index).tobytes(), FAISS_NAMES: storage.to_json(list(names))}


def _write_folder(run: Run, out: Path, kind: str) -> list[Path]:
    """A folder for another tool, whose files replace those of an earlier export."""
    if kind == "hub":
        with replace_files(out) as temporary:
            return [out / name for name in hub_folder.write_hub_folder(run, temporary, out.resolve().name)]
    contents = _pykeen_files(run) if kind == "pykeen" else gds_files.gds_files(run)
    with replace_files(out) as temporary:
        for name, content in contents.items():
            storage.write(temporary / name, content)
    return [out / name for name in contents]


def _pykeen_files(run: Run) -> dict[str, bytes]:
    """Tensors, names and the script that makes a PyKEEN model of them."""
    tensors, description = pykeen_parts(run)
    contents = (
        _npz_bytes({name: value.numpy() for name, value in tensors.items()}),
        json.dumps(description, ensure_ascii=False, indent=1).encode(),
        Path(__file__).with_name("load_pykeen.py").read_bytes(),
    )
    return dict(zip(PYKEEN_FILES, contents, strict=True))


def pykeen_parts(run: Run) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """The tensors of a plain model in PyKEEN's layout with its triples, and a description of the model.

    The scale of our scores goes into the relations. PyKEEN's complex vectors are pairs (n, dim, 2), and the inverse of
    relation r is its relation 2r + 1.
    """
    model, graph = run.model, run.graph
    name, form = model.composition.name, model.form
    if not isinstance(form, Sum) or name not in PYKEEN:
        raise HarmoniumError(
            f"PyKEEN has no {'' if isinstance(form, Sum) else 'harmonic '}{name}; plain {', '.join(PYKEEN)} "
            "(model.harmony=false) can be exported to it. The vectors of any model go to .npz, .parquet or .faiss"
        )
    entity, relation = model.entities().cpu(), model.relations().cpu() * form.scale.cpu()
    if model.reciprocal:
        relation = torch.stack(relation.chunk(2), dim=1).flatten(0, 1)
    if name == "complex":
        entity, relation = (torch.stack(part.chunk(2, dim=-1), dim=-1) for part in (entity, relation))
    tensors = {"entity": entity, "relation": relation}
    tensors |= {split: facts.to_rows() for split, facts in graph.splits.items()}
    description = {
        "interaction": name,
        "shape": entity.shape[1],
        "dtype": "cfloat" if name == "complex" else "float",
        "create_inverse_triples": model.reciprocal,
        "entities": list(graph.entities.ids),
        "relations": list(graph.relations.ids),
    }
    return {key: value.detach().contiguous() for key, value in tensors.items()}, description
