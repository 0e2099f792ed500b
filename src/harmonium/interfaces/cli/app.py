"""The command line: the list of commands, global options, and how errors end."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from harmonium.interfaces.cli import analyse, ask, complete, console, demo, graphs, manage, train
from harmonium.interfaces.cli.options import flag, option
from harmonium.runtime import allocator, torchrun
from harmonium.runtime.errors import HarmoniumError, Interrupted, PeerError
from harmonium.runtime.untrusted import one_message
from harmonium.runtime.version import __version__

COMMANDS: dict[str, list[Callable[..., None]]] = {
    "Start": [demo.demo],
    "Train": [train.train, train.resume, train.plan, train.tune],
    "Ask": [ask.predict, ask.score, complete.complete, ask.classify, ask.calibrate, ask.evaluate],
    "Analyse": [
        analyse.neighbours, analyse.explain, analyse.dynamics, analyse.density, analyse.gain, analyse.report, analyse.serve,
    ],
    "Graphs": [graphs.info, graphs.doctor, graphs.convert],
    "Manage": [manage.add, manage.export],
}  # fmt: skip

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Complete knowledge graphs with Gradient Graphs: missing facts, how sure to be of them, and why.",
    epilog="Start with: harmonium demo",
)
for group, commands in COMMANDS.items():
    for command in commands:
        app.command(rich_help_panel=group)(command)


@app.callback(invoke_without_command=True)
def global_options(
    context: typer.Context,
    plugin: Annotated[
        list[Path] | None,
        option("FILE.py", "Import a Python file first, e.g. with a Composition (affine in each slot); repeatable."),
    ] = None,
    version: Annotated[bool, flag("Print the version and exit.", "--version", is_eager=True)] = False,
) -> None:
    if version:
        print(f"harmonium {__version__}")
        raise typer.Exit
    if context.invoked_subcommand == "serve":
        allocator.give_back_freed_memory()
    else:
        allocator.keep_freed_memory()
    for path in plugin or []:
        _import_file(path)


def _import_file(path: Path) -> None:
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise HarmoniumError(f"--plugin {path}: not a Python file that can be read")
    module = module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise HarmoniumError(f"--plugin {path}: {type(error).__name__}: {error}") from error


def main() -> None:
    """Run one command; a user's mistake is a one-line message and exit code 2.

    Under torchrun only the main process prints; the others report errors that are theirs alone.
    """
    rank = torchrun.rank()
    if rank > 0:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    try:
        app(prog_name="harmonium")
    except PeerError:
        sys.exit(2)
    except HarmoniumError as error:
        prefix = f"error in process {rank}" if rank > 0 else "error"
        console.errors.print(Text(one_message(f"{prefix}: {error}"), style="red"), soft_wrap=True)
        sys.exit(2)
    except Interrupted as stop:
        print(stop, file=sys.stderr)
        sys.exit(stop.code)
    except KeyboardInterrupt:
        sys.exit(130)
