"""Run folder <-> model. Complete and portable; safetensors, TOML, TSV and JSON only.

    run.json            format, version, environment, how it was made, and the checksum of every other file and of itself
    config.toml         all settings
    data.graph          the graph, names and splits (graph_file.py)
    model.safetensors   the parameters of the best model
    history.jsonl       one line per epoch
    metrics.json        metrics with their protocol

A folder is written beside its place under a temporary name and renamed when it is whole, so it exists whole or not at all.
"""

from __future__ import annotations

import json
import platform
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError

from harmonium import folder, graph_file
from harmonium.config import Config
from harmonium.errors import HarmoniumError
from harmonium.folder import reserve
from harmonium.graph import Graph
from harmonium.model import GradientGraph
from harmonium.suspicion import refuse_pickle
from harmonium.training import History, build_model

FORMAT = 2  # 1 had no checksum of run.json itself


@dataclass(frozen=True)
class Run:
    """A finished training: everything needed to evaluate, predict and look."""

    config: Config
    graph: Graph
    model: GradientGraph
    history: History
    metrics: dict[str, Any]
    path: Path | None = None

    def save(self, path: str | Path, overwrite: bool = False) -> Path:
        """Write the folder, whole or not at all."""
        path = reserve(path, overwrite)
        with folder.replacing(path) as draft:
            files = {
                "config.toml": self.config.to_toml().encode(),
                "data.graph": graph_file.to_bytes(self.graph),
                "model.safetensors": safetensors.torch.save(
                    {k: v.detach().cpu().contiguous() for k, v in self.model.state_dict().items()}
                ),
                "history.jsonl": "".join(json.dumps(row) + "\n" for row in self.history.rows).encode(),
                "metrics.json": folder.to_json(self.metrics),
            }
            for name, content in files.items():
                folder.write(draft / name, content)
            manifest = {
                "format": FORMAT,
                "made": datetime.now(UTC).isoformat(timespec="seconds"),
                "environment": environment(),
                "best_epoch": self.history.best_epoch,
                "stopped": self.history.stopped,
                "files": {name: folder.digest(content) for name, content in files.items()},
            }
            folder.write(draft / "run.json", folder.seal(manifest))
        return path

    @classmethod
    def load(cls, path: str | Path) -> Run:
        """Read a folder back; anything missing, changed or of another format is an error that says so."""
        path = Path(path)
        manifest = _manifest(path)
        try:
            if outside := [name for name in manifest["files"] if Path(name).name != name]:
                raise HarmoniumError(
                    f"{path / 'run.json'}: names {outside[0]!r}, which is no file of a run; it is refused"
                )
            files = {name: folder.checked(path / name, digest) for name, digest in manifest["files"].items()}
            refuse_pickle(path / "model.safetensors")
            config = Config.read(path / "config.toml")
            graph = graph_file.load(path / "data.graph")
            model = build_model(config.model, graph.n_entities, graph.n_relations)
            model.load_state_dict(safetensors.torch.load(files["model.safetensors"]))
            rows = [json.loads(line) for line in files["history.jsonl"].splitlines()]
            history = History(rows, manifest["best_epoch"], manifest["stopped"])
            return cls(config, graph, model.eval(), history, json.loads(files["metrics.json"]), path)
        except HarmoniumError:
            raise
        except (LookupError, AttributeError, TypeError, SafetensorError, RuntimeError, ValueError) as error:
            raise HarmoniumError(f"{path}: not a run that this version can read ({error}); train it again") from error


def environment() -> dict[str, str]:
    """Where a run was made."""
    from harmonium import __version__

    return {
        "harmonium": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name()
        if torch.cuda.is_available()
        else f"CPU, {torch.get_num_threads()} threads",
    }


def _manifest(path: Path) -> dict[str, Any]:
    if not path.is_dir():
        refuse_pickle(path)
        raise HarmoniumError(f"{path}: no such run folder; `harmonium train --out {path}` makes one")
    if not (path / "run.json").exists():
        if folder.unfinished(path):
            raise HarmoniumError(f"{path}: training has not finished; `harmonium resume {path}` goes on with it")
        raise HarmoniumError(f"{path}: no run.json in it, so it is not a (complete) run folder")
    return folder.unseal(path / "run.json", formats=(1, FORMAT), unsealed=(1,))
