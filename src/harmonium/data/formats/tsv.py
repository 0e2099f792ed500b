"""Tab-separated triples: a folder with train (and valid, test) as .txt or .tsv, or one file.

Each line is head TAB relation TAB tail; blank lines are skipped. `entity_names.tsv` and `relation_names.tsv`
beside them hold identifier TAB label.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import polars as pl

from harmonium.data.compressed import READ_ERRORS, create_file, find_file, numbered_lines, read_blocks
from harmonium.data.formats.format import Format
from harmonium.data.graph import SPLITS, Graph, Note
from harmonium.data.names import BLANKS, is_empty
from harmonium.data.tables.columns import COLUMNS, check_titles, is_header, judge_first_row
from harmonium.data.tables.reading_options import Options
from harmonium.data.tables.separated_text import SAMPLE, read_cells, reject_bytes
from harmonium.data.tables.skipped_rows import SkippedRows
from harmonium.data.tables.source import Source
from harmonium.data.tables.table import first_row_is_header, names_table, to_table
from harmonium.data.tables.text_encoding import UTF_8
from harmonium.errors import HarmoniumError
from harmonium.runtime.untrusted import exists_as_file

ENDINGS = (".txt", ".tsv")
ROWS = 1 << 16  # of a graph compared at a time
POSITIONS = {column: position for position, column in enumerate(COLUMNS)}
TABLE_ERRORS: tuple[type[Exception], ...] = (pl.exceptions.PolarsError, *READ_ERRORS)


def detect(path: Path, options: Options) -> bool:
    return path.is_file() or find_file(path, "train", ENDINGS) is not None


def read(path: Path, options: Options) -> Source:
    name, folder, files = split_files(path, ENDINGS)
    tables: dict[str, Iterator[pl.DataFrame]] = {}
    notes: list[Note] = []
    tabs = Options(delimiter="\t", quotes=False, encoding=UTF_8)
    for split, file in files.items():
        facts = facts_in([file, *(other for other in files.values() if other != file)], tabs)
        first, skip_lines = next(facts, None), 0
        if first is not None and first_row_is_header(first, facts, f"{file.name}:1", notes):
            skip_lines, titles = next(read_cells(file, "\t", quotes=False))
            check_titles(titles, f"{file}:{skip_lines}")
        tables[split] = read_tables(file, COLUMNS, skip_lines, progress=options.progress)
    entity_names, relation_names = names_beside(folder)
    return Source(name, dict(tables), entity_names=entity_names, relation_names=relation_names, notes=notes)


def facts_in(files: Sequence[Path], options: Options, positions: Mapping[str, int] = POSITIONS) -> Iterator[list[str]]:
    """Head, relation and tail of each row of the files that can be read."""
    reading = options.delimiter, options.quotes, SkippedRows("skip"), options.encoding
    columns = [positions[column] for column in COLUMNS]
    rows = (row for file in files for _, row in read_cells(file, *reading))
    return ([row[position] for position in columns] for row in rows if len(row) > max(columns))


def split_files(path: Path, endings: Sequence[str]) -> tuple[str, Path, dict[str, Path]]:
    """The name of a graph, its folder, and the file of each split; a single file is all train."""
    if path.is_file():
        return path.name.split(".")[0], path.parent, {"train": path}
    files = {split: find_file(path, split, endings) for split in SPLITS}
    return path.name, path, {split: file for split, file in files.items() if file is not None}


def read_columns(path: Path, columns: Sequence[str], skip_lines: int = 0, separator: str = "\t") -> pl.DataFrame:
    """A table of strings; a line of another width is an error that names it."""
    return pl.concat(read_tables(path, columns, skip_lines, separator))


def read_tables(
    path: Path,
    columns: Sequence[str],
    skip_lines: int = 0,
    separator: str = "\t",
    progress: Callable[[int], object] | None = None,
) -> Iterator[pl.DataFrame]:
    """The same, in parts."""
    empty = True
    try:
        for block in read_blocks(path, skip_lines, progress):
            table = pl.read_csv(
                block, separator=separator, has_header=False, quote_char=None, schema=dict.fromkeys(columns, pl.String)
            )
            is_blank = table.select(pl.all().is_null() | (pl.all().str.strip_chars(BLANKS) == ""))
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
    """Read a file that polars refused line by line, to name the lines."""
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
    """identifier -> label; empty if there is no such file."""
    if not exists_as_file(path):
        return {}
    return dict(read_columns(path, ["identifier", "name"]).unique("identifier", keep="first").iter_rows())


def write(graph: Graph, path: Path, splits: Sequence[str], alone: bool) -> None:
    """head TAB relation TAB tail; splits and labels of a file that stands alone are more columns, with a header."""
    table = to_table(graph, splits, alone)
    rows = table.head(SAMPLE).rows()
    cells = [str(cell) for row in rows for cell in row]
    n_quoted = sum(len(cell) > 1 and cell[0] == cell[-1] == '"' for cell in cells)
    may_seem_quoted = 2 * n_quoted > len(cells)  # which a reader would take for quoted cells: `guess_layout`
    write_table(path, table, header=table.width > 3 or _seems_header(graph, rows[0]), quotes=may_seem_quoted)


def _seems_header(graph: Graph, first: Sequence[str]) -> bool:
    """Whether a reader would take the first fact of a file without a header for one."""
    try:
        check_titles(first, "")
    except HarmoniumError:
        return True
    facts = graph.facts().to_rows().split(ROWS)
    others = (
        (graph.entities.ids[head], graph.relations.ids[relation], graph.entities.ids[tail])
        for part in facts
        for head, relation, tail in part.tolist()
    )
    different = (fact for fact in others if fact != tuple(first))
    return is_header(first) or judge_first_row(first, different) == "header"


def write_names(graph: Graph, folder: Path) -> None:
    """entity_names.tsv and relation_names.tsv, if there are labels."""
    for kind, vocabulary in (("entity", graph.entities), ("relation", graph.relations)):
        table = names_table(vocabulary)
        if table is not None:
            write_table(folder / f"{kind}_names.tsv", table)


def write_table(
    path: Path, table: pl.DataFrame, header: bool = False, first_line: str = "", quotes: bool = False
) -> None:
    """Tab-separated cells, as they are or all in quotes."""
    with create_file(path) as file:
        file.write(first_line.encode())
        table.write_csv(file, include_header=header, separator="\t", quote_style="always" if quotes else "never")


FORMAT = Format("tsv", "TSV", "Tab-separated triples.", read, ENDINGS, detect, write, written=(".tsv", ".txt"))
