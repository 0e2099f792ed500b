"""Tokens: composed vectors of unit length with a unit that says how true the fact is."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from harmonium.answers import tokens
from harmonium.answers.open_run import open_run
from harmonium.answers.tokens import TruthUnit, learn_truth_unit
from harmonium.data.graph import Graph
from harmonium.data.triples import Slot, Triples
from harmonium.errors import HarmoniumError
from harmonium.model.scoring import Scorer, of_candidates
from small import countries, fitted_run, make_run, random_model


@dataclass(frozen=True)
class Knowing(Scorer):
    """Scores facts of a graph `height` above all others, which score `level`."""

    graph: Graph
    height: float
    level: float = 0.0

    def n_candidates(self, slot: Slot) -> int:
        return self.graph.n_entities

    def score_slot(self, slot: Slot, queries: Triples, candidates: Tensor | None = None) -> Tensor:
        scores = torch.full((len(queries), self.graph.n_entities), self.level)
        scores[self.graph.known_answers(slot).of(queries)] += self.height
        return of_candidates(scores, candidates)


def test_truth_follows_scores_that_tell_facts_from_others() -> None:
    graph = countries()
    unit = learn_truth_unit(Knowing(graph, height=4.0, level=-7.0), graph)
    for slot in (Slot.HEAD, Slot.TAIL):
        false, true = unit.truth(slot, 0, torch.tensor([-7.0, -3.0])).tolist()
        assert false < 0.15 < 0.85 < true
    blind = learn_truth_unit(Knowing(graph, height=0.0), graph)
    assert blind.truth(Slot.HEAD, 0, torch.zeros(1)).item() == pytest.approx(0.5, abs=0.05)
    reverse = learn_truth_unit(Knowing(graph, height=-4.0), graph)
    assert reverse.truth(Slot.HEAD, 0, torch.tensor([-4.0])) <= reverse.truth(Slot.HEAD, 0, torch.tensor([4.0]))


def test_test_facts_play_no_part_and_a_graph_without_validation_lends_known_ones() -> None:
    graph = countries()
    scorer = Knowing(graph, height=3.0)
    moved = replace(graph, valid=graph.valid[:40], test=graph.valid[40:])
    assert learn_truth_unit(scorer, moved) == learn_truth_unit(scorer, replace(moved, test=graph.test))
    alone = learn_truth_unit(scorer, replace(graph, valid=graph.valid[:0]))
    assert alone.truth(Slot.TAIL, 1, torch.tensor([3.0])) > 0.8


def test_distances_of_tokens_are_those_of_directions_and_of_truth() -> None:
    graph = countries()
    opened = open_run(make_run(graph, random_model(graph, "complex", 6, harmony=False)))
    query, candidates = graph.train[:1], torch.tensor([3, 20, 40, 41])
    role = opened.tokens.role(Slot.HEAD, query, candidates)
    composed = opened.model.compose(Triples(candidates, *(query[s].expand(4) for s in (Slot.RELATION, Slot.TAIL))))
    cosine = torch.nn.functional.cosine_similarity(composed[:1], composed)
    for faithfulness in (0.5, 2.0, math.inf):
        h = role.tokens(faithfulness)
        expected = 2 * (1 - cosine) + (role.truth - role.truth[0]).square() / faithfulness
        torch.testing.assert_close((h - h[0]).square().sum(1), expected)
    scores = opened.scorer.score_slot(Slot.HEAD, query, candidates)[0]
    assert (role.truth[scores.argsort()].diff() >= 0).all()
    known = opened.tokens.role(Slot.HEAD, query, candidates, torch.tensor([False, True, False, False]))
    assert known.truth[1] == 1 and torch.equal(known.truth[[0, 2, 3]], role.truth[[0, 2, 3]])
    with pytest.raises(HarmoniumError, match="must be positive, not 0"):
        role.tokens(0)


def test_the_unit_is_learned_once_and_kept_in_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = fitted_run(countries(), tmp_path / "run")
    unit = open_run(run).tokens.unit
    assert isinstance(unit, TruthUnit) and unit.slope["tail"] != unit.slope["head"]
    monkeypatch.setattr(tokens.manifest, "_computed", {})
    monkeypatch.setattr(tokens, "learn_truth_unit", lambda *_: pytest.fail("learned again"))
    assert open_run(type(run).load(tmp_path / "run")).tokens.unit == unit
    assert json.loads((tmp_path / "run" / "tokens.json").read_text(encoding="utf-8"))["method"] == tokens.METHOD


def test_tokens_of_true_facts_have_more_facts_near_and_those_of_false_ones_fewer(tmp_path: Path) -> None:
    """On facts held out: as the paper claims of its tokens."""
    graph = countries()
    space, changes = open_run(fitted_run(graph, tmp_path / "run")).tokens, {True: 0.0, False: 0.0}
    for fact in graph.valid[graph.valid.relation <= 1].chunks(1):
        candidates = graph.slot_candidates(Slot.HEAD).lookup(fact.relation)[1]
        is_fact = torch.isin(candidates, graph.known_answers(Slot.HEAD).of(fact)[1])
        role = space.role(Slot.HEAD, fact, candidates)
        for anchor in ((candidates == fact.head).nonzero()[0], (~is_fact).nonzero()[0]):
            near = [_near(vectors, anchor, is_fact) for vectors in (role.composed, role.tokens())]
            changes[bool(is_fact[anchor])] += near[1] - near[0]
    assert changes[True] >= 0 >= changes[False] and changes[True] > changes[False]


def _near(vectors: Tensor, anchor: Tensor, is_fact: Tensor) -> int:
    distance = torch.linalg.vector_norm(vectors - vectors[anchor], dim=1).index_fill(0, anchor, torch.inf)
    return int(is_fact[distance.topk(5, largest=False).indices].sum())
