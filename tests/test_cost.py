"""The cost model counts what a step really makes, and its constants are those that were fitted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from harmonium.config import Config
from harmonium.cost import MACHINES, Work, cost, enough
from harmonium.graph import Triples
from harmonium.stepping import Stepper
from harmonium.training import build_model

ROOT = Path(__file__).parents[1]
WORK = Work(entities=100_000, triples=10**6, relations=10, dim=8, rank=2, batch=64, negatives=16)
MACHINE = MACHINES["cpu"]


def stepper(*sets: str, entities: int = 3000) -> tuple[Work, Stepper]:
    base = ["model.entity_dim=8", "model.rank=2", "train.batch_size=64", "train.negatives=16"]
    config, generator = Config.read(None, [*base, *sets]), torch.Generator().manual_seed(0)
    columns = [torch.randint(size, (1000,), generator=generator) for size in (entities, 10, entities)]
    model = build_model(config.model, entities, 10)
    return Work.of(config, entities, 10, 1000), Stepper(model, Triples(*columns), config.train, generator)


@pytest.mark.parametrize("sets", [[], ["train.shared=8"], ["train.optimizer=row-adagrad"]])
def test_rows_are_those_that_a_step_uses(sets: list[str]) -> None:
    work, take_step = stepper(*sets, entities=6000)
    used = [len(take_step._draw(torch.randint(1000, (64,))).ids) for _ in range(20)]
    assert work.rows == pytest.approx(sum(used) / 20, rel=0.02)
    assert work.moved == work.rows
    small, _ = stepper()
    assert small.moved == small.entities == 3000  # all at once


@pytest.mark.parametrize("optimiser", ["adam", "adagrad", "row-adagrad"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_tables_take_what_is_counted(optimiser: str, dtype: str) -> None:
    work, take_step = stepper(f"train.optimizer={optimiser}", f"model.entity_dtype={dtype}", entities=6000)
    size = lambda tensor: tensor.numel() * tensor.element_size()  # noqa: E731
    assert work.tables["entity table"] == work.tables["best model, kept"] == size(take_step.model.entity)
    assert work.tables["optimiser"] == sum(size(t) for t in take_step.rows.state_dict().values() if t.dim())
    everywhere = sum(p.numel() for name, p in take_step.model.named_parameters() if name != "entity")
    assert work.everywhere == pytest.approx(everywhere, abs=10)


def test_operations_are_those_of_the_products() -> None:
    """By hand: 64 triples, two sides, 17 scores each; 8 numbers times three vectors; forward, and twice that back."""
    assert WORK.operations == 6 * (2 * 64 * 17) * 8 * 3
    assert replace(WORK, rank=0).operations == 6 * (2 * 64 * 17) * 8
    assert (WORK.multiplies, replace(WORK, rank=None).multiplies) == (0, 6 * (2 * 64 * 17) * 8 * 8)
    assert WORK.steps == 10 * 15_625


def test_processes_divide_the_work_and_send_rows() -> None:
    four = replace(WORK, processes=4)
    assert four.operations == WORK.operations / 4
    assert sum(four.tables.values()) == sum(WORK.tables.values()) / 4
    assert WORK.sent == 0
    assert four.sent == pytest.approx(0.75 * (four.rows * (8 + 32 + 32) + 8 * four.everywhere))
    assert replace(four, dtype="bfloat16").sent < four.sent
    hosted = replace(WORK, table="host")
    assert (WORK.carried, hosted.carried) == (0, hosted.rows * 64)


def test_seconds_are_sums_and_the_largest_is_named() -> None:
    found = cost(replace(WORK, processes=2), replace(MACHINE, network=1.0))
    assert found.bottleneck == "network"
    assert found.step_seconds == sum(found.step.values()) > found.work.sent
    assert found.hours == found.work.steps * found.step_seconds / 3600


def test_memory_counts_where_it_computes() -> None:
    cpu, gpu = MACHINES["cpu"], MACHINES["h200"]
    tables, order, hosted = sum(WORK.tables.values()), 8 * WORK.triples, replace(WORK, table="host")
    step = WORK.memory["a step"]
    assert cost(WORK, cpu).memory == cost(hosted, cpu).memory == tables + order + step
    assert cost(WORK, gpu).memory == tables + 4 * order + step
    assert cost(hosted, gpu).memory == 4 * order + step


def test_enough_processes_are_found() -> None:
    memory = 0.3 * sum(WORK.tables.values()) + 8 * WORK.triples + WORK.memory["a step"]
    found = enough(WORK, replace(MACHINE, memory=memory))
    assert found.work.processes == 4
    assert enough(WORK, replace(MACHINE, memory=8 * WORK.triples - 1)) is None


def test_constants_are_the_fitted_ones_and_errors_are_as_told() -> None:
    found = json.loads((ROOT / "results" / "cost-model.json").read_text(encoding="utf-8"))["machines"]
    for name, about in found.items():
        for key, value in about["constants"].items():
            assert getattr(MACHINES[name], key) == value
    assert all(abs(row["error"]) < 0.4 for row in found["cpu"]["fitted"])
    assert all(-0.5 < row["error"] < 1.8 for row in found["cpu"]["checked"])  # most for plain models: docs/scale.md
