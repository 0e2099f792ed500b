"""Which columns of a table are head, relation and tail."""

from collections.abc import Sequence

from harmonium.data.triples import Slot
from harmonium.runtime.errors import HarmoniumError

COLUMNS = tuple(slot.value for slot in Slot)
LABEL_COLUMNS = tuple(f"{column}_name" for column in COLUMNS)  # readable names beside identifiers
ALIASES = {
    "head": {"head", "subject", "source", "from", "src", "subj", "s", "head_id"},
    "relation": {"relation", "predicate", "property", "relationship", "rel", "pred", "p", "edge_type", "relation_id"},
    "tail": {"tail", "object", "target", "to", "dst", "obj", "o", "tail_id"},
}


def is_header(cells: Sequence[str]) -> bool:
    """Whether a first line names head, relation and tail (or their usual aliases)."""
    words = {cell.strip().casefold() for cell in cells}
    return all(words & aliases for aliases in ALIASES.values())


def choose_columns(titles: Sequence[object], wanted: Sequence[str] | None, location: str) -> dict[str, int]:
    """column -> position, by the user's choice, by title or by order.

    By title or order, the columns `split`, `head_name`, `relation_name` and `tail_name` are chosen too.
    """
    if wanted is not None:
        return {column: _position(titles, name, location) for column, name in zip(COLUMNS, wanted, strict=True)}
    words = [str(title).strip().casefold() for title in titles]
    extras = {word: position for position, word in enumerate(words) if word in ("split", *LABEL_COLUMNS)}
    if is_header(words):
        return columns_by_title(words) | extras
    rest = [position for position in range(len(words)) if position not in extras.values()]
    if len(rest) == 3:
        return dict(zip(COLUMNS, rest, strict=True)) | extras
    shown = ", ".join(map(str, titles[:8])) + (", ..." if len(titles) > 8 else "")
    raise HarmoniumError(
        f"{location}: {len(titles)} column{'s' * (len(titles) != 1)} ({shown}), not clear which are head, relation and "
        "tail; choose them by name or number, or the separator: harmonium convert --columns 1,2,3 (load: columns=...)"
    )


def columns_by_title(titles: Sequence[str]) -> dict[str, int]:
    """Positions of head, relation and tail in a header."""
    words = [title.strip().casefold() for title in titles]
    return {
        column: next(position for position, word in enumerate(words) if word in ALIASES[column]) for column in COLUMNS
    }


def _position(titles: Sequence[object], wanted: str, location: str) -> int:
    names = [str(title).strip() for title in titles]
    if wanted in names:
        return names.index(wanted)
    if wanted.isdecimal() and 1 <= int(wanted) <= len(names):
        return int(wanted) - 1
    raise HarmoniumError(f"{location}: no column '{wanted}'; there are {', '.join(names)} (numbered from 1)")
