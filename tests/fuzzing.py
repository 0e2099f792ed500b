"""Every reader as a function of bytes, which gives a valid value or raises a HarmoniumError.

Used by test_fuzz.py (hypothesis) and by fuzz/readers.py (atheris).
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from graph_checks import everything, graph_bytes
from harmonium.answers.predict import _candidate_ids
from harmonium.answers.query import read_queries
from harmonium.answers.update import update
from harmonium.config.settings import Config
from harmonium.data import datasets, graph_file
from harmonium.data.download import extract
from harmonium.data.graph import Graph
from harmonium.data.tables.fact_file import read_labelled, read_triples
from harmonium.data.triples import Slot
from harmonium.errors import HarmoniumError
from harmonium.model.build import build_model
from harmonium.review.precision import ReviewSummary
from harmonium.review.store import ReviewStore, Shown, load_judgements
from harmonium.run.run import History, Run
from harmonium.runtime import storage
from harmonium.runtime.limited_process import Limits
from harmonium.training.initial_vectors import import_embeddings
from small import make_graph


@dataclass(frozen=True)
class Target:
    """A file to read, the files beside it, and valid contents to start from."""

    file: str
    read: Callable[[Path], object]  # given the file
    seeds: tuple[bytes, ...]
    beside: tuple[tuple[str, bytes], ...] = ()


def attempt(target: Target, content: bytes) -> bool:
    """Whether the contents are accepted; any other error than a HarmoniumError is raised."""
    with tempfile.TemporaryDirectory(dir=_memory()) as folder:
        for name, text in (*target.beside, (target.file, content)):
            (Path(folder) / name).write_bytes(text)
        try:
            target.read(Path(folder) / target.file)
        except HarmoniumError as error:
            assert str(error).strip()
            return False
        return True


def _memory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def check_graph(graph: Graph) -> None:
    """Check that the ids of a graph have names, and that its file gives it back."""
    for triples in graph.splits.values():
        for slot in Slot:
            size = graph.n_relations if slot is Slot.RELATION else graph.n_entities
            assert not len(triples) or 0 <= int(triples[slot].min()) <= int(triples[slot].max()) < size
    with tempfile.TemporaryDirectory(dir=_memory()) as folder:
        file = Path(folder) / "again.graph"
        file.write_bytes(graph_bytes(graph))
        assert everything(graph_file.load(file)) == everything(graph)


def one(file: Path) -> None:
    check_graph(datasets.load(file))


def skipping(file: Path) -> None:
    with contextlib.suppress(HarmoniumError):
        one(file)
    check_graph(datasets.load(file, on_bad="skip"))


def in_this_process(file: Path) -> None:
    """RDF and Parquet without the other process, which would take most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("harmonium.data.formats.parquet.stream", _stream_here)
        patch.setattr("harmonium.data.formats.rdf.files.stream", _stream_here)
        one(file)


def parquet(file: Path) -> None:
    """In a process of its own where inputs are many (FUZZ): about one damaged file in a thousand makes polars abort."""
    (one if "FUZZ" in os.environ else in_this_process)(file)


def _stream_here(function: str, arguments: dict[str, Any], limits: Limits, location: str) -> Iterator[list[bytes]]:
    module, name = function.split(":")
    yield from getattr(import_module(module), name)(**arguments)


def around(file: Path) -> None:
    check_graph(datasets.load(file.parent))


def queries(file: Path) -> None:
    with contextlib.suppress(HarmoniumError):
        list(read_triples(file, small_graph()))
    list(read_queries(file, small_graph()))


def among(file: Path) -> None:
    _candidate_ids(small_graph(), Slot.TAIL, file)


def vectors(file: Path) -> None:
    model = build_model(Config.read(None, ["model.entity_dim=4", "model.rank=1"]).model, 12, 3)
    import_embeddings(model, small_graph(), file)
    assert model.entity.isfinite().all()


def _npz() -> bytes:
    file = io.BytesIO()
    np.savez(file, entity_names=np.array(["e0", "e1"]), entity_vectors=np.ones((2, 4), np.float32))
    return file.getvalue()


def _table(**columns: str) -> bytes:
    """A Parquet file; each letter of a column is a cell."""
    file = io.BytesIO()
    pl.DataFrame({name: list(cells) for name, cells in columns.items()}).write_parquet(file)
    return file.getvalue()


def settings(file: Path) -> None:
    config = Config.read(file)
    file.write_text(config.to_toml(), encoding="utf-8")
    assert Config.read(file) == config


def overrides(file: Path) -> None:
    Config.read(None, file.read_bytes().decode("utf-8", "replace").split("\n"))


def archive(file: Path) -> None:
    extract(file, {}, max_bytes=1 << 20)
    assert list(file.parent.iterdir()) == [file]


def resealed(file: Path) -> None:
    """A run with right checksums, so that the checks behind them are reached."""
    folder = file.parent
    manifest = json.loads((folder / "run.json").read_bytes())
    manifest.pop("sha256")
    manifest["files"][file.name] = asdict(storage.FileRecord(file.stat().st_size, storage.digest(file.read_bytes())))
    (folder / "run.json").write_bytes(storage.manifest_bytes(manifest))
    run = Run.load(folder)
    if file.name.startswith("update"):
        before = run.updates[-1].record.before if run.updates else None
        assert update(run, undo=True).fingerprint == before


def judged(file: Path) -> None:
    """A file of judgements, to read and to write."""
    with contextlib.suppress(HarmoniumError):
        ReviewSummary.of(load_judgements(file)).to_json()
    with ReviewStore.open(file) as store:
        store.judge(store.add_reviewer("ben"), Shown(("a", "r", "c"), "text", 0.5, 0.5, 1, "use", "run"), "unsure")
        store.judgements()


def _judgements() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "judged.sqlite"
        with ReviewStore.open(file) as store:
            shown = Shown(("a", "r", "b"), "text", 0.5, None, 1, "use", "run")
            store.judge(store.add_reviewer("ana"), shown, "accepted", "a comment")
        return file.read_bytes()


def manifest(file: Path) -> None:
    """A run.json with a right checksum of itself."""
    with contextlib.suppress(ValueError, RecursionError):
        facts = json.loads(file.read_bytes())
        if isinstance(facts, dict):
            facts.pop("sha256", None)
            file.write_bytes(storage.manifest_bytes(facts))
    Run.load(file.parent)


@cache
def small_graph() -> Graph:
    return make_graph()


@cache
def run_files() -> dict[str, bytes]:
    graph, config = make_graph(), Config.read(None, ["model.entity_dim=4", "model.rank=1"])
    torch.manual_seed(0)
    run = Run(
        config, graph, build_model(config.model, 12, 3), History([{"epoch": 1, "loss": 1.0, "seconds": 2.0}], 1, "end")
    )
    updated = update(run, add=[("e0", "r0", "new"), ("new", "r1", "e1")])
    with tempfile.TemporaryDirectory() as folder:
        updated.save(Path(folder) / "run")
        return {file.name: file.read_bytes() for file in sorted((Path(folder) / "run").iterdir())}


def _packed() -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as packed:
        packed.addfile(tarfile.TarInfo("a/train.txt"), io.BytesIO())
        link = tarfile.TarInfo("a/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/"
        packed.addfile(link)
    return data.getvalue()


@cache
def targets() -> dict[str, Target]:
    tsv = b"a\tr\tb\nb\tr\tc\nc\ts\ta\n"
    csv = b'head,relation,tail,split\n"a, b",r,c,train\nc,r,d,test\n'
    nt = b'<u:a> <u:r> <u:b> .\n<urn:harmonium:name:a%20b> <u:r> _:c .\n<u:a> <u:r> "x"@en .\n'
    rdf, label = b"http://www.w3.org/1999/02/22-rdf-syntax-ns#", b"http://www.w3.org/2000/01/rdf-schema#label"
    ttl = b"@prefix e: <u:> .\ne:a e:r e:b , [ e:s e:c ] ; <" + label + b'> "A"@en .\n'
    nq = b"<u:a> <u:r> <u:b> <urn:harmonium:split:test> .\n<u:a> <u:r> <u:c> .\n"
    xml = b'<r:RDF xmlns:r="' + rdf + b'" xmlns:e="u:"><r:Description r:about="u:a"><e:r r:resource="u:b"/>'
    jsonld = b'{"@id": "u:a", "u:r": [{"@id": "u:b"}, {"@value": "x", "@language": "en"}]}'
    openke = {
        "entity2id.txt": b"2\na\t0\nb\t1\n", "relation2id.txt": b"1\nr\t0\n", "train2id.txt": b"2\n0 1 0\n1 0 0\n",
    }  # fmt: skip
    libkge = {
        "entity_ids.del": b"0\ta\n1\tb\n", "relation_ids.del": b"0\tr\n", "train.del": b"0\t0\t1\n1\t0\t0\n",
        "entity_strings.del": b"a\tAda\n1\tBob\n",
    }  # fmt: skip
    by_name = {
        "tsv": Target("facts.tsv", skipping, (tsv,)),
        "names": Target("entity_names.tsv", around, (b"a\tAda\nb\tBob\n",), (("train.txt", tsv),)),
        "csv": Target("facts.csv", skipping, (csv, b"a;r;b\n'c';\"r\";d\n")),
        "jsonl": Target("facts.jsonl", skipping, (b'{"head": "a", "relation": "r", "tail": 7}\n' * 2,)),
        "gz": Target("facts.tsv.gz", one, (gzip.compress(tsv, mtime=0),)),
        "nt": Target("facts.nt", in_this_process, (nt,)),
        "ttl": Target("facts.ttl", in_this_process, (ttl,)),
        "nq": Target("facts.nq", in_this_process, (nq,)),
        "xml": Target("facts.rdf", in_this_process, (xml + b"</r:Description></r:RDF>",)),
        "jsonld": Target("facts.jsonld", in_this_process, (jsonld,)),
        "parquet": Target("facts.parquet", parquet, (_table(head="ab", relation="rr", tail="ba"),)),
        "graph": Target("facts.graph", one, (graph_bytes(make_graph(4, 2, (6, 1, 1))),)),
        "labelled": Target(
            "facts.tsv", lambda f: read_labelled(f, small_graph()), (b"e0\tr0\te1\t1\ne1\tr1\te2\tfalse\n",)
        ),
        "queries.tsv": Target("queries.tsv", queries, (b"e0\tr0\t?\n\tr1\te2\n",)),
        "queries.csv": Target("queries.csv", queries, (b'head,relation,tail\n"e0",r0,?\n',)),
        "queries.jsonl": Target("queries.jsonl", queries, (b'{"head": "e0", "relation": "r0", "tail": null}\n',)),
        "config": Target("config.toml", settings, (Config().to_toml().encode(), b"[train]\nepochs = 3\nmargin = 1\n")),
        "sets": Target("sets", overrides, (b"train.epochs=3\nmodel.faithfulness=inf\nmodel.cap=none\ndata=x",)),
        "among": Target("names.txt", among, (b"e0\ne1\n",)),
        "npz": Target("vectors.npz", vectors, (_npz(),)),
        "judgements": Target("judged.sqlite", judged, (_judgements(),)),
        "tar": Target("a.tar", archive, (_packed(),)),
    }
    for name, files in (("openke", openke), ("libkge", libkge), ("run", run_files())):
        for file, text in files.items():
            read = around if name != "run" else manifest if file == "run.json" else resealed
            beside = tuple((other, content) for other, content in files.items() if other != file)
            by_name[f"{name} {file}"] = Target(file, read, (text,), beside)
    return by_name
