"""Nothing without a test, nothing without a docstring, and imports that stay as light as they claim to be."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import harmonium
from harmonium import cli
from harmonium.composition import Composition
from harmonium.formats import FORMATS

TESTS = Path(__file__).parent
PACKAGE = Path(harmonium.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
TEXTS = [file.read_text(encoding="utf-8") for file in TESTS.rglob("*.py") if file != Path(__file__)]


def occurs(pattern: str) -> bool:
    return any(re.search(pattern, text) for text in TEXTS)


@pytest.mark.parametrize("name", [n for n, kind in Composition.registry.items() if "harmonium" in kind.__module__])
def test_every_composition_is_tested(name: str) -> None:
    assert occurs(rf'"{name}"')


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_is_tested(name: str) -> None:
    assert (PACKAGE / "formats" / f"{name}.py").is_file()
    assert occurs(rf"def test_\w*{name}") or occurs(rf"\b{name} (and|format)")


@pytest.mark.parametrize("name", [command.callback.__name__ for command in cli.app.registered_commands])
def test_every_command_is_tested(name: str) -> None:
    text = (TESTS / "test_cli.py").read_text(encoding="utf-8")
    assert re.search(rf'(call|shell)\("{name}"', text) or f'("{name} ' in text
    assert name in harmonium.__all__


@pytest.mark.parametrize("name", harmonium.__all__)
def test_every_public_name_is_tested(name: str) -> None:
    assert occurs(rf"\bharmonium\.{name}\b") or occurs(rf"from harmonium[\w.]* import .*\b{name}\b")


@pytest.mark.parametrize("file", MODULES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_every_module_says_what_it_is(file: Path) -> None:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    assert len((ast.get_docstring(tree) or "").split()) >= 3


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_public_names_are_what_they_say_at_every_access() -> None:
    """`demo` is a function and a module of the same name: the function must stay."""
    code = """
import harmonium, types
for _ in range(2):
    for name in harmonium.__all__:
        found = getattr(harmonium, name)
        assert not isinstance(found, types.ModuleType), name
        assert name == "__version__" or found.__name__ == name, name
assert set(harmonium.__all__) <= set(dir(harmonium))
try:
    harmonium.nothing
except AttributeError as error:
    print(error)
"""
    assert python(code) == "module 'harmonium' has no attribute 'nothing'\n"


CORE = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ImportError(f"blocked: {name}")

BLOCKED = {"polars", "pydantic", "matplotlib", "typer", "rich", "rapidfuzz", "click"}
sys.meta_path.insert(0, Refuse())
"""


def test_the_training_core_needs_torch_numpy_and_safetensors_alone() -> None:
    code = (
        CORE
        + """
import harmonium.training, harmonium.run, harmonium.analysis.neighbours, harmonium.analysis.density
import harmonium.analysis.gain, harmonium.analysis.entity_tokens, harmonium.analysis.dynamics, harmonium.classification
from harmonium.config import Config
from harmonium.graph import Graph, Triples, Vocabulary
from harmonium.training import build_model, fit

rows = Triples.from_rows([[0, 0, 1], [1, 0, 2], [2, 0, 0]])
graph = Graph(Vocabulary(["a", "b", "c"]), Vocabulary(["r"]), rows, rows, rows)
config = Config.read(None, ["train.epochs=1", "model.entity_dim=4"])
print(len(fit(build_model(config.model, 3, 1), graph, config).rows))
assert not BLOCKED & set(sys.modules)
"""
    )
    assert python(code) == "1\n"


@pytest.mark.parametrize("module", ["harmonium", "harmonium.cli"])
def test_starting_does_not_import_torch(module: str) -> None:
    heavy = "{'torch', 'polars', 'matplotlib', 'numpy'}"
    assert python(f"import sys, {module}; print(sorted({heavy} & set(sys.modules)))") == "[]\n"


def imports(file: Path) -> set[str]:
    """The modules of harmonium that a file imports, at the top or inside a function."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "harmonium":
            inner = node.module.removeprefix("harmonium").removeprefix(".")
            found |= {inner} if inner else {name.name for name in node.names}
    return found


@pytest.mark.parametrize(
    ("module", "never"),
    [
        ("graph", {"composition", "harmony", "model", "training", "run", "commands", "formats", "evaluation"}),
        ("composition", {"harmony", "model", "training", "run", "commands", "evaluation"}),
        ("harmony", {"composition", "model", "training", "run", "commands", "evaluation"}),
        ("evaluation", {"model", "training", "run", "commands", "composition", "harmony"}),
        ("model", {"training", "run", "commands", "cli", "evaluation"}),
        ("folder", {"checkpoint", "model", "training", "run", "commands", "cli"}),
        ("checkpoint", {"model", "training", "run", "commands", "cli", "formats", "datasets"}),
        ("training", {"run", "commands", "cli", "formats", "datasets"}),
        ("run", {"commands", "cli", "formats", "datasets"}),
        ("commands", {"cli", "console", "demo"}),
    ],
)
def test_imports_point_one_way(module: str, never: set[str]) -> None:
    found = imports(PACKAGE / f"{module}.py")
    assert "errors" in found or "graph" in found
    assert not {name.split(".")[0] for name in found} & never
