"""Rows of a file that cannot be used: an error at the first of them, or skipped and counted by reason."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from harmonium.data.columns import COLUMNS
from harmonium.data.graph import Note
from harmonium.data.names import is_empty, is_placeholder
from harmonium.runtime.errors import HarmoniumError

OnBad = Literal["error", "skip"]
EXAMPLES = 3  # rows shown for each reason
SHOWN = 60  # characters of a row shown
SKIP_ADVICE = '`harmonium convert --on-bad skip` (load: on_bad="skip") leaves out such rows'


@dataclass
class SkippedRows:
    """What happens to a row that cannot be used, and which rows were skipped."""

    on_bad: OnBad = "error"
    counts: dict[tuple[str, str], int] = field(default_factory=dict)  # (file, reason) -> rows
    examples: dict[tuple[str, str], list[str]] = field(default_factory=dict)  # the first rows of each

    @property
    def skips(self) -> bool:
        return self.on_bad == "skip"

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def restart(self, file: object) -> None:
        """Forget the rows of a file, which is read again."""
        for rows in (self.counts, self.examples):
            for key in [key for key in rows if key[0] == str(file)]:
                del rows[key]

    def reject(self, file: object, row: str, reason: str, advice: str = "", text: str = "") -> None:
        """Skip one row, such as ":7" or ": row 7" of a file; or raise an error that names it."""
        if not self.skips:
            raise HarmoniumError(f"{file}{row}: {reason}{advice}; {SKIP_ADVICE}")
        self.skip(file, row, reason, text)

    def skip(self, file: object, row: str, reason: str, text: str = "") -> None:
        """Count a row that is left out."""
        key = str(file), reason
        self.counts[key] = self.counts.get(key, 0) + 1
        rows = self.examples.setdefault(key, [])
        if len(rows) < EXAMPLES:
            shown = " ".join(text.split())
            shown = shown if len(shown) <= SHOWN else f"{shown[: SHOWN - 3]}..."
            name = str(file).replace("\\", "/").rsplit("/", 1)[-1]
            rows.append(f"{name}{row} ({shown})" if shown else f"{name}{row}")

    def accepts(self, names: Sequence[str], file: object, row: str) -> bool:
        """Whether head, relation and tail of a row are names; otherwise it is rejected."""
        for slot, name in zip(COLUMNS, names, strict=True):
            reason = "empty" if is_empty(name) else "a placeholder" if self.skips and is_placeholder(name) else None
            if reason:
                self.reject(file, row, f"the {slot} is {reason}", text=", ".join(names))
                return False
        return True

    def nothing_left(self, file: object) -> HarmoniumError:
        """The error for a file without facts."""
        if not self.total:
            return HarmoniumError(f"{file}: no triples in it; fill it or remove it")
        return HarmoniumError(f"{file}: no row of it can be used; {self._reasons()}")

    def check(self, n_facts: int, name: str) -> None:
        """Refuse a graph of which most rows were skipped: it is not what its reader takes it for."""
        if self.total > n_facts:
            rows = f"{self.total:,} of {self.total + n_facts:,} rows"
            raise HarmoniumError(
                f"{name}: {rows} cannot be used; {self._reasons()}. Give the columns or the separator, or mend the file"
            )

    def _reasons(self) -> str:
        return "; ".join(note.text for note in self.notes())

    def notes(self) -> list[Note]:
        """A note for each reason, the most frequent first."""
        notes = []
        for key, count in sorted(self.counts.items(), key=lambda item: -item[1]):
            examples = ", ".join(self.examples[key]) + (", ..." if count > EXAMPLES else "")
            text = f"skipped {count:,} row{'s' * (count != 1)}: {key[1]}: {examples}"
            notes.append(Note(text, "skipped rows", "", count))
        return notes
