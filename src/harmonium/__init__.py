"""Complete knowledge graphs with Gradient Graphs. The public API is this page; everything is imported on first use."""

import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import Any

try:
    __version__ = version("harmonium")
except PackageNotFoundError:  # a source tree that was not installed
    __version__ = "0.0.0"

_PUBLIC = {
    # one function per command
    "demo": "demo",
    "plan": "planning",
    "train": "commands",
    "resume": "commands",
    "evaluate": "commands",
    "predict": "commands",
    "predict_file": "commands",
    "score": "commands",
    "complete": "commands",
    "calibrate": "commands",
    "neighbours": "commands",
    "density": "commands",
    "gain": "commands",
    "dynamics": "commands",
    "explain": "commands",
    "add": "commands",
    "classify": "commands",
    "info": "commands",
    "serve": "serve",
    "convert": "commands",
    "reproduce": "reproduce",
    "report": "html_report",
    "tune": "tuning",
    "export": "export",
    "import_embeddings": "export",
    "doctor": "doctor",
    # graphs
    "load": "datasets",
    "Graph": "graph",
    "Triples": "graph",
    "Slot": "graph",
    # models
    "Composition": "composition",
    "Harmony": "harmony",
    "QuadraticForm": "harmony",
    "GradientGraph": "model",
    "LinkPredictor": "estimator",
    # the parts behind the commands
    "Config": "config",
    "Run": "run",
    "build_model": "training",
    "fit": "training",
    "rank": "evaluation",
    "HarmoniumError": "errors",
}
__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'harmonium' has no attribute '{name}'")
    globals()[name] = found = getattr(import_module(f"harmonium.{_PUBLIC[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted(__all__)


class _Package(ModuleType):
    """Keeps a public function in its place when the module of the same name (demo, doctor) is imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _PUBLIC and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
