"""Graphs by name or path: `load("atlas")`, `load("folder")`, `load("facts.tsv", seed=0)`."""

from __future__ import annotations

import contextlib
import hashlib
import os
from dataclasses import replace
from pathlib import Path

import torch

from harmonium import graph_file
from harmonium.errors import HarmoniumError
from harmonium.graph import Graph, Triples

WORTH_CACHING = 20_000  # training triples
EMBEDDED = {"atlas": Path(__file__).parent / "atlas"}


def load(name_or_path: str | os.PathLike[str], *, seed: int = 0, valid: float = 0.05, test: float = 0.05) -> Graph:
    """A Graph from the embedded `atlas`, a folder, or one file of triples.

    One file is split by `seed` into train, valid and test (see `split`); a folder brings its own splits.
    A name that is no path is looked up in the folder that HARMONIUM_DATA names. Larger graphs are kept in binary form
    under HARMONIUM_CACHE (~/.cache/harmonium when unset) and load from there while the files stay as they are.
    """
    path = locate(name_or_path)
    if path.suffix == graph_file.ENDING and path.is_file():
        return graph_file.load(path)
    cached = _cache_of(path)
    if cached.is_file():
        with contextlib.suppress(HarmoniumError):  # a damaged cache is made again
            graph = graph_file.load(cached)
            return split(graph, seed=seed, valid=valid, test=test) if path.is_file() else graph
    from harmonium import formats

    graph = formats.encode(formats.read(path))
    if len(graph.train) >= WORTH_CACHING:
        _keep(graph, cached)
    return split(graph, seed=seed, valid=valid, test=test) if path.is_file() else graph


def _cache_of(path: Path) -> Path:
    """Where the binary form of these very files is kept: their names, sizes and times make its name."""
    home = Path(os.environ.get("HARMONIUM_CACHE") or Path.home() / ".cache" / "harmonium")
    beside = path.parent.glob("*_names.tsv") if path.is_file() else path.iterdir()
    files = sorted({file for file in (path, *beside) if file.is_file()})
    state = [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return home / (hashlib.sha256(repr((graph_file.ENDING, 1, state)).encode()).hexdigest()[:32] + graph_file.ENDING)


def _keep(graph: Graph, cached: Path) -> None:
    """Write the cache, whole or not at all; a cache that cannot be written is no error."""
    with contextlib.suppress(OSError):
        cached.parent.mkdir(parents=True, exist_ok=True)
        draft = cached.with_suffix(f".{os.getpid()}.draft")
        draft.write_bytes(graph_file.to_bytes(graph))
        draft.replace(cached)


def locate(name_or_path: str | os.PathLike[str]) -> Path:
    """The folder or file of a graph: embedded, a path, or a name in HARMONIUM_DATA."""
    path = Path(name_or_path)
    if str(name_or_path) in EMBEDDED:
        return EMBEDDED[str(name_or_path)]
    if path.exists():
        return path
    shelf = os.environ.get("HARMONIUM_DATA")
    if shelf and (Path(shelf) / path).exists():
        return Path(shelf) / path
    where = f" (nor in HARMONIUM_DATA={shelf})" if shelf else ""
    raise HarmoniumError(
        f"no graph at '{path}'{where}; give a folder with train.txt, a file of head TAB relation TAB tail lines, "
        f"or a name: {', '.join(EMBEDDED)}"
    )


def split(graph: Graph, *, seed: int = 0, valid: float = 0.05, test: float = 0.05) -> Graph:
    """Split the train triples at random, honestly.

    All facts over the same two entities stay together (so neither direction of a symmetric or inverse fact leaks),
    and a fact moves back to train when one of its entities or its relation would otherwise not be trained.
    """
    if not (valid >= 0 and test >= 0 and valid + test < 1):
        raise HarmoniumError(f"valid and test are fractions that leave room for train, not {valid} and {test}")
    facts = graph.facts()
    low, high = torch.minimum(facts.head, facts.tail), torch.maximum(facts.head, facts.tail)
    pair = torch.unique(low * graph.n_entities + high, return_inverse=True)[1]  # (n,) which unordered pair
    place = torch.rand(int(pair.max()) + 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)[pair]
    part = (place < valid + test).long() + (place < test).long()  # 0 train, 1 valid, 2 test
    nodes = torch.stack([facts.head, facts.tail, facts.relation + graph.n_entities], dim=1)
    while True:
        trained = torch.bincount(nodes[part == 0].flatten(), minlength=graph.n_entities + graph.n_relations) > 0
        stranded = (part > 0) & ~trained[nodes].all(dim=1)
        if not stranded.any():
            break
        part[torch.isin(pair, pair[stranded])] = 0
    rows = facts.rows()
    train, valid_rows, test_rows = (Triples.from_rows(rows[part == p]) for p in range(3))
    note = f"split by seed {seed}: {valid:g} valid, {test:g} test asked for; facts over the same pair kept together"
    return replace(graph, train=train, valid=valid_rows, test=test_rows, notes=(*graph.notes, note))
