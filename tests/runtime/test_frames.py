"""Results as tables say what the results say."""

from __future__ import annotations

import sys
from dataclasses import replace

import polars as pl
import pytest

import harmonium
from harmonium.analysis.neighbours import guise_of
from harmonium.answers.open_run import open_run
from harmonium.errors import HarmoniumError
from harmonium.run.run import Run
from harmonium.runtime.frames import ResultList
from small import family


@pytest.fixture(scope="module")
def run() -> Run:
    return harmonium.train(
        config="paper", data=family(), overrides=["model.entity_dim=8", "train.epochs=3", "train.batch_size=32"]
    )


def test_answers_facts_and_missing_facts_are_tables(run: Run) -> None:
    answers = harmonium.predict(run, head="person 0", relation="next", top=4)
    frame = answers.to_frame()
    assert frame.columns == [
        "head", "relation", "tail", "probability", "reason", "known", "rank", "score", "open", "name", "text",
    ]  # fmt: skip
    assert frame["name"].to_list() == [answer.name for answer in answers]
    scored = harmonium.score(run, [("person 0", "next", "person 1"), ("person 1", "twin", "person 2")])
    assert scored.to_frame()["rank"].to_list() == [fact.rank for fact in scored]
    fewer = replace(run.graph, train=run.graph.train[5:])  # every slot of `family` has its value
    missing = harmonium.complete(replace(run, graph=fewer), top=5)
    assert missing
    assert missing.to_frame().rows(named=True) == missing.records()
    pandas = missing.to_pandas()
    assert list(pandas.columns) == missing.to_frame().columns
    assert pandas["tail"].tolist() == [fact.tail for fact in missing]


def test_an_evaluation_is_a_table_of_its_parts(run: Run) -> None:
    evaluation = harmonium.evaluate(run)
    frame = evaluation.to_frame()
    assert frame.columns[:4] == ["by", "name", "side", "queries"]
    assert frame.filter(by="all")["mrr"].item() == evaluation.metrics["mrr"]
    assert frame.filter(by="side", name="head")["mr"].item() == evaluation.by_side["head"]["mr"]
    for by in ("side", "category", "relation"):
        assert frame.filter(pl.col("by") == by)["queries"].sum() == len(evaluation.ranks) == 20


def test_a_neighbourhood_is_a_table_of_both_spaces(run: Run) -> None:
    neighbourhood = guise_of(open_run(run), run.graph.train[:1]).neighbourhood(3)
    frame = neighbourhood.to_frame()
    assert frame["space"].to_list() == ["composed"] * 3 + ["token"] * 3
    assert frame["position"].to_list() == [1, 2, 3] * 2
    assert frame["name"].to_list() == [n.name for n in (*neighbourhood.composed, *neighbourhood.token)]


def test_columns_that_start_empty_are_read(run: Run) -> None:
    rows = ResultList([{"known": None}] * 200 + [{"known": "train"}])
    assert rows.to_frame()["known"].drop_nulls().to_list() == ["train"]


def test_without_pandas_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(HarmoniumError, match="pip install pandas"):
        ResultList([{"a": 1}]).to_pandas()
