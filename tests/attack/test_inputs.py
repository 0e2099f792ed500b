"""Every input as a pipe, socket, device, folder, huge, empty, damaged or deeply nested file, under limits.

Each must end in a HarmoniumError or be read, within seconds and a gigabyte of memory. ATTACK is the number of damaged
files for each reader, read through the whole path, the process with limits included.
"""

from __future__ import annotations

import gzip
import lzma
import os
import random
import resource
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import harmonium
from fuzzing import Target, small_graph, targets
from harmonium.answers.predict import _candidate_ids
from harmonium.answers.query import read_queries
from harmonium.answers.send import result_file
from harmonium.config.settings import Config
from harmonium.data import datasets
from harmonium.data.compressed import zstd
from harmonium.data.tables.fact_file import read_labelled, read_triples
from harmonium.data.triples import Slot
from harmonium.errors import HarmoniumError
from harmonium.training.initial_vectors import read_vectors

ATTACK = int(os.environ.get("ATTACK", "2"))
SECONDS = 120  # on a busy machine
MEMORY = 1 << 30  # bytes beyond what the process has
HUGE = 1 << 33  # bytes of a file without contents (sparse)


def graph(file: Path) -> object:
    return datasets.load(file)


READERS: dict[str, Callable[[Path], object]] = {  # by the ending of the file
    **{
        f"graph{ending}": graph
        for ending in (
            "", ".tsv", ".txt", ".csv", ".jsonl", ".json", ".nt", ".ttl", ".nq", ".trig", ".rdf", ".owl", ".n3", ".jsonld",
            ".parquet", ".graph", ".tsv.gz", ".csv.xz", ".jsonl.zst", ".nt.gz",
        )
    },
    "skipping.csv": lambda file: datasets.load(file, on_bad="skip"),
    "config.toml": Config.read,
    "queries.tsv": lambda file: list(read_queries(file, small_graph())),
    "queries.jsonl": lambda file: list(read_queries(file, small_graph())),
    "queries.parquet": lambda file: list(read_queries(file, small_graph())),
    "facts.csv": lambda file: list(read_triples(file, small_graph())),
    "labelled.tsv": lambda file: read_labelled(file, small_graph()),
    "among.txt": lambda file: _candidate_ids(small_graph(), Slot.TAIL, file),
    "vectors.npz": read_vectors,
    "vectors.parquet": read_vectors,
}  # fmt: skip


class TooSlow(BaseException):
    """Not an OSError, as TimeoutError is, which readers catch."""


@contextmanager
def limited(seconds: int = SECONDS, memory: int = MEMORY) -> Iterator[None]:
    """Raise a TimeoutError after some time, and a MemoryError when this process takes much more memory."""

    def stop(number: int, frame: object) -> None:
        raise TooSlow(f"not finished after {seconds} s")

    earlier = signal.signal(signal.SIGALRM, stop)
    size = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
    limit = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (size + memory, limit[1]))
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, earlier)
        resource.setrlimit(resource.RLIMIT_DATA, limit)


def attempt(read: Callable[[Path], object], file: Path, location: Path | None = None) -> str:
    """The message of the HarmoniumError, which must be short and name the file; "" if the file is read."""
    with limited():
        try:
            read(file)
        except HarmoniumError as error:
            assert (location or file).name[:40] in str(error)
            return str(error)
    return ""


# Odd files -----------------------------------------------------------------------------------------------------------


def pipe(file: Path) -> Path:
    os.mkfifo(file)
    return file


def bound_socket(file: Path) -> Path:
    with socket.socket(socket.AF_UNIX) as end:
        end.bind(os.path.relpath(file))  # addresses are short
    return file


def folder(file: Path) -> Path:
    file.mkdir()
    return file


def link(target: str) -> Callable[[Path], Path]:
    def make(file: Path) -> Path:
        file.symlink_to(target if target != "itself" else file)
        return file

    return make


ODD: dict[str, Callable[[Path], Path]] = {
    "pipe": pipe,
    "socket": bound_socket,
    "folder": folder,
    "/dev/null": link("/dev/null"),
    "/dev/zero": link("/dev/zero"),
    "/dev/urandom": link("/dev/urandom"),
    "nothing": link("no such file"),
    "itself": link("itself"),
    "absent": lambda file: file,
    "long name": lambda file: file.with_name("x" * 300 + file.name),
    "zero in its name": lambda file: file.with_name("a\0b" + file.name),
}


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("name", READERS)
def test_what_is_no_file_is_refused(name: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = ODD[kind](tmp_path / name)
    assert attempt(READERS[name], file)


OUTPUTS: dict[str, Callable[[Path], object]] = {
    **{
        f"facts{ending}": lambda file: harmonium.convert("atlas", file, overwrite=True)
        for ending in (".tsv", ".csv.gz", ".jsonl", ".parquet", ".nt", ".graph")
    },
    **{f"rows{ending}": lambda file: write_rows(file) for ending in (".tsv", ".parquet", ".csv.xz", ".jsonl")},
}


def write_rows(file: Path) -> None:
    with pytest.raises(HarmoniumError):
        result_file.check_path(file)
    result_file.write_rows(file, iter([{"head": "a", "relation": "r", "tail": "b"}]), "run")


@pytest.mark.parametrize("kind", ["pipe", "socket", "folder", "/dev/null", "/dev/full", "long name"])
@pytest.mark.parametrize("name", OUTPUTS)
def test_what_is_no_file_is_not_replaced(name: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = (ODD | {"/dev/full": link("/dev/full")})[kind](tmp_path / name)
    before = sorted(tmp_path.rglob("*"))
    assert attempt(OUTPUTS[name], file)
    assert sorted(tmp_path.rglob("*")) == before


# Odd contents --------------------------------------------------------------------------------------------------------

RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"


def entity_bomb(levels: int) -> bytes:
    entities = "".join(f'<!ENTITY e{i} "{f"&e{i - 1};" * 10}">' for i in range(1, levels))
    return (
        f'<?xml version="1.0"?><!DOCTYPE r:RDF [<!ENTITY e0 "aaaaaaaaaa">{entities}]><r:RDF xmlns:r="{RDF}" xmlns:e="u:">'
        f'<r:Description r:about="u:a"><e:r r:resource="u:b"/><e:n>&e{levels - 1};</e:n></r:Description></r:RDF>'
    ).encode()


def nested_elements(depth: int) -> bytes:
    return f'<r:RDF xmlns:r="{RDF}" xmlns:e="u:">{"<e:A><e:p>" * depth}{"</e:p></e:A>" * depth}</r:RDF>'.encode()


CONTENTS: dict[str, bytes] = {
    "empty": b"",
    "blank": b"\n \t\r\n" * 1000,
    "zeros": b"\0" * 100_000,
    "random": random.Random(0).randbytes(100_000),
    "byte order mark": b"\xff\xfe",
    "line of 300 kB": b"a" * 300_000,
    "cells": b"a\t" * 20_000 + b"\n" + b"a," * 20_000,
    "quotes": b'"' * 100_001,
    "open quotes": b'"a" , "b\n' * 20_000,
    "brackets": b"[" * 200_000,
    "objects": b'{"a":' * 100_000,
    "JSON-LD": b'{"u:r":' * 4_000 + b'{"@id":"u:b"}' + b"}" * 4_000,
    "JSON-LD in a list": b'[{"@id":"u:a","u:r":' * 20_000,
    "blank nodes": b"<u:a> <u:r> " + b"[ <u:r> " * 20_000 + b"<u:b>" + b" ]" * 20_000 + b" .",
    "lists": b"<u:a> <u:r> " + b"(" * 20_000 + b")" * 20_000 + b" .",
    "formulas": b"<u:a> <u:r> " + b"{ <u:a> <u:r> " * 50_000,
    "quoted triples": b"<< " * 50_000 + b"<u:a> <u:r> <u:b>",
    "long prefix": b"@prefix e: <http://x/" + b"a" * 1_000_000 + b"> .\n" + b"e:a e:r e:b .\n" * 10
    + b"".join(b"e:%d e:r e:b .\n" % i for i in range(2_000)),
    "entity bomb of 8 levels": entity_bomb(8),
    "entity bomb of 12 levels": entity_bomb(12),
    "nested elements": nested_elements(8_000),
    "TOML tables": b"[" + b"a." * 5_000 + b"a]\n",
    "TOML arrays": b"a = " + b"[" * 50_000,
    "TOML of 2 MB": b"# comment\n" * 200_000,
    "digits": b"9" * 100_000 + b"\n1\t0\n",
}  # fmt: skip
PACK: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstd.compress}


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_odd_contents_are_read_or_refused(name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    for kind, content in CONTENTS.items():
        pack = PACK.get(file.suffix, bytes)
        file.write_bytes(pack(content))
        with attributed(kind):
            attempt(READERS[name], file)


@contextmanager
def attributed(case: str) -> Iterator[None]:
    """Name the case in the report of a failure."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"case: {case}")
        raise


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_a_huge_file_takes_little_memory_and_time(name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    with file.open("wb") as content:
        content.truncate(HUGE)
    assert attempt(READERS[name], file)


LINES = {"tsv": b"a\tr\tb\n", "csv": b"a,r,b\n", "nt": b"<u:a> <u:r> <u:b> .\n"}


def write_bomb(file: Path, kind: str, ending: str, size: int) -> None:
    line = LINES.get(kind, b" ")
    file.write_bytes(PACK[ending](line * (size // len(line))))


@pytest.mark.parametrize("ending", PACK)
@pytest.mark.parametrize("kind", ["tsv", "csv", "jsonl", "json"])
def test_decompression_bombs_are_refused(kind: str, ending: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("harmonium.data.compressed.ALWAYS_ALLOWED", 1 << 20)
    file = tmp_path / f"facts.{kind}{ending}"
    write_bomb(file, kind, ending, 3 << 20)
    assert attempt(graph, file)


# Parquet and npz -----------------------------------------------------------------------------------------------------


# Damaged files -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", targets())
def test_damaged_files_are_read_or_refused(name: str, tmp_path: Path) -> None:
    """Cut, doubled, overwritten; RDF and Parquet through the process with limits."""
    target, source = targets()[name], random.Random(name)
    read = graph if name in ("nt", "ttl", "nq", "xml", "jsonld", "parquet") else target.read
    for number in range(ATTACK):
        place = tmp_path / str(number)
        place.mkdir()
        for other, text in target.beside:
            (place / other).write_bytes(text)
        file = place / target.file
        file.write_bytes(damage(target, source))
        with attributed(repr(file.read_bytes()[:2000])), limited():
            try:
                read(file)
            except HarmoniumError as error:
                assert str(error)


def damage(target: Target, source: random.Random) -> bytes:
    content = source.choice(target.seeds)
    for _ in range(source.randint(1, 6)):
        start = source.randint(0, len(content))
        end = min(len(content), start + source.choice([0, 1, 1, 2, 8, 100]))
        piece = source.choice(
            [b"", source.randbytes(end - start), content[start:end] * 3, b"\0", b"[" * 500, b"9" * 30]
        )
        content = content[:start] + piece + content[end:]
    return content
