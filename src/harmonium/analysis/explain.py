"""Why a triple is an answer: the tableau of its constraints, evidence in words, the training facts it depends on.

The facts are found by estimating what removing them would do (influence.py, necessary_facts.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from harmonium.analysis.influence import Influence
from harmonium.analysis.necessary_facts import NecessaryFacts, find_necessary_facts
from harmonium.analysis.score_anatomy import Names, ScoreAnatomy, ScoreDetails
from harmonium.analysis.tableau import Tableau, build_tableau
from harmonium.answers.open_run import open_run
from harmonium.answers.reasons import find_reasons
from harmonium.data.index import KnownAnswers
from harmonium.data.triples import Slot, Triples
from harmonium.errors import whole_number
from harmonium.evaluation.ranking import rank
from harmonium.run.run import Run
from harmonium.runtime.displayed import Displayed, Line, Part, Table, notes, one_line


def explain(
    run: Run | str | Path,
    head: str,
    relation: str,
    tail: str,
    *,
    top: int = 5,
    details: bool = False,
    same_relation: bool = True,
) -> Explanation:
    """Why a fact is an answer: what speaks for it and for other candidates, and the training facts that vectors depend on.

    Of a run with constraints beside its vectors (those of the default preset), `tableau` shows what each of them adds to
    the harmony of the fact and of the best other candidates for its tail, and which one decides.

    `top` facts of each kind are listed. `details` adds everything that constraints say with the facts on which it
    rests, and how the score of the vectors comes about: harmony in parts, directions of W, and the nearest training facts,
    of the `same_relation` or of any.

    >>> harmonium.explain("runs/demo", "Switzerland", "official language", "French").necessary
    """
    run, top = Run.of(run), whole_number("top", top, least=1)
    triple = run.graph.triple(head, relation, tail)
    return Explainer(run).explain(triple, top, details, same_relation)


@dataclass(frozen=True)
class NecessaryFact:
    """A training fact, and the rank of the triple as a tail without it and all facts listed before it."""

    fact: Names
    rank: int  # estimated


@dataclass(frozen=True)
class Reason:
    """A training fact of the head or the tail, and the change of the triple's score without it."""

    fact: Names
    effect: float  # estimated


@dataclass(frozen=True)
class Explanation(Displayed):
    """Why a triple is an answer; `score` is that of the vectors: harmony above that of the empty triple, x = 0."""

    triple: Names
    known: str | None  # the split in which it is a fact
    score: float
    rank: dict[str, float]  # as a head and as a tail: filtered, all entities
    rank_by_vectors: float  # as a tail, by the vectors alone
    evidence: str  # what the known facts say for it, in words
    tableau: Tableau | None  # none: the run has no constraints
    necessary: list[NecessaryFact]  # training facts whose removal, one after another, lowers the triple most
    reasons: list[Reason]  # training facts by descending |effect| of removing each one alone
    notes: list[str]
    details: ScoreDetails | None

    @property
    def is_decided(self) -> bool:
        """Whether the necessary facts decide the answer: without them its rank would be worse."""
        return bool(self.necessary) and self.necessary[-1].rank > self.rank_by_vectors

    @property
    def verdict(self) -> str:
        """Whether the answer depends on the necessary facts."""
        if not self.necessary:
            return "No training fact of the head or the tail supports it."
        before, after, n = self.rank_by_vectors, self.necessary[-1].rank, len(self.necessary)
        facts = "this fact" if n == 1 else f"these {n} facts"
        if self.tableau is not None:
            facts += ", by the vectors alone,"
        if self.is_decided:
            return f"Without {facts} it would be answer {after:,} instead of {before:,g}."
        return f"No few facts decide it: without {facts} it would still be answer {after:,}."

    def __repr__(self) -> str:
        reasons = [f"because of {', '.join(self.reasons[0].fact)}"] if self.reasons else []
        return one_line(self, *self.triple, f"score {self.score:.3f}", *reasons)

    def display(self) -> Iterator[Part]:
        """The facts that count in words; parts of the score only with details."""
        known = f"a known fact ({self.known})" if self.known else "not a known fact"
        ranks = ", ".join(f"#{rank:,g} as {side}" for side, rank in self.rank.items())
        yield Line(", ".join(self.triple), "bold")
        score = "" if self.tableau is not None else f"; score {self.score:.3f}"
        yield Line(f"{known}; {ranks} among all entities, other known facts removed{score}")
        yield Line(f"Evidence: {self.evidence}.")
        yield from notes(self.notes)
        yield Line("")
        if self.tableau is not None:
            yield from self.tableau.display()
            yield Line("")
            yield Line("Facts that the learned patterns rest on", "bold")
        if rows := [[" · ".join(fact.fact), f"#{fact.rank:,}"] for fact in self.necessary]:
            title = "Facts it depends on" if self.is_decided else "Facts that support it most"
            yield Table(title, ["training fact", "rank without it and those above"], rows)
        yield Line(self.verdict)
        rows = [[" · ".join(reason.fact), f"{reason.effect:+.3f}"] for reason in self.reasons]
        caption = "estimated by refitting the vectors of the head and the tail to their other facts"
        yield Table("Single facts with most effect", ["training fact", "change of the score without it"], rows, caption)
        if self.details is None:
            facts = "the facts behind each constraint, " if self.tableau is not None else ""
            yield Line(f"--details shows {facts}parts of the harmony of vectors, directions of W, nearest facts", "dim")
            return
        if self.tableau is not None:
            yield from self.tableau.display_details()
        yield from self.details.display()

    def records(self) -> list[dict[str, Any]]:
        """The training facts behind it: those it depends on, with its rank without them, then single effects."""
        rows: list[tuple[Any, ...]] = [("necessary", each.fact, each.rank, None) for each in self.necessary]
        rows += [("single", each.fact, None, each.effect) for each in self.reasons]
        columns = ("kind", "head", "relation", "tail", "rank_without", "effect")
        return [dict(zip(columns, (kind, *fact, rank, effect), strict=True)) for kind, fact, rank, effect in rows]

    def to_json(self) -> dict[str, Any]:
        details = None if self.details is None else self.details.to_json()
        computed = {"is_decided": self.is_decided, "verdict": self.verdict, "details": details}
        return asdict(self) | computed | {"tableau": None if self.tableau is None else self.tableau.to_json()}


@dataclass(frozen=True)
class Explainer:
    """Explains facts of one run; what they have in common is computed once, when first needed."""

    run: Run
    seed: int = 0

    @cached_property
    def influence(self) -> Influence:
        return Influence(self.run.model, self.run.graph, self.seed)

    @cached_property
    def anatomy(self) -> ScoreAnatomy:
        return ScoreAnatomy(self.run.model, self.run.graph, self.influence.scorer, self.seed)

    @cached_property
    def known(self) -> dict[Slot, KnownAnswers]:
        return {slot: open_run(self.run).known(slot) for slot in (Slot.HEAD, Slot.TAIL)}

    @torch.no_grad()
    def explain(
        self, triple: Triples, count: int = 5, details: bool = False, same_relation: bool = True
    ) -> Explanation:
        """Explain one triple (one row)."""
        graph, anatomy = self.run.graph, self.anatomy
        known_in = graph.splits_of(triple)[0]
        opened = open_run(self.run)
        ranks = {
            slot.value: rank(opened.scorer, triple, slot, known).values().item() for slot, known in self.known.items()
        }
        by_vectors = rank(self.influence.scorer, triple, Slot.TAIL, self.known[Slot.TAIL]).values().item()
        necessary = find_necessary_facts(self.influence, triple)
        return Explanation(
            graph.names_of(triple)[0],
            known_in,
            anatomy.form(anatomy.compose(triple)[0].double()).item(),
            ranks,
            by_vectors,
            find_reasons(opened.evidence, triple)[0].text,
            build_tableau(opened, triple),
            [NecessaryFact(*row) for row in zip(graph.names_of(necessary.facts), necessary.ranks, strict=True)],
            self._reasons(necessary, count),
            self._notes(known_in, details),
            anatomy.details(triple, count, same_relation) if details else None,
        )

    def _reasons(self, necessary: NecessaryFacts, count: int) -> list[Reason]:
        """The candidates by descending |effect|."""
        strongest = necessary.effects.abs().topk(min(count, len(necessary.effects))).indices
        names = self.run.graph.names_of(necessary.candidates[strongest])
        return [Reason(*row) for row in zip(names, necessary.effects[strongest].tolist(), strict=True)]

    def _notes(self, known_in: str | None, details: bool) -> list[str]:
        notes, harmony = [], self.anatomy.harmony
        if known_in == "train":
            notes.append("it is a training fact itself; what is said below is true while it stays one")
        if details and harmony is None:
            notes.append(
                "a plain model: no harmony or W, so no parts, shift or directions; distances of composed vectors"
            )
        elif details and harmony is not None and harmony.tau == 0:
            notes.append("lambda = infinity: the token is the composed vector")
        if self.run.model.reciprocal:
            notes.append("reciprocal relations: explained as an answer for the tail")
        return notes
