"""Every reader as a function of bytes: what comes out is a sound value or a HarmoniumError, and nothing else.

Used by test_fuzz.py (hypothesis) and by fuzz/readers.py (atheris).
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import polars as pl
import pytest
import torch

from harmonium import datasets, folder, graph_file
from harmonium.classification import read_labelled
from harmonium.config import Config
from harmonium.datasets.download import unpack
from harmonium.errors import HarmoniumError
from harmonium.graph import SPLITS, Graph
from harmonium.query_file import read_facts, read_queries
from harmonium.run import Run
from harmonium.training import History, build_model
from small import make_graph


@dataclass(frozen=True)
class Target:
    """A file that is read, those that stand beside it, and sound contents to begin from."""

    file: str
    read: Callable[[Path], object]  # given the file
    seeds: tuple[bytes, ...]
    beside: tuple[tuple[str, bytes], ...] = ()


def attempt(target: Target, content: bytes) -> bool:
    """Whether the contents are accepted; anything but a sound value or a HarmoniumError is raised."""
    with tempfile.TemporaryDirectory(dir=_memory()) as place:
        for name, text in (*target.beside, (target.file, content)):
            (Path(place) / name).write_bytes(text)
        try:
            target.read(Path(place) / target.file)
        except HarmoniumError as error:
            assert str(error).strip()
            return False
        return True


def _memory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def sound(graph: Graph) -> None:
    """A graph whose ids have names, and that comes back from a file as it was."""
    for split in SPLITS:
        triples = getattr(graph, split)
        for ids, size in ((triples.head, graph.n_entities), (triples.relation, graph.n_relations)):
            assert not len(ids) or (int(ids.min()) >= 0 and int(ids.max()) < size)
        assert not len(triples) or int(triples.tail.max()) < graph.n_entities
    with tempfile.TemporaryDirectory(dir=_memory()) as place:
        file = Path(place) / "again.graph"
        file.write_bytes(graph_file.to_bytes(graph))
        again = graph_file.load(file)
    assert list(again.entities.ids) == list(graph.entities.ids)
    assert list(again.relations.ids) == list(graph.relations.ids)
    assert [again.entities.name(i) for i in range(len(again.entities))] == [
        graph.entities.name(i) for i in range(len(graph.entities))
    ]


def one(file: Path) -> None:
    sound(datasets.load(file))


def in_parquet(file: Path) -> None:
    """Without the process of its own, which takes longer than all else."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("harmonium.formats.parquet.read_frame", _read_here)
        one(file)


def _read_here(file: Path) -> pl.DataFrame:
    try:
        return pl.read_parquet(file)
    except pl.exceptions.PanicException as error:
        raise OSError("polars cannot go on after it") from error


def around(file: Path) -> None:
    sound(datasets.load(file.parent))


def queries(file: Path) -> None:
    with contextlib.suppress(HarmoniumError):
        list(read_facts(file, asked()))
    list(read_queries(file, asked()))


def settings(file: Path) -> None:
    config = Config.read(file)
    file.write_text(config.to_toml(), encoding="utf-8")
    assert Config.read(file) == config


def overrides(file: Path) -> None:
    Config.read(None, file.read_bytes().decode("utf-8", "replace").split("\n"))


def archive(file: Path) -> None:
    inside = file.parent / "inside"
    inside.mkdir()
    unpack(file, inside, largest=1 << 20, most=50)
    assert {entry.name for entry in file.parent.iterdir()} == {file.name, "inside"}
    assert not any(entry.is_symlink() for entry in inside.rglob("*"))


def resealed(file: Path) -> None:
    """A run in which the checksums are right, so that what stands behind them must do."""
    place = file.parent
    manifest = json.loads((place / "run.json").read_bytes())
    manifest.pop("sha256")
    manifest["files"][file.name] = folder.digest(file.read_bytes())
    (place / "run.json").write_bytes(folder.seal(manifest))
    Run.load(place)


def manifest(file: Path) -> None:
    """A run.json whose own checksum is right."""
    with contextlib.suppress(ValueError, RecursionError):
        facts = json.loads(file.read_bytes())
        if isinstance(facts, dict):
            facts.pop("sha256", None)
            file.write_bytes(folder.seal(facts))
    Run.load(file.parent)


@cache
def asked() -> Graph:
    return make_graph()


@cache
def run_files() -> tuple[tuple[str, bytes], ...]:
    graph, config = make_graph(), Config.read(None, ["model.entity_dim=4", "model.rank=1"])
    torch.manual_seed(0)
    run = Run(config, graph, build_model(config.model, 12, 3), History([{"epoch": 1, "loss": 1.0}], 1, "end"), {"a": 1})
    with tempfile.TemporaryDirectory() as place:
        run.save(Path(place) / "run")
        return tuple((f.name, f.read_bytes()) for f in sorted((Path(place) / "run").iterdir()))


def _of_run(file: str) -> Target:
    beside = tuple((name, text) for name, text in run_files() if name != file)
    return Target(file, manifest if file == "run.json" else resealed, (dict(run_files())[file],), beside)


def _packed(tar: bool) -> bytes:
    data = io.BytesIO()
    if tar:
        with tarfile.open(fileobj=data, mode="w") as packed:
            packed.addfile(tarfile.TarInfo("a/train.txt"), io.BytesIO())
            link = tarfile.TarInfo("a/link")
            link.type, link.linkname = tarfile.SYMTYPE, "/"
            packed.addfile(link)
    else:
        with zipfile.ZipFile(data, "w") as packed:
            packed.writestr("a/train.txt", "a\tr\tb\n")
            packed.writestr("../b", "x")
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
    parquet = io.BytesIO()
    pl.DataFrame({"head": ["a", "b"], "relation": ["r", "r"], "tail": ["b", "a"]}).write_parquet(parquet)
    openke = {
        "entity2id.txt": b"2\na\t0\nb\t1\n",
        "relation2id.txt": b"1\nr\t0\n",
        "train2id.txt": b"2\n0 1 0\n1 0 0\n",
    }
    libkge = {
        "entity_ids.del": b"0\ta\n1\tb\n", "relation_ids.del": b"0\tr\n", "train.del": b"0\t0\t1\n1\t0\t0\n",
        "entity_strings.del": b"a\tAda\n1\tBob\n",
    }  # fmt: skip
    found = {
        "tsv": Target("facts.tsv", one, (tsv,)),
        "names": Target("entity_names.tsv", around, (b"a\tAda\nb\tBob\n",), (("train.txt", tsv),)),
        "csv": Target("facts.csv", one, (csv, b"a;r;b\n'c';\"r\";d\n")),
        "gz": Target("facts.tsv.gz", one, (gzip.compress(tsv, mtime=0),)),
        "nt": Target("facts.nt", one, (nt,)),
        "ttl": Target("facts.ttl", one, (ttl,)),
        "nq": Target("facts.nq", one, (nq,)),
        "xml": Target("facts.rdf", one, (xml + b"</r:Description></r:RDF>",)),
        "jsonld": Target("facts.jsonld", one, (jsonld,)),
        "parquet": Target("facts.parquet", in_parquet, (parquet.getvalue(),)),
        "graph": Target("facts.graph", one, (graph_file.to_bytes(make_graph(4, 2, (6, 1, 1))),)),
        "labelled": Target("facts.tsv", lambda f: read_labelled(f, asked()), (b"e0\tr0\te1\t1\ne1\tr1\te2\tfalse\n",)),
        "queries.tsv": Target("queries.tsv", queries, (b"e0\tr0\t?\n\tr1\te2\n",)),
        "queries.csv": Target("queries.csv", queries, (b'head,relation,tail\n"e0",r0,?\n',)),
        "queries.jsonl": Target("queries.jsonl", queries, (b'{"head": "e0", "relation": "r0", "tail": null}\n',)),
        "config": Target("config.toml", settings, (Config().to_toml().encode(), b"[train]\nepochs = 3\nmargin = 1\n")),
        "sets": Target("sets", overrides, (b"train.epochs=3\nmodel.faithfulness=inf\nmodel.cap=none\ndata=x",)),
        "tar": Target("a.tar", archive, (_packed(tar=True),)),
        "zip": Target("a.zip", archive, (_packed(tar=False),)),
    }
    for name, files in (("openke", openke), ("libkge", libkge)):
        for file, text in files.items():
            rest = tuple((other, content) for other, content in files.items() if other != file)
            found[f"{name} {file}"] = Target(file, around, (text,), rest)
    found |= {f"run {name}": _of_run(name) for name, _ in run_files()}
    return found
