"""Tab-separated triples: a folder with train (and valid, test) as .txt or .tsv, or one file.

Each line is head TAB relation TAB tail; blank lines are skipped. `entity_names.tsv` and `relation_names.tsv`
beside them hold identifier TAB name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import polars as pl

from harmonium.errors import HarmoniumError
from harmonium.formats import COLUMNS, SPLITS, Options, Source
from harmonium.formats.files import BROKEN, blocks, create, find, lines
from harmonium.graph import Graph

ENDINGS = (".txt", ".tsv")


def detect(path: Path, options: Options) -> bool:
    return path.is_file() or find(path, "train", ENDINGS) is not None


def read(path: Path, options: Options) -> Source:
    if path.is_file():
        train = tables(path, COLUMNS, watch=options.watch)
        return Source(path.name.split(".")[0], {"train": train}, **names_beside(path.parent))
    files = {split: file for split in SPLITS if (file := find(path, split, ENDINGS))}
    return Source(
        path.name, {s: tables(f, COLUMNS, watch=options.watch) for s, f in files.items()}, **names_beside(path)
    )


def read_columns(path: Path, columns: list[str], skip_lines: int = 0, separator: str = "\t") -> pl.DataFrame:
    """A table of strings; a line of another width is an error that names it."""
    return pl.concat(tables(path, columns, skip_lines, separator))


def tables(
    path: Path,
    columns: list[str],
    skip_lines: int = 0,
    separator: str = "\t",
    watch: Callable[[int], object] | None = None,
) -> Iterator[pl.DataFrame]:
    """The same, one part after the other."""
    empty = True
    try:
        for block in blocks(path, skip_lines, watch):
            table = pl.read_csv(
                block, separator=separator, has_header=False, quote_char=None, schema=dict.fromkeys(columns, pl.String)
            )
            table = table.filter(~pl.all_horizontal(pl.all().is_null()))  # blank lines
            if table.null_count().sum_horizontal().item():
                raise _explain(path, columns, skip_lines, separator, None)
            empty = empty and table.is_empty()
            yield table
    except (pl.exceptions.PolarsError, *BROKEN) as error:
        raise _explain(path, columns, skip_lines, separator, error) from error
    if empty:
        raise HarmoniumError(f"{path}: no triples in it; fill it or remove it")


def _explain(
    path: Path, columns: list[str], skip_lines: int, separator: str, error: Exception | None
) -> HarmoniumError:
    """Read slowly, once something is wrong, to say which line it is."""
    shown = {"\t": "TAB", " ": "space"}[separator]
    wanted = f" {shown} ".join(columns)
    try:
        for number, line in enumerate(lines(path), start=1):
            fields = line.rstrip("\r\n").split(separator)
            if number <= skip_lines or fields == [""]:
                continue
            if len(fields) != len(columns):
                found = f"found {len(fields)} column{'s' * (len(fields) != 1)}"
                return HarmoniumError(f"{path}:{number}: {found}, expected {len(columns)}: {wanted}")
            if "" in fields:
                return HarmoniumError(f"{path}:{number}: the {columns[fields.index('')]} is empty; expected {wanted}")
    except HarmoniumError as unreadable:
        return unreadable
    return HarmoniumError(f"{path}: cannot be read as {wanted} ({error})")


def names_beside(folder: Path) -> dict[str, dict[str, str]]:
    """What entity_names.tsv and relation_names.tsv say, where they are."""
    names = {}
    for kind in ("entity", "relation"):
        file = folder / f"{kind}_names.tsv"
        if file.is_file():
            table = read_columns(file, ["identifier", "name"]).unique("identifier", keep="first")
            names[f"{kind}_names"] = dict(table.iter_rows())
    return names


def write(graph: Graph, path: Path, splits: Sequence[str], alone: bool) -> None:
    """head TAB relation TAB tail; a file that stands alone and has more to tell gets a header and more columns."""
    from harmonium.formats.table import to_table

    table = to_table(graph, splits, alone)
    with create(path) as file:
        table.write_csv(file, include_header=table.width > 3, separator="\t", quote_style="never")


def write_names(graph: Graph, folder: Path) -> None:
    """entity_names.tsv and relation_names.tsv, where there are names."""
    from harmonium.formats.table import names

    for kind, vocabulary in (("entity", graph.entities), ("relation", graph.relations)):
        if (table := names(vocabulary)) is not None:
            with create(folder / f"{kind}_names.tsv") as file:
                table.write_csv(file, include_header=False, separator="\t", quote_style="never")
