"""Kelpie's protocol on a small graph."""

from __future__ import annotations

import bench_explain
import pytest

from small import family

SETTINGS = [*bench_explain.COMPLEX, "model.entity_dim=16", "train.batch_size=50", "train.epochs=20", "train.device=cpu"]


@pytest.mark.slow
def test_facts_are_removed_and_compared_with_controls() -> None:
    experiment = bench_explain.Experiment(family(30), SETTINGS, count=4)
    n_predictions = len(experiment.predictions)
    assert (experiment.ranks(experiment.model, experiment.predictions) == 1).all()
    necessary = bench_explain.measure_necessary(experiment, range(1, 2))
    assert necessary["nothing"]["facts"] == 0
    assert -4 * n_predictions <= necessary["explained"]["facts"] < 0
    assert -1 <= necessary["explained"]["hits@1"][0] <= 0
