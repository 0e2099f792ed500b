"""Small graphs for tests."""

from __future__ import annotations

import torch

from harmonium.graph import Graph, Triples, Vocabulary


def make_graph(
    n_entities: int = 12, n_relations: int = 3, sizes: tuple[int, int, int] = (40, 8, 10), seed: int = 0
) -> Graph:
    """Entities e0.., relations r0.., distinct random triples dealt to the splits."""
    cells = torch.randperm(n_entities * n_relations * n_entities, generator=torch.Generator().manual_seed(seed))
    cells = cells[: sum(sizes)]
    columns = [cells // (n_relations * n_entities), cells // n_entities % n_relations, cells % n_entities]
    splits = [Triples.from_rows(part) for part in torch.stack(columns, dim=1).split(list(sizes))]
    entities = Vocabulary([f"e{i}" for i in range(n_entities)], kind="entity")
    relations = Vocabulary([f"r{i}" for i in range(n_relations)], kind="relation")
    return Graph(entities, relations, *splits, name="random")


def family(generations: int = 40, seed: int = 0) -> Graph:
    """A graph with something to learn: `next` runs round a ring of entities, `before` is its reverse, `twin` pairs."""
    n = generations
    rows = [[i, 0, (i + 1) % n] for i in range(n)] + [[(i + 1) % n, 1, i] for i in range(n)]
    rows += [[i, 2, (i + n // 2) % n] for i in range(n)]
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
    parts = torch.tensor(rows)[order].split([len(rows) - 20, 10, 10])
    entities = Vocabulary([f"person {i}" for i in range(n)], kind="entity")
    relations = Vocabulary(["next", "before", "twin"], kind="relation")
    return Graph(entities, relations, *(Triples.from_rows(part) for part in parts), name="family")
