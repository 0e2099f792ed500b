"""The list of commands: each declares itself by `@command(GROUP)`, and the help shows them by group."""

from collections.abc import Callable
from typing import Any, TypeVar

Command = TypeVar("Command", bound=Callable[..., Any])

COMMANDS: dict[str, list[Callable[..., Any]]] = {  # groups in the order of the help
    group: [] for group in ("Start", "Train", "Ask", "Analyse", "Graphs", "Review", "Manage")
}


def command(group: str) -> Callable[[Command], Command]:
    """Make a function a command of the same name. Its parameters are arguments and options, its docstring is the help.

    It is found wherever it stands in this folder. Put it above the other decorators.
    """

    def declare(function: Command) -> Command:
        COMMANDS[group].append(function)
        return function

    return declare
