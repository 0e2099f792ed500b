"""Checkpoints: a training that was stopped, or killed at any moment, resumes as if it had not been interrupted.

    RUN/checkpoints/
      lock                 held, with its process id, by the process that trains
      data.graph           the graph
      reserve              takes the disk space of the finished run, and is removed just before that is written
      training.json        format, settings, environment, device, and the checksums of the graph and of itself
      000007.safetensors   all state: parameters, the best ones, optimiser state, generators
      000007.json          the position in training, and the checksums of the tensors and of itself

Several processes write a folder 000007/ instead of one file of tensors (sharded_checkpoint.py). A JSON file is written
after the files whose checksums it holds, and no checkpoint is written twice. The folder is removed with the finished run.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from safetensors import SafetensorError
from torch import Tensor

from harmonium.config.setting_values import Overrides
from harmonium.config.settings import Config, TrainConfig
from harmonium.data import graph_file
from harmonium.data.graph import Graph
from harmonium.errors import HarmoniumError, Interrupted
from harmonium.run import sharded_checkpoint
from harmonium.run.environment import environment
from harmonium.run.manifest import unreadable
from harmonium.run.selection import Selection, Task
from harmonium.run.stop_signal import StopSignal
from harmonium.runtime import folders, schema, storage, tensor_file
from harmonium.runtime.device import pick_device
from harmonium.runtime.distributed import World, is_communication_error, run_on_main
from harmonium.runtime.folders import UNFINISHED, logger
from harmonium.runtime.storage import FileRecord

CHECKPOINT_FORMAT = 4
RESERVE = "reserve"
RUN_OVERHEAD, PER_RELATION, PER_EPOCH = 1 << 16, 400, 300  # estimated bytes of metrics, settings and history
UNREADABLE = (LookupError, AttributeError, TypeError, ValueError, ArithmeticError, RuntimeError, SafetensorError)
CHANGEABLE = (  # settings that `resume` may change; any other would make it another training
    "learning_rate", "schedule", "epochs", "metric", "evaluate_every", "patience", "threads",
    "checkpoint_minutes", "checkpoint_every", "checkpoint_keep",
)  # fmt: skip


@dataclass(frozen=True)
class _Training:
    """The contents of training.json."""

    format: int
    environment: dict[str, str]
    device: str
    files: dict[str, FileRecord]
    config: dict[str, Any]
    selection: Selection | None = None
    task: Task | None = None  # a search that precedes the training
    given: dict[str, Any] | None = None  # the settings before a finished search changed them

    @classmethod
    def read(cls, folder: Path) -> _Training:
        with unreadable(folder / "training.json"):
            return schema.read(cls, storage.read_manifest(folder / "training.json", format=CHECKPOINT_FORMAT))

    def write(self, folder: Path) -> None:
        storage.write(folder / "training.json", storage.manifest_bytes(vars(self)))


@dataclass(frozen=True)
class _Manifest:
    """The contents of the JSON file of a checkpoint."""

    format: int
    files: dict[str, FileRecord]
    sharded: list[str]
    steps: schema.Count
    state: dict[str, Any]


class Resumable(Protocol):
    """A training whose state can be saved between two steps and restored."""

    @property
    def steps(self) -> int: ...  # done so far
    @property
    def n_entities(self) -> int: ...  # rows of the entity table, over all processes
    @property
    def sharded(self) -> set[str]: ...  # the tensors of `state_dict` with a row for each entity, sharded over processes

    def state_dict(self) -> tuple[dict[str, Tensor], dict[str, Any]]: ...
    def load_state_dict(self, tensors: dict[str, Tensor], values: dict[str, Any]) -> None: ...


class Checkpoints:
    """The checkpoints of one training: saves when due, keeps the last ones, restores the newest intact one."""

    def __init__(
        self,
        run: Path,
        settings: TrainConfig,
        device: str,
        world: World | None = None,
        selection: Selection | None = None,
        task: Task | None = None,
    ) -> None:
        self.run, self.folder, self.settings, self.device = run, run / UNFINISHED, settings, device
        self.world, self.selection, self.task = world, selection, task
        self.stop_signal = StopSignal()
        self.saved_step: int | None = None  # of the newest checkpoint
        self.finished_step: int | None = None  # the last step of the training, once saved
        self.last_save = time.monotonic()

    def decide(self, config: Config, selection: Selection) -> None:
        """Store the settings that a search chose, so that a resumed training does not search again."""
        training = _Training.read(self.folder)
        with _explain_write_errors(self.run):
            decided = replace(training, config=asdict(config), selection=selection, task=None, given=training.config)
            run_on_main(self.world, lambda: decided.write(self.folder))
        self.settings, self.selection, self.task = config.train, selection, None

    def after_step(self, training: Resumable) -> None:
        """Save when a checkpoint is due; save and stop when asked to stop."""
        every = self.settings.checkpoint_every
        due = every is not None and training.steps % every == 0
        overdue = time.monotonic() - self.last_save >= 60 * self.settings.checkpoint_minutes
        stop, overdue = self._any([self.stop_signal.number is not None, overdue])
        if stop or due or overdue:
            self.save(training)
        if stop:
            raise KeyboardInterrupt

    def after_last_step(self, training: Resumable) -> None:
        """Save once more, as the evaluation that follows may fail; stop when asked to stop."""
        self.finished_step = training.steps
        self.save(training)
        if self._any([self.stop_signal.number is not None])[0]:
            raise KeyboardInterrupt

    def _any(self, flags: list[bool]) -> list[bool]:
        """For each flag, whether it is set in any process."""
        return flags if self.world is None else self.world.any(flags)

    def save(self, training: Resumable) -> None:
        """Write a checkpoint and remove the oldest; if writing fails, training goes on and earlier ones are kept."""
        tensors, values = training.state_dict()
        name = f"{max(map(int, self.names()), default=0) + 1:06d}"
        try:
            files = self._write_tensors(name, tensors, training)
            manifest = _Manifest(CHECKPOINT_FORMAT, files, sorted(training.sharded), training.steps, values)
            content = storage.manifest_bytes(vars(manifest))
            run_on_main(self.world, lambda: storage.write(self.folder / f"{name}.json", content))
        except OSError as error:
            run_on_main(self.world, partial(self._try_to_remove, name))
            reason = error.strerror or str(error)
            logger.warning("%s: no checkpoint at step %d (%s); training continues", self.run, training.steps, reason)
        else:
            self.saved_step = training.steps
            run_on_main(self.world, self._remove_oldest)
        self.last_save = time.monotonic()

    def _write_tensors(self, name: str, tensors: dict[str, Tensor], training: Resumable) -> dict[str, FileRecord]:
        """Write the tensors of a checkpoint; returns the record of each file."""
        if self.world is None:
            file = f"{name}.safetensors"
            return {file: storage.write(self.folder / file, tensor_file.parts(tensors))}
        folder = self.folder / self.world.broadcast(name)
        sharded_checkpoint.save(folder, tensors, training.sharded, training.n_entities, self.world)
        return run_on_main(self.world, lambda: storage.sync_files(folder))

    def restore(self, training: Resumable) -> None:
        """Restore the newest intact checkpoint; without any, training starts from the beginning."""
        newest = run_on_main(self.world, self._newest_intact)
        if newest is None:
            return
        name, manifest = newest
        try:
            values = manifest.state | {"steps": manifest.steps}
            training.load_state_dict(self._read_tensors(name, manifest.sharded), values)
        except HarmoniumError:
            raise
        except UNREADABLE as error:
            if is_communication_error(error):
                raise
            file = self.folder / f"{name}.json"
            raise HarmoniumError(f"{file}: does not fit this version or device ({error}); train again") from error
        self.saved_step = manifest.steps

    def _newest_intact(self) -> tuple[str, _Manifest] | None:
        for name in reversed(self.names()):
            try:
                path = self.folder / f"{name}.json"
                with unreadable(path):
                    manifest = schema.read(_Manifest, storage.read_manifest(path, format=CHECKPOINT_FORMAT))
                _verify(self.folder, manifest.files)
                return name, manifest
            except HarmoniumError as error:
                damage = str(error).partition("; ")[0]
                logger.warning("%s; continuing from the checkpoint before it, or the beginning", damage)
                self._try_to_remove(name)
        return None

    def _read_tensors(self, name: str, sharded: Sequence[str]) -> dict[str, Tensor]:
        """Read the tensors of a checkpoint, written by one process or several: all rows, or the rows of this process."""
        if (self.folder / name).is_dir():
            return sharded_checkpoint.load(self.folder / name, sharded, self.world)
        tensors, _ = tensor_file.read(self.folder / f"{name}.safetensors")
        if self.world is not None:
            for each in sharded:
                tensors[each] = tensors[each][self.world.shard(len(tensors[each]))]
        return tensors

    def names(self) -> list[str]:
        """Names of the checkpoints, oldest first."""
        stems = (file.stem for file in self.folder.glob("[0-9]*.json"))
        return sorted(stem for stem in stems if re.fullmatch(r"[0-9]{6,9}", stem))

    def remove(self, *names: str) -> None:
        for name in names:
            for suffix in (".json", ".safetensors", ""):
                storage.remove(self.folder / f"{name}{suffix}")

    def _remove_oldest(self) -> None:
        self._try_to_remove(*self.names()[: -self.settings.checkpoint_keep])

    def _try_to_remove(self, *names: str) -> None:
        """Remove obsolete checkpoints; errors are ignored, and removal is tried again next time."""
        with contextlib.suppress(OSError):
            self.remove(*names)

    def reserve_space(self, model: int, n_relations: int) -> None:
        """Reserve disk space for the finished run, with `model` bytes for its model; an error if there is not enough.

        This way a finished training can be written, whatever other programs write meanwhile.
        """

        def allocate() -> None:
            others = RUN_OVERHEAD + PER_RELATION * n_relations + PER_EPOCH * self.settings.epochs
            size = (self.folder / "data.graph").stat().st_size + model + others
            try:
                storage.allocate(self.folder / RESERVE, size)
            except OSError as error:
                need = f"the finished run will take about {size / 1e6:,.1f} MB and cannot be written"
                advice = "free some space or choose another folder"
                raise HarmoniumError(f"{self.run}: {need} ({error.strerror}); {advice}") from error

        run_on_main(self.world, allocate)

    def write_run(self, save: Callable[[Path], Path]) -> Path:
        """Write the finished run in place of the checkpoints.

        If that fails, and no checkpoint holds the finished training, the run is written to another folder: a trained model
        is lost only if no disk has room for it.
        """
        try:
            (self.folder / RESERVE).unlink(missing_ok=True)
            return save(self.run)
        except (HarmoniumError, OSError) as error:
            if self.finished_step is not None and self.saved_step == self.finished_step:
                advice = f"free some space: `harmonium resume {self.run}` writes it without training again"
            elif (path := _save_elsewhere(self.run.name, save)) is not None:
                advice = f"the finished run was written to {path} instead; move it to where you want it"
            else:
                advice = "nor to another folder; free some space and train again"
            raise HarmoniumError(f"{error}; {advice}") from error

    @contextlib.contextmanager
    def resume_hint(self) -> Iterator[None]:
        """Add to errors and interruptions inside the block how to resume."""
        command = f"`harmonium resume {self.run}"
        try:
            yield
        except KeyboardInterrupt:
            position = "the beginning" if self.saved_step is None else f"step {self.saved_step:,}"
            message = f"stopped; {command}` continues from {position}"
            raise Interrupted(message, self.stop_signal.exit_code) from None
        except HarmoniumError as error:
            if self.saved_step is None or command in str(error):
                raise
            message = f"{error}; {command} --set KEY=VALUE` continues from step {self.saved_step:,}"
            raise type(error)(message) from error


@contextlib.contextmanager
def begin(
    path: Path,
    overwrite: bool,
    config: Config,
    graph: Graph,
    device: str,
    world: World | None = None,
    task: Task | None = None,
) -> Iterator[Checkpoints]:
    """Start a training into a run folder; one that fails before its first checkpoint leaves nothing behind."""
    checkpoints = Checkpoints(path, config.train, device, world, task=task)
    with _locked(path, world):
        run_on_main(world, lambda: folders.reserve(path, overwrite))
        try:
            with _explain_write_errors(path):
                run_on_main(world, lambda: _prepare(checkpoints, config, graph))
            if world is not None and world.any([not folders.is_unfinished(path)])[0]:
                raise HarmoniumError(f"{path} is not visible to every process; choose a folder that all machines share")
            with checkpoints.resume_hint():
                yield checkpoints
        except Exception:
            if checkpoints.saved_step is None and (world is None or world.is_main):
                with contextlib.suppress(OSError):
                    (checkpoints.folder / "training.json").unlink(missing_ok=True)
                    shutil.rmtree(checkpoints.folder)
                    path.rmdir()  # unless it holds an earlier run
            raise


def _prepare(checkpoints: Checkpoints, config: Config, graph: Graph) -> None:
    """Replace the checkpoints of an earlier training by the settings and the graph of a new one."""
    folder, device = checkpoints.folder, checkpoints.device
    (folder / "training.json").unlink(missing_ok=True)  # first: without it there is nothing to resume
    _remove_all_but(folder, {"lock"})
    files = {"data.graph": storage.write(folder / "data.graph", graph_file.parts(graph))}
    _Training(CHECKPOINT_FORMAT, environment(device), device, files, asdict(config), task=checkpoints.task).write(
        folder
    )


@contextlib.contextmanager
def reopen(path: Path, overrides: Overrides, world: World | None = None) -> Iterator[tuple[Checkpoints, Config, Graph]]:
    """Continue the training in a run folder, with any number of processes."""
    folder = path / UNFINISHED
    with _locked(path, world):
        training = _Training.read(folder)
        _verify(folder, training.files)
        config, graph = Config.of(training.config, location=str(folder)), graph_file.load(folder / "data.graph")
        if overrides:
            config = _check_change(config, Config.of(asdict(config), overrides, str(folder)))
            with _explain_write_errors(path):
                run_on_main(world, lambda: replace(training, config=asdict(config)).write(folder))
        if world is None or world.is_main:
            _warn_of_changes(path, training.environment, environment(pick_device(training.device)))
        checkpoints = Checkpoints(path, config.train, training.device, world, training.selection, training.task)
        with checkpoints.resume_hint():
            yield checkpoints, config, graph


def _warn_of_changes(path: Path, before: dict[str, str], now: dict[str, str]) -> None:
    changes = [f"{key} {value}, now {now.get(key)}" for key, value in before.items() if value != now.get(key)]
    if changes:
        text = "%s began in another environment (%s): the result may differ in the last digits"
        logger.warning(text, path, "; ".join(changes))


def given_settings(path: Path) -> Config:
    """The settings with which an unfinished training was started, before any search."""
    training = _Training.read(path / UNFINISHED)
    return Config.of(training.given or training.config, location=str(path))


def _verify(folder: Path, files: dict[str, FileRecord]) -> None:
    for name, record in files.items():
        if not re.fullmatch(r"(?!\.\.)[\w.-]+(/(?!\.\.)[\w.-]+)?", name):
            raise HarmoniumError(f"{folder}: {name!r} is not a file of a checkpoint; it is refused")
        storage.verify(folder / name, record)


def _check_change(before: Config, after: Config) -> Config:
    """Check that `resume` may change the settings in this way; returns the new ones."""
    unchanged = {name: getattr(before.train, name) for name in CHANGEABLE}
    if replace(after, train=replace(after.train, **unchanged)) != before:
        raise HarmoniumError(
            f"resuming can change only {', '.join(f'train.{name}' for name in CHANGEABLE)}; "
            "for another training choose another --out"
        )
    return after


@contextlib.contextmanager
def _locked(path: Path, world: World | None) -> Iterator[None]:
    """Hold the lock of a run folder, in the main process for all, and remove incomplete files of killed processes."""
    folder = path / UNFINISHED

    def enter() -> None:
        folder.mkdir(parents=True, exist_ok=True)
        storage.sync(path.parent)
        folders.check_checkpoints(folder)
        stack.enter_context(folders.locked(path))
        folders.remove_leftovers(path)
        complete = {file.stem for file in folder.glob("*.json")}
        kept = {name + suffix for name in complete for suffix in ("", ".json", ".safetensors")}
        _remove_all_but(folder, {"lock", "data.graph", *kept})

    with contextlib.ExitStack() as stack:
        with _explain_write_errors(path):
            run_on_main(world, enter)
        yield


def _remove_all_but(folder: Path, kept: set[str]) -> None:
    for file in folder.iterdir():
        if file.name not in kept:
            storage.remove(file)


def _save_elsewhere(name: str, save: Callable[[Path], Path]) -> Path | None:
    """Save a run to a new folder in the cache or the temporary folder; None if that fails, too."""
    for parent in (storage.cache_folder() / "rescued", Path(tempfile.gettempdir())):
        with contextlib.suppress(OSError):
            parent.mkdir(parents=True, exist_ok=True)
            folder = Path(tempfile.mkdtemp(prefix=f"{name}.", dir=parent))
            try:
                return save(folder)
            except HarmoniumError:
                storage.remove(folder)
    return None


@contextlib.contextmanager
def _explain_write_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        advice = "free some space or allow writing, or choose another folder"
        raise HarmoniumError(f"{path}: cannot be written ({error.strerror}); {advice}") from error
