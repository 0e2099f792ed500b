"""Which columns of a table are head, relation and tail."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice

from harmonium.data.names import clean_name
from harmonium.data.triples import Slot
from harmonium.runtime.errors import HarmoniumError

COLUMNS = tuple(slot.value for slot in Slot)
LABEL_COLUMNS = tuple(f"{column}_name" for column in COLUMNS)  # readable names beside identifiers
COMPARED_ROWS = 1_000_000  # with a first line, which is rarely so far from the next line that shares a name
ALIASES = {  # in the order of preference where a header has several
    "head": (
        "head", "subject", "source", "from", "src", "subj", "s", "h", "start", "sub", "node1", "entity1", "start_id",
        "head_id", "subject_id", "source_id", "from_id", "head_entity", "source_node", "from_node",
    ),
    "relation": (
        "relation", "predicate", "property", "relationship", "rel", "pred", "p", "r", "edge_type", "relation_type",
        "relationship_type", "rel_type", "edge", "link", "type", "kind", "verb", "attribute", "label", "relation_id",
        "predicate_id", "property_id",
    ),
    "tail": (
        "tail", "object", "target", "to", "dst", "obj", "o", "t", "end", "dest", "destination", "value", "node2",
        "entity2", "end_id", "tail_id", "object_id", "target_id", "to_id", "tail_entity", "target_node", "to_node",
    ),
}  # fmt: skip


def title_words(titles: Sequence[object]) -> list[str]:
    """Titles as they are compared: without case, marks around them (#head, ?s, :START_ID) and kinds of gaps."""
    return [re.sub(r"[\s_-]+", "_", str(title).strip().strip("#?:$<>[]").strip().casefold()) for title in titles]


TITLES = {"head", "relation", "tail", "subject", "predicate", "object", "source", "target"}  # rarely names of facts


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
    if not all(set(words) & set(aliases) for aliases in ALIASES.values()):
        return False
    positions = list(columns_by_title(words).values())
    letters = "".join(words[position] for position in positions)
    is_initials = letters == "spo" or (letters == "hrt" and positions == sorted(positions))
    return len(letters) > 3 or is_initials  # otherwise they are single-letter names


def stands_apart(first: Sequence[str], others: Iterable[Sequence[str]]) -> bool:
    """Whether no other line has a name of the first, while relations repeat among the others: a header in other words."""
    head, relation, tail = map(clean_name, first)
    relations: set[str] = set()
    repeats = False
    for other in islice(others, COMPARED_ROWS):
        other_head, other_relation, other_tail = map(clean_name, other)
        if other_relation == relation or {other_head, other_tail} & {head, tail}:
            return False
        repeats = repeats or other_relation in relations
        if not repeats:
            relations.add(other_relation)
    return repeats


def choose_columns(
    titles: Sequence[object], wanted: Sequence[str] | None, location: str, first: Sequence[object] | None = None
) -> dict[str, int]:
    """column -> position, by the user's choice, by title or by order; an error shows the `first` line or the titles.

    By title or order, the columns `split`, `head_name`, `relation_name` and `tail_name` are chosen too.
    """
    if wanted is not None:
        return {column: _position(titles, name, location) for column, name in zip(COLUMNS, wanted, strict=True)}
    check_titles(titles, location)
    words = title_words(titles)
    extras = {word: position for position, word in enumerate(words) if word in ("split", *LABEL_COLUMNS)}
    if is_header(words):
        return columns_by_title(words) | extras
    rest = [position for position in range(len(words)) if position not in extras.values()]
    if len(rest) == 3:
        return dict(zip(COLUMNS, rest, strict=True)) | extras
    shown = ", ".join(map(str, (first or titles)[:8])) + (", ..." if len(titles) > 8 else "")
    raise HarmoniumError(
        f"{location}: {len(titles)} column{'s' * (len(titles) != 1)} ({shown}), not clear which are head, relation and "
        "tail; choose them by name or number (--columns 1,2,3; load: columns=...), or give the --separator. "
        "Each row is one fact: a table with a column for each relation must be turned into such rows"
    )


def columns_by_title(titles: Sequence[object]) -> dict[str, int]:
    """Positions of head, relation and tail in a header."""
    words = title_words(titles)
    return {column: next(words.index(word) for word in ALIASES[column] if word in words) for column in COLUMNS}


def _position(titles: Sequence[object], wanted: str, location: str) -> int:
    names = [str(title).strip() for title in titles]
    for spelling, spellings in ((wanted, names), (wanted.casefold(), [name.casefold() for name in names])):
        if spellings.count(spelling) > 1:
            raise HarmoniumError(
                f"{location}: {spellings.count(spelling)} columns are named '{wanted}' ({', '.join(names)}); "
                "choose them by number, from 1"
            )
        if spelling in spellings:
            return spellings.index(spelling)
    if wanted.isdecimal() and 1 <= int(wanted) <= len(names):
        return int(wanted) - 1
    raise HarmoniumError(f"{location}: no column '{wanted}'; there are {', '.join(names)} (numbered from 1)")
