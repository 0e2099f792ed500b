"""The run to ask: one that is given or in a folder, or one trained on a graph first."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from harmonium.data.canonical_order import in_canonical_order
from harmonium.data.datasets import graph_name, read_graph
from harmonium.data.graph import SPLITS, Graph
from harmonium.data.triples import Slot
from harmonium.errors import HarmoniumError
from harmonium.run.run import Run
from harmonium.runtime.folders import is_finished, is_unfinished
from harmonium.training.state import Progress
from harmonium.training.train import train


class Steps:
    """What `open_or_train` tells of its steps, for whoever shows them; here nobody."""

    def reading(self) -> AbstractContextManager[object]:
        return nullcontext()

    def has_read(self, graph: Graph) -> None: ...

    def uses_again(self, run: Run) -> None: ...

    def training(self) -> AbstractContextManager[Callable[[Progress], None] | None]:
        return nullcontext()

    def has_trained(self, run: Run) -> None: ...


def open_or_train(
    source: Any,
    *,
    preset: str | None = None,
    minutes: float | None = None,
    folder: str | Path | None = None,
    overwrite: bool = False,
    tell: Steps | None = None,
    **options: Any,
) -> Run:
    """A run as it is or from its folder; on anything else that `load` reads (`options`), a model is trained first.

    Rows of a file that cannot be used are skipped. The run is saved in `folder` (default for a name or path: runs/NAME),
    where one on the same facts is used again.
    """
    if isinstance(source, Run) or is_run_folder(source):
        training = {"preset": preset, "minutes": minutes, "folder": folder, "overwrite": overwrite or None} | options
        training.pop("allow_internal", None)  # it may be meant for where facts are sent
        if given := [name for name, value in training.items() if value is not None]:
            raise HarmoniumError(f"{_described(source)} is a run, which is not trained again; drop {_option(given[0])}")
        return Run.of(source)
    tell = tell or Steps()
    with tell.reading():
        graph, folder = read_graph(source, **options), folder or run_folder(source)
    tell.has_read(graph)
    earlier = None if folder is None or overwrite else earlier_run(Path(folder), graph, preset, minutes)
    if earlier is not None:
        tell.uses_again(earlier)
        return earlier
    with tell.training() as progress:
        run = train(graph, preset, folder, overwrite=overwrite, progress=progress, minutes=minutes)
    tell.has_trained(run)
    return run


def _option(name: str) -> str:
    """A keyword, and how the command line calls it."""
    return f"{name} (--{'run' if name == 'folder' else name.replace('_', '-')})"


def _described(source: Any) -> str:
    return str(source) if isinstance(source, str | os.PathLike) else repr(source)


def is_run_folder(source: Any) -> bool:
    return isinstance(source, str | os.PathLike) and is_finished(Path(source))


def run_folder(source: Any) -> Path | None:
    """Where the run on a graph is saved by default: runs/facts for data/facts.csv.gz; nowhere for a value in memory."""
    return Path("runs") / graph_name(source) if isinstance(source, str | os.PathLike) else None


def earlier_run(folder: Path, graph: Graph, preset: str | None = None, minutes: float | None = None) -> Run | None:
    """The run in a folder if it was trained on the same facts, None if there is none; any other is an error."""
    if is_unfinished(folder) or not folder.exists():
        return None  # `train` says how to resume an unfinished one
    others = (
        f"--overwrite trains again in its place, --run OTHER in another folder; `harmonium complete {folder}` uses it"
    )
    if not is_run_folder(folder):
        raise HarmoniumError(f"{folder} exists and is no run folder; --run OTHER trains in another folder")
    run = Run.load(folder)
    if not have_same_facts(run.graph, graph):
        sizes = [f"{sum(map(len, each.splits.values())):,} facts" for each in (run.graph, graph)]
        raise HarmoniumError(f"{folder} is a run on other facts ({sizes[0]}, now {sizes[1]}): {others}")
    if preset is not None or minutes is not None:
        raise HarmoniumError(f"{folder} is a run on these facts already: {others}")
    return run


def have_same_facts(first: Graph, second: Graph) -> bool:
    """Whether two graphs have the same facts in the same splits, by name, in whatever order."""
    if any(len(first.splits[split]) != len(second.splits[split]) for split in SPLITS):
        return False
    first, second = in_canonical_order(first), in_canonical_order(second)
    same_names = first.entities.ids == second.entities.ids and first.relations.ids == second.relations.ids
    return same_names and all(
        bool((first.splits[split][slot] == second.splits[split][slot]).all()) for split in SPLITS for slot in Slot
    )
