"""The constraints that a run has learned: path rules one by one, and the weights of the other families by relation.

A rule can be switched off or given another weight; answers of the changed run follow, without training.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from harmonium.answers.calibration.judgement_correction import correction_file, correction_for
from harmonium.answers.open_run import open_run
from harmonium.data.triples import Slot
from harmonium.errors import HarmoniumError, whole_number
from harmonium.grammar.family import readable
from harmonium.grammar.grammar import Grammar
from harmonium.grammar.parameters import FAMILIES, GrammarParameters
from harmonium.grammar.path_rules import PathRules
from harmonium.grammar.paths import Paths, describe
from harmonium.grammar.walks import Body
from harmonium.run.run import Run
from harmonium.runtime.displayed import Item, Line, Part, Table, one_line
from harmonium.runtime.frames import Tabular

EXAMPLES_TRIED = 200  # facts of a relation along which an example is looked for
PATHS = next(number for number, family in enumerate(FAMILIES) if family is Paths)
PATH_WEIGHT = 1 + sum(len(family.constraints) for family in FAMILIES[:PATHS])  # its column among all weights


def rules(run: Run | str | Path, relation: str | None = None, *, top: int = 50) -> LearnedRules:
    """The path rules of a run, those with the largest weights first, and what other constraints weigh.

    `relation`: only those of one relation. `top`: so many rules; counting how often they are right costs a walk from
    every entity along each.

    A rule is known by its number. `change` switches rules off or fixes their weights, for a run that answers accordingly:

    >>> learned = harmonium.rules("runs/demo", relation="official language")
    >>> learned.change(off=[learned.rules[0].number], out="runs/without")
    """
    run = Run.of(run)
    grammar = open_run(run).grammar
    if grammar is None or run.grammar is None:
        raise HarmoniumError(f"{run.path or 'this run'} has learned no constraints; the default preset of `train` does")
    only = None if relation is None else run.graph.relations.index(relation)
    listed = [rule for rule in _numbered(run.grammar) if only in (None, rule[2])]
    listed.sort(key=lambda rule: -abs(rule[4]))
    chosen = listed[: whole_number("top", top)]
    counts = _counts(grammar, chosen)
    shown = tuple(_learned(run, grammar, rule, *counts[rule[0]]) for rule in chosen)
    relations = range(run.graph.n_relations) if only is None else [only]
    weights = tuple(_relation_weights(run, number, slot) for number in relations for slot in (Slot.TAIL, Slot.HEAD))
    return LearnedRules(run, shown, len(listed), weights)


@dataclass(frozen=True)
class LearnedRule:
    """A path rule: what it adds to the harmony of an answer, weight * log2(1 + paths), and how often it is right."""

    number: int
    relation: str
    open: Slot  # the slot of the queries that it answers
    path: str  # "X born in A, A located in Y"
    weight: float  # 0: switched off
    support: int  # facts of the relation that it connects, of all known ones
    connected: int  # pairs of entities that it connects
    example: tuple[tuple[str, str, str], ...]  # facts of one path between the ends of a known fact

    @property
    def precision(self) -> float:
        """How often it is right: the share of connected pairs that are facts."""
        return self.support / max(1, self.connected)

    @property
    def text(self) -> str:
        return f"X {readable(self.relation)} Y if {self.path}"


@dataclass(frozen=True)
class RelationWeights:
    """What one unit of each constraint adds for queries of a relation with one slot open."""

    relation: str
    open: Slot
    weights: Mapping[str, float]  # by family and constraint


@dataclass(frozen=True)
class LearnedRules(Tabular):
    """The learned constraints of a run."""

    run: Run
    rules: tuple[LearnedRule, ...]
    total: int  # rules, of which only some are listed
    weights: tuple[RelationWeights, ...]  # for tails and for heads, of each relation asked for

    def __repr__(self) -> str:
        return one_line(self, f"{len(self.rules):,} of {self.total:,} rules", *(rule.text for rule in self.rules[:2]))

    def change(
        self,
        off: Iterable[int] = (),
        weights: Mapping[int, float] | None = None,
        out: str | Path | None = None,
        overwrite: bool = False,
    ) -> Run:
        """The run with some rules switched off and others at fixed weights, by number; written to the folder `out`.

        Metrics and vectors stay as they are; probabilities are fitted again when they are next asked for.
        """
        changed = _changed(self.run, {**dict(weights or {}), **dict.fromkeys(off, 0.0)})
        if out is None:
            return replace(changed, path=None)
        correction = correction_for(self.run)
        computed = {} if correction is None else correction_file(correction, self.run.graph.n_relations)
        return replace(changed, path=changed.save(out, overwrite, computed))

    def display(self) -> Iterator[Part]:
        yield Line(f"{len(self.rules):,} of {self.total:,} path rules, those with the largest weights", "bold")
        width = max((len(f"{rule.number:,}") for rule in self.rules), default=1)
        for rule in self.rules:
            right = f"right in {rule.support:,} of {rule.connected:,} cases ({rule.precision:.0%})"
            asked = f"finds {rule.open.value}s"
            example = ", ".join(map(" ".join, rule.example)) or "no known fact"
            details = f"weight {rule.weight:+.2f}; {asked}; {right}; such as {example}"
            yield Item(f"{rule.number:>{width}}", rule.text, details)
        yield Line("")
        if len(self.weights) != 2:
            yield Line("--relation NAME also shows what all other constraints weigh there", "dim")
            return
        as_tails, as_heads = self.weights
        rows = [[name, f"{as_tails.weights[name]:+.2f}", f"{as_heads.weights[name]:+.2f}"] for name in as_tails.weights]
        caption = "what one unit of each constraint adds; rules above have the weight of paths in theirs"
        title = f"Weights of all constraints of {as_tails.relation}"
        yield Table(title, ["constraint", "finding tails", "finding heads"], rows, caption)

    def records(self) -> list[dict[str, Any]]:
        return [
            {
                "number": rule.number, "relation": rule.relation, "open": rule.open.value, "rule": rule.text,
                "weight": rule.weight, "support": rule.support, "connected": rule.connected,
                "precision": rule.precision, "example": "; ".join(map(" ".join, rule.example)),
            }
            for rule in self.rules
        ]  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        weights = [{"relation": w.relation, "open": w.open.value, "weights": dict(w.weights)} for w in self.weights]
        return {"total": self.total, "rules": self.records(), "weights": weights}


Numbered = tuple[int, Slot, int, Body, float]  # number, open slot, relation, body, weight


def _numbered(parameters: GrammarParameters) -> list[Numbered]:
    """All rules in the order in which they are stored, numbered from 1, with the weights that they have in the sum."""
    listed, number = [], 0
    for (slot, relation), of_relation in parameters.rules.by_relation.items():
        scale = _scale(parameters, slot, relation)
        for body, weight in zip(of_relation.bodies, of_relation.weights.tolist(), strict=True):
            number += 1
            listed.append((number, slot, relation, body, scale * weight))
    return listed


def _scale(parameters: GrammarParameters, slot: Slot, relation: int) -> float:
    """The weight of all paths together, by which those of rules are multiplied."""
    return float(parameters.weights.of(slot, relation)[PATH_WEIGHT])


def _paths(grammar: Grammar) -> PathRules:
    """The rules over all facts."""
    return next(family.rules for family in grammar.families if isinstance(family, Paths))


def _counts(grammar: Grammar, chosen: list[Numbered]) -> dict[int, tuple[int, int]]:
    """Support and connected pairs by number; rules of one relation are walked together."""
    counts: dict[int, tuple[int, int]] = {}
    for key in dict.fromkeys((slot, relation) for _, slot, relation, _, _ in chosen):
        of_key = [rule for rule in chosen if rule[1:3] == key]
        pairs = _paths(grammar).count_pairs(key[1], key[0], [body for *_, body, _ in of_key])
        counts |= zip((rule[0] for rule in of_key), pairs, strict=True)
    return counts


def _learned(run: Run, grammar: Grammar, rule: Numbered, support: int, connected: int) -> LearnedRule:
    number, slot, relation, body, weight = rule
    path = describe(body, run.graph.relations, run.graph.n_relations)
    example = _example(run, grammar, relation, body) if support else ()
    return LearnedRule(number, run.graph.relations.name(relation), slot, path, weight, support, connected, example)


def _example(run: Run, grammar: Grammar, relation: int, body: Body) -> tuple[tuple[str, str, str], ...]:
    facts = run.graph.facts()
    facts = facts[facts.relation == relation][:EXAMPLES_TRIED]
    for head, _, tail in facts.to_rows().tolist():
        walk = _paths(grammar).example_walk(body, head, tail)
        if walk:
            names = run.graph.entities.name
            return tuple((names(h), readable(run.graph.relations.name(r)), names(t)) for h, r, t in walk)
    return ()


def _relation_weights(run: Run, relation: int, slot: Slot) -> RelationWeights:
    assert run.grammar is not None, "checked before"
    titles = ["vectors", *(constraint for family in FAMILIES for constraint in family.constraints)]
    weights = run.grammar.weights.of(slot, relation).tolist()
    return RelationWeights(run.graph.relations.name(relation), slot, dict(zip(titles, weights, strict=True)))


def _changed(run: Run, weights: Mapping[int, float]) -> Run:
    """The run with other weights of rules, by number."""
    assert run.grammar is not None, "checked before"
    by_number = {rule[0]: rule for rule in _numbered(run.grammar)}
    changed = run.grammar.rules
    for number, weight in weights.items():
        if number not in by_number:
            raise HarmoniumError(f"no rule {number}; rules have the numbers 1 to {len(by_number):,}, listed by `rules`")
        if not np.isfinite(weight):
            raise HarmoniumError(f"the weight of rule {number} is to be a finite number, not {weight}")
        _, slot, relation, body, _ = by_number[number]
        scale = _scale(run.grammar, slot, relation)
        if weight and not scale:
            name = run.graph.relations.name(relation)
            raise HarmoniumError(
                f"rule {number} cannot have a weight: paths as a whole have none for the {slot.value}s of '{name}'"
            )
        changed = changed.with_weight(relation, slot, body, weight / scale if weight else 0.0)
    return replace(run, grammar=replace(run.grammar, rules=changed))
