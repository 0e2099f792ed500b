"""Methods of a run: public functions whose first argument is a run, looked up when called.

`run.predict(...)` is `harmonium.predict(run, ...)`, with the same parameters, types and docstring. The functions belong to
higher layers; docs/decisions/016-methods-of-a-run.md says why this module alone may reach them.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import TYPE_CHECKING, Any

import harmonium

NAMES = (
    "audit", "classify", "complete", "diff", "evaluate", "explain", "export", "info", "predict", "report",
    "rules", "score", "serve", "similar", "update",
)  # fmt: skip


class Method:
    """A function of the public API as a method of the object that is its first argument."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, instance: object, owner: type) -> Callable[..., Any]:
        function: Callable[..., Any] = getattr(harmonium, self.name)  # its module is imported by the first use
        return function if instance is None else MethodType(function, instance)


class RunMethods:
    """Mixin with the public functions that take a run as methods."""

    if TYPE_CHECKING:  # a function in a class is a method: type checkers know its parameters and results
        audit = harmonium.audit
        classify = harmonium.classify
        complete = harmonium.complete
        diff = harmonium.diff
        evaluate = harmonium.evaluate
        explain = harmonium.explain
        export = harmonium.export
        info = harmonium.info
        predict = harmonium.predict
        report = harmonium.report
        rules = harmonium.rules
        score = harmonium.score
        serve = harmonium.serve
        similar = harmonium.similar
        update = harmonium.update


for _name in NAMES:
    setattr(RunMethods, _name, Method(_name))
