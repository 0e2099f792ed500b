from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import harmonium
from harmonium.answers.calibration import conformal
from harmonium.answers.calibration.conformal import fit_answer_sets
from harmonium.answers.open_run import open_run
from harmonium.data.entity_types import EntityTypes
from harmonium.data.graph import Graph
from harmonium.data.triples import Slot, Triples
from harmonium.data.vocabulary import Vocabulary
from harmonium.errors import HarmoniumError
from harmonium.run import manifest
from harmonium.run.run import Run
from harmonium.runtime import storage
from small import PlainScorer, make_graph, make_run, random_model

N_HEADS, N_TAILS, N_RELATIONS = 1500, 40, 3
HARD = 2  # a relation about which the scorer knows nothing


class Softmax(PlainScorer):
    """A scorer that is right about a world but for a factor: each query draws answers by a softmax of its scores."""

    def __init__(self) -> None:
        self.scores = torch.randn(N_HEADS, N_RELATIONS, N_TAILS, generator=torch.Generator().manual_seed(1))

    def all_scores(self, slot: Slot, queries: Triples) -> torch.Tensor:
        if slot is Slot.TAIL:
            return self.scores[queries.head, queries.relation].clone()
        return torch.zeros(len(queries), N_RELATIONS if slot is Slot.RELATION else N_HEADS)


def world() -> tuple[Softmax, Graph]:
    """Three answers to each query, in random splits."""
    scorer, generator = Softmax(), torch.Generator().manual_seed(6)
    odds = 4 * scorer.scores
    odds[:, HARD] = 0
    tails = odds.view(-1, N_TAILS).softmax(1).multinomial(3, generator=generator)  # (queries, 3)
    query = torch.arange(len(tails)).repeat_interleave(3)
    rows = torch.stack([query // N_RELATIONS, query % N_RELATIONS, tails.flatten()], dim=1)
    parts = rows[torch.randperm(len(rows), generator=generator)].tensor_split(3)
    entities, relations = ([f"{kind}{i}" for i in range(n)] for kind, n in (("e", N_HEADS), ("r", N_RELATIONS)))
    return scorer, Graph(Vocabulary(entities), Vocabulary(relations, kind="relation"), *map(Triples.from_rows, parts))


@pytest.mark.parametrize("coverage", [0.6, 0.9])
def test_sets_hold_the_answers_of_new_facts_as_often_as_asked_for_in_each_relation(coverage: float) -> None:
    """More known answers leave fewer candidates, so the coverage can only rise."""
    scorer, graph = world()
    sets, facts = fit_answer_sets(scorer, graph), graph.test
    hard = facts.relation == HARD

    def covered(splits: tuple[str, ...], by_relation: bool = True) -> torch.Tensor:
        known = graph.known_answers(Slot.TAIL, splits)
        limits = sets.limits(scorer, graph, Slot.TAIL, facts, coverage, known=known, by_relation=by_relation)
        return (scorer.scores[facts.head, facts.relation, facts.tail] >= limits.score).double()

    exact = covered(("train",))
    assert exact.mean().item() == pytest.approx(coverage, abs=0.04)
    for relation in range(N_RELATIONS):
        assert exact[facts.relation == relation].mean().item() == pytest.approx(coverage, abs=0.07)
    assert (covered(("train", "valid")) >= exact).all()
    together = covered(("train",), by_relation=False)
    assert together.mean().item() == pytest.approx(coverage, abs=0.04)
    assert together[hard].mean() < coverage < together[~hard].mean()
    sizes, _ = sets.sizes(scorer, replace(graph, test=facts[:0]), Slot.TAIL, facts, coverage)
    assert sizes[hard].double().mean() > 2 * sizes[~hard].double().mean()


def test_a_set_holds_the_best_new_answers() -> None:
    graph = make_graph(20, 3, (200, 60, 60))
    run = make_run(graph, random_model(graph, "distmult", 6).float())
    known = {tuple(row) for row in graph.facts().to_rows().tolist()}
    for coverage in (0.3, 0.7, 0.95):
        answers = harmonium.predict(run, head="e2", relation="r1", coverage=coverage, typed=False, top=1)
        everyone = harmonium.predict(run, head="e2", relation="r1", typed=False, new_only=True, top=99)
        assert [answer.id for answer in answers] == [answer.id for answer in everyone[: len(answers)]]
        assert all(answer.known is None and (2, 1, int(answer.id[1:])) not in known for answer in answers)
        assert [answer.rank for answer in answers] == list(range(1, len(answers) + 1))
    sizes = [len(harmonium.predict(run, head="e2", relation="r1", coverage=c, typed=False)) for c in (0.01, 0.5, 0.99)]
    assert sizes[0] == 1
    assert sizes == sorted(sizes)


def test_a_set_holds_no_answer_that_is_known_to_be_false_and_none_in_its_place() -> None:
    graph = make_graph(30, 3, (200, 60, 10))
    run = make_run(graph, random_model(graph))
    for slot, names in ((Slot.TAIL, ("e3", "r1", None)), (Slot.HEAD, (None, "r2", "e5"))):
        before = [int(answer.id[1:]) for answer in run.predict(*names, coverage=0.7, typed=False)]
        rows = run.graph.triple(*(name or "e0" for name in names)).to_rows().repeat(len(before), 1)
        rows[:, list(Slot).index(slot)] = torch.tensor(before)
        assert len(before) > 4
        for n_false in (1, len(before) - 2):
            false = replace(run, graph=replace(graph, rejected=Triples.from_rows(rows[:n_false])))
            sets = fit_answer_sets(run.model, false.graph)
            assert open_run(false).answer_sets().slots[slot].temperature == sets.slots[slot].temperature
            after = [int(answer.id[1:]) for answer in false.predict(*names, coverage=0.7, typed=False)]
            assert not set(after) & set(before[:n_false])
            limits = sets.limits(run.model, false.graph, slot, Triples.from_rows(rows[:1]), 0.7)
            scores = run.model.score_slot(slot, Triples.from_rows(rows[:1]))[0]
            inside = [i for i in range(30) if scores[i] >= limits.score[0]]
            known = false.graph.known_answers(slot).of(Triples.from_rows(rows[:1]))[1].tolist()
            assert sorted(after) == sorted(set(inside) - set(known) - set(before[:n_false]))


def test_types_restrict_a_set_unless_too_many_answers_are_of_other_types() -> None:
    """Half of the validation facts have a tail that train has in no such slot."""
    rows = [[i, 0, 30 + i % 4] for i in range(30)] + [[40 + i % 10, 1, 50 + i % 10] for i in range(20)]
    valid = [[i, 0, 30 + (i + 1) % 4] if i % 2 else [i, 0, 50 + i % 10] for i in range(30)]
    graph = Graph(
        Vocabulary([f"e{i}" for i in range(60)]), Vocabulary(["a", "b"], kind="relation"),
        *map(Triples.from_rows, (rows, valid, [])),
    )  # fmt: skip
    model, types = random_model(graph, "distmult", 6).float(), EntityTypes.infer(graph, ("train",))
    sets = fit_answer_sets(model, graph)
    queries = Triples.from_rows([[3, 0, 0]])
    assert sets.sizes(model, graph, Slot.TAIL, queries, 0.4, types)[1].tolist() == [True]
    sizes, typed = sets.sizes(model, graph, Slot.TAIL, queries, 0.8, types)
    assert typed.tolist() == [False]
    assert sizes.tolist() == sets.sizes(model, graph, Slot.TAIL, queries, 0.8)[0].tolist()
    assert sets.sizes(model, graph, Slot.RELATION, queries, 0.8, types)[1].tolist() == [False]


@pytest.fixture
def run() -> Run:
    graph = make_graph(20, 3, (200, 60, 60))
    return make_run(graph, random_model(graph, "distmult", 6).float())


def test_what_cannot_be_covered_is_refused(run: Run, tmp_path: Path) -> None:
    for coverage in (0.0, 1.0, 90.0, -0.5, math.nan):
        with pytest.raises(HarmoniumError, match="share between 0 and 1, such as 0.9"):
            harmonium.predict(run, "e1", "r0", coverage=coverage)
    with pytest.raises(HarmoniumError, match="all candidates"):
        harmonium.predict(run, "e1", "r0", among=["e3"], coverage=0.9)
    (tmp_path / "q.tsv").write_text("e1\tr0\t?\n", encoding="utf-8")
    with pytest.raises(HarmoniumError, match="all candidates"):
        run.predict(tmp_path / "q.tsv", out=tmp_path / "a.tsv", among=["e3"], coverage=0.9)
    with pytest.raises(HarmoniumError, match="a coverage goes with a query of two names"):
        harmonium.predict(run, "e1", coverage=0.9)
    few = replace(run, graph=replace(run.graph, valid=run.graph.valid[:7]))
    with pytest.raises(HarmoniumError, match="need 20 validation facts and 'random' has 7"):
        harmonium.predict(few, "e1", "r0", coverage=0.9)


def test_sets_of_a_run_are_fitted_once(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = run.save(tmp_path / "run")
    run, file = replace(run, path=folder), folder / "conformal.json"
    monkeypatch.setattr(manifest, "_computed", {})
    first = open_run(run).answer_sets()
    monkeypatch.setattr(manifest, "_computed", {})
    with monkeypatch.context() as patch:
        patch.setattr(conformal, "fit_answer_sets", lambda *_, **__: pytest.fail("fitted again"))
        assert open_run(run).answer_sets() == first
    kept = json.loads(file.read_text(encoding="utf-8"))
    tail, good = kept["answer_sets"]["slots"]["tail"], file.read_bytes()
    damaged: list[object] = [[], kept | {"more": 1}, kept | {"format": 0}]
    damaged += [
        kept | {"answer_sets": {"slots": {"tail": tail | change}}}
        for change in ({"surprise": [math.nan] * len(tail["surprise"])}, {"typed": []}, {"temperature": 0})
    ]
    for content in damaged:
        stored, record = manifest.read(folder), storage.write(file, json.dumps(content).encode())
        manifest.write(folder, replace(stored, files=stored.files | {file.name: record}))
        monkeypatch.setattr(manifest, "_computed", {})
        assert open_run(run).answer_sets() == first
        assert file.read_bytes() == good
