"""Write the numbers of results/*.json into the docs: python benchmarks/render.py [--check].

Each page has a part between <!-- NAME --> and <!-- /NAME -->, made here and nowhere else; --check fails when it is stale.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from harmonium import records
from harmonium.config import EvaluateConfig
from harmonium.evaluation import describe
from harmonium.records import Record
from harmonium.reproduce import CONTROLS, published

ROOT = Path(__file__).resolve().parents[1]
PAPER_DATASETS = ("FB15K", "WN18")
NOT_YET = "*Not run yet.*"
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
    kinds = "; ".join(
        f"{name} {mean(ways['gpu']):.4f} beside {mean(ways['fused']):.4f}"
        for name, ways in gpu["accuracy"]["valid_mrr"].items()
    )
    about = " ".join(gpu["accuracy"]["settings"])
    text += "\n\nTrained by the bf16 kernels and by plain PyTorch in TF32, mean validation MRR over three seeds: "
    text += f"{kinds} (`{about}`)."
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


def precision() -> str:
    found = result("precision")
    kinds = []
    for name, of in found["mrr"].items():
        seeds = f"seeds from {min(of['highest']):.3f} to {max(of['highest']):.3f}"
        kinds.append(f"{name} {mean(of['high']):.4f} beside {mean(of['highest']):.4f} ({seeds})")
    what = f"- Rounded and exact operands, mean validation MRR on {found['graph']} over three seeds"
    return f"{what}: {'; '.join(kinds)}; `{found['command']}`."


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


def rounding() -> str:
    found = result("rounding")
    rows = [[name, f"{mean(mrr):.3f}", " ".join(f"{one:.3f}" for one in mrr)] for name, mrr in found["mrr"].items()]
    about = f"`{found['command']}`, filtered test MRR; {' '.join(found['settings'])}."
    return f"{table([found['graph'], 'mean MRR', 'seeds 0, 1, 2'], rows)}\n\n{about}"


def large_graph() -> str:
    found, rows = result("large-graph"), []
    for case in found["graphs"].values():
        build, ask = case["build"], case["seconds"]
        cells = [f"{case['triples']:,}", f"{case['entities']:,}", f"{case['text_megabytes']:,.0f} MB"]
        cells += [f"{build['cpu_seconds']:.0f} s", f"{build['megabytes']:,.0f} MB", f"{ask['load']:.2f} s"]
        rows.append([*cells, f"{1e6 * ask['name to id']:.0f} us", f"{ask['answers to 1,000 queries']:.1f} s"])
    head = ["triples", "entities", "text", "build, CPU", "memory", "load", "name to id", "answers to 1,000 queries"]
    about = f"`{found['command']}`, {found['environment']['device']}. Memory is the peak of what is the process's own."
    step = found["stepped"]
    more = f"The largest was trained on for 105 steps ({step['settings'][0]}): {step['ms_per_step_cpu']} ms of CPU a step, "
    more += (
        f"{step['anonymous_mb']:,} MB of memory, of which the table {step['table_mb']:,} and the order of an epoch 800."
    )
    return f"{table(head, rows)}\n\n{about}\n\n{more}"


def memory() -> str:
    found, rows = result("memory"), []
    for name, case in found["memory"].items():
        steps = found["step_milliseconds"][name]
        held, peak = (f"{case[kind] / 1e6:,.0f} MB" for kind in ("tables_and_optimiser", "peak"))
        small, large = steps["10000"], steps["1000000"]
        rows.append([name, held, peak, f"{case['ratio']:.2f}", f"{small:.0f} to {large:.0f}", f"{large / small:.2f}"])
    head = ["optimiser", "tables and state", "peak", "ratio", "CPU ms a step, 10,000 to 1,000,000 entities", "ratio"]
    about = (
        f"`{found['command']}`, {' '.join(found['settings'])}, {found['environment']['device']}. Validation included."
    )
    return f"{table(head, rows)}\n\n{about}"


def debian() -> str:
    if not (ROOT / "results" / "debian12.json").exists():
        return NOT_YET
    found, rows = result("debian12"), []
    for name, run in found["runs"].items():
        metrics = [f"{run['metrics'][m]:.3f}" for m in ("mrr", "hits@1", "hits@10")]
        spent = [f"{run['seconds'] / 60:.1f}", run["epochs"], f"{run['peak_bytes'] / 1e9:.2f} GB"]
        rows.append([name, *spent, f"{run['metrics']['mr']:,.0f}", *metrics])
    base = next(iter(found["runs"].values()))["frequency_baseline"]
    best = [f"{base[m]:.3f}" for m in ("mrr", "hits@1", "hits@10")]
    rows.append(["frequency baseline", "", "", "", f"{base['mr']:,.0f}", *best])
    head = ["recipe", "minutes in all", "epochs", "peak memory", "mr", "mrr", "hits@1", "hits@10"]
    graph = next(iter(found["runs"].values()))["graph"]
    about = f"{graph}. `{found['command']}`, {found['environment']['device']}; filtered, all entities, exact."
    return f"{table(head, rows)}\n\n{about}"


def large_gpu() -> str:
    if not (ROOT / "results" / "bench-large-gpu.json").exists():
        return NOT_YET
    found = result("bench-large-gpu")
    rows = []
    for name, case in found["cases"].items():
        sizes = [f"{case[kind] / 1e9:.1f}" if kind in case else "" for kind in ("device_bytes", "host_bytes")]
        cells = [f"{case['triples_per_s']:,.0f}", f"{case['ms_per_step']:.1f}", *sizes, f"{case['last_loss']:.2f}"]
        rows.append([*name.split("; "), *cells, case["steps"]])
    head = ["model", "table", "negatives", "triples/s", "ms per step", "GPU, GB", "host, GB", "last loss", "steps"]
    of = found["sizes"]
    about = f"{of['entities']:,} entities, {of['triples']:,} triples, d = {of['dim']}, batch {of['batch']:,}, "
    about += f"{of['negatives']} negatives on each side, {of['shared']} triples sharing them or each its own. "
    return f"{table(head, rows)}\n\n{about}`{found['command']}`, {found['environment']['device']}."


def cost_constants() -> str:
    rows = []
    for name, about in result("cost-model")["machines"].items():
        of, spread = about["constants"], [abs(row["error"]) for row in about["fitted"]]
        checks = ", ".join(f"{row['step'].split('; ')[0]} {row['error']:+.0%}" for row in about["checked"])
        worst = f"{len(spread)} steps, at most {max(spread):.0%}" if spread else "none yet: as sold"
        rates = [f"{of[kind] / 1e9:,.0f}" for kind in ("operations", "multiplies", "bytes")]
        rows.append([name, f"{1000 * of['fixed']:.0f} ms", *rates, worst, checks])
    head = ["machine", "fixed", "Gop/s", "Gop/s of a full W", "GB/s", "fitted to, error", "checked on, error"]
    return table(head, rows)


def cost_predictions() -> str:
    found, rows = result("cost-model"), []
    for row in found["predictions"]:
        if row["processes"] is None:
            rows.append([row["graph"], row["on"], "does not fit", *[""] * 5])
            continue
        memory = f"{row['memory_gb']:.1f}" + (f", host {row['host_gb']:.0f}" if row["host_gb"] else "")
        units = {"h": 1, "min": 60, "s": 3600}
        hours = next(f"{n * row['hours']:.1f} {unit}" for unit, n in units.items() if n * row["hours"] >= 1 or n > 60)
        cells = [memory, f"{row['step_ms']:.1f}", f"{row['sent_mb']:.0f}", hours, row["bottleneck"]]
        rows.append([row["graph"], row["on"], row["processes"], *cells])
    head = ["graph", "on", "processes", "GB in each", "ms per step", "MB sent by each", "10 epochs", "most of it"]
    return f"{table(head, rows)}\n\n`{found['command']}`."


def known_graphs() -> str:
    found = result("doctor")
    rows = []
    for name, graph in found["graphs"].items():
        shares = [f"{graph[kind]:.1%}" for kind in ("redundant", "symmetric", "linked")]
        scores = [f"{graph['rules'][metric]:.3f}" for metric in ("mrr", "hits@1", "hits@10")]
        rows.append(
            [name, graph["verdict"], f"{graph['relations']:,}", f"{graph['triples']['train']:,}", *shares, *scores]
        )
    head = ["graph", "verdict", "relations", "train facts", "follow from another relation", "symmetric", "linked pairs"]
    about = f"`{found['command']}`; rules alone: {graph['protocol']}."
    return f"{table([*head, 'rules alone: MRR', 'hits@1', 'hits@10'], rows)}\n\n{about}"


def load() -> str:
    found, rows = result("load"), []
    for name, graph in found["graphs"].items():
        memory, kinds = graph["memory"], graph["under_load"]
        cells = [f"{kinds[kind][f'{p}_ms']:,.0f}" for kind in ("all", "page", "explain") for p in ("p50", "p99")]
        cells += [f"{graph['one_client']['all'][f'{p}_ms']:,.0f}" for p in ("p50", "p99")]
        wrong = f"{graph['wrong_answers']}, {graph['late_explanations']} of {kinds['explain']['requests']}"
        growth = f"{memory['warm_mb']:,.0f} to {memory['last_mb']:,.0f} MB, {memory['slope_mb_per_1000_requests']:+.2f}"
        size = f"{name}, {graph['entities']:,}"
        rows.append([size, f"{graph['requests']:,}", wrong, f"{graph['requests_per_second']:.0f}", *cells, growth])
    head = ["graph, entities", "requests", "wrong, and late explanations", "per second", "all: p50 ms", "p99"]
    head += ["page: p50", "p99", "explanations: p50", "p99", "one client alone: p50", "p99"]
    head += ["memory after warm-up, and MB per 1,000 requests"]
    mix = ", ".join(f"{share} {kind}" for kind, share in found["shares"].items())
    about = f"{graph['clients']} clients that ask again at once; of 100 requests {mix}. `{found['command']}`, "
    about += f"{found['environment']['device']}, {found['cores']} cores shared with the clients"
    about += f" and whatever else ran (load {found['load_before']:.1f} before it began)."
    return f"{table(head, rows)}\n\n{about}"


def additions() -> str:
    rows, commands = [], []
    for found in (result("bench-add"), result("bench-add-atlas")):
        commands.append(f"`{found['command']}`")
        for case in found["results"]:
            given = "all" if case["facts_per_entity"] == "all" else f"at most {case['facts_per_entity']}"
            cells = [
                f"{case[kind][way]:{form}}"
                for kind, form in (("mrr", ".3f"), ("seconds", ".0f"))
                for way in ("add", "again")
            ]
            rows.append(
                [
                    found["graph"],
                    case["model"],
                    found["held_out"],
                    f"{given} ({case['facts_given']:,})",
                    f"{case['queries']:,}",
                    *cells,
                ]
            )
    head = ["graph", "model", "new entities", "facts given of each (in all)", "questions"]
    head += ["MRR, added", "MRR, trained again", "seconds, added", "seconds, trained again"]
    about = f"One seed; {found['protocol']}; {found['environment']['device']} of a busy machine. {', '.join(commands)}."
    return f"{table(head, rows)}\n\n{about}"


def checkpoint_cost() -> str:
    found = result("experiments-cpu")
    size, seconds = found["checkpoint_size"], found["checkpoints"]["cpu_seconds"]
    none, usual, many = (f"{seconds[way]:.1f}" for way in ("none", "defaults", "every 20 steps"))
    text = f"What they cost: two epochs of the demo take {none} processor seconds without, {usual} with the defaults, "
    text += f"{many} with one every 20 steps (medians of five). One of HHolE on FB15K, d = 512, is "
    text += f"{size['megabytes']:.0f} MB and takes {size['seconds']:.1f} s to write. "
    return text + "`python benchmarks/experiments_cpu.py`, on a busy CPU."


# Reproductions of the paper: lists of records, one per run ------------------------------------------------------------


def kept(name: str, dataset: str | None = None) -> list[Record]:
    """The records of an experiment, of one dataset or of those that are not the paper's."""
    found = records.read(ROOT / "results" / f"{name}.json")
    if dataset == "other":
        return [record for record in found if record["dataset"] not in PAPER_DATASETS]
    return [record for record in found if dataset in (None, record["dataset"])]


def options(group: list[Record]) -> str:
    """The options that make a line again, after `harmonium reproduce EXPERIMENT --dataset DATASET`."""
    seeds = ",".join(str(record["seed"]) for record in group)
    tail = group[0]["command"].partition(" --rows ")[2].replace(f"--seeds {group[0]['seed']}", f"--seeds {seeds}")
    return f"`--rows {tail}`"


def made(found: list[Record]) -> str:
    """Where and from which commits records come."""
    devices = ", ".join(sorted({record["device"] for record in found}))
    commits = ", ".join(sorted({(record["commit"] or "unknown")[:8] for record in found}))
    return (
        f"{len(found)} runs on {devices}, {sum(r['seconds'] for r in found) / 60:.0f} minutes in all; commit {commits}."
    )


def models(name: str, dataset: str | None) -> str:
    """A table for each dataset: published, faithful, calibrated; both protocols and the command in the same line."""
    parts = []
    for data, found in _by_dataset(kept(name, dataset)).items():
        head, rows = records.model_table(found, METRICS)
        groups = {(records.label(g[0]), g[0]["variant"]): g for g in records.by_seeds(found).values()}
        for row in rows:
            group = groups.get((row[0], row[1].split(",")[0]))
            row.append(options(group) if group else "")
            row[-2] = {"+": f"reached ({row[-2]})", "-": f"not reached ({row[-2]})"}.get(row[-2][:1], "")
        head[-1] = "published MRR, typed"
        protocol = describe(EvaluateConfig(**{k: v for k, v in found[0]["protocol"].items() if k != "filter"}))
        about = f"`harmonium reproduce {name} --dataset {data}` with the options at the end of a line makes it again. "
        about += f"First five metrics: {protocol}; full: all entities, realistic ties. {made(found)}"
        parts.append(f"{table([*head, 'options'], rows)}\n\n{about}")
        if dataset in ("other", None):
            parts[-1] = f"**{data}**\n\n{parts[-1]}"
    return "\n\n".join(parts) or NOT_YET


def analysis(name: str) -> str:
    """The table of an analysis for each dataset, and how to make it again."""
    parts = []
    for data, found in _by_dataset(kept(name)).items():
        rows = table(*records.TABLES[name](found))
        parts.append(f"**{data}**\n\n{rows}\n\n`{found[0]['command']}`. {made(found)}")
    return "\n\n".join(parts) or NOT_YET


def controls(question: str) -> str:
    parts, names = [], list(CONTROLS[question])
    for data, found in _by_dataset(kept("controls")).items():
        inside = [record for record in found if record["row"].split("/")[1] in names]
        inside.sort(
            key=lambda record: (record["row"].split("/")[0] != "hole", names.index(record["row"].split("/")[1]))
        )
        if inside:
            dim = inside[0]["dim"]
            about = f"`harmonium reproduce controls --dataset {data}`, d = {dim}. {made(inside)}"
            parts.append(f"**{data}**\n\n{table(*records.control_table(inside))}\n\n{about}")
    return "\n\n".join(parts) or NOT_YET


CLAIMS = [  # the row that wins in the paper, and the one it beats
    ("FB15K", "table1", "hhole-1", "hhole-inf", "optimisation helps HHolE: lambda = 1 above infinity"),
    ("WN18", "table1", "hhole-2", "hhole-inf", "optimisation helps HHolE: lambda = 2 above infinity"),
    ("FB15K", "table1", "hhole-1", "hole", "HHolE is above its baseline HolE"),
    ("WN18", "table1", "hhole-2", "hole", "HHolE is above its baseline HolE"),
    ("FB15K", "table1", "hdistmult-inf", "distmult", "HDistMult is above its baseline DistMult"),
    ("WN18", "table1", "hdistmult-inf", "distmult", "HDistMult is above its baseline DistMult"),
    ("FB15K", "table1", "hdistmult-inf", "hdistmult-50", "optimisation does not help HDistMult: infinity above 50"),
    ("WN18", "table1", "hdistmult-inf", "hdistmult-3", "optimisation does not help HDistMult: infinity above 3"),
    ("FB15K", "htpr", "htpr-1", "htpr-inf", "optimisation helps HTPR: lambda = 1 above infinity"),
]


SEED_SPREAD = 0.003  # of MRR, as seen here and elsewhere: closer rows are called equal


def claims() -> str:
    """Whether the order of the paper's rows holds, by typed MRR."""
    rows = []
    for data, name, winner, loser, text in CLAIMS:
        groups = records.by_seeds(kept(name, data))
        cells = []
        for variant in ("faithful", "calibrated"):
            pair = [groups.get((data, row, variant)) for row in (winner, loser)]
            if not all(pair):
                cells.append("not run yet")
                continue
            first, second = (records.mean([record["mrr"] for record in group])[0] for group in pair)
            word = (
                "no difference" if abs(first - second) < SEED_SPREAD else "holds" if first > second else "does not hold"
            )
            cells.append(f"{word}: {first:.3f} against {second:.3f}")
        beside = [published(data, row)["mrr"] for row in (winner, loser)]
        rows.append([data, text, " against ".join(f"{value:.3f}" for value in beside), *cells])
    return table(["dataset", "claim", "published", "faithful", "calibrated"], rows)


def _by_dataset(found: list[Record]) -> dict[str, list[Record]]:
    names = sorted({record["dataset"] for record in found})
    return {name: [record for record in found if record["dataset"] == name] for name in names}


PARTS: dict[str, list[tuple[str, Callable[[], str]]]] = {
    "README.md": [("demo", demo), ("quality", quality)],
    "docs/results.md": [
        ("claims", claims),
        *((f"table1-{name}", partial(models, "table1", name)) for name in (*PAPER_DATASETS, "other")),
        ("htpr", partial(models, "htpr", None)),
        *((name, partial(analysis, name)) for name in ("neighbourhoods", "density", "gain", "classification")),
        *((f"controls-{name.split()[0]}", partial(controls, name)) for name in CONTROLS),
        ("demo", demo),
        ("quality", quality),
        ("curves", curves),
    ],
    "docs/performance.md": [("speed", speed), ("precision", precision)],
    "docs/scale.md": [
        ("scale", scale),
        ("rounding", rounding),
        ("large-gpu", large_gpu),
        ("large-graph", large_graph),
        ("memory", memory),
        ("debian", debian),
        ("cost-constants", cost_constants),
        ("cost-predictions", cost_predictions),
    ],
    "docs/reliability.md": [("checkpoint-cost", checkpoint_cost), ("load", load)],
    "docs/doctor.md": [("known-graphs", known_graphs)],
    "docs/how-to/new-entities.md": [("additions", additions)],
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
