"""Whatever users can choose or import has a test, and imports stay light."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import harmonium
from harmonium.cli.app import COMMANDS
from harmonium.config.settings import EvaluateConfig, ModelConfig, TrainConfig
from harmonium.data.formats.registry import SERVERS, targets
from harmonium.model.composition import Composition

TESTS = Path(__file__).parent
TEXTS = {file: file.read_text(encoding="utf-8") for file in TESTS.rglob("*.py") if file != Path(__file__)}
PUBLIC = [name for name in harmonium.__all__ if name != "__version__"]


def occurs(pattern: str, folder: Path = TESTS) -> bool:
    return any(re.search(pattern, text) for file, text in TEXTS.items() if file.is_relative_to(folder))


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    return done.stdout


def choices() -> Iterator[Any]:
    """A pattern for everything that users can choose, and the folder of tests in which it must occur."""
    for name, kind in Composition.registry.items():
        if "harmonium" in kind.__module__:
            yield pytest.param(rf'"{name}"', TESTS, id=f"composition {name}")
    for group in (ModelConfig, TrainConfig, EvaluateConfig):  # losses, samplers, optimisers, protocols ...
        for name, hint in typing.get_type_hints(group).items():
            others = set(typing.get_args(hint) if typing.get_origin(hint) is typing.Literal else ())
            for choice in sorted(others - {getattr(group(), name)}):  # the default is what all other tests use
                yield pytest.param(rf'\b{name}={choice}\b|"{choice}"', TESTS, id=f"{name}={choice}")
    for name in (*targets(), *(server.name for server in SERVERS)):
        yield pytest.param(rf'def test_\w*{name}|\.{name}"|"{name}"', TESTS / "data", id=f"format {name}")
    for name in (command.__name__ for group in COMMANDS.values() for command in group):
        yield pytest.param(rf'"{name}[" ]', TESTS / "cli", id=f"command {name}")


@pytest.mark.parametrize(("pattern", "folder"), list(choices()))
def test_every_choice_is_tested(pattern: str, folder: Path) -> None:
    assert occurs(pattern, folder)


# The public API ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_tested_and_documented(name: str) -> None:
    value = getattr(harmonium, name)
    assert value.__name__ == name
    assert value.__doc__
    assert ">>>" in value.__doc__ or isinstance(value, type)
    assert occurs(rf"(?m)\bharmonium\.{name}\b|^from harmonium\S* import .*\b{name}\b")


def test_public_names_are_few_and_editors_see_them() -> None:
    assert len(PUBLIC) <= 31
    assert set(harmonium.__all__) <= set(dir(harmonium))
    tree = ast.parse(Path(harmonium.__file__).read_text(encoding="utf-8"))
    (type_checking,) = [node for node in tree.body if isinstance(node, ast.If)]
    imports = {
        alias.asname: (node.module or "").removeprefix("harmonium.")
        for node in type_checking.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert imports == harmonium._MODULES
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        harmonium.nothing  # noqa: B018


# Imports -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code", ["import harmonium", "from harmonium.cli.app import app; app(['--help'], standalone_mode=False)"]
)
def test_starting_imports_nothing_heavy(code: str) -> None:
    heavy = "{'torch', 'polars', 'matplotlib', 'numpy', 'scipy'}"
    assert python(f"import sys; {code}; print(sorted({heavy} & set(sys.modules)))").splitlines()[-1] == "[]"


def test_training_needs_only_torch_numpy_and_safetensors() -> None:
    code = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("polars", "scipy", "matplotlib", "jinja2", "typer", "click", "rich", "rapidfuzz"):
            raise ImportError(f"refused: {name}")

sys.meta_path.insert(0, Refuse())

from harmonium.data.graph import Graph
from harmonium.data.triples import Triples
from harmonium.data.vocabulary import Vocabulary
from harmonium.evaluation.evaluation import evaluate_with_baselines
from harmonium.model.build import build_model
from harmonium.run.run import Run
from harmonium.config.settings import Config
from harmonium.training.fit import fit

facts = Triples.from_rows([[0, 0, 1], [1, 0, 2], [2, 0, 0]])
graph = Graph(Vocabulary(["a", "b", "c"]), Vocabulary(["r"]), facts, facts, facts)
config = Config.read(None, ["train.epochs=1", "model.entity_dim=4"])
model = build_model(config.model, 3, 1)
run = Run(config, graph, model, fit(model, graph, config), evaluate_with_baselines(model, graph, config.evaluate))
print(len(run.history.rows), len(run.metrics))
"""
    assert python(code) == "1 6\n"
