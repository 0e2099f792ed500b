"""Graphs in memory: pandas and polars frames, networkx graphs."""

from typing import Any

import polars as pl

from harmonium.data.columns import COLUMNS
from harmonium.data.formats.source import Options, Source
from harmonium.data.formats.table import select_facts, to_source
from harmonium.data.skipped_rows import SkippedRows
from harmonium.runtime.errors import HarmoniumError

NODE_LABELS = ("name", "label")  # attributes that label a node
EDGE_RELATIONS = ("relation", "predicate", "property", "relationship", "label", "type")  # that name its relation


def read(data: Any, options: Options) -> Source:
    """Facts from the columns of a frame, or from the edges of a directed networkx graph."""
    if isinstance(data, pl.LazyFrame):
        data = data.collect()
    elif type(data).__module__.partition(".")[0] == "pandas" and hasattr(data, "columns"):
        data = _from_pandas(data)
    skipped = SkippedRows(options.on_bad)
    if isinstance(data, pl.DataFrame):
        return _source("frame", select_facts(data, options, "the frame", skipped), "the frame", skipped)
    if hasattr(data, "is_directed") and hasattr(data, "edges"):
        name = str(data.name or "graph")
        return _source(name, _from_networkx(data, skipped), "the networkx graph", skipped)
    raise HarmoniumError(
        f"no graph can be made of a {type(data).__name__}; give a name, a path, a pandas or polars frame, "
        "or a directed networkx graph"
    )


def _source(name: str, table: pl.DataFrame, location: str, skipped: SkippedRows) -> Source:
    return to_source(name, {"train": lambda: [table]}, location, skipped=skipped)


def _from_pandas(frame: Any) -> pl.DataFrame:
    """All cells as text, without needing pyarrow."""
    names = [str(name) for name in frame.columns]
    if len(set(names)) < len(names):
        raise HarmoniumError(f"the frame: two columns have the same name: {', '.join(names)}")
    columns = {}
    for position, name in enumerate(names):
        column = frame.iloc[:, position]
        cells = zip(column.astype(str).tolist(), column.notna().tolist(), strict=True)
        columns[name] = pl.Series([cell if valid else None for cell, valid in cells], dtype=pl.String)
    return pl.DataFrame(columns)


def _from_networkx(graph: Any, skipped: SkippedRows) -> pl.DataFrame:
    """The relation of an edge is its attribute `relation` (or predicate, label, ...), or its key if that is text."""
    if not graph.is_directed():
        raise HarmoniumError("an undirected graph has no heads and tails; graph.to_directed() makes facts both ways")
    keys = {"keys": True} if graph.is_multigraph() else {}
    rows = []
    for head, tail, *key, attributes in graph.edges(data=True, **keys):
        relation = _first(attributes, EDGE_RELATIONS) or next((text for text in key if isinstance(text, str)), None)
        location = "the networkx graph", f": edge ({head}, {tail})"
        if relation is None:
            skipped.reject(*location, "no relation", "; give it an attribute: relation='...'")
            continue
        if not skipped.accepts([str(head), relation, str(tail)], *location):
            continue
        labels = (_first(graph.nodes[node], NODE_LABELS) for node in (head, tail))
        rows.append((str(head), relation, str(tail), *labels))
    columns = (*COLUMNS, "head_name", "tail_name")
    return pl.DataFrame(rows, schema=dict.fromkeys(columns, pl.String), orient="row")


def _first(attributes: dict[str, Any], names: tuple[str, ...]) -> str | None:
    return next((str(attributes[name]) for name in names if attributes.get(name) is not None), None)
