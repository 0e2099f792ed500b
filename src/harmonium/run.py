"""Run folder <-> model. Complete and portable; safetensors, TOML, TSV and JSON only.

    run.json            format, version, environment, how it was made, and the checksum of every other file
    config.toml         all settings
    data.graph          the graph, names and splits (graph_file.py)
    model.safetensors   the parameters of the best model
    history.jsonl       one line per epoch
    metrics.json        metrics with their protocol

A folder is written beside its place under a temporary name and renamed when it is whole, so it exists whole or not at all.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError

from harmonium import graph_file
from harmonium.config import Config
from harmonium.errors import HarmoniumError
from harmonium.graph import Graph
from harmonium.model import GradientGraph
from harmonium.training import History, build_model

FORMAT = 1


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
        with _replacing(path) as folder:
            files = {
                "config.toml": self.config.to_toml().encode(),
                "data.graph": graph_file.to_bytes(self.graph),
                "model.safetensors": safetensors.torch.save(
                    {k: v.detach().cpu().contiguous() for k, v in self.model.state_dict().items()}
                ),
                "history.jsonl": "".join(json.dumps(row) + "\n" for row in self.history.rows).encode(),
                "metrics.json": _json(self.metrics),
            }
            for name, content in files.items():
                _write(folder / name, content)
            manifest = {
                "format": FORMAT,
                "made": datetime.now(UTC).isoformat(timespec="seconds"),
                "environment": environment(),
                "best_epoch": self.history.best_epoch,
                "stopped": self.history.stopped,
                "files": {name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
            }
            _write(folder / "run.json", _json(manifest))
        return path

    @classmethod
    def load(cls, path: str | Path) -> Run:
        """Read a folder back; anything missing, changed or of another format is an error that says so."""
        path = Path(path)
        manifest = _manifest(path)
        try:
            files = {name: _checked(path / name, digest) for name, digest in manifest["files"].items()}
            config = Config.read(path / "config.toml")
            graph = graph_file.load(path / "data.graph")
            model = build_model(config.model, graph.n_entities, graph.n_relations)
            model.load_state_dict(safetensors.torch.load(files["model.safetensors"]))
            rows = [json.loads(line) for line in files["history.jsonl"].splitlines()]
            history = History(rows, manifest["best_epoch"], manifest["stopped"])
            return cls(config, graph, model.eval(), history, json.loads(files["metrics.json"]), path)
        except (KeyError, SafetensorError, RuntimeError, json.JSONDecodeError) as error:
            raise HarmoniumError(f"{path}: not a run that this version can read ({error}); train it again") from error


def reserve(path: str | Path, overwrite: bool = False) -> Path:
    """Make sure, before any work is spent, that a run can be written here."""
    path = Path(path)
    if path.exists() and not overwrite:
        raise HarmoniumError(f"{path} exists; choose another --out, or say --overwrite to replace it")
    if path.exists() and not (path / "run.json").is_file() and (not path.is_dir() or any(path.iterdir())):
        raise HarmoniumError(f"{path} is not a run folder, so it will not be replaced; choose another --out")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HarmoniumError(f"{path.parent}: cannot be made ({error.strerror}); choose another --out") from error
    if not os.access(path.parent, os.W_OK):
        raise HarmoniumError(f"{path.parent} cannot be written to; choose another --out")
    return path


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


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A temporary folder that takes the place of `path` when the block ends well, and vanishes otherwise."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    try:
        draft.mkdir()
        yield draft
        _sync(draft)
        if path.exists():
            old = path.with_name(f".{path.name}.{os.getpid()}.old")
            path.rename(old)
            try:
                draft.rename(path)
            except OSError:
                old.rename(path)
                raise
            shutil.rmtree(old)
        else:
            draft.rename(path)
        _sync(path.parent)
    except OSError as error:
        raise HarmoniumError(f"{path}: cannot be written ({error.strerror}); nothing was left there") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)


def _write(path: Path, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _manifest(path: Path) -> dict[str, Any]:
    if not path.is_dir():
        raise HarmoniumError(f"{path}: no such run folder; `harmonium train --out {path}` makes one")
    try:
        manifest = json.loads((path / "run.json").read_bytes())
    except FileNotFoundError:
        raise HarmoniumError(f"{path}: no run.json in it, so it is not a (complete) run folder") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise HarmoniumError(f"{path / 'run.json'}: damaged ({error}); restore it or train again") from error
    found = manifest.get("format") if isinstance(manifest, dict) else None
    if found != FORMAT:
        raise HarmoniumError(
            f"{path}: run format {found!r}; this version of harmonium reads format {FORMAT}. "
            "Use the version that wrote it, or train again"
        )
    return manifest


def _checked(path: Path, digest: str) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise HarmoniumError(f"{path}: {error.strerror or error}; the run folder is incomplete") from error
    if hashlib.sha256(content).hexdigest() != digest:
        raise HarmoniumError(f"{path}: its contents changed since the run was written; restore it or train again")
    return content


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()
