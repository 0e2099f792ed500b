"""Search among the names of a graph as people type them."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from rapidfuzz import fuzz, process
from torch import Tensor

from harmonium.data.triples import Triples
from harmonium.data.vocabulary import Vocabulary
from harmonium.errors import HarmoniumError
from harmonium.server.results import Match, Named, UnknownName

MIN_SIMILARITY = 60  # of 100, for a name to be suggested
MAX_PATTERN_LENGTH = 200  # characters for which similar names are searched: time grows with the length


def plain(text: str) -> str:
    """A name in lower case, without accents and repeated spaces."""
    letters = unicodedata.normalize("NFKD", text.casefold())
    return " ".join("".join(letter for letter in letters if not unicodedata.combining(letter)).split())


class NameIndex:
    """A vocabulary to search; `counts` (n,) has the number of facts of each name, by which matches are sorted."""

    def __init__(self, vocabulary: Vocabulary, counts: Tensor) -> None:
        self.vocabulary = vocabulary
        self.counts: list[int] = counts.tolist()
        self.plain_names = [plain(vocabulary.name(index)) for index in range(len(vocabulary))]

    @cached_property
    def by_count(self) -> list[int]:
        """All ids in descending order of facts."""
        return list(torch.tensor(self.counts).argsort(descending=True, stable=True).tolist())

    def named(self, index: int) -> Named:
        return Named(self.vocabulary.ids[index], self.vocabulary.name(index))

    def index(self, name: str) -> int:
        """The id of a name or identifier."""
        message = f"no {self.vocabulary.kind} named '{name}' among {len(self.vocabulary):,}"
        if name in self.vocabulary:
            try:
                return self.vocabulary.index(name)
            except HarmoniumError as error:  # ambiguous
                message = str(error)
        raise UnknownName(message, name, self.search(name[:MAX_PATTERN_LENGTH], 5))

    def search(self, text: str, limit: int, among: Sequence[int] | None = None) -> list[Match]:
        """Names that begin with the text, then names with such a word, then names that contain it, then similar names."""
        pattern, matches = plain(text), []
        names = {index: self.plain_names[index] for index in (range(len(self.plain_names)) if among is None else among)}
        for index, name in names.items():
            position = name.find(pattern)
            if position >= 0:
                starts_word = f" {pattern}" in name
                order = 0 if name == pattern else 1 if position == 0 else 2 if starts_word else 3
                matches.append((order, -self.counts[index], len(name), index))
        best = [index for *_, index in sorted(matches)[:limit]]
        if len(best) < limit:
            similar = process.extract(pattern, names, scorer=fuzz.WRatio, limit=limit, score_cutoff=MIN_SIMILARITY)
            best += [index for *_, index in similar if index not in best]
        return [Match(self.vocabulary.ids[i], self.vocabulary.name(i), self.counts[i]) for i in best[:limit]]


@dataclass(frozen=True, eq=False)
class GraphNames:
    """The names of the entities and relations of a graph."""

    entities: NameIndex
    relations: NameIndex

    def of(self, row: Sequence[int]) -> tuple[Named, Named, Named]:
        """The names of a triple of ids."""
        head, relation, tail = row
        return self.entities.named(head), self.relations.named(relation), self.entities.named(tail)

    def triple(self, head: str, relation: str, tail: str) -> Triples:
        return Triples.from_rows(
            [[self.entities.index(head), self.relations.index(relation), self.entities.index(tail)]]
        )
