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
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy
import torch
from safetensors import SafetensorError

from harmonium import folder, graph_file, tensor_file
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
                "data.graph": graph_file.parts(self.graph),
                "model.safetensors": tensor_file.parts(self.model.state_dict()),
                "history.jsonl": "".join(json.dumps(row) + "\n" for row in self.history.rows).encode(),
                "metrics.json": folder.to_json(self.metrics),
            }
            manifest = {
                "format": FORMAT,
                "made": datetime.now(UTC).isoformat(timespec="seconds"),
                "environment": environment(),
                "best_epoch": self.history.best_epoch,
                "stopped": self.history.stopped,
                "way": self.history.way,
                "files": {name: folder.write(draft / name, content) for name, content in files.items()},
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
            model = build_model(config.model, graph.n_entities, graph.n_relations, seed=None)
            model.load_state_dict(tensor_file.read(files["model.safetensors"])[0], assign=True)
            rows = [json.loads(line) for line in files["history.jsonl"].read_bytes().splitlines()]
            history = History(rows, manifest["best_epoch"], manifest["stopped"], manifest.get("way", ""))
            return cls(config, graph, model.eval(), history, json.loads(files["metrics.json"].read_bytes()), path)
        except HarmoniumError:
            raise
        except (LookupError, AttributeError, TypeError, SafetensorError, RuntimeError, ValueError) as error:
            raise HarmoniumError(f"{path}: not a run that this version can read ({error}); train it again") from error


def environment() -> dict[str, str]:
    """Where a run was made: what it takes to make it again."""
    from harmonium import __version__

    threads = torch.get_num_threads()
    found = {
        "harmonium": __version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "platform": f"{platform.system()} {platform.machine()}",
        "device": torch.cuda.get_device_name()
        if torch.cuda.is_available()
        else f"CPU, {threads} thread{'s' * (threads > 1)}",
    }
    return {key: value for key, value in found.items() if value}


@cache
def _commit() -> str:
    """The commit of the source tree that this is run from, with -dirty when files differ; nothing when installed."""
    tree = Path(__file__).parents[2]
    if not (tree / ".git").exists():
        return ""
    command = ["git", "--no-optional-locks", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    with suppress(OSError):
        return subprocess.run(command, cwd=tree, capture_output=True, text=True).stdout.strip()
    return ""


def _manifest(path: Path) -> dict[str, Any]:
    if not path.is_dir():
        refuse_pickle(path)
        raise HarmoniumError(f"{path}: no such run folder; `harmonium train --out {path}` makes one")
    if not (path / "run.json").exists():
        if folder.unfinished(path):
            raise HarmoniumError(f"{path}: training has not finished; `harmonium resume {path}` goes on with it")
        raise HarmoniumError(f"{path}: no run.json in it, so it is not a (complete) run folder")
    return folder.unseal(path / "run.json", formats=(1, FORMAT), unsealed=(1,))
