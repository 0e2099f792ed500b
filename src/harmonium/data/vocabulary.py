"""The names of the entities or relations of a graph."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from numbers import Number

from harmonium.data.name_column import NameColumn
from harmonium.data.names import clean_name, spelling_key
from harmonium.errors import HarmoniumError

MAX_NAMES_SEARCHED = 1_000_000  # for a suggestion, a microsecond each


@dataclass(frozen=True, init=False)
class Vocabulary:
    """Identifiers (their position is the id that tensors use) and, where the source has them, readable labels."""

    ids: NameColumn
    labels: NameColumn | None  # one per id
    kind: str

    def __init__(self, ids: Iterable[str], labels: Iterable[str] | None = None, kind: str = "entity") -> None:
        object.__setattr__(self, "ids", NameColumn.of(ids))
        object.__setattr__(self, "labels", None if labels is None else NameColumn.of(labels))
        object.__setattr__(self, "kind", kind)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def names(self) -> NameColumn:
        """Labels, or identifiers where there are none."""
        return self.ids if self.labels is None else self.labels

    def name(self, index: int) -> str:
        return self.names[index]

    def unique_names(self) -> NameColumn:
        """Labels if no two are equal, otherwise identifiers."""
        return self.names if self.names.distinct else self.ids

    def __getitem__(self, index: int) -> str:
        return self.names[index]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __contains__(self, name: str) -> bool:
        return bool(self.find(name))

    def find(self, name: str) -> list[int]:
        """The ids whose identifier, else whose label, is this name; if none, the name is cleaned as file contents are."""
        spellings = (name, clean_name(name))
        return next((ids for text in spellings if (ids := self.ids.find(text) or self.names.find(text))), [])

    def index(self, name: object) -> int:
        """The id of an identifier or a label, regardless of case and accents where that is unambiguous.

        The error for an unknown name suggests similar ones.
        """
        if not isinstance(name, str):
            if not isinstance(name, Number):
                kind = type(name).__name__
                raise HarmoniumError(f"the name of the {self.kind} is text, not a {kind}: {str(name)[:80]}")
            is_whole = isinstance(name, float) and name.is_integer()
            name = f"{name:.0f}" if is_whole else str(name)  # as numbers in files and frames are read
        matches = self.find(name) or self.find_spelling(name)
        if len(matches) == 1:
            return matches[0]
        if matches:
            examples = ", ".join(self.ids[index] for index in matches[:5])
            raise HarmoniumError(f"{len(matches)} {self.kind} names match '{name}'; give one of them: {examples}")
        near = self.nearest(name)
        hint = f"; did you mean {', '.join(repr(n) for n in near)}?" if near else ""
        raise HarmoniumError(f"no {self.kind} named '{name}' among {len(self):,}{hint}")

    def find_spelling(self, name: str) -> list[int]:
        """The ids of the names that differ from this one only in case, whitespace, Unicode form or accents."""
        return self._by_spelling.get(spelling_key(name), [])

    @cached_property
    def _by_spelling(self) -> dict[str, list[int]]:
        """Spelling key -> ids; empty if there are more names than MAX_NAMES_SEARCHED."""
        ids: dict[str, list[int]] = {}
        if len(self) <= MAX_NAMES_SEARCHED:
            for column in (self.ids,) if self.labels is None else (self.ids, self.labels):
                for index, name in enumerate(column):
                    group = ids.setdefault(spelling_key(name), [])
                    if index not in group[-1:]:
                        group.append(index)
        return ids

    def nearest(self, name: str, count: int = 3) -> list[str]:
        """The names most similar to this one, as a whole or to a part of the longer one; the first million are compared."""
        from rapidfuzz import fuzz, process, utils

        names, simplify = self.names[:MAX_NAMES_SEARCHED], utils.default_process
        similar: dict[str, None] = {}
        for scorer, cutoff in ((fuzz.ratio, 70), (fuzz.WRatio, 60)):
            matches = process.extract(name, names, scorer=scorer, processor=simplify, limit=count, score_cutoff=cutoff)
            similar |= dict.fromkeys(match for match, _, _ in matches)
        return list(similar)[:count]
