"""The run folder: complete and portable; safetensors, TOML and JSON only.

    run.json            format, environment, how training ended, size and checksum of every other file (manifest.py)
    config.toml         all settings
    data.graph          the graph with names and splits (graph_file.py)
    model.safetensors   the parameters of the best model
    history.jsonl       one line per epoch
    metrics.json        metrics with their protocol
    selection.json      how the settings were chosen, if a search chose them
    grammar.safetensors the learned constraints beside the vectors, if any (grammar/parameters.py)
    final.safetensors   the parameters of a model trained on all facts, which answers; if there is one
    updates.jsonl       changes since the training; update.0001.safetensors, ... undo them (updates.py)

and files computed from these on first use (`manifest.keep`):

    fact_calibration.json      probabilities of facts, how complete the graph is (answers/calibration/fact_probability.py)
    conformal.json             answer sets (answers/calibration/conformal.py)
    tokens.json                how true a fact with a given score is (answers/tokens.py)

A folder is written under a temporary name beside its path and renamed when complete, so it exists whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError

from harmonium.config.settings import Config
from harmonium.data import graph_file
from harmonium.data.datasets import read_graph
from harmonium.data.graph import Graph
from harmonium.data.name_column import NameColumn
from harmonium.data.triples import Triples
from harmonium.errors import HarmoniumError
from harmonium.evaluation.display import interval_rows, metrics_table
from harmonium.evaluation.evaluation import EvaluationSummary, Metrics
from harmonium.evaluation.metrics import read_metrics
from harmonium.model.build import build_model, title
from harmonium.model.gradient_graph import GradientGraph
from harmonium.model.scoring import Scorer
from harmonium.run import manifest as manifests
from harmonium.run import updates
from harmonium.run.environment import environment
from harmonium.run.manifest import Manifest
from harmonium.run.methods import RunMethods
from harmonium.run.selection import Selection
from harmonium.run.updates import Update
from harmonium.runtime import folders, schema, storage, tensor_file
from harmonium.runtime.device import pick_device
from harmonium.runtime.displayed import Displayed, Line, Part, one_line
from harmonium.runtime.untrusted import refuse_pickle

if TYPE_CHECKING:
    from harmonium.grammar.parameters import GrammarParameters

FILES = ("config.toml", "data.graph", "model.safetensors", "history.jsonl", "metrics.json")
SELECTION = "selection.json"  # only if a search chose the settings
GRAMMAR, FINAL = "grammar.safetensors", "final.safetensors"  # only with constraints, or a last training
MIN_BASELINE_SHARE = 0.05  # of the MRR of the model; a weaker baseline is not shown
READ_ATTEMPTS = 5  # for a folder that is replaced while it is read
UNREADABLE = (LookupError, AttributeError, TypeError, ValueError, ArithmeticError, RuntimeError, SafetensorError)


def open_graph(source: Any, **reading: Any) -> Graph:
    """The graph of a run or a run folder; otherwise the one that `read_graph` reads with these options."""
    if isinstance(source, Run) or is_run_folder(source):
        if reading:
            raise HarmoniumError(f"{source!r} is a run, whose graph is not read again; drop {min(reading)}")
        return Run.of(source).graph
    return source if isinstance(source, Graph) else read_graph(source, **reading)


def is_run_folder(source: Any) -> bool:
    """Whether `source` is the path of a run folder, finished or not."""
    if not isinstance(source, str | os.PathLike):
        return False
    return folders.is_finished(Path(source)) or folders.is_unfinished(Path(source))


@dataclass
class History:
    """The history of a training: one row per epoch, and how it ended."""

    rows: list[dict[str, Any]] = field(default_factory=list)  # epoch, loss, seconds and, if validated, valid
    best_epoch: int = 0
    stopped: str = "all epochs done"
    backend: str = ""  # the kernels that computed scores, and why no faster ones were used

    @property
    def seconds(self) -> float:
        return float(self.rows[-1]["seconds"]) if self.rows else 0.0

    def __repr__(self) -> str:
        return one_line(self, f"of {len(self.rows)} epochs", f"best {self.best_epoch}", self.stopped)


@dataclass(frozen=True)
class Run(RunMethods, Displayed):
    """A finished training. Functions that take a run are also its methods: `run.predict(...)`, `run.evaluate()`, ...

    >>> run = harmonium.Run.load("runs/demo")
    >>> run.metrics["mrr"], run.predict(head="Austria", relation="borders")
    """

    config: Config
    graph: Graph
    model: GradientGraph
    history: History
    evaluation: EvaluationSummary | None = None  # none: the graph has neither test nor validation facts
    path: Path | None = None
    environment: dict[str, str] = field(default_factory=environment)  # where it was trained
    selection: Selection | None = None  # how the settings were chosen; none: they were given
    updates: tuple[Update, ...] = ()  # changes since the training, in chronological order
    grammar: GrammarParameters | None = None  # constraints beside the vectors
    final: GradientGraph | None = None  # trained on all facts, and used for answers; `model` has only seen train facts

    @classmethod
    def of(cls, run: Run | str | Path) -> Run:
        """The run itself, or the one in a folder."""
        return run if isinstance(run, Run) else cls.load(run)

    @property
    def entities(self) -> NameColumn:
        """The names of all entities, in the order of `embeddings`."""
        return self.graph.entities.names

    @property
    def relations(self) -> NameColumn:
        """The names of all relations."""
        return self.graph.relations.names

    @property
    def embeddings(self) -> NDArray[np.float32]:
        """(entities, dim): the vector of each entity, normalised if the model does that. `export` writes relations too.

        Complex vectors have their real parts first, then their imaginary parts.
        """
        vectors: NDArray[np.float32] = (self.final or self.model).entities().detach().cpu().numpy()
        return vectors

    @property
    def rejected(self) -> Triples:
        """Facts known to be false, which are never proposed."""
        return self.graph.rejected

    def held_out_scorer(self, without: Sequence[str] = ()) -> Scorer:
        """The scorer that metrics are about: vectors and constraints learned from the train facts only.

        Families of constraints named in `without` are left out.
        """
        if self.grammar is None:
            return self.model
        return self.grammar.on(self.model, self.graph, ("train",), without)

    def answering_scorer(self, without: Sequence[str] = ()) -> Scorer:
        """The scorer that answers queries: it uses every fact of the graph, held-out ones included."""
        vectors = self.final or self.model
        return vectors if self.grammar is None else self.grammar.on(vectors, self.graph, without=without)

    @property
    def metrics(self) -> Metrics:
        """mr, mrr, hits@1, hits@3, hits@10 and amri; empty without an evaluation."""
        return self.evaluation.metrics if self.evaluation else {}

    def __repr__(self) -> str:
        model = f"{self.path or 'not saved'}: {title(self.config)}, {self.config.model.entity_dim} dimensions"
        split = self.evaluation.protocol.split if self.evaluation else ""
        metrics = [f"{split} {name} {self.metrics[name]:.3f}" for name in ("mrr", "hits@10") if name in self.metrics]
        return one_line(self, model, f"on {self.graph.name} ({self.graph.n_entities:,} entities)", *metrics)

    def display(self, others: Mapping[str, Metrics] = MappingProxyType({})) -> Iterator[Part]:
        """The model, how it was trained, and its metrics beside those of `others` by name."""
        yield Line(repr(self).strip("<>"), "bold")
        yield from self.display_training()
        yield from self.display_metrics(others)

    def display_training(self) -> Iterator[Part]:
        """How the settings were chosen, and how training went."""
        history = self.history
        if self.selection:
            yield from self.selection.display()
        best = f"best at epoch {history.best_epoch} of {len(history.rows)}"
        yield Line(f"trained {history.seconds:.1f} s, {best}; {history.stopped}")

    def display_metrics(self, others: Mapping[str, Metrics] = MappingProxyType({})) -> Iterator[Part]:
        """The metrics of the run, of `others` by name and of baselines; and the updates since training."""
        if evaluation := self.evaluation:
            rows = {"model": self.metrics, **interval_rows(evaluation.estimate), **others}
            least = MIN_BASELINE_SHARE * evaluation.metrics.get("mrr", 0.0)  # a useless baseline is left out
            baselines = evaluation.baselines.items()
            rows |= {f"{name} baseline": metrics for name, metrics in baselines if metrics["mrr"] >= least}
            yield metrics_table(f"Link prediction on {self.graph.name}", rows, evaluation.describe())
            if evaluation.warning:
                yield Line(f"warning: {evaluation.warning}", "red")
        if self.updates:
            undo = "`harmonium update RUN --undo` undoes the last one"
            yield Line(f"Updates since the training; {undo}", "bold")
        for number, update in enumerate(self.updates, start=1):
            entry = update.to_json()
            before = f"; MRR {entry['metrics_before']['mrr']:.3f} before" if "mrr" in entry["metrics_before"] else ""
            yield Line(f"  {number}  {entry['made']}  {entry['change']}{before}")
            yield Line(f"     {entry['command']}", "dim")

    @cached_property
    def fingerprint(self) -> str:
        """Checksum of the graph and the model, computed once: from the manifest if the run was opened from a folder."""
        return manifests.fingerprint({name: _checksum(content) for name, content in self._tensor_files().items()})

    def model_on(self, device: str) -> GradientGraph:
        """A copy of the model on a device; that of the run stays on the CPU."""
        chosen = pick_device(device)
        return self.model if chosen.type == "cpu" else deepcopy(self.model).to(chosen)

    def save(
        self, path: str | Path, overwrite: bool = False, computed: Mapping[str, Any] = MappingProxyType({})
    ) -> Path:
        """Write the run folder atomically; an existing run is replaced only with `overwrite`.

        `computed` are contents of derived JSON files by name, as `manifest.keep` would store them.
        """
        path = folders.reserve(path, overwrite)
        with folders.replace_atomically(path, overwrite) as temporary:
            self.write_files(temporary, computed)
        return path

    def write_files(self, folder: Path, computed: Mapping[str, Any] = MappingProxyType({})) -> list[str]:
        """Write the files of a run into an empty folder, and return their names."""
        files: dict[str, bytes | Iterable[Any]] = {
            "config.toml": self.config.to_toml().encode(),
            **self._tensor_files(),
            "history.jsonl": "".join(json.dumps(storage.plain(row)) + "\n" for row in self.history.rows).encode(),
            "metrics.json": storage.to_json(self.evaluation.to_json() if self.evaluation else {}),
        }
        if self.selection is not None:
            files[SELECTION] = storage.to_json(self.selection.to_json())
        files |= updates.to_files(self.updates)
        files |= {name: storage.to_json(content) for name, content in computed.items()}
        records = {name: storage.write(folder / name, content) for name, content in files.items()}
        manifests.write(folder, self._manifest(records))
        return [*files, manifests.NAME]

    def _manifest(self, files: dict[str, storage.FileRecord]) -> Manifest:
        now, history = datetime.now(UTC).isoformat(timespec="seconds"), self.history
        outcome = history.best_epoch, history.stopped, history.backend
        return Manifest(manifests.RUN_FORMAT, now, self.environment, *outcome, files)

    @classmethod
    def load(cls, path: str | Path) -> Run:
        """Open a run folder; a missing or changed file, or another format, is an error.

        If another process replaces the folder meanwhile, it is read again, so that all files are from one run.
        """
        path = Path(path)
        for _ in range(READ_ATTEMPTS):
            folder = folders.identity(path)
            try:
                run = _read_folder(path)
            except HarmoniumError:
                if folders.identity(path) == folder:
                    raise
            else:
                if folders.identity(path) == folder:
                    return run
        raise HarmoniumError(f"{path}: other processes replace it again and again; wait for them, and try again")

    def _tensor_files(self) -> dict[str, Iterable[Any]]:
        """File -> contents in parts, for the files of tensors."""
        files: dict[str, Iterable[Any]] = {
            "data.graph": graph_file.parts(self.graph),
            "model.safetensors": tensor_file.parts(self.model.state_dict()),
        }
        if self.grammar is not None:
            files[GRAMMAR] = tensor_file.parts(self.grammar.to_tensors())
        if self.final is not None:
            files[FINAL] = tensor_file.parts(self.final.state_dict())
        return files


class _EpochRow(TypedDict):
    """A line of history.jsonl."""

    epoch: schema.Count
    loss: float
    seconds: schema.NonNegative
    valid: NotRequired[Any]


def _read_folder(path: Path) -> Run:
    manifest = manifests.read(path)
    try:
        run = _read_files(path, manifest)
    except HarmoniumError:
        raise
    except UNREADABLE as error:
        raise HarmoniumError(f"{path}: not a run that this version can read ({error}); train it again") from error
    vars(run)["fingerprint"] = manifest.fingerprint  # the files were just checked against these
    return run


def _read_files(path: Path, manifest: Manifest) -> Run:
    """The run in a folder, after all its files were verified."""
    for name in FILES:
        if name not in manifest.files:
            raise ValueError(f"run.json does not name {name}")
        storage.verify(path / name, manifest.files[name])
    refuse_pickle(path / "model.safetensors")
    config = Config.read(path / "config.toml")
    graph = graph_file.load(path / "data.graph")
    model = _read_model(path / "model.safetensors", config, graph)
    history = History(_read_history(path / "history.jsonl"), manifest.best_epoch, manifest.stopped, manifest.backend)
    with manifests.unreadable(path / "metrics.json"):
        metrics = json.loads((path / "metrics.json").read_bytes())
        evaluation = EvaluationSummary.from_json(metrics) if metrics != {} else None
    selection = None
    if SELECTION in manifest.files:
        with manifests.unreadable(path / SELECTION):
            stored = storage.read_verified(path / SELECTION, manifest.files[SELECTION])
            selection = Selection.from_json(json.loads(stored))
    log = updates.read_files(path, manifest, graph)
    grammar = _read_grammar(path, manifest, graph) if GRAMMAR in manifest.files else None
    final = None
    if FINAL in manifest.files:
        storage.verify(path / FINAL, manifest.files[FINAL])
        refuse_pickle(path / FINAL)
        final = _read_model(path / FINAL, config, graph).eval()
    return Run(
        config, graph, model.eval(), history, evaluation, path, manifest.environment, selection, log, grammar, final
    )


def _read_grammar(path: Path, manifest: Manifest, graph: Graph) -> GrammarParameters:
    """The learned constraints of a run."""
    from harmonium.grammar.parameters import GrammarParameters

    storage.verify(path / GRAMMAR, manifest.files[GRAMMAR])
    refuse_pickle(path / GRAMMAR)
    with manifests.unreadable(path / GRAMMAR):
        return GrammarParameters.from_tensors(tensor_file.read(path / GRAMMAR)[0], graph)


def _read_model(path: Path, config: Config, graph: Graph) -> GradientGraph:
    """The model that the settings describe, with the parameters of a file, which must be finite."""
    model = build_model(config.model, graph.n_entities, graph.n_relations, seed=None)
    tensors, expected = tensor_file.read(path)[0], model.state_dict()
    with manifests.unreadable(path):
        if tensors.keys() != expected.keys():
            raise ValueError(f"it holds {', '.join(sorted(tensors))}, the model has {', '.join(sorted(expected))}")
        for name, tensor in tensors.items():
            if tensor.shape != expected[name].shape:
                sizes = " x ".join(map(str, tensor.shape)), " x ".join(map(str, expected[name].shape))
                raise ValueError(f"{name} has size {sizes[0]}, the model's has {sizes[1]}")
            if not tensor.is_floating_point():
                raise ValueError(f"{name} holds no real numbers")
            if tensor.numel() and not torch.stack(tensor.aminmax()).isfinite().all():
                raise ValueError(f"{name} holds a number that is not finite")
    model.load_state_dict(tensors, assign=True)
    return model


def _read_history(path: Path) -> list[dict[str, Any]]:
    with manifests.unreadable(path):
        return read_rows([json.loads(line) for line in path.read_bytes().splitlines()])


def read_rows(values: list[Any]) -> list[dict[str, Any]]:
    """Rows of a history from their JSON; a ValueError names a missing key or a wrong type."""
    rows: list[dict[str, Any]] = []
    for number, value in enumerate(values, start=1):
        row: dict[str, Any] = dict(schema.read(_EpochRow, value, f"row {number}"))
        if "valid" in row:
            row["valid"] = read_metrics(row["valid"], f"row {number}.valid")
        rows.append(row)
    return rows


def _checksum(parts: Iterable[Any]) -> str:
    checksum = hashlib.sha256()
    for part in parts:
        checksum.update(part)
    return checksum.hexdigest()
