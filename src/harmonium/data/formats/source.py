"""What a format is asked (`Options`) and what it returns (`Source`)."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import get_args

import polars as pl

from harmonium.data.graph import Note
from harmonium.data.skipped_rows import OnBad, SkippedRows
from harmonium.data.text_encoding import check_encoding
from harmonium.runtime.errors import HarmoniumError

SEPARATOR_NAMES = {"tab": "\t", "\\t": "\t", "space": " "}


@dataclass(frozen=True)
class Options:
    """How to read a file that does not say it itself."""

    columns: Sequence[str] | str | None = None  # head, relation and tail of a table, by name or number from 1
    separator: str | None = None  # of separated text
    header: bool | None = None  # whether the first line is one; default: if it names head, relation and tail
    quotes: bool | None = None  # whether " quotes cells; default: unless tabs separate them
    encoding: str | None = None  # of separated text and JSON lines; default: UTF-8 or, if it says so, UTF-16
    literals: str = "skip"  # RDF values such as numbers and texts: "skip", or "keep" as entities
    language: str = "en"  # preferred language of RDF labels
    on_bad: OnBad = "error"  # a row that cannot be used: "error", or "skip" it with a note
    query: str | None = None  # SELECT of head, relation and tail, for a SPARQL endpoint
    allow_internal: bool = False  # whether that endpoint may have an internal address: of this machine or its network
    progress: Callable[[int], object] | None = None  # called with the number of further bytes read

    def __post_init__(self) -> None:
        if self.columns is not None:
            names = self.columns.split(",") if isinstance(self.columns, str) else self.columns
            object.__setattr__(self, "columns", tuple(str(name).strip() for name in names))
            if len(self.columns) != 3:
                raise HarmoniumError(f"columns are three: head,relation,tail; given: {','.join(self.columns)}")
        if self.encoding is not None:
            check_encoding(self.encoding)
        if self.on_bad not in get_args(OnBad):
            raise HarmoniumError(f"on_bad is {' or '.join(get_args(OnBad))}, not '{self.on_bad}'")
        if self.literals not in ("skip", "keep"):
            raise HarmoniumError(f"literals are skip or keep, not '{self.literals}'")
        if self.separator is not None:
            object.__setattr__(self, "separator", SEPARATOR_NAMES.get(self.separator, self.separator))
            if len(self.separator) != 1 or self.separator in '"\r\n':
                raise HarmoniumError(f"a separator is one character (or tab, space), not '{self.separator}'")


@dataclass(frozen=True)
class Source:
    """Tables of head, relation and tail, one for each split: strings, or ids into the vocabularies given."""

    name: str
    splits: dict[str, pl.DataFrame | Iterable[pl.DataFrame]]  # a table, or its parts in order
    entities: list[str] | None = None
    relations: list[str] | None = None
    entity_names: dict[str, str] = field(default_factory=dict)  # identifier -> label
    relation_names: dict[str, str] = field(default_factory=dict)
    notes: Sequence[Note] = ()  # notes, labels and skipped rows may still grow while the splits are read
    skipped: SkippedRows = field(default_factory=SkippedRows)
