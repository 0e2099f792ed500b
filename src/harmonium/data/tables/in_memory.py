"""Graphs in memory: pandas and polars frames, lists of rows, arrays, columns by name, networkx graphs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from harmonium.data.graph import Note
from harmonium.data.tables.columns import COLUMNS, WEIGHT
from harmonium.data.tables.facts import facts_of_tables, usable_rows
from harmonium.data.tables.graph_source import to_source
from harmonium.data.tables.reading_options import Options
from harmonium.data.tables.skipped_rows import SkippedRows
from harmonium.data.tables.source import Source
from harmonium.data.tables.table import Batch, Table, table_of_values
from harmonium.data.tables.values import WHOLE_NUMBER, text_of, to_rows
from harmonium.errors import HarmoniumError

NODE_LABELS = ("name", "label")  # attributes that label a node
# attributes that name the relation of an edge
EDGE_RELATIONS = ("relation", "predicate", "property", "relationship", "label", "type")


def read(data: Any, options: Options) -> Source:
    """Facts from the columns of a frame or a dict, the rows of a list or an array, or the edges of a networkx graph."""
    skipped, notes = SkippedRows(options.on_bad), list[Note]()
    if is_networkx(data):
        edges = _from_networkx(data, options, skipped, notes)
        return to_source(
            str(data.name or "graph"), {"train": [edges]}, "the networkx graph", notes=notes, skipped=skipped
        )
    table = open_memory(data, options, skipped)
    name = table.location.removeprefix("the ")
    source = to_source(
        name, facts_of_tables({"train": table}, options, skipped, notes), table.location, notes=notes, skipped=skipped
    )
    return replace(source, is_guess=options.columns is None)


def is_networkx(data: Any) -> bool:
    return hasattr(data, "is_directed") and hasattr(data, "edges")


def open_memory(data: Any, options: Options, skipped: SkippedRows) -> Table:
    """The rows of a frame, a list, an array or a dict of columns."""
    frame = to_frame(data)
    if frame is None:
        name = "the array" if hasattr(data, "shape") else "the list"
        return table_of_values(name, ((f": row {n}", row) for n, row in enumerate(to_rows(data), start=1)), skipped)
    is_chosen = options.columns is not None and set(options.fact_titles) <= set(frame.columns)
    titles = None if is_untitled(frame) and not is_chosen else frame.columns
    if titles is None and frame.is_empty():
        return Table("the frame", None, iter(()))
    return Table("the frame", titles, iter([Batch(frame, lambda row: f": row {row + 1}")]))


def to_frame(data: Any) -> pl.DataFrame | None:
    """A pandas, polars or Arrow table, or a dict of columns, as a polars frame; None for anything else."""
    if isinstance(data, pl.LazyFrame):
        return data.collect()
    if isinstance(data, pl.DataFrame):
        return data
    module = type(data).__module__.partition(".")[0]
    if module == "pandas" and hasattr(data, "columns"):
        if len(data.columns) < len(COLUMNS) and any(name is not None for name in data.index.names):
            data = data.reset_index()  # the index holds the head, or head and relation
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
    """The cells of a column as text; numbers and dates as pandas writes them, except whole floats (`text_of`)."""
    if getattr(column.dtype, "kind", "O") not in "fmM":
        return list(column.tolist())
    cells = zip(column.astype(str).tolist(), column.notna().tolist(), strict=True)
    texts = [cell if is_valid else None for cell, is_valid in cells]
    return [text and WHOLE_NUMBER.sub(r"\1", text) for text in texts] if column.dtype.kind == "f" else texts


def _is_column(value: Any) -> bool:
    return hasattr(value, "__len__") and not isinstance(value, str | bytes | Mapping)


def _to_list(column: Any) -> list[Any]:
    return list(column.tolist() if hasattr(column, "tolist") else column)


def is_untitled(frame: pl.DataFrame) -> bool:
    """Whether column names are only numbers, as in a frame read without a header."""
    width = frame.width
    numbered = [[str(i) for i in range(width)], [f"column_{i}" for i in range(width)]]
    return frame.columns in (*numbered, [f"column_{i + 1}" for i in range(width)])


def _from_networkx(graph: Any, options: Options, skipped: SkippedRows, notes: list[Note]) -> pl.DataFrame:
    """Facts from edges: the relation is the attribute `relation` (or predicate, label, ...), or the edge key if it is text.

    Columns that the user names are attributes: of edges for the relation and the weight, of nodes for labels and types. The
    attribute `weight`, which networkx itself uses, is the weight unless another one is named.
    """
    if not graph.is_directed():
        raise HarmoniumError("an undirected graph has no heads and tails; graph.to_directed() makes facts both ways")
    names = _node_names(graph)
    weight = str(options.weight_column or WEIGHT)
    relations = options.fact_titles[1:2] or EDGE_RELATIONS
    labels = {"head_name": NODE_LABELS, "tail_name": NODE_LABELS} | {k: (v,) for k, v in options.label_titles.items()}
    types = {column: (title,) for column, title in options.type_titles.items()}
    node_columns = {column: titles for column, titles in (labels | types).items() if column != "relation_name"}
    keys = {"keys": True} if graph.is_multigraph() else {}
    rows, edges, is_weighted = [], [], options.weight_column is not None
    for head, tail, *key, attributes in graph.edges(data=True, **keys):
        edge = f": edge ({head}, {tail})"
        relation = _first(attributes, relations) or next((text for text in key if isinstance(text, str)), None)
        if relation is None:
            skipped.reject("the networkx graph", edge, "no relation", "; give it an attribute: relation='...'")
            continue
        nodes = {"head": graph.nodes[head], "tail": graph.nodes[tail]}
        node_cells = [_first(nodes[column.split("_")[0]], titles) for column, titles in node_columns.items()]
        is_weighted = is_weighted or weight in attributes
        rows.append((names[head], relation, names[tail], *node_cells, _first(attributes, (weight,))))
        edges.append(edge)
    columns = [*COLUMNS, *node_columns, WEIGHT]
    table = pl.DataFrame(rows, schema=dict.fromkeys(columns, pl.String), orient="row")
    table = table if is_weighted else table.drop(WEIGHT)
    if rows:
        notes.append(
            Note(f"nodes are head and tail of each edge; for example: {' - '.join(map(str, rows[0][:3]))}", "reading")
        )
    table = usable_rows(Batch(table, edges.__getitem__), "the networkx graph", skipped, {WEIGHT: weight}, notes)
    skipped.finish()
    return table


def _node_names(graph: Any) -> dict[Any, str]:
    """The name of each node as text; two nodes with one name, such as 1 and '1', are an error."""
    nodes: dict[str, Any] = {}
    for node in graph.nodes:
        name = text_of(node)
        if (other := nodes.setdefault(name, node)) is not node and name:
            raise HarmoniumError(
                f"the networkx graph: the nodes {other!r} and {node!r} are different, but both are named '{name}'; unite or "
                "rename them (networkx.relabel_nodes)"
            )
    return {node: name for name, node in nodes.items()} | {node: "" for node in graph.nodes if not text_of(node)}


def _first(attributes: Mapping[str, Any], names: Sequence[str]) -> str | None:
    return next((text_of(attributes[name]) for name in names if attributes.get(name) is not None), None)
