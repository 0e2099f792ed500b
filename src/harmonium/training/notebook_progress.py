"""Progress of a training, shown in notebooks by default."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from harmonium.runtime.notebook_bar import NotebookBar, in_notebook
from harmonium.training.state import Progress

OnProgress = Callable[[Progress], None]


def training_progress(progress: OnProgress | Literal[False] | None) -> OnProgress | None:
    """The callback for every step: the given one; by default a progress bar in notebooks and nothing elsewhere."""
    if progress is not None or not in_notebook():
        return progress or None
    bar = NotebookBar()

    def update(now: Progress) -> None:
        bar.update(now.step, now.steps, f"{now.stage}: {now.state}")

    return update


def stage_counter(report: OnProgress | None, stage: str, total: int, unit: str) -> Callable[[int], None] | None:
    """A callback that takes the number of further items done (of `total`) and reports the sum; None without `report`."""
    if report is None or not total:
        return None
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done = min(done + count, total)
        report(Progress(done, total, stage=stage, unit=unit))

    advance(0)
    return advance
