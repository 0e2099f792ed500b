"""The server under load: python benchmarks/bench_serve.py results/load.json [RUN ...].

64 concurrent clients, and then a crowd of 1,000, send a mix of valid and invalid requests to `harmonium serve` with its
defaults, on loopback, and check every status. A server that is too busy refuses (503 with Retry-After), which is counted;
a client then asks the next question when it was told to. A connection that ends without an answer is an error.
The first graph is `atlas`, trained first; each RUN gets fewer requests. Memory is that of the server process.

--long 100000 measures memory alone, over that many cheaper requests by 16 clients, and adds it to an existing file.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

import numpy as np

import harmonium
from harmonium.model.harmony import Harmony
from harmonium.run.environment import environment
from harmonium.run.run import Run

SETTINGS = ["model.rank=8", "train.epochs=3"]
SHARES = {  # of 100 requests
    "search": 27, "facts": 15, "predictions": 10, "answers": 12, "neighbours": 12, "explain": 2, "map": 3, "info": 4,
    "description": 1, "page": 8, "unknown name": 3, "bad parameter": 2, "wrong address": 1,
}  # fmt: skip
LONG_SHARES = {  # of 100 requests, of the long measurement: no explanations, and few predictions
    "search": 20, "facts": 18, "predictions": 1, "answers": 2, "neighbours": 1, "map": 3, "info": 15, "description": 1,
    "page": 22, "unknown name": 7, "bad parameter": 7, "wrong address": 3,
}  # fmt: skip
LONG_CLIENTS = 16
PAGES = ("/", "/explorer.css", "/explorer.js")
WARM = 0.2  # share of requests before memory is recorded


class Request(NamedTuple):
    kind: str
    method: str
    path: str
    status: int  # expected


class Answer(NamedTuple):
    kind: str
    status: int
    right: bool
    seconds: float

    @property
    def refused(self) -> bool:
        return self.right and self.status == 503


def mixed(run: Run, count: int, seed: int, shares: dict[str, int] = SHARES) -> list[Request]:
    """Requests in random order: true facts, names, prefixes of names, and invalid requests."""
    draw, graph, form = random.Random(seed), run.graph, run.model.form
    facts, names, relations = graph.facts().to_rows().tolist(), graph.entities, graph.relations

    def fact() -> dict[str, str]:
        head, relation, tail = draw.choice(facts)
        return {"head": names.ids[head], "relation": relations.ids[relation], "tail": names.ids[tail]}

    def faithfulness() -> dict[str, float]:
        """Sometimes a lambda that W allows: above its own."""
        if not isinstance(form, Harmony) or draw.random() > 0.3:
            return {}
        return {"lambda": form.faithfulness * draw.randint(10, 20) / 10}

    def answers() -> dict[str, str]:
        given = fact()
        del given[draw.choices(("head", "relation", "tail"), (2, 1, 2))[0]]
        return given

    parameters: dict[str, Callable[[], dict[str, Any]]] = {
        "search": lambda: {"q": names.name(draw.randrange(len(names)))[: draw.randint(1, 8)]},
        "facts": lambda: {"entity": fact()["head"]},
        "predictions": lambda: {"entity": fact()["head"]},
        "answers": answers,
        "neighbours": lambda: fact() | faithfulness(),
        "explain": fact,
        "map": lambda: {"limit": draw.choice((100, 1000, 5000))},
        "info": dict,
    }

    def one(kind: str) -> Request:
        if kind in parameters:
            return Request(kind, "GET", f"/api/v1/{kind}?{urlencode(parameters[kind]())}", 200)
        if kind == "unknown name":
            return Request(kind, "GET", f"/api/v1/facts?{urlencode({'entity': fact()['tail'] + ' ?'})}", 404)
        if kind == "bad parameter":
            path, status = draw.choice((("search?limit=0", 422), ("facts", 400), ("answers?head=x", 400)))
            path = path.replace("=x", "=" + urlencode({"": fact()["head"]})[1:])
            return Request(kind, "GET", f"/api/v1/{path}", status)
        if kind == "wrong address":
            return Request(kind, *draw.choice((("GET", "/api/v1/nothing", 404), ("DELETE", "/api/v1/info", 405))))
        return Request(kind, "GET", "/api/v1/openapi.json" if kind == "description" else draw.choice(PAGES), 200)

    return [one(kind) for kind in draw.choices(list(shares), list(shares.values()), k=count)]


@contextmanager
def serving(run: Path) -> Iterator[tuple[int, int]]:
    """`harmonium serve` on a free port: the port, and the id of the process."""
    command = [sys.executable, "-m", "harmonium", "serve", str(run), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield urlsplit(process.stdout.readline().split()[1]).port, process.pid
        finally:
            process.terminate()


async def client(port: int, waiting: Iterator[Request], answers: list[Answer]) -> None:
    """Send one request after another over one connection; reconnect if the server closes it."""
    writer = None
    for request in waiting:
        begun = time.perf_counter()
        try:
            if writer is None:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"{request.method} {request.path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            fields = dict(line.split(": ", 1) for line in head.splitlines()[1:] if line)
            body = await reader.readexactly(int(fields["content-length"]))
            status = int(head.split()[1])
        except (asyncio.IncompleteReadError, OSError):
            status, fields, body = 0, {"connection": "close"}, b""
        refused = status == 503 and "retry-after" in fields
        whole = request.path in PAGES or body[:1] + body[-1:] in (b"{}", b"[]")
        answers.append(
            Answer(request.kind, status, (refused or status == request.status) and whole, time.perf_counter() - begun)
        )
        if writer and fields.get("connection") == "close":
            writer.close()
            writer = None
        if refused:
            await asyncio.sleep(float(fields["retry-after"]))
    if writer:
        writer.close()


async def asked(port: int, requests: list[Request], clients: int, progress: Callable[[int], None]) -> list[Answer]:
    waiting, answers = iter(requests), []
    work = asyncio.gather(*(client(port, waiting, answers) for _ in range(clients)))
    while not work.done():
        progress(len(answers))
        await asyncio.wait({work}, timeout=0.5)
    await work
    return answers


def resident(process: int) -> float:
    """Resident megabytes of a process (Linux)."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def figures(answers: list[Answer]) -> dict[str, Any]:
    """Quantiles of response times in milliseconds."""
    times = [1e3 * answer.seconds for answer in answers]
    p50, p95, p99 = np.quantile(times, (0.5, 0.95, 0.99)).tolist()
    return {"requests": len(times), "p50_ms": round(p50, 2), "p95_ms": round(p95, 2), "p99_ms": round(p99, 2),
            "longest_ms": round(max(times), 2)}  # fmt: skip


def by_kind(answers: list[Answer]) -> dict[str, Any]:
    kinds = {kind: [answer for answer in answers if answer.kind == kind] for kind in SHARES}
    return {"all": figures(answers)} | {kind: figures(group) for kind, group in kinds.items() if group}


def load(run: Path, count: int, clients: int, crowd: int, seed: int) -> dict[str, Any]:
    opened = Run.of(run)
    with serving(run) as (port, process):
        alone = asyncio.run(asked(port, mixed(opened, min(count // 10, 500), seed + 1), 1, lambda _: None))
        some = busy(port, process, mixed(opened, count, seed), clients)
        many = busy(port, process, mixed(opened, count, seed + 2), crowd) if crowd else None
    measured = {"entities": opened.graph.n_entities, "one_client": by_kind(alone)} | some
    return measured if many is None else measured | {"crowd": many}


def measure_memory(run: Path, count: int, seed: int) -> dict[str, Any]:
    opened = Run.of(run)
    with serving(run) as (port, process):
        requests = mixed(opened, count, seed, LONG_SHARES)
        return {"entities": opened.graph.n_entities, **busy(port, process, requests, LONG_CLIENTS)}


def busy(port: int, process: int, requests: list[Request], clients: int) -> dict[str, Any]:
    """What clients without pauses see, and the memory of the server meanwhile."""
    memory, count, begun = [(0, resident(process))], len(requests), time.perf_counter()
    answers = asyncio.run(asked(port, requests, clients, lambda done: memory.append((done, resident(process)))))
    seconds = time.perf_counter() - begun
    memory.append((count, resident(process)))
    warm = [(done, size) for done, size in memory if done >= WARM * count]
    slope = float(np.polyfit(*zip(*warm, strict=True), 1)[0]) if len(warm) > 2 else 0.0
    wrong: dict[str, int] = {}
    for answer in answers:
        if not answer.right:
            key = f"{answer.kind}: {answer.status or 'connection lost'}"
            wrong[key] = wrong.get(key, 0) + 1
    answered = [answer for answer in answers if not answer.refused]
    return {
        "clients": clients,
        "requests": len(answers),
        "without_an_answer": sum(answer.status == 0 for answer in answers),
        "wrong_answers": sum(wrong.values()),
        "wrong_by_kind": wrong,
        "refused": len(answers) - len(answered),
        "refusals": figures([answer for answer in answers if answer.refused] or answers[:1]),
        "seconds": round(seconds, 1),
        "requests_per_second": round(len(answered) / seconds, 1),
        "under_load": by_kind(answered),
        "memory": {
            "first_mb": round(memory[0][1], 1),
            "warm_mb": round(warm[0][1], 1),
            "last_mb": round(memory[-1][1], 1),
            "most_mb": round(max(size for _, size in memory), 1),
            "slope_mb_per_1000_requests": round(1000 * slope, 3),
            "median_by_tenth_mb": medians(memory, count),
            "median_last_tenth_mb": round(statistics.median(s for d, s in memory if d >= 0.9 * count), 1),
        },
    }


def medians(memory: list[tuple[int, float]], count: int) -> list[float]:
    """Median memory in each tenth of the requests, as far as it was recorded."""
    tenths = [[size for done, size in memory if i <= 10 * done / count < i + 1] for i in range(10)]
    return [round(statistics.median(sizes), 1) for sizes in tenths if sizes]


def show(name: str, measured: dict[str, Any]) -> None:
    about = {key: value for key, value in measured.items() if not isinstance(value, dict)}
    print(name, about, measured["wrong_by_kind"], measured["memory"], sep="\n")
    for kind, under in measured["under_load"].items():
        alone = measured.get("one_client", {}).get(kind, {})
        print(f"{kind:14}", *(f"{key} {under[key]} ({alone.get(key, '-')})" for key in under), sep="  ", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN")
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--fewer", type=int, default=2_000, help="requests to each RUN")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--crowd", type=int, default=1000, help="clients of the second measurement; 0: none")
    parser.add_argument("--long", type=int, default=0, help="requests of the measurement of memory alone")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    if chosen.long:
        add_long(chosen.out, chosen.long, chosen.seed)
    else:
        measure_all(chosen)


def add_long(out: Path, count: int, seed: int) -> None:
    """Add the measurement of memory to a file of the others."""
    about = {
        "command": f"python benchmarks/bench_serve.py {out} --long {count}",
        "environment": environment(),
        "shares": LONG_SHARES,
        "load_before": os.getloadavg()[0],
    }
    with tempfile.TemporaryDirectory() as folder:
        atlas = Path(folder) / "atlas"
        harmonium.train(data="atlas", overrides=SETTINGS, out=atlas)
        measured = measure_memory(atlas, count, seed)
    show("atlas, long", measured)
    others = json.loads(out.read_text(encoding="utf-8"))
    out.write_text(json.dumps(others | {"long": about | measured}, indent=1) + "\n", encoding="utf-8")


def measure_all(chosen: argparse.Namespace) -> None:
    about = {
        "command": f"python benchmarks/bench_serve.py {chosen.out} {' '.join(run.name for run in chosen.runs)}".strip()
        + f" --requests {chosen.requests} --fewer {chosen.fewer} --clients {chosen.clients} --crowd {chosen.crowd}",
        "environment": environment(),
        "cores": os.cpu_count(),
        "seed": chosen.seed,
        "shares": SHARES,
        "load_before": os.getloadavg()[0],
    }
    graphs = {}
    with tempfile.TemporaryDirectory() as folder:
        atlas = Path(folder) / "atlas"
        if chosen.requests:
            harmonium.train(data="atlas", overrides=SETTINGS, out=atlas)
        for run, count in ((atlas, chosen.requests), *((run, chosen.fewer) for run in chosen.runs)):
            if count:
                name = Run.of(run).graph.name
                graphs[name] = measured = load(run, count, chosen.clients, chosen.crowd, chosen.seed)
                show(name, measured)
                if "crowd" in measured:
                    show(f"{name}, crowd", measured["crowd"])
    chosen.out.write_text(json.dumps(about | {"graphs": graphs}, indent=1) + "\n", encoding="utf-8")
    parts = [part for measured in graphs.values() for part in (measured, measured.get("crowd")) if part]
    if any(part["wrong_answers"] for part in parts):
        raise SystemExit("wrong answers; see wrong_by_kind")


if __name__ == "__main__":
    main()
