"""Source: the facts that a format has read, before names become ids."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import polars as pl

from harmonium.data.graph import Note
from harmonium.data.tables.skipped_rows import SkippedRows


@dataclass(frozen=True)
class Source:
    """Tables of head, relation, tail and perhaps weight, one for each split: strings, or ids into the vocabularies given."""

    name: str
    splits: dict[str, pl.DataFrame | Iterable[pl.DataFrame]]  # a table, or its parts in order
    entities: list[str] | None = None
    relations: list[str] | None = None
    entity_names: dict[str, str] = field(default_factory=dict)  # identifier -> label
    relation_names: dict[str, str] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)  # grow, as labels and skipped rows do, while splits are read lazily
    skipped: SkippedRows = field(default_factory=SkippedRows)
    is_guess: bool = False  # whether columns were detected and not chosen by the user
