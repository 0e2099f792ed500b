"""Ten small scripts as users of other libraries would write them: they work, or an error says what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pytest

import harmonium
from harmonium.data.triples import Slot
from harmonium.errors import HarmoniumError
from small import family

QUICK: dict[str, Any] = {"preset": "paper", "dim": 16, "epochs": 40, "lr": 0.05, "batch_size": 32, "negatives": 16}


@pytest.fixture(scope="module")
def facts() -> pd.DataFrame:
    graph = family(120)
    return pd.DataFrame(graph.names_of(graph.facts()), columns=["head", "relation", "tail"])


@pytest.fixture(scope="module")
def run(facts: pd.DataFrame) -> harmonium.Run:
    return harmonium.train(facts, model="ComplEx", **QUICK)


def test_pandas_a_column_of_probabilities(facts: pd.DataFrame, run: harmonium.Run) -> None:
    """The rows of a filtered frame keep their index, and so does the new column."""
    df = facts.sample(30, random_state=1).query("relation != 'twin'").copy()
    df["probability"] = run.score(df).to_pandas()["probability"]
    assert df["probability"].notna().all()
    one_by_one = [run.score([tuple(row)])[0].probability for row in df[["head", "relation", "tail"]].to_numpy()]
    assert df["probability"].tolist() == pytest.approx(one_by_one)
    shuffled = run.score(df.iloc[::-1]).to_pandas()["probability"]
    assert shuffled.sort_index().tolist() == pytest.approx(df["probability"].sort_index().tolist())
    messy = df.drop(columns="probability").copy()
    messy.iloc[2, 0], messy.iloc[5, 2] = "nobody", None
    kept = run.score(messy, on_bad="skip").to_pandas()["probability"]
    expected = df["probability"].drop(messy.index[[2, 5]])
    assert kept.index.tolist() == expected.index.tolist()
    assert kept.tolist() == pytest.approx(expected.tolist())


def test_pandas_columns_have_other_names_or_an_order_of_their_own(facts: pd.DataFrame, run: harmonium.Run) -> None:
    expected = [fact.score for fact in run.score(facts[:5])]
    for table in (
        facts[["tail", "head", "relation"]][:5].assign(note="x"),
        facts[:5].rename(columns={"head": "Subject", "relation": "predicate", "tail": "OBJECT"}),
        facts[:5].rename(columns={"head": "who", "tail": "whom"}),
        pl.DataFrame(facts[:5].to_dict("list")),
        facts[:5].to_dict("records"),
        facts[:5].to_dict("list"),
        facts[:5].to_numpy(),
        facts[:5].values.tolist(),
        list(facts[:5].itertuples(index=False, name=None)),
        pd.DataFrame(facts[:5].to_numpy()),  # columns 0, 1, 2
    ):
        assert [fact.score for fact in run.score(table)] == expected
    for wrong, message in (
        (facts.drop(columns="tail"), "head, relation"),
        (facts["head"], "a Series; give|three columns"),
        (facts.assign(tail=None)[:3], "row 1: .*tail"),
        (facts.assign(tail="nobody")[:3], "row 1: no entity named 'nobody'"),
        ([("a", "b")], "relation, tail"),
        ("person 0", "person 0"),
    ):
        with pytest.raises(HarmoniumError, match=message):
            run.score(wrong)


def test_pandas_questions_in_a_frame(run: harmonium.Run) -> None:
    questions = pd.DataFrame({"head": ["person 3", "person 5"], "relation": "next"})
    best = run.predict(questions, top=1).to_pandas()
    assert best["name"].tolist() == ["person 4", "person 6"]
    assert run.predict("person 3", "next", top=1)[0].name == "person 4"
    (before,) = run.predict([(None, "next", "person 3")], top=1)
    assert before.name == run.predict(relation="next", tail="person 3")[0].name
    with pytest.raises(HarmoniumError, match="row 1: give exactly two of head, relation and tail"):
        run.predict([("person 3", None, None)])
    with pytest.raises(HarmoniumError, match="row 1: give exactly two .* 3 given; `score` rates whole facts"):
        run.predict([("person 3", "next", "person 4")])
    with pytest.raises(HarmoniumError, match="name.*relation|relation.*name"):
        run.predict(pd.DataFrame({"name": ["person 3"]}))


def test_networkx_predicted_edges_go_back_into_the_graph(facts: pd.DataFrame) -> None:
    G = nx.from_pandas_edgelist(facts[:-5], "head", "tail", edge_attr="relation", create_using=nx.MultiDiGraph)
    run = harmonium.train(G, **QUICK)
    before = G.number_of_edges()
    for fact in run.complete(top=5):
        G.add_edge(fact.head, fact.tail, relation=fact.relation, probability=fact.probability)
    assert G.number_of_edges() == before + 5
    with pytest.raises(HarmoniumError, match="undirected graph has no heads and tails; graph.to_directed"):
        harmonium.train(nx.Graph([("a", "b")]))


def test_pykeen_names_of_settings(facts: pd.DataFrame) -> None:
    """pipeline(model="ComplEx", embedding_dim=..., num_epochs=..., random_seed=...)."""
    run = harmonium.train(
        facts, "paper", model="DistMult", embedding_dim=8, num_epochs=2, num_negs_per_pos=4, optimizer="Adam",
        lr=0.01, random_seed=3,
    )  # fmt: skip
    assert (run.config.model.composition, run.config.model.entity_dim, run.config.train.epochs) == ("distmult", 8, 2)
    assert (run.config.train.seed, run.config.train.negatives) == (3, 4)
    with pytest.raises(HarmoniumError, match="no composition 'transe'; there are complex, concatenation, distmult"):
        harmonium.train(facts, model="TransE")
    with pytest.raises(HarmoniumError, match="no setting 'training_kwargs'; .*--settings"):
        harmonium.train(facts, training_kwargs={"num_epochs": 5})


def test_a_typing_error_in_a_setting_or_a_name(facts: pd.DataFrame, run: harmonium.Run) -> None:
    with pytest.raises(HarmoniumError, match="no setting 'epoch'; did you mean train.epochs"):
        harmonium.train(facts, epoch=5)
    with pytest.raises(HarmoniumError, match="train.epochs must be a whole number, not '5'"):
        harmonium.train(facts, epochs="5")
    with pytest.raises(HarmoniumError, match="no entity named 'persn 3' .*did you mean 'person 3'"):
        run.predict("persn 3", "next")
    assert {answer.relation for answer in run.predict("person 3", ["next", "twin"])} == {"next", "twin"}
    with pytest.raises(HarmoniumError, match="no entity named '3'"):
        run.predict(3, "next")
    with pytest.raises(HarmoniumError, match="no setting 'k'; there are split, candidates"):
        run.evaluate(k=10)
    for name, meant in (("fit", "train"), ("load_model", "Run.load"), ("neighbors", "similar")):
        with pytest.raises(AttributeError, match=f"no attribute '{name}'; did you mean harmonium.{meant}"):
            getattr(harmonium, name)
    with pytest.raises(HarmoniumError, match="facts cannot be read from a int"):
        harmonium.train(5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda run: run.predict("person 3", "next", top_k=5), "unknown keyword 'top_k'; did you mean 'top'"),
        (lambda run: run.predict("person 3", "next", k=5), "unknown keyword 'k'; did you mean 'top'"),
        (lambda run: run.predict(heads=["person 3"], relation="next"), "did you mean 'head'"),
        (lambda run: run.similar("person 3", n=5), "did you mean 'top'"),
        (lambda run: run.explain("person 0", "next", "person 1", count=5), "did you mean 'top'"),
        (lambda run: run.report(path="page.html"), "did you mean 'out'"),
        (lambda run: run.export("v.npz", overwrit=True), "did you mean 'overwrite'"),
        (lambda run: run.complete(min_probability=0.5), "if row.probability >= 0.5|row.probability >= 0.5"),
        (lambda run: run.complete(relation="nxt"), "no relation named 'nxt' .*did you mean 'next'"),
        (lambda run: run.update(addd=[]), "did you mean 'add'"),
        (lambda run: harmonium.load("atlas", sepp=","), "did you mean 'sep'"),
    ],
)
def test_a_keyword_of_another_library_is_an_error_with_ours(run: harmonium.Run, call: Any, message: str) -> None:
    with pytest.raises(HarmoniumError, match=message):
        call(run)


def test_pykeen_names_vectors_and_similar_entities(facts: pd.DataFrame, run: harmonium.Run) -> None:
    assert run.embeddings.shape == (len(run.entities), 16)
    assert "next" in list(run.relations)
    three = harmonium.similar(run, "PERSON 3", top=3).to_pandas()
    centre = run.embeddings[list(run.entities).index("person 3")]
    cosine = run.embeddings @ centre / np.linalg.norm(run.embeddings, axis=1) / np.linalg.norm(centre)
    assert three["name"].tolist() == [run.entities[i] for i in (-cosine).argsort()[1:4]]
    assert three["similarity"].tolist() == pytest.approx((-np.sort(-cosine)[1:4]).tolist(), abs=1e-5)
    assert {row["name"] for row in run.evaluate(by="relation")} <= {*run.relations}
    assert issubclass(harmonium.GradientGraph, object) and harmonium.Scorer
    first = harmonium.rank(run.model, run.graph.test[:1], Slot.TAIL).values()
    assert 1 <= first.item() <= len(run.entities)


def test_a_graph_becomes_a_frame_and_a_run_folder_is_no_graph(run: harmonium.Run, tmp_path: Path) -> None:
    frame = run.graph.to_pandas()
    assert frame.columns[:4].tolist() == ["head", "relation", "tail", "split"]
    assert len(frame) == len(run.graph.facts()) == len(run.graph.to_frame())
    run.save(tmp_path / "run")
    with pytest.raises(HarmoniumError, match="is a run, not a graph: harmonium.Run.load opens it"):
        harmonium.load(tmp_path / "run")
