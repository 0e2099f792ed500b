"""Turn tables of facts into the Source of a graph, with splits, labels and types; and a graph into a table.

A column `split` (train, valid or test) assigns facts to splits; `head_name`, `relation_name` and `tail_name` are
labels. Both are ignored when the user chooses the columns. `head_type` and `tail_type` become facts (entity, type, ...)
and `weight` is kept with the facts, if the user names these columns.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import polars as pl

from harmonium.data.graph import SPLITS, Graph, Note
from harmonium.data.names import WHITESPACE
from harmonium.data.tables.columns import COLUMNS, LABEL_COLUMNS, TYPES, WEIGHT
from harmonium.data.tables.skipped_rows import SkippedRows
from harmonium.data.tables.source import Source
from harmonium.data.vocabulary import Vocabulary
from harmonium.errors import HarmoniumError

SPLIT_ALIASES = {"training": "train", "validation": "valid", "val": "valid", "dev": "valid", "testing": "test"}
TYPE_RELATION = "type"  # recognised by data/entity_types.py


def to_source(
    name: str,
    tables: Mapping[str, Iterable[pl.DataFrame]],
    location: str,
    names: tuple[dict[str, str], dict[str, str]] = ({}, {}),
    notes: list[Note] | None = None,
    skipped: SkippedRows | None = None,
) -> Source:
    """Tables of facts by split, or one table with a column `split`, as a Source. Each is read once.

    Labels in the tables are added to the Source as they are read; `names` (of entities, of relations) override them.
    """
    source = Source(
        name, {}, None, None, dict(names[0]), dict(names[1]), [] if notes is None else notes, skipped or SkippedRows()
    )
    if list(tables) != ["train"]:
        for split, table in tables.items():
            source.splits[split] = _facts(source, table, split)
        return source
    held_out: dict[str, list[pl.DataFrame]] = {split: [] for split in SPLITS[1:]}  # filled while train is read
    source.splits["train"] = _train_facts(source, tables["train"], location, held_out)
    source.splits.update(held_out)
    return source


def _train_facts(
    source: Source, table: Iterable[pl.DataFrame], location: str, held_out: dict[str, list[pl.DataFrame]]
) -> Iterator[pl.DataFrame]:
    """The training facts of one table; facts that its column `split` assigns elsewhere are appended to `held_out`."""
    n_rows = n_facts = 0

    def train() -> Iterator[pl.DataFrame]:
        nonlocal n_rows, n_facts
        for part in table:
            words = _split_of(part, location, n_rows + 1) if "split" in part.columns else None
            for split, facts in held_out.items() if words is not None else ():
                facts.append(_columns_of_facts(part.filter(words == split)))
            n_rows += len(part)
            in_train = part if words is None else part.filter(words == "train")
            n_facts += len(in_train)
            _add_labels(labels, part)
            yield in_train

    labels = _no_labels()
    yield from _facts(source, train(), "train", labels)
    if not n_rows:
        raise source.skipped.nothing_left(location)
    if not n_facts:
        raise HarmoniumError(f"{location}: no facts of the split train")


def _facts(
    source: Source, table: Iterable[pl.DataFrame], split: str, labels: dict[str, dict[str, str]] | None = None
) -> Iterator[pl.DataFrame]:
    """Yield the facts of a table, adding labels to the source as they are read. Facts of types belong to train.

    Of several labels for an entity the one in the source wins, then the first tail label, then the first head label.
    """
    collects, labels = labels is None, _no_labels() if labels is None else labels
    types = pl.DataFrame(schema=dict.fromkeys(COLUMNS, pl.String))
    for part in table:
        if collects:
            _add_labels(labels, part)
        types = pl.concat([types, *_type_facts(part)]).unique(maintain_order=True)
        yield _columns_of_facts(part)
    if len(types) and split == "train":
        yield types
        text = f"{len(types):,} facts (entity, {TYPE_RELATION}, ...) were made from the type columns"
        source.notes.append(Note(text, "types", "", len(types)))
    source.entity_names.update(labels["head"] | labels["tail"] | source.entity_names)
    source.relation_names.update(labels["relation"] | source.relation_names)


def _no_labels() -> dict[str, dict[str, str]]:
    return {column: {} for column in COLUMNS}


def _columns_of_facts(part: pl.DataFrame) -> pl.DataFrame:
    return part.select(*COLUMNS, *[WEIGHT] * (WEIGHT in part.columns))


def _add_labels(labels: dict[str, dict[str, str]], part: pl.DataFrame) -> None:
    """Add the first label of each identifier, for each column."""
    for column, label_column in zip(COLUMNS, LABEL_COLUMNS, strict=True):
        if label_column in part.columns:
            pairs = part.select(column, label_column).filter(pl.col(label_column).str.len_bytes() > 0)
            labels[column] = dict(pairs.unique(column, keep="first").iter_rows()) | labels[column]


def _type_facts(facts: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Facts (entity, type, ...) of the types of heads and of tails, if there are such columns."""
    for column, slot in zip(TYPES, ("head", "tail"), strict=True):
        if column in facts.columns:
            named = facts.filter(pl.col(column).str.strip_chars(WHITESPACE).str.len_bytes() > 0)
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

    With `alone`, a file that is not part of a folder, splits and labels are columns too.
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
