"""Graphs by name or path: `load("atlas")`, `load("folder")`, `load("facts.tsv", seed=0)`."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import torch

from harmonium.errors import HarmoniumError
from harmonium.graph import Graph, Triples

EMBEDDED = {"atlas": Path(__file__).parent / "atlas"}


def load(name_or_path: str | os.PathLike[str], *, seed: int = 0, valid: float = 0.05, test: float = 0.05) -> Graph:
    """A Graph from the embedded `atlas`, a folder, or one file of triples.

    One file is split by `seed` into train, valid and test (see `split`); a folder brings its own splits.
    A name that is no path is looked up in the folder that HARMONIUM_DATA names.
    """
    from harmonium import formats

    source = formats.read(_locate(name_or_path))
    graph = formats.encode(source)
    if list(source.splits) == ["train"] and _locate(name_or_path).is_file():
        return split(graph, seed=seed, valid=valid, test=test)
    return graph


def _locate(name_or_path: str | os.PathLike[str]) -> Path:
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
