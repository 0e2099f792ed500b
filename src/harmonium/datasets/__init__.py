"""Graphs by name, path or value: `load("atlas")`, `load("folder")`, `load("facts.tsv", seed=0)`, `load(frame)`."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harmonium import folder, graph_file
from harmonium.datasets import download
from harmonium.errors import HarmoniumError
from harmonium.graph import SPLITS, Graph, Triples, member, mix

WORTH_CACHING = 20_000  # training triples
EMBEDDED = {"atlas": Path(__file__).parent / "atlas"}


def load(source: Any, *, seed: int = 0, valid: float = 0.05, test: float = 0.05, **options: Any) -> Graph:
    """A Graph from a name, a folder, a file of triples, sparql:URL, a pandas or polars frame or a networkx graph.

    `options` say how to read what does not say it itself (see `formats.Options`): columns, separator, header, quotes,
    literals, language, query. What brings no splits is split by `seed` into train, valid and test (see `split`).
    A name that is no path is looked up in the folder that HARMONIUM_DATA names; a standard dataset is downloaded when
    it is not there. Larger graphs are kept in binary form under HARMONIUM_CACHE (~/.cache/harmonium when unset) and
    load from there while the files stay as they are.
    """
    if isinstance(source, Graph):
        return source
    if not isinstance(source, str | os.PathLike):
        from harmonium.formats import frames

        graph = _encode(lambda how: frames.read(source, how), options)
    elif str(source).startswith("sparql:"):
        from harmonium.formats import sparql

        graph = _encode(lambda how: sparql.read(str(source), how), options)
    else:
        path = locate(source)
        if path.suffix == graph_file.ENDING and path.is_file():
            return graph_file.load(path)
        graph = _from_path(path, options)
        if path.is_dir():
            return graph
    if len(graph.valid) or len(graph.test) or valid == test == 0:
        return graph
    return split(graph, seed=seed, valid=valid, test=test)


def _from_path(path: Path, options: dict[str, Any]) -> Graph:
    """A graph from its cache, or from its files and then kept."""
    cached = _cache_of(path, options)
    if cached.is_file():
        with contextlib.suppress(HarmoniumError):  # a damaged cache is made again
            return graph_file.load(cached)
    from harmonium import formats

    graph = _encode(lambda how: formats.read(path, how), options)
    if len(graph.train) >= WORTH_CACHING and _keep(graph, cached):
        return graph_file.load(cached)
    return graph


def _encode(read: Callable[[Any], Any], options: dict[str, Any]) -> Graph:
    from harmonium import formats

    unknown = options.keys() - formats.Options.__dataclass_fields__.keys()
    if unknown:
        known = ", ".join(formats.Options.__dataclass_fields__)
        raise HarmoniumError(f"no option '{min(unknown)}' to read a graph with; there are {known}")
    return formats.encode(read(formats.Options(**options)))


def _cache_of(path: Path, options: dict[str, Any]) -> Path:
    """Where the binary form of these very files is kept: their names, sizes and times make its name."""
    beside = path.parent.glob("*_names.tsv") if path.is_file() else path.iterdir()
    files = sorted({file for file in (path, *beside) if file.is_file()})
    state = [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    how = sorted(item for item in options.items() if item[0] != "watch")
    key = repr((graph_file.ENDING, 3, state, how))
    return folder.cache() / (hashlib.sha256(key.encode()).hexdigest()[:32] + graph_file.ENDING)


def _keep(graph: Graph, cached: Path) -> bool:
    """Write the cache, whole or not at all; a cache that cannot be written is no error."""
    with contextlib.suppress(OSError):
        cached.parent.mkdir(parents=True, exist_ok=True)
        for old in cached.parent.glob(f"{cached.stem}.*.draft"):  # of processes that were killed
            if not folder.alive(int(old.suffixes[-2][1:])):
                old.unlink()
        draft = cached.with_suffix(f".{os.getpid()}.draft")
        with draft.open("wb") as file:
            file.writelines(graph_file.parts(graph))
        draft.replace(cached)
        return True
    return False


def locate(name_or_path: str | os.PathLike[str]) -> Path:
    """The folder or file of a graph: embedded, a path, a name in HARMONIUM_DATA, or a standard dataset, downloaded."""
    path = Path(name_or_path)
    if str(name_or_path) in EMBEDDED:
        return EMBEDDED[str(name_or_path)]
    if path.exists():
        return path
    shelf = os.environ.get("HARMONIUM_DATA")
    known = download.find(str(name_or_path))
    if shelf and (Path(shelf) / path).exists():
        return Path(shelf) / path
    if known is not None:
        there = Path(shelf).iterdir() if shelf and Path(shelf).is_dir() else ()
        for place in there:
            if place.is_dir() and download.find(place.name) == known:
                return place
        return download.fetch(known, folder.cache() / "datasets")
    where = f" (nor in HARMONIUM_DATA={shelf})" if shelf else ""
    raise HarmoniumError(
        f"no graph at '{path}'{where}; give a folder with train.txt, a file of head TAB relation TAB tail lines, "
        f"or a name: {', '.join((*EMBEDDED, *download.known()))}"
    )


def split(graph: Graph, *, seed: int = 0, valid: float = 0.05, test: float = 0.05) -> Graph:
    """Split the train triples at random, honestly.

    All facts over the same two entities stay together (so neither direction of a symmetric or inverse fact leaks),
    and a fact moves back to train when one of its entities or its relation would otherwise not be trained.
    """
    if not (valid >= 0 and test >= 0 and valid + test < 1):
        raise HarmoniumError(f"valid and test are fractions that leave room for train, not {valid} and {test}")
    from harmonium.formats.stream import FACTS, chosen

    facts, n = graph.facts(), graph.n_entities
    place = torch.empty(len(facts), dtype=torch.uint8)  # 0 train, 1 valid, 2 test
    parts = list(zip(facts.chunks(FACTS), place.split(FACTS), strict=False))
    for part, into in parts:
        low, high = torch.minimum(part.head, part.tail), torch.maximum(part.head, part.tail)
        chance = mix(mix(mix(low) + high) + seed).double() / 2**63  # of a pair, the same wherever it stands
        into[:] = (chance < valid + test).byte() + (chance < test).byte()
    stranded = place  # anything but empty
    while len(stranded):
        entities, relations = torch.zeros(n, dtype=torch.bool), torch.zeros(graph.n_relations, dtype=torch.bool)
        for part, into in parts:
            for trained, ids in ((entities, part.head), (relations, part.relation), (entities, part.tail)):
                trained[ids[into == 0]] = True
        found = [
            _pairs(part[(into > 0) & ~(entities[part.head] & relations[part.relation] & entities[part.tail])], n)
            for part, into in parts
        ]
        stranded = torch.cat(found).unique()
        for part, into in parts:
            into[member(_pairs(part, n), stranded)] = 0
    splits = {name: chosen(facts, place == number) for number, name in enumerate(SPLITS)}
    note = f"split by seed {seed}: {valid:g} valid, {test:g} test asked for; facts over the same pair kept together"
    return replace(graph, **splits, notes=(*graph.notes, note))


def _pairs(facts: Triples, n_entities: int) -> Tensor:
    """(n,): the two entities of each fact, in either order, as one number."""
    return torch.minimum(facts.head, facts.tail) * n_entities + torch.maximum(facts.head, facts.tail)
