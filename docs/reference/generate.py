"""The reference, made from the program itself while the site is built: every command, public name and setting."""

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
from harmonium import cli
from harmonium.composition import Composition
from harmonium.config import describe


def on_files(files: Any, config: Any) -> Any:
    """What mkdocs calls: the pages join those written by hand."""
    from mkdocs.structure.files import File

    for name, text in pages().items():
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    return files


def pages() -> dict[str, str]:
    return {"commands": commands(), "python": python(), "settings": settings()}


def commands() -> str:
    """A section for each command: what it does, examples, arguments and options."""
    tree = typer.main.get_command(cli.app)
    found = ["# Commands", tree.help, "Options of `harmonium` itself, before the command:", options(tree.params)]
    for name, command in tree.commands.items():
        text, examples = apart(command.help, "Example: ")
        arguments = [p for p in command.params if not p.opts[0].startswith("-")]
        usage = " ".join(["harmonium", name, *map(argument, arguments), "[OPTIONS]"])
        found += [f"## {name}", text, fence("\n".join([usage, *examples]), "sh"), options(command.params)]
    return "\n\n".join(found)


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
        rows.append([f"`{flags}`", cell(p.help) + (" May be given again." if p.multiple else ""), default])
    return table(["option", "meaning", "default"], rows)


def python() -> str:
    """A section for each public name, then for each kind of result."""
    public = {name: getattr(harmonium, name) for name in harmonium.__all__ if name != "__version__"}
    groups = {
        "Functions": {name: found for name, found in public.items() if not inspect.isclass(found)},
        "Classes": {name: found for name, found in public.items() if inspect.isclass(found)},
    }
    kinds = {kind for function in groups["Functions"].values() for kind in results(function)}
    groups["Results"] = {k.__name__: k for k in sorted(kinds - {*public.values()}, key=lambda kind: kind.__name__)}
    lines = [
        "# Python",
        f"Everything public is in `import harmonium`; `harmonium.__version__` is {harmonium.__version__}.",
    ]
    for title, group in groups.items():
        lines.append(f"## {title}")
        if title == "Results":
            lines.append("What the functions return: plain objects to read from.")
        for name, found in group.items():
            lines += [f"### {name}", fence(signature(name, found)), prose(found)]
            if inspect.isclass(found):
                rows = [[f"`{written}`", cell(text)] for written, text in members(found)]
                lines += [table(["member", "meaning"], rows)] if rows else []
    return "\n\n".join(lines)


def results(function: Any) -> set[type]:
    """The dataclasses of harmonium that a function's return type names."""

    def inside(hint: Any) -> set[type]:
        own = dataclasses.is_dataclass(hint) and hint.__module__.startswith("harmonium")
        return {hint} if own else {kind for part in typing.get_args(hint) for kind in inside(part)}

    return inside(typing.get_type_hints(function).get("return"))


def members(kind: type) -> Iterable[tuple[str, str]]:
    """(signature, meaning) of the public methods and properties of a class that say what they do."""
    for name, found in vars(kind).items():
        value = isinstance(found, property | cached_property)
        function = inspect.unwrap(getattr(found, "__func__", found))
        if not name.startswith("_") and (value or inspect.isfunction(function)) and found.__doc__:
            text = apart(inspect.getdoc(found) or "", ">>> ")[0]
            yield name if value else signature(name, function, width=1000), text


class Bare(str):
    """A text that shows itself without quotes."""

    def __repr__(self) -> str:
        return str(self)


def signature(name: str, found: Any, width: int = 100) -> str:
    """As one would write it; on several lines where it is long."""
    if inspect.isclass(found) and issubclass(found, Enum):
        return "\n".join(f"{name}.{member.name} = {member.value!r}" for member in found)
    if inspect.isclass(found) and issubclass(found, Exception):
        return name
    whole, parts = inspect.signature(found), []
    for p in whole.parameters.values():
        if p.kind is p.KEYWORD_ONLY and not any(part.startswith("*") for part in parts):
            parts.append("*")
        if p.name not in ("self", "cls"):
            parts.append(tidy(p.replace(annotation=Bare(p.annotation)) if isinstance(p.annotation, str) else p))
    end = "" if whole.return_annotation in (whole.empty, None, "None") else f" -> {tidy(whole.return_annotation)}"
    line = f"{name}({', '.join(parts)}){end}"
    return line if len(line) < width else f"{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){end}"


def tidy(part: Any) -> str:
    """Without the modules of types; functions by name, and a path as it is written."""
    text = re.sub(r"\b(?:[a-z]\w*\.)+(?=[A-Z])", "", str(part))
    text = re.sub(r"<(?:built-in )?(?:function|class) '?([\w.]+)[^>]*>", r"\1", text)
    return text.replace("PosixPath", "Path").replace("<factory>", "...")


def prose(found: Any) -> str:
    """A docstring as Markdown; what follows >>> as code."""
    text, examples = apart(inspect.getdoc(found) or "", ">>> ")
    text = html.escape(text, quote=False)
    return text + ("\n\n" + fence("\n".join(examples)) if examples else "")


def settings() -> str:
    """Every setting, and the compositions there are."""
    rows = [[f"`{key}`", cell(text), f"`{default}`" if default else ""] for key, default, text in describe()]
    kinds = {name: kind for name, kind in Composition.registry.items() if kind.__module__.startswith("harmonium.")}
    formulas = [[f"`{name}`", cell((inspect.getdoc(kind) or "").split("\n\n")[0])] for name, kind in kinds.items()]
    return "\n\n".join(
        [
            "# Settings",
            'One setting is one key of a TOML file and one `--set KEY=VALUE`, or from Python `sets=["KEY=VALUE"]`; '
            "`harmonium train --settings` prints this table. What lambda (`model.faithfulness`) does, and how to "
            "choose it, is told in the [glossary](../glossary.md#faithfulness-lambda).",
            table(["key", "meaning", "default"], rows),
            "## Compositions",
            "Values of `model.composition`; a new one is [one formula](python.md#composition).",
            table(["name", "meaning"], formulas),
        ]
    )


def apart(text: str, mark: str) -> tuple[str, list[str]]:
    """The lines that start with a mark, and the rest."""
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
