"""Graphs in plain Python values, to compare them."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from harmonium.data import graph_file
from harmonium.data.datasets import load
from harmonium.data.graph import Graph


def facts(graph: Graph, split: str = "train") -> list[tuple[str, str, str]]:
    """By identifier."""
    rows = graph.splits[split].to_rows().tolist()
    return [(graph.entities.ids[h], graph.relations.ids[r], graph.entities.ids[t]) for h, r, t in rows]


def whole(source: object, **options: Any) -> Graph:
    """Loaded without a split."""
    return load(source, valid=0, test=0, **options)


def everything(graph: Graph) -> tuple[Any, ...]:
    names = [(list(v.ids), v.labels and list(v.labels), v.kind) for v in (graph.entities, graph.relations)]
    return names, [triples.to_rows().tolist() for triples in graph.splits.values()], graph.name, graph.notes


def graph_bytes(graph: Graph) -> bytes:
    """The contents of its file."""
    return b"".join(map(bytes, graph_file.parts(graph)))


MEASURE = """
from pathlib import Path

def anonymous_memory() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("RssAnon")).split()[1]) << 10
"""


def memory_growth(preparation: str, statements: str) -> int:
    """Bytes of memory that map no file, gained by the statements (Linux).

    They run in a process of their own, where no thread of another test allocates anything.
    """
    script = f"{MEASURE}\n{preparation}\nbefore = anonymous_memory()\n{statements}\nprint(anonymous_memory() - before)"
    done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=True)
    return int(done.stdout)
