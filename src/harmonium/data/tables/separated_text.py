"""Separated text (CSV, TSV): which separator it has, and its rows as cells with their line numbers."""

import csv
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from harmonium.data.compressed import numbered_lines
from harmonium.data.names import is_empty
from harmonium.data.tables.columns import is_header
from harmonium.data.tables.skipped_rows import SkippedRows
from harmonium.data.tables.text_encoding import UTF_8, guess_encoding

SEPARATORS = (",", ";", "\t", "|")
SAMPLE = 100  # lines that decide on the separator
SHOWN_CELLS = 8  # of the first row, in an error about another


@dataclass(frozen=True)
class Layout:
    """How the first lines of a text are separated."""

    separator: str
    width: int  # cells of most lines
    share: float  # of lines with this many cells, if those are at least three
    is_quoted: bool  # whether most cells are quoted


def guess_layout(path: Path, encoding: str | None = None) -> Layout:
    """The separator that gives most of the first lines the same number of cells, at least three."""
    encoding = encoding or guess_encoding(path)
    lines = numbered_lines(path, lambda number, raw: None, encoding)  # `read_cells` reports what cannot be decoded
    sample = list(islice((line for _, line in lines if line.strip()), SAMPLE))
    if sample and (declared := re.fullmatch(r'"?sep=(.)"?\s*', sample[0])):  # as spreadsheets write it
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


def read_cells(
    path: Path,
    separator: str | None = None,
    quotes: bool | None = None,
    skipped: SkippedRows | None = None,
    encoding: str | None = None,
) -> Iterator[tuple[int, list[str]]]:
    """Line number and cells of each row that is not blank; empty cells beyond the width of the first row are dropped.

    Default separator: as `guess_layout` says. Default quotes: unless tabs separate cells of which most are unquoted. A row
    of another width, or one that cannot be read, is an error or, if `skipped` says so, skipped: so are lines above the
    table.
    """
    skipped = skipped or SkippedRows()
    encoding = encoding or guess_encoding(path, skipped.skips)
    layout = guess_layout(path, encoding)
    separator = separator or layout.separator
    quotes = separator != "\t" or layout.is_quoted if quotes is None else quotes
    lines = _Lines(path, encoding, skipped, _cell_pattern(separator) if quotes and separator != " " else None)
    reader = csv.reader(
        lines,
        delimiter=separator,
        quoting=csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE,
        skipinitialspace=separator != "\t",
        strict=True,
    )
    width = layout.width if skipped.skips and separator == layout.separator else 0
    expected = ""  # what a row should look like, once one was read
    while True:
        lines.begin_row()
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            advice = "; `--no-quotes` reads quotes as plain text"
            lines.reject(f"{error}; is a quote open?", advice)
            continue
        if is_empty("".join(cells)):
            continue
        if separator != "\t":
            cells = [cell.strip() for cell in cells]
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


def _cell_pattern(separator: str) -> re.Pattern[str]:
    """Cells of a line in turn: a quoted one and the blanks behind it, one whose quote stays open, any other; a separator."""
    end, blanks = re.escape(separator), "" if separator == "\t" else " *"
    quoted = rf'{blanks}"(?:[^"]|"")*+'
    return re.compile(rf'(?P<quoted>{quoted}") +(?={end}|\r?\n?\Z)|{quoted}(?:"|\Z)|[^{end}]+|{end}')


class _Lines(Iterator[str]):
    """The lines of a text for csv.reader; a row that took several by mistake gives back all but the first."""

    def __init__(self, path: Path, encoding: str, skipped: SkippedRows, cells: re.Pattern[str] | None) -> None:
        self.path, self.skipped, self.cells = path, skipped, cells
        self.lines = numbered_lines(path, partial(reject_bytes, path, encoding, skipped), encoding)
        self.row: list[tuple[int, str]] = []  # lines of the current row
        self.returned: list[tuple[int, str]] = []  # to be read again, the last first

    def __next__(self) -> str:
        number, line = self.returned.pop() if self.returned else next(self.lines)
        if number == 1 and re.fullmatch(r'"?sep=."?\s*', line):
            return next(self)
        is_continued = bool(self.row)  # by a line break in a quoted cell
        self.row.append((number, line))
        return self._without_loose_blanks(line, is_continued) if self.cells and '" ' in line else line

    def _without_loose_blanks(self, line: str, is_continued: bool) -> str:
        """The line without blanks between a closing quote and the separator, which csv.reader does not allow."""
        assert self.cells is not None
        text = self.cells.sub(lambda cell: cell["quoted"] or cell[0], f'"{line}' if is_continued else line)
        return text[1:] if is_continued else text

    @property
    def number(self) -> int:
        """Of the first line of the row."""
        return self.row[0][0] if self.row else 1

    def begin_row(self) -> None:
        self.row = []

    def reject(self, reason: str, advice: str) -> None:
        """Refuse the first line of the row; the others may begin rows of their own."""
        text = self.row[0][1] if self.row else ""
        self.skipped.reject(self.path, f":{self.number}", reason, advice, text)
        self.returned += reversed(self.row[1:])


def reject_bytes(path: Path, encoding: str, skipped: SkippedRows, number: int, raw: bytes) -> None:
    """Reject a line that is no text in this encoding."""
    name = "UTF-8" if encoding == UTF_8 else encoding
    advice = f"; save the file as UTF-8, or give {'its' if encoding == UTF_8 else 'another'} --encoding, such as cp1252"
    skipped.reject(path, f":{number}", f"not {name} text", advice, raw.decode("utf-8", "replace"))
