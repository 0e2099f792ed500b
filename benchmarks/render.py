"""Write the numbers of results/*.json into the docs: python benchmarks/render.py [--check].

Each page has a part between <!-- NAME --> and <!-- /NAME -->, made here and nowhere else; --check fails when it is stale.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
METRICS = ("mr", "mrr", "hits@1", "hits@3", "hits@10")


def result(name: str) -> dict[str, Any]:
    return json.loads((ROOT / "results" / f"{name}.json").read_text(encoding="utf-8"))


def table(head: list[str], rows: list[list[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def numbers(metrics: dict[str, float]) -> list[str]:
    return [f"{metrics['mr']:.0f}", *(f"{metrics[m]:.3f}" for m in METRICS[1:])]


def demo() -> str:
    found = result("demo")
    rows = [
        ["HHolE, rank 8", *numbers(found["metrics"])],
        ["frequency baseline", *numbers(found["frequency_baseline"])],
    ]
    about = f"`{found['command']}`, seed {found['seed']}, trained {found['seconds']:.0f} s on {found['device']}"
    about += f"; {found['protocol']}."
    return f"Link prediction on `atlas`:\n\n{table(['', *METRICS], rows)}\n\n{about}"


def quality() -> str:
    found = result("bench-gpu")
    names = {"hhole": "HHolE, lambda = 1, d = 512", "complex": "ComplEx-N3, reciprocal, d = 2000"}
    rows = []
    for key, run in found["time_to_quality"].items():
        last, protocol = run["curve"][-1], run["protocol"]
        kind = f"{protocol['candidates']}, {protocol['ties']} ties"
        reached = f"{run['reached_after_s']:.0f} s" if run["reached_after_s"] else "not reached"
        rows.append([names[key], kind, *numbers(last), f"{last['seconds']:.0f} s", f"{run['goal']:.3f}: {reached}"])
    head = ["FB15K, one seed", "candidates", *METRICS, "trained", "MRR goal reached after"]
    full = found["ranking"]["hhole"]
    text = f"The same HHolE under the standard protocol (full candidates, realistic ties): MRR {full['mrr']:.3f}."
    return f"{table(head, rows)}\n\n{text} `{found['command']}`, {found['environment']['device']}."


def curves() -> str:
    rows = []
    for key, run in result("bench-gpu")["time_to_quality"].items():
        rows += [
            [key, p["epoch"], f"{p['seconds']:.1f}", f"{p['mrr']:.4f}", f"{p['hits@1']:.4f}"] for p in run["curve"]
        ]
    return table(["run", "epoch", "seconds", "test MRR", "hits@1"], rows)


def speed() -> str:
    gpu, cpu = result("bench-gpu"), result("bench-cpu")
    rows = [
        [
            f"training step, {name}",
            f"{gpu['step_ms'][name]:.2f} ms",
            f"{gpu['reference_step_ms'][name]:.1f} ms (plain PyTorch)",
            goal,
        ]
        for name, goal in (("hdistmult", "2.5 ms"), ("hhole", "3.5 ms"))
    ]
    ranking = gpu["ranking"]["hhole"]
    checked = f"{ranking['different_from_float64']} of {ranking['checked_queries']:,} checked ranks differ from float64"
    rows.append([f"ranking {ranking['queries']:,} queries, HHolE", f"{gpu['ranking_s']:.2f} s", checked, "5 s"])
    for key, name, goal in (("hhole", "HHolE to typed MRR .796", "240 s"), ("complex", "ComplEx to MRR .84", "60 s")):
        rows.append([name, f"{gpu['time_to_quality_s'][key]:.0f} s", "", goal])
    text = "One H200, FB15K:\n\n" + table(["what", "ours", "beside it", "goal"], rows)
    names = {"sampled_training": ("sampled", 5), "all_entity_training": ("all-entity", 40), "ranking": ("ranking", 50)}
    rows = []
    for kind, (task, goal) in names.items():
        for model, ratio in cpu["ratio_to_pykeen"][kind].items():
            mine, peer = cpu["ours"][f"{task}/{model}"], cpu["pykeen"][f"{task}/{model}"]
            memory = f"{mine['peak_rss_mb']:,.0f} / {peer['peak_rss_mb']:,.0f} MB"
            rows.append(
                [task, model, f"{mine['throughput']:,.0f} {mine['unit']}", f"{ratio:.1f} x", f"{goal} x", memory]
            )
    head = ["CPU, two cores, d = 128", "model", "ours", "of PyKEEN 1.11", "goal", "peak memory, ours / PyKEEN"]
    text += f"\n\n{cpu['data']}, one run of `{cpu['command']}`:\n\n{table(head, rows)}"
    rows = [
        [model, f"{cpu['times_slower_than_plain']['sampled'][model]:.1f} x", f"{slower:.1f} x"]
        for model, slower in cpu["times_slower_than_plain"]["ranking"].items()
    ]
    return text + "\n\n" + table(["harmonic model", "training slower than plain", "ranking slower than plain"], rows)


def scale() -> str:
    found = result("scale")
    rows = [
        [
            name,
            " ".join(f"{size:,}" for size in sweep["sizes"]),
            " ".join(f"{cost:.1f}" for cost in sweep["milliseconds"]),
            f"{sweep['exponent']:.2f}",
        ]
        for name, sweep in found["sweeps"].items()
    ]
    about = f"`{found['command']}`, {found['environment']['device']}; around {found['middle']}."
    return f"{table(['varied', 'sizes', 'ms per step', 'exponent'], rows)}\n\n{about}"


PARTS: dict[str, list[tuple[str, Callable[[], str]]]] = {
    "README.md": [("demo", demo), ("quality", quality)],
    "docs/results.md": [("demo", demo), ("quality", quality), ("curves", curves)],
    "docs/performance.md": [("speed", speed)],
    "docs/scale.md": [("scale", scale)],
}


def render(text: str, parts: list[tuple[str, Callable[[], str]]]) -> str:
    for name, make in parts:
        mark = re.compile(rf"(<!-- {name} -->\n).*?(\n<!-- /{name} -->)", re.DOTALL)
        if not mark.search(text):
            raise SystemExit(f"no part <!-- {name} --> to fill")
        body = make()
        text = mark.sub(lambda found, body=body: found[1] + body + found[2], text)
    return text


def main() -> None:
    stale = []
    for page, parts in PARTS.items():
        path = ROOT / page
        before = path.read_text(encoding="utf-8")
        after = render(before, parts)
        if before != after:
            stale.append(page)
            if "--check" not in sys.argv:
                path.write_text(after, encoding="utf-8")
    if stale and "--check" in sys.argv:
        raise SystemExit(f"stale: {', '.join(stale)}; run python benchmarks/render.py")
    print(f"changed: {', '.join(stale) or 'nothing'}")


if __name__ == "__main__":
    main()
