"""Tables apart from what computes: rows that are read ahead are the rows, whatever moves meanwhile."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import nullcontext
from functools import partialmethod
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import harmonium
from harmonium import stepping, tables
from harmonium.config import Config
from harmonium.errors import HarmoniumError
from harmonium.graph import Slot
from harmonium.optimiser import RowAdagrad
from harmonium.tables import Hosted, Local
from harmonium.training import Training, build_model
from small import make_graph

SETS = ["model.entity_dim=6", "train.batch_size=16", "train.negatives=4", "train.epochs=3", "train.table=host"]
CPU = torch.device("cpu")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_read_ahead_are_those_of_a_plain_table(dtype: torch.dtype) -> None:
    """Steps that share rows with the one before, all of them or none; `expect` comes before `move`, as in training."""
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(30, 3, generator=generator).to(dtype)
    mine, other = start.clone(), start.clone()
    noises = [torch.Generator().manual_seed(5) for _ in range(2)]
    hosted = Hosted(mine, RowAdagrad(mine, torch.tensor(0.5), noises[0]), CPU)
    plain = Local(other, RowAdagrad(other, torch.tensor(0.5), noises[1]))
    steps = [torch.arange(0, 10), torch.arange(0, 10), torch.arange(10, 20), torch.arange(5, 30, 3), torch.arange(30)]
    steps += [torch.randperm(30, generator=generator)[:12].sort().values for _ in range(10)]
    for ids, following in itertools.pairwise([*steps, None]):
        gradient = torch.randn(len(ids), 3, generator=generator)
        rows = hosted.fetch(ids)
        assert torch.equal(rows, plain.fetch(ids))
        assert rows.dtype == torch.float32
        if following is not None:
            hosted.expect(following)
        for table in (hosted, plain):
            table.move(gradient)
    assert torch.equal(mine, other)
    assert not torch.equal(mine, start)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_by_pinned_memory_are_the_same(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a GPU would have done, with a stream that does nothing and memory that is not pinned."""
    plain = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *shape, pin_memory=False, **more: plain(*shape, **more))
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "default_stream", lambda device: None)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda self, stream: None)
    monkeypatch.setattr(torch.Tensor, "to", partialmethod(copied, plain=torch.Tensor.to))
    start = torch.randn(30, 3, generator=torch.Generator().manual_seed(0)).to(dtype)
    tables = [start.clone() for _ in range(2)]
    found = []
    for table, stream in zip(tables, (None, SimpleNamespace(synchronize=lambda: None)), strict=True):
        noise = torch.Generator().manual_seed(5)
        hosted = Hosted(table, RowAdagrad(table, torch.tensor(0.5), noise), CPU)
        hosted.stream = stream
        for ids, following in itertools.pairwise([torch.arange(0, 9), torch.arange(4, 20), torch.arange(20, 30), None]):
            found.append(hosted.fetch(ids))
            if following is not None:
                hosted.expect(following)
            hosted.move(torch.full((len(ids), 3), 0.7))
    assert torch.equal(*tables)
    for one, other in zip(found[:3], found[3:], strict=True):
        assert torch.equal(one, other)


def copied(tensor: torch.Tensor, *how: object, plain: Callable[..., torch.Tensor], **more: object) -> torch.Tensor:
    """As to another device: never the same memory."""
    return plain(tensor, *how, **more).clone()


def test_rows_are_read_before_the_step_moves_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or nothing would be gained: only those that moved are read again."""
    read = []
    plain = Hosted._read
    monkeypatch.setattr(Hosted, "_read", lambda self, ids: (read.append(ids.tolist()), plain(self, ids))[1])
    table = torch.zeros(9, 2)
    hosted = Hosted(table, RowAdagrad(table, torch.tensor(0.5)), CPU)
    hosted.fetch(torch.tensor([0, 1, 2]))
    hosted.expect(following := torch.tensor([1, 2, 7]))
    hosted.expected[1].result()
    hosted.move(torch.ones(3, 2))
    assert hosted.fetch(following).tolist() == [[-0.5, -0.5], [-0.5, -0.5], [0, 0]]
    assert read == [[0, 1, 2], [1, 2, 7], [1, 2]]


def test_what_was_expected_may_not_come() -> None:
    table = torch.arange(8.0)[:, None]
    hosted = Hosted(table, RowAdagrad(table, torch.tensor(0.5)), CPU)
    hosted.fetch(torch.tensor([0]))
    hosted.expect(torch.tensor([3, 4]))
    assert hosted.fetch(torch.tensor([5])).tolist() == [[5.0]]
    hosted.move(torch.ones(1, 1))
    assert table[5] == 4.5


@pytest.mark.parametrize("more", [[], ["model.dropout=0.3"], ["model.entity_dtype=bfloat16"]])
def test_training_from_the_host_gives_the_same_to_the_byte(more: list[str]) -> None:
    """Beside the plain table by rows, which the same settings choose on a graph of this size."""
    graph = make_graph(400, 3, (200, 20, 20))
    sets = [*SETS, *more, "train.device=cpu"]  # a GPU adds in no fixed order
    expected = harmonium.train(data=graph, sets=[*sets, "train.table=device"])
    found = harmonium.train(data=graph, sets=sets)
    assert torch.equal(found.model.entity, expected.model.entity)
    assert torch.equal(found.model.relation, expected.model.relation)
    assert found.history.rows[-1]["loss"] == expected.history.rows[-1]["loss"]
    assert found.metrics["metrics"] == expected.metrics["metrics"]


def test_steps_are_drawn_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """All but the first of an epoch, if the following one is told."""
    expected = []
    plain = Hosted.expect
    monkeypatch.setattr(Hosted, "expect", lambda self, ids: (expected.append(ids), plain(self, ids))[1])
    harmonium.train(data=make_graph(400, 3, (100, 10, 10)), sets=SETS)
    assert len(expected) == 3 * (7 - 1)


def test_going_on_from_a_checkpoint_gives_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in the middle of an epoch, with the next step drawn already."""
    graph, sets = make_graph(400, 3, (200, 20, 20)), [*SETS, "train.checkpoint_every=5", "model.entity_dtype=bfloat16"]
    expected = harmonium.train(data=graph, sets=sets)
    count, plain = 0, stepping.Stepper.__call__

    def stop(self, index, following=None):
        nonlocal count
        count += 1
        if count == 19:
            raise OSError("the plug was pulled")
        return plain(self, index, following)

    monkeypatch.setattr(stepping.Stepper, "__call__", stop)
    with pytest.raises(OSError, match="plug"):
        harmonium.train(data=graph, sets=sets, out=tmp_path / "run")
    monkeypatch.undo()
    found = harmonium.resume(tmp_path / "run")
    assert torch.equal(found.model.entity, expected.model.entity)
    assert torch.equal(found.model.relation, expected.model.relation)


def test_a_step_out_of_order_draws_what_it_would_have() -> None:
    config, graph = Config.read(None, SETS), make_graph(400, 3, (100, 10, 10))

    def losses(tell: bool) -> list[float]:
        model = build_model(config.model, graph.n_entities, graph.n_relations)
        training = Training(model, graph.train, config.train)
        first, second, third, *_ = training.batches()
        told = [second, None, first, third] if tell else [None] * 4
        return [training.take_step(i, f).item() for i, f in zip((first, third, second, second), told, strict=True)]

    assert losses(True) == losses(False)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("more", [[], ["model.entity_dtype=bfloat16"], ["model.composition=distmult", "train.n3=0.1"]])
def test_a_gpu_computes_beside_a_table_on_the_host(more: list[str]) -> None:
    config, graph = Config.read(None, [*SETS, *more]), make_graph(400, 3, (200, 20, 20))
    model = build_model(config.model, graph.n_entities, graph.n_relations).place("cuda", "host")
    assert {p.device.type for name, p in model.named_parameters() if name != "entity"} == {"cuda"}
    assert model.entity.device.type == "cpu"
    found, expected = (
        harmonium.train(data=graph, sets=[*SETS, *more, "train.device=cuda", f"train.table={place}"])
        for place in ("host", "device")
    )
    assert found.history.rows[-1]["loss"] == pytest.approx(expected.history.rows[-1]["loss"], rel=1e-2)
    assert found.metrics["metrics"]["mrr"] == pytest.approx(expected.metrics["metrics"]["mrr"], abs=0.02)


@pytest.mark.parametrize("normalise", ["true", "false"])
def test_a_table_in_fewer_bits_is_ranked_in_blocks(normalise: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config.read(None, ["model.entity_dim=4", "model.entity_dtype=bfloat16", f"model.normalise={normalise}"])
    graph = make_graph(30, 3)
    model = build_model(config.model, 30, 3)
    with torch.no_grad():
        expected = model.score_slot(Slot.TAIL, graph.test)
        monkeypatch.setattr("harmonium.model.BLOCK", {"cpu": 7})
        torch.testing.assert_close(model.score_slot(Slot.TAIL, graph.test), expected)
    torch.testing.assert_close(
        expected.gather(1, graph.test.tail[:, None])[:, 0], model.score(graph.test), rtol=1e-4, atol=1e-5
    )


def test_the_whole_softmax_needs_the_whole_table() -> None:
    with pytest.raises(HarmoniumError, match=r"needs all entities together, not train\.table=host; choose"):
        harmonium.train(data=make_graph(), sets=[*SETS, "train.loss=full"])


def test_pinned_memory_is_taken_again_only_when_it_is_too_small(monkeypatch: pytest.MonkeyPatch) -> None:
    taken, plain = [], torch.empty
    monkeypatch.setattr(
        torch, "empty", lambda *shape, pin_memory=False, **more: taken.append(shape) or plain(*shape, **more)
    )
    pinned = tables.Pinned(torch.float32)
    for m in (10, 12, 13, 3):
        assert pinned.room(m, 4).shape == (m, 4)
    assert taken == [(0,), (50,), (65,)]
