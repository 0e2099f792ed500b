"""Entity tables in host memory: prefetched rows are the current rows, whatever is updated meanwhile."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import nullcontext
from functools import partialmethod
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

import harmonium
from harmonium.config.settings import Config
from harmonium.model.build import build_model
from harmonium.training.entity_store import DeviceStore, HostStore
from harmonium.training.optimisers import RowAdagrad
from small import make_graph

SETS = ["model.entity_dim=6", "train.batch_size=16", "train.negatives=4", "train.epochs=3"]
SETS += ["train.entity_storage=host"]
CPU = torch.device("cpu")


def host_store(table: Tensor) -> HostStore:
    return HostStore(table, RowAdagrad(table, torch.tensor(0.5), torch.Generator().manual_seed(5)), CPU)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_prefetched_rows_are_those_of_a_device_store(dtype: torch.dtype) -> None:
    """Steps share with the one before all of their rows, some or none; `prefetch` comes before `apply_gradient`."""
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(30, 3, generator=generator).to(dtype)
    table, other = start.clone(), start.clone()
    store = host_store(table)
    plain = DeviceStore(other, RowAdagrad(other, torch.tensor(0.5), torch.Generator().manual_seed(5)))
    steps = [torch.arange(0, 10), torch.arange(0, 10), torch.arange(10, 20), torch.arange(5, 30, 3), torch.arange(30)]
    steps += [torch.randperm(30, generator=generator)[:12].sort().values for _ in range(10)]
    for ids, next_ids in itertools.pairwise([*steps, None]):
        gradient = torch.randn(len(ids), 3, generator=generator)
        rows = store.fetch(ids)
        assert torch.equal(rows, plain.fetch(ids))
        assert rows.dtype == torch.float32
        if next_ids is not None:
            store.prefetch(next_ids)
        for each in (store, plain):
            each.apply_gradient(gradient)
    assert torch.equal(table, other)
    assert not torch.equal(table, start)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_through_pinned_memory_are_the_same(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *shape, pin_memory=False, **more: plain(*shape, **more))
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "default_stream", lambda device: None)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda self, stream: None)
    monkeypatch.setattr(torch.Tensor, "to", partialmethod(copied, plain=torch.Tensor.to))
    start = torch.randn(30, 3, generator=torch.Generator().manual_seed(0)).to(dtype)
    tables = [start.clone() for _ in range(2)]
    fetched = []
    for table, stream in zip(tables, (None, SimpleNamespace(synchronize=lambda: None)), strict=True):
        store = host_store(table)
        store.stream = stream
        for ids, next_ids in itertools.pairwise([torch.arange(0, 9), torch.arange(4, 20), torch.arange(20, 30), None]):
            fetched.append(store.fetch(ids))
            if next_ids is not None:
                store.prefetch(next_ids)
            store.apply_gradient(torch.full((len(ids), 3), 0.7))
    assert torch.equal(*tables)
    assert all(torch.equal(one, other) for one, other in zip(fetched[:3], fetched[3:], strict=True))


def copied(tensor: Tensor, *how: object, plain: Callable[..., Tensor], **more: object) -> Tensor:
    """`Tensor.to` as to another device: never the same memory."""
    return plain(tensor, *how, **more).clone()


# Training --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [[], ["model.dropout=0.3"], ["model.entity_dtype=bfloat16"]])
def test_host_storage_gives_the_result_of_device_storage_to_the_byte(more: list[str]) -> None:
    graph = make_graph(400, 3, (200, 20, 20))
    overrides = [*SETS, *more, "train.device=cpu"]  # a GPU adds in no fixed order
    expected = harmonium.train(graph, "paper", overrides=[*overrides, "train.entity_storage=device"])
    run = harmonium.train(graph, "paper", overrides=overrides)
    assert torch.equal(run.model.entity, expected.model.entity)
    assert torch.equal(run.model.relation, expected.model.relation)
    assert run.history.rows[-1]["loss"] == expected.history.rows[-1]["loss"]
    assert run.evaluation.metrics == expected.evaluation.metrics


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("more", [[], ["model.entity_dtype=bfloat16"], ["model.composition=distmult", "train.n3=0.1"]])
def test_a_gpu_trains_with_a_table_in_host_memory(more: list[str]) -> None:
    config, graph = Config.read(None, [*SETS, *more]), make_graph(400, 3, (200, 20, 20))
    model = build_model(config.model, graph.n_entities, graph.n_relations).move_to("cuda", "host")
    assert {p.device.type for name, p in model.named_parameters() if name != "entity"} == {"cuda"}
    assert model.entity.device.type == "cpu"
    run, expected = (
        harmonium.train(
            config="paper", data=graph, overrides=[*SETS, *more, "train.device=cuda", f"train.entity_storage={storage}"]
        )
        for storage in ("host", "device")
    )
    assert run.history.rows[-1]["loss"] == pytest.approx(expected.history.rows[-1]["loss"], rel=1e-2)
    assert run.evaluation.metrics["mrr"] == pytest.approx(expected.evaluation.metrics["mrr"], abs=0.02)
