"""The changes that the benchmark of updates makes."""

from __future__ import annotations

import bench_update
import pytest

from harmonium.config.settings import Config
from harmonium.training.refit import local_refit
from small import family, make_graph

SETTINGS = ["model.entity_dim=8", "train.batch_size=50", "train.epochs=2", "train.device=cpu"]


@pytest.mark.parametrize("kind", bench_update.KINDS)
def test_an_update_is_compared_with_training_again(kind: str) -> None:
    graph = family(30)
    change = bench_update.make_change(graph, kind, 0.1, seed=0)
    everything = set(graph.names_of(graph.train))
    before, after = (set(g.names_of(g.train)) for g in (change.before, change.graph))
    assert (before if kind == "remove" else after) == everything
    assert before ^ after == set(change.graph.names_of(change.added)) | set(change.graph.names_of(change.removed))
    assert (kind == "entities") == bool(change.new_entities) and (kind == "relations") == bool(change.new_relations)
    result = bench_update.measure(change, Config.read("plain", SETTINGS), {})
    assert result["changed_facts"] == len(before ^ after) > 0
    assert 0 < result["mrr"]["changed"]["updated"] <= 1 and result["times_faster"] > 0
    assert ("base" in result["mrr"]["changed"]) == (kind in ("add", "remove"))


def test_many_updates_in_a_row_are_compared_with_training_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_refit, "STEPS", 3)
    graph, config = make_graph(40, 12, sizes=(400, 20, 20)), Config.read("plain", SETTINGS)
    start, changes = bench_update.random_chain(graph, 6, seed=0)
    added, removed = (bench_update.Triples.cat(list(facts)) for facts in zip(*changes, strict=True))
    everything, first = set(graph.names_of(graph.train)), set(start.names_of(start.train))
    new, gone = set(graph.names_of(added)), set(graph.names_of(removed))
    assert len(new) == len(added) and not new & first and gone <= first and new | first <= everything
    *_, last = bench_update.measure_chain(graph, 6, config, {})
    assert last["updates"] == 6 and last["changed_facts"] == len(new) + len(gone)
    assert last["counts"]["added"] == len(new) and last["counts"]["removed"] == len(gone)
    assert 0 < last["mrr"]["added"]["updated"] <= 1 and 0 < last["mrr"]["removed"]["retrained"] <= 1
