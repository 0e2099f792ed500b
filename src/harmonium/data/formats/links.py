"""Links between entities, as tools for retrieval and drawing keep them: most have no type and no direction.

The relation of a link is the attribute that the user chose, its own (relation, predicate, label, type, ...) or, without
one, "related to". A link without direction is a fact both ways. The type of an entity is a fact of its own.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import polars as pl

from harmonium.data.formats.in_memory import EDGE_RELATIONS
from harmonium.data.graph import Note
from harmonium.data.names import clean_name
from harmonium.data.tables.columns import COLUMNS
from harmonium.data.tables.reading_options import Options
from harmonium.data.tables.skipped_rows import SkippedRows

RELATED = "related to"
TYPE = "type"  # the relation that states the type of an entity (entity_types.py)
UNKNOWN_TYPES = ("", "unknown", "none", "null", "nan", "other")  # that say nothing
ROWS = 1 << 17  # in a table
PREDICTED = "predicted"  # the attribute of links that were predicted, which are left out
MADE_BY = "harmonium:"  # what the attribute file_path of such links begins with, where a tool keeps no others


@dataclass(frozen=True)
class Link:
    """A link of a file; `row` is where, for messages."""

    head: str
    tail: str
    attributes: dict[str, str]
    is_directed: bool
    row: str


@dataclass
class LinkReader:
    """Links as tables of facts, with notes on what was assumed."""

    location: str
    options: Options
    skipped: SkippedRows
    notes: list[Note] = field(default_factory=list)
    n_untyped: int = 0
    n_predicted: int = 0

    def tables(self, links: Iterable[Link], types: Iterable[tuple[str, str]] = ()) -> Iterator[pl.DataFrame]:
        """The facts of links, then those that state types; notes are added at the end."""
        facts = self._facts(links, types)
        first = True
        while (rows := list(islice(facts, ROWS))) or first:
            first = False
            yield pl.DataFrame(rows, schema=dict.fromkeys(COLUMNS, pl.String), orient="row")
        if self.n_untyped:
            text = f"{self.n_untyped:,} links have no type of their own and were read as '{RELATED}'"
            self.notes.append(Note(text, "untyped links", "", self.n_untyped))
        if self.n_predicted:
            text = f"left out {self.n_predicted:,} links that were predicted"
            self.notes.append(Note(text, "predicted", "", self.n_predicted))

    def _facts(self, links: Iterable[Link], types: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str, str]]:
        for link in links:
            if is_true(link.attributes.get(PREDICTED)) or link.attributes.get("file_path", "").startswith(MADE_BY):
                self.n_predicted += 1
                continue
            relation = self._relation(link)
            if not self.skipped.accepts([link.head, relation, link.tail], self.location, link.row):
                continue
            yield link.head, relation, link.tail
            if not link.is_directed and link.head != link.tail:
                yield link.tail, relation, link.head
        for entity, kind in types:
            kind = clean_name(kind).strip('"')
            if clean_name(entity) and kind.casefold() not in UNKNOWN_TYPES:
                yield entity, TYPE, kind

    def _relation(self, link: Link) -> str:
        if self.options.fact_titles:
            return link.attributes.get(self.options.fact_titles[1], "")
        relation = next((link.attributes[name] for name in EDGE_RELATIONS if link.attributes.get(name)), None)
        if relation is None:
            self.n_untyped += 1
        return relation or RELATED


def has_relation(attributes: dict[str, str]) -> bool:
    """Whether a link has a relation of its own."""
    return any(attributes.get(name) for name in EDGE_RELATIONS)


def is_true(value: Any) -> bool:
    return str(value).casefold() in ("true", "1")
