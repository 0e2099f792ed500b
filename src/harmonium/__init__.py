"""Complete knowledge graphs with Gradient Graphs. The public API is this page; every name is imported on first use."""

from importlib import import_module
from inspect import isfunction
from typing import TYPE_CHECKING, Any

from harmonium.errors import with_checked_keywords
from harmonium.runtime.waiting import wait_passively
from harmonium.version import __version__

if TYPE_CHECKING:
    from harmonium.analysis.diff import diff as diff
    from harmonium.analysis.doctor import doctor as doctor
    from harmonium.analysis.explain import explain as explain
    from harmonium.analysis.info import info as info
    from harmonium.analysis.report import report as report
    from harmonium.analysis.rules import rules as rules
    from harmonium.analysis.similar import similar as similar
    from harmonium.answers.classify import classify as classify
    from harmonium.answers.complete import complete as complete
    from harmonium.answers.estimator import LinkPredictor as LinkPredictor
    from harmonium.answers.evaluate import evaluate as evaluate
    from harmonium.answers.predict import predict as predict
    from harmonium.answers.score import score as score
    from harmonium.answers.send.export import export as export
    from harmonium.answers.update import update as update
    from harmonium.config.settings import Config as Config
    from harmonium.data.datasets import convert as convert
    from harmonium.data.datasets import load as load
    from harmonium.data.graph import Graph as Graph
    from harmonium.errors import HarmoniumError as HarmoniumError
    from harmonium.evaluation.ranking import rank as rank
    from harmonium.model.composition import Composition as Composition
    from harmonium.model.gradient_graph import GradientGraph as GradientGraph
    from harmonium.model.scoring import Scorer as Scorer
    from harmonium.review.audit import audit as audit
    from harmonium.run.run import Run as Run
    from harmonium.server.server import serve as serve
    from harmonium.training.search.planning import plan as plan
    from harmonium.training.train import resume as resume
    from harmonium.training.train import train as train

_MODULES = {
    "train": "training.train",
    "resume": "training.train",
    "plan": "training.search.planning",
    "evaluate": "answers.evaluate",
    "predict": "answers.predict",
    "score": "answers.score",
    "complete": "answers.complete",
    "audit": "review.audit",
    "classify": "answers.classify",
    "explain": "analysis.explain",
    "similar": "analysis.similar",
    "update": "answers.update",
    "export": "answers.send.export",
    "report": "analysis.report",
    "rules": "analysis.rules",
    "diff": "analysis.diff",
    "serve": "server.server",
    "info": "analysis.info",
    "convert": "data.datasets",
    "doctor": "analysis.doctor",
    "load": "data.datasets",
    "Graph": "data.graph",
    "Composition": "model.composition",
    "GradientGraph": "model.gradient_graph",
    "Scorer": "model.scoring",
    "rank": "evaluation.ranking",
    "LinkPredictor": "answers.estimator",
    "Config": "config.settings",
    "Run": "run.run",
    "HarmoniumError": "errors",
}
_USUAL_NAMES = {  # of other libraries
    "fit": "train",
    "pipeline": "train",
    "load_model": "Run.load",
    "load_run": "Run.load",
    "most_similar": "similar",
    "neighbors": "similar",
    "neighbours": "similar",
    "Model": "GradientGraph",
    "read": "load",
    "add": "update",
    "remove": "update",
}
__all__ = ["__version__", *_MODULES]

wait_passively()


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        hint = f"; did you mean harmonium.{_USUAL_NAMES[name]}?" if name in _USUAL_NAMES else ""
        raise AttributeError(f"module 'harmonium' has no attribute '{name}'{hint}")
    value = getattr(import_module(f"harmonium.{_MODULES[name]}"), name)
    globals()[name] = value = with_checked_keywords(value) if isfunction(value) else value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
