"""The parts of a result (displayed.py) as text for a terminal, as plain text and as HTML.

Names come from untrusted files: they are never interpreted as markup, and cannot control the terminal.
"""

from __future__ import annotations

import html
import io
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from harmonium.runtime.displayed import Item, Line, Paragraph, Part, Styled, Table
from harmonium.runtime.untrusted import harmless

if TYPE_CHECKING:
    from rich.console import Console

STYLES = {  # style of displayed.py -> CSS
    "bold": "font-weight:bold",
    "dim": "opacity:.7",
    "red": "color:#c62828",
    "yellow": "color:#9a6700",
    "green": "color:#2e7d32",
}
TEXT_WIDTH = 110  # characters of a line of plain text


def print_parts(parts: Iterable[Part], console: Console) -> None:
    """Print each part as soon as it is generated."""
    from rich.padding import Padding
    from rich.text import Text

    for part in parts:
        match part:
            case Line(text, style):
                console.print(Text(harmless(text), style=style), soft_wrap=True)
            case Paragraph(text, style):
                console.print(Padding(Text(harmless(text), style=style), (0, 0, 0, 4), expand=False))
            case Item(label, text, details):
                _print_item(console, label, text, details)
            case Table():
                _print_table(console, part)


def to_text(parts: Iterable[Part]) -> str:
    """The parts as plain text, for `print(result)`."""
    from rich.console import Console

    text = io.StringIO()
    print_parts(parts, Console(file=text, width=TEXT_WIDTH, highlight=False, color_system=None, force_jupyter=False))
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()).rstrip("\n")


def to_html(parts: Iterable[Part]) -> str:
    """The parts as HTML, for a notebook."""
    return f"<div>{''.join(map(_part_html, parts))}</div>"


def cell_text(value: Any) -> str:
    """A cell as text: floats with three decimals, integers with thousands separators."""
    if isinstance(value, Styled):
        return value.text
    if isinstance(value, float):
        return "-" if math.isnan(value) else f"{value:.1f}" if abs(value) >= 100 else f"{value:.3f}"
    return f"{value:,}" if isinstance(value, int) else "" if value is None else str(value)


def _numeric(table: Table) -> list[bool]:
    """Whether each column consists of numbers only."""
    n_columns = range(len(table.columns))
    return [bool(table.rows) and all(isinstance(row[i], int | float) for row in table.rows) for i in n_columns]


# Terminal ------------------------------------------------------------------------------------------------------------


def _print_item(console: Console, label: str, text: str, details: str) -> None:
    from rich.padding import Padding
    from rich.table import Table as Grid
    from rich.text import Text

    grid = Grid.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(Text(harmless(label)), Text(harmless(text)))
    grid.add_row(Text(), Text(harmless(details), style="dim"))
    console.print(Padding(grid, (0, 0, 0, 2), expand=False))


def _print_table(console: Console, table: Table) -> None:
    from rich import box
    from rich.padding import Padding
    from rich.table import Table as Grid
    from rich.text import Text

    if table.title:
        print_parts([Line(table.title, "bold")], console)
    grid = Grid(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name, is_number in zip(table.columns, _numeric(table), strict=True):
        grid.add_column(name, justify="right" if is_number else "left", overflow="fold")
    for row in table.rows:
        cells = [Text(harmless(cell_text(cell)), style=getattr(cell, "style", "")) for cell in row]
        grid.add_row(*cells)
    console.print(Padding(grid, (0, 0, 0, 2), expand=False))
    if table.caption:
        print_parts([Line(f"  {table.caption}", "dim")], console)
    console.print()


# HTML ----------------------------------------------------------------------------------------------------------------


def _part_html(part: Part) -> str:
    match part:
        case Line(text, style) | Paragraph(text, style):
            css = "margin-top:.5em" if "bold" in style else ""
            return _element("div", text, style, css) if text.strip() else ""
        case Item(label, text, details):
            words = f"{_element('b', label)} {_element('span', text)}<br>{_element('span', details, 'dim')}"
            return f"<div>{words}</div>"
        case Table():
            return _table_html(part)


def _element(tag: str, text: str, style: str = "", css: str = "") -> str:
    """An HTML element with escaped text."""
    rules = ";".join(filter(None, [css, *(STYLES[word] for word in style.split() if word in STYLES)]))
    content = html.escape(harmless(text)).replace("\n", "<br>")
    return f'<{tag} style="{rules}">{content}</{tag}>' if rules else f"<{tag}>{content}</{tag}>"


def _table_html(table: Table) -> str:
    css = [f"text-align:{'right' if is_number else 'left'};padding:.15em .8em .15em 0" for is_number in _numeric(table)]
    lines = ["".join(_element("th", name, "", rule) for name, rule in zip(table.columns, css, strict=True))]
    for row in table.rows:
        cells = [(cell_text(cell), getattr(cell, "style", "")) for cell in row]
        lines.append("".join(_element("td", *cell, rule) for cell, rule in zip(cells, css, strict=True)))
    grid = '<table style="border-collapse:collapse">' + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"
    title, caption = Line(table.title, "bold"), Line(table.caption or "", "dim")
    return _part_html(title) + grid + _part_html(caption)
