"""Rows that cannot be used: an error that names the first of them and counts all, or skipped and counted by reason."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from harmonium.data.graph import Note
from harmonium.data.names import is_empty, is_placeholder
from harmonium.data.triples import Slot
from harmonium.errors import HarmoniumError

OnBad = Literal["error", "skip"]
ROWS_PER_REASON = 3  # shown as examples
REASONS_IN_ERROR = 4
SHOWN_CHARACTERS = 60  # of a row
MIN_ROWS_OF_NOTE, MIN_ROWS_OF_ERROR = 20, 100  # of a table whose losses are noted, or may be an error
MAX_COUNTED_ROWS = 10_000  # that cannot be used; then reading stops, as columns or delimiter must be wrong
SKIP_ADVICE = '`--on-bad skip` (in Python: on_bad="skip") leaves out such rows'


def _position(row: str) -> float:
    """The number in the name of a row: 7 for ":7"; for sorting rows of a file."""
    number = re.fullmatch(r"\D*(\d+)", row)
    return int(number[1]) if number else math.inf


@dataclass
class SkippedRows:
    """Counts the rows that cannot be used. At the end of the file (`finish`) they are an error, or a note if `skips`.

    Counting to the end lets the error say how many there are, and for which reasons.
    """

    on_bad: OnBad = "error"
    counts: dict[tuple[str, str], int] = field(default_factory=dict)  # (file, reason) -> rows
    examples: dict[tuple[str, str], list[str]] = field(default_factory=dict)  # the first rows of each
    first_error: str = ""  # of the first row that was rejected, where that is an error
    first_position: float = math.inf  # of that row in its file

    @classmethod
    def of(cls, on_bad: "OnBad | SkippedRows") -> "SkippedRows":
        """The given one, through which the caller sees what was skipped, or a new one."""
        return on_bad if isinstance(on_bad, SkippedRows) else cls(on_bad)

    @property
    def skips(self) -> bool:
        return self.on_bad == "skip"

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def reject(
        self, file: object, row: str, reason: str, advice: str = "", text: str = "", message: str | None = None
    ) -> None:
        """Leave out one row, such as ":7" or ": row 7" of a file; `finish` makes it an error unless rows are skipped.

        Rows are counted by `reason`; the error for the first one shows `message` instead, if given.
        """
        position = _position(row)
        if not self.skips and (
            not self.first_error or position < self.first_position
        ):  # parts may be checked out of order
            self.first_error, self.first_position = f"{file}{row}: {message or reason + advice}", position
        self.skip(file, row, reason, text)
        if not self.skips and self.total > MAX_COUNTED_ROWS:
            self.finish()

    def skip(self, file: object, row: str, reason: str, text: str = "") -> None:
        """Count a row that is left out without being an error."""
        key = str(file), reason
        self.counts[key] = self.counts.get(key, 0) + 1
        rows = self.examples.setdefault(key, [])
        if len(rows) < ROWS_PER_REASON:
            shown = " ".join(text.split())
            shown = shown if len(shown) <= SHOWN_CHARACTERS else f"{shown[: SHOWN_CHARACTERS - 3]}..."
            name = str(file).replace("\\", "/").rsplit("/", 1)[-1]
            rows.append(f"{name}{row} ({shown})" if shown else f"{name}{row}")

    def add(self, file: str, reason: str, count: int, rows: Mapping[str, str]) -> None:
        """Add rows that another process skipped; `rows` are the first of them, with their text."""
        for row, text in rows.items():
            self.skip(file, row, reason, text)
        self.counts[file, reason] += count - len(rows)

    def wants_example(self, file: object, reason: str) -> bool:
        """Whether another row with this reason would be shown."""
        return len(self.examples.get((str(file), reason), ())) < ROWS_PER_REASON

    def finish(self) -> None:
        """Call at the end of a file: raises an error if rows were rejected and may not be skipped."""
        if not self.first_error:
            return
        more = ""
        if self.total > 1:
            count = f"{self.total:,}" if self.total <= MAX_COUNTED_ROWS else f"more than {MAX_COUNTED_ROWS:,}"
            more = f"; {count} rows cannot be used: {self._reasons(REASONS_IN_ERROR)}"
        raise HarmoniumError(f"{self.first_error}{more}; {SKIP_ADVICE}")

    def accepts(self, names: Sequence[str], file: object, row: str, titles: Mapping[str, str] | None = None) -> bool:
        """Whether head, relation and tail of a row are names; otherwise it is rejected."""
        for slot, name in zip([slot.value for slot in Slot], names, strict=True):
            reason = "empty" if is_empty(name) else "a placeholder" if self.skips and is_placeholder(name) else None
            if reason:
                title = (titles or {}).get(slot, slot)
                column = f"{slot} (column '{title}')" if title.casefold() != slot and not title.isdecimal() else slot
                self.reject(file, row, f"the {column} is {reason}", text=", ".join(names))
                return False
        return True

    def nothing_left(self, file: object) -> HarmoniumError:
        """The error for a file without facts."""
        self.finish()
        if not self.total:
            return HarmoniumError(f"{file}: no triples in it; fill it or remove it")
        return HarmoniumError(f"{file}: none of its rows can be used; {self._reasons()}")

    def check(self, n_facts: int, name: str) -> None:
        """Raise an error if most rows were skipped, as the columns or the delimiter are then probably wrong."""
        if self.total > n_facts:
            rows = f"{self.total:,} of {self.total + n_facts:,} rows"
            raise HarmoniumError(
                f"{name}: {rows} cannot be used; {self._reasons()}. Give the columns or the delimiter, or correct the file"
            )

    def note_of_losses(self, name: str, n_facts: int, repeated: Sequence[Note], is_error: bool) -> list[Note]:
        """A note if more than a tenth of the rows was skipped or repeated.

        If `is_error`, more than half repeated is an error, as a column was then probably misread.
        """
        n_repeated = sum(note.count for note in repeated if note.kind == "repeated")
        n_rows, lost = self.total + n_facts, self.total + n_repeated
        if n_rows < MIN_ROWS_OF_NOTE or lost <= n_rows / 10:
            return []
        if is_error and n_rows >= MIN_ROWS_OF_ERROR and n_repeated > n_rows / 2:
            raise HarmoniumError(
                f"{name}: {n_repeated:,} of {n_rows:,} rows repeat the same head, relation and tail, so that a column is "
                "probably misread; say which columns are head, relation and tail (--columns A,B,C; in Python: columns=...): "
                "if they are those that were read, repetitions are then dropped with a warning"
            )
        text = f"{lost:,} of {n_rows:,} rows are lost: {self.total:,} skipped, {n_repeated:,} repeated; are columns misread?"
        return [Note(text, "many lost", "", lost)]

    def _reasons(self, limit: int | None = None) -> str:
        texts = [note.text.removeprefix("skipped ") if limit else note.text for note in self.notes()]
        return "; ".join(texts[:limit]) + "; ..." * (limit is not None and len(texts) > limit)

    def notes(self) -> list[Note]:
        """A note for each reason, in descending order of frequency."""
        notes = []
        for key, count in sorted(self.counts.items(), key=lambda item: -item[1]):
            examples = ", ".join(self.examples[key]) + (", ..." if count > ROWS_PER_REASON else "")
            text = f"skipped {count:,} row{'s' * (count != 1)}: {key[1]}: {examples}"
            notes.append(Note(text, "skipped rows", "", count))
        return notes
