"""Terminal output: text, tables and progress bars."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from harmonium.runtime.untrusted import harmless

if TYPE_CHECKING:
    from harmonium.training.state import Progress as TrainingProgress

console = Console(highlight=False)
errors = Console(stderr=True, highlight=False)
Result = TypeVar("Result")
METRICS = ("mr", "mrr", "hits@1", "hits@3", "hits@10", "amri")


def say(text: str, style: str = "") -> None:
    """Print text as it is: names from a graph are never read as markup, and paths are not broken into lines."""
    console.print(Text(harmless(text), style=style), soft_wrap=True)


def notes(texts: Sequence[object]) -> None:
    for text in texts:
        say(f"note: {text}", "yellow")


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], caption: str | None = None) -> None:
    """A table; numbers are aligned to the right, text to the left."""
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


def item(label: str, text: str, details: str) -> None:
    """An entry of a list: a label, a line of text, and details below it, folded to the width of the terminal."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(Text(harmless(label)), Text(harmless(text)))
    grid.add_row(Text(), Text(harmless(details), style="dim"))
    console.print(Padding(grid, (0, 0, 0, 2)))


def number(value: Any) -> str:
    if isinstance(value, float):
        return "-" if math.isnan(value) else f"{value:.1f}" if abs(value) >= 100 else f"{value:.3f}"
    return f"{value:,}" if isinstance(value, int) else "" if value is None else str(value)


def metrics_table(title: str, rows: Mapping[str, Mapping[str, float]], protocol: str) -> None:
    """One row of metrics per name, with the protocol as caption."""
    cells = [[name, *(float(values[metric]) for metric in METRICS)] for name, values in rows.items()]
    table(title, ["", *METRICS], cells, f"protocol: {protocol}")


def print_json(value: Any) -> None:
    """Print JSON; results know theirs."""
    print(json.dumps(value, indent=1, ensure_ascii=False, default=lambda result: result.to_json()))


def output(result: Result, as_json: bool, show: Callable[[Result], None]) -> None:
    """Print a result as JSON, or as text by `show`."""
    if as_json:
        print_json(result)
    else:
        show(result)


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
    from harmonium.data.datasets import locate

    if not torchrun.is_launched():
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
