"""Names: what the name of a candidate has in common with the name of the known entity, and with names of known answers.

Names are words (runs of letters or of digits, regardless of case and accents) and the first letters of long words, so that
"Jordanian dinar" shares a stem with "Jordan". Constraints: rare words in common (a cosine of words weighted by rarity), the
whole name of one inside the other (twice, for the two directions), how the words of a name go with the slot, by naive
Bayes over the names of known answers ("... hydroxide"), and how often entities whose names share a word with that of the
known one have the candidate ("Rubidium chromate" is a chromate salt as all chromates are). Where names say nothing, as
identifiers do, all are zero.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

import numpy as np
import scipy.sparse as sp

from harmonium.data.triples import Slot
from harmonium.data.vocabulary import Vocabulary
from harmonium.grammar.attributes import CACHED_RELATIONS, Attributes, dense
from harmonium.grammar.confidence import Confidences
from harmonium.grammar.family import UNCOUNTED, Array, Evidence, Family, Ids, columns_of
from harmonium.grammar.known_facts import KnownFacts

STEM = 4  # letters of a stem; only longer words have one
COMMON = 0.3  # words in more than this share of all names are left out of comparisons,
MANY = 1000, 0.05  # as are those in more names than this and than this share, which would take long
WORDS = re.compile(r"[^\W\d_]+|\d+")
LIMIT = 7.0  # log-odds of the words of a name beyond which no more is said


def words_of(name: str) -> list[str]:
    """The words of a name and the stems of the long ones, without case and accents."""
    plain = name.casefold()
    if not plain.isascii():
        plain = "".join(c for c in unicodedata.normalize("NFKD", plain) if not unicodedata.combining(c))
    words = WORDS.findall(plain)
    return words + [word[:STEM] + "…" for word in words if len(word) > STEM and not word.isdigit()]


class Names(Family):
    name = "names"
    column = "names"
    title = "names"
    meaning = "what the names have in common, or with names of known answers"
    constraints = (
        "rare words in common", "its name inside", "name inside its", "words of such names", "entities with its words",
    )  # fmt: skip

    @classmethod
    def over(cls, known: KnownFacts) -> Names:
        return cls(known.attributes, known.graph.entities)

    def __init__(self, attributes: Attributes, entities: Vocabulary) -> None:
        self.attributes, self.entities = attributes, entities
        n = attributes.n_entities
        words = [words_of(entities.name(entity)) for entity in range(n)]
        numbers: dict[str, int] = {}
        columns = [numbers.setdefault(word, len(numbers)) for of_name in words for word in of_name]
        rows = np.repeat(np.arange(n), [len(of_name) for of_name in words])
        matrix = sp.csr_matrix((np.ones(len(columns)), (rows, columns)), shape=(n, max(1, len(numbers))))
        matrix.sum_duplicates()
        matrix.data[:] = 1.0
        frequency = np.asarray(matrix.sum(0)).ravel()
        limit = max(2, min(COMMON * n, max(MANY[0], MANY[1] * n)))
        shared = np.flatnonzero((frequency >= 2) & (frequency <= limit))
        self.vocabulary = list(numbers)
        self.n_words = np.asarray(matrix.sum(1)).ravel()  # of each name, stems included
        self.words = matrix  # (n_entities, words)
        self.shared = shared
        rare = matrix[:, shared]
        rarity = np.log(n / frequency[shared])
        rare = (rare @ sp.diags(rarity)).tocsr()
        whole = np.log(n / np.maximum(frequency, 1))
        norms = np.sqrt(np.asarray((matrix @ sp.diags(whole**2)).sum(1)).ravel())
        self.unit = (sp.diags(1 / np.maximum(norms, 1e-12)) @ rare).tocsr()
        self.transposed = self.unit.T.tocsr()
        self.words_transposed = matrix.T.tocsr()
        self.confidences = Confidences(matrix[:, shared].tocsr(), attributes)
        self._fit = lru_cache(CACHED_RELATIONS)(self._fit_of_words)

    @property
    def is_idle(self) -> bool:
        """Whether names say nothing: hardly any two of them have a word in common."""
        return len(self.shared) == 0 or (np.diff(self.unit.indptr) > 0).mean() < 0.05

    def _fit_of_words(self, slot: Slot, relation: int) -> Array:
        """(n_entities,): log-odds by the words of its name that an entity is an answer of the relation."""
        counts = np.asarray(self.attributes.answers(slot, relation).sum(0)).ravel() > 0
        n_in, n = counts.sum(), len(counts)
        inside = np.asarray(self.words[counts].sum(0)).ravel()
        everywhere = np.asarray(self.words.sum(0)).ravel()
        # an answer counts for itself as one that is none: its own words do not speak for it
        odds = np.log((inside + 0.5) / (n_in + 1)) - np.log((everywhere - inside + 0.5) / (n - n_in + 1))
        odds_without = np.log((inside - 0.5).clip(min=0.5) / (n_in + 1)) - np.log(
            (everywhere - inside + 1.5) / (n - n_in + 1)
        )
        length = np.sqrt(np.maximum(1.0, self.n_words))
        score = np.where(counts, self.words @ odds_without, self.words @ odds) / length
        fit: Array = score.clip(-LIMIT, LIMIT)
        return fit

    def strengths(self, slot: Slot, relation: int, given: Ids, hidden: Ids | None = None) -> list[Array]:
        shape = len(given), self.attributes.n_entities
        if self.is_idle:
            return [np.zeros(shape) for _ in self.constraints]
        cosine = dense(self.unit[given] @ self.transposed)
        common = dense(self.words[given] @ self.words_transposed)
        itself = np.arange(len(given)), given
        inside = (common >= self.n_words[None]) & (self.n_words[None] > 0)
        contains = (common >= self.n_words[given][:, None]) & (self.n_words[given][:, None] > 0)
        for array in (cosine, inside, contains):
            array[itself] = 0
        fit = np.repeat(self._fit(slot, relation)[None], len(given), axis=0)
        like = self.confidences.highest(slot, relation, given, np.arange(self.attributes.n_entities), hidden)
        return [cosine, inside.astype(np.float64), contains.astype(np.float64), fit, like]

    def strengths_among(self, slot: Slot, relation: int, given: Ids, candidates: Ids) -> list[Array]:
        if self.is_idle:
            return [np.broadcast_to(0.0, (len(given), len(candidates))) for _ in self.constraints]
        cosine = dense(self.unit[given] @ self.unit[candidates].T)
        common = dense(self.words[given] @ self.words[candidates].T)
        own, of_given = self.n_words[candidates], self.n_words[given][:, None]
        inside, contains = (common >= own) & (own > 0), (common >= of_given) & (of_given > 0)
        column = columns_of(candidates, self.attributes.n_entities)[given]
        itself = np.flatnonzero(column >= 0), column[column >= 0]
        for array in (cosine, inside, contains):
            array[itself] = 0
        fit = np.broadcast_to(self._fit(slot, relation)[candidates], cosine.shape)
        like = self.confidences.highest(slot, relation, given, candidates)
        return [cosine, inside.astype(np.float64), contains.astype(np.float64), fit, like]

    def evidence(self, slot: Slot, relation: int, given: int, answer: int, hidden: int | None = None) -> list[Evidence]:
        hiding = None if hidden is None else np.array([hidden])
        values = [float(s[0, answer]) for s in self.strengths(slot, relation, np.array([given]), hiding)]
        first, second = self.entities.name(given), self.entities.name(answer)
        common = (self.words[[given]].multiply(self.words[[answer]])).tocsr().indices
        words = [self.vocabulary[word] for word in common]
        whole = [word for word in words if not word.endswith("…")]
        shown = ", ".join(f"'{word}'" for word in (whole or words))
        texts = (
            f"both names have {shown}",
            f"the name {second} is inside {first}",
            f"the name {first} is inside {second}",
            f"{second} is a name {'like' if values[3] > 0 else 'unlike'} those of known answers",
            self._share(slot, relation, given, answer, hidden) if values[4] else "",
        )
        named = zip(self.constraints, texts, values, strict=True)
        return [Evidence(title, text, value) for title, text, value in named if value]

    def conviction(self, slot: Slot, relation: int, evidence: Evidence) -> float:
        return evidence.strength if evidence.constraint == self.constraints[-1] else UNCOUNTED

    def _share(self, slot: Slot, relation: int, given: int, answer: int, hidden: int | None) -> str:
        """How many entities that share a word with the known one have the candidate."""
        best = self.confidences.shares(slot, relation, given, answer, hidden)[0]
        word = self.vocabulary[self.shared[best.trait]]
        having = "have this value" if slot is Slot.TAIL else "have this head"
        return f"{best.count:,} of {best.of:,} entities with '{word}' in their name {having}"
