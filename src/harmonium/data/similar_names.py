"""New names that look like spellings of known ones: the same but for blanks, case or punctuation, or one letter apart."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from harmonium.data.spellings import MAX_NAMES, simplify, spelling_key

MIN_LENGTH = 5  # of names that are compared letter by letter
MAX_PAIRS = 100_000_000  # compared letter by letter: seconds
BLOCK = 4_000_000  # pairs at a time


def find_spellings(new: Sequence[str], known: Sequence[str]) -> list[tuple[str, str, str]]:
    """(new name, known name, what differs): spelling, or one letter; each new name once, in order."""
    if not new or len(known) > MAX_NAMES:
        return []
    by_key: dict[str, str] = {}
    for name in known:
        for key in _keys(name):
            by_key.setdefault(key, name)
    similar = {name: (by_key[key], "spelling") for name in new for key in _keys(name) if by_key.get(key, name) != name}
    others = [name for name in new if name not in similar]
    for name, other in one_letter_apart(others, known):
        similar.setdefault(name, (other, "one letter"))
    return [(name, *similar[name]) for name in new if name in similar]


def _keys(name: str) -> Iterable[str]:
    return dict.fromkeys((simplify(name), spelling_key(name)))


def one_letter_apart(new: Sequence[str], known: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs of a new and a known name that differ in one letter, inserted, left out, replaced or exchanged.

    Short names are not compared, nor names with other digits: room 12 is not room 13. None if there are too many pairs.
    """
    new, known = ([name for name in names if len(name) >= MIN_LENGTH] for names in (new, known))
    if not new or not known or len(new) * len(known) > MAX_PAIRS:
        return []
    import numpy as np
    from rapidfuzz.distance import OSA
    from rapidfuzz.process import cdist

    pairs, size = [], max(1, BLOCK // len(known))
    for start in range(0, len(new), size):
        block = new[start : start + size]
        distances = cdist(block, known, scorer=OSA.distance, score_cutoff=1, dtype=np.uint8)
        for row, column in np.argwhere(distances == 1).tolist():
            if _digits(block[row]) == _digits(known[column]):
                pairs.append((block[row], known[column]))
    return pairs


def _digits(name: str) -> str:
    return re.sub(r"\D", "", name)
