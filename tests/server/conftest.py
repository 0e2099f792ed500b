from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest

import harmonium
from harmonium.data.vocabulary import Vocabulary
from serving import Server
from small import family

SCRIPT = "<script>alert(1)</script>"


@pytest.fixture(scope="session")
def run() -> harmonium.Run:
    """A trained run on `family`; identifiers are q0, q1, ..., and the last name is a script."""
    graph = family()
    names = [*graph.entities.ids[:-1], SCRIPT]
    graph = dataclasses.replace(graph, entities=Vocabulary([f"q{i}" for i in range(40)], names, "entity"))
    overrides = ["model.entity_dim=16", "train.epochs=15", "train.learning_rate=0.05", "train.batch_size=32"]
    return harmonium.train(graph, "paper", overrides=[*overrides, "train.negatives=16"])


@pytest.fixture(scope="session")
def server(run: harmonium.Run) -> Iterator[Server]:
    with Server(run) as started:
        yield started
