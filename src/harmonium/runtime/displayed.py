"""Results that show themselves: as HTML in a notebook, as text when printed, in one line as `repr`.

A result defines its lines and tables once, in `display`. The command line prints these parts, and rendering.py turns them
into HTML and text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

MAX_REPR_LENGTH = 240  # characters


@dataclass(frozen=True)
class Styled:
    """A cell of a table with a style, such as "bold red": any of bold, dim, red, yellow and green."""

    text: str
    style: str = ""


@dataclass(frozen=True)
class Line:
    """A line of text, never wrapped."""

    text: str
    style: str = ""


@dataclass(frozen=True)
class Paragraph:
    """Indented text, folded to the width of the terminal."""

    text: str
    style: str = ""


@dataclass(frozen=True)
class Item:
    """An entry of a list: a label, a line of text, and details below it."""

    label: str
    text: str
    details: str


@dataclass(frozen=True)
class Table:
    """A table; columns of numbers are aligned to the right. Cells are text, numbers, None or Styled."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    caption: str | None = None


Part = Line | Paragraph | Item | Table


class Displayed:
    """Base class of results: a subclass defines `display`, and gets HTML in notebooks and text when printed."""

    def display(self) -> Iterable[Part]:
        """The lines and tables to show."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        from harmonium.runtime.rendering import to_html

        return to_html(self.display())

    def __str__(self) -> str:
        from harmonium.runtime.rendering import to_text

        return to_text(self.display())


def notes(texts: Iterable[object]) -> Iterator[Line]:
    """Notes on a result, one line each."""
    return (Line(f"note: {text}", "yellow") for text in texts)


def percent(probability: float | None) -> str:
    """A probability as a percentage; "" for None."""
    if probability is None:
        return ""
    return "< 0.1%" if 0 < probability < 0.001 else f"{probability:.1%}"


def more_rows(hidden: int, how: str = "") -> str | None:
    """The caption of a table that leaves out rows, and tells how to see them."""
    return f"{hidden:,} more{how}" if hidden > 0 else None


def one_line(result: object, *parts: object) -> str:
    """A repr such as <Plan atlas: about 12 s>: the class and the most important facts on one short line."""
    from harmonium.runtime.untrusted import harmless

    text = harmless(", ".join(str(part) for part in parts if part not in (None, "")))
    return f"<{type(result).__name__} {text if len(text) <= MAX_REPR_LENGTH else text[: MAX_REPR_LENGTH - 3] + '...'}>"
