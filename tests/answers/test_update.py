from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import harmonium
from harmonium.answers.calibration.judgement_correction import JudgementCorrection, correction_for, keep_correction
from harmonium.answers.candidate_facts import CandidateSearch
from harmonium.config.settings import Config
from harmonium.data.triples import Slot, Triples
from harmonium.errors import HarmoniumError
from harmonium.model.build import build_model
from harmonium.run.run import Run
from harmonium.runtime import folders
from harmonium.server.explorer import Explorer
from harmonium.training.fit import fit
from harmonium.training.refit import local_refit
from small import family, make_graph

Fact = tuple[str, str, str]
SETTINGS = [
    "model.composition=complex", "model.entity_dim=8", "model.harmony=false", "model.normalise=false",
    "model.reciprocal=true", "train.loss=full", "train.optimiser=adagrad", "train.learning_rate=0.1",
    "train.epochs=10", "train.batch_size=32", "train.device=cpu",
]  # fmt: skip


@pytest.fixture(scope="module")
def run() -> Run:
    config, graph = Config.read(None, SETTINGS), family(40)
    model = build_model(config.model, graph.n_entities, graph.n_relations, seed=0)
    return Run(config, graph, model, fit(model, graph, config))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_refit, "REFIT_STEPS", 3)


def names(run: Run, triples: Triples) -> set[Fact]:
    return set(run.graph.names_of(triples))


@pytest.mark.usefixtures("quick")
def test_ten_random_updates_in_folders_and_their_undo(run: Run, tmp_path: Path) -> None:
    rng, folder = random.Random(0), tmp_path / "0"
    run.save(folder)
    true, false = names(run, run.graph.facts()), set[Fact]()
    for number in range(10):
        current = Run.load(folder)
        people, kinds = list(current.graph.entities.ids), list(current.graph.relations.ids)
        pool = [*people, f"new {number}"]
        added = {(rng.choice(pool), rng.choice([*kinds, f"kind {number}"]), rng.choice(pool)) for _ in range(4)} - true
        removed = {*rng.sample(sorted(true), 2), (rng.choice(people), rng.choice(kinds), rng.choice(people))} - added
        before, folder = folder, tmp_path / str(number + 1)
        current.update(add=sorted(added), remove=sorted(removed), out=folder)
        updated = Run.load(folder)
        true, false = true - removed | added, (false | removed) - added
        assert names(updated, updated.graph.facts()) == true
        assert names(updated, updated.rejected) == false
        assert len(updated.updates) == number + 1
        assert names(updated, updated.updates[-1].added) == added
        assert Run.load(before).fingerprint == current.fingerprint  # untouched
    for number in range(9, -1, -1):
        undone = harmonium.update(tmp_path / str(number + 1), undo=True, out=tmp_path / f"undone {number}")
        expected = tmp_path / str(number)
        for file in ("data.graph", "model.safetensors"):
            assert (undone.path / file).read_bytes() == (expected / file).read_bytes()
        assert len(undone.updates) == number
    again = Run.load(tmp_path / "10")
    for _ in range(10):
        again = again.update(undo=True)
    assert again.fingerprint == run.fingerprint and not again.updates
    with pytest.raises(HarmoniumError, match="there is no update to undo"):
        again.update(undo=True)


def test_answers_that_an_update_does_not_concern_are_the_same_to_the_byte(run: Run) -> None:
    updated = run.update(add=[("person 1", "next", "person 7"), ("Zoe", "twin", "person 7")])
    moved = torch.tensor([1, 7])
    assert updated.updates[-1].record.moved_entities == 3  # Zoe is new
    queries = run.graph.facts()
    fixed = torch.ones(40, dtype=torch.bool).index_fill_(0, moved, False)
    for slot, given in ((Slot.TAIL, queries.head), (Slot.HEAD, queries.tail)):
        asked = queries[fixed[given]]
        before, after = run.model.score_slot(slot, asked), updated.model.score_slot(slot, asked)
        assert torch.equal(after[:, :40][:, fixed], before[:, fixed])


def test_false_facts_are_never_proposed(run: Run) -> None:
    graph = make_graph(30, sizes=(200, 60, 10))
    run = replace(run, graph=graph, model=build_model(run.config.model, graph.n_entities, graph.n_relations, seed=0))
    best = run.complete(top=5)
    assert len(best) == 5
    wrong = [(fact.head, fact.relation, fact.tail) for fact in best]
    updated = run.update(remove=wrong)
    assert torch.equal(updated.model.entity, run.model.entity)  # nothing to forget
    listed = {(fact.head, fact.relation, fact.tail) for fact in updated.complete(top=200)}
    assert listed and not listed & set(wrong)
    for head, relation, tail in wrong:
        for typed in (True, False):
            assert tail not in [a.name for a in updated.predict(head, relation, top=40, typed=typed)]
            assert head not in [a.name for a in updated.predict(None, relation, tail, top=40, typed=typed)]
        assert relation not in [a.name for a in updated.predict(head, None, tail, top=3)]
    explorer = Explorer(updated)
    head, relation, tail = wrong[0]
    shown = explorer.answers(head, relation, None, 40, True, False)
    assert shown.answers and tail not in [answer.tail.name for answer in shown.answers]


def test_a_symmetric_false_fact_is_false_in_both_directions(run: Run) -> None:
    facts = [(f"person {i}", "friend", f"person {i + 1}") for i in range(0, 30, 2)]
    graph = harmonium.load(
        facts + [(t, r, h) for h, r, t in facts] + run.graph.names_of(run.graph.train), valid=0, test=0
    )
    graph = replace(graph, rejected=graph.triple("person 0", "friend", "person 3"))
    model = build_model(run.config.model, graph.n_entities, graph.n_relations, seed=0)
    search = CandidateSearch.prepare(model, graph, typed=False)
    friend = graph.relations.index("friend")
    assert search.traits.symmetric[friend]
    pairs = {(h, t) for h, _, t in graph.names_of(search.of_relation(friend, 1000).triples)}
    assert pairs and not pairs & {("person 0", "person 3"), ("person 3", "person 0")}
    asked = replace(run, graph=graph, model=model)
    for typed in (True, False):
        for name, other in (("person 0", "person 3"), ("person 3", "person 0")):
            assert other not in [a.name for a in asked.predict(name, "friend", top=40, typed=typed)]
            assert other not in [a.name for a in asked.predict(None, "friend", name, top=40, typed=typed)]
    known = replace(asked, graph=replace(graph, rejected=graph.triple("person 1", "friend", "person 0")))
    assert "person 1" in [a.name for a in known.predict("person 0", "friend", top=40)]  # the graph has this direction


@pytest.mark.usefixtures("quick")
def test_a_first_row_with_a_known_entity_is_a_fact(run: Run, tmp_path: Path) -> None:
    """In a short file a new relation looks like the title of a column."""
    path = tmp_path / "facts.tsv"
    path.write_text("person 1\tlikes\tZoe\nperson 2\tnext\tperson 9\nperson 3\tnext\tperson 9\n")
    assert run.update(add=path).updates[-1].record.new_relations == ["likes"]
    path.write_text("from\tkind\tto\nperson 2\tnext\tperson 9\nperson 3\tnext\tperson 9\n")
    assert run.update(add=path).updates[-1].record.added == 2


@pytest.mark.usefixtures("quick")
def test_an_update_in_place_is_asked_for(run: Run, tmp_path: Path) -> None:
    folder = run.save(tmp_path / "run")
    fact = [("person 1", "next", "person 9")]
    with pytest.raises(HarmoniumError, match="exists; choose another --out"):
        harmonium.update(folder, add=fact, out=folder)
    opened = Run.load(folder)
    first = harmonium.update(folder, add=fact, out=folder, overwrite=True)
    assert Run.load(folder).fingerprint == first.fingerprint != run.fingerprint
    with pytest.raises(HarmoniumError, match="changed by another process"):
        opened.update(add=[("person 2", "next", "person 9")], out=folder, overwrite=True)
    harmonium.update(folder, undo=True, out=folder, overwrite=True)
    assert Run.load(folder).fingerprint == run.fingerprint
    for mistake in ({}, {"undo": True, "add": fact}):
        with pytest.raises(HarmoniumError, match="nothing to update|one of these at a time"):
            harmonium.update(folder, **mistake)


@pytest.mark.usefixtures("quick")
def test_what_was_learned_from_judgements_is_kept(run: Run, tmp_path: Path) -> None:
    saved = Run.load(run.save(tmp_path / "run"))
    correction = JudgementCorrection(0.5, 0.8, {0: 0.1, 2: -0.3}, 20)
    keep_correction(saved, correction)
    updated = saved.update(add=[("person 1", "likes", "person 2")], out=tmp_path / "updated")
    assert correction_for(updated) == correction
    keep_correction(updated, replace(correction, by_relation={2: 1.0, 3: 2.0}))
    undone = harmonium.update(tmp_path / "updated", undo=True, out=tmp_path / "undone")
    assert correction_for(undone) == replace(correction, by_relation={2: 1.0})  # relation 3 is gone


@pytest.mark.usefixtures("quick")
def test_an_updated_run_has_its_correction_from_the_first_moment(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill or a full disk behind the exchange of the folders does not lose what was learned from judgements."""
    saved, correction = Run.load(run.save(tmp_path / "run")), JudgementCorrection(0.5, 0.8, {0: 0.1}, 20)
    keep_correction(saved, correction)
    exchange = folders.exchange

    def check(new: Path, old: Path) -> None:
        assert correction_for(Run.load(new)) == correction
        exchange(new, old)

    monkeypatch.setattr(folders, "exchange", check)
    updated = saved.update(add=[("person 1", "likes", "person 2")], out=tmp_path / "run", overwrite=True)
    assert correction_for(updated) == correction
