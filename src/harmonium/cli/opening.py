"""Open the run of a command that takes a graph or a run, and show how a model is trained on a graph first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from harmonium.cli import console, display

if TYPE_CHECKING:
    from harmonium.data.graph import Graph
    from harmonium.run.run import Run
    from harmonium.training.state import Progress


def open_or_train(source: str, quiet: bool, **options: Any) -> Run:
    """The run of a graph, or a new one; what is done is shown unless only results are to be printed."""
    from harmonium.answers import open_or_train as answers

    class Shown(answers.Steps):
        @contextmanager
        def reading(self) -> Iterator[None]:
            console.download(source)
            with console.bar(f"reading {source}"):
                yield

        def training(self) -> AbstractContextManager[Callable[[Progress], None]]:
            return console.training_bar()

        def has_read(self, graph: Graph) -> None:
            if not quiet:
                console.show(display.reading(source, graph))

        def uses_again(self, run: Run) -> None:
            if not quiet:
                console.say(f"{run.path} was trained on the same facts and is used again; --overwrite trains anew")

        def has_trained(self, run: Run) -> None:
            if not quiet:
                console.show([*run.display_training(), *run.display_metrics()])

    return answers.open_or_train(source, tell=Shown(), **options)
