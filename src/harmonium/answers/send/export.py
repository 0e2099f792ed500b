"""Vectors by name for other tools (Parquet, npz, FAISS), and runs for the Hugging Face Hub."""

import io
from pathlib import Path
from typing import Any

import numpy as np

from harmonium.answers.send import hub_folder
from harmonium.data.graph import Graph
from harmonium.errors import HarmoniumError
from harmonium.model.gradient_graph import GradientGraph
from harmonium.run.run import FILES as RUN_FILES
from harmonium.run.run import Run
from harmonium.runtime import storage
from harmonium.runtime.written_files import check_replaceable, replace_files
from harmonium.training.initial_vectors import VectorTable

FORMAT_OF_SUFFIX = {".npz": "npz", ".parquet": "parquet", ".faiss": "faiss"}
FAISS_NAMES = ".json"  # suffix added to the name of a FAISS index, for the file with the names of its entities
HUB_FILES = ("README.md", ".gitattributes", "run.json", *RUN_FILES)


def export(run: Run | str | Path, out: str | Path, *, to: str | None = None, overwrite: bool = False) -> list[Path]:
    """Write the vectors of a run with their names, or a folder for the Hugging Face Hub; returns the paths.

    The suffix of `out` gives the format: .npz and .parquet hold all vectors, .faiss an index of the entities by inner
    product with their names in .faiss.json. Vectors are those used for scores: of unit length if the model normalises them.
    `to="hub"` writes a folder: the run with a model card, as a repository of the Hugging Face Hub; `Run.load` opens it.

    >>> harmonium.export("runs/demo", "vectors.parquet")
    >>> harmonium.export("runs/demo", "my-model", to="hub")
    """
    run, out = Run.of(run), Path(out)
    kind = to or FORMAT_OF_SUFFIX.get(out.suffix)
    if kind not in (*FORMAT_OF_SUFFIX.values(), "hub"):
        raise HarmoniumError(f"{out}: unknown format; end it in {', '.join(FORMAT_OF_SUFFIX)}, or use --to hub")
    _check_replaceable(out, kind, overwrite)
    if kind == "hub":
        with replace_files(out) as temporary:
            return [out / name for name in hub_folder.write_hub_folder(run, temporary, out.resolve().name)]
    files = {"npz": _npz, "parquet": _parquet, "faiss": _faiss}[kind](vector_tables(run.final or run.model, run.graph))
    written = [out.with_name(out.name + suffix) for suffix in files]
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        for path, content in zip(written, files.values(), strict=True):
            storage.write(path, content)
    except OSError as error:
        raise HarmoniumError(f"{out}: cannot be written ({error.strerror or error})") from error
    return written


def _check_replaceable(out: Path, kind: str, overwrite: bool) -> None:
    """Refuse to replace a file that no earlier export wrote, and without `overwrite` any file."""
    if kind == "hub" and overwrite and out.is_dir():
        check_replaceable(out, HUB_FILES.__contains__)
    elif out.exists() and not (overwrite and out.is_file() and kind != "hub"):
        raise HarmoniumError(f"{out} exists; choose another name, or use --overwrite to replace an earlier export")
    names = out.with_name(out.name + FAISS_NAMES)
    if kind == "faiss" and names.exists() and not out.exists():  # an earlier export has both
        raise HarmoniumError(f"{names}: would be replaced, but an earlier export did not write it; choose another name")


def vector_tables(model: GradientGraph, graph: Graph) -> dict[str, VectorTable]:
    """All vectors of a model by kind (entity, relation, inverse), as used for scores."""
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
