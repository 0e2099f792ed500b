"""CSV exports of Neo4j: files with the headers of neo4j-admin (:ID, :START_ID, :END_ID, :TYPE), or of apoc.export.csv.

A folder, or one file of relationships, named by the files of nodes beside it; a header may be a file of its own
(roles-header.csv beside roles.csv). One file of apoc.export.csv.all holds nodes and relationships. The column `name`
(or title, label) names a node. Relationships with `predicted` true, which `complete --to neo4j` writes, are left out.
"""

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

import polars as pl

from harmonium.data.compressed import read_lines, strip_compression
from harmonium.data.graph import Note
from harmonium.data.neo4j_address import NAMES
from harmonium.data.tables.columns import COLUMNS
from harmonium.data.tables.reading_options import Options
from harmonium.data.tables.separated_text import SEPARATORS, read_cells
from harmonium.data.tables.skipped_rows import SkippedRows
from harmonium.data.tables.source import Source
from harmonium.data.tables.table import choose_encoding, drop_unusable, line_name, to_source
from harmonium.errors import HarmoniumError

ENDINGS = (".csv", ".tsv", ".txt")
APOC = {"_id": "id", "_start": "head", "_end": "tail", "_type": "relation"}
ROLES = {"ID": "id", "START_ID": "head", "END_ID": "tail", "TYPE": "relation"}
FIELD = re.compile(r"(?P<name>[^:]*):(?P<role>ID|START_ID|END_ID|TYPE)(\((?P<space>[^)]*)\))?(\{.*\})?")
HEADER = re.compile(r"[-_.]?header$", re.IGNORECASE)
ROWS = 1 << 17  # read at a time
MAX_FILES = 10_000  # of a folder
TRUE = ("true", "1")


@dataclass(frozen=True)
class Table:
    """A file and what its columns are."""

    file: Path
    separator: str
    positions: dict[str, int]  # id, head, relation, tail, name, predicted -> column
    spaces: dict[str, str]  # id, head, tail -> the space of their identifiers
    width: int
    has_header: bool

    @property
    def has_facts(self) -> bool:
        return {"head", "tail"} <= self.positions.keys()


def detect(path: Path, options: Options) -> bool:
    if options.columns is not None:
        return False
    if path.is_file():
        return _is_text(path) and (table := _table(path)) is not None and table.has_facts
    has_splits = any(file.name.startswith("train") for file in path.iterdir())
    return not has_splits and any(table.has_facts for table in _tables(path))


def read(path: Path, options: Options) -> Source:
    folder = path.parent if path.is_file() else path
    tables = _tables(folder)
    if path.is_file():
        named_table = _table(path)
        tables = [table for table in tables if not table.has_facts] + ([named_table] if named_table else [])
    facts = [table for table in tables if table.has_facts]
    if missing := [table for table in facts if "relation" not in table.positions]:
        raise HarmoniumError(f"{missing[0].file}: relationships without a column :TYPE; add it with their type")
    notes: list[Note] = []
    skipped = SkippedRows(options.on_bad)
    name = path.absolute().name.split(".")[0]
    source = to_source(
        name, {"train": partial(_facts, facts, options, skipped, notes)}, str(path), notes=notes, skipped=skipped
    )
    for table in tables:
        if not table.has_facts:
            source.entity_names.update(_node_names(table, options, skipped, notes))
    return source


def _facts(tables: list[Table], options: Options, skipped: SkippedRows, notes: list[Note]) -> Iterator[pl.DataFrame]:
    """The relationships of some files, in parts; the rows of nodes between them give names."""
    n_predicted = 0
    yield pl.DataFrame(schema=dict.fromkeys(COLUMNS, pl.String))  # there is at least one part
    for table in tables:
        skipped.restart(table.file)
        rows, names = _rows(table, options, skipped, notes), {}
        while batch := list(islice(rows, ROWS)):
            facts = []
            for number, row in batch:
                cells = {role: row[position].strip() for role, position in table.positions.items()}
                if "id" in cells and not cells["head"] and not cells["tail"]:  # a node of apoc.export.csv.all
                    names[cells["id"]] = cells.get("name", "")
                elif cells.get("predicted", "").casefold() in TRUE:
                    n_predicted += 1
                else:
                    facts.append((number, _identified(table, cells)))
            columns = {column: [cells[column] for _, cells in facts] for column in COLUMNS}
            part = pl.DataFrame(columns, schema=dict.fromkeys(COLUMNS, pl.String))
            if names:
                part = part.with_columns(
                    *(_labels(part[column], names).alias(f"{column}_name") for column in ("head", "tail"))
                )
            yield drop_unusable(part, table.file, partial(line_name, facts), skipped, {})
    if n_predicted:
        text = f"left out {n_predicted:,} relationships that were predicted"
        notes.append(Note(text, "predicted", "", n_predicted))


def _labels(ids: pl.Series, names: dict[str, str]) -> pl.Series:
    return pl.Series([names.get(name, "") for name in ids], dtype=pl.String)


def _identified(table: Table, cells: dict[str, str]) -> dict[str, str]:
    """The fact of a row; identifiers of different spaces are different."""
    fact = {column: cells[column] for column in COLUMNS}
    return fact | {end: in_space(table.spaces.get(end), fact[end]) for end in ("head", "tail")}


def in_space(space: str | None, identifier: str) -> str:
    """An identifier, which is unique only in its space."""
    return f"{space}:{identifier}" if space and identifier else identifier


def _node_names(table: Table, options: Options, skipped: SkippedRows, notes: list[Note]) -> Iterator[tuple[str, str]]:
    """identifier -> name of the nodes of a file."""
    if "name" in table.positions:
        for _, row in _rows(table, options, skipped, notes):
            identifier, name = row[table.positions["id"]].strip(), row[table.positions["name"]]
            if identifier and name.strip():
                yield in_space(table.spaces.get("id"), identifier), name


def _rows(table: Table, options: Options, skipped: SkippedRows, notes: list[Note]) -> Iterator[tuple[int, list[str]]]:
    """Line numbers and cells, without the header; short rows end in empty cells."""
    encoding = choose_encoding(table.file, options, notes)
    rows = read_cells(table.file, table.separator, True, skipped, encoding)
    for number, row in islice(rows, int(table.has_header), None):
        yield number, row + [""] * (table.width - len(row))


# Headers -------------------------------------------------------------------------------------------------------------


def _tables(folder: Path) -> list[Table]:
    """The files of a folder with such headers, or with one in a file beside them."""
    files = sorted(file for file in islice(folder.iterdir(), MAX_FILES) if file.is_file() and _is_text(file))
    tables = {file: _table(file) for file in files}
    headers = {
        HEADER.sub("", _stem(file)): table for file, table in tables.items() if table and HEADER.search(_stem(file))
    }
    result = []
    for file, table in tables.items():
        if HEADER.search(_stem(file)):
            continue
        header = headers.get(re.sub(r"[-_.]?(part)?\d+$", "", _stem(file))) or headers.get(_stem(file))
        if table is None and header is not None:
            table = Table(file, header.separator, header.positions, header.spaces, header.width, has_header=False)
        if table is not None:
            result.append(table)
    return result


def _stem(file: Path) -> str:
    return strip_compression(file).stem


def _is_text(file: Path) -> bool:
    return strip_compression(file).suffix in ENDINGS


def _table(file: Path) -> Table | None:
    """What the first line of a file says of its columns; None if it is no header of Neo4j."""
    try:
        line = next(read_lines(file), "")
    except HarmoniumError:
        return None
    for separator in SEPARATORS:
        try:
            cells = [cell.strip() for cell in next(csv.reader([line], delimiter=separator), [])]
        except csv.Error:
            continue
        table = _admin_table(file, separator, cells) or _apoc_table(file, separator, cells)
        if table is not None:
            return table
    return None


def _admin_table(file: Path, separator: str, cells: list[str]) -> Table | None:
    positions: dict[str, int] = {}
    spaces: dict[str, str] = {}
    for position, cell in enumerate(cells):
        match = FIELD.fullmatch(cell)
        if match:
            role = ROLES[match["role"]]
            positions.setdefault(role, position)
            if match["space"]:
                spaces[role] = match["space"]
    if not ("id" in positions or {"head", "tail"} <= positions.keys()):
        return None
    return Table(file, separator, positions | _properties(cells), spaces, len(cells), has_header=True)


def _apoc_table(file: Path, separator: str, cells: list[str]) -> Table | None:
    positions = {role: cells.index(title) for title, role in APOC.items() if title in cells}
    if not {"head", "tail", "relation"} <= positions.keys():
        return None
    return Table(file, separator, positions | _properties(cells), {}, len(cells), has_header=True)


def _properties(cells: list[str]) -> dict[str, int]:
    """The columns of names and of predictions; a type may follow the name of a property (name:string)."""
    titles = [cell.partition(":")[0] for cell in cells]
    name = next((name for name in NAMES if name in titles), None)
    positions = {} if name is None else {"name": titles.index(name)}
    return positions | ({"predicted": titles.index("predicted")} if "predicted" in titles else {})
