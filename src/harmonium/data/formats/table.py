"""Tables of facts: columns head, relation and tail, and optional ones.

A column `split` (train, valid or test) assigns facts to splits; `head_name`, `relation_name` and `tail_name` are
labels. Both are ignored when the user chooses the columns.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import polars as pl

from harmonium.data.columns import COLUMNS, LABEL_COLUMNS, choose_columns
from harmonium.data.formats.source import Options, Source
from harmonium.data.graph import SPLITS, Graph, Note
from harmonium.data.names import BLANKS, PLACEHOLDERS
from harmonium.data.skipped_rows import SkippedRows
from harmonium.data.text_encoding import WESTERN, guess_encoding
from harmonium.data.vocabulary import Vocabulary
from harmonium.runtime.errors import HarmoniumError

SPLIT_ALIASES = {"training": "train", "validation": "valid", "val": "valid", "dev": "valid", "testing": "test"}

TableReader = Callable[[], Iterable[pl.DataFrame]]  # reads the parts of a table, from the start each time


def select_facts(
    frame: pl.DataFrame, options: Options, location: str, skipped: SkippedRows, first_row: int = 1
) -> pl.DataFrame:
    """The columns of facts as strings; a row with an empty cell is an error that names it, or skipped."""
    chosen = choose_columns(frame.columns, options.columns, location)
    try:
        table = frame.select(pl.nth(i).cast(pl.String).alias(name) for name, i in chosen.items())
    except pl.exceptions.PolarsError as error:
        raise HarmoniumError(f"{location}: its columns are not text or numbers ({error})") from error
    return drop_unusable(table, location, lambda row: f": row {first_row + row}", skipped)


def drop_unusable(
    table: pl.DataFrame, location: object, row_name: Callable[[int], str], skipped: SkippedRows
) -> pl.DataFrame:
    """The rows whose head, relation and tail are names; for others see `SkippedRows`."""
    cells = [pl.col(column).str.strip_chars(BLANKS) for column in COLUMNS]
    is_suspicious = [cell.is_null() | (cell == "") | cell.str.to_lowercase().is_in(PLACEHOLDERS) for cell in cells]
    rows = table.select(COLUMNS).with_row_index("row").filter(pl.any_horizontal(is_suspicious))
    rejected = [
        row
        for row, *names in rows.iter_rows()
        if not skipped.accepts([name or "" for name in names], location, row_name(row))
    ]
    return table.with_row_index("row").filter(~pl.col("row").is_in(rejected)).drop("row") if rejected else table


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
    notes: Sequence[Note] = (),
    skipped: SkippedRows | None = None,
) -> Source:
    """Tables of facts by split, or one table with a column `split`, as a Source.

    Labels in the tables are added to the Source as they are read; `names` (of entities, of relations) override them.
    """
    skipped = skipped or SkippedRows()
    source = Source(name, {}, None, None, dict(names[0]), dict(names[1]), notes, skipped)
    if list(tables) != ["train"]:
        for split, table in tables.items():
            source.splits[split] = _facts(source, table, location, may_be_empty=True)
        return source
    parts = iter(tables["train"]())
    first = next(parts)
    begun = chain([first], parts)  # not read again
    if "split" not in first.columns:
        source.splits["train"] = _facts(source, lambda: begun, location)
        return source
    source.splits["train"] = _facts(source, lambda: begun, location, "train")
    for split in SPLITS[1:]:
        source.splits[split] = _facts(source, tables["train"], location, split)
    return source


def _facts(
    source: Source, table: TableReader, location: str, split: str | None = None, may_be_empty: bool = False
) -> Iterator[pl.DataFrame]:
    """The facts of a table, or those of one split of it; fills in the labels of the source."""
    labels: dict[str, dict[str, str]] = {column: {} for column in COLUMNS}  # the first label of each identifier
    n_rows = n_facts = 0
    for part in table():
        for column, label_column in zip(COLUMNS, LABEL_COLUMNS, strict=True):
            if label_column in part.columns:
                pairs = part.select(column, label_column).filter(pl.col(label_column).str.len_bytes() > 0)
                labels[column] = dict(pairs.unique(column, keep="first").iter_rows()) | labels[column]
        facts = part if split is None else part.filter(_split_of(part, location, n_rows + 1) == split)
        n_rows, n_facts = n_rows + len(part), n_facts + len(facts)
        yield facts.select(COLUMNS)
    if not n_rows and not may_be_empty:
        raise source.skipped.nothing_left(location)
    if not n_facts and split == "train":
        raise HarmoniumError(f"{location}: no facts of the split train")
    source.entity_names.update(labels["head"] | labels["tail"] | source.entity_names)
    source.relation_names.update(labels["relation"] | source.relation_names)


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
    """The facts of a graph as a table of identifiers; a file that stands alone has splits and labels as well."""
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
