"""Plain against harmonic: the same vectors with W and without it."""

from __future__ import annotations

import torch

from harmonium.analysis.plain_comparison import PlainComparison, without_harmony
from harmonium.config.settings import ModelConfig
from harmonium.data.triples import Triples
from harmonium.evaluation.metrics import Ranks
from harmonium.model.build import build_model


def ranks(*values: int) -> Ranks:
    better = torch.tensor(values) - 1
    zero = torch.zeros_like(better)
    return Ranks(better, zero, zero + 100, zero, zero.bool())


def test_without_harmony_the_score_is_the_sum_of_the_composed_vector() -> None:
    model = build_model(ModelConfig("hole", 8), 6, 2)
    triples = Triples.from_rows([[0, 1, 2], [3, 0, 4]])
    plain = without_harmony(model)
    composed = model.compose(triples)
    torch.testing.assert_close(plain.form.fold()(composed), composed.sum(-1))
    assert model.form is not plain.form
    torch.testing.assert_close(plain.entity, model.entity)


def test_ranks_are_compared_query_by_query() -> None:
    comparison = PlainComparison.of(ranks(1, 2, 4, 5), ranks(2, 2, 2, 10), "realistic")
    assert (comparison.queries, comparison.better, comparison.worse) == (4, 2, 1)
    assert abs(comparison.change - (0.5 + 0 - 0.25 + 0.1) / 4) < 1e-12
    assert comparison.harmonic["mrr"] - comparison.plain["mrr"] - comparison.change < 1e-12
    assert comparison.verdict.startswith("no difference")


def test_a_clear_difference_is_called_one() -> None:
    first, second = [1] * 50 + [2] * 50, [2] * 50 + [4] * 50
    assert PlainComparison.of(ranks(*first), ranks(*second), "realistic").verdict == "better with W"
    assert PlainComparison.of(ranks(*second), ranks(*first), "realistic").to_json()["verdict"] == "worse with W"
    assert PlainComparison.of(ranks(1), ranks(9), "realistic").verdict.startswith("no difference")  # one query
