"""Tables of facts: columns head, relation and tail, and optional ones.

A column `split` (train, valid or test) assigns facts to splits; `head_name`, `relation_name` and `tail_name` are
labels. Both are ignored when the user chooses the columns. `head_type` and `tail_type` become facts (entity, type, ...),
and `weight` is kept with the facts, where the user says which columns these are.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import polars as pl

from harmonium.data.graph import SPLITS, Graph, Note
from harmonium.data.names import BLANKS, PLACEHOLDERS
from harmonium.data.tables.columns import (
    COLUMNS,
    LABEL_COLUMNS,
    TYPES,
    WEIGHT,
    choose_columns,
    is_header,
    judge_first_row,
)
from harmonium.data.tables.reading_options import Options
from harmonium.data.tables.rows import text_of
from harmonium.data.tables.skipped_rows import SkippedRows
from harmonium.data.tables.source import Source
from harmonium.data.tables.text_encoding import WESTERN, guess_encoding
from harmonium.data.vocabulary import Vocabulary
from harmonium.errors import HarmoniumError

SPLIT_ALIASES = {"training": "train", "validation": "valid", "val": "valid", "dev": "valid", "testing": "test"}
TYPE_RELATION = "type"  # data/entity_types.py knows it
SHOWN_TITLES = 8  # in a note

TableReader = Callable[[], Iterable[pl.DataFrame]]  # reads the parts of a table, from the start each time


def select_facts(
    frame: pl.DataFrame,
    options: Options,
    location: str,
    skipped: SkippedRows,
    notes: list[Note],
    first_row: int = 1,
) -> pl.DataFrame:
    """The columns of facts as strings; a row with an empty cell is an error that names it, or skipped."""
    chosen = choose_columns(frame.columns, options, location)
    note_columns(frame.columns, chosen, options, location, notes)
    titles = {column: frame.columns[position] for column, position in chosen.items()}
    table = to_text(frame, titles, location)
    return drop_unusable(table, location, lambda row: f": row {first_row + row}", skipped, titles)


def to_text(frame: pl.DataFrame, titles: Mapping[str, str], location: str) -> pl.DataFrame:
    """Columns of a frame, by the titles they have in it, as strings."""
    try:
        columns = {name: frame[title] for name, title in titles.items()}  # not pl.col, which takes patterns
        return pl.DataFrame({name: _text_column(column) for name, column in columns.items()})
    except pl.exceptions.PolarsError as error:
        raise HarmoniumError(f"{location}: its columns are not text or numbers ({error})") from error


def _text_column(column: pl.Series) -> pl.Series:
    if column.dtype == pl.Binary:
        return pl.Series(map(text_of, column), dtype=pl.String)
    if column.dtype.is_nested():  # polars would write a struct as text
        raise pl.exceptions.InvalidOperationError(f"{column.name or 'one'} has values of type {column.dtype}")
    return (column.fill_nan(None) if column.dtype.is_float() else column).cast(pl.String)


def drop_unusable(
    table: pl.DataFrame,
    location: object,
    row_name: Callable[[int], str],
    skipped: SkippedRows,
    titles: Mapping[str, str],
) -> pl.DataFrame:
    """The rows whose head, relation and tail are names and whose weight is one; for others see `SkippedRows`."""
    cells = [pl.col(column).str.strip_chars(BLANKS) for column in COLUMNS]
    is_suspicious = [cell.is_null() | (cell == "") | cell.str.to_lowercase().is_in(PLACEHOLDERS) for cell in cells]
    rows = table.select(COLUMNS).with_row_index("row").filter(pl.any_horizontal(is_suspicious))
    rejected = {
        row
        for row, *names in rows.iter_rows()
        if not skipped.accepts([name or "" for name in names], location, row_name(row), titles)
    }
    if WEIGHT in table.columns:
        weights = table[WEIGHT].str.strip_chars().cast(pl.Float64, strict=False)
        reason = f"the weight (column '{titles[WEIGHT]}') is not a finite number, 0 or more"
        for row in (~(weights.is_finite() & (weights >= 0))).fill_null(True).arg_true().to_list():
            if row not in rejected:
                skipped.reject(location, row_name(row), reason, text=", ".join(str(cell) for cell in table.row(row)))
                rejected.add(row)
        table = table.with_columns(weights)
    return table.with_row_index("row").filter(~pl.col("row").is_in(list(rejected))).drop("row") if rejected else table


def note_columns(
    titles: Sequence[str], chosen: Mapping[str, int], options: Options, location: object, notes: list[Note]
) -> None:
    """Add notes of columns with unknown titles and of those that are not read, if the user did not choose the columns."""
    if options.columns is not None:
        return
    facts = [titles[chosen[column]] for column in COLUMNS]
    is_noted = any(note.kind == "header" for note in notes)
    if not is_header(facts) and not all(title.isdecimal() for title in facts) and not is_noted:
        text = (
            f"columns {', '.join(facts)} are read as head, relation and tail, in this order (--columns chooses others)"
        )
        note = Note(text, "columns")
        notes += [note] * (note not in notes)
    unused = [title for position, title in enumerate(titles) if position not in chosen.values()]
    if not unused:
        return
    shown = ", ".join(unused[:SHOWN_TITLES]) + ", ..." * (len(unused) > SHOWN_TITLES)
    name = str(location).replace("\\", "/").rsplit("/", 1)[-1]
    text = f"{name}: columns not used: {shown} (--label-columns, --type-columns and --weight-column use them)"
    note = Note(text, "unused columns", "", len(unused))
    notes += [note] * (note not in notes)


def first_row_is_header(
    first: Sequence[str], others: Iterable[Sequence[str]], location: str, notes: list[Note]
) -> bool:
    """Whether the first row of head, relation and tail is a header in other words; a note says how it was read."""
    verdict = judge_first_row(first, others)
    if verdict == "fact":
        return False
    shown = ", ".join(first)
    text = (
        f"{location}: read as a fact ({shown}), though it may be a header; --header (load: header=True) reads it as one"
    )
    if verdict == "header":
        text = f"{location}: read as a header ({shown}), not as a fact; --no-header (load: header=False) reads it as a fact"
    note = Note(text, "header")
    notes += [note] * (note not in notes)
    return verdict == "header"


def line_name(lines: Sequence[tuple[int, Any]], row: int) -> str:
    """The name of a row by its line number."""
    return f":{lines[row][0]}"


def choose_encoding(path: Path, options: Options, notes: list[Note]) -> str:
    """The encoding of a text, with a note where it is a guess."""
    encoding = options.encoding or guess_encoding(path, may_guess=options.on_bad == "skip")
    if encoding == WESTERN and options.encoding is None:
        note = Note(f"{path.name}: read as Windows-1252, as it is not UTF-8; --encoding NAME reads another", "encoding")
        notes += [note] * (note not in notes)
    return encoding


def to_source(
    name: str,
    tables: Mapping[str, TableReader],
    location: str,
    names: tuple[dict[str, str], dict[str, str]] = ({}, {}),
    notes: list[Note] | None = None,
    skipped: SkippedRows | None = None,
) -> Source:
    """Tables of facts by split, or one table with a column `split`, as a Source.

    Labels in the tables are added to the Source as they are read; `names` (of entities, of relations) override them.
    """
    skipped = skipped or SkippedRows()
    notes = [] if notes is None else notes
    source = Source(name, {}, None, None, dict(names[0]), dict(names[1]), notes, skipped)
    if list(tables) != ["train"]:
        for split, table in tables.items():
            source.splits[split] = _facts(source, table, location, split != "train", may_be_empty=True)
        return source
    parts = iter(tables["train"]())
    first = next(parts)
    begun = chain([first], parts)  # not read again
    if "split" not in first.columns:
        source.splits["train"] = _facts(source, lambda: begun, location, False)
        return source
    source.splits["train"] = _facts(source, lambda: begun, location, False, "train")
    for split in SPLITS[1:]:
        source.splits[split] = _facts(source, tables["train"], location, True, split)
    return source


def _facts(
    source: Source,
    table: TableReader,
    location: str,
    is_held_out: bool,
    split: str | None = None,
    may_be_empty: bool = False,
) -> Iterator[pl.DataFrame]:
    """The facts of a table, or those of one split of it; fills in the labels of the source.

    Types are facts of train.
    """
    labels: dict[str, dict[str, str]] = {column: {} for column in COLUMNS}  # the first label of each identifier
    n_rows = n_facts = 0
    types = pl.DataFrame(schema=dict.fromkeys(COLUMNS, pl.String))
    for part in table():
        for column, label_column in zip(COLUMNS, LABEL_COLUMNS, strict=True):
            if label_column in part.columns:
                pairs = part.select(column, label_column).filter(pl.col(label_column).str.len_bytes() > 0)
                labels[column] = dict(pairs.unique(column, keep="first").iter_rows()) | labels[column]
        facts = part if split is None else part.filter(_split_of(part, location, n_rows + 1) == split)
        n_rows, n_facts = n_rows + len(part), n_facts + len(facts)
        types = pl.concat([types, *_type_facts(facts)]).unique(maintain_order=True)
        yield facts.select(*COLUMNS, *[WEIGHT] * (WEIGHT in facts.columns))
    if not n_rows and not may_be_empty:
        raise source.skipped.nothing_left(location)
    if not n_facts and split == "train":
        raise HarmoniumError(f"{location}: no facts of the split train")
    if len(types) and not is_held_out:
        yield types
        text = f"{len(types):,} facts (entity, {TYPE_RELATION}, ...) were made of the columns of types"
        source.notes.append(Note(text, "types", "", len(types)))
    source.entity_names.update(labels["head"] | labels["tail"] | source.entity_names)
    source.relation_names.update(labels["relation"] | source.relation_names)


def _type_facts(facts: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Facts (entity, type, ...) of the types of heads and of tails, if there are such columns."""
    for column, slot in zip(TYPES, ("head", "tail"), strict=True):
        if column in facts.columns:
            named = facts.filter(pl.col(column).str.strip_chars(BLANKS).str.len_bytes() > 0)
            relation = pl.lit(TYPE_RELATION).alias("relation")
            yield named.select(pl.col(slot).alias("head"), relation, pl.col(column).alias("tail"))


def _split_of(part: pl.DataFrame, location: str, first_row: int) -> pl.Series:
    """The column `split` as train, valid or test; anything else is an error that names its row."""
    words = part["split"].str.strip_chars().str.to_lowercase().replace(SPLIT_ALIASES)
    wrong = part.with_row_index("row", offset=first_row).filter(~words.is_in(SPLITS) | words.is_null())
    if len(wrong):
        raise HarmoniumError(
            f"{location}: row {wrong['row'][0]}: split '{wrong['split'][0]}' is not train, valid or test; "
            "correct it or rename the column"
        )
    return words


def to_table(graph: Graph, splits: Sequence[str], alone: bool) -> pl.DataFrame:
    """The facts of a graph as a table of identifiers, with weights if there are any.

    A file that stands alone has splits and labels as well.
    """
    vocabularies = dict(zip(COLUMNS, (graph.entities, graph.relations, graph.entities), strict=True))
    facts = graph.facts(splits)
    ids = {"head": facts.head.numpy(), "relation": facts.relation.numpy(), "tail": facts.tail.numpy()}

    def texts(column: str, words: Sequence[str]) -> pl.Series:
        return pl.Series(list(words), dtype=pl.String).gather(ids[column])

    table = pl.DataFrame({column: texts(column, vocabularies[column].ids) for column in COLUMNS})
    if alone and len(splits) > 1:
        sizes = {split: len(graph.splits[split]) for split in splits}
        column = pl.concat([pl.repeat(split, size, dtype=pl.String, eager=True) for split, size in sizes.items()])
        table = table.with_columns(column.alias("split"))
    if any(
        triples.weight is not None for triples in graph.splits.values()
    ):  # the same columns in all files of a folder
        table = table.with_columns(pl.Series(WEIGHT, facts.weights().numpy()))
    if alone:
        labels = {name: v.labels for name, v in vocabularies.items() if v.labels is not None}
        table = table.with_columns(texts(name, column).alias(f"{name}_name") for name, column in labels.items())
    return table


def names_table(vocabulary: Vocabulary) -> pl.DataFrame | None:
    """Identifier and label, if there are labels."""
    if vocabulary.labels is None:
        return None
    columns = {"identifier": list(vocabulary.ids), "name": list(vocabulary.labels)}
    return pl.DataFrame(columns, schema_overrides=dict.fromkeys(columns, pl.String))
