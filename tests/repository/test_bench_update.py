"""The changes that the benchmark of updates makes."""

from __future__ import annotations

import bench_update
import pytest

from harmonium.runtime.config import Config
from small import family

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
