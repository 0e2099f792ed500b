"""A Neo4j database: bolt://host:7687/database, read over Bolt as rows of a Cypher query (address.py).

By default every relationship is a fact: its type is the relation, and its nodes have a name and the database's element id.
A query returns head, relation and tail (by these or similar names, or in this order), as text, nodes or relationships.
Relationships with `predicted: true`, which `complete --to` writes, are left out.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from typing import Any

import polars as pl

from harmonium.data.formats.format import Server
from harmonium.data.formats.neo4j.address import Neo4jAddress, facts_query, is_neo4j
from harmonium.data.tables.columns import COLUMNS, choose_variables
from harmonium.data.tables.facts import usable_rows
from harmonium.data.tables.graph_source import to_source
from harmonium.data.tables.reading_options import Options
from harmonium.data.tables.skipped_rows import SkippedRows
from harmonium.data.tables.source import Source
from harmonium.data.tables.table import Batch
from harmonium.runtime.limited_process import Limits, stream

# of the reading process, which holds a few thousand rows at a time; idle: seconds until a query yields its first rows
READ_LIMITS = Limits(memory=1 << 30, seconds=3600, output=1 << 36, idle=300)
ADVICE_TO_ASK_LESS = "ask for less: a query with a LIMIT, or ?label=..."
LABEL_COLUMN = {"head": "head_name", "tail": "tail_name"}


def read(text: str, options: Options) -> Source:
    """Read all facts of the database, or those that a query returns."""
    address = Neo4jAddress.parse(text)
    skipped = SkippedRows(options.on_bad)
    return to_source(
        address.graph_name, {"train": _tables(address, options, skipped)}, address.location, skipped=skipped
    )


def _tables(address: Neo4jAddress, options: Options, skipped: SkippedRows) -> Iterator[pl.DataFrame]:
    """Facts in batches, as the server sends them."""
    location = address.location
    arguments = {
        "address": asdict(address),
        "query": options.query or facts_query(address),
        "parameters": {} if options.query else {"labels": list(address.labels)},
        "allow_internal": options.allow_internal,
    }
    messages = stream(
        "harmonium.data.formats.neo4j.bolt_session:read_rows", arguments, READ_LIMITS, location, ADVICE_TO_ASK_LESS
    )
    names = json.loads(next(messages)[0])
    chosen = choose_variables(names, options, f"the columns of {location}")
    n_rows = 0
    for (content,) in messages:
        table = _table(json.loads(content), chosen)
        yield usable_rows(Batch(table, partial(_row_name, n_rows)), location, skipped, {})
        n_rows += len(table)


def _row_name(before: int, row: int) -> str:
    return f": row {before + row + 1}"


def _table(rows: list[list[Any]], chosen: dict[str, int]) -> pl.DataFrame:
    """Rows as a table; names of nodes become labels."""
    columns = {column: [row[position] for row in rows] for column, position in chosen.items()}
    for column in COLUMNS:
        cells = columns[column]
        if column in LABEL_COLUMN and any(isinstance(cell, list) for cell in cells):
            columns[LABEL_COLUMN[column]] = [cell[1] if isinstance(cell, list) else None for cell in cells]
        columns[column] = [cell[0] if isinstance(cell, list) else cell for cell in cells]
    return pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.String))


SERVER = Server(
    "neo4j",
    "Neo4j",
    "All relationships of a database, or the rows of a Cypher query: bolt://HOST/DATABASE.",
    is_neo4j,
    read,
    lambda address: Neo4jAddress.parse(address).graph_name,
)
