"""Tables of facts: which columns are head, relation and tail, and what else they may say.

A column `split` (train, valid or test) deals facts to the splits; `head_name`, `relation_name` and `tail_name` are
names for people. Both are left alone when the columns are chosen by the user.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from harmonium.errors import HarmoniumError
from harmonium.formats import COLUMNS, SPLITS, Options, Source
from harmonium.graph import Graph, Vocabulary

ALIASES = {
    "head": {"head", "subject", "source", "from", "src", "subj", "s", "head_id"},
    "relation": {"relation", "predicate", "property", "relationship", "rel", "pred", "p", "edge_type", "relation_id"},
    "tail": {"tail", "object", "target", "to", "dst", "obj", "o", "tail_id"},
}
NAMES = tuple(f"{column}_name" for column in COLUMNS)
TEXT = {"identifier": pl.String, "name": pl.String}
SPLIT_WORDS = {"training": "train", "validation": "valid", "val": "valid", "dev": "valid", "testing": "test"}


def looks_like_header(cells: Sequence[str]) -> bool:
    """Whether a first line names head, relation and tail, in words that are hardly facts."""
    words = {cell.strip().casefold() for cell in cells}
    return all(words & aliases for aliases in ALIASES.values())


def pick(found: Sequence[Any], options: Options, where: str) -> dict[str, int]:
    """Which column is what: canonical name -> position, by the user's choice, by their names or by their order."""
    words = [str(cell).strip().casefold() for cell in found]
    if options.columns is not None:
        return dict(zip(COLUMNS, [_position(found, wanted, where) for wanted in options.columns], strict=True))
    extras = {word: position for position, word in enumerate(words) if word in ("split", *NAMES)}
    if looks_like_header(words):
        chosen = {c: next(i for i, word in enumerate(words) if word in ALIASES[c]) for c in COLUMNS}
        return chosen | extras
    rest = [position for position in range(len(words)) if position not in extras.values()]
    if len(rest) == 3:
        return dict(zip(COLUMNS, rest, strict=True)) | extras
    shown = ", ".join(map(str, found[:8])) + (", ..." if len(found) > 8 else "")
    raise HarmoniumError(
        f"{where}: {len(found)} column{'s' * (len(found) != 1)} ({shown}), not clear which are head, relation and "
        "tail; choose them by name or number, or the separator: harmonium convert --columns 1,2,3 (load: columns=...)"
    )


def _position(found: Sequence[Any], wanted: str, where: str) -> int:
    names = [str(cell).strip() for cell in found]
    if wanted in names:
        return names.index(wanted)
    if wanted.isdecimal() and 1 <= int(wanted) <= len(names):
        return int(wanted) - 1
    raise HarmoniumError(f"{where}: no column '{wanted}'; there are {', '.join(names)} (numbered from 1)")


def from_frame(frame: pl.DataFrame, options: Options, where: str, before: int = 0) -> pl.DataFrame:
    """The columns of facts as strings; an empty cell is an error that names its row, counted on from `before`."""
    chosen = pick(frame.columns, options, where)
    try:
        table = frame.select(pl.nth(i).cast(pl.String).alias(name) for name, i in chosen.items())
    except pl.exceptions.PolarsError as error:
        raise HarmoniumError(f"{where}: its columns are not text or numbers ({error})") from error
    for column in COLUMNS:
        empty = table[column].is_null() | (table[column] == "")
        if empty.any():
            raise HarmoniumError(f"{where}: row {before + empty.arg_max() + 1}: the {column} is empty")
    return table


def to_source(
    name: str,
    tables: Mapping[str, Callable[[], Iterable[pl.DataFrame]]],
    where: str,
    beside: Mapping[str, dict[str, str]] | None = None,
    notes: Sequence[str] = (),
) -> Source:
    """Tables of facts by split, or one with a column `split`, as a Source.

    Each is a function that reads the parts of a table; names in them are noted as they are read, `beside` win over them.
    """
    source = Source(name, {}, notes=notes, **{kind: dict(names) for kind, names in (beside or {}).items()})
    named: dict[str, dict[str, str]] = {column: {} for column in COLUMNS}  # the first name of each identifier

    def facts(parts: Callable[[], Iterable[pl.DataFrame]], only: str | None) -> Iterator[pl.DataFrame]:
        rows = kept = 0
        for part in parts():
            for column, title in zip(COLUMNS, NAMES, strict=True):
                if title in part.columns:
                    pairs = part.select(column, title).filter(pl.col(title).str.len_bytes() > 0)
                    named[column] = dict(pairs.unique(column, keep="first").iter_rows()) | named[column]
            dealt = part if only is None else part.filter(_words(part, where, rows) == only)
            rows, kept = rows + len(part), kept + len(dealt)
            yield dealt.select(COLUMNS)
        if not rows and len(tables) == 1:
            raise HarmoniumError(f"{where}: no triples in it; fill it or remove it")
        if not kept and only == "train":
            raise HarmoniumError(f"{where}: no facts of the split train")
        source.entity_names.update(named["head"] | named["tail"])
        source.relation_names.update(named["relation"])
        for kind, names in (beside or {}).items():
            getattr(source, kind).update(names)

    if list(tables) == ["train"] and "split" in next(iter(tables["train"]())).columns:
        source.splits.update({split: facts(tables["train"], split) for split in SPLITS})
    else:
        source.splits.update({split: facts(parts, None) for split, parts in tables.items()})
    return source


def _words(part: pl.DataFrame, where: str, before: int) -> pl.Series:
    """The column `split` in our words; another word is an error that names its row."""
    words = part["split"].str.strip_chars().str.to_lowercase().replace(SPLIT_WORDS)
    odd = part.with_row_index("row", offset=before + 1).filter(~words.is_in(SPLITS) | words.is_null())
    if len(odd):
        wrong = f"row {odd['row'][0]}: split '{odd['split'][0]}'"
        raise HarmoniumError(f"{where}: {wrong} is not train, valid or test; mend it or rename the column")
    return words


def to_table(graph: Graph, splits: Sequence[str], alone: bool) -> pl.DataFrame:
    """The facts of a graph as a table of identifiers; one that stands alone tells splits and names as well."""
    vocabularies = dict(zip(COLUMNS, (graph.entities, graph.relations, graph.entities), strict=True))

    def texts(column: str, words: Sequence[str]) -> pl.Series:
        ids = getattr(graph.facts(splits), column).numpy()
        return pl.Series(list(words), dtype=pl.String).gather(ids)

    table = pl.DataFrame({column: texts(column, vocabularies[column].ids) for column in COLUMNS})
    if alone and len(splits) > 1:
        dealt = pl.concat(
            [pl.repeat(split, len(getattr(graph, split)), dtype=pl.String, eager=True) for split in splits]
        )
        table = table.with_columns(dealt.alias("split"))
    if alone:
        named = {c: v.labels for c, v in vocabularies.items() if v.labels is not None}
        table = table.with_columns(texts(c, labels).alias(f"{c}_name") for c, labels in named.items())
    return table


def names(vocabulary: Vocabulary) -> pl.DataFrame | None:
    """Identifier and name, where there are names."""
    if vocabulary.labels is None:
        return None
    return pl.DataFrame({"identifier": list(vocabulary.ids), "name": list(vocabulary.labels)}, schema_overrides=TEXT)
