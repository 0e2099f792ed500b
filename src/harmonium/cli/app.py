"""The command line: its commands (commands.py), global options, and how errors end."""

import contextlib
import importlib
import io
import os
import pkgutil
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

import harmonium.cli
from harmonium.cli import console, paper
from harmonium.cli.commands import COMMANDS
from harmonium.cli.options import flag, option, shown_metavar
from harmonium.errors import HarmoniumError, Interrupted, PeerError
from harmonium.runtime import allocator, torchrun
from harmonium.runtime.untrusted import one_message
from harmonium.version import __version__

ALIASES = {"--json": "--format=json", "--markdown": "--format=md"}  # not shown in the help


class _PlainHelp:
    """Shows flags (--help and those of Typer included) and arguments without a Python type in the help."""

    def get_params(self, ctx: Any) -> list[Any]:
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]  # of a command
        for parameter in params:
            parameter.metavar = shown_metavar(parameter.metavar)
            if getattr(parameter, "is_flag", False) and parameter.metavar is None:
                parameter.metavar = ""
            elif parameter.param_type_name == "argument":
                parameter.display_type_rich = lambda ctx: None  # its metavar says what it is
        return params


class Group(_PlainHelp, TyperGroup):
    """The command `harmonium` itself."""


class Command(_PlainHelp, TyperCommand):
    """A command that also knows the aliases of options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        known = {name for parameter in self.params for name in parameter.opts}
        if "--format" in known:
            args = [ALIASES.get(word, word) for word in args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Complete knowledge graphs with Gradient Graphs: missing facts, how sure to be of them, and why.",
    epilog="Start with: harmonium demo. Your own facts: harmonium complete facts.csv --out missing.csv",
)
for module in pkgutil.iter_modules(harmonium.cli.__path__):  # so that every command declares itself
    importlib.import_module(f"harmonium.cli.{module.name}")
for group, commands in COMMANDS.items():
    for command in commands:
        app.command(cls=Command, rich_help_panel=group)(command)

paper_app = typer.Typer(
    cls=Group, no_args_is_help=True, help="Reproduce the tables, figures and claims of Lalisse & Smolensky."
)
for command in paper.COMMANDS:
    paper_app.command(cls=Command)(command)
app.add_typer(paper_app, name="paper", rich_help_panel="Analyse")


@app.callback(invoke_without_command=True)
def global_options(
    context: typer.Context,
    plugin: Annotated[
        list[Path] | None,
        option("FILE", "Import a Python file first, such as one with a Composition of your own; repeatable."),
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
    console.show_reading()
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
        _check_surroundings()
        app(prog_name="harmonium")
    except PeerError:
        sys.exit(2)
    except HarmoniumError as error:
        _fail(str(error), rank)
    except OSError as error:  # most often: the output goes to a file on a full disk
        _drop_output()
        what = "the output cannot be" if error.filename is None else f"{error.filename}: cannot be read or"
        _fail(f"{what} written ({error.strerror or error})", rank)
    except Interrupted as stop:
        print(stop, file=sys.stderr)
        sys.exit(stop.code)
    except KeyboardInterrupt:
        sys.exit(130)


def _fail(message: str, rank: int) -> NoReturn:
    prefix = f"error in process {rank}" if rank > 0 else "error"
    console.errors.print(Text(one_message(f"{prefix}: {message}"), style="red"), soft_wrap=True)
    sys.exit(2)


def _drop_output() -> None:
    """Forget output that could not be written, so that Python does not try again when it ends."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _check_surroundings() -> None:
    """Refuse a working folder that was removed, with which libraries crash; show what an encoding lacks as escapes."""
    try:
        Path.cwd()
    except OSError as error:
        raise HarmoniumError("the current folder does not exist any more; change to another one (cd)") from error
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")
