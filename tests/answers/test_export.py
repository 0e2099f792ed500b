"""Vectors that leave give our scores elsewhere, by formulas written out here, and come back by name."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import harmonium
from harmonium.answers.send.export import vector_tables
from harmonium.config.settings import Config
from harmonium.data.triples import Slot
from harmonium.data.vocabulary import Vocabulary
from harmonium.model.build import build_model
from harmonium.run.run import History, Run
from harmonium.training.initial_vectors import import_embeddings
from small import make_graph


def make_run(*overrides: str) -> Run:
    """An untrained run, which exports as well as a trained one."""
    config = Config.read(None, ["model.entity_dim=6", *overrides])
    graph = make_graph()
    model = build_model(config.model, graph.n_entities, graph.n_relations, seed=3).eval()
    if not config.model.harmony:
        model.form.scale.data.fill_(2.5)
    return Run(config, graph, model, History())


@pytest.mark.parametrize("ending", ["npz", "parquet"])
@pytest.mark.parametrize("reciprocal", ["true", "false"])
def test_vectors_come_back_and_give_the_same_scores(ending: str, reciprocal: str, tmp_path: Path) -> None:
    run = make_run(f"model.reciprocal={reciprocal}", f"model.normalise={reciprocal}")
    assert harmonium.export(run, tmp_path / f"v.{ending}") == [tmp_path / f"v.{ending}"]
    other = build_model(run.config.model, run.graph.n_entities, run.graph.n_relations, seed=9)
    other.form.load_state_dict(run.model.form.state_dict())
    assert not torch.allclose(other.entities(), run.model.entities())
    counts = {"entity": 12, "relation": 3} | ({"inverse": 3} if reciprocal == "true" else {})
    assert import_embeddings(other, run.graph, tmp_path / f"v.{ending}") == counts
    for slot in (Slot.HEAD, Slot.TAIL):
        ours, theirs = (model.score_slot(slot, run.graph.test) for model in (run.model, other))
        assert torch.allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"entity_names": ["e0"], "entity_vectors": np.ones((1, 5))}, "--set model.entity_dim=5"),
        ({"entity_names": ["e0"], "entity_vectors": np.full((1, 6), np.nan)}, "finite"),
        ({"entity_names": ["nobody"], "entity_vectors": np.ones((1, 6))}, "none of its names"),
        ({"entity_names": ["e0", "e1"], "entity_vectors": np.ones((1, 6))}, "2 names"),
        ({"entity_names": ["e0"]}, "not embeddings"),
        ({"something": np.ones(3)}, "none of its names"),
    ],
)
def test_bad_vectors_are_refused(arrays: dict, message: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "v.npz", **arrays)
    run = make_run()
    before = run.model.entity.detach().clone()
    with pytest.raises(harmonium.HarmoniumError, match=message):
        import_embeddings(run.model, run.graph, tmp_path / "v.npz")
    assert torch.equal(run.model.entity, before)


def test_training_starts_from_imported_vectors(tmp_path: Path) -> None:
    """With steps too small to move anything, the run keeps what was imported."""
    run = make_run()
    harmonium.export(run, tmp_path / "v.npz")
    overrides = ["model.entity_dim=6", "train.epochs=1", "train.learning_rate=1e-12"]
    trained = harmonium.train(
        config="paper", data=run.graph, overrides=[*overrides, f"train.initial_vectors={tmp_path / 'v.npz'}"]
    )
    assert torch.allclose(trained.model.entities(), run.model.entities(), atol=1e-6)
    with pytest.raises(harmonium.HarmoniumError, match="no such file of embeddings"):
        harmonium.train(run.graph, "paper", overrides=["train.initial_vectors=nowhere.npz"])


def test_the_faiss_index_finds_the_nearest(tmp_path: Path) -> None:
    import faiss

    run = make_run()
    names = Vocabulary([f"é{i}" for i in range(12)], kind="entity")
    run = replace(run, graph=replace(run.graph, entities=names))
    index, beside = harmonium.export(run, tmp_path / "v.faiss")
    vectors = vector_tables(run.model, run.graph)["entity"].vectors
    scores, found = faiss.read_index(str(index)).search(vectors, 3)
    products = vectors @ vectors.T
    assert found.tolist() == (-products).argsort(axis=1)[:, :3].tolist()
    assert np.allclose(scores[:, 0], 1, atol=1e-6)
    assert json.loads(beside.read_text(encoding="utf-8"))[11] == "é11"


def test_existing_files_are_not_replaced_unasked(tmp_path: Path) -> None:
    run, out = make_run("model.harmony=false"), tmp_path / "v.npz"
    harmonium.export(run, out)
    with pytest.raises(harmonium.HarmoniumError, match="--overwrite"):
        harmonium.export(run, out)
    harmonium.export(run, out, overwrite=True)
    with pytest.raises(harmonium.HarmoniumError, match="unknown format"):
        harmonium.export(run, tmp_path / "v.xyz", overwrite=True)


@pytest.mark.parametrize("name", ["README.md", "run.json", "harmonium.json"])
def test_files_of_others_are_never_replaced_by_an_export(tmp_path: Path, name: str) -> None:
    run, out = make_run("model.harmony=false"), tmp_path / "mine"
    out.mkdir()
    (out / name).write_text("precious")
    with pytest.raises(harmonium.HarmoniumError, match=f"{name}: not written by harmonium"):
        harmonium.export(run, out, to="hub", overwrite=True)
    assert {file.name: file.read_text() for file in out.iterdir()} == {name: "precious"}
    (out / name).rename(out / "notes.txt")
    for _ in range(2):
        harmonium.export(run, out, to="hub", overwrite=True)
    assert (out / "notes.txt").read_text() == "precious"
