"""How long people wait: python benchmarks/bench_latency.py results/latency.json RUN [--small RUN].

RUN is the run of a large graph (FB15K-237, default settings), --small that of atlas, on which each command is a process of
its own. CPU seconds stand beside those of the clock, since other programs may run. The probabilities of a run are fitted
once; that time is reported by itself.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import harmonium
from harmonium.answers.open_run import OpenRun, open_run
from harmonium.data.triples import Slot
from harmonium.run.environment import environment
from harmonium.run.run import Run
from harmonium.server.explorer import Explorer

REPEATS = 15  # of queries, each a different one
SCORED = 20_000  # facts


def measured(action: Callable[[], Any]) -> dict[str, float]:
    cpu, clock = time.process_time(), time.perf_counter()
    action()
    return {"cpu": round(time.process_time() - cpu, 4), "seconds": round(time.perf_counter() - clock, 4)}


def repeated(actions: Iterator[Callable[[], Any]]) -> dict[str, float]:
    """The median and the slowest, after a first one that fills caches."""
    first, *rows = (measured(action) for action in actions)
    times = {f"{name} {column}": statistics.median(row[column] for row in rows)
             for name in ("median",) for column in ("cpu", "seconds")}  # fmt: skip
    return {"first": first["seconds"], **times, "slowest cpu": max(row["cpu"] for row in rows), "n": len(rows)}


def command(*arguments: object) -> dict[str, float]:
    """One command as a process; CPU seconds are those of the process."""
    before, clock = os.times(), time.perf_counter()
    words = [sys.executable, "-m", "harmonium", *map(str, arguments)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    after = os.times()
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: {done.stderr}")
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return {"cpu": round(cpu, 3), "seconds": round(time.perf_counter() - clock, 3)}


def commands(folder: Path) -> dict[str, dict[str, float]]:
    run = Run.load(folder)
    head, relation, tail = facts_of(run, 1)[0]
    lines = {
        "--help": ("--help",),
        "info": ("info", folder),
        "predict": ("predict", folder, "--head", head, "--relation", relation),
        "explain": ("explain", folder, head, relation, tail),
        "rules": ("rules", folder, "--relation", relation),
    }
    open_run(run).fact_calibration()  # fitted once, not part of a command
    return {name: command(*words) for name, words in lines.items()}


def facts_of(run: Run, count: int) -> list[tuple[str, str, str]]:
    graph, facts = run.graph, run.graph.test if len(run.graph.test) else run.graph.train
    rows = facts[:: max(1, len(facts) // count)][:count].to_rows().tolist()
    return [(graph.entities.ids[h], graph.relations.ids[r], graph.entities.ids[t]) for h, r, t in rows]


def large(folder: Path) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    opened: list[OpenRun] = []

    def open_all() -> None:
        opened.append(open_run(Run.load(folder)))
        _ = opened[0].scorer, opened[0].types, opened[0].known(Slot.TAIL)

    rows["open"] = measured(open_all)
    run = opened[0]
    rows["probabilities, once"] = measured(run.fact_calibration)
    facts = facts_of(run.run, REPEATS + 1)
    rows["predict"] = repeated(lambda h=h, r=r: harmonium.predict(run, head=h, relation=r) for h, r, _ in facts)
    rows["explain"] = repeated(lambda f=f: harmonium.explain(run, *f) for f in facts)
    many = facts_of(run.run, SCORED)
    rows[f"score of {len(many):,} facts"] = measured(lambda: harmonium.score(run, many))
    page = Explorer(run.run)
    rows["page: prepare"] = measured(page.prepare)
    rows["page: fact"] = repeated(lambda f=f: page.fact(*f) for f in facts)
    rows["page: facts"] = repeated(lambda h=h: page.facts(h, None, 0, 50) for h, _, _ in facts)
    rows["page: predictions"] = repeated(lambda h=h: page.predictions(h, 20) for h, _, _ in facts)
    rows["page: explain"] = repeated(lambda f=f: page.explain(*f, 5, False) for f in facts)
    rows["page: neighbourhood"] = repeated(lambda h=h: page.neighbourhood(h, 20) for h, _, _ in facts)
    return {"graph": run.graph.name, "facts": len(run.graph.facts()), "rules": _n_rules(run.run), "times": rows}


def _n_rules(run: Run) -> int:
    return 0 if run.grammar is None else len(run.grammar.rules)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("run", type=Path)
    parser.add_argument("--small", type=Path, help="the run of atlas for commands")
    arguments = parser.parse_args()
    result: dict[str, Any] = {"environment": environment(), "load": os.getloadavg()[0]}
    if arguments.small:
        result["commands"] = commands(arguments.small)
    result["large"] = large(arguments.run)
    arguments.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
