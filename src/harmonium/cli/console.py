"""Terminal output: text, tables and progress bars."""

from __future__ import annotations

import contextlib
import csv
import html
import io
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from harmonium.runtime import torchrun
from harmonium.runtime.frames import markdown_table
from harmonium.runtime.untrusted import harmless

if TYPE_CHECKING:
    from harmonium.training.state import Progress as TrainingProgress

if not os.environ.get("COLUMNS", "1").strip("0"):  # in which nothing would be printed
    del os.environ["COLUMNS"]


class _Log(Console):
    """Messages and progress on stderr. Where they cannot be written, such as to a file on a full disk, work goes on."""

    def print(self, *objects: Any, **options: Any) -> None:
        with contextlib.suppress(OSError):
            super().print(*objects, **options)


console = Console(highlight=False)
errors = _Log(stderr=True, highlight=False)
Result = TypeVar("Result")
FORMATS = ("table", "json", "jsonl", "csv", "tsv", "md")
METRICS = ("mr", "mrr", "hits@1", "hits@3", "hits@10", "amri")
STYLES = {  # of text in HTML
    "bold": "font-weight:bold",
    "dim": "opacity:.7",
    "red": "color:#c62828",
    "yellow": "color:#9a6700",
    "green": "color:#2e7d32",
}
TEXT_WIDTH = 110  # of results as text

_html: ContextVar[list[str] | None] = ContextVar("html", default=None)  # parts of a page, in place of the terminal
_terminal: ContextVar[Console] = ContextVar("terminal", default=console)


@contextlib.contextmanager
def as_html() -> Iterator[list[str]]:
    """Collect what is printed as parts of an HTML page, with every text escaped."""
    parts: list[str] = []
    token = _html.set(parts)
    try:
        yield parts
    finally:
        _html.reset(token)


@contextlib.contextmanager
def as_text() -> Iterator[io.StringIO]:
    """Collect what is printed as text without control characters."""
    text = io.StringIO()
    token = _terminal.set(Console(file=text, width=TEXT_WIDTH, highlight=False, color_system=None, force_jupyter=False))
    try:
        yield text
    finally:
        _terminal.reset(token)


def _styled(tag: str, text: str, style: str = "", css: str = "") -> str:
    """An HTML element with text in it, which is escaped."""
    rules = ";".join(filter(None, [css, *(STYLES[word] for word in style.split() if word in STYLES)]))
    content = html.escape(harmless(text)).replace("\n", "<br>")
    return f'<{tag} style="{rules}">{content}</{tag}>' if rules else f"<{tag}>{content}</{tag}>"


def say(text: str, style: str = "") -> None:
    """Print text as it is: names from a graph are never read as markup, and paths are not broken into lines."""
    page = _html.get()
    if page is None:
        _terminal.get().print(Text(harmless(text), style=style), soft_wrap=True)
    elif text.strip():
        page.append(_styled("div", text, style, "margin-top:.5em" if "bold" in style else ""))


def notes(texts: Sequence[object]) -> None:
    for text in texts:
        say(f"note: {text}", "yellow")


def warnings(texts: Sequence[object]) -> None:
    """Notes on stderr, beside results that may be JSON."""
    for text in texts:
        errors.print(Text(harmless(f"note: {text}"), style="yellow"), soft_wrap=True)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], caption: str | None = None) -> None:
    """A table; numbers are aligned to the right, text to the left."""
    if title:
        say(title, "bold")
    numeric = [bool(rows) and all(isinstance(row[i], int | float) for row in rows) for i in range(len(columns))]
    page = _html.get()
    if page is not None:
        page.append(_html_table(columns, rows, numeric))
        if caption:
            say(caption, "dim")
        return
    grid = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name, is_number in zip(columns, numeric, strict=True):
        grid.add_column(name, justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        grid.add_row(*map(_cell_text, row))
    _terminal.get().print(Padding(grid, (0, 0, 0, 2), expand=False))
    if caption:
        say(f"  {caption}", "dim")
    _terminal.get().print()


def _cell_text(cell: Any) -> Text:
    """A cell for the terminal, which no name in it can control."""
    if not isinstance(cell, Text):
        return Text(harmless(number(cell)))
    return cell if harmless(cell.plain) == cell.plain else Text(harmless(cell.plain), style=cell.style)


def _html_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], numeric: Sequence[bool]) -> str:
    """The rows of a table as HTML."""
    css = [f"text-align:{'right' if is_number else 'left'};padding:.15em .8em .15em 0" for is_number in numeric]
    lines = ["".join(_styled("th", name, "", rule) for name, rule in zip(columns, css, strict=True))]
    for row in rows:
        cells = [(c.plain, str(c.style)) if isinstance(c, Text) else (number(c), "") for c in row]
        lines.append("".join(_styled("td", *cell, rule) for cell, rule in zip(cells, css, strict=True)))
    return '<table style="border-collapse:collapse">' + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"


def item(label: str, text: str, details: str) -> None:
    """An entry of a list: a label, a line of text, and details below it, folded to the width of the terminal."""
    page = _html.get()
    if page is not None:
        page.append(f"<div>{_styled('b', label)} {_styled('span', text)}<br>{_styled('span', details, 'dim')}</div>")
        return
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(Text(harmless(label)), Text(harmless(text)))
    grid.add_row(Text(), Text(harmless(details), style="dim"))
    _terminal.get().print(Padding(grid, (0, 0, 0, 2), expand=False))


def paragraph(text: str, style: str = "") -> None:
    """Indented text, folded to the width of the terminal."""
    _terminal.get().print(Padding(Text(harmless(text), style=style), (0, 0, 0, 4), expand=False))


def number(value: Any) -> str:
    if isinstance(value, float):
        return "-" if math.isnan(value) else f"{value:.1f}" if abs(value) >= 100 else f"{value:.3f}"
    return f"{value:,}" if isinstance(value, int) else "" if value is None else str(value)


def metrics_table(title: str, rows: Mapping[str, Mapping[str, float]], protocol: str) -> None:
    """One row of metrics per name, and one of weighted metrics where facts have weights, with the protocol as caption."""
    cells = []
    for name, values in rows.items():
        cells.append([name, *(float(values[metric]) for metric in METRICS)])
        if "weighted_mrr" in values:
            cells.append([f"{name}, weighted", *(float(values[f"weighted_{metric}"]) for metric in METRICS)])
    table(title, ["", *METRICS], cells, f"protocol: {protocol}")


def print_json(value: Any) -> None:
    """Print JSON; results know theirs."""
    _print(json.dumps(_plain(value), indent=1, ensure_ascii=_is_limited()))


def _is_limited() -> bool:
    """Whether stdout cannot write every character, so that JSON escapes them."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return not encoding.casefold().replace("-", "").startswith("utf")


def _plain(value: Any) -> Any:
    """What JSON can hold of a value: NaN becomes null, and infinity text."""
    if hasattr(value, "to_json"):
        value = value.to_json()
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value


def _print(text: str) -> None:
    """Print text for programs: at once, so that it is in order with what goes to stderr."""
    print(harmless(text) if console.is_terminal else text, flush=True)


def output(
    result: Result,
    output_format: str,
    show: Callable[[Result], None],
    rows: Callable[[Result], Sequence[Mapping[str, Any]]] | None = None,
    to_json: Callable[[Result], Any] | None = None,
) -> None:
    """Print a result in a format of `--format`: `show` prints it for people, `rows` are its rows in tabular formats.

    By default a result has methods for its rows (`records`) and its JSON (`to_json`).
    """
    if output_format == "table":
        show(result)
    elif output_format == "json":
        print_json(to_json(result) if to_json else result)
    elif output_format == "md" and hasattr(result, "to_markdown"):
        _print(result.to_markdown().rstrip("\n"))
    else:
        print_rows(rows(result) if rows else result.records(), output_format)  # type: ignore[attr-defined]  # Tabular


def print_rows(rows: Sequence[Mapping[str, Any]], output_format: str) -> None:
    """Print rows as JSON lines, CSV, TSV or Markdown; the columns are all keys of the rows, in order of appearance."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = [[_cell(row.get(column)) for column in columns] for row in rows]
    if output_format == "jsonl":
        lines = [json.dumps(_plain(row), ensure_ascii=_is_limited()) for row in rows]
    elif output_format == "md":
        lines = markdown_table(columns, cells)
    else:
        text = io.StringIO()
        delimiter = "," if output_format == "csv" else "\t"
        csv.writer(text, delimiter=delimiter, lineterminator="\n").writerows([columns, *cells])
        lines = [text.getvalue().removesuffix("\n")]
    if rows:
        _print("\n".join(lines))


def _cell(value: Any) -> str:
    """A value in a cell of text: nothing for no value, JSON for what has parts."""
    value = _plain(value)
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _progress(*columns: ProgressColumn, transient: bool = True) -> Progress:
    """Progress on stderr, shown in a terminal and by the main process only."""
    hidden = not errors.is_terminal or torchrun.rank() > 0
    return Progress(*columns, console=errors, transient=transient, disable=hidden)


class _CountColumn(MofNCompleteColumn):
    """How much is done, of how much if that is known."""

    def render(self, task: Task) -> Text:
        if task.total is not None:
            return super().render(task)
        return Text(f"{task.completed:,.0f}" if task.completed else "", style="progress.download")


@contextlib.contextmanager
def bar(title: str, total: int | None = None, at_once: bool = True) -> Iterator[Callable[[float], None]]:
    """A progress bar, shown at once or when it first advances; yields a function that advances it."""
    with _progress(TextColumn(title), BarColumn(), _CountColumn(), TimeRemainingColumn()) as progress:
        task = progress.add_task(title, total=total, visible=at_once)
        yield lambda amount: progress.update(task, advance=amount, visible=True)


def download(graph: str) -> None:
    """Download a dataset that is not on this machine yet; processes of one torchrun take turns later, in `load`."""
    from harmonium.data.datasets import is_server, locate
    from harmonium.runtime.folders import is_finished

    if not (torchrun.is_launched() or is_server(graph) or is_finished(Path(graph))):
        with bar(f"downloading {graph}, MB", at_once=False) as advance:
            locate(graph, lambda count: advance(count / 1e6))


@contextlib.contextmanager
def training_bar() -> Iterator[Callable[[TrainingProgress], None]]:
    """A live bar of the stage, epochs, loss and best validation metric; without a terminal, a line every tenth of it."""
    columns = TextColumn("{task.fields[stage]}"), BarColumn(), TextColumn("{task.fields[state]}"), TimeElapsedColumn()
    with _progress(*columns, TimeRemainingColumn(), transient=False) as progress:
        task = progress.add_task("training", total=None, stage="training", state="first epoch")
        stage, printed = "", -1  # tenths of the stage that were printed

        def update(now: TrainingProgress) -> None:
            nonlocal stage, printed
            if now.stage != stage:
                if not stage:
                    errors.print(Text(f"training with {now.backend}"))
                stage, printed = now.stage, 0
                progress.reset(task)
            best = f"best {now.metric} {now.best:.3f}" if now.best > -math.inf else "not validated yet"
            loss = "" if math.isnan(now.loss) else f"loss {now.loss:.3f}  "
            state = f"epoch {now.epoch}  {loss}{best if now.stage == 'training' else ''}"
            progress.update(task, completed=now.step, total=now.steps, stage=harmless(now.stage), state=state)
            tenth = 10 * now.step // now.steps
            if not errors.is_terminal and tenth > printed and (now.stage == "training" or now.step == now.steps):
                printed = tenth
                errors.print(Text(f"{now.stage} {100 * now.step // now.steps}%  {state}"))

        yield update
