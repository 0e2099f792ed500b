"""The facts in a table: finds their columns, decides whether the first row is a header, and reads the rows as text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from harmonium.data.graph import Note
from harmonium.data.names import PLACEHOLDERS, WHITESPACE, clean_name
from harmonium.data.tables.columns import (
    CLEAR,
    COLUMNS,
    COMPARED_ROWS,
    SAMPLED_ROWS,
    WEIGHT,
    choose_columns,
    choose_open_columns,
    is_header,
    is_in_disorder,
    judge_first_row,
    title_words,
)
from harmonium.data.tables.reading_options import Options
from harmonium.data.tables.skipped_rows import SkippedRows
from harmonium.data.tables.table import Batch, Table
from harmonium.data.tables.values import text_of
from harmonium.errors import HarmoniumError

COLUMNS_IN_NOTE = 8
DECIMAL, WHOLE = r"^-?\d+\.\d+$", r"^(-?\d+)\.0+$"


@dataclass
class FactTable:
    """A table whose columns are known. `batches` yields its rows, and can be called once."""

    table: Table
    titles: Sequence[str] | None
    positions: Mapping[str, int]  # column -> position
    has_header: bool  # whether the first row is a header, which is not read as a fact
    numbers: frozenset[str]  # columns of decimal numbers, in which whole ones are read as 2 and not as 2.0

    @property
    def column_titles(self) -> dict[str, str]:
        """column -> its name in the table, or its number."""
        titles = self.titles
        return {c: titles[i] if titles is not None else str(i + 1) for c, i in self.positions.items()}

    def batches(self, skipped: SkippedRows) -> Iterator[Batch]:
        """The chosen columns as text, without the header and its repetitions."""
        is_first = True
        for batch in self.table.batches:
            offset = int(self.has_header and is_first)
            is_first = False
            frame = to_text(batch.cells[offset:], self.positions, self.table.location)
            if self.numbers:
                frame = frame.with_columns(pl.col(column).str.replace(WHOLE, "${1}") for column in self.numbers)
            names: Sequence[int] = range(offset, offset + len(frame))
            if self.has_header and self.titles is not None:
                frame, names = self._without_header(batch, frame, names, skipped)
            yield Batch(frame, _renamed(batch, names))

    def _without_header(
        self, batch: Batch, frame: pl.DataFrame, names: Sequence[int], skipped: SkippedRows
    ) -> tuple[pl.DataFrame, Sequence[int]]:
        """The rows without repetitions of the header, as concatenated files have them."""
        assert self.titles is not None
        again = [frame[column].str.strip_chars(WHITESPACE) == self.titles[i] for column, i in self.positions.items()]
        is_again = pl.select(pl.all_horizontal(again).fill_null(False)).to_series()
        if not is_again.any():
            return frame, names
        for row in is_again.arg_true().to_list():
            skipped.skip(self.table.location, batch.row_name(names[row]), "repeated header", ", ".join(self.titles))
        kept = (~is_again).arg_true().to_list()
        return frame[kept], [names[row] for row in kept]


def _renamed(batch: Batch, rows: Sequence[int]) -> Callable[[int], str]:
    return lambda row: batch.row_name(rows[row])


def open_facts(
    table: Table,
    options: Options,
    skipped: SkippedRows,
    notes: list[Note],
    others: Iterable[Table] = (),
    columns: Sequence[str] = COLUMNS,
    may_be_open: bool = False,
    is_graph: bool = True,
) -> FactTable:
    """Find the columns of facts in a table, and note how it is read.

    The first row is compared with the rows below and with `others`, further tables of the same graph. `columns` may list
    more than head, relation and tail. With `may_be_open` the column of one slot may be missing (a table of queries). Unless
    it `is_graph`, contents do not decide which columns are which: a list of facts to look up may be short.
    """
    first = table.peek()
    if first is None:
        raise skipped.nothing_left(table.location)
    location = f"{table.location}{first.row_name(0)}" if table.titles is None and len(first.cells) else table.location
    titles: Sequence[str] | None = table.titles
    sample, has_header = first.cells.head(SAMPLED_ROWS), False
    if titles is None and len(sample):
        cells = [text_of(cell) for cell in first.cells.row(0)]
        rows = [batch.cells for batch in (first, *(each.peek() for each in others)) if batch is not None]
        has_header, titles = _header(cells, rows, options, table.location, first.row_name(0), notes, is_graph)
        sample = sample[1:] if has_header else sample
    positions = _positions(titles, options, location, sample, columns, may_be_open, is_graph)
    facts = {column: position for column, position in positions.items() if column in COLUMNS}
    numbers = frozenset(c for c, i in facts.items() if _is_decimal(sample.to_series(i)))
    opened = FactTable(table, titles, positions, has_header, numbers)
    _note_reading(opened, sample, options, notes, may_be_open)
    return opened


def _header(
    cells: Sequence[str],
    tables: Sequence[pl.DataFrame],
    options: Options,
    location: str,
    row: str,
    notes: list[Note],
    is_graph: bool,
) -> tuple[bool, Sequence[str] | None]:
    """Whether the first row is a header, and if so its column names."""
    titles = [cell.strip() for cell in cells]
    if options.header is not None:
        return options.header, titles if options.header else None
    if options.names_columns:
        return True, titles
    if titles in (numbers := [str(i) for i in range(len(titles))], ["", *numbers[:-1]]) and len(titles) > 2:
        return True, titles if titles[0] == "" else None  # pandas wrote column numbers as a header
    if is_header(titles) and (not is_in_disorder(titles) or not _recurs(titles, tables)):
        return True, titles
    words = title_words(titles)
    if not is_graph or len(titles) < 3:
        is_titled = len(set(words) & CLEAR) > 1 and not _recurs(titles, tables)
        return is_titled, titles if is_titled else None
    if options.columns is None and len(titles) > 3:
        known = [word for word in words if word in CLEAR or word in ("property", "value", "relation_type", "item")]
        return (True, titles) if known and not _recurs(titles, tables) else (False, None)
    positions = [int(title) - 1 for title in options.fact_titles] or [0, 1, 2]
    if max(positions) >= len(titles):
        return False, None
    first = [cells[position] for position in positions]
    rest = (
        ["" if row[i] is None else text_of(row[i]) for i in positions]
        for number, frame in enumerate(tables)
        if frame.width > max(positions)
        for row in frame[int(number == 0) :].head(COMPARED_ROWS).iter_rows()
    )
    verdict = judge_first_row(first, rest)
    if verdict != "header" and options.columns is None and set(words) & CLEAR and not _recurs(titles, tables):
        verdict = "header"  # relation, player, club
    if verdict == "fact":
        return False, None
    shown, name = ", ".join(first), str(location).replace("\\", "/").rsplit("/", 1)[-1]
    text = f"read as a fact ({shown}), though it may be a header; --header (load: header=True) reads it as one"
    if verdict == "header":
        text = f"read as a header ({shown}), not as a fact; --no-header (load: header=False) reads it as a fact"
    _add(notes, Note(f"{name}{row}: {text}", "header"))
    return (True, titles) if verdict == "header" else (False, None)


def _recurs(titles: Sequence[str], tables: Sequence[pl.DataFrame]) -> bool:
    """Whether a cell of the first row recurs in its column, as names do and column names do not; a relation may be r."""
    for number, frame in enumerate(tables):
        cells = frame[int(number == 0) :].head(COMPARED_ROWS)
        for i, title in enumerate(titles[: cells.width]):
            if (
                title not in ("", "r", "p")
                and cells.to_series(i).dtype == pl.String
                and (cells.to_series(i).str.strip_chars() == title).any()
            ):
                return number > 0 or not _is_repeated(titles, cells)
    return False


def _is_repeated(titles: Sequence[str], table: pl.DataFrame) -> bool:
    """Whether the whole first row is repeated, as is the header in concatenated files."""
    same = [table.to_series(i).str.strip_chars() == title for i, title in enumerate(titles[: table.width]) if title]
    return bool(pl.select(pl.all_horizontal(same).any()).item())


def _positions(
    titles: Sequence[str] | None,
    options: Options,
    location: str,
    sample: pl.DataFrame,
    columns: Sequence[str],
    may_be_open: bool,
    is_graph: bool,
) -> dict[str, int]:
    more = [column for column in columns if column not in COLUMNS]
    if titles is None:
        taken = {} if options.columns is None else choose_columns(None, options, location, sample)
        first = max(taken.values(), default=len(COLUMNS) - 1) + 1
        rest = {column: first + number for number, column in enumerate(more)}
        if more and max(rest.values()) >= sample.width:
            count = f"found {sample.width} columns, expected {len(columns)}"
            raise HarmoniumError(f"{location}: {count}: {', '.join(columns)}")
        shown = sample if is_graph else sample[:0]  # contents count only for a graph
        chosen = taken or choose_columns(None, options, location, shown[:, : sample.width - len(more)])
        return chosen | rest
    words = title_words(titles)
    if missing := [column for column in more if column not in words]:
        raise HarmoniumError(f"{location}: no column '{missing[0]}'; there are {', '.join(titles)}")
    rest = {column: words.index(column) for column in more}
    if may_be_open and options.columns is None and not is_header(titles):
        if options.header and len(titles) == len(columns) and not set(words) & CLEAR:
            return dict(zip(columns, range(len(columns)), strict=True))
        return choose_open_columns(titles, location) | rest
    if more:
        kept = [i for i in range(len(titles)) if i not in rest.values()]
        chosen = choose_columns([titles[i] for i in kept], options, location, sample[:, kept])
        return {column: kept[i] for column, i in chosen.items()} | rest
    return choose_columns(titles, options, location, sample)


def _is_decimal(cells: pl.Series) -> bool:
    """Whether a text column has decimal numbers only: pandas writes whole numbers so if the column had a missing value."""
    if cells.dtype != pl.String:
        return False
    texts = cells.drop_nulls().str.strip_chars(WHITESPACE)
    texts = texts.filter(texts != "")
    return bool(len(texts)) and bool(texts.str.contains(DECIMAL).all())


def _note_reading(
    facts: FactTable, sample: pl.DataFrame, options: Options, notes: list[Note], may_be_open: bool
) -> None:
    """Note which columns became head, relation and tail, with an example, and which columns are not used."""
    titles, table = facts.column_titles, facts.table
    names = [
        f"{c} = {titles[c] if facts.titles is not None else f'column {titles[c]}'}" for c in COLUMNS if c in titles
    ]
    rows = to_text(sample.head(1), facts.positions, table.location).rows(named=True)
    example = ""
    if rows and not may_be_open:
        example = f"; for example: {' - '.join(clean_name(rows[0][column] or '') for column in COLUMNS)}"
    if not any(note.kind == "reading" for note in notes):
        _add(notes, Note(f"{', '.join(names)}{example}", "reading"))
    if facts.numbers:
        text = f"whole numbers in the columns of {', '.join(sorted(facts.numbers))}, written as 2.0, are read as 2"
        _add(notes, Note(text, "numbers"))
    if options.columns is not None or facts.titles is None:
        return
    used = facts.positions.values()
    unused = [title or "(no name)" for position, title in enumerate(facts.titles) if position not in used]
    if unused:
        shown = ", ".join(unused[:COLUMNS_IN_NOTE]) + ", ..." * (len(unused) > COLUMNS_IN_NOTE)
        name = table.location.replace("\\", "/").rsplit("/", 1)[-1]
        text = f"{name}: columns not used: {shown} (--label-columns, --type-columns and --weight-column use them)"
        _add(notes, Note(text, "unused columns", "", len(unused)))


def _add(notes: list[Note], note: Note) -> None:
    notes += [note] * (note not in notes)


def to_text(frame: pl.DataFrame, positions: Mapping[str, int], location: str) -> pl.DataFrame:
    """Columns of a frame, by position, as strings."""
    try:
        return pl.DataFrame({name: _text_column(frame.to_series(i)) for name, i in positions.items()})
    except pl.exceptions.PolarsError as error:
        raise HarmoniumError(f"{location}: its columns are not text or numbers ({error})") from error


def _text_column(column: pl.Series) -> pl.Series:
    if column.dtype == pl.Binary:
        return pl.Series(map(text_of, column), dtype=pl.String)
    if column.dtype.is_nested():  # polars would write a struct as text
        raise pl.exceptions.InvalidOperationError(f"{column.name or 'one'} has values of type {column.dtype}")
    if column.dtype.is_float():  # whole numbers with a missing value among them: 2.0 is 2
        return column.fill_nan(None).cast(pl.String).str.replace(WHOLE, "${1}")
    return column.cast(pl.String)


def usable_rows(
    batch: Batch, location: object, skipped: SkippedRows, titles: Mapping[str, str], notes: list[Note] | None = None
) -> pl.DataFrame:
    """Keep the rows with three names and a valid weight; others are rejected (`SkippedRows`).

    An empty weight counts as 1.
    """
    table, row_name = batch.cells, batch.row_name
    cells = [pl.col(column).str.strip_chars(WHITESPACE) for column in COLUMNS]
    is_suspicious = [cell.is_null() | (cell == "") | cell.str.to_lowercase().is_in(PLACEHOLDERS) for cell in cells]
    rows = table.select(COLUMNS).with_row_index("row").filter(pl.any_horizontal(is_suspicious))
    rejected = {
        row
        for row, *names in rows.iter_rows()
        if not skipped.accepts([name or "" for name in names], location, row_name(row), titles)
    }
    if WEIGHT in table.columns:
        texts = table[WEIGHT].cast(pl.String).str.strip_chars(WHITESPACE)
        is_missing = (
            texts.is_null() | (texts == "") | texts.str.to_lowercase().is_in(("na", *PLACEHOLDERS))
        ).fill_null(True)
        texts = texts.str.replace(r"^(\d*),(\d+)$", "$1.$2")  # 0,5
        weights = pl.select(pl.when(is_missing).then(1.0).otherwise(texts.cast(pl.Float64, strict=False))).to_series()
        reason = f"the weight (column '{titles.get(WEIGHT, WEIGHT)}') is not a finite number, 0 or more"
        for row in (~(weights.is_finite() & (weights >= 0))).fill_null(True).arg_true().to_list():
            if row not in rejected:
                skipped.reject(location, row_name(row), reason, text=", ".join(str(cell) for cell in table.row(row)))
                rejected.add(row)
        if notes is not None and is_missing.any():
            text = "facts without a weight have the weight 1"
            _add(notes, Note(text, "no weight"))
        table = table.with_columns(weights.alias(WEIGHT))
    return table.with_row_index("row").filter(~pl.col("row").is_in(list(rejected))).drop("row") if rejected else table


def facts_of_tables(
    tables: Mapping[str, Table], options: Options, skipped: SkippedRows, notes: list[Note]
) -> dict[str, Iterator[pl.DataFrame]]:
    """split -> the usable rows of its table, in batches. The columns of all tables are found before any is read in full."""
    opened = {}
    for split, table in tables.items():
        others = [other for other in tables.values() if other is not table]
        opened[split] = open_facts(table, options, skipped, notes, others)

    def rows(facts: FactTable) -> Iterator[pl.DataFrame]:
        is_empty = True
        for batch in facts.batches(skipped):
            is_empty = False
            yield usable_rows(batch, facts.table.location, skipped, facts.column_titles, notes)
        skipped.finish()
        if is_empty:
            yield pl.DataFrame(schema=dict.fromkeys(facts.positions, pl.String))

    return {split: rows(facts) for split, facts in opened.items()}
