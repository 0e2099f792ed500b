"""A real server of the explorer, and runs for it to serve."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

from harmonium.config.settings import Config, ModelConfig
from harmonium.data.graph import Graph
from harmonium.model.build import build_model
from harmonium.run.run import History, Run
from harmonium.server.explorer import Explorer
from harmonium.server.server import ReviewOptions, guarded_app, http_server


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Server:
    """A real server on a free port of this machine."""

    def __init__(self, run: Run | list[Run], **options: Any) -> None:
        self.app = guarded_app(run, **options)
        self.explorer: Explorer = self.app.app.state.workers.explorers[0]
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.server = http_server(self.app)
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.listener]})

    def __enter__(self) -> Server:
        self.thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.server.should_exit = True
        self.thread.join()
        self.listener.close()

    @property
    def connections(self) -> int:
        return len(self.server.server_state.connections)

    def ask(self, path: str, method: str = "GET", headers: dict[str, str] | None = None, body: Any = None) -> Reply:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return Reply(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def get(self, name: str, **values: Any) -> Reply:
        return self.ask(f"/api/v1/{name}?{urlencode(values)}")


class ReviewServer(Server):
    """A server with a review, and requests of its reviewers."""

    def __init__(self, run: Run, path: Path | None, names: tuple[str, ...] = ("ana", "ben"), **options: Any) -> None:
        super().__init__(run, review=ReviewOptions(names, path, top=40), **options)
        self.path: Path = self.app.app.state.review.review.store.path

    def post(self, name: str, values: Any, reviewer: str | None = "ana", **headers: str) -> Reply:
        token = {"Authorization": f"Bearer {self.app.issued[reviewer]}"} if reviewer else {}
        sent = {"Content-Type": "application/json", **token, **{k.replace("_", "-"): v for k, v in headers.items()}}
        return self.ask(f"/api/v1/review/{name}", "POST", sent, json.dumps(values))

    def read(self, name: str, reviewer: str = "ana") -> Any:
        reply = self.ask(f"/api/v1/review/{name}", headers={"Authorization": f"Bearer {self.app.issued[reviewer]}"})
        assert reply.status == 200
        return reply.json

    def offer(self, reviewer: str = "ana") -> dict[str, str]:
        fact = self.post("next", {}, reviewer).json["fact"]
        return {slot: fact[slot]["id"] for slot in ("head", "relation", "tail")}

    def judge(self, fact: dict[str, str], verdict: str, reviewer: str = "ana", **more: str) -> Reply:
        return self.post("judge", {**fact, "verdict": verdict, **more}, reviewer)


def untrained(graph: Graph, model: ModelConfig) -> Run:
    built = build_model(model, graph.n_entities, graph.n_relations, seed=0)
    return Run(Config(model=model), graph, built, History([{"seconds": 1.0}], 1, "done"))
