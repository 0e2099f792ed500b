"""Graphs that are already in memory: pandas and polars frames, networkx graphs."""

from __future__ import annotations

from typing import Any

import polars as pl

from harmonium.errors import HarmoniumError
from harmonium.formats import Options, Source
from harmonium.formats.table import from_frame, to_source

NODE_NAMES = ("name", "label")
EDGE_WORDS = ("relation", "predicate", "property", "relationship", "label", "type")


def read(data: Any, options: Options) -> Source:
    """Facts from a frame's columns, or from the edges of a directed networkx graph."""
    maker = type(data).__module__.partition(".")[0]
    if isinstance(data, pl.LazyFrame):
        data = data.collect()
    if isinstance(data, pl.DataFrame):
        return _source("frame", from_frame(data, options, "the frame"), "the frame")
    if maker == "pandas" and hasattr(data, "columns"):
        return _source("frame", from_frame(_from_pandas(data), options, "the frame"), "the frame")
    if hasattr(data, "is_directed") and hasattr(data, "edges"):
        return _source(str(data.name or "graph"), _from_networkx(data), "the networkx graph")
    raise HarmoniumError(
        f"no graph can be made of a {type(data).__name__}; give a name, a path, a pandas or polars frame, "
        "or a directed networkx graph"
    )


def _source(name: str, table: pl.DataFrame, where: str) -> Source:
    return to_source(name, {"train": lambda: [table]}, where)


def _from_pandas(frame: Any) -> pl.DataFrame:
    """All cells as text, without needing pyarrow."""
    names = [str(name) for name in frame.columns]
    if len(set(names)) < len(names):
        raise HarmoniumError(f"the frame: two columns have the same name: {', '.join(names)}")
    columns = {}
    for position, name in enumerate(names):
        column = frame.iloc[:, position]
        cells = zip(column.astype(str).tolist(), column.notna().tolist(), strict=True)
        columns[name] = pl.Series([cell if there else None for cell, there in cells], dtype=pl.String)
    return pl.DataFrame(columns)


def _from_networkx(graph: Any) -> pl.DataFrame:
    """An edge's relation is its attribute `relation` (or predicate, label, ...), else its key where that is text."""
    if not graph.is_directed():
        raise HarmoniumError("an undirected graph has no heads and tails; graph.to_directed() makes facts both ways")
    rows = []
    for head, tail, *key, about in graph.edges(data=True, **({"keys": True} if graph.is_multigraph() else {})):
        texts = (word for word in key if isinstance(word, str))
        relation = next((about[word] for word in EDGE_WORDS if about.get(word) is not None), next(texts, None))
        if relation is None:
            raise HarmoniumError(f"edge ({head}, {tail}) has no relation; give it an attribute: relation='...'")
        rows.append((str(head), str(relation), str(tail), *(_name(graph.nodes[node]) for node in (head, tail))))
    columns = ("head", "relation", "tail", "head_name", "tail_name")
    return pl.DataFrame(rows, schema=dict.fromkeys(columns, pl.String), orient="row")


def _name(attributes: dict[str, Any]) -> str | None:
    return next((str(attributes[word]) for word in NODE_NAMES if attributes.get(word) is not None), None)
