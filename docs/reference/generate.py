"""Generate the reference pages from the program while the site is built: every command, public name and setting."""

from __future__ import annotations

import dataclasses
import html
import inspect
import re
import typing
from collections.abc import Iterable, Sequence
from enum import Enum
from functools import cached_property
from typing import Any

import typer

import harmonium
from harmonium.interfaces.cli.app import app
from harmonium.model.composition import Composition
from harmonium.runtime.config import describe


def on_files(files: Any, config: Any) -> Any:
    """Called by mkdocs: add the generated pages to those written by hand."""
    from mkdocs.structure.files import File

    for name, text in pages().items():
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    return files


def pages() -> dict[str, str]:
    return {"commands": commands(), "python": python(), "settings": settings()}


def commands() -> str:
    """A section per command: description, examples, arguments and options."""
    tree = typer.main.get_command(app)
    lines = ["# Commands", tree.help, "Options of `harmonium` itself, before the command:", options(tree.params)]
    for name, command in tree.commands.items():
        text, examples = split_examples(command.help, "Example: ")
        arguments = [p for p in command.params if not p.opts[0].startswith("-")]
        usage = " ".join(["harmonium", name, *map(argument, arguments), "[OPTIONS]"])
        lines += [f"## {name}", text, fence("\n".join([usage, *examples]), "sh"), options(command.params)]
    return "\n\n".join(lines)


def argument(parameter: Any) -> str:
    name = parameter.metavar or parameter.name.upper()
    return name if parameter.required or name.startswith("[") else f"[{name}]"


def options(parameters: Iterable[Any]) -> str:
    rows = []
    for p in parameters:
        named = p.opts[0].startswith("-")
        flags = " / ".join([*p.opts, *p.secondary_opts]) if named else argument(p)
        flags += f" {p.metavar}" if named and p.metavar else ""
        default = "" if p.default is None or isinstance(p.default, bool | list | tuple) else f"`{p.default}`"
        if isinstance(p.default, bool) and p.secondary_opts:
            default = f"`{(p.secondary_opts, p.opts)[p.default][0]}`"
        rows.append([f"`{flags}`", cell(p.help), default])
    return table(["option", "meaning", "default"], rows)


def python() -> str:
    """A section per public name, then per result type."""
    public = {name: getattr(harmonium, name) for name in harmonium.__all__ if name != "__version__"}
    groups = {
        "Functions": {name: value for name, value in public.items() if not inspect.isclass(value)},
        "Classes": {name: value for name, value in public.items() if inspect.isclass(value)},
    }
    kinds = {kind for function in groups["Functions"].values() for kind in result_types(function)}
    groups["Results"] = {k.__name__: k for k in sorted(kinds - {*public.values()}, key=lambda kind: kind.__name__)}
    lines = [
        "# Python",
        f"Everything public is in `import harmonium`; `harmonium.__version__` is {harmonium.__version__}.",
    ]
    for title, group in groups.items():
        lines.append(f"## {title}")
        if title == "Results":
            lines.append("Return types of the functions: plain immutable objects.")
        for name, value in group.items():
            lines += [f"### {name}", fence(signature(name, value)), prose(value)]
            if inspect.isclass(value):
                rows = [[f"`{member}`", cell(text)] for member, text in members(value)]
                lines += [table(["member", "meaning"], rows)] if rows else []
    return "\n\n".join(lines)


def result_types(function: Any) -> set[type]:
    """The dataclasses of harmonium in a function's return annotation."""

    def inside(hint: Any) -> set[type]:
        ours = dataclasses.is_dataclass(hint) and hint.__module__.startswith("harmonium")
        return {hint} if ours else {kind for part in typing.get_args(hint) for kind in inside(part)}

    return inside(typing.get_type_hints(function).get("return"))


def members(kind: type) -> Iterable[tuple[str, str]]:
    """(signature, description) of the documented public methods and properties of a class."""
    for name, member in vars(kind).items():
        is_property = isinstance(member, property | cached_property)
        function = inspect.unwrap(getattr(member, "__func__", member))
        if not name.startswith("_") and (is_property or inspect.isfunction(function)) and member.__doc__:
            text = split_examples(inspect.getdoc(member) or "", ">>> ")[0]
            yield name if is_property else signature(name, function, width=1000), text


class Bare(str):
    """A string whose repr has no quotes."""

    def __repr__(self) -> str:
        return str(self)


def signature(name: str, value: Any, width: int = 100) -> str:
    """As in the source; on several lines if it is long."""
    if inspect.isclass(value) and issubclass(value, Enum):
        return "\n".join(f"{name}.{member.name} = {member.value!r}" for member in value)
    if inspect.isclass(value) and issubclass(value, Exception):
        return name
    whole, parts = inspect.signature(value), []
    for p in whole.parameters.values():
        if p.kind is p.KEYWORD_ONLY and not any(part.startswith("*") for part in parts):
            parts.append("*")
        if p.name not in ("self", "cls"):
            parts.append(tidy(p.replace(annotation=Bare(p.annotation)) if isinstance(p.annotation, str) else p))
    end = "" if whole.return_annotation in (whole.empty, None, "None") else f" -> {tidy(whole.return_annotation)}"
    line = f"{name}({', '.join(parts)}){end}"
    return line if len(line) < width else f"{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){end}"


def tidy(part: Any) -> str:
    """Types without their modules, functions by name, paths as they are written."""
    text = re.sub(r"\b(?:[a-z]\w*\.)+(?=[A-Z])", "", str(part))
    text = re.sub(r"<(?:built-in )?(?:function|class) '?([\w.]+)[^>]*>", r"\1", text)
    return text.replace("PosixPath", "Path").replace("<factory>", "...")


def prose(value: Any) -> str:
    """A docstring as Markdown; lines after >>> as code."""
    text, examples = split_examples(inspect.getdoc(value) or "", ">>> ")
    text = html.escape(text, quote=False)
    return text + ("\n\n" + fence("\n".join(examples)) if examples else "")


def settings() -> str:
    """Every setting, and the compositions."""
    rows = [[f"`{key}`", cell(text), f"`{default}`" if default else ""] for key, default, text in describe()]
    kinds = {name: kind for name, kind in Composition.registry.items() if kind.__module__.startswith("harmonium.")}
    formulas = [[f"`{name}`", cell((inspect.getdoc(kind) or "").split("\n\n")[0])] for name, kind in kinds.items()]
    return "\n\n".join(
        [
            "# Settings",
            'One setting is one key of a TOML file and one `--set KEY=VALUE`, or from Python `overrides=["KEY=VALUE"]`; '
            "`harmonium train --settings` prints this table. The [glossary](../glossary.md#faithfulness-lambda) explains "
            "lambda (`model.faithfulness`) and how to choose it.",
            table(["key", "meaning", "default"], rows),
            "## Compositions",
            "Values of `model.composition`; a new one is [one formula](python.md#composition), affine in each slot.",
            table(["name", "meaning"], formulas),
        ]
    )


def split_examples(text: str, mark: str) -> tuple[str, list[str]]:
    """A text without the lines that start with a mark, and those lines."""
    lines = text.splitlines()
    rest = "\n".join(line for line in lines if not line.strip().startswith(mark))
    return rest.strip(), [line.strip().removeprefix(mark) for line in lines if line.strip().startswith(mark)]


def fence(text: str, language: str = "python") -> str:
    return f"```{language}\n{text}\n```"


def cell(text: str | None) -> str:
    return html.escape(" ".join((text or "").split()), quote=False).replace("|", "&#124;")


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
