"""What people see in a terminal: tables and progress bars."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from harmonium import launch
from harmonium.suspicion import harmless

console = Console(highlight=False)
errors = Console(stderr=True, highlight=False)
METRICS = ("mr", "mrr", "hits@1", "hits@3", "hits@10", "amri")


def say(text: str, style: str | None = None) -> None:
    """Print text as it is: names from a graph are never read as markup, and paths are not broken into lines."""
    console.print(Text(harmless(text), style=style or ""), soft_wrap=True)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], caption: str | None = None) -> None:
    """A table; numbers to the right, text to the left."""
    say(title, "bold")
    grid = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for position, name in enumerate(columns):
        numeric = bool(rows) and all(isinstance(row[position], int | float) for row in rows)
        grid.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        grid.add_row(*(cell if isinstance(cell, Text) else Text(harmless(number(cell))) for cell in row))
    console.print(Padding(grid, (0, 0, 0, 2)))
    if caption:
        say(f"  {caption}", "dim")
    console.print()


def number(value: Any) -> str:
    if isinstance(value, float):
        return "-" if math.isnan(value) else f"{value:.1f}" if abs(value) >= 100 else f"{value:.3f}"
    return f"{value:,}" if isinstance(value, int) else "" if value is None else str(value)


def metrics_table(title: str, rows: Mapping[str, Mapping[str, float]], protocol: str) -> None:
    """Metrics of several models or parts, with the protocol under them."""
    cells = [[name, *(float(values[m]) for m in METRICS)] for name, values in rows.items()]
    table(title, ["", *METRICS], cells, f"protocol: {protocol}")


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=1, ensure_ascii=False))


@contextlib.contextmanager
def bar(what: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr; yields a function that moves it on."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(
        *columns, console=errors, transient=True, disable=not errors.is_terminal or launch.rank() > 0
    ) as progress:
        task = progress.add_task(what, total=total)
        yield lambda done: progress.advance(task, done)


@contextlib.contextmanager
def training_bar() -> Iterator[Callable[[Any], None]]:
    """A live bar of epochs, loss and the best validation metric; a plain line now and then where there is no terminal."""
    columns = (
        TextColumn("training"), BarColumn(), TextColumn("{task.fields[state]}"), TimeElapsedColumn(), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=errors, disable=not errors.is_terminal or launch.rank() > 0) as progress:
        task, told = progress.add_task("training", total=None, state="first epoch"), -1

        def watch(now: Any) -> None:
            nonlocal told
            if told < 0:
                told = 0
                errors.print(Text(f"training by {now.way}"))
            best = f"best {now.metric} {now.best:.3f}" if now.best > -math.inf else "not validated yet"
            loss = "" if math.isnan(now.loss) else f"loss {now.loss:.3f}  "
            state = f"epoch {now.epoch}  {loss}{best}"
            progress.update(task, completed=now.step, total=now.steps, state=state)
            tenth = 10 * now.step // now.steps
            if not errors.is_terminal and tenth > told:
                told = tenth
                errors.print(Text(f"training {100 * now.step // now.steps}%  {state}"))

        yield watch
