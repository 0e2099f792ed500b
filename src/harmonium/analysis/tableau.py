"""The tableau of a fact: why its answer stands where it does, as optimality theory draws it.

Candidates in rows, constraints in columns, in each cell what the constraint adds to the harmony of the candidate. Cells add
up to the harmony, and the largest harmony wins. The fact asked for stands beside the best other candidates for its tail;
other known answers are left out, as they do not compete with it. A known fact is hidden from its own constraints: what it
says for itself has a column of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from string import ascii_uppercase
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from harmonium.answers.open_run import OpenRun
from harmonium.answers.score import score_triples
from harmonium.data.triples import Slot, Triples
from harmonium.grammar.family import Family
from harmonium.grammar.grammar import Contribution, Grammar
from harmonium.grammar.paths import Paths
from harmonium.grammar.walks import Body
from harmonium.runtime.displayed import Displayed, Item, Line, Part, Styled, Table, percent

RIVALS = 4  # candidates beside the one asked for
PATH_COLUMNS = 3  # path rules with a column of their own
COLUMNS = 6  # of constraints, so that the table fits a terminal
NEGLIGIBLE = 0.02  # of the range of harmonies: constraints that differ less are added to the rest
LEVEL = 1e-6  # difference of harmonies that decides nothing
OTHER_COLUMNS = {  # that are no family: title, in a sentence, and meaning
    "vectors": ("patterns", "learned patterns", "how well it fits the patterns that training found in all facts together"),
    "itself": (
        "itself", "the known fact itself",
        "the fact is known: what it says for itself, which all other columns leave out",
    ),
    "rest": ("rest", "all other constraints together", "all other constraints together"),
}  # fmt: skip

Names = tuple[str, str, str]


@dataclass(frozen=True)
class Constraint:
    """A column."""

    title: str  # of the column
    name: str  # in a sentence
    meaning: str
    family: str

    @classmethod
    def of(cls, family: type[Family]) -> Constraint:
        return cls(family.column, family.title, family.meaning, family.name)

    @classmethod
    def other(cls, name: str) -> Constraint:
        return cls(*OTHER_COLUMNS[name], name)


@dataclass(frozen=True)
class Cell:
    """What a constraint adds to the harmony of a candidate, and on what that rests."""

    value: float
    texts: tuple[str, ...] = ()
    facts: tuple[Names, ...] = ()  # of the graph


@dataclass(frozen=True)
class Candidate:
    """A row."""

    name: str
    asked: bool
    known: str | None  # the split in which the fact with it is known
    harmony: float
    probability: float | None  # as `predict` gives it
    cells: tuple[Cell, ...]  # one for each constraint


@dataclass(frozen=True)
class Tableau(Displayed):
    """Candidates by descending harmony, and the constraints that tell them apart."""

    query: str
    constraints: tuple[Constraint, ...]
    candidates: tuple[Candidate, ...]

    @property
    def asked(self) -> Candidate:
        return next(candidate for candidate in self.candidates if candidate.asked)

    @property
    def rival(self) -> Candidate | None:
        """Whom the asked candidate is compared with: the best other one."""
        return next((candidate for candidate in self.candidates if not candidate.asked), None)

    @property
    def decided(self) -> int | None:
        """The number of the constraint that decides between the asked candidate and its rival; None if nothing does."""
        if self.rival is None or abs(lead := self.asked.harmony - self.rival.harmony) < LEVEL:
            return None
        sign = 1 if lead > 0 else -1
        pairs = zip(self.asked.cells, self.rival.cells, strict=True)
        return max(enumerate(sign * (a.value - b.value) for a, b in pairs), key=lambda pair: pair[1])[0]

    @property
    def verdict(self) -> str:
        """What decides, in one sentence."""
        if self.rival is None:
            return "There is no other candidate."
        if self.decided is None:
            return f"{self.asked.name} and {self.rival.name} are level: nothing decides."
        winner, loser = sorted((self.asked, self.rival), key=lambda candidate: -candidate.harmony)
        for_winner, against_loser = winner.cells[self.decided], loser.cells[self.decided]
        gain, why = for_winner.value - against_loser.value, ""
        if for_winner.value > 0 and for_winner.texts:
            why = f": {for_winner.texts[0]}"
        elif against_loser.value < 0 and against_loser.texts:
            why = f", which speaks against {loser.name}: {against_loser.texts[0]}"
        ahead = f"{winner.name} is ahead of {loser.name} by {winner.harmony - loser.harmony:.1f}"
        return f"{ahead}. Decided by {self.constraints[self.decided].name} ({gain:+.1f}){why}."

    def display(self) -> Iterator[Part]:
        rows = [self._row(candidate) for candidate in self.candidates]
        titles = [constraint.title for constraint in self.constraints]
        caption = (
            "cells add up to the sum, the harmony of a candidate: the largest wins; * decides; > the fact asked for"
        )
        yield Table(f"({self.query})", ["candidate", *titles, "sum", "prob."], rows, caption)
        yield Line(self.verdict, "bold")
        for number, constraint in enumerate(self.constraints):
            texts = self.asked.cells[number].texts if constraint.family != "rest" else ()
            yield Item(f"{constraint.title:<8}", constraint.meaning, texts[0] if texts else "")

    def display_details(self) -> Iterator[Part]:
        """Everything that constraints say of each candidate, with the facts on which it rests."""
        for candidate in self.candidates:
            rows = [
                [constraint.title, f"{cell.value:+.2f}", "; ".join(cell.texts), "; ".join(map(" · ".join, cell.facts))]
                for constraint, cell in zip(self.constraints, candidate.cells, strict=True)
                if cell.texts
            ]
            yield Table(f"What speaks for {candidate.name}", ["constraint", "adds", "evidence", "facts"], rows)

    def _row(self, candidate: Candidate) -> list[Any]:
        cells: list[Any] = []
        compared = candidate in (self.asked, self.rival)
        for number, cell in enumerate(candidate.cells):
            text = f"{cell.value:+.1f}" if abs(cell.value) >= 0.05 else "0"
            cells.append(Styled(f"*{text}", "bold") if compared and number == self.decided else text)
        name = Styled(f"> {candidate.name}", "bold") if candidate.asked else f"  {candidate.name}"
        probability = "known" if candidate.known else percent(candidate.probability)
        return [name, *cells, f"{candidate.harmony:.1f}", probability]

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"decided": self.decided, "verdict": self.verdict}


def build_tableau(opened: OpenRun, triple: Triples, rivals: int = RIVALS) -> Tableau | None:
    """The tableau of one fact (one row) for its tail; None for a run without constraints, where vectors alone decide."""
    grammar = opened.grammar
    if grammar is None:
        return None
    triples = _candidates(opened, triple, rivals)
    _, relation, tail = triple.to_rows()[0].tolist()
    hidden = tail if opened.splits_of(triple)[0] is not None else None
    columns = _columns(opened, grammar, triples, hidden)
    chosen = _merge_small(_by_importance(columns, lambda body: _how_often_right(grammar, relation, body)))
    predictions = score_triples(opened, triples)
    candidates = [
        Candidate(
            prediction.name, number == 0, prediction.known, prediction.score, prediction.probability,
            tuple(column.cells[number] for column in chosen),
        )
        for number, prediction in enumerate(predictions)
    ]  # fmt: skip
    candidates.sort(key=lambda candidate: -candidate.harmony)
    constraints = tuple(column.constraint for column in chosen)
    names = opened.graph.names_of(triple)[0]
    return Tableau(f"{names[0]}, {names[1]}, ?", constraints, tuple(candidates))


def _candidates(opened: OpenRun, triple: Triples, rivals: int) -> Triples:
    """The fact, then the same with the best other tails; known ones and those known to be false are left out."""
    scores = opened.scorer.score_slot(Slot.TAIL, triple)[0].detach().double().cpu().clone()
    for left_out in (opened.known(Slot.TAIL), opened.rejected(Slot.TAIL)):
        scores[left_out.of(triple)[1]] = -torch.inf
    scores[triple.tail] = -torch.inf
    best = scores.topk(min(rivals, int(scores.isfinite().sum()))).indices
    tails = torch.cat([triple.tail.cpu(), best])
    return Triples(triple.head.expand(len(tails)), triple.relation.expand(len(tails)), tails)


@dataclass(frozen=True)
class _Column:
    constraint: Constraint
    cells: tuple[Cell, ...]  # one for each candidate
    body: Body = ()  # of a path rule

    @property
    def values(self) -> NDArray[np.float64]:
        return np.array([cell.value for cell in self.cells])

    @property
    def spread(self) -> float:
        """How much it can decide: the difference between its largest and smallest contribution."""
        return float(np.ptp(self.values))


def _columns(opened: OpenRun, grammar: Grammar, triples: Triples, hidden: int | None) -> list[_Column]:
    """A column for the vectors, each path rule, each other family and, of a known fact, for itself."""
    head, relation = int(triples.head[0]), int(triples.relation[0])
    parts = [grammar.contributions(Slot.TAIL, relation, head, tail, hidden) for tail in triples.tail.tolist()]
    keys = dict.fromkeys((part.family, part.evidence.body) for of_candidate in parts for part in of_candidate)
    columns = [_vectors(grammar, triples)]
    for family, body in keys:
        of_key = [[p for p in each if (p.family, p.evidence.body) == (family, body)] for each in parts]
        columns.append(_Column(_constraint(grammar, of_key), tuple(_cell(opened, each) for each in of_key), body))
    if hidden is not None:
        given, answer = np.array([head]), np.array([hidden])
        full, without = (grammar.symbolic_of(Slot.TAIL, relation, given, h)[0] for h in (None, answer))
        values = (full - without)[triples.tail.numpy()].tolist()
        columns.append(_Column(Constraint.other("itself"), tuple(Cell(value) for value in values)))
    return columns


def _vectors(grammar: Grammar, triples: Triples) -> _Column:
    exact = grammar.vectors.exact_scores(Slot.TAIL, triples)
    scores = grammar.vectors.score_facts(Slot.TAIL, triples) if exact is None else exact.of_truth[0]
    values = (grammar.vector_weights(Slot.TAIL, triples).cpu() * scores.detach().double().cpu()).tolist()
    return _Column(Constraint.other("vectors"), tuple(Cell(value) for value in values))


def _constraint(grammar: Grammar, parts: Sequence[Sequence[Contribution]]) -> Constraint:
    part = next(part for of_candidate in parts for part in of_candidate)
    family = next(family for family in grammar.families if family.name == part.family)
    column = Constraint.of(type(family))
    return replace(column, meaning=part.evidence.constraint) if part.evidence.body else column


def _how_often_right(grammar: Grammar, relation: int, body: Body) -> str:
    paths = next(family for family in grammar.families if isinstance(family, Paths))
    return paths.how_often_right(Slot.TAIL, relation, body)


def _cell(opened: OpenRun, parts: Sequence[Contribution]) -> Cell:
    total = sum(part.value for part in parts)
    parts = sorted(parts, key=lambda part: -part.value if total > 0 else part.value)
    facts = [fact for part in parts for fact in part.evidence.facts]
    names = opened.graph.names_of(Triples.from_rows(facts)) if facts else []
    texts = dict.fromkeys(part.evidence.text for part in parts)
    return Cell(total, tuple(texts), tuple(dict.fromkeys(names)))


def _by_importance(columns: Sequence[_Column], how_often_right: Callable[[Body], str]) -> list[_Column]:
    """The most important path rules named one by one, the rest of them added up; then the other families."""
    paths = sorted((c for c in columns if c.constraint.family == "paths"), key=lambda c: -c.spread)
    named = []
    for letter, column in zip(ascii_uppercase, paths[:PATH_COLUMNS], strict=False):
        meaning = f"{column.constraint.meaning}; {how_often_right(column.body)}"
        title = f"path {letter}"
        named.append(_Column(Constraint(title, title, meaning, Paths.name), column.cells))
    others = [c for c in columns if c.constraint.family != "paths"]
    return [*others[:1], *named, *_sum(Constraint.of(Paths), paths[PATH_COLUMNS:]), *others[1:]]


def _merge_small(columns: Sequence[_Column]) -> list[_Column]:
    """The vectors and other columns that tell candidates apart; those that hardly do, or are too many, as one."""
    range_of_harmonies = float(np.ptp(sum(column.values for column in columns)))
    vectors, *others = columns
    ranked = sorted(others, key=lambda column: -column.spread)[: COLUMNS - 2]
    kept = [c for c in others if c in ranked and c.spread >= NEGLIGIBLE * range_of_harmonies]
    return [vectors, *kept, *_sum(Constraint.other("rest"), [c for c in others if c not in kept])]


def _sum(constraint: Constraint, columns: Sequence[_Column]) -> list[_Column]:
    """One column for several; none for none."""
    if not columns:
        return []
    cells = []
    for of_candidate in zip(*(column.cells for column in columns), strict=True):
        ordered = sorted(of_candidate, key=lambda cell: -abs(cell.value))
        texts = [text for cell in ordered for text in cell.texts]
        facts = dict.fromkeys(fact for cell in ordered for fact in cell.facts)
        cells.append(Cell(sum(cell.value for cell in of_candidate), tuple(texts), tuple(facts)))
    return [_Column(constraint, tuple(cells))]
