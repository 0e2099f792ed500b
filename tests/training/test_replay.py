from __future__ import annotations

import torch

from harmonium.data.triples import Triples
from harmonium.training.refit.replay import UNIFORM_SHARE, Cycle, Replay
from small import make_graph


def test_the_weighted_mean_of_replayed_facts_is_that_of_all_facts() -> None:
    graph = make_graph(30, sizes=(100, 0, 0))
    kept, changed = graph.train[5:], graph.train[:5]
    replay = Replay(kept, changed, 30, torch.Generator().manual_seed(0))
    drawn = replay.draw(100_000)
    for slot in ("head", "tail"):
        ids, weights = getattr(drawn, slot), drawn.weights()
        mean = torch.zeros(30, dtype=torch.float64).index_add_(0, ids, weights) / len(drawn)
        expected = getattr(kept, slot).bincount(minlength=30) / len(kept)
        torch.testing.assert_close(mean, expected.double(), atol=0.01, rtol=0)
    assert drawn.weights().max() <= 1 / UNIFORM_SHARE + 1e-9
    ends = torch.cat([changed.head, changed.tail])
    concerned = torch.isin(kept.head, ends) | torch.isin(kept.tail, ends)
    assert replay.importance[concerned].max() < replay.importance[~concerned].min()  # drawn more often


def test_replay_without_concerned_facts_is_uniform() -> None:
    facts = Triples.from_rows([[0, 0, 1], [1, 0, 0]])
    replay = Replay(facts, Triples.from_rows([[2, 0, 3]]), 4, torch.Generator().manual_seed(0))
    assert replay.draw(10).weights().eq(1).all()


def test_nothing_is_replayed_where_no_fact_stays() -> None:
    changed = Triples.from_rows([[2, 0, 3]])
    assert not len(Replay(changed[:0], changed, 4, torch.Generator().manual_seed(0)).draw(10))


def test_a_cycle_draws_every_position_once_before_any_again() -> None:
    cycle = Cycle(10, torch.Generator().manual_seed(0))
    drawn = torch.cat([cycle.draw(5) for _ in range(6)])
    assert drawn.bincount().tolist() == [3] * 10
    assert len(cycle.draw(64)) == 10 and len(Cycle(0, torch.Generator()).draw(5)) == 0
