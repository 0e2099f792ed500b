"""Separated text (CSV, TSV): detects the layout and reads the rows in batches, once.

Tab-separated text without quotes is read by polars, a block at a time. All other text, and a block that polars cannot
parse, is read line by line by Python's csv module, so that errors name the line.
"""

import csv
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

import polars as pl

from harmonium.data.compressed import READ_ERRORS, numbered_lines, read_blocks, strip_compression
from harmonium.data.graph import Note
from harmonium.data.names import WHITESPACE, is_empty
from harmonium.data.tables.columns import is_header
from harmonium.data.tables.reading_options import Options
from harmonium.data.tables.skipped_rows import SkippedRows
from harmonium.data.tables.table import Batch, Table, table_of_lists
from harmonium.data.tables.text_encoding import UTF_8, choose_encoding, reject_bytes
from harmonium.errors import HarmoniumError

SEPARATORS = (",", ";", "\t", "|")
SAMPLED_LINES = 100  # from which the separator is detected
SHOWN_CELLS = 8  # of the first row, in an error about another
MAX_JOINED_LINES = 20  # of one row, in a text in which most cells are not quoted
QUOTED = r'^"(?:[^"]|"")*""(?:[^"]|"")*"$'  # a cell that csv.writer or pandas quoted, as it has a quote in it
TABLE_ERRORS: tuple[type[Exception], ...] = (pl.exceptions.PolarsError, *READ_ERRORS)


@dataclass(frozen=True)
class Layout:
    """The layout of a text, detected in its first lines."""

    separator: str
    width: int  # number of cells in most lines
    share: float  # of lines with this width; 0 if the width is below three
    is_quoted: bool  # whether most cells are quoted


def open_text(path: Path, options: Options, skipped: SkippedRows, notes: list[Note]) -> Table:
    """Open a text as a table; its first row may be a header."""
    encoding = choose_encoding(path, options.encoding, skipped.skips, notes)
    layout = guess_layout(path, encoding)
    separator = options.delimiter or layout.separator
    if options.delimiter is None and strip_compression(path).suffix != ".csv" and layout.share < 1:
        separator = "\t"
    quotes = (separator != "\t" or layout.is_quoted) if options.quotes is None else options.quotes
    width = layout.width if skipped.skips and separator == layout.separator else 0
    reader = partial(_read_cells, path, separator, quotes, options.quotes is None, skipped, encoding)
    if separator == "\t" and not quotes and encoding == UTF_8 and not skipped.skips:
        return Table(str(path), None, _quick_batches(path, reader, options, options.progress))
    return table_of_lists(str(path), ((f":{number}", cells) for number, cells in reader(width=width)))


def guess_layout(path: Path, encoding: str) -> Layout:
    """The separator that gives most of the first lines the same number of cells, at least three."""
    lines = numbered_lines(path, lambda number, raw: None, encoding)  # `_read_cells` reports what cannot be decoded
    sample = list(islice((line for _, line in lines if line.strip()), SAMPLED_LINES))
    if sample and (declared := re.fullmatch(r'"?sep=(.)"?\s*', sample[0])):  # written by spreadsheets
        return _layout(sample[1:], declared[1])
    layouts = [_layout(sample, separator) for separator in SEPARATORS]
    return max(layouts, key=lambda layout: (layout.share, layout.width))


def _layout(sample: list[str], separator: str) -> Layout:
    widths = [_count_cells(line, separator) for line in sample] or [0]
    width, lines = Counter(widths).most_common(1)[0]
    cells = [cell.strip() for line in sample for cell in line.split(separator)]
    n_quoted = sum(len(cell) > 1 and cell[0] == cell[-1] == '"' for cell in cells)
    return Layout(separator, width, lines / len(widths) if width >= 3 else 0, 2 * n_quoted > len(cells))


def _count_cells(line: str, separator: str) -> int:
    try:
        return len(next(csv.reader([line], delimiter=separator)))
    except csv.Error:
        return 0


# Fast path ----------------------------------------------------------------------------------------------------------


def _quick_batches(
    path: Path,
    reader: Callable[..., Iterator[tuple[int, list[str]]]],
    options: Options,
    progress: Callable[[int], object] | None,
) -> Iterator[Batch]:
    """Read tab-separated cells with polars; from the first block that it cannot parse, continue with `reader`."""
    number, width = 1, 0
    try:
        for block in read_blocks(path, progress=progress):
            width = width or _first_width(block)
            table = _parse(block, width) if width else None
            if table is None:
                break
            cells, lines = table
            if len(cells):
                yield Batch(cells, partial(_line_name, number, lines))
            number += block.count(b"\n")
        else:
            return
    except TABLE_ERRORS as error:
        raise HarmoniumError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from error
    rows = ((f":{line}", cells) for line, cells in reader(first_line=number, width=width if number > 1 else 0))
    yield from table_of_lists(str(path), rows).batches


def _line_name(first: int, lines: pl.Series | None, row: int) -> str:
    return f":{first + (row if lines is None else lines[row])}"


def _first_width(block: bytes) -> int:
    start = block.lstrip(b"\r\n \t\xef\xbb\xbf")
    return start.split(b"\n", 1)[0].count(b"\t") + 1 if start else 0


def _parse(block: bytes, width: int) -> tuple[pl.DataFrame, pl.Series | None] | None:
    """The cells of a block of lines and the lines that are not blank (None: all); None if the block needs the slow path."""
    block = block.removeprefix(b"\xef\xbb\xbf")
    if block[:1] in (b"\n", b"\r", b" ", b"\t") or b"\0" in block:
        return None
    schema = {str(i): pl.String for i in range(width)}
    try:
        cells = pl.read_csv(block, separator="\t", has_header=False, quote_char=None, schema=schema)
    except pl.exceptions.PolarsError:
        return None
    lines = None
    is_blank = cells.select(pl.all().is_null() | (pl.all().str.strip_chars(WHITESPACE) == ""))
    if is_blank.select(pl.any_horizontal(pl.all()).any()).item():
        return None  # a cell is missing or empty; which one, only reading by line tells
    if b'"' in block:
        seems_quoted = cells.select(pl.all().str.contains(r'^"')).select(pl.any_horizontal(pl.all()).any()).item()
        if seems_quoted:
            unquoted = pl.all().str.slice(1, pl.all().str.len_chars() - 2).str.replace_all('""', '"', literal=True)
            cells = cells.select(pl.when(pl.all().str.contains(QUOTED)).then(unquoted).otherwise(pl.all()))
    return cells, lines


# Line by line --------------------------------------------------------------------------------------------------------


def _read_cells(
    path: Path,
    separator: str,
    quotes: bool,
    may_have_quotes: bool,
    skipped: SkippedRows,
    encoding: str,
    width: int = 0,
    first_line: int = 1,
) -> Iterator[tuple[int, list[str]]]:
    """Line number and cells of each row that is not blank; empty cells beyond the width of the first row are dropped.

    In tab-separated text without quotes a single cell may still be quoted (`may_have_quotes`): if it contains a quote, or if
    its row has the right width only then. A row of another width, or one that cannot be read, is rejected, as are lines
    above the table.
    """
    pattern = _cell_pattern(separator) if quotes and separator != " " else None
    lines = _Lines(path, encoding, skipped, pattern, first_line)
    reader = csv.reader(
        lines,
        delimiter=separator,
        quoting=csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE,
        skipinitialspace=separator != "\t",
        strict=True,
    )
    expected, may_have_quotes = "", may_have_quotes and not quotes  # description of a valid row, once one was read
    while True:
        lines.begin_row()
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            lines.reject(f"{error}; is a quote open?", "; `--no-quotes` reads quotes as plain text")
            continue
        if is_empty("".join(cells)):
            continue
        if separator != "\t":
            cells = [cell.strip() for cell in cells]
        elif may_have_quotes and any(cell.startswith('"') for cell in cells):
            cells = lines.requoted(width) or [_unquoted(cell) for cell in cells]
        if not expected and (not width or is_header(cells)):
            width = len(cells)
        while len(cells) > width and not cells[-1]:
            cells.pop()
        if len(cells) != width:
            count = f"found {len(cells)} column{'s' * (len(cells) != 1)}, expected {width}{expected}"
            lines.reject(count, "; quote cells that contain the delimiter")
            continue
        if not expected:
            shown = ", ".join(cells[:SHOWN_CELLS]) + ", ..." * (len(cells) > SHOWN_CELLS)
            expected = f": {shown}" if is_header(cells) else f" as in line {lines.number} ({shown})"
        yield lines.number, cells


def _unquoted(cell: str) -> str:
    """Remove the quotes that csv.writer put around a cell because it contains a quote."""
    return cell[1:-1].replace('""', '"') if cell.startswith('"') and re.match(QUOTED, cell) else cell


def _cell_pattern(separator: str) -> re.Pattern[str]:
    """A cell of a line: a quoted one and whitespace behind it, one whose quote stays open, any other; a separator."""
    end, whitespace = re.escape(separator), "" if separator == "\t" else " *"
    quoted = rf'{whitespace}"(?:[^"]|"")*+'
    return re.compile(rf'(?P<quoted>{quoted}") +(?={end}|\r?\n?\Z)|{quoted}(?:"|\Z)|[^{end}]+|{end}')


class _Lines(Iterator[str]):
    """The lines of a text for csv.reader. If a row swallowed several lines by mistake, all but the first are read again."""

    def __init__(
        self, path: Path, encoding: str, skipped: SkippedRows, cells: re.Pattern[str] | None, first: int = 1
    ) -> None:
        self.path, self.skipped, self.cells = path, skipped, cells
        self.lines = islice(
            numbered_lines(path, partial(reject_bytes, path, encoding, skipped), encoding), first - 1, None
        )
        self.row: list[tuple[int, str]] = []  # lines of the current row
        self.returned: list[tuple[int, str]] = []  # to be read again, in reverse order

    def __next__(self) -> str:
        number, line = self.returned.pop() if self.returned else next(self.lines)
        if number == 1 and re.fullmatch(r'"?sep=."?\s*', line):
            return next(self)
        is_continued = bool(self.row)  # by a line break in a quoted cell
        self.row.append((number, line))
        return self._without_loose_whitespace(line, is_continued) if self.cells and '" ' in line else line

    def _without_loose_whitespace(self, line: str, is_continued: bool) -> str:
        """The line without whitespace between a closing quote and the separator, which csv.reader does not allow."""
        assert self.cells is not None
        text = self.cells.sub(lambda cell: cell["quoted"] or cell[0], f'"{line}' if is_continued else line)
        return text[1:] if is_continued else text

    @property
    def number(self) -> int:
        """Number of the first line of the current row."""
        return self.row[0][0] if self.row else 1

    def begin_row(self) -> None:
        self.row = []

    def requoted(self, width: int) -> list[str] | None:
        """The cells of the row, if it has the right width only when quotes are respected; else None.

        Then a cell contains a tab or a line break, and one of the lines of the row has another width.
        """
        texts = [self.row[0][1]]
        last = texts[0].rstrip("\r\n").split("\t")[-1]
        is_right = texts[0].count("\t") + 1 == width
        if not width or (is_right and not (last.startswith('"') and last.count('"') % 2)):
            return None
        for _ in range(MAX_JOINED_LINES):
            try:
                cells = next(csv.reader(texts, delimiter="\t", strict=True), [])
            except csv.Error:
                cells = []
            if len(cells) == width and any(text.count("\t") + 1 != width for text in texts):
                return cells
            following = self.returned.pop() if self.returned else next(self.lines, None)
            if following is None:
                break
            self.row.append(following)
            texts.append(following[1])
        self.returned += reversed(self.row[1:])
        del self.row[1:]
        return None

    def reject(self, reason: str, advice: str) -> None:
        """Reject the first line of the row; its other lines are read again as separate rows."""
        text = self.row[0][1] if self.row else ""
        self.skipped.reject(self.path, f":{self.number}", reason, advice, text)
        self.returned += reversed(self.row[1:])
