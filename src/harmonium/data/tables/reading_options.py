"""How to read a file whose layout cannot be detected: options of `load` and of every command that reads facts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypedDict, get_args

from harmonium.data.tables.skipped_rows import OnBad
from harmonium.data.tables.text_encoding import check_encoding
from harmonium.errors import HarmoniumError, refuse_unknown

DELIMITER_NAMES = {"tab": "\t", "\\t": "\t", "space": " "}
ALIASES = {"separator": "delimiter", "sep": "delimiter"}  # names of these options in other libraries
TABLE_OPTIONS = (
    "columns",
    "label_columns",
    "type_columns",
    "weight_column",
    "delimiter",
    "header",
    "quotes",
    "encoding",
)
NO_COLUMN = ("", "-", "None")

Columns = Sequence[str | int | None] | Mapping[str, str | int | None] | str  # in order, by slot, or separated by commas


class FactReading(TypedDict, total=False):
    """Keyword arguments that say how to read facts or queries; `Options` explains them."""

    columns: Columns
    delimiter: str
    separator: str
    sep: str
    encoding: str
    header: bool
    quotes: bool


@dataclass(frozen=True)
class Options:
    """How to read a graph. Columns are given by name, or by number from 1."""

    columns: Columns | None = None  # of head, relation and tail
    label_columns: Columns | None = None  # of readable names of head, relation and tail, or of head and tail
    type_columns: Columns | None = None  # of the types of head and tail, or of the head: facts (entity, type, ...)
    weight_column: str | int | None = None  # of the weights of facts: finite, at least 0; of RDF the predicate
    delimiter: str | None = None  # of separated text
    header: bool | None = None  # whether the first row is a header; default: detected
    quotes: bool | None = None  # whether " quotes cells; default: unless tabs separate them
    encoding: str | None = None  # of separated text and JSON lines; default: UTF-8, or UTF-16 if detected
    on_bad: OnBad = "error"  # a row that cannot be used: "error", or "skip" it with a note
    unite: bool = (
        False  # whether spellings of a name are united (spellings.py); never in a graph that comes with splits
    )
    literals: str = "skip"  # RDF values such as numbers and texts: "skip", or "keep" as entities
    language: str = "en"  # preferred language of RDF labels
    query: str | None = None  # SELECT of head, relation and tail, for a SPARQL endpoint
    allow_internal: bool = False  # whether that endpoint may have an internal address: of this machine or its network
    progress: Callable[[int], object] | None = None  # called with the number of further bytes read

    def __post_init__(self) -> None:
        for name, counts in (("columns", (3,)), ("label_columns", (2, 3)), ("type_columns", (1, 2))):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, _column_names(name, getattr(self, name), counts))
        if self.columns is not None and None in self.columns:
            raise HarmoniumError("columns must be three: head,relation,tail; none of them may be left out")
        if self.weight_column is not None:
            object.__setattr__(self, "weight_column", str(self.weight_column).strip())
        if self.encoding is not None:
            check_encoding(self.encoding)
        if self.on_bad not in get_args(OnBad):
            raise HarmoniumError(f"on_bad must be {' or '.join(get_args(OnBad))}, not '{self.on_bad}'")
        if not isinstance(self.unite, bool):
            raise HarmoniumError(f"unite must be true or false, not {self.unite!r}")
        if self.literals not in ("skip", "keep"):
            raise HarmoniumError(f"literals must be skip or keep, not '{self.literals}'")
        if self.delimiter is not None:
            object.__setattr__(self, "delimiter", DELIMITER_NAMES.get(self.delimiter, self.delimiter))
            if len(self.delimiter) != 1 or self.delimiter in '"\r\n':
                raise HarmoniumError(f"the delimiter must be one character (or tab, space), not '{self.delimiter}'")

    @classmethod
    def of(cls, keywords: Mapping[str, Any], progress: Callable[[int], object] | None = None) -> "Options":
        """Options by name; an unknown one is an error that suggests the nearest, or lists all."""
        refuse_unknown(keywords, NAMES)
        return cls(**_canonical(keywords), progress=progress)

    def refuse_table_options(self, location: object, allowed: Sequence[str] = ()) -> None:
        """Raise an error for options of tables, as the source is none; RDF has `allowed` ones (its weights)."""
        refused = [name for name in TABLE_OPTIONS if name not in allowed]
        if given := [name for name in refused if getattr(self, name) is not None]:
            raise HarmoniumError(
                f"{location}: it is not a table, so it has no {given[0].replace('_', ' ')}; drop this option"
            )

    @property
    def fact_titles(self) -> tuple[str, ...]:
        """Names or numbers of the columns of head, relation and tail; empty if the user gave none."""
        return tuple(map(str, self.columns or ()))

    @property
    def names_columns(self) -> bool:
        """Whether columns are given by name, so that there must be a header."""
        columns = (*(self.columns or ()), *(self.label_columns or ()), *(self.type_columns or ()), self.weight_column)
        return any(column is not None and not str(column).isdecimal() for column in columns)

    @property
    def label_titles(self) -> dict[str, str]:
        """label column ("head_name", ...) -> name or number of the column that the user gave for it."""
        titles = tuple(self.label_columns or ())
        slots = ("head", "relation", "tail") if len(titles) == 3 else ("head", "tail")
        return {f"{slot}_name": str(title) for slot, title in zip(slots, titles, strict=False) if title is not None}

    @property
    def type_titles(self) -> dict[str, str]:
        """type column ("head_type", "tail_type") -> name or number of the column that the user gave for it."""
        titles = tuple(self.type_columns or ())
        return {
            f"{s}_type": str(title) for s, title in zip(("head", "tail"), titles, strict=False) if title is not None
        }


FACT_NAMES = tuple(FactReading.__annotations__)
NAMES = tuple(field.name for field in fields(Options) if field.name != "progress") + tuple(ALIASES)


def _canonical(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords with aliases resolved; an option given under two names is an error."""
    renamed = {ALIASES.get(name, name): value for name, value in keywords.items()}
    if len(renamed) < len(keywords):
        raise HarmoniumError("give the delimiter once: delimiter, separator and sep are the same option")
    return renamed


def split_keywords(keywords: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split keyword arguments into reading options, with aliases resolved, and all others."""
    reading = {name: value for name, value in keywords.items() if name in NAMES}
    return _canonical(reading), {name: value for name, value in keywords.items() if name not in NAMES}


def _column_names(option: str, given: Columns, counts: tuple[int, ...]) -> tuple[str | None, ...]:
    if isinstance(given, Mapping):
        slots = ("head", "tail") if option == "type_columns" else ("head", "relation", "tail")
        if unknown := [slot for slot in given if slot not in slots]:
            raise HarmoniumError(f"{option} are given for {', '.join(slots)}, not for '{unknown[0]}'")
        given = [given.get(slot) for slot in slots]
    names = given.split(",") if isinstance(given, str) else given
    columns = tuple(None if str(name).strip() in NO_COLUMN else str(name).strip() for name in names)
    if len(columns) not in counts:
        expected = {
            "columns": "three: head,relation,tail",
            "label_columns": "two or three: head,tail or head,relation,tail",
        }
        shown = ",".join(name or "" for name in columns)
        raise HarmoniumError(
            f"{option} must be {expected.get(option, 'one or two: head or head,tail')}; given: {shown}"
        )
    return columns
