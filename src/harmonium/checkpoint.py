"""Checkpoints: a training that was stopped, or killed at any moment, goes on as if it had not been.

    RUN/checkpoints/
      lock                 held, with its process id, by who trains here
      data.graph           the graph
      training.json        format, settings, environment, device, and the checksums of the graph and of itself
      000007.safetensors   all that changes: parameters, the best ones, optimisers, generators
      000007.json          where training stood, and the checksums of the tensors and of itself

Several processes write a folder 000007/ instead of one file of tensors (shards.py). A JSON file is written after what
it vouches for, and no checkpoint is written twice. The folder goes when the run is whole.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import shutil
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from safetensors import SafetensorError
from torch import Tensor

from harmonium import folder, graph_file, shards, tensor_file
from harmonium.config import Config, TrainConfig
from harmonium.distributed import World, alone_or_first, between_processes
from harmonium.errors import HarmoniumError, Stopped
from harmonium.folder import UNFINISHED, logger
from harmonium.graph import Graph

FORMAT = 2  # 1 had no list of files
SIGNALS = (signal.SIGINT, signal.SIGTERM)
MAY_CHANGE = (  # settings of train that may change on the way; others would make another training
    "learning_rate", "schedule", "epochs", "metric", "evaluate_every", "patience", "threads",
    "checkpoint_minutes", "checkpoint_every", "checkpoint_keep",
)  # fmt: skip


class Resumable(Protocol):
    """What can be saved between two steps and put back."""

    steps: int  # done so far
    rows: int  # of the entity table, over all processes
    dealt: set[str]  # the tensors of `pack` that have such rows, which several processes deal among them

    def pack(self) -> tuple[dict[str, Tensor], dict[str, Any]]: ...
    def unpack(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None: ...


class Checkpoints:
    """The checkpoints of one training: saved when it is time, the last ones kept, the newest sound one put back."""

    def __init__(self, run: Path, settings: TrainConfig, device: str, world: World | None = None) -> None:
        self.run, self.folder, self.settings, self.device = run, run / UNFINISHED, settings, device
        self.world = world
        self.signal: int | None = None  # what asked training to stop
        self.saved: int | None = None  # the step that training could go on from
        self.clock = time.monotonic()

    def after_step(self, training: Resumable) -> None:
        """Save when it is time; save and stop when asked to."""
        every, minutes = self.settings.checkpoint_every, self.settings.checkpoint_minutes
        due = every is not None and training.steps % every == 0
        here = [bool(self.signal), time.monotonic() - self.clock >= 60 * minutes]
        stop, late = here if self.world is None else self.world.any(here)
        if stop or due or late:
            self.save(training)
        if stop:
            raise KeyboardInterrupt

    def last(self, training: Resumable) -> None:
        """Training is over: save it, as what follows may fail; stop when asked to."""
        self.save(training)
        if self.signal if self.world is None else self.world.any([bool(self.signal)])[0]:
            raise KeyboardInterrupt

    def save(self, training: Resumable) -> None:
        """Write a checkpoint and drop the oldest; where that fails training goes on, the earlier ones are kept."""
        tensors, facts = training.pack()
        name = f"{max(map(int, self.names()), default=0) + 1:06d}"
        try:
            files = self._write(name, tensors, training)
            about = {"format": FORMAT, "files": files, "dealt": sorted(training.dealt), "steps": training.steps}
            facts = about | facts
            alone_or_first(self.world, lambda: folder.write(self.folder / f"{name}.json", folder.seal(facts)))
        except OSError as error:
            alone_or_first(self.world, lambda: self.remove(name))
            why = error.strerror or str(error)
            logger.warning("%s: no checkpoint at step %d (%s); training goes on", self.run, training.steps, why)
        else:
            self.saved = training.steps
            alone_or_first(
                self.world, lambda: [self.remove(old) for old in self.names()[: -self.settings.checkpoint_keep]]
            )
        self.clock = time.monotonic()

    def _write(self, name: str, tensors: dict[str, Tensor], training: Resumable) -> dict[str, str]:
        """Write a checkpoint's tensors; returns the checksum of each file."""
        if self.world is None:
            file = f"{name}.safetensors"
            return {file: folder.write(self.folder / file, tensor_file.parts(tensors))}
        name = self.world.tell(name)
        shards.save(self.folder / name, tensors, training.dealt, training.rows, self.world)
        return self.world.first(lambda: folder.settle(self.folder / name))

    def restore(self, training: Resumable) -> None:
        """Put back the newest checkpoint that is sound; without any, training starts from the beginning."""
        found = alone_or_first(self.world, self._newest)
        if found is None:
            return
        name, facts = found
        try:
            training.unpack(self._read(name, facts), facts)
        except (SafetensorError, KeyError, RuntimeError) as error:
            if between_processes(error):
                raise
            place = self.folder / f"{name}.json"
            raise HarmoniumError(f"{place}: of no use to this version or device ({error}); train again") from error
        self.saved = facts["steps"]

    def _newest(self) -> tuple[str, dict[str, Any]] | None:
        for name in reversed(self.names()):
            try:
                facts = folder.unseal(self.folder / f"{name}.json", formats=(FORMAT,))
                for file, digest in facts["files"].items():
                    folder.checked(self.folder / file, digest)
                return name, facts
            except HarmoniumError as error:
                what = str(error).partition("; ")[0]
                logger.warning("%s; going on from the checkpoint before it, or the beginning", what)
                self.remove(name)
        return None

    def _read(self, name: str, facts: dict[str, Any]) -> dict[str, Tensor]:
        """The tensors of a checkpoint that one process or several wrote: all of them, or this process's rows."""
        if (self.folder / name).is_dir():
            return shards.load(self.folder / name, facts["dealt"], self.world)
        tensors, _ = tensor_file.read(self.folder / f"{name}.safetensors")
        for dealt in facts["dealt"] if self.world else ():
            tensors[dealt] = tensors[dealt][self.world.rows(len(tensors[dealt]))]
        return tensors

    def names(self) -> list[str]:
        """Of the checkpoints, oldest first."""
        return sorted(file.stem for file in self.folder.glob("*.json") if re.fullmatch(r"\d+", file.stem))

    def remove(self, name: str) -> None:
        for ending in (".json", ".safetensors"):
            (self.folder / (name + ending)).unlink(missing_ok=True)
        shutil.rmtree(self.folder / name, ignore_errors=True)

    @contextlib.contextmanager
    def stoppable(self) -> Iterator[None]:
        """Inside, the first Ctrl-C or SIGTERM waits for the step to end (`after_step`); a second one acts at once."""

        def ask(number: int, _: Any) -> None:
            self.signal = number
            give_back()
            logger.warning("stopping after this step; once more to stop at once")

        def give_back() -> None:
            for number, handler in before.items():
                signal.signal(number, handler)

        before: dict[int, Any] = {}
        for number in SIGNALS if threading.current_thread() is threading.main_thread() else ():
            before[number] = signal.getsignal(number) or signal.SIG_DFL
            signal.signal(number, ask)
        try:
            yield
        finally:
            give_back()

    @contextlib.contextmanager
    def telling(self) -> Iterator[Checkpoints]:
        """What stops training also says how to go on."""
        command = f"`harmonium resume {self.run}"
        try:
            yield self
        except KeyboardInterrupt:
            where = "the beginning" if self.saved is None else f"step {self.saved:,}"
            raise Stopped(f"stopped; {command}` goes on from {where}", 128 + (self.signal or signal.SIGINT)) from None
        except HarmoniumError as error:
            if self.saved is None or command in str(error):
                raise
            text = f"{error}; {command} --set KEY=VALUE` goes on from step {self.saved:,}"
            raise type(error)(text) from error


@contextlib.contextmanager
def begin(
    path: Path,
    overwrite: bool,
    config: Config,
    graph: Graph,
    device: str,
    environment: dict[str, str],
    world: World | None = None,
) -> Iterator[Checkpoints]:
    """A new training into a run folder; nothing stays of one that failed before its first checkpoint."""
    checkpoints = Checkpoints(path, config.train, device, world)

    def prepare() -> None:
        (checkpoints.folder / "training.json").unlink(missing_ok=True)  # first: nothing is left to go on with
        for file in checkpoints.folder.iterdir():
            if file.is_dir():
                shutil.rmtree(file)
            elif file.name != "lock":
                file.unlink()
        checksum = folder.write(checkpoints.folder / "data.graph", graph_file.parts(graph))
        about = {"environment": environment, "device": device, "files": {"data.graph": checksum}}
        _write_about(checkpoints.folder, config, about)

    with _alone(path, world):
        alone_or_first(world, lambda: folder.reserve(path, overwrite))
        try:
            with _in_words(path):
                alone_or_first(world, prepare)
            if world is not None and world.any([not folder.unfinished(path)])[0]:
                raise HarmoniumError(f"{path} is not seen by every process; choose a folder that all machines see")
            with checkpoints.telling():
                yield checkpoints
        except Exception:
            if checkpoints.saved is None and (world is None or world.leads):
                with contextlib.suppress(OSError):
                    (checkpoints.folder / "training.json").unlink(missing_ok=True)
                shutil.rmtree(checkpoints.folder, ignore_errors=True)
                with contextlib.suppress(OSError):
                    path.rmdir()  # unless there is an earlier run in it
            raise


@contextlib.contextmanager
def reopen(
    path: Path, sets: Sequence[str], environment: dict[str, str], world: World | None = None
) -> Iterator[tuple[Checkpoints, Config, Graph]]:
    """The training in a run folder, to go on with, by as many processes as one likes."""
    place, leads = path / UNFINISHED, world is None or world.leads
    with _alone(path, world):
        about = folder.unseal(place / "training.json", formats=(FORMAT,))
        for name, digest in about["files"].items():
            folder.checked(place / name, digest)
        config, graph = Config.of(about["config"], where=str(place)), graph_file.load(place / "data.graph")
        if sets:
            config = changed(config, Config.of(about["config"], sets, str(place)))
            with _in_words(path):
                if leads:
                    _write_about(place, config, about)
        others = [
            f"{k} {v}, here {environment.get(k)}" for k, v in about["environment"].items() if v != environment.get(k)
        ]
        if others and leads:
            logger.warning("%s began elsewhere (%s): it may end otherwise in the last digits", path, "; ".join(others))
        checkpoints = Checkpoints(path, config.train, about["device"], world)
        with checkpoints.telling():
            yield checkpoints, config, graph


def settings(path: Path) -> Config:
    """Those of a training that has not finished."""
    about = folder.unseal(path / UNFINISHED / "training.json", formats=(FORMAT,))
    return Config.of(about["config"], where=str(path))


def changed(before: Config, after: Config) -> Config:
    """The new settings, if a training can change to them on its way."""
    same = {name: getattr(before.train, name) for name in MAY_CHANGE}
    if dataclasses.replace(after, train=dataclasses.replace(after.train, **same)) != before:
        raise HarmoniumError(
            f"only {', '.join(f'train.{name}' for name in MAY_CHANGE)} can change on the way; "
            "for another training choose another --out"
        )
    return after


def _write_about(place: Path, config: Config, about: dict[str, Any]) -> None:
    about = {"format": FORMAT, **about, "config": dataclasses.asdict(config)}
    folder.write(place / "training.json", folder.seal(about))


@contextlib.contextmanager
def _alone(path: Path, world: World | None = None) -> Iterator[None]:
    """Hold the lock of a run folder, one process for all; what a killed one left half-written is swept away."""
    place = path / UNFINISHED

    def enter() -> None:
        place.mkdir(parents=True, exist_ok=True)
        folder.sync(path.parent)
        stack.enter_context(folder.locked(path))
        folder.sweep(path)
        vouched = {file.stem for file in place.glob("*.json")}
        for file in place.iterdir():
            if file.is_dir() and file.name not in vouched:
                shutil.rmtree(file)
            elif file.suffix == ".draft" or (file.suffix == ".safetensors" and file.stem not in vouched):
                file.unlink()

    with contextlib.ExitStack() as stack:
        with _in_words(path):
            alone_or_first(world, enter)
        yield


@contextlib.contextmanager
def _in_words(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise HarmoniumError(
            f"{path}: cannot be written ({error.strerror}); make room or permit writing, or choose another folder"
        ) from error
