"""Vectors that leave give our scores elsewhere, by formulas written out here, and come back by name."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import harmonium
from harmonium.answers.send.export import pykeen_parts, vector_tables
from harmonium.config.settings import Config
from harmonium.data.triples import Slot
from harmonium.data.vocabulary import Vocabulary
from harmonium.model.build import build_model
from harmonium.run.run import History, Run
from harmonium.training.initial_vectors import import_embeddings, read_vectors
from small import make_graph

PYKEEN = Path(__file__).parents[1] / ".venv-pykeen" / "bin" / "python"


def make_run(*overrides: str) -> Run:
    """An untrained run, which exports as well as a trained one."""
    config = Config.read(None, ["model.entity_dim=6", *overrides])
    graph = make_graph()
    model = build_model(config.model, graph.n_entities, graph.n_relations, seed=3).eval()
    if not config.model.harmony:
        model.form.scale.data.fill_(2.5)
    return Run(config, graph, model, History())


def textbook(name: str, h: np.ndarray, r: np.ndarray, t: np.ndarray) -> float:
    """The score of one triple, as its paper writes it."""
    if name == "distmult":
        return sum(h[i] * r[i] * t[i] for i in range(len(h)))
    if name == "complex":
        return sum(h[i] * r[i] * t[i].conjugate() for i in range(len(h))).real
    n = len(h)
    return sum(r[k] * h[i] * t[(i + k) % n] for i in range(n) for k in range(n))


@pytest.mark.parametrize("name", ["distmult", "complex", "hole"])
@pytest.mark.parametrize("reciprocal", [False, True])
@pytest.mark.parametrize("normalise", ["true", "false"])
def test_what_pykeen_gets_has_our_scores_by_textbook_formulas(name: str, reciprocal: bool, normalise: str) -> None:
    overrides = [f"model.reciprocal={str(reciprocal).lower()}", f"model.normalise={normalise}"]
    run = make_run(f"model.composition={name}", "model.harmony=false", *overrides)
    tensors, about = pykeen_parts(run)
    entity, relation = (tensors[kind].double().numpy() for kind in ("entity", "relation"))
    if name == "complex":
        entity, relation = (part[..., 0] + 1j * part[..., 1] for part in (entity, relation))
    assert about["shape"] == entity.shape[1] == (3 if name == "complex" else 6)
    test, model = run.graph.test, run.model.double()
    every = 2 if reciprocal else 1  # PyKEEN's relation 2r is r, 2r + 1 its inverse
    for slot in (Slot.HEAD, Slot.TAIL):
        ours = model.score_slot(slot, test).detach().numpy()
        for row, (h, r, t) in enumerate(test.to_rows().tolist()):
            for e in range(run.graph.n_entities):
                head, tail = (e, t) if slot is Slot.HEAD else (h, e)
                if slot is Slot.HEAD and reciprocal:
                    theirs = textbook(name, entity[t], relation[2 * r + 1], entity[e])
                else:
                    theirs = textbook(name, entity[head], relation[every * r], entity[tail])
                assert theirs == pytest.approx(ours[row, e], abs=1e-5)
    assert tensors["test"].tolist() == test.to_rows().tolist()
    assert about["entities"][3] == "e3"
    assert about["create_inverse_triples"] is reciprocal


def test_the_folder_for_pykeen_is_what_its_loader_reads(tmp_path: Path) -> None:
    run = make_run("model.composition=hole", "model.harmony=false")
    written = {path.name for path in harmonium.export(run, tmp_path / "out", to="pykeen")}
    assert written == {"load_pykeen.py", "pykeen.json", "pykeen.npz"}
    assert {"pykeen.json", "pykeen.npz"} <= set((tmp_path / "out" / "load_pykeen.py").read_text().split('"'))
    tensors, about = pykeen_parts(run)
    with np.load(tmp_path / "out" / "pykeen.npz", allow_pickle=False) as arrays:
        assert {name: array.tolist() for name, array in arrays.items()} == {k: v.tolist() for k, v in tensors.items()}
    assert json.loads((tmp_path / "out" / "pykeen.json").read_text(encoding="utf-8")) == about


@pytest.mark.skipif(not PYKEEN.exists(), reason="`make bench` installs PyKEEN")
def test_pykeen_ranks_as_we_do(tmp_path: Path) -> None:
    run = make_run("model.composition=complex", "model.harmony=false", "model.reciprocal=true", "model.normalise=false")
    harmonium.export(run, tmp_path / "out", to="pykeen")
    command = [PYKEEN, tmp_path / "out" / "load_pykeen.py"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYKEEN_HOME": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    theirs, ours = json.loads(done.stdout), harmonium.evaluate(run).metrics
    names = {"mean_rank": "mr", "mean_reciprocal_rank": "mrr", "hits_at_1": "hits@1", "hits_at_10": "hits@10"}
    assert {names[k]: v for k, v in theirs.items() if k in names} == pytest.approx({k: ours[k] for k in names.values()})


@pytest.mark.parametrize("overrides", [("model.harmony=true",), ("model.harmony=false", "model.composition=rescal")])
def test_models_that_pykeen_lacks_are_refused(overrides: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(harmonium.HarmoniumError, match=r"PyKEEN has no (harmonic hole|rescal); plain distmult"):
        harmonium.export(make_run(*overrides), tmp_path / "out", to="pykeen")
    assert not (tmp_path / "out").exists()


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


def test_vectors_are_found_by_name_and_the_missing_stay(tmp_path: Path) -> None:
    run = make_run()
    vectors = np.arange(18.0).reshape(3, 6)
    np.savez(tmp_path / "v.npz", entity_names=["e7", "nobody", "e0"], entity_vectors=vectors)
    before = run.model.entity.detach().clone()
    assert import_embeddings(run.model, run.graph, tmp_path / "v.npz") == {"entity": 2}
    before[[7, 0]] = torch.tensor(vectors[[0, 2]]).float()
    assert torch.equal(run.model.entity, before)


def test_parquet_of_others_needs_only_name_and_vector(tmp_path: Path) -> None:
    import polars as pl

    pl.DataFrame({"name": ["a", "b"], "vector": [[1.0, 2.0], [3.0, 4.0]]}).write_parquet(tmp_path / "v.parquet")
    (table,) = read_vectors(tmp_path / "v.parquet").values()
    assert list(table.names) == ["a", "b"]
    assert table.vectors.tolist() == [[1, 2], [3, 4]]


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


@pytest.mark.parametrize("name", ["pykeen.json", "pykeen.npz", "load_pykeen.py", "harmonium.json"])
def test_files_of_others_are_never_replaced_by_an_export(tmp_path: Path, name: str) -> None:
    run, out = make_run("model.harmony=false"), tmp_path / "mine"
    out.mkdir()
    (out / name).write_text("precious")
    with pytest.raises(harmonium.HarmoniumError, match=f"{name}: not written by harmonium"):
        harmonium.export(run, out, to="pykeen", overwrite=True)
    assert {file.name: file.read_text() for file in out.iterdir()} == {name: "precious"}
    (out / name).rename(out / "notes.txt")
    for _ in range(2):
        harmonium.export(run, out, to="pykeen", overwrite=True)
    assert (out / "notes.txt").read_text() == "precious"


def test_a_file_beside_an_index_is_not_replaced(tmp_path: Path) -> None:
    run, names = make_run("model.harmony=false"), tmp_path / "v.faiss.json"
    names.write_text("precious")
    for overwrite in (False, True):
        with pytest.raises(harmonium.HarmoniumError, match="v.faiss.json: would be replaced"):
            harmonium.export(run, tmp_path / "v.faiss", overwrite=overwrite)
    assert names.read_text() == "precious"
