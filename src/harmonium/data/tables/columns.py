"""Which columns of a table are head, relation and tail, which are labels, types and weights; whether it has a header."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Literal

from harmonium.data.names import clean_name
from harmonium.data.triples import Slot
from harmonium.errors import HarmoniumError

if TYPE_CHECKING:
    from harmonium.data.tables.reading_options import Options

COLUMNS = tuple(slot.value for slot in Slot)
LABEL_COLUMNS = tuple(f"{column}_name" for column in COLUMNS)  # readable names beside identifiers
COMPARED_ROWS = 1_000_000  # with a first line, which is rarely so far from the next line that shares a name
ALIASES = {  # in the order of preference where a header has several
    "head": (
        "head", "subject", "source", "from", "src", "subj", "s", "h", "start", "sub", "node1", "entity1", "start_id",
        "head_id", "subject_id", "source_id", "from_id", "head_entity", "source_entity", "source_node", "from_node",
        "entity_1", "node_1",
    ),
    "relation": (
        "relation", "predicate", "property", "relationship", "rel", "pred", "p", "r", "edge_type", "relation_type",
        "relationship_type", "rel_type", "edge", "link", "type", "kind", "verb", "attribute", "label", "relation_id",
        "predicate_id", "property_id",
    ),
    "tail": (
        "tail", "object", "target", "to", "dst", "obj", "o", "t", "end", "dest", "destination", "value", "node2",
        "entity2", "end_id", "tail_id", "object_id", "target_id", "to_id", "tail_entity", "target_entity", "target_node",
        "to_node", "entity_2", "node_2",
    ),
}  # fmt: skip
LABEL_ALIASES = {  # "subject_label" labels the head; where there is nothing else, it is the head
    column: [f"{word}_{ending}" for word in words if not word.endswith("_id") for ending in ("name", "label")]
    for column, words in ALIASES.items()
}
WEIGHT, TYPES = "weight", ("head_type", "tail_type")  # further columns, where the user chooses them


def title_words(titles: Sequence[object]) -> list[str]:
    """Titles as they are compared: without case, marks around them (#head, ?s, :START_ID) and kinds of gaps."""
    return [re.sub(r"[\s_-]+", "_", str(title).strip().strip("#?:$<>[]").strip().casefold()) for title in titles]


TITLES = {"head", "relation", "tail", "subject", "predicate", "object", "source", "target"}  # rarely names of facts
CLEAR_TITLES = TITLES | {
    "relationship",
    "rel",
    "subj",
    "pred",
    "obj",
    "edge_type",
    "relation_type",
    "entity1",
    "entity2",
}


def check_titles(titles: Sequence[object], location: str) -> None:
    """Refuse a first line that names one of head, relation and tail twice, or that lacks one of them beside two others."""
    words = title_words(titles)
    repeated = [word for word, count in Counter(words).items() if count > 1]
    if is_header(words):
        chosen = [words[position] for position in columns_by_title(words).values()]
        repeated = [word for word in repeated if word in (*chosen, "split", *LABEL_COLUMNS)]
    elif len(words) < 3 or not set(words) <= TITLES:
        return
    shown = ", ".join(map(str, titles))
    advice = "choose columns by number (--columns 1,2,3), or say --no-header if it is a fact"
    if repeated:
        raise HarmoniumError(f"{location}: the header ({shown}) names '{repeated[0]}' twice; rename a column, {advice}")
    if not is_header(words):
        missing = next(column for column, aliases in ALIASES.items() if not set(words) & set(aliases))
        raise HarmoniumError(f"{location}: the header ({shown}) names no {missing}; rename a column, {advice}")


def is_header(cells: Sequence[object]) -> bool:
    """Whether a first line names head, relation and tail (or their usual aliases)."""
    words = title_words(cells)
    if not all(set(words) & {*ALIASES[column], *LABEL_ALIASES[column]} for column in COLUMNS):
        return False
    positions = list(columns_by_title(words).values())
    letters = "".join(words[position] for position in positions)
    is_initials = letters == "spo" or (letters == "hrt" and positions == sorted(positions))
    return len(set(positions)) == 3 and (len(letters) > 3 or is_initials)  # otherwise they are single-letter names


def judge_first_row(first: Sequence[str], others: Iterable[Sequence[str]]) -> Literal["header", "fact", "doubtful"]:
    """What the first row of head, relation and tail is, by its words and by whether other rows have its names.

    A header in other words shares no name with any other row, while relations repeat among these; or words of it are
    titles ("relation" above the relations) that do not recur below.
    """
    cells = dict(zip(COLUMNS, map(clean_name, first), strict=True))
    words = dict(zip(COLUMNS, title_words(first), strict=True))
    titles = {column for column, word in words.items() if len(word) > 1 and word in ALIASES[column]}
    entities, relations = {cells["head"], cells["tail"]}, set[str]()
    has_entity = has_relation = repeats = False  # whether other rows have an entity or the relation of the first
    n_others = 0
    for other in islice(others, COMPARED_ROWS):
        n_others += 1
        names = dict(zip(COLUMNS, map(clean_name, other), strict=True))
        titles -= {column for column in titles if names[column] == cells[column]}
        has_relation = has_relation or names["relation"] == cells["relation"]
        has_entity = has_entity or not entities.isdisjoint((names["head"], names["tail"]))
        if not titles and (has_relation or has_entity):
            return "fact"
        repeats = repeats or names["relation"] in relations
        if not repeats:
            relations.add(names["relation"])
    is_clear = any(words[column] in CLEAR_TITLES for column in titles)
    if len(titles) > 1 or (repeats and not has_relation and (not has_entity or is_clear)):
        return "header"
    return "doubtful" if titles or n_others else "fact"


def choose_columns(
    titles: Sequence[object], options: Options, location: str, first: Sequence[object] | None = None
) -> dict[str, int]:
    """column -> position, by the user's choice, by title or by order; an error shows the `first` line or the titles.

    By title or order, the columns `split`, `head_name`, `relation_name` and `tail_name` are chosen too.
    """
    further = options.label_titles | options.type_titles
    if options.weight_column is not None:
        further[WEIGHT] = str(options.weight_column)
    wanted = further | dict(zip(COLUMNS, options.fact_titles, strict=False))
    names = {str(title).strip() for title in titles}
    by_number = all(title.isdecimal() for title in wanted.values()) and not set(wanted.values()) <= names
    chosen = {column: _position(titles, title, location, by_number) for column, title in wanted.items()}
    if options.columns is not None:
        if len({chosen[column] for column in COLUMNS}) < len(COLUMNS):
            shown = ", ".join(options.fact_titles)
            raise HarmoniumError(f"{location}: head, relation and tail are three different columns; given: {shown}")
        return chosen
    check_titles(titles, location)
    words = title_words(titles)
    if is_header(words):
        facts = columns_by_title(words)
        return facts | _label_columns(words, facts) | chosen
    labels = {word: position for position, word in enumerate(words) if word in ("split", *LABEL_COLUMNS)} | chosen
    rest = [position for position in range(len(words)) if position not in labels.values()]
    if len(rest) == 3:
        return dict(zip(COLUMNS, rest, strict=True)) | labels
    shown = ", ".join(map(str, (first or titles)[:8])) + (", ..." if len(titles) > 8 else "")
    raise HarmoniumError(
        f"{location}: {len(titles)} column{'s' * (len(titles) != 1)} ({shown}), not clear which are head, relation and "
        "tail; choose them by name or number (--columns 1,2,3; load: columns=...), or give the --delimiter. "
        "Each row is one fact: a table with a column for each relation must be turned into such rows"
    )


def _label_columns(words: Sequence[str], facts: dict[str, int]) -> dict[str, int]:
    """The columns of splits and labels in a header, but for those of the facts."""
    columns = {"split": words.index("split")} if "split" in words else {}
    for column, label_column in zip(COLUMNS, LABEL_COLUMNS, strict=True):
        known = [word for word in (label_column, *LABEL_ALIASES[column]) if word in words]
        positions = [position for position in map(words.index, known) if position not in facts.values()]
        if positions:
            columns[label_column] = positions[0]
    return columns


def columns_by_title(titles: Sequence[object]) -> dict[str, int]:
    """Positions of head, relation and tail in a header."""
    words = title_words(titles)
    aliases = {column: (*ALIASES[column], *LABEL_ALIASES[column]) for column in COLUMNS}
    return {column: next(words.index(word) for word in aliases[column] if word in words) for column in COLUMNS}


def _position(titles: Sequence[object], wanted: str, location: str, by_number: bool = False) -> int:
    names = [str(title).strip() for title in titles]
    spellings = ((wanted, names), (wanted.casefold(), [name.casefold() for name in names]))
    for spelling, known in () if by_number else spellings:
        if known.count(spelling) > 1:
            raise HarmoniumError(
                f"{location}: {known.count(spelling)} columns are named '{wanted}' ({', '.join(names)}); "
                "choose them by number, from 1"
            )
        if spelling in known:
            return known.index(spelling)
    if wanted.isdecimal() and 1 <= int(wanted) <= len(names):
        return int(wanted) - 1
    raise HarmoniumError(f"{location}: no column '{wanted}'; there are {', '.join(names)} (numbered from 1)")
