"""Update the reviewed run with the judgements so far, in a separate thread; then the server can show the result.

The updated run goes into a new folder beside the old one, which is never changed: a server that is killed leaves the old
run, all judgements, and a new run that is complete or absent. There is one update at a time.
"""

import logging
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any, Literal

from harmonium.errors import HarmoniumError
from harmonium.review.apply import apply_judgements
from harmonium.review.judgements import updated_name
from harmonium.review.session import Review
from harmonium.run.run import Run
from harmonium.server.explorer import Explorer

STOP_SECONDS = 30.0  # to wait for a running update when the server stops
logger = logging.getLogger("harmonium")


@dataclass(frozen=True)
class UpdateState:
    """State of the last update that a reviewer requested."""

    state: Literal["none", "running", "done", "failed"]
    reviewer: str | None = None  # who requested it
    stage: str = ""  # what it is doing
    steps: int = 0  # done so far in this stage
    run: str | None = None  # name of the new folder
    change: str = ""  # how many facts were added, removed, and so on
    notes: list[str] = field(default_factory=list)
    mrr_before: float | None = None
    mrr_after: float | None = None
    error: str | None = None


@dataclass(frozen=True)
class UpdatedRun:
    """An updated run, prepared for queries and for its review."""

    explorer: Explorer
    review: Review


class Stopped(Exception):
    """Raised in an update when the server stops."""


class RunUpdate:
    """The last requested update of the reviewed run: its progress and its result."""

    def __init__(self) -> None:
        self.state = UpdateState("none")
        self.result: UpdatedRun | None = None  # until it is taken
        self.lock, self.stopping, self.thread = Lock(), Event(), Thread()

    def start(self, run: Run, review: Review, reviewer: str) -> UpdateState:
        """Begin an update of the run with all judgements, unless one is running; returns its state."""
        with self.lock:
            if self.state.state == "running":
                return self.state
            if not len(review.pending()):
                raise HarmoniumError("nothing to update: the run reflects all judgements on which reviewers agree")
            folder = next_folder(run)
            self.result, self.state = None, UpdateState("running", reviewer, "starting", run=folder.name)
            self.thread = Thread(target=self._run, args=(run, review, reviewer, folder), daemon=True)
            self.thread.start()
            return self.state

    def take(self) -> UpdatedRun:
        """Return and forget the result of a finished update."""
        with self.lock:
            if self.result is None:
                raise HarmoniumError("there is no updated run to open")
            result, self.result, self.state = self.result, None, UpdateState("none")
            return result

    def stop(self) -> None:
        """Abort a running update, and remove what it has written."""
        self.stopping.set()
        if self.thread.is_alive():
            self.thread.join(STOP_SECONDS)

    def _run(self, run: Run, review: Review, reviewer: str, folder: Path) -> None:
        try:
            self.result = self._update(run, review, reviewer, folder)
            self._set(state="done", stage="", steps=0)
        except Stopped:
            self._set(state="failed", error="the server was stopped")
        except HarmoniumError as error:
            self._set(state="failed", error=_without_folder(str(error), folder))
        except Exception:
            logger.exception("an update failed")
            self._set(state="failed", error="internal error; see the server's log")

    def _update(self, run: Run, review: Review, reviewer: str, folder: Path) -> UpdatedRun:
        judgements = review.store.path
        words = ["harmonium", "update", str(run.path), "--judgements", str(judgements), "--out", str(folder)]
        command = f"{shlex.join(words)}  # by {reviewer}, in the explorer"
        updated = apply_judgements(
            run, judgements, out=folder, progress=self._progress("updating the model"), command=command
        )
        self._set(
            change=updated.updates[-1].summary(), notes=updated.updates[-1].record.notes,
            mrr_before=run.metrics.get("mrr") if _are_comparable(run, updated) else None,
            mrr_after=updated.metrics.get("mrr"),
        )  # fmt: skip
        explorer, progress = Explorer(updated), self._progress("preparing its pages")
        explorer.prepare(progress)
        progress = self._progress("searching for facts to judge")
        queue = review.queue
        review = Review.start(updated, review.store, order=queue.order, top=queue.top, progress=progress)
        return UpdatedRun(explorer, review)

    def _progress(self, stage: str) -> Callable[[int], None]:
        self._set(stage=stage, steps=0)

        def advance(amount: int) -> None:
            if self.stopping.is_set():
                raise Stopped
            self._set(steps=self.state.steps + amount)

        return advance

    def _set(self, **values: Any) -> None:
        self.state = replace(self.state, **values)


def next_folder(run: Run) -> Path:
    """A folder beside that of the run which does not exist: demo.update-1 after demo, demo.update-2 after that."""
    if run.path is None:
        raise HarmoniumError(
            "the run was not saved, so an updated one cannot be written beside it; save it, and serve that folder"
        )
    path, number = run.path.resolve(), 1
    while (folder := path.with_name(updated_name(path.name, number))).exists() or folder.is_symlink():
        number += 1
    return folder


def _are_comparable(run: Run, updated: Run) -> bool:
    """Whether the metrics of two runs have the same protocol; an update ranks a sample of many facts."""
    before, after = run.evaluation, updated.evaluation
    return before is not None and after is not None and before.describe() == after.describe()


def _without_folder(message: str, folder: Path) -> str:
    """A message without the path of the folder on this machine, only its name."""
    return message.replace(f"{folder.parent}/", "")
