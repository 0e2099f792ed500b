"""GraphRAG: the folder of its output, with entities.parquet and relationships.parquet, or the file of relationships.

An entity is named by its title, as relationships do. Older versions write create_final_relationships.parquet.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from harmonium.data.formats.in_memory import EDGE_RELATIONS
from harmonium.data.formats.links import PREDICTED, Link, LinkReader, has_relation
from harmonium.data.formats.parquet import read_tables
from harmonium.data.tables.reading_options import Options
from harmonium.data.tables.skipped_rows import SkippedRows
from harmonium.data.tables.source import Source
from harmonium.data.tables.table import to_source, to_text
from harmonium.errors import HarmoniumError

PREFIXES = ("", "create_final_")
RELATIONSHIPS, ENTITIES = "relationships.parquet", "entities.parquet"
TITLES = ("title", "name")  # of an entity, in this version and in earlier ones
ADVICE = "is it the output folder of GraphRAG?"


def detect(path: Path, options: Options) -> bool:
    return _relationships(path) is not None


def read(path: Path, options: Options) -> Source:
    file = _relationships(path)
    assert file is not None, "detected"
    reader = LinkReader(str(file), options, SkippedRows(options.on_bad))
    name = file.parent.absolute().name
    tables = {"train": partial(_tables, file, reader)}
    return to_source(name.split(".")[0], tables, str(file), notes=reader.notes, skipped=reader.skipped)


def _relationships(path: Path) -> Path | None:
    """The file of relationships that a path names or holds."""
    names = [f"{prefix}{RELATIONSHIPS}" for prefix in PREFIXES]
    if path.is_file():
        return path if path.name in names else None
    return next((path / name for name in names if (path / name).is_file()), None)


def _tables(file: Path, reader: LinkReader) -> Iterator[pl.DataFrame]:
    reader.skipped.restart(file)
    entities = file.with_name(file.name.removesuffix(RELATIONSHIPS) + ENTITIES)
    return reader.tables(_links(file, reader.options), _types(entities) if entities.is_file() else ())


def _links(file: Path, options: Options) -> Iterator[Link]:
    """The rows of a table; GraphRAG's own have neither a type nor a direction."""
    head, relation, tail = options.fact_titles or ("source", "", "target")
    number = 0
    for table in read_tables(file):
        _check(table, file, [head, tail, *([relation] if relation else [])])
        kept = [name for name in table.columns if name in (relation, PREDICTED, *EDGE_RELATIONS)]
        names = [name for name in kept if not table.schema[name].is_nested()]
        for source, target, *cells in _texts(table, file, [head, tail, *names]):
            attributes = dict(zip(names, cells, strict=True))
            number += 1
            is_directed = bool(relation) or has_relation(attributes)
            yield Link(source, target, attributes, is_directed, f": row {number}")


def _types(file: Path) -> Iterator[tuple[str, str]]:
    """The type of each entity that has one."""
    for table in read_tables(file):
        title = next((name for name in TITLES if name in table.columns), TITLES[0])
        _check(table, file, [title])
        if "type" in table.columns:
            _check(table, file, ["type"])
            yield from _texts(table, file, [title, "type"])


def _texts(table: pl.DataFrame, file: Path, columns: list[str]) -> Iterator[Any]:
    """The cells of columns as text, row by row."""
    return to_text(table, {name: name for name in columns}, str(file)).fill_null("").iter_rows()


def _check(table: pl.DataFrame, file: Path, wanted: list[str]) -> None:
    for name in wanted:
        if name not in table.columns:
            raise HarmoniumError(f"{file}: no column '{name}'; it has {', '.join(table.columns[:12])}; {ADVICE}")
        if table.schema[name].is_nested():
            raise HarmoniumError(f"{file}: its column '{name}' holds lists, not names; {ADVICE}")
