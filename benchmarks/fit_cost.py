"""Fit the cost model to measured steps, check it on others, and predict: python benchmarks/fit_cost.py.

Reads results/scale.json, bench-cpu.json, bench-gpu.json and, where it was made, bench-large-gpu.json; writes
results/cost-model.json and docs/images/cost.png. What it fits stands in harmonium.cost.MACHINES, to two digits.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.optimize import nnls

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from harmonium.cost import MACHINES, Cost, Machine, Work, cost
from harmonium.run import environment

ROOT = Path(__file__).resolve().parents[1]
Steps = list[tuple[str, Work, float]]  # what, its sizes, the seconds of a step
RANKS = {"distmult": 0, "hole": 0, "h_rank8distmult": 8, "h_rank8hole": 8, "hdistmult": None, "hhole": None}
CONSTANTS = ("fixed", "operations", "bytes", "multiplies")
GRAPHS = {"FB15K": (14_951, 483_142), "Debian12": (143_075, 1_240_000), "10 million": (10**7, 10**8)}
GRAPHS["Wikidata"] = (10**8, 10**9)


def result(name: str) -> dict | None:
    path = ROOT / "results" / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def cpu_steps() -> tuple[Steps, Steps]:
    """Those to fit, one thing varied at a time, and those to check, of another benchmark; a full W is fitted by one."""
    found, middle = result("scale"), result("scale")["middle"]
    fitted, checked = [], []
    for name, sweep in found["sweeps"].items():
        for size, ms in zip(sweep["sizes"], sweep["milliseconds"], strict=True):
            of = middle | {name: size}
            work = Work(of["entities"], of["triples"], 200, of["dim"], of["rank"], 512, of["negatives"])
            fitted.append((f"{name} = {size:,}", work, ms / 1000))
    for name, rank in RANKS.items():
        step = (f"{name}, FB15K-237", Work(14_541, 272_115, 237, 128, rank, 512, 32))
        seconds = 512 / result("bench-cpu")["ours"][f"sampled/{name}"]["throughput"]
        (fitted if name == "hdistmult" else checked).append((*step, seconds))
    return fitted, checked


def large_steps(where: str) -> Steps:
    """Those with the table on the device or on its host, where they were measured."""
    large, found = result("bench-large-gpu") or {"cases": {}}, []
    for name, case in large["cases"].items():
        model, table, negatives = name.split("; ")
        place, dtype, optimiser, *_ = table.split(", ")
        if place == where:
            of, rank = large["sizes"], {"distmult": 0, "hdistmult": None}.get(model, 16)
            shared = of["shared"] if "shared" in negatives else 1
            work = Work(of["entities"], of["triples"], of["relations"], of["dim"], rank, of["batch"], of["negatives"])
            work = replace(work, shared=shared, epochs=1, optimizer=optimiser, dtype=dtype, table=place)
            found.append((name, work, case["ms_per_step"] / 1000))
    return found


def gpu_steps() -> tuple[Steps, Steps]:
    """Every other case on the device is fitted, the rest checked; without them only FB15K's."""
    work = Work(14_951, 483_142, 1_345, 512, None, 512, 500)
    small = [(f"{name}, FB15K", work, ms / 1000) for name, ms in result("bench-gpu")["step_ms"].items()]
    found = large_steps("device")
    return found[::2], small + found[1::2]


def link(machine: Machine) -> float:
    """Bytes a second between host and GPU, the host's own work with them included: what is left of steps with prefetch."""
    steps = [(work, seconds) for name, work, seconds in large_steps("host") if "prefetch" in name]
    alone = [cost(replace(work, table="device"), machine).step_seconds for work, _ in steps]
    rates = [work.carried / max(1e-6, seconds - one) for (work, seconds), one in zip(steps, alone, strict=True)]
    return float(f"{np.median(rates):.1e}") if rates else machine.link


def fit(steps: Steps) -> dict[str, float]:
    """Constants, none of them negative, by least squares of relative errors."""
    costs = np.array([[1.0, work.operations, work.bytes, work.multiplies] for _, work, _ in steps])
    found, _ = nnls(costs / np.array([[seconds] for *_, seconds in steps]), np.ones(len(steps)))
    return {
        name: float(f"{value if name == 'fixed' else 1 / max(value, 1e-18):.1e}")
        for name, value in zip(CONSTANTS, found, strict=True)
    }


def errors(steps: Steps, machine: str) -> list[dict]:
    found = [(name, seconds, cost(work, MACHINES[machine]).step_seconds) for name, work, seconds in steps]
    return [{"step": n, "measured_ms": 1000 * s, "predicted_ms": 1000 * p, "error": p / s - 1} for n, s, p in found]


def predictions() -> list[dict]:
    """Ten epochs, d = 256, W of rank 16, 128 negatives shared by 64 triples; each process adds a batch of its own."""
    found = []
    for graph, (entities, triples) in GRAPHS.items():
        work = Work(entities, triples, shared=64)
        compact = replace(work, optimizer="row-adagrad", dtype="bfloat16")
        slow, fast = replace(work, batch=512), MACHINES["h200"]
        for name, some, machine, least in (
            ("2-core CPU machines, Adam", slow, MACHINES["cpu"], 1),
            ("2-core CPU machines, compact", replace(compact, batch=512), MACHINES["cpu"], 1),
            ("one H200, Adam", work, fast, 1),
            ("one H200, compact", compact, fast, 1),
            ("one H200, table on its host", replace(compact, dtype="float32", table="host"), fast, 1),
            ("8 H200, Adam", work, fast, 8),
            ("8 H200, compact", compact, fast, 8),
        ):
            best = widened(some, machine, least, "CPU" in name)
            found.append({"graph": graph, "on": name} | (told(best) if best else {"processes": None}))
    return found


def widened(work: Work, machine: Machine, processes: int, more: bool) -> Cost | None:
    """With so many processes, or the more that it takes, and a batch that grows with them."""
    while True:
        found = cost(replace(work, processes=processes, batch=work.batch * processes), machine)
        if found.fits or not more or processes > 1 << 12:
            return found if found.fits else None
        processes *= 2


def told(found: Cost) -> dict:
    return {
        "processes": found.work.processes,
        "memory_gb": found.memory / 1e9,
        "host_gb": sum(found.work.tables.values()) / 1e9 if found.work.table == "host" else 0,
        "step_ms": 1000 * found.step_seconds,
        "sent_mb": found.work.sent / 1e6,
        "hours": found.hours,
        "bottleneck": found.bottleneck,
    }


def plot(found: list[dict], path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    styles = {"2-core": ("#8a5a00", "o"), "one": ("#1b7f5c", "s"), "8": ("#2b4fa2", "^")}
    for name in dict.fromkeys(row["on"] for row in found):
        rows = [row for row in found if row["on"] == name and row["processes"]]
        colour, mark = styles[name.split()[0]]
        line = "--" if "Adam" in name else ":" if "host" in name else "-"
        axes.loglog([GRAPHS[r["graph"]][1] for r in rows], [r["hours"] for r in rows], line, color=colour, marker=mark,
                    label=name)  # fmt: skip
        for row in rows:
            if "CPU" in name and row["processes"] > 1:
                at = (GRAPHS[row["graph"]][1], row["hours"])
                axes.annotate(f"{row['processes']} machines", at, fontsize=7, xytext=(-4, 6), ha="right",
                              textcoords="offset points")  # fmt: skip
    axes.set_xticks([triples for _, triples in GRAPHS.values()], list(GRAPHS))
    axes.minorticks_off()
    axes.set_ylabel("hours, predicted, of 10 epochs")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=110)


def main() -> None:
    about = {"command": "python benchmarks/fit_cost.py", "environment": environment(), "machines": {}}
    for name, (fitted, checked) in {"cpu": cpu_steps(), "h200": gpu_steps()}.items():
        constants = fit(fitted) if fitted else {key: getattr(MACHINES[name], key) for key in CONSTANTS}
        if name == "h200":
            constants["link"] = link(replace(MACHINES[name], **constants))
        for key, value in constants.items():
            if value != getattr(MACHINES[name], key):
                print(f"cost.MACHINES[{name!r}].{key} should be {value:g}")
        found = {"constants": constants, "fitted": errors(fitted, name), "checked": errors(checked, name)}
        about["machines"][name] = found
        for row in found["fitted"] + found["checked"]:
            print(f"{row['step']:60} {row['measured_ms']:8.2f} {row['predicted_ms']:8.2f} ms {row['error']:+.0%}")
    about["predictions"] = predictions()
    for row in about["predictions"]:
        print(row)
    plot(about["predictions"], ROOT / "docs/images/cost.png")
    (ROOT / "results/cost-model.json").write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
