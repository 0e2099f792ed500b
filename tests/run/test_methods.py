"""Methods of a run are the public functions."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys

import pytest

import harmonium
from harmonium.run.methods import NAMES, RunMethods
from harmonium.run.run import Run
from small import family

TAKE_A_RUN = {"run", "graph_or_run", "before"}


@pytest.fixture(scope="module")
def run() -> Run:
    return harmonium.train(family(), "paper", dim=8, epochs=3, batch_size=32)


def test_every_public_function_of_a_run_is_a_method() -> None:
    functions = {name: getattr(harmonium, name) for name in harmonium.__all__ if name != "__version__"}
    taking_runs = {
        name
        for name, function in functions.items()
        if inspect.isfunction(function) and next(iter(inspect.signature(function).parameters), "") in TAKE_A_RUN
    }
    assert set(NAMES) == taking_runs - {"resume"}  # which takes the folder of an unfinished run


@pytest.mark.parametrize("name", NAMES)
def test_a_method_is_the_function_with_the_run_bound(run: Run, name: str) -> None:
    function, method = getattr(harmonium, name), getattr(run, name)
    assert method.__func__ is function is getattr(Run, name)
    assert method.__self__ is run
    assert method.__doc__ == function.__doc__
    assert list(inspect.signature(method).parameters) == list(inspect.signature(function).parameters)[1:]


def test_type_checkers_see_the_same_methods() -> None:
    tree = ast.parse(inspect.getsource(RunMethods))
    assigned = [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Assign)]
    assert assigned == [f"{name} = harmonium.{name}" for name in NAMES]


def test_answers_are_those_of_the_functions(run: Run) -> None:
    assert run.predict(head="person 0", relation="next") == harmonium.predict(run, head="person 0", relation="next")
    assert run.evaluate().metrics["mrr"] == pytest.approx(run.metrics["mrr"])
    assert run.explain("person 0", "next", "person 1").triple == ("person 0", "next", "person 1")
    assert run.info()["graph"]["name"] == "family"


def test_loading_a_run_imports_no_higher_layer() -> None:
    code = """
import sys
import harmonium.run.run
higher = tuple(f"harmonium.{layer}" for layer in ("answers", "analysis", "review", "paper", "server", "cli"))
print([name for name in sys.modules if name.startswith(higher)])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n", done.stderr
