"""A real server of the explorer, and runs for it to serve."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from typing import Any, NamedTuple
from urllib.parse import urlencode

import torch

import harmonium
from harmonium.config import Config, ModelConfig
from harmonium.graph import Graph, Triples, Vocabulary
from harmonium.run import Run
from harmonium.serve import AT_ONCE, PATIENCE, guarded_app, http_server
from harmonium.serve.explorer import Explorer
from harmonium.training import History


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Server:
    """A real server on a free port of this machine."""

    def __init__(self, run: Run, patience: float = PATIENCE, at_once: int = AT_ONCE, **options: Any) -> None:
        self.app = guarded_app(run, **options)
        self.explorer: Explorer = self.app.app.state.desk.explorer
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.server = http_server(self.app, patience, at_once)
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.listener]})

    def __enter__(self) -> Server:
        self.thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.server.should_exit = True
        self.thread.join()
        self.listener.close()

    def ask(self, path: str, method: str = "GET", headers: dict[str, str] | None = None, body: Any = None) -> Reply:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return Reply(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def get(self, name: str, **values: Any) -> Reply:
        return self.ask(f"/api/v1/{name}?{urlencode(values)}")


def untrained(graph: Graph, model: ModelConfig) -> Run:
    made = harmonium.build_model(model, graph.n_entities, graph.n_relations, seed=0)
    return Run(Config(model=model), graph, made, History([{"seconds": 1.0}], 1, "done"), {})


def large_run(n: int = 15_000) -> Run:
    """An untrained model of the size of FB15K, with names of several words."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.stack([torch.randint(size, (200_000,), generator=generator) for size in (n, 200, n)], dim=1).unique(
        dim=0
    )
    words = ["old", "new", "north", "south", "river", "stone", "green", "harbour", "field", "hill"]
    names = [f"{words[i % 10]} {words[i // 10 % 10]} {words[i // 100 % 10]} {i}" for i in range(n)]
    splits = [Triples.from_rows(part) for part in (rows[1000:], rows[:500], rows[500:1000])]
    relations = Vocabulary([f"relation {i}" for i in range(200)], kind="relation")
    return untrained(Graph(Vocabulary(names), relations, *splits, name="large"), ModelConfig("hole", 64, rank=8))
