"""fit, predict and score on frames, as scikit-learn's users know them."""

from __future__ import annotations

import inspect

import numpy as np
import pandas as pd
import pytest

import harmonium
from harmonium import LinkPredictor
from harmonium.errors import HarmoniumError
from small import family

COLUMNS = ["head", "relation", "tail"]
FAST = {"preset": "paper", "composition": "complex", "entity_dim": 16, "epochs": 80, "learning_rate": 0.05}
SETS = ("train.batch_size=32", "train.negatives=16", "train.evaluate_every=40")


@pytest.fixture(scope="module")
def facts() -> pd.DataFrame:
    graph = family()
    return pd.DataFrame(graph.names_of(graph.facts()), columns=COLUMNS)


@pytest.fixture(scope="module")
def fitted(facts: pd.DataFrame) -> LinkPredictor:
    return LinkPredictor(**FAST, overrides=SETS).fit(facts)


def false_of(facts: pd.DataFrame) -> pd.DataFrame:
    """The same with tails three further on, which no relation of the family has."""
    further = facts["tail"].str.removeprefix("person ").astype(int).add(3).mod(40)
    return facts.assign(tail="person " + further.astype(str))


def test_it_can_be_cloned() -> None:
    """What sklearn.base.clone does and checks: every parameter is stored as it was given."""
    first = LinkPredictor(entity_dim=4, overrides=["train.negatives=8"])
    params = first.get_params(deep=False)
    clone = type(first)(**params)
    assert all(clone.get_params()[name] is value for name, value in params.items())
    assert set(params) == set(inspect.signature(LinkPredictor.__init__).parameters) - {"self", "settings"}
    assert clone.set_params(entity_dim=2, seed=5) is clone
    assert (clone.entity_dim, clone.seed, first.entity_dim) == (2, 5, 4)
    assert repr(clone) == "LinkPredictor(entity_dim=2, seed=5, overrides=['train.negatives=8'])"
    with pytest.raises(HarmoniumError, match="no parameter 'depth'; there are preset"):
        clone.set_params(depth=3)


def test_true_facts_are_labelled(fitted: LinkPredictor, facts: pd.DataFrame) -> None:
    false = false_of(facts)
    both, labels = pd.concat([facts, false]), np.repeat([True, False], len(facts))
    called, probability = fitted.predict(both), fitted.predict_proba(both)
    assert called.dtype == bool and called.shape == (240,)
    assert probability.shape == (240, 2)
    assert np.allclose(probability.sum(1), 1)
    assert np.array_equal(called, fitted.classes_[probability.argmax(1)])
    assert fitted.score(both, labels) == (called == labels).mean() > 0.8
    assert fitted.score(both, np.where(labels, 1, -1)) == fitted.score(both, labels)
    assert probability[labels, 1].mean() > 0.5 > probability[~labels, 1].mean()
    assert fitted.classes_.tolist() == [False, True]


def test_score_without_labels_is_the_mrr(fitted: LinkPredictor, facts: pd.DataFrame) -> None:
    valid = pd.DataFrame(fitted.graph_.names_of(fitted.graph_.valid), columns=COLUMNS)
    assert fitted.score(valid) == pytest.approx(harmonium.evaluate(fitted.run_, split="valid").metrics["mrr"])
    strange = valid.assign(head="nobody")
    assert fitted.score(strange) == 0
    assert fitted.score(pd.concat([valid, strange])) == pytest.approx(fitted.score(valid) / 2)


def test_a_fact_with_an_unseen_name_is_false(fitted: LinkPredictor) -> None:
    strange = pd.DataFrame([("person 0", "next", "nobody"), ("person 0", "next", "person 1")], columns=COLUMNS)
    assert not fitted.predict(strange)[0]
    assert fitted.predict_proba(strange)[0].tolist() == [1, 0]


def test_few_facts_have_probabilities_that_agree_with_their_labels(facts: pd.DataFrame) -> None:
    few = LinkPredictor("paper", epochs=1, entity_dim=4).fit(facts[:60])
    probability = few.predict_proba(facts)[:, 1]
    assert np.array_equal(few.predict(facts), probability >= 0.5)
    assert ((probability >= 0) & (probability <= 1)).all()


def test_labels_leave_false_facts_out_of_training(facts: pd.DataFrame) -> None:
    both = pd.concat([facts[:60], false_of(facts[:60])])
    model = LinkPredictor("paper", epochs=1, entity_dim=4).fit(both, [1] * 60 + [0] * 60)
    true = set(facts[:60].itertuples(index=False, name=None))
    assert set(model.graph_.names_of(model.graph_.facts())) == true


def test_open_queries_are_answered_in_order(fitted: LinkPredictor) -> None:
    rows = [("person 3", "next", None), (None, "next", "person 3"), ("person 5", "next", np.nan)]
    queries = pd.DataFrame(rows, columns=COLUMNS)
    found = fitted.answer(queries, top=2).to_frame()
    assert len(found) == 3  # each has its one answer
    best = found.filter(rank=1)
    assert best["tail"].to_list() == ["person 4", "person 3", "person 6"]
    assert best["head"].to_list() == ["person 3", "person 2", "person 5"]
    same = harmonium.predict(fitted.run_, head="person 3", relation="next", top=2)
    assert found["score"].to_list()[:1] == pytest.approx([answer.score for answer in same])
    two = fitted.answer(queries[["head", "relation"]].iloc[[0]], top=1, new_only=True)
    assert len(two) == 0


def test_malformed_frames_and_labels_are_refused(fitted: LinkPredictor, facts: pd.DataFrame) -> None:
    with pytest.raises(HarmoniumError, match="facts cannot be (read from|made of) a int"):
        LinkPredictor().fit(5)
    with pytest.raises(HarmoniumError, match="facts.csv|facts cannot be read from a str"):
        LinkPredictor().fit("facts.csv", [1, 0])
    with pytest.raises(HarmoniumError, match="head, tail"):
        LinkPredictor().fit(pd.DataFrame({"head": ["a"], "tail": ["b"]}))
    with pytest.raises(HarmoniumError, match="call fit"):
        LinkPredictor().predict(facts)
    for labels in ([1], [2] * len(facts)):
        with pytest.raises(HarmoniumError, match="y is a label for each of 120 facts"):
            fitted.score(facts, labels)
