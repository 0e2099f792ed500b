"""Tab-separated files with fixed columns: names of entities and relations, vocabularies and facts of ids."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import polars as pl

from harmonium.data.compressed import READ_ERRORS, create_file, find_file, numbered_lines, read_blocks
from harmonium.data.graph import SPLITS, Graph
from harmonium.data.names import WHITESPACE, is_empty
from harmonium.data.tables.columns import COLUMNS
from harmonium.data.tables.graph_source import names_table
from harmonium.data.tables.skipped_rows import SkippedRows
from harmonium.data.tables.text_encoding import UTF_8, reject_bytes
from harmonium.errors import HarmoniumError
from harmonium.runtime.untrusted import exists_as_file

SUFFIXES = (".txt", ".tsv")
TABLE_ERRORS: tuple[type[Exception], ...] = (pl.exceptions.PolarsError, *READ_ERRORS)


def split_files(path: Path, suffixes: Sequence[str]) -> tuple[str, Path, dict[str, Path]]:
    """The name of a graph, its folder, and the file of each split; a single file is all train."""
    if path.is_file():
        return path.name.split(".")[0], path.parent, {"train": path}
    files = {split: find_file(path, split, suffixes) for split in SPLITS}
    return path.name, path, {split: file for split, file in files.items() if file is not None}


def read_columns(path: Path, columns: Sequence[str], skip_lines: int = 0, separator: str = "\t") -> pl.DataFrame:
    """Read a table of strings; the error for a line of another width names the line."""
    return pl.concat(read_tables(path, columns, skip_lines, separator))


def read_tables(
    path: Path,
    columns: Sequence[str],
    skip_lines: int = 0,
    separator: str = "\t",
    progress: Callable[[int], object] | None = None,
) -> Iterator[pl.DataFrame]:
    """Read a table of strings in batches; the error for a line of another width names the line."""
    empty = True
    try:
        for block in read_blocks(path, skip_lines, progress):
            block = block.lstrip(b"\r\n")
            if not block:
                continue
            table = pl.read_csv(
                block, separator=separator, has_header=False, quote_char=None, schema=dict.fromkeys(columns, pl.String)
            )
            is_blank = table.select(pl.all().is_null() | (pl.all().str.strip_chars(WHITESPACE) == ""))
            table = table.filter(~is_blank.select(pl.all_horizontal(pl.all())).to_series())  # blank lines
            if is_blank.select(pl.any_horizontal(pl.all()).sum()).item() > len(is_blank) - len(table):
                raise _locate_error(path, columns, skip_lines, separator, None)
            empty = empty and table.is_empty()
            yield table
    except TABLE_ERRORS as error:
        raise _locate_error(path, columns, skip_lines, separator, error) from error
    if empty:
        raise HarmoniumError(f"{path}: no triples in it; fill it or remove it")


def _locate_error(
    path: Path, columns: Sequence[str], skip_lines: int, separator: str, error: Exception | None
) -> HarmoniumError:
    """Read a file that polars refused line by line, in order to name the faulty lines."""
    skipped = SkippedRows()
    expected = {"\t": " TAB ", " ": " space "}[separator].join(columns)
    may_skip, is_blank = tuple(columns) == COLUMNS, True
    try:
        for number, line in numbered_lines(path, partial(reject_bytes, path, UTF_8, skipped)):
            cells = line.rstrip("\r\n").split(separator)
            if number <= skip_lines or is_empty(line):
                continue
            is_blank = False
            column = next((column for column, cell in zip(columns, cells, strict=False) if is_empty(cell)), None)
            if len(cells) != len(columns):
                count = f"found {len(cells)} column{'s' * (len(cells) != 1)}, expected {len(columns)}"
                skipped.reject(path, f":{number}", count, f": {expected}", line)
            elif column is not None:
                skipped.reject(path, f":{number}", f"the {column} is empty", f"; expected {expected}", line)
            if skipped.first_error and not may_skip:
                return HarmoniumError(skipped.first_error)
        skipped.finish()
    except HarmoniumError as unreadable:
        return unreadable
    if is_blank:
        return HarmoniumError(f"{path}: no triples in it; fill it or remove it")
    return HarmoniumError(f"{path}: cannot be read as {expected} ({error})")


def names_beside(folder: Path) -> tuple[dict[str, str], dict[str, str]]:
    """identifier -> label of entities and of relations, from entity_names.tsv and relation_names.tsv if they exist."""
    return read_names(folder / "entity_names.tsv"), read_names(folder / "relation_names.tsv")


def read_names(path: Path) -> dict[str, str]:
    """identifier -> label; empty if the file does not exist."""
    if not exists_as_file(path):
        return {}
    return dict(read_columns(path, ["identifier", "name"]).unique("identifier", keep="first").iter_rows())


def write_names(graph: Graph, folder: Path) -> None:
    """entity_names.tsv and relation_names.tsv, if there are labels."""
    for kind, vocabulary in (("entity", graph.entities), ("relation", graph.relations)):
        table = names_table(vocabulary)
        if table is not None:
            write_table(folder / f"{kind}_names.tsv", table)


def write_table(
    path: Path, table: pl.DataFrame, header: bool = False, first_line: str = "", quotes: bool = False
) -> None:
    """Write tab-separated cells, either unquoted or all quoted."""
    with create_file(path) as file:
        file.write(first_line.encode())
        table.write_csv(file, include_header=header, separator="\t", quote_style="always" if quotes else "never")
