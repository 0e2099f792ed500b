"""The public function `audit`: known facts that are probably wrong, without those that people have confirmed."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harmonium.answers.audit.audit import find_suspects
from harmonium.answers.audit.suspect import Audit, in_words
from harmonium.answers.open_or_train import open_or_train
from harmonium.answers.open_run import open_run
from harmonium.answers.send.result_file import check_path, write_rows
from harmonium.data.tables.reading_options import NAMES as READING
from harmonium.errors import refuse_unknown, whole_number
from harmonium.review.judgements import default_path, read_judgements
from harmonium.review.store import FactIds
from harmonium.run.run import Run


def audit(
    graph_or_run: Any,
    *,
    top: int = 100,
    out: str | Path | None = None,
    judgements: str | Path | None = None,
    preset: str | None = None,
    minutes: float | None = None,
    folder: str | Path | None = None,
    overwrite: bool = False,
    progress: Callable[[int], None] | None = None,
    **reading: Any,
) -> Audit:
    """The known facts that are probably wrong, most likely first, each with a probability, a reason and what was meant.

    A run, or a graph as `load` reads it (`reading`), on which a model is trained first, as `complete` does (`preset`,
    `minutes`, `folder`, `overwrite`). Every fact is judged hidden from itself, by constraints over all other facts and by
    vectors trained without it. The probability is learned from artificial errors beside the known facts; it is that of a
    fact being wrong, where `complete` gives that of a missing one being true. How many facts are wrong in all is
    estimated too: `audit.wrong`, with a 95 % `interval`.

    `top`: so many facts, also in the file `out`. Facts that a review accepted are left out: those of `judgements`,
    by default the file beside the run folder. An audit takes about as long as training did and is kept in the run folder.

    >>> harmonium.audit("facts.csv", out="suspects.csv").summary()
    >>> harmonium.audit("runs/demo", top=20).suspects[0].reason
    """
    if out is not None:
        check_path(out)
    top = whole_number("top", top)
    refuse_unknown(reading, OPTIONS, READING)
    opened = open_run(
        open_or_train(graph_or_run, preset=preset, minutes=minutes, folder=folder, overwrite=overwrite, **reading)
    )
    confirmed = confirmed_facts(opened.run, judgements)
    audited = in_words(opened, find_suspects(opened, progress), top, confirmed, progress)
    if out is not None:
        write_rows(out, iter(audited.records()), str(opened.run.path))
    return audited


OPTIONS = tuple(inspect.signature(audit).parameters)[:-1]


def confirmed_facts(run: Run, judgements: str | Path | None = None) -> list[FactIds]:
    """Facts that people accepted, by identifier; none where there is no review of the run."""
    if judgements is None:
        if run.path is None or not default_path(run).exists():
            return []
        judgements = default_path(run)
    return read_judgements(judgements).accepted
