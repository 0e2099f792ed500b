"""Complete knowledge graphs with Gradient Graphs. The public API is this page; everything is imported on first use."""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

try:
    __version__ = version("harmonium")
except PackageNotFoundError:  # a source tree that was not installed
    __version__ = "0.0.0"

_PUBLIC = {
    # one function per command
    "demo": "demo",
    "train": "commands",
    "evaluate": "commands",
    "predict": "commands",
    "neighbours": "commands",
    "density": "commands",
    "gain": "commands",
    "dynamics": "commands",
    "classify": "commands",
    "info": "commands",
    "reproduce": "reproduce",
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
    return found  # kept, as importing the module `demo` has put the module in the place of its function


def __dir__() -> list[str]:
    return sorted(__all__)
