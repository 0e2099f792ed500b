"""The run folder: complete and portable; safetensors, TOML and JSON only.

    run.json            format, environment, how training ended, and the checksum of every other file and of itself
    config.toml         all settings
    data.graph          the graph with names and splits (graph_file.py)
    model.safetensors   the parameters of the best model
    history.jsonl       one line per epoch
    metrics.json        metrics with their protocol
    selection.json      how the settings were chosen, where they were

A folder is written under a temporary name beside its path and renamed when complete, so it exists whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from harmonium.data import graph_file
from harmonium.data.graph import Graph
from harmonium.evaluation.evaluation import EvaluationSummary, Metrics
from harmonium.model.build import build_model
from harmonium.model.gradient_graph import GradientGraph
from harmonium.run.environment import environment
from harmonium.run.selection import Selection
from harmonium.runtime import folders, storage, tensor_file
from harmonium.runtime.config import Config
from harmonium.runtime.device import pick_device
from harmonium.runtime.errors import HarmoniumError
from harmonium.runtime.untrusted import refuse_pickle

FORMAT = 3
FILES = ("config.toml", "data.graph", "model.safetensors", "history.jsonl", "metrics.json")
SELECTION = "selection.json"  # only where settings were chosen
UNREADABLE = (LookupError, AttributeError, TypeError, ValueError, ArithmeticError, RuntimeError, SafetensorError)


def open_run(run: Run | str | Path) -> Run:
    """The run itself, or the one in a folder."""
    return run if isinstance(run, Run) else Run.load(run)


@dataclass
class History:
    """The history of a training: one row per epoch, and how it ended."""

    rows: list[dict[str, Any]] = field(default_factory=list)  # epoch, loss, seconds and, where validated, valid
    best_epoch: int = 0
    stopped: str = "all epochs done"
    backend: str = ""  # the kernels that computed scores, and why no faster ones
    harmony: dict[str, Any] | None = None  # how W and b were fitted, where that was done after the vectors

    @property
    def seconds(self) -> float:
        return float(self.rows[-1]["seconds"]) if self.rows else 0.0


@dataclass(frozen=True)
class Run:
    """A finished training: everything needed to evaluate, predict and look.

    >>> harmonium.Run.load("runs/demo").metrics["mrr"]
    """

    config: Config
    graph: Graph
    model: GradientGraph
    history: History
    evaluation: EvaluationSummary | None = None  # none: the graph has neither test nor validation facts
    path: Path | None = None
    environment: dict[str, str] = field(default_factory=environment)  # where it was trained
    selection: Selection | None = None  # how the settings were chosen; none: they were given

    @property
    def metrics(self) -> Metrics:
        """mr, mrr, hits@1, hits@3, hits@10 and amri; empty without an evaluation."""
        return self.evaluation.metrics if self.evaluation else {}

    @cached_property
    def fingerprint(self) -> str:
        """Checksum of the graph and the model, computed once: from the manifest if the run was opened from a folder."""
        return _fingerprint({name: _checksum(content) for name, content in self._tensor_files().items()})

    def model_on(self, device: str) -> GradientGraph:
        """The model on a device; the run keeps its own on the CPU."""
        chosen = pick_device(device)
        return self.model if chosen.type == "cpu" else deepcopy(self.model).to(chosen)

    def save(self, path: str | Path, overwrite: bool = False) -> Path:
        """Write the folder, whole or not at all."""
        path = folders.reserve(path, overwrite)
        files: dict[str, bytes | Iterable[Any]] = {
            "config.toml": self.config.to_toml().encode(),
            **self._tensor_files(),
            "history.jsonl": "".join(json.dumps(row) + "\n" for row in self.history.rows).encode(),
            "metrics.json": storage.to_json(self.evaluation.to_json() if self.evaluation else {}),
        }
        if self.selection is not None:
            files[SELECTION] = storage.to_json(self.selection.to_json())
        with folders.replace_atomically(path) as temporary:
            manifest = {
                "format": FORMAT,
                "made": datetime.now(UTC).isoformat(timespec="seconds"),
                "environment": self.environment,
                "best_epoch": self.history.best_epoch,
                "stopped": self.history.stopped,
                "backend": self.history.backend,
                "harmony": self.history.harmony,
                "files": {name: storage.write(temporary / name, content) for name, content in files.items()},
            }
            storage.write(temporary / "run.json", storage.manifest_bytes(manifest))
        return path

    @classmethod
    def load(cls, path: str | Path) -> Run:
        """Open a run folder; anything missing, changed or of another format is an error that says so."""
        path = Path(path)
        manifest = _read_manifest(path)
        try:
            run = _read_files(path, manifest)
        except HarmoniumError:
            raise
        except UNREADABLE as error:
            raise HarmoniumError(f"{path}: not a run that this version can read ({error}); train it again") from error
        vars(run)["fingerprint"] = _fingerprint(manifest["files"])  # the files were just checked against these
        return run

    def _tensor_files(self) -> dict[str, Iterable[Any]]:
        """The parts of the large files."""
        return {
            "data.graph": graph_file.parts(self.graph),
            "model.safetensors": tensor_file.parts(self.model.state_dict()),
        }


def _read_manifest(path: Path) -> dict[str, Any]:
    if not path.is_dir():
        refuse_pickle(path)
        raise HarmoniumError(f"{path}: no such run folder; `harmonium train --out {path}` makes one")
    if not (path / "run.json").exists():
        if folders.is_unfinished(path):
            raise HarmoniumError(f"{path}: training has not finished; `harmonium resume {path}` continues it")
        raise HarmoniumError(f"{path}: no run.json in it, so it is not a (complete) run folder")
    return storage.read_manifest(path / "run.json", format=FORMAT)


def _read_files(path: Path, manifest: dict[str, Any]) -> Run:
    for name in sorted({*FILES, *manifest["files"]}):
        if Path(name).name != name:
            raise HarmoniumError(f"{path / 'run.json'}: names {name!r}, which is no file of a run; it is refused")
        storage.verify_checksum(path / name, manifest["files"][name])
    refuse_pickle(path / "model.safetensors")
    config = Config.read(path / "config.toml")
    graph = graph_file.load(path / "data.graph")
    model = build_model(config.model, graph.n_entities, graph.n_relations, seed=None)
    model.load_state_dict(tensor_file.read(path / "model.safetensors")[0], assign=True)
    rows = [json.loads(line) for line in (path / "history.jsonl").read_bytes().splitlines()]
    history = History(rows, manifest["best_epoch"], manifest["stopped"], manifest["backend"], manifest.get("harmony"))
    metrics = json.loads((path / "metrics.json").read_bytes())
    evaluation = EvaluationSummary.from_json(metrics) if metrics else None
    selection = None
    if SELECTION in manifest["files"]:
        selection = Selection.from_json(json.loads((path / SELECTION).read_bytes()))
    return Run(config, graph, model.eval(), history, evaluation, path, manifest["environment"], selection)


def _checksum(parts: Iterable[Any]) -> str:
    checksum = hashlib.sha256()
    for part in parts:
        checksum.update(part)
    return checksum.hexdigest()


def _fingerprint(checksums: Mapping[str, str]) -> str:
    return storage.digest(f"{checksums['data.graph']} {checksums['model.safetensors']}".encode())
