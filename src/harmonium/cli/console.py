"""Terminal output: text, tables and progress bars."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import logging
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rich.console import Console
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
from rich.text import Text

from harmonium.runtime import torchrun
from harmonium.runtime.displayed import Displayed, Line, Part, notes
from harmonium.runtime.frames import markdown_table
from harmonium.runtime.rendering import print_parts
from harmonium.runtime.untrusted import harmless

if TYPE_CHECKING:
    from harmonium.training.state import Progress as TrainingProgress

if not os.environ.get("COLUMNS", "1").strip("0"):  # with COLUMNS=0 nothing would be printed
    del os.environ["COLUMNS"]


class _Log(Console):
    """Messages and progress on stderr. If writing fails, as to a file on a full disk, they are dropped and work goes on."""

    def print(self, *objects: Any, **options: Any) -> None:
        with contextlib.suppress(OSError):
            super().print(*objects, **options)


console = Console(highlight=False)
errors = _Log(stderr=True, highlight=False)
Result = TypeVar("Result")
FORMATS = ("table", "json", "jsonl", "csv", "tsv", "md")


def show(result: Displayed | Iterable[Part]) -> None:
    """Print a result, or an iterable of lines and tables, for people."""
    print_parts(result.display() if isinstance(result, Displayed) else result, console)


def say(text: str, style: str = "") -> None:
    """Print a line verbatim: names from a graph are not interpreted as markup, and long paths are not wrapped."""
    show([Line(text, style)])


def warnings(texts: Iterable[object]) -> None:
    """Print notes on stderr, as results on stdout may be JSON."""
    print_parts(notes(texts), errors)


class _ReadingLog(logging.Handler):
    """Log handler that prints how files of facts are read: on stderr, each message once, warnings in colour."""

    def __init__(self) -> None:
        super().__init__()
        self.printed: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if text in self.printed:
            return
        self.printed.add(text)
        is_warning = record.levelno >= logging.WARNING
        style = "bold yellow" if is_warning else "dim"
        errors.print(Text(harmless(f"{'warning: ' * is_warning}{text}"), style=style), soft_wrap=True)


def show_reading() -> None:
    """From now on print which columns of a file became head, relation and tail; in the main process only."""
    logger = logging.getLogger("harmonium.reading")
    logger.handlers = [_ReadingLog() if torchrun.rank() <= 0 else logging.NullHandler()]
    logger.propagate = False
    logger.setLevel(logging.INFO)


def print_json(value: Any) -> None:
    """Print a value as JSON; results are converted by their `to_json`."""
    _print(json.dumps(_plain(value), indent=1, ensure_ascii=_is_limited()))


def _is_limited() -> bool:
    """Whether the encoding of stdout lacks characters, so that JSON must escape them."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return not encoding.casefold().replace("-", "").startswith("utf")


def _plain(value: Any) -> Any:
    """A value reduced to JSON types: NaN becomes null, infinity becomes text."""
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
    """Print text for programs and flush, so that it stays in order with stderr."""
    print(harmless(text) if console.is_terminal else text, flush=True)


def output(
    result: Result,
    output_format: str,
    show_result: Callable[[Result], None] | None = None,
    rows: Callable[[Result], Sequence[Mapping[str, Any]]] | None = None,
    to_json: Callable[[Result], Any] | None = None,
) -> None:
    """Print a result in a format of `--format`: `show_result` prints it for people, `rows` returns its rows for tables.

    By default the methods of the result are used: `display`, `records` for rows and `to_json`.
    """
    if output_format == "table":
        (show_result or show)(result)  # type: ignore[arg-type]  # Displayed
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
    """A value as a cell of text: "" for None, JSON for lists and objects."""
    value = _plain(value)
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _progress(*columns: ProgressColumn, transient: bool = True) -> Progress:
    """Progress on stderr, shown in a terminal and by the main process only."""
    hidden = not errors.is_terminal or torchrun.rank() > 0
    return Progress(*columns, console=errors, transient=transient, disable=hidden)


class _CountColumn(MofNCompleteColumn):
    """Amount done, and the total if that is known."""

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
    """Download a dataset that is not on this machine yet. Under torchrun `load` does it, one process at a time."""
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
            progress.update(task, completed=now.step, total=now.steps, stage=harmless(now.stage), state=now.state)
            tenth = 10 * now.step // now.steps
            if not errors.is_terminal and tenth > printed and (now.stage == "training" or now.step == now.steps):
                printed = tenth
                errors.print(Text(f"{now.stage} {100 * now.step // now.steps}%  {now.state}"))

        yield update
