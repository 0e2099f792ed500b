"""Weights of facts: in RDF, in every format there and back, and of facts that are given twice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars
import pytest
import torch

import harmonium
from graph_checks import facts, whole
from harmonium.data.datasets import load
from harmonium.data.formats.registry import GRAPH_FORMAT, targets, writer
from harmonium.data.graph import SPLITS, Graph
from harmonium.errors import HarmoniumError
from small import make_graph

PREFIX = "@prefix : <http://e/> . @prefix rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> .\n"


def line(*terms: str) -> str:
    return " ".join(f"<http://e/{term}>" if term.isalnum() else term for term in terms) + " .\n"


STAR = "<< <http://e/a> <http://e/r> <http://e/b> >>"
SOURCES = {
    "star.ttl": f"{PREFIX} :a :r :b . :b :r :c . << :a :r :b >> :confidence 0.3 .",
    "annotation.ttl": f"{PREFIX} :a :r :b {{| :confidence 0.3 |}} . :b :r :c .",
    "reifier.ttl": f"{PREFIX} :a :r :b ~ :x {{| :weight 0.3 |}} . :b :r :c .",
    "star.nt": line("a", "r", "b") + line(STAR, "confidence", '"0.3"') + line("b", "r", "c"),
    "first.nt": line(STAR, "confidence", '"0.3"') + line("a", "r", "b") + line("b", "r", "c"),
    "star.nq": line("a", "r", "b", "g") + line("b", "r", "c", "g") + line(STAR, "confidence", '"0.3"'),
    "graph.nq": line("a", "r", "b", "g") + line("b", "r", "c", "h") + line("g", "confidence", '"3e-1"'),
    "graph first.nq": line("g", "confidence", '"0.3"') + line("a", "r", "b", "g") + line("b", "r", "c"),
    "graph.trig": f"{PREFIX} :g {{ :a :r :b }} :b :r :c . :g :certainty .3 .",
    "both.trig": f"{PREFIX} :g {{ :a :r :b {{| :probability .3 |}} }} :b :r :c . :g :weight 0.9 .",
    "several.ttl": f"{PREFIX} :a :r :b {{| :confidence 0.1 |}} . :b :r :c . << :a :r :b >> :confidence 0.3 .",
    "quoted.ttl": f"{PREFIX} :b :r :c . << :a :r :b >> :confidence 0.3 .",
}


@pytest.mark.parametrize("name", SOURCES)
def test_what_rdf_says_about_a_fact_or_its_graph_is_its_weight(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(SOURCES[name])
    graph = whole(tmp_path / name)
    weights = {fact[0][-1]: weight for fact, weight in zip(facts(graph), graph.train.weights().tolist(), strict=True)}
    assert weights == {"a": 0.3, "b": 1.0}
    assert graph.n_relations == 1 and graph.n_entities == 3


@pytest.mark.parametrize("option", ["trust", "http://e/trust", "<http://e/trust>"])
def test_the_predicate_of_weights_can_be_chosen(option: str, tmp_path: Path) -> None:
    text = f"{PREFIX} :a :r :b {{| :trust 0.3 ; :confidence 0.9 |}} . :b :r :c ."
    (tmp_path / "a.ttl").write_text(text)
    assert whole(tmp_path / "a.ttl", weight_column=option).train.weights().tolist() == [0.3, 1.0]
    assert whole(tmp_path / "a.ttl").train.weights().tolist() == [0.9, 1.0]


@pytest.mark.parametrize("value", ["-1", '"high"', '"NaN"', '"inf"'])
def test_a_weight_that_is_none_is_an_error_that_names_the_fact(value: str, tmp_path: Path) -> None:
    (tmp_path / "a.ttl").write_text(f"{PREFIX} :a :r :b {{| :confidence {value} |}} .")
    with pytest.raises(HarmoniumError, match="weight of http://e/a http://e/r http://e/b is .* not a finite number"):
        whole(tmp_path / "a.ttl")


# There and back ------------------------------------------------------------------------------------------------------


@pytest.fixture
def graph() -> Graph:
    graph = make_graph()
    weights = [torch.linspace(0, 2, 40, dtype=torch.float64), None, torch.full((10,), 0.1, dtype=torch.float64)]
    splits = zip(graph.splits.items(), weights, strict=True)
    return replace(graph, **{name: replace(triples, weight=weight) for (name, triples), weight in splits})


def by_fact(graph: Graph) -> dict[tuple[str, str, str, str], float]:
    return {
        (split, *fact): weight
        for split in SPLITS
        for fact, weight in zip(facts(graph, split), graph.splits[split].weights().tolist(), strict=True)
    }


WEIGHTED = [to for to in targets() if to != GRAPH_FORMAT and writer(to).has_weights]


@pytest.mark.parametrize("to", WEIGHTED)
def test_a_folder_of_each_format_keeps_weights(graph: Graph, tmp_path: Path, to: str) -> None:
    written = harmonium.convert(graph, tmp_path / "out", to)
    is_rdf = writer(to).has_labels
    assert ["weight-column" in str(note) for note in written.notes] == [True] * (not is_rdf)
    options = {} if is_rdf else {"weight_column": "weight"}
    assert by_fact(load(tmp_path / "out", **options)) == by_fact(graph)
    bare = load(tmp_path / "out")
    assert is_rdf or all(triples.weight is None for triples in bare.splits.values())
    assert by_fact(bare).keys() == by_fact(graph).keys()


@pytest.mark.parametrize("ending", ["csv", "tsv.gz", "txt", "parquet", "jsonl", "nq", "graph"])
def test_one_file_keeps_weights(graph: Graph, tmp_path: Path, ending: str) -> None:
    harmonium.convert(graph, tmp_path / f"out.{ending}")
    options = {} if ending in ("nq", "graph") else {"weight_column": "weight"}
    assert by_fact(load(tmp_path / f"out.{ending}", **options)) == by_fact(graph)


# Given twice ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2]])
def test_of_a_fact_given_twice_the_largest_weight_counts(order: list[int]) -> None:
    rows = [("a", "r", "b", 0.2), ("a", "r", "b", 0.7), ("b", "r", "c", 0.5), ("b", "r", "c", 0.5)]
    table = polars.DataFrame([rows[i] for i in order], schema=["head", "relation", "tail", "w"], orient="row")
    graph = whole(table, weight_column="w")
    assert dict(zip(facts(graph), graph.train.weights().tolist(), strict=True)) == {
        ("a", "r", "b"): 0.7, ("b", "r", "c"): 0.5,
    }  # fmt: skip
    assert [(note.kind, note.count) for note in graph.notes][:2] == [("repeated", 2), ("different weights", 1)]
