"""Every public function refuses misspelled keywords and odd values, before any work is done."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import pytest

import harmonium
from harmonium.errors import HarmoniumError
from small import family, make_run, untrained

FUNCTIONS = sorted(name for name in harmonium.__all__ if inspect.isfunction(getattr(harmonium, name)))
RUN = make_run(family(), untrained(family()))
GIVEN: dict[str, dict[str, Any]] = {  # what must be given for a call to be complete
    "train": {"data": family()},
    "plan": {"data": family()},
    "load": {"source": [("a", "r", "b")]},
    "info": {"data": family()},
    "doctor": {"data": family()},
    "convert": {"source": family(), "out": "nowhere.tsv"},
    "resume": {"run": "nowhere"},
    "diff": {"before": RUN, "after": RUN},
    "serve": {"run": RUN},
    "predict": {"head": "person 0", "relation": "next"},
    "similar": {"entity": "person 0"},
    "neighbours": {"head": "person 0", "relation": "next", "tail": "person 1"},
}


def call(name: str, **keywords: Any) -> object:
    """Call a public function on a run, or on what it takes instead; keywords that it does not have are left to it."""
    function: Callable[..., object] = getattr(harmonium, name)
    parameters = inspect.signature(function).parameters.values()
    needed = [
        p.name for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    ]
    given = GIVEN.get(name, {})
    arguments = dict.fromkeys(needed, RUN) | given
    return function(**{**arguments, **keywords})


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_misspelled_keyword_is_an_error_that_names_it(name: str) -> None:
    with pytest.raises(HarmoniumError, match="bogus"):
        call(name, bogus=1)


NUMBERS = [
    (name, parameter.name)
    for name in FUNCTIONS
    for parameter in inspect.signature(getattr(harmonium, name)).parameters.values()
    if parameter.name in ("top", "minutes", "coverage", "seed", "chunk", "port")
]


@pytest.mark.parametrize("value", [-1, math.nan, "many"], ids=str)
@pytest.mark.parametrize(("name", "parameter"), NUMBERS)
def test_an_odd_number_is_an_error_that_names_it(name: str, parameter: str, value: object) -> None:
    with pytest.raises(
        HarmoniumError, match=parameter.replace("minutes", "minutes|time budget").replace("coverage", "a coverage")
    ):
        call(name, **{parameter: value})


SWITCHES = [
    (name, parameter.name)
    for name in FUNCTIONS
    for parameter in inspect.signature(getattr(harmonium, name)).parameters.values()
    if isinstance(parameter.default, bool)
]


@pytest.mark.parametrize(("name", "parameter"), SWITCHES)
def test_a_switch_is_true_or_false(name: str, parameter: str) -> None:
    with pytest.raises(HarmoniumError, match=f"{parameter} is True or False, not 'False'"):
        call(name, **{parameter: "False"})
