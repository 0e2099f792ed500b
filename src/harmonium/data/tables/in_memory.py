"""Graphs in memory: pandas and polars frames, lists of rows, arrays, columns by name, networkx graphs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from harmonium.data.graph import Note
from harmonium.data.tables.columns import COLUMNS, WEIGHT
from harmonium.data.tables.reading_options import Options
from harmonium.data.tables.rows import text_of, to_rows
from harmonium.data.tables.skipped_rows import SkippedRows
from harmonium.data.tables.source import Source
from harmonium.data.tables.table import drop_unusable, select_facts, to_source
from harmonium.data.tables.table_rows import tables_of_rows
from harmonium.errors import HarmoniumError

NODE_LABELS = ("name", "label")  # attributes that label a node
EDGE_RELATIONS = ("relation", "predicate", "property", "relationship", "label", "type")  # that name its relation


def read(data: Any, options: Options) -> Source:
    """Facts from the columns of a frame or a dict, the rows of a list or an array, or the edges of a networkx graph."""
    skipped, notes = SkippedRows(options.on_bad), list[Note]()
    if hasattr(data, "is_directed") and hasattr(data, "edges"):
        table, location = _from_networkx(data, options, skipped), "the networkx graph"
        return to_source(str(data.name or "graph"), {"train": lambda: [table]}, location, notes=notes, skipped=skipped)
    frame = to_frame(data)
    if frame is not None and not is_untitled(frame):
        table = select_facts(frame, options, "the frame", skipped, notes)
        skipped.finish()
        return to_source("frame", {"train": lambda: [table]}, "the frame", notes=notes, skipped=skipped)
    if frame is not None and options.columns is not None and set(options.fact_titles) <= set(frame.columns):
        options = replace(options, columns=[frame.columns.index(label) + 1 for label in options.fact_titles])
    rows = list(frame.iter_rows()) if frame is not None else to_rows(data)
    name = "frame" if frame is not None else "array" if hasattr(data, "shape") else "list"

    def read_rows(_: SkippedRows) -> Iterator[tuple[str, Any]]:
        return ((f": row {number}", row) for number, row in enumerate(rows, start=1))

    def tables() -> Iterator[pl.DataFrame]:
        skipped.restart(f"the {name}")
        return tables_of_rows(read_rows, options, f"the {name}", skipped, notes)

    return to_source(name, {"train": tables}, f"the {name}", notes=notes, skipped=skipped)


def to_frame(data: Any) -> pl.DataFrame | None:
    """A pandas, polars or Arrow table, or a dict of columns, as a polars frame; None for anything else."""
    if isinstance(data, pl.LazyFrame):
        return data.collect()
    if isinstance(data, pl.DataFrame):
        return data
    module = type(data).__module__.partition(".")[0]
    if module == "pandas" and hasattr(data, "columns"):
        names = [str(name) for name in data.columns]
        return _from_columns(names, [_pandas_cells(data.iloc[:, position]) for position in range(len(names))])
    if module == "pyarrow" and hasattr(data, "column_names"):
        return _from_columns(data.column_names, [column.to_pylist() for column in data.columns])
    if fields := getattr(getattr(data, "dtype", None), "names", None):  # of a structured array
        return _from_columns(fields, [data[name].tolist() for name in fields])
    if isinstance(data, Mapping) and data and all(_is_column(column) for column in data.values()):
        return _from_columns(list(map(str, data)), list(map(_to_list, data.values())))
    return None


def _from_columns(names: Sequence[str], columns: Sequence[Sequence[Any]]) -> pl.DataFrame:
    """All cells as text; missing ones are null."""
    if len(set(names)) < len(names):
        raise HarmoniumError(f"the frame: two columns have the same name: {', '.join(names)}")
    sizes = {name: len(column) for name, column in zip(names, columns, strict=True)}
    if len(set(sizes.values())) > 1:
        raise HarmoniumError(
            f"the columns have different lengths: {', '.join(f'{n} {size:,}' for n, size in sizes.items())}"
        )
    texts = {name: [text_of(cell) for cell in column] for name, column in zip(names, columns, strict=True)}
    return pl.DataFrame(texts, schema=dict.fromkeys(names, pl.String))


def _pandas_cells(column: Any) -> list[Any]:
    """The cells of a column; numbers and dates as pandas writes them."""
    if getattr(column.dtype, "kind", "O") not in "fmM":
        return list(column.tolist())
    cells = zip(column.astype(str).tolist(), column.notna().tolist(), strict=True)
    return [cell if is_valid else None for cell, is_valid in cells]


def _is_column(value: Any) -> bool:
    return hasattr(value, "__len__") and not isinstance(value, str | bytes | Mapping)


def _to_list(column: Any) -> list[Any]:
    return list(column.tolist() if hasattr(column, "tolist") else column)


def is_untitled(frame: pl.DataFrame) -> bool:
    """Whether the columns are only numbered, as those of a frame without a header."""
    width = frame.width
    numbered = [[str(i) for i in range(width)], [f"column_{i}" for i in range(width)]]
    return frame.columns in (*numbered, [f"column_{i + 1}" for i in range(width)])


def _from_networkx(graph: Any, options: Options, skipped: SkippedRows) -> pl.DataFrame:
    """The relation of an edge is its attribute `relation` (or predicate, label, ...), or its key if that is text.

    Where columns are chosen, they are attributes: the relation's and the weight's of edges, labels and types of nodes.
    """
    if not graph.is_directed():
        raise HarmoniumError("an undirected graph has no heads and tails; graph.to_directed() makes facts both ways")
    relations = options.fact_titles[1:2] or EDGE_RELATIONS
    labels = {"head_name": NODE_LABELS, "tail_name": NODE_LABELS} | {k: (v,) for k, v in options.label_titles.items()}
    types = {column: (title,) for column, title in options.type_titles.items()}
    node_columns = {column: names for column, names in (labels | types).items() if column != "relation_name"}
    keys = {"keys": True} if graph.is_multigraph() else {}
    rows, edges = [], []
    for head, tail, *key, attributes in graph.edges(data=True, **keys):
        edge = f": edge ({head}, {tail})"
        relation = _first(attributes, relations) or next((text for text in key if isinstance(text, str)), None)
        if relation is None:
            skipped.reject("the networkx graph", edge, "no relation", "; give it an attribute: relation='...'")
            continue
        nodes = {"head": graph.nodes[head], "tail": graph.nodes[tail]}
        further = [_first(nodes[column.split("_")[0]], names) for column, names in node_columns.items()]
        if options.weight_column is not None:
            further.append(_first(attributes, (str(options.weight_column),)))
        rows.append((text_of(head), relation, text_of(tail), *further))
        edges.append(edge)
    columns = [*COLUMNS, *node_columns, *[WEIGHT] * (options.weight_column is not None)]
    table = pl.DataFrame(rows, schema=dict.fromkeys(columns, pl.String), orient="row")
    titles = {WEIGHT: str(options.weight_column)}
    table = drop_unusable(table, "the networkx graph", edges.__getitem__, skipped, titles)
    skipped.finish()
    return table


def _first(attributes: Mapping[str, Any], names: Sequence[str]) -> str | None:
    return next((text_of(attributes[name]) for name in names if attributes.get(name) is not None), None)
