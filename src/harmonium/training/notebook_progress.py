"""How far a training is, shown in a notebook by default."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

from harmonium.runtime.notebook_bar import NotebookBar, in_notebook
from harmonium.training.state import Progress

OnProgress = Callable[[Progress], None]


def training_progress(progress: OnProgress | Literal[False] | None) -> OnProgress | None:
    """The function that is told of every step: the given one; by default a bar in a notebook, elsewhere none."""
    if progress is not None or not in_notebook():
        return progress or None
    bar = NotebookBar()

    def update(now: Progress) -> None:
        loss = "" if math.isnan(now.loss) else f", loss {now.loss:.3f}"
        best = f", best {now.metric} {now.best:.3f}" if now.best > -math.inf and now.stage == "training" else ""
        bar.update(now.step, now.steps, f"{now.stage}: epoch {now.epoch}{loss}{best}")

    return update
