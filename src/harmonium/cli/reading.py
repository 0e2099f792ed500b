"""Options for reading a graph or a file of facts, declared once for all commands that read one."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from harmonium.cli.options import flag, option

if TYPE_CHECKING:
    from harmonium.data.tables.skipped_rows import SkippedRows

PANEL = {"rich_help_panel": "Reading"}
FACTS = {  # of files of facts and queries; names as in data/tables/reading_options.py
    "columns": Annotated[
        str | None,
        option("NAME,NAME,NAME", "Columns of head, relation, tail by name or number: from,kind,to or 1,3,2.", **PANEL),
    ],
    "delimiter": Annotated[str | None, option("CHAR", "Delimiter of columns: one character, tab or space.", **PANEL)],
    "separator": Annotated[str | None, option("CHAR", "Alias of --delimiter.", hidden=True)],
    "encoding": Annotated[
        str | None, option("NAME", "Encoding of a text file, such as cp1252; default: UTF-8.", **PANEL)
    ],
    "header": Annotated[
        bool | None,
        flag("Whether the first row is a header; default: detected.", "--header/--no-header", **PANEL),
    ],
    "quotes": Annotated[
        bool | None, flag('Whether " quotes cells; default: unless separated by tabs.', "--quotes/--no-quotes", **PANEL)
    ],
    "on_bad": Annotated[
        str | None,
        option("error|skip", "Rows that cannot be used: error (counts them), or skip with a note.", **PANEL),
    ],
}
GRAPH_OPTIONS = FACTS | {  # and of graphs
    "label_columns": Annotated[
        str | None, option("NAME,NAME", "Columns of readable names of head and tail, or of all three.", **PANEL)
    ],
    "type_columns": Annotated[
        str | None, option("NAME,NAME", "Columns of the types of head and tail, or of the head.", **PANEL)
    ],
    "weight_column": Annotated[
        str | None, option("NAME", "Column of weights of facts (0 or more); for RDF their predicate.", **PANEL)
    ],
    "unite": Annotated[
        bool | None,
        flag("Unite names that differ only in case, whitespace or accents.", "--unite/--no-unite", **PANEL),
    ],
    "literals": Annotated[
        str | None, option("skip|keep", "RDF literals: skip (default) or keep as entities.", **PANEL)
    ],
    "language": Annotated[str | None, option("NAME", "Preferred language of RDF labels; default: en.", **PANEL)],
    "query": Annotated[
        str | None,
        option(
            "TEXT", "SPARQL or Cypher that selects head, relation and tail from a server, best with ORDER BY.", **PANEL
        ),
    ],
    "allow_internal": Annotated[
        bool | None,
        flag(
            "Allow servers (sparql:URL, bolt://HOST) with addresses of this machine or its network.",
            "--allow-internal",
            **PANEL,
        ),
    ],
}


def reads_graph(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of graphs; those that the user sets are passed as `reading`."""
    return _with_options(command, GRAPH_OPTIONS)


def reads_facts(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of files of facts; those that the user sets are passed as `reading`."""
    return _with_options(command, FACTS)


def _with_options(command: Callable[..., None], options: Mapping[str, Any]) -> Callable[..., None]:
    parameters_of_command = [
        p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != "reading"
    ]
    kind = inspect.Parameter.KEYWORD_ONLY
    parameters = [p.replace(kind=kind) for p in parameters_of_command] + [
        inspect.Parameter(name, kind, default=None, annotation=annotation) for name, annotation in options.items()
    ]

    @functools.wraps(command)
    def with_reading(**arguments: Any) -> None:
        given = {name: arguments.pop(name) for name in options}
        command(**arguments, reading={name: value for name, value in given.items() if value is not None})

    with_reading.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_reading.__annotations__ = {p.name: p.annotation for p in parameters}
    return with_reading


def option_name(name: str) -> str:
    """An option as users write it: --on-bad for on_bad."""
    return f"--{name.replace('_', '-')}"


def counting(reading: dict[str, Any]) -> SkippedRows:
    """Replace `on_bad` in the options by an object that counts skipped rows, and return it."""
    from harmonium.data.tables.reading_options import Options
    from harmonium.data.tables.skipped_rows import SkippedRows

    reading["on_bad"] = skipped = SkippedRows(Options.of(reading).on_bad)
    return skipped
