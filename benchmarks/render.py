"""Write the numbers of results/*.json into the docs: python benchmarks/render.py [--check].

A page's parts between <!-- NAME --> and <!-- /NAME --> are generated here and nowhere else; --check fails if one is stale.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))


from harmonium.config.settings import EvaluateConfig
from harmonium.evaluation.evaluation import describe_protocol
from harmonium.paper import records, tables
from harmonium.paper.records import Record
from harmonium.paper.rows import CONTROLS, published

ROOT = Path(__file__).resolve().parents[1]
PAPER_DATASETS = ("FB15K", "WN18")
GPU = ("atlas", "", "FB237")  # graphs of results/harmony-after.json, by column of the headline
NOT_YET = "*Not run yet.*"
METRICS = ("mr", "mrr", "hits@1", "hits@3", "hits@10")


def result(name: str) -> Any:
    return json.loads((ROOT / "results" / f"{name}.json").read_text(encoding="utf-8"))


def table(head: list[str], rows: list[list[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def numbers(metrics: dict[str, float]) -> list[str]:
    return [f"{metrics['mr']:.0f}", *(f"{metrics[m]:.3f}" for m in METRICS[1:])]


def best_single(dataset: str) -> str:
    """The best row of the leaderboard for one model of a dataset, and its seconds."""
    row = max(
        (row for row in result("leaderboard") if row["dataset"] == dataset and not row["ensemble"]),
        key=lambda row: float(row["mrr"]),
    )
    return f"{row['mrr']:.3f} ({row['seconds']:.0f} s)"


def headline() -> str:
    """README: plain models beside harmonic ones under the standard protocol, and speed relative to PyKEEN."""
    hhole, demo, gpu, cpu = result("atlas-hhole"), result("demo"), result("bench-gpu"), result("bench-cpu")
    after = {run["graph"]: run for run in result("harmony-after")["runs"]}
    trained = records.by_seeds(kept("table1", "FB15K"))
    controls = records.by_seeds(kept("controls", "FB15K-237"))

    def paper(row: str) -> str:
        return records.format_mean([record["full"]["mrr"] for record in trained["FB15K", row, "calibrated"]])

    def control(row: str) -> str:
        return records.format_mean([record["full"]["mrr"] for record in controls["FB15K-237", row, "control"]])

    def plain_and_harmonic(run: Any) -> str:
        return f"{run['plain']['mrr']:.3f} / {run['harmony']['mrr']:.3f}"

    rows = [
        ["frequency baseline", f"{demo['baselines']['frequency']['mrr']:.3f}", "", ""],
        ["HHolE, λ = 1", f"{hhole['metrics']['mrr']:.3f}", paper("hhole-1"), control("hole/lambda-1")],
        ["ComplEx", f"{demo['plain']['mrr']:.3f}", f"{gpu['ranking']['complex']['mrr']:.3f}", ""],
        ["preset best, H200, plain / with W", *(plain_and_harmonic(after[g]) if g else "" for g in GPU)],
        ["[leaderboard](docs/leaderboard.md), H200", "", best_single("FB15K"), best_single("FB15K-237")],
    ]
    text = table(["MRR, all entities", "atlas", "FB15K", "FB15K-237"], rows)
    ratios = []
    for task, name in (("sampled_training", "sampled training"), ("all_entity_training", "all-entity training")):
        low, high = sorted(cpu["ratio_to_pykeen"][task].values())
        ratios.append(f"{name} {low:.0f} to {high:.0f}")
    low, high = sorted(cpu["ratio_to_pykeen"]["ranking"].values())
    ratios.append(f"ranking {low:.0f} to {high:.0f}")
    return f"{text}\n\nThroughput relative to PyKEEN 1.11, two CPU cores: {', '.join(ratios)} times."


def demo() -> str:
    run, hhole = result("demo"), result("atlas-hhole")
    rows = [
        ["ComplEx vectors with W of rank 4, fitted last", *numbers(run["metrics"])],
        ["the same vectors, plain", *numbers(run["plain"])],
        ["HHolE, rank 8", *numbers(hhole["metrics"])],
        *([f"{name} baseline", *numbers(metrics)] for name, metrics in run["baselines"].items()),
    ]
    about = (
        f"{run['protocol']}. `{run['command']}`: seed {run['seed']}, trained {run['seconds']:.0f} s on {run['device']}"
    )
    about += f" beside other programs (load average {run['load_average']:.1f}). "
    about += f"HHolE: `{hhole['command']}`, seed {hhole['seed']}, trained {hhole['seconds']:.0f} s on {hhole['device']}"
    return f"Link prediction on `atlas`:\n\n{table(['', *METRICS], rows)}\n\n{about}."


def printed(name: str, title: str, rows: int = 0) -> str:
    """A part of what a command of the tutorial printed: from the line that starts with a title to the next empty line.

    With `rows` only the title, the column names and so many rows.
    """
    lines = result("demo")["printed"][name].splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(title))
    end = next((number for number in range(start, len(lines)) if not lines[number].strip()), len(lines))
    part = [line.rstrip() for line in lines[start:end] if set(line.strip()) != {"─"}]
    return "```text\n" + "\n".join(part[: rows + 2] if rows else part) + "\n```"


def tutorial_metrics() -> str:
    run = result("demo")
    hits = run["metrics"]["hits@10"]
    text = f"`hits@10` {hits:.3f}: the true answer is among the first ten of 3,334 for {100 * hits:.0f} of 100 queries."
    return f"{printed('demo', 'Link prediction on atlas')}\n\n{text}"


def busy() -> str:
    """Training steps beside busy processes."""
    bench, rows = result("busy"), []
    conditions = {"quiet": "as found", "busy": "and one more per core"}
    for model, measured in bench["models"].items():
        for condition, name in conditions.items():
            times = measured[condition]
            cells = [
                f"{times[policy][kind]:,.0f}" for policy in ("spinning", "asleep") for kind in ("wall_ms", "cpu_ms")
            ]
            rows.append([model, name, f"{times['asleep']['others']:.0%}", *cells, f"{times['ratio']:.2f}"])
    head = ["model", "other programs", "their share of the cores", "spinning: ms per step", "CPU ms"]
    head += ["asleep: ms per step", "CPU ms", "asleep / spinning"]
    rounds = bench["rounds"]
    about = f"Medians over rounds of {bench['steps']} steps, in turns, on {bench['graph']}; ratios within rounds. "
    about += (
        f"As found: the {rounds['quiet']} rounds (of all in {bench['seconds']} s) with the least other work on the "
    )
    about += f"machine. With one more computing process per core: {rounds['busy']} rounds. `{bench['command']}`, "
    about += f"{bench['device']} of a machine that others use (load average {bench['load_before']:.1f} at the start)."
    return f"{table(head, rows)}\n\n{about}"


def presets() -> str:
    """The preset best beside plain models under one time budget."""
    bench = result("presets")
    names = list(dict.fromkeys(run["model"] for run in bench["runs"]))
    graphs = {run["graph"]: run for run in bench["runs"]}
    by_cell = {(run["graph"], run["model"]): run for run in bench["runs"]}
    rows = []
    for name, about in graphs.items():
        cells = [by_cell.get((name, model)) for model in names]
        size = f"{about['facts']:,} / {about['entities']:,} / {about['relations']}"
        rows.append(
            [name, size, *(f"{run['metrics']['mrr']:.3f} ({run['seconds']:.0f} s)" if run else "" for run in cells)]
        )
    text = table(["graph", "facts / entities / relations", *names], rows)
    minutes, device = bench["runs"][0]["minutes"], bench["runs"][0]["device"]
    return f"{text}\n\nTest MRR ({bench['protocol']}) within {minutes:g} minutes on {device}, seed 0. `{bench['command']}`."


def harmony_after() -> str:
    """The same vectors with W and without, and what joint training costs."""
    bench, rows = result("harmony-after"), []
    for run in bench["runs"]:
        fit = run["fit"]
        nats = f"{fit['log_likelihood']['plain']:.3f} -> {fit['log_likelihood']['harmony']:.3f}"
        dim = run["selection"]["settings"]["model.entity_dim"]
        seconds = f"{run['seconds']:.0f} s"
        mrr = [f"{run[kind]['mrr']:.4f}" for kind in ("plain", "harmony")]
        rows.append([run["graph"], dim, *mrr, nats, seconds])
    text = table(
        ["graph", "d", "test MRR, plain", "with W", "held-out log-likelihood, nats", "search and training"], rows
    )
    epochs = bench["epoch_seconds"]
    ratios = ", ".join(f"{name} {epochs[name] / epochs['plain']:.1f}" for name in ("rank 1", "rank 4", "rank 8"))
    joint = f"Joint training on {epochs['graph']}, d = {epochs['d']}: an epoch takes {epochs['plain']:.2f} s plain, "
    joint += f"with W {ratios} times that."
    return f"{text}\n\n{bench['protocol']}; {bench['runs'][0]['device']}, seed 0. `{bench['command']}`. {joint}"


def paper_start() -> str:
    """Rows of the paper by what they take from the authors' program."""
    if not (ROOT / "results" / "paper-start.json").exists():
        return NOT_YET
    bench, rows = result("paper-start"), []
    for cell in bench["cells"]:
        metrics = [f"{cell['typed'][m]:.3f}" for m in ("mrr", "hits@1", "hits@10")]
        spent = [cell["best_epoch"], cell["epochs"], f"{cell['seconds']:.0f}", cell["stopped"] or "all epochs"]
        parts = ", ".join(bench["starts"][cell["start"]]) or "none"
        target = published(cell["graph"], cell["row"])["mrr"] if cell["graph"] in PAPER_DATASETS else ""
        rows.append([cell["graph"], cell["row"], parts, *metrics, f"{cell['full']['mrr']:.3f}", target, *spent])
    head = ["graph", "row", "from the authors' program", "typed MRR", "hits@1", "hits@10", "full MRR", "published"]
    text = table([*head, "best epoch", "epochs", "seconds", "stopped"], rows)
    commands = "`, `".join(dict.fromkeys(cell["command"] for cell in bench["cells"]))
    return f"{text}\n\nTyped: {bench['protocol']['typed']}. `{commands}`, {bench['device']}."


def harmony_map() -> str:
    """Each use of harmony beside its controls, on test queries."""
    if not (ROOT / "results" / "harmony-map.json").exists():
        return NOT_YET
    bench, rows = result("harmony-map"), []
    for row in bench["rows"]:
        comparison = row["comparison"]
        means = [f"{comparison[kind]:.4f}" for kind in ("model", "control")]
        low, high = map(float, comparison["interval"])  # infinite where samples have no spread
        change = f"{comparison['difference']:+.4f} ({low:+.4f} to {high:+.4f})"
        verdict = "not shown"
        if row["significant"]:
            verdict = "better" if comparison["difference"] > 0 else "worse"
        share = f"{comparison['better_relations']} of {comparison['relations']}"
        p_values = [f"{comparison[name]:.4f}" for name in ("p", "sign_flip_p")]
        names = [row["experiment"], row["graph"], row["measure"], row["model"], row["control"]]
        rows.append([*names, *means, change, share, *p_values, verdict, len(row["seeds"])])
    head = ["use", "graph", "measure", "harmonic", "control", "harmonic, mean", "control, mean", "difference (95 %)"]
    head += ["relations better", "p, bootstrap", "p, sign flips", "at p < .01", "seeds"]
    about = f"{bench['protocol']}. `{'`, `'.join(bench['measured_by'])}`, then `{bench['command']}`; {bench['device']}."
    return f"{table(head, rows)}\n\n{about}"


def quality() -> str:
    bench = result("bench-gpu")
    names = {"hhole": "HHolE, lambda = 1, d = 512", "complex": "ComplEx-N3, reciprocal, d = 2000"}
    rows = []
    for key, run in bench["time_to_quality"].items():
        last, protocol = run["curve"][-1], run["protocol"]
        candidates = f"{protocol['candidates']}, {protocol['ties']} ties"
        reached = f"{run['reached_after_s']:.0f} s" if run["reached_after_s"] else "not reached"
        rows.append(
            [names[key], candidates, *numbers(last), f"{last['seconds']:.0f} s", f"{run['goal']:.3f}: {reached}"]
        )
    head = ["FB15K, one seed", "candidates", *METRICS, "training time", "MRR goal reached after"]
    full = bench["ranking"]["hhole"]
    text = f"The same HHolE under the standard protocol (full candidates, realistic ties): MRR {full['mrr']:.3f}."
    return f"{table(head, rows)}\n\n{text} `{bench['command']}`, {bench['environment']['device']}."


def curves() -> str:
    rows = []
    for key, run in result("bench-gpu")["time_to_quality"].items():
        for p in run["curve"]:
            rows.append([key, p["epoch"], f"{p['seconds']:.1f}", f"{p['mrr']:.4f}", f"{p['hits@1']:.4f}"])
    return table(["run", "epoch", "seconds", "test MRR", "hits@1"], rows)


def gpu_speed() -> str:
    gpu, rows = result("bench-gpu"), []
    for name, goal in (("hdistmult", "2.5 ms"), ("hhole", "3.5 ms")):
        plain = f"{gpu['reference_step_ms'][name]:.1f} ms (plain PyTorch)"
        rows.append([f"training step, {name}", f"{gpu['step_ms'][name]:.2f} ms", plain, goal])
    ranking = gpu["ranking"]["hhole"]
    checked = f"{ranking['different_from_float64']} of {ranking['checked_queries']:,} checked ranks differ from float64"
    rows.append([f"ranking {ranking['queries']:,} queries, HHolE", f"{gpu['ranking_s']:.2f} s", checked, "5 s"])
    for key, name, goal in (("hhole", "HHolE to typed MRR .796", "240 s"), ("complex", "ComplEx to MRR .84", "60 s")):
        rows.append([name, f"{gpu['time_to_quality_s'][key]:.0f} s", "", goal])
    models = "; ".join(
        f"{name} {mean(backends['triton']):.4f} against {mean(backends['torch']):.4f}"
        for name, backends in gpu["accuracy"]["valid_mrr"].items()
    )
    text = "One H200, FB15K:\n\n" + table(["task", "harmonium", "reference", "goal"], rows)
    text += "\n\nMean validation MRR over three seeds, bf16 Triton kernels against plain PyTorch in TF32: "
    return text + f"{models} (`{' '.join(gpu['accuracy']['settings'])}`)."


def all_entity_steps() -> str:
    bench, rows = result("bench-all-entity"), []
    names = {
        "fb15k237": ("FB15K-237, 500 facts", "0.9 ms"),
        "wn18rr": ("WN18RR, 250 facts", "1.5 ms"),
        "fb15k237_relation_prediction": ("FB15K-237, with relation prediction", ""),
        "fb15k237_rank8": ("FB15K-237, W of rank 8", "3.6 ms"),
    }
    for key, (name, goal) in names.items():
        floor = bench["floor_ms"][key]
        parts = [f"{floor['products']:.2f} ms", f"{floor['optimiser']:.2f} ms"]
        rows.append([name, f"{bench['all_entity_step_ms'][key]:.2f} ms", *parts, goal])
    head = ["training step against all entities", "measured", "products at 790 TFLOP/s", "optimiser's traffic", "goal"]
    text = "One H200, ComplEx-N3, d = 2000, reciprocal, Adagrad; facts of a batch are asked for heads and tails:"
    return f"{text}\n\n{table(head, rows)}\n\n`{bench['command']}`"


def explanations() -> str:
    bench, rows = result("explain"), []
    names = {"FB237": "FB15K-237"}
    for graph, measured in bench["graphs"].items():
        part = measured["necessary"]
        for facts in ("explained", "random", "nothing"):
            changes = [f"{mean(part[facts][metric]):+.3f}" for metric in ("hits@1", "mrr")]
            seconds = f"{part['seconds_each']:.2f} s" if facts == "explained" else ""
            rows.append([names.get(graph, graph), facts, *changes, seconds])
    head = ["graph", "facts removed", "change of hits@1", "change of MRR", "time each"]
    seeds = len(next(iter(bench["graphs"].values()))["necessary"]["nothing"]["mrr"])
    count = next(iter(bench["graphs"].values()))["predictions"]
    text = f"{count} predictions a graph, {seeds} retrainings each, mean; time on {bench['environment']['device']}."
    return f"{table(head, rows)}\n\n{text} `{bench['command']}`"


def cpu_speed() -> str:
    cpu, rows = result("bench-cpu"), []
    tasks = {"sampled_training": ("sampled", 5), "all_entity_training": ("all-entity", 40), "ranking": ("ranking", 50)}
    for key, (task, goal) in tasks.items():
        for model, ratio in cpu["ratio_to_pykeen"][key].items():
            ours, pykeen = cpu["ours"][f"{task}/{model}"], cpu["pykeen"][f"{task}/{model}"]
            memory = f"{ours['peak_rss_mb']:,.0f} / {pykeen['peak_rss_mb']:,.0f} MB"
            throughput = f"{ours['throughput']:,.0f} {ours['unit']}"
            rows.append([task, model, throughput, f"{ratio:.1f} x", f"{goal} x", memory])
    head = ["task, two cores, d = 128", "model", "harmonium", "relative to PyKEEN 1.11", "goal"]
    head += ["peak memory, harmonium / PyKEEN"]
    slower = cpu["times_slower_than_plain"]
    harmonic = [
        [model, f"{slower['sampled'][model]:.1f} x", f"{slower['ranking'][model]:.1f} x"] for model in slower["ranking"]
    ]
    text = f"{cpu['data']}, one run of `{cpu['command']}`:\n\n{table(head, rows)}"
    return (
        f"{text}\n\n{table(['harmonic model', 'training, slower than plain', 'ranking, slower than plain'], harmonic)}"
    )


def speed() -> str:
    return f"{gpu_speed()}\n\n{cpu_speed()}"


def precision() -> str:
    bench, models = result("precision"), []
    for name, mrr in bench["mrr"].items():
        seeds = f"seeds from {min(mrr['highest']):.3f} to {max(mrr['highest']):.3f}"
        models.append(f"{name} {mean(mrr['high']):.4f} against {mean(mrr['highest']):.4f} ({seeds})")
    text = f"- Rounded against exact operands, mean validation MRR on {bench['graph']} over three seeds"
    return f"{text}: {'; '.join(models)}; `{bench['command']}`."


def scale() -> str:
    bench, rows = result("scale"), []
    for name, sweep in bench["sweeps"].items():
        sizes = " ".join(f"{size:,}" for size in sweep["sizes"])
        costs = " ".join(f"{cost:.1f}" for cost in sweep["milliseconds"])
        rows.append([name, sizes, costs, f"{sweep['exponent']:.2f}"])
    about = f"`{bench['command']}`, {bench['environment']['device']}; around {bench['middle']}."
    return f"{table(['varied', 'sizes', 'ms per step', 'exponent'], rows)}\n\n{about}"


def rounding() -> str:
    bench = result("rounding")
    rows = [[name, f"{mean(mrr):.3f}", " ".join(f"{one:.3f}" for one in mrr)] for name, mrr in bench["mrr"].items()]
    about = f"`{bench['command']}`, filtered test MRR; {' '.join(bench['settings'])}."
    return f"{table([bench['graph'], 'mean MRR', 'seeds 0, 1, 2'], rows)}\n\n{about}"


def large_graph() -> str:
    bench, rows = result("large-graph"), []
    for case in bench["graphs"].values():
        build, seconds = case["build"], case["seconds"]
        cells = [f"{case['triples']:,}", f"{case['entities']:,}", f"{case['text_megabytes']:,.0f} MB"]
        cells += [f"{build['cpu_seconds']:.0f} s", f"{build['megabytes']:,.0f} MB", f"{seconds['load']:.2f} s"]
        rows.append([*cells, f"{1e6 * seconds['name to id']:.0f} us", f"{seconds['answers to 1,000 queries']:.1f} s"])
    head = ["triples", "entities", "text", "build, CPU", "memory", "load", "name to id", "answers to 1,000 queries"]
    about = f"`{bench['command']}`, {bench['environment']['device']}. Memory: peak anonymous memory of the process."
    step = bench["stepped"]
    more = (
        f"105 training steps on the largest ({step['settings'][0]}) took {step['ms_per_step_cpu']} ms of CPU each and "
    )
    more += f"{step['anonymous_mb']:,} MB of memory: {step['table_mb']:,} for the table, 800 for the order of an epoch."
    return f"{table(head, rows)}\n\n{about}\n\n{more}"


def memory() -> str:
    bench, rows = result("memory"), []
    for name, case in bench["memory"].items():
        steps = bench["step_milliseconds"][name]
        state, peak = (f"{case[kind] / 1e6:,.0f} MB" for kind in ("tables_and_optimiser", "peak"))
        small, large = steps["10000"], steps["1000000"]
        rows.append([name, state, peak, f"{case['ratio']:.2f}", f"{small:.0f} to {large:.0f}", f"{large / small:.2f}"])
    head = ["optimiser", "tables and state", "peak", "ratio", "CPU ms per step, 10,000 to 1,000,000 entities", "ratio"]
    about = (
        f"`{bench['command']}`, {' '.join(bench['settings'])}, {bench['environment']['device']}. Validation included."
    )
    return f"{table(head, rows)}\n\n{about}"


def debian() -> str:
    bench, rows = result("debian12"), []
    for name, run in bench["runs"].items():
        metrics = [f"{run['metrics'][m]:.3f}" for m in ("mrr", "hits@1", "hits@10")]
        spent = [f"{run['seconds'] / 60:.1f}", run["epochs"], f"{run['peak_bytes'] / 1e9:.2f} GB"]
        rows.append([name, *spent, f"{run['metrics']['mr']:,.0f}", *metrics])
    run = next(iter(bench["runs"].values()))
    baseline = run["frequency_baseline"]
    metrics = [f"{baseline[m]:.3f}" for m in ("mrr", "hits@1", "hits@10")]
    rows.append(["frequency baseline", "", "", "", f"{baseline['mr']:,.0f}", *metrics])
    head = ["recipe", "total minutes", "epochs", "peak memory", "mr", "mrr", "hits@1", "hits@10"]
    about = f"{run['graph']}. `{bench['command']}`, {bench['environment']['device']}; filtered, all entities, exact."
    return f"{table(head, rows)}\n\n{about}"


def large_gpu() -> str:
    bench, rows = result("bench-large-gpu"), []
    for name, case in bench["cases"].items():
        sizes = [f"{case[kind] / 1e9:.1f}" if kind in case else "" for kind in ("device_bytes", "host_bytes")]
        cells = [f"{case['triples_per_s']:,.0f}", f"{case['ms_per_step']:.1f}", *sizes, f"{case['last_loss']:.2f}"]
        rows.append([*name.split("; "), *cells, case["steps"]])
    head = ["model", "table", "negatives", "triples/s", "ms per step", "GPU, GB", "host, GB", "last loss", "steps"]
    sizes = bench["sizes"]
    about = (
        f"{sizes['entities']:,} entities, {sizes['triples']:,} triples, d = {sizes['dim']}, batch {sizes['batch']:,}, "
    )
    about += f"{sizes['negatives']} negatives on each side, shared by {sizes['shared']} triples or separate for each. "
    return f"{table(head, rows)}\n\n{about}`{bench['command']}`, {bench['environment']['device']}."


def known_graphs() -> str:
    bench, rows = result("doctor"), []
    for name, graph in bench["graphs"].items():
        shares = [f"{graph[kind]:.1%}" for kind in ("redundant", "symmetric", "linked")]
        scores = [f"{graph['rules'][metric]:.3f}" for metric in ("mrr", "hits@1", "hits@10")]
        sizes = [f"{graph['relations']:,}", f"{graph['triples']['train']:,}"]
        rows.append([name, graph["verdict"], *sizes, *shares, *scores])
    head = ["graph", "verdict", "relations", "train facts", "follow from another relation", "symmetric", "linked pairs"]
    about = f"`{bench['command']}`; rules alone: {graph['protocol']}."
    return f"{table([*head, 'rules alone: MRR', 'hits@1', 'hits@10'], rows)}\n\n{about}"


def load() -> str:
    bench, rows = result("load"), []
    for name, graph in bench["graphs"].items():
        for part in (graph, graph.get("crowd")):
            if part is not None:
                rows.append([f"{name}, {graph['entities']:,}", *_load_cells(part), *_times(graph["one_client"]["all"])])
    head = ["graph, entities", "clients", "requests", "wrong answers", "refused (503)", "answers per second"]
    head += ["all: p50 ms", "p99", "page: p50", "p99", "explanations: p50", "p99"]
    head += ["memory after warm-up, and MB per 1,000 requests", "single client: p50", "p99"]
    mix = ", ".join(f"{share} {kind}" for kind, share in bench["shares"].items())
    about = f"Clients without pauses, except when refused; of 100 requests {mix}. `{bench['command']}`, "
    about += f"{bench['environment']['device']}, {bench['cores']} cores shared with the clients"
    about += f" and other programs (load average {bench['load_before']:.1f} at the start)."
    long = bench["long"]
    tenths = ", ".join(f"{size:.0f}" for size in long["memory"]["median_by_tenth_mb"])
    mix = ", ".join(f"{share} {kind}" for kind, share in long["shares"].items())
    about += (
        f"\n\nOver {long['requests']:,} cheaper requests (of 100: {mix}) by {long['clients']} clients, with "
        f"{long['wrong_answers']} wrong answers, {long['without_an_answer']} without an answer and {long['refused']:,} "
        f"refused, the median memory of each tenth was {tenths} MB. `{long['command']}`, on a machine that others used "
        f"({long['seconds'] / 60:.0f} minutes; load average {long['load_before']:.1f} at the start)."
    )
    return f"{table(head, rows)}\n\n{about}"


def _load_cells(part: dict[str, Any]) -> list[str]:
    memory, kinds = part["memory"], part["under_load"]
    refused = part.get("refused", part.get("late_explanations", 0))
    growth = f"{memory['warm_mb']:,.0f} to {memory['last_mb']:,.0f} MB, {memory['slope_mb_per_1000_requests']:+.2f}"
    counts = [f"{part['clients']:,}", f"{part['requests']:,}", str(part["wrong_answers"]), f"{refused:,}"]
    times = [cell for kind in ("all", "page", "explain") for cell in _times(kinds.get(kind))]
    return [*counts, f"{part['requests_per_second']:.0f}", *times, growth]


def _times(figures: dict[str, Any] | None) -> list[str]:
    return [f"{figures[f'{p}_ms']:,.0f}" if figures else "-" for p in ("p50", "p99")]


def _share(value: float | None) -> str:
    return "-" if value is None else "all" if value >= 1 else f"{value:.0%}"


def updates(name: str = "bench-update") -> str:
    bench, rows = result(name), []
    names = {"add": "facts added", "remove": "facts removed", "entities": "new entities", "relations": "new relations"}
    for case in sorted(bench["results"], key=lambda case: (list(names).index(case["kind"]), case["share"])):
        cells = []
        for facts in ("changed", "test_concerned", "test_others"):
            mrr = case["mrr"][facts]
            parts = [mrr.get("base"), mrr["updated"], mrr["retrained"]]
            cells.append(" / ".join("-" if value is None else f"{value:.3f}" for value in parts))
        change = f"{names[case['kind']]}, {case['share']:.0%}"
        rows.append([change, *cells, f"{case['times_faster']:.0f} x"])
    head = ["change", "changed facts", "test facts of their entities", "other test facts", "faster than training again"]
    about = f"{bench['graph']}, {bench['protocol']}; one seed; {bench['environment']['device']}. `{bench['command']}`."
    return f"MRR before the update / after it / of a model trained again:\n\n{table(head, rows)}\n\n{about}"


def update_chains() -> str:
    """The last of many updates in a row: means over seeds, updated and trained again."""
    rows, runs = [], result("update-chains")["runs"]
    for bench in runs:
        count = max(case["updates"] for case in bench["results"])
        cases = [case for case in bench["results"] if case["updates"] == count]
        cells = []
        for facts in ("added", "removed", "test_concerned"):
            means = [mean(case["mrr"][facts][kind] for case in cases) for kind in ("updated", "retrained")]
            cells.append(" / ".join(f"{value:.3f}" for value in means))
        faster = mean(case["times_faster"] for case in cases)
        rows.append([bench["graph"], count, len(cases), *cells, f"{faster:.1f} x"])
    head = ["graph", "updates", "seeds", "added facts", "removed facts", "test facts of their entities"]
    text = table([*head, "slowest update, faster than training again"], rows)
    commands = "`, `".join(bench["command"] for bench in runs)
    return f"MRR updated / trained again:\n\n{text}\n\n{runs[0]['environment']['device']}. `{commands}`."


def noise_weights() -> str:
    bench, rows = result("noise-weights"), []
    trainings = ["dropped", "weight .3", "weight .3 squared", "unmarked"]
    for row in bench["rows"]:
        means = [f"{row['mean'][name]:.3f}" for name in trainings]
        recovered = row["recovered"] or {}
        shares = [_share(recovered.get(name)) for name in trainings[1:3]]
        rows.append([row["graph"], row["loss"], len(row["mrr"]["dropped"]), *means, *shares])
    head = ["graph", "loss", "seeds", *trainings, "recovered by .3", "by .3 squared"]
    return f"{table(head, rows)}\n\n{bench['protocol']}. `{bench['command']}`, {bench['environment']['device']}."


def checkpoint_cost() -> str:
    bench = result("experiments-cpu")
    size, seconds = bench["checkpoint_size"], bench["checkpoints"]["cpu_seconds"]
    none, default, many = (f"{seconds[name]:.1f}" for name in ("none", "defaults", "every 20 steps"))
    text = f"Cost: two epochs of the demo take {none} CPU seconds without checkpoints, {default} with the defaults, "
    text += f"{many} with one every 20 steps (medians of five). A checkpoint of HHolE on FB15K, d = 512, is "
    text += f"{size['megabytes']:.0f} MB and takes {size['seconds']:.1f} s to write. "
    return text + "`python benchmarks/experiments_cpu.py`, on a busy CPU."


# Reproductions of the paper: lists of records, one per run ------------------------------------------------------------


def kept(name: str, dataset: str | None = None) -> list[Record]:
    """The records of an experiment: all, those of one dataset, or of datasets that are not the paper's (`other`)."""
    every = records.read(ROOT / "results" / f"{name}.json")
    if dataset == "other":
        return [record for record in every if record["dataset"] not in PAPER_DATASETS]
    return [record for record in every if dataset in (None, record["dataset"])]


def options(group: list[Record]) -> str:
    """The options that make a line again, after `harmonium paper table EXPERIMENT --dataset DATASET`."""
    seeds = ",".join(str(record["seed"]) for record in group)
    tail = group[0]["command"].partition(" --rows ")[2].replace(f"--seeds {group[0]['seed']}", f"--seeds {seeds}")
    return f"`--rows {tail}`"


def origin(group: list[Record]) -> str:
    """Devices, time and commits of records."""
    devices = ", ".join(sorted({record["device"] for record in group}))
    commits = ", ".join(sorted({(record["commit"] or "unknown")[:8] for record in group}))
    minutes = sum(record["seconds"] for record in group) / 60
    return f"{len(group)} runs on {devices}, {minutes:.0f} minutes in total; commit {commits}."


def models(name: str, dataset: str | None) -> str:
    """A table per dataset: published, faithful, calibrated; both protocols and the options in the same line."""
    parts = []
    for data, group in _by_dataset(kept(name, dataset)).items():
        head, rows = tables.model_table(group, METRICS)
        by_label = {(tables.label(g[0]), g[0]["variant"]): g for g in records.by_seeds(group).values()}
        for row in rows:
            seeds = by_label.get((row[0], row[1].split(",")[0]))
            row.append(options(seeds) if seeds else "")
            row[-2] = {"+": f"reached ({row[-2]})", "-": f"not reached ({row[-2]})"}.get(row[-2][:1], "")
        head[-1] = "published MRR, typed"
        protocol = describe_protocol(EvaluateConfig(**{k: v for k, v in group[0]["protocol"].items() if k != "filter"}))
        about = f"`harmonium paper table {name} --dataset {data}` with a line's options makes that line again. "
        about += f"First five metrics: {protocol}; full: all entities, realistic ties. {origin(group)}"
        title = f"**{data}**\n\n" if dataset in ("other", None) else ""
        parts.append(f"{title}{table([*head, 'options'], rows)}\n\n{about}")
    return "\n\n".join(parts) or NOT_YET


def analysis(name: str) -> str:
    """The table of an analysis per dataset, and its command."""
    parts = []
    for data, group in _by_dataset(kept(name)).items():
        rows = table(*tables.TABLES[name](group))
        parts.append(f"**{data}**\n\n{rows}\n\n`{group[0]['command']}`. {origin(group)}")
    return "\n\n".join(parts) or NOT_YET


def controls(question: str) -> str:
    """The controls that answer a question, HolE first, in the order of their definition."""
    names = list(CONTROLS[question])

    def order(record: Record) -> tuple[bool, int]:
        composition, name = record["row"].split("/")
        return composition != "hole", names.index(name)

    parts = []
    for data, group in _by_dataset(kept("controls")).items():
        selected = sorted((record for record in group if record["row"].split("/")[1] in names), key=order)
        if selected:
            about = f"`harmonium paper table controls --dataset {data}`, d = {selected[0]['dim']}. "
            parts.append(f"**{data}**\n\n{table(*tables.control_table(selected))}\n\n{about}{origin(selected)}")
    return "\n\n".join(parts) or NOT_YET


def leaderboard() -> str:
    """A table per dataset: rows of results/leaderboard.json in bold among published ones, best first."""
    published_rows = json.loads((ROOT / "benchmarks" / "published.json").read_text(encoding="utf-8"))["rows"]
    ours = result("leaderboard") if (ROOT / "results" / "leaderboard.json").exists() else []
    parts = []
    for dataset in dict.fromkeys(row["dataset"] for row in (*published_rows, *ours)):
        own = [row for row in ours if row["dataset"] == dataset]
        others = [row for row in published_rows if row["dataset"] == dataset]
        rows = sorted(
            [(row["mrr"], _own_row(row)) for row in own] + [(row["mrr"], _published_row(row)) for row in others]
        )
        head = ["model", "MRR", "pessimistic ties", "hits@1", "hits@10", "parameters", "seconds", "device", "source"]
        text = table(head, [cells for _, cells in reversed(rows)])
        parts.append(f"## {dataset}\n\n{text}" + ("" if own else f"\n\n{NOT_YET}"))
    return "\n\n".join(parts) or NOT_YET


def _own_row(row: dict[str, Any]) -> list[str]:
    seeds = f"mean of {row['seeds']} seeds" if row["seeds"] > 1 else "one model"
    kind = f"product of {len(row['weights'])} models" if row["ensemble"] else seeds
    spread = ""
    if not row["ensemble"] and len(row["per_seed"]) > 1:
        values = [seed["mrr"] for seed in row["per_seed"]]
        spread = f" ({min(values):.4f} to {max(values):.4f})"
    metrics = [f"**{row['mrr']:.4f}**{spread}", f"{row['mrr_pessimistic']:.4f}", f"{row['hits@1']:.3f}"]
    metrics += [f"{row['hits@10']:.3f}", f"{row['parameters'] / 1e6:.2f} M", f"{row['seconds']:,.0f}", row["device"]]
    return [f"**{row['model']}**, {kind}", *metrics, f"`{row['command']}`"]


def _published_row(row: dict[str, Any]) -> list[str]:
    hits = [f"{row[name]:.3f}" if row[name] is not None else "" for name in ("hits@1", "hits@10")]
    note = f"; {row['note']}" if "note" in row else ""
    return [row["model"], f"{row['mrr']:.3f}", "", *hits, "", "", "", f"{row['source']} {row['year']}{note}"]


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


SEED_SPREAD = 0.003  # of MRR over seeds: closer rows count as equal


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
            verdict = "holds" if first > second else "does not hold"
            if abs(first - second) < SEED_SPREAD:
                verdict = "no difference"
            cells.append(f"{verdict}: {first:.3f} against {second:.3f}")
        paper = [published(data, row)["mrr"] for row in (winner, loser)]
        rows.append([data, text, " against ".join(f"{value:.3f}" for value in paper), *cells])
    return table(["dataset", "claim", "published", "faithful", "calibrated"], rows)


def _by_dataset(group: list[Record]) -> dict[str, list[Record]]:
    names = sorted({record["dataset"] for record in group})
    return {name: [record for record in group if record["dataset"] == name] for name in names}


PARTS: dict[str, list[tuple[str, Callable[[], str]]]] = {
    "README.md": [("headline", headline)],
    "docs/results.md": [
        ("claims", claims),
        *((f"table1-{name}", partial(models, "table1", name)) for name in (*PAPER_DATASETS, "other")),
        ("htpr", partial(models, "htpr", None)),
        ("paper-start", paper_start),
        *((name, partial(analysis, name)) for name in ("neighbourhoods", "density", "gain", "classification")),
        *((f"controls-{name.split()[0]}", partial(controls, name)) for name in CONTROLS),
        ("presets", presets),
        ("harmony-after", harmony_after),
        ("harmony-map", harmony_map),
        ("explanations", explanations),
        ("noise-weights", noise_weights),
        ("demo", demo),
        ("quality", quality),
        ("curves", curves),
    ],
    "docs/leaderboard.md": [("leaderboard", leaderboard)],
    "docs/performance.md": [
        ("speed", speed),
        ("all-entity", all_entity_steps),
        ("precision", precision),
        ("busy", busy),
    ],
    "docs/tutorial.md": [
        ("tutorial-metrics", tutorial_metrics),
        ("tutorial-predict", partial(printed, "predict", "(North Macedonia")),
        ("tutorial-neighbours", partial(printed, "neighbours", "Switzerland in (", 5)),
    ],
    "docs/scale.md": [
        ("scale", scale),
        ("rounding", rounding),
        ("large-gpu", large_gpu),
        ("large-graph", large_graph),
        ("memory", memory),
        ("debian", debian),
    ],
    "docs/reliability.md": [("checkpoint-cost", checkpoint_cost), ("load", load)],
    "docs/doctor.md": [("known-graphs", known_graphs)],
    "docs/how-to/update.md": [
        ("updates", updates),
        ("updates-cpu", partial(updates, "bench-update-cpu")),
        ("update-chains", update_chains),
    ],
}


def render(text: str, parts: list[tuple[str, Callable[[], str]]]) -> str:
    for name, make in parts:
        start, end = f"<!-- {name} -->\n", f"\n<!-- /{name} -->"
        before, _, rest = text.partition(start)
        _, marker, after = rest.partition(end)
        if not marker:
            raise SystemExit(f"no part {start.strip()} to fill")
        text = before + start + make() + end + after
    return text


def reference() -> dict[str, str]:
    """The generated pages, by path."""
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "reference" / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {f"docs/reference/{name}.md": text for name, text in module.pages().items()}


def pages() -> dict[str, Callable[[str], str]]:
    """How the text of each page follows from the present one."""
    parts = {page: partial(render, parts=parts) for page, parts in PARTS.items()}
    return parts | {page: partial(_replace, text=text) for page, text in reference().items()}


def _replace(_: str, text: str) -> str:
    return text


def main() -> None:
    stale = []
    for page, make in pages().items():
        path = ROOT / page
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        after = make(before)
        if before != after:
            stale.append(page)
            if "--check" not in sys.argv:
                path.write_text(after, encoding="utf-8")
    if stale and "--check" in sys.argv:
        raise SystemExit(f"stale: {', '.join(stale)}; run python benchmarks/render.py")
    print(f"changed: {', '.join(stale) or 'nothing'}")


if __name__ == "__main__":
    main()
