"""Candidates for missing facts: the best new answers to the queries (head, relation, ?) and (?, relation, tail).

All entities that could fill the head or the tail of a relation are asked (data/entity_types.py), one relation at a time:
memory holds a block of scores and the candidates of one relation. What the regularities of the graph exclude is no
candidate (answers/relation_traits.py): loops of a relation that has none, and a second answer where a relation has one.
The two directions of a fact of a symmetric relation are one candidate, with the means of their features; its head is
the entity that the graph names first, unless that direction is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from harmonium.answers.conflicts import Conflicts
from harmonium.answers.relation_traits import RelationTraits, false_answers
from harmonium.data.entity_types import EntityTypes, SlotTypes
from harmonium.data.graph import SPLITS, Graph
from harmonium.data.index import KnownAnswers
from harmonium.data.triples import Slot, Triples
from harmonium.evaluation.candidates import margins
from harmonium.grammar.further_answers import FurtherAnswers
from harmonium.model.scoring import Scorer

PER_QUERY = 10  # answers of each query that are candidates
SCORES_AT_ONCE = 1 << 20  # scores computed at once: 4 MB stay in a processor's cache
MAX_KEPT = 1 << 24  # scores of one relation and side that are kept rather than computed a second time
MAX_PAIRS = 1 << 35  # of a head and a tail, over all relations; above that the least likely entities are left out,
MAX_RELATION_PAIRS = 1 << 28  # as they are of one relation above this,
MIN_OTHERS = 1000  # but as many as this stay in each slot besides those that fill it already
GROUPS = 16  # columns that `top_columns` compares first
MARGINS = (-15.0, 8.0)  # beyond which a margin says no more
OTHER = {Slot.HEAD: Slot.TAIL, Slot.TAIL: Slot.HEAD}
FEATURES = (
    "tail margin",  # log-odds of the tail by the softmax over all candidate tails of (head, relation, ?)
    "head margin",  # the same of the head for (?, relation, tail)
    "no tail",  # 1 where the head has no known tail
    "no head",  # 1 where the tail has no known head
    "tails",  # log(1 + known tails of the head)
    "heads",  # log(1 + known heads of the tail)
    "head type",  # where the head has no tail: log-odds that it fills the slot, by its other roles
    "tail type",  # the same of the tail
    "further tail",  # log-odds that the head has a tail that is not known (grammar/further_answers.py)
    "further head",  # the same for a head of the tail
    "reverse",  # 1 where the fact is known the other way round
    "conflict",  # how strongly it conflicts with known facts of its entities (conflicts.py); 0: not at all
)
REVERSE = FEATURES.index("reverse")
Progress = Callable[[int], None]


@dataclass(frozen=True)
class CandidateFacts:
    """Facts that a graph may lack, with the features from which their probability is computed."""

    triples: Triples
    scores: Tensor  # (n,) float64: of the tail as the answer to (head, relation, ?)
    features: Tensor  # (n, len(FEATURES)) float64

    def __len__(self) -> int:
        return len(self.triples)

    def __getitem__(self, index: Tensor) -> CandidateFacts:
        return CandidateFacts(self.triples[index], self.scores[index], self.features[index])

    @classmethod
    def cat(cls, parts: Sequence[CandidateFacts]) -> CandidateFacts:
        empty = torch.empty(0, dtype=torch.float64)
        return cls(
            Triples.cat([Triples.from_rows([]), *(part.triples for part in parts)]),
            torch.cat([empty, *(part.scores for part in parts)]),
            torch.cat([empty.view(0, len(FEATURES)), *(part.features for part in parts)]),
        )


@dataclass(frozen=True)
class CandidateSearch:
    """What the search needs of a scorer and a graph: facts of some splits are known, any other one may be missing."""

    scorer: Scorer
    types: EntityTypes
    traits: RelationTraits
    known: dict[Slot, KnownAnswers]  # by open slot
    rejected: dict[
        Slot, KnownAnswers
    ]  # known to be false, likewise; in both directions where the relation is symmetric
    further: FurtherAnswers  # learned from the known facts
    conflicts: Conflicts  # with known facts
    typed: bool  # ask only entities that could fill the slot
    only_empty: bool  # ask only (head, relation, ?) without any known answer

    @classmethod
    def prepare(
        cls, scorer: Scorer, graph: Graph, splits: Sequence[str] = SPLITS, typed: bool = True, only_empty: bool = False
    ) -> CandidateSearch:
        known = {slot: graph.known_answers(slot, splits) for slot in OTHER}
        types, traits = EntityTypes.infer(graph, splits), RelationTraits.infer(graph, splits)
        rejected = {slot: false_answers(graph, slot, traits) for slot in OTHER}
        further, conflicts = FurtherAnswers.of(graph, splits), Conflicts(graph.facts(splits), traits, graph.n_entities)
        return cls(scorer.prepare(), types, traits, known, rejected, further, conflicts, typed, only_empty)

    def relations(self) -> list[int]:
        """The relations whose missing facts are looked for unless they are named: none whose tails are numbers or dates."""
        return (~self.traits.literal).nonzero()[:, 0].tolist()

    def relations_of(self, slot: Slot, entity: int) -> list[int]:
        """Those of them whose head or tail an entity could be."""
        relations = self.relations()
        if not self.typed:
            return relations
        used = (relation for relation in relations if self.types.sizes[relation])
        return [relation for relation in used if (self.types.of_slot(slot, relation).entities == entity).any()]

    def of_relation(
        self,
        relation: int,
        wanted: int = 0,
        given: tuple[Slot, int] | None = None,
        progress: Progress | None = None,
    ) -> CandidateFacts:
        """The candidates of one relation, by head and tail, at least `wanted` ones where there are as many.

        With a `given` head or tail only the answers to its query are candidates.
        """
        if self.typed and not self.types.sizes[relation]:
            return CandidateFacts.cat([])
        search = _RelationSearch(self, relation, given)
        asked = [slot for slot in OTHER if given is None or given[0] is slot]
        n_queries = sum(int(search.sides[slot].is_open.sum()) for slot in asked)
        per_query = max(PER_QUERY, -(-2 * wanted // max(1, n_queries)))
        pairs = [search.best_pairs(slot, per_query, progress) for slot in asked]
        return search.rate(torch.cat(pairs).unique())

    def rate(self, triples: Triples) -> CandidateFacts:
        """Any facts, in their order, with the features that they have as candidates; a known fact as if it were not."""
        parts, order = [CandidateFacts.cat([])], []
        for relation in triples.relation.unique().tolist():
            rows = (triples.relation == relation).nonzero()[:, 0]
            facts = triples[rows]
            parts.append(_RelationSearch(self, relation, None, facts).rate_facts(facts))
            order.append(rows)
        rated = CandidateFacts.cat(parts)
        return rated[torch.cat(order).argsort()] if order else rated

    def of_pair(self, head: int, relation: int, tail: int) -> CandidateFacts:
        """One triple as a candidate; none if it is known or what the graph's regularities exclude."""
        if self.typed and not self.types.sizes[relation]:
            return CandidateFacts.cat([])
        return _RelationSearch(self, relation, (Slot.HEAD, head)).rate_pair(head, tail)


@dataclass(frozen=True)
class _Side:
    """The entities of one slot of a relation. Each of them gives a query that asks for the other slot."""

    types: SlotTypes
    n_answers: Tensor  # (m,): known answers to the query of each entity
    is_open: Tensor  # (m,) bool: whether each may be in a missing fact

    @property
    def entities(self) -> Tensor:
        return self.types.entities

    def type_log_odds(self, row: Tensor, n_answers: Tensor) -> Tensor:
        """(n,): that entities fill the slot, for those without an answer; 0 for the others."""
        return self.types.log_odds[row].clamp(-7, 7) * (n_answers == 0)


class _RelationSearch:
    """The search in one relation; heads and tails are rows of their sides, a pair is head * number of tails + tail."""

    def __init__(
        self,
        search: CandidateSearch,
        relation: int,
        given: tuple[Slot, int] | None,
        facts: Triples | None = None,
    ) -> None:
        self.search, self.relation, self.given = search, relation, given
        types = self._types()
        self.n_typed = {slot: len(side.entities) for slot, side in types.items()}
        if facts is not None:  # whose entities need not be of the type
            types = {slot: self._with_entities(slot, side, facts) for slot, side in types.items()}
        self.sides = {slot: self._side(slot, types) for slot, types in types.items()}
        self.n_tails = len(self.sides[Slot.TAIL].entities)
        entities = {slot: side.entities for slot, side in self.sides.items()}
        keep = given is None and facts is None
        self.scores = {
            slot: _QueryScores(search, relation, slot, entities, keep, self.n_typed[OTHER[slot]]) for slot in OTHER
        }

    def _types(self) -> dict[Slot, SlotTypes]:
        """The candidates for both slots; those of a symmetric relation are the same."""
        types = {slot: self.search.types.of_slot(slot, self.relation, self.search.typed) for slot in OTHER}
        if self.search.traits.symmetric[self.relation]:
            types = dict.fromkeys(OTHER, types[Slot.HEAD].union(types[Slot.TAIL]))
        n_heads, n_tails = (len(side.entities) for side in types.values())
        limit = min(MAX_RELATION_PAIRS, MAX_PAIRS // self.search.types.n_relations)
        if n_heads * n_tails <= limit:
            return types
        ratio = (limit / (n_heads * n_tails)) ** 0.5
        return {
            slot: side.limited(max(MIN_OTHERS, int(ratio * len(side.entities) - side.fills.sum())))
            for slot, side in types.items()
        }

    def _with_entities(self, slot: Slot, types: SlotTypes, facts: Triples) -> SlotTypes:
        """The candidates for a slot, and after them those entities of some facts that are none."""
        symmetric = bool(self.search.traits.symmetric[self.relation])
        entities = torch.cat([facts.head, facts.tail]) if symmetric else facts[slot]
        others = entities.unique()
        others = others[~torch.isin(others, types.entities)]
        everyone = self.search.types.of_slot(slot, self.relation, typed=False)
        columns = zip(
            (types.entities, types.fills, types.log_odds),
            (others, everyone.fills[others], everyone.log_odds[others]),
            strict=True,
        )
        return SlotTypes(*(torch.cat(pair) for pair in columns))

    def rate_facts(self, facts: Triples) -> CandidateFacts:
        """Facts of the relation; those of a symmetric relation have the means of the features of both directions."""
        rows = {}
        for slot, side in self.sides.items():
            row = torch.full((self.search.types.n_entities,), -1)
            row[side.entities] = torch.arange(len(side.entities))
            rows[slot] = row
        head, tail = rows[Slot.HEAD][facts.head], rows[Slot.TAIL][facts.tail]
        rated = self._rate(head, tail)
        if not self.search.traits.symmetric[self.relation]:
            return rated
        return _mean(rated, self._rate(rows[Slot.HEAD][facts.tail], rows[Slot.TAIL][facts.head]))

    def _side(self, slot: Slot, types: SlotTypes) -> _Side:
        open_slot, traits = OTHER[slot], self.search.traits
        row, _ = self.search.known[open_slot].of(self._queries(types.entities))
        n_answers = row.bincount(minlength=len(types.entities))
        is_open = n_answers == 0
        if not traits.has_one_answer(open_slot)[self.relation] and not (self.search.only_empty and slot is Slot.HEAD):
            is_open = torch.ones_like(is_open)
        if self.given is not None and self.given[0] is slot:
            is_open &= types.entities == self.given[1]
        return _Side(types, n_answers, is_open)

    def _queries(self, entities: Tensor) -> Triples:
        return Triples(entities, torch.full_like(entities, self.relation), entities)

    def best_pairs(self, slot: Slot, count: int, progress: Progress | None) -> Tensor:
        """The best new answers to the queries of one side, as pairs."""
        side, other = self.sides[slot], self.sides[OTHER[slot]]
        column = torch.full((self.search.types.n_entities,), -1)  # of each entity among the answers
        column[other.entities] = torch.arange(len(other.entities))
        is_closed = None if other.is_open.all() else ~other.is_open
        pairs = [column[:0]]
        for rows, scores in self.scores[slot].blocks(side.is_open.nonzero()[:, 0]):
            row, answer = self._excluded(slot, side.entities[rows])
            is_candidate = column[answer] >= 0
            scores[row[is_candidate], column[answer[is_candidate]]] = -torch.inf
            if is_closed is not None:
                scores.masked_fill_(is_closed, -torch.inf)
            best = top_columns(scores, count)  # (rows, count)
            is_new = scores.gather(1, best) > -torch.inf
            query, answer = rows[:, None].expand_as(best)[is_new], best[is_new]
            head, tail = (query, answer) if slot is Slot.HEAD else (answer, query)
            pairs.append(head * self.n_tails + tail)
            if progress:
                progress(len(rows))
        return torch.cat(pairs)

    def _excluded(self, slot: Slot, entities: Tensor) -> tuple[Tensor, Tensor]:
        """(row, entity) of answers to the queries of some entities: known, known to be false, and unusual loops."""
        queries = self._queries(entities)
        pairs = [index[OTHER[slot]].of(queries) for index in (self.search.known, self.search.rejected)]
        row, answer = (torch.cat(columns) for columns in zip(*pairs, strict=True))
        if self.search.types.has_loops[self.relation]:
            return row, answer
        return torch.cat([row, torch.arange(len(entities))]), torch.cat([answer, entities])

    def rate(self, pairs: Tensor) -> CandidateFacts:
        """Ascending pairs as candidates; the two directions of a symmetric relation as one."""
        head, tail = pairs // self.n_tails, pairs % self.n_tails
        if not self.search.traits.symmetric[self.relation]:
            return self._rate(head, tail)
        is_second = (head > tail) & torch.isin(tail * self.n_tails + head, pairs)
        head, tail = head[~is_second], tail[~is_second]
        return _mean(self._rate(head, tail), self._rate(tail, head))

    def rate_pair(self, head: int, tail: int) -> CandidateFacts:
        """One pair of entities, if it is a candidate."""
        rows = []
        for slot, entity in ((Slot.HEAD, head), (Slot.TAIL, tail)):
            side = self.sides[slot]
            rows.append((side.is_open & (side.entities == entity)).nonzero()[:, 0])
        excluded = self._excluded(Slot.HEAD, torch.tensor([head]))[1]
        if not len(rows[0]) or not len(rows[1]) or (excluded == tail).any():
            return CandidateFacts.cat([])
        return self.rate(rows[0] * self.n_tails + rows[1])

    def _rate(self, head: Tensor, tail: Tensor) -> CandidateFacts:
        """Pairs with their features; a known fact does not count as an answer to its own questions."""
        heads, tails = self.sides[Slot.HEAD], self.sides[Slot.TAIL]
        facts = Triples(heads.entities[head], torch.full_like(head, self.relation), tails.entities[tail])
        is_fact = self.search.known[Slot.TAIL].contain(facts)
        is_known = is_fact.double()
        is_known_reversed = self.search.known[Slot.TAIL].contain(Triples(facts.tail, facts.relation, facts.head))
        scores, tail_margin = self.scores[Slot.HEAD].rate(head, tail)
        _, head_margin = self.scores[Slot.TAIL].rate(tail, head)
        n_tails = heads.n_answers[head].double() - is_known
        n_heads = tails.n_answers[tail].double() - is_known
        empty, counts = ((n_tails == 0).double(), (n_heads == 0).double()), (n_tails.log1p(), n_heads.log1p())
        types = heads.type_log_odds(head, n_tails), tails.type_log_odds(tail, n_heads)
        further = (self._further(slot, facts, is_known) for slot in (Slot.TAIL, Slot.HEAD))
        conflict = torch.from_numpy(self.search.conflicts.strengths(self.relation, facts, is_fact.numpy()))
        columns = (tail_margin, head_margin, *empty, *counts, *types, *further, is_known_reversed.double(), conflict)
        return CandidateFacts(facts, scores, torch.stack(columns, dim=1))

    def _further(self, open_slot: Slot, facts: Triples, is_known: Tensor) -> Tensor:
        """(n,): log-odds that the queries of facts have an answer that is not known, the facts themselves left out."""
        given, result = facts[OTHER[open_slot]], torch.zeros(len(facts), dtype=torch.float64)
        for n_hidden in (0, 1):
            rows = (is_known == n_hidden).nonzero()[:, 0]
            if len(rows):
                entities, row = given[rows].unique(return_inverse=True)
                log_odds = self.search.further.log_odds(open_slot, self.relation, entities.numpy(), n_hidden)
                result[rows] = torch.from_numpy(log_odds)[row]
        return result


def _mean(facts: CandidateFacts, reversed: CandidateFacts) -> CandidateFacts:
    """Facts of a symmetric relation with the means of the features of both directions, except for what is known."""
    features = (facts.features + reversed.features) / 2
    features[:, REVERSE] = facts.features[:, REVERSE]
    return CandidateFacts(facts.triples, facts.scores, features)


class _QueryScores:
    """The scores of the answers to all queries of one side of a relation; they may be kept if these are few."""

    def __init__(
        self,
        search: CandidateSearch,
        relation: int,
        slot: Slot,
        entities: dict[Slot, Tensor],
        keep: bool,
        n_typed: int,
    ) -> None:
        self.n_typed = n_typed  # of the answers: the others do not count in the softmax, unless they are asked about
        self.scorer, self.relation, self.open_slot = search.scorer, relation, OTHER[slot]
        self.given, self.answers = entities[slot], entities[self.open_slot]
        self.rows_per_block = max(1, SCORES_AT_ONCE // max(1, len(self.answers)))
        self.are_kept = keep and len(self.given) * len(self.answers) <= MAX_KEPT

    def blocks(self, rows: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Some rows (b,) of the queries, and the scores (b, answers), which the caller may change."""
        for block in rows.split(self.rows_per_block) if len(rows) else ():
            yield block, self._kept[block] if self.are_kept else self._compute(block)

    @torch.no_grad()
    def _compute(self, rows: Tensor) -> Tensor:
        given = self.given[rows]
        queries = Triples(given, torch.full_like(given, self.relation), given)
        return self.scorer.score_slot(self.open_slot, queries, self.answers)

    @cached_property
    def _kept(self) -> Tensor:
        """(given, answers)."""
        return torch.cat([self._compute(rows) for rows in torch.arange(len(self.given)).split(self.rows_per_block)])

    def rate(self, given: Tensor, answer: Tensor) -> tuple[Tensor, Tensor]:
        """(n,) twice: the score of each answer (a column) to its query (a row), and its log-odds by the softmax."""
        order = given.argsort(stable=True)
        ascending = given[order]
        scores, log_normaliser = torch.empty(len(given)).double(), torch.empty(len(given)).double()
        for rows, block in self.blocks(given.unique()):
            start, end = torch.searchsorted(ascending, rows[0]), torch.searchsorted(ascending, rows[-1], right=True)
            selected = order[start:end]
            row = torch.searchsorted(rows, given[selected])
            scores[selected] = block[row, answer[selected]].double()
            typed = block[:, : self.n_typed].logsumexp(1).double()[row]
            own = torch.where(answer[selected] < self.n_typed, -torch.inf, scores[selected])
            log_normaliser[selected] = typed.logaddexp(own)
        return scores, margins(scores, log_normaliser).clamp(*MARGINS)


def top_columns(scores: Tensor, count: int) -> Tensor:
    """(n, k): columns of the highest scores (n, m) of each row, in any order; k = min(count, m).

    The highest scores lie in the groups of columns with the highest maxima; only these are searched.
    """
    width = scores.shape[1] // GROUPS  # of the view below; a group is one of its columns
    if width <= GROUPS * count:
        return scores.topk(min(count, scores.shape[1]), sorted=False).indices
    group = scores[:, : GROUPS * width].view(len(scores), GROUPS, width).amax(1).topk(count, sorted=False).indices
    columns = (group[:, :, None] + width * torch.arange(GROUPS)).flatten(1)  # (n, count * GROUPS)
    rest = torch.arange(GROUPS * width, scores.shape[1]).expand(len(scores), -1)
    columns = torch.cat([columns, rest], dim=1)
    return columns.gather(1, scores.gather(1, columns).topk(count, sorted=False).indices)


def one_per_slot(facts: CandidateFacts, log_odds: Tensor, traits: RelationTraits) -> Tensor:
    """(n,) bool: the candidates that may be listed together, chosen in descending order of log-odds.

    Where a query has one answer, a candidate is not listed beside a better one that answers the same query. Of a
    symmetric relation that has one answer each entity is in one fact, as head or tail.
    """
    triples, listed = facts.triples, torch.zeros(len(facts), dtype=torch.bool)
    order = log_odds.argsort(descending=True, stable=True)
    keys = _question_keys(triples[order], traits)
    while len(order):
        chosen = _is_first(keys.flatten()).view_as(keys).all(1)
        listed[order[chosen]] = True
        left = ~torch.isin(keys, keys[chosen]).any(1)
        order, keys = order[left], keys[left]
    return listed


def _question_keys(triples: Triples, traits: RelationTraits) -> Tensor:
    """(n, 2): a number for the query of the head and one for that of the tail; unique where it has many answers."""
    n, size = len(triples), int(torch.cat([triples.head, triples.tail, torch.zeros(1)]).max()) + 1
    keys = []
    for column, (slot, open_slot) in enumerate(OTHER.items()):
        side = torch.where(traits.symmetric[triples.relation], 0, column)
        query = (2 * triples.relation + side) * size + triples[slot]
        has_one = traits.has_one_answer(open_slot)[triples.relation]
        keys.append(torch.where(has_one, query, -1 - column * n - torch.arange(n)))
    return torch.stack(keys, dim=1)


def _is_first(keys: Tensor) -> Tensor:
    """(n,) bool: whether a key occurs for the first time."""
    distinct, inverse = keys.unique(return_inverse=True)
    first = torch.full_like(distinct, len(keys)).scatter_reduce_(0, inverse, torch.arange(len(keys)), "amin")
    return torch.zeros(len(keys), dtype=torch.bool).index_fill_(0, first, True)
