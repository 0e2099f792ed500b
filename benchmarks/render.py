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
GPU = ("atlas", "", "FB237")  # graphs of results/best-gpu.json, by column of the headline
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
    best = {run["graph"]: f"{run['plain']['mrr']:.3f}" for run in result("best-gpu")["runs"]}
    trained = records.by_seeds(kept("table1", "FB15K"))
    controls = records.by_seeds(kept("controls", "FB15K-237"))

    def paper(row: str) -> str:
        return records.format_mean([record["full"]["mrr"] for record in trained["FB15K", row, "calibrated"]])

    def control(row: str) -> str:
        return records.format_mean([record["full"]["mrr"] for record in controls["FB15K-237", row, "control"]])

    rows = [
        ["frequency baseline", f"{demo['baselines']['frequency']['mrr']:.3f}", "", ""],
        ["HHolE, λ = 1", f"{hhole['metrics']['mrr']:.3f}", paper("hhole-1"), control("hole/lambda-1")],
        ["ComplEx", f"{demo['vectors_alone']['mrr']:.3f}", f"{gpu['ranking']['complex']['mrr']:.3f}", ""],
        ["ComplEx and constraints", f"{demo['metrics']['mrr']:.3f}", "", ""],
        ["preset best, H200", *(best.get(graph, "") for graph in GPU)],
        ["[leaderboard](docs/results.md#leaderboard), H200", "", best_single("FB15K"), best_single("FB15K-237")],
    ]
    text = table(["MRR, all entities", "atlas", "FB15K", "FB15K-237"], rows)
    ratios = []
    for task, name in (("sampled_training", "sampled training"), ("all_entity_training", "all-entity training")):
        low, high = sorted(cpu["ratio_to_pykeen"][task].values())
        ratios.append(f"{name} {low:.0f} to {high:.0f}")
    low, high = sorted(cpu["ratio_to_pykeen"]["ranking"].values())
    ratios.append(f"ranking {low:.0f} to {high:.0f}")
    return f"{text}\n\nThroughput relative to PyKEEN 1.11, two CPU cores: {', '.join(ratios)} times."


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


def truth() -> str:
    """Stated beside true shares of lists of missing facts, on graphs from which facts were removed."""
    rows = result("truth")["rows"]
    beds = dict.fromkeys(row["bed"] for row in rows)

    def of(bed: str, made: str, key: str, value: Any = None) -> dict[str, Any] | None:
        mine = (row for row in rows if row["bed"] == bed and row.get("list") == made and key in row)
        return next((row for row in mine if value is None or row[key] == value), None)

    def shares(row: dict[str, Any] | None) -> str:
        return "" if row is None else f"{row['stated']:.2f} / {row['true']:.2f}"

    def true(row: dict[str, Any] | None) -> str:
        return "" if row is None else f"{row['true']:.2f}"

    lines = []
    for bed in beds:
        missing = of(bed, "harmonium", "missing_true") or {}
        bins = [row for row in rows if row["bed"] == bed and row.get("list") == "harmonium" and "bin" in row]
        within = sum(abs(row["stated"] - row["true"]) <= 0.05 for row in bins)
        cells = [f"{missing['missing_estimated']:,} / {missing['missing_true']:,}"]
        cells += [shares(of(bed, "harmonium", "top", top)) for top in (100, 1000)]
        cells.append(f"{within} of {len(bins)}")
        cells += [true(of(bed, made, "top", 1000)) for made in ("vectors alone", "frequency")]
        lines.append([bed, *cells])
    head = ["graph", "missing: estimated / true", "top 100: stated / true", "top 1,000", "bins within .05"]
    return table([*head, "true of 1,000 by vectors", "by frequency"], lines)


def audit() -> str:
    """Precision of the suspects of an audit, and what it says of how many facts are wrong."""

    def cells(row: dict[str, Any]) -> list[str]:
        precision = " / ".join(f"{share:.2f}" for share in row.get("precision", []))
        estimate, low, high = (f"{100 * share:.1f}" for share in row["estimated"])
        likely = row["above_0.5"]
        wrong = "" if likely["wrong"] is None else f", {likely['wrong']:.2f} wrong"
        checked = row["proposals"]
        right = f"{checked['right']} of {checked['of_wrong']}" if "right" in checked else ""
        share = f"{100 * row['wrong'] / row['facts']:.1f}"
        seconds = f"{row['train_seconds']:.0f} / {row['audit_seconds']:.0f}"
        return [precision, f"{likely['facts']}{wrong}", f"{estimate} ({low} to {high}) / {share}", right, seconds]

    head = [
        "graph, noise, seed",
        "precision at 1 / 2 / 3 / 4 / 5 %",
        "above 50 %",
        "% wrong: estimated / true",
        "right proposals",
    ]
    rows = result("audit")["rows"]
    names = [f"{row['bed']}, {row['noise']}, {row['seed']}" for row in rows]
    return table(
        [*head, "CPU s: training / audit"], [[name, *cells(row)] for name, row in zip(names, rows, strict=True)]
    )


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


def presets() -> str:
    """The preset best beside plain models under one time budget."""
    bench = result("presets")
    names = list(dict.fromkeys(run["model"] for run in bench["runs"]))
    facts = {run["graph"]: run["facts"] for run in bench["runs"]}
    by_cell = {(run["graph"], run["model"]): run for run in bench["runs"]}
    rows = []
    for name, count in facts.items():
        cells = [by_cell.get((name, model)) for model in names]
        mrr = (f"{run['metrics']['mrr']:.3f} ({run['seconds']:.0f} s)" if run else "" for run in cells)
        rows.append([name, f"{count:,}", *mrr])
    minutes, device = bench["runs"][0]["minutes"], bench["runs"][0]["device"]
    about = f"Test MRR within {minutes:g} minutes on {device}, seed 0. `{bench['command']}`."
    return f"{table(['graph', 'facts', *names], rows)}\n\n{about}"


def defaults() -> str:
    """What the default command gives with and without families of constraints."""
    if not (ROOT / "results" / "defaults.json").exists():
        return NOT_YET
    bench = result("defaults")
    without = list(bench["runs"][0]["without"])
    rows = []
    for run in bench["runs"]:
        cells = [f"{mrr:.3f}" for mrr in run["without"].values()]
        mrr, seconds = f"**{run['metrics']['mrr']:.3f}**", f"{run['cpu_seconds']:.0f}"
        rows.append([run["graph"], f"{run['minutes']:g}", mrr, f"{run['vectors_alone']:.3f}", *cells, seconds])
    columns = ["graph", "minutes", "MRR", "vectors alone", *(f"without {name}" for name in without), "CPU seconds"]
    stages = []
    for run in bench["runs"]:
        parts = ", ".join(f"{name} {seconds:.0f}" for name, seconds in run["stages"].items() if seconds >= 1)
        stages.append(f"{run['graph']}: {parts}")
    about = f"{bench['device']}, beside other work; seed 0. `{bench['command']}`."
    return f"{table(columns, rows)}\n\n{about}\n\nCPU seconds of the stages: {'; '.join(stages)}."


def small_p(p: float) -> str:
    return "p < .001" if p < 0.001 else f"p = {p:.3f}"


def tokens() -> str:
    """Density of facts around true and false facts, and retrieval in a role, by tokens and by composed vectors."""
    rows, roles = [], []
    for bench in result("tokens")["runs"]:
        density, retrieval = bench["density"], bench["roles"]["spaces"]
        composed, found = density["spaces"]["composed"], density["spaces"]["tokens"]
        graph = bench["graph"] + (", constraints" if bench["constraints"] else "")
        changes = [f"{composed[kind]:.3f} to {found[kind]:.3f}" for kind in ("true", "false")]
        change = found["separation_change"]
        separation = f"{composed['separation']:.3f} to {found['separation']:.3f}"
        p, better = small_p(change["p"]), f"{change['better_relations']} of {change['relations']}"
        rows.append([graph, *changes, separation, p, better])
        cells = []
        for name in ("composed", "entity, cosine", "score"):
            chance = retrieval[name]["tokens_better_alike"]["p"]
            cells.append(f"{retrieval[name]['alike']:.3f}" + f" ({small_p(chance)})")
        roles.append([graph, f"{retrieval['tokens']['alike']:.3f}", *cells])
    head = ["graph", "true facts", "false facts", "separation", "p", "relations better"]
    first = table(head, rows)
    second = table(["graph, MRR in a role", "tokens", "composed vectors", "entity vectors", "score"], roles)
    return f"{first}\n\n{second}"


def leaderboard() -> str:
    """A table per dataset: rows of results/leaderboard.json in bold among published ones, best first."""
    published_rows = json.loads((ROOT / "benchmarks" / "published.json").read_text(encoding="utf-8"))["rows"]
    ours = result("leaderboard") if (ROOT / "results" / "leaderboard.json").exists() else []
    parts = []
    for dataset in dict.fromkeys(row["dataset"] for row in (*ours, *published_rows)):
        own = [(row["mrr"], _own_row(row)) for row in ours if row["dataset"] == dataset]
        others = [(row["mrr"], _published_row(row)) for row in published_rows if row["dataset"] == dataset]
        if own:
            head = ["model", "MRR", "hits@1", "hits@10", "seconds", "source"]
            rows = [cells for _, cells in sorted([*own, *others], reverse=True)]
            parts.append(f"### {dataset}\n\n{table(head, rows)}")
    return "\n\n".join(parts) or NOT_YET


def _own_row(row: dict[str, Any]) -> list[str]:
    kind = f"product of {len(row['weights'])} models" if row["ensemble"] else "one model"
    spread = ""
    if not row["ensemble"] and len(row["per_seed"]) > 1:
        values, kind = [seed["mrr"] for seed in row["per_seed"]], f"mean of {row['seeds']} seeds"
        spread = f" ({min(values):.4f} to {max(values):.4f})"
    hits = [f"{row[name]:.3f}" for name in ("hits@1", "hits@10")]
    source = f"`{row['command'].removeprefix('python benchmarks/leaderboard.py ')}`, {row['device']}"
    return [f"**{row['model']}**, {kind}", f"**{row['mrr']:.4f}**{spread}", *hits, f"{row['seconds']:,.0f}", source]


def _published_row(row: dict[str, Any]) -> list[str]:
    hits = [f"{row[name]:.3f}" if row[name] is not None else "" for name in ("hits@1", "hits@10")]
    note = f"; {row['note']}" if "note" in row else ""
    return [row["model"], f"{row['mrr']:.3f}", *hits, "", f"{row['source']} {row['year']}{note}"]


def large_gpu() -> str:
    """Shared negatives, where the choice of table matters."""
    bench, rows = result("bench-large-gpu"), []
    for name, case in bench["cases"].items():
        model, kind, negatives = name.split("; ")
        if negatives == "shared negatives":
            sizes = [f"{case[part] / 1e9:.1f}" if part in case else "" for part in ("device_bytes", "host_bytes")]
            rows.append([model, kind, f"{case['triples_per_s']:,.0f}", f"{case['ms_per_step']:.1f}", *sizes])
    sizes = bench["sizes"]
    about = (
        f"{sizes['entities']:,} entities, {sizes['triples']:,} triples, d = {sizes['dim']}, batch {sizes['batch']:,}, "
    )
    about += f"{sizes['negatives']} negatives on each side, shared by {sizes['shared']} triples. "
    head = ["model", "table", "triples/s", "ms per step", "GPU, GB", "host, GB"]
    return f"{table(head, rows)}\n\n{about}`{bench['command']}`, {bench['environment']['device']}."


# The paper: lists of records, one per run -----------------------------------------------------------------------------


def kept(name: str, dataset: str | None = None) -> list[Record]:
    """The records of an experiment: all, or those of one dataset."""
    every = records.read(ROOT / "results" / f"{name}.json")
    return [record for record in every if dataset in (None, record["dataset"])]


def origin(group: list[Record]) -> str:
    """Devices, time and commits of records."""
    devices = ", ".join(sorted({record["device"] for record in group}))
    commits = ", ".join(sorted({(record["commit"] or "unknown")[:8] for record in group}))
    minutes = sum(record["seconds"] for record in group) / 60
    return f"{len(group)} runs on {devices}, {minutes:.0f} minutes; commit {commits}."


def paper_rows() -> str:
    """A line for each row of the paper's tables: published, faithful and calibrated MRR, then the standard protocol."""
    group = [record for name in ("table1", "htpr") for record in kept(name)]
    if not group:
        return NOT_YET
    by_seeds, lines = records.by_seeds(group), []
    for first in {(r["dataset"], r["row"]): r for r in sorted(group, key=tables.paper_order)}.values():
        faithful, calibrated = (
            by_seeds.get((first["dataset"], first["row"], variant), []) for variant in ("faithful", "calibrated")
        )
        cells = [f"{first['published']['mrr']:.3f}" if first["published"] else ""]
        for runs in (faithful, calibrated):
            mrr = records.format_mean([record["mrr"] for record in runs]) if runs else ""
            cells.append(f"{mrr} ✓" if runs and tables.against_published(runs).startswith("+") else mrr)
        for metric in ("mrr", "hits@10"):
            cells.append(records.format_mean([record["full"][metric] for record in calibrated]) if calibrated else "")
        epochs = ", ".join(str(runs[0]["epochs"]) for runs in (faithful, calibrated) if runs)
        lines.append([first["dataset"], tables.label(first), f"`{first['row']}`", *cells, epochs])
    head = ["graph", "model", "row", "published", "faithful", "calibrated", "full MRR", "full hits@10", "epochs"]
    protocol = EvaluateConfig(**{name: value for name, value in group[0]["protocol"].items() if name != "filter"})
    about = f"Published, faithful and calibrated: MRR, {describe_protocol(protocol)}; ✓: the published number is "
    about += "reached. Full: calibrated, all entities, realistic ties. Epochs: faithful, calibrated. "
    return f"{table(head, sorted(lines, key=lambda line: line[0]))}\n\n{about}{origin(group)}"


def analysis(name: str) -> str:
    """The table of an analysis, and the command of its first line."""
    group = kept(name)
    return f"{table(*tables.TABLES[name](group))}\n\n`{group[0]['command']}`. {origin(group)}" if group else NOT_YET


def starts() -> str:
    """Rows of the paper by what they take from the authors' program."""
    if not (ROOT / "results" / "paper-start.json").exists():
        return NOT_YET
    bench, lines = result("paper-start"), []
    for cell in bench["cells"]:
        parts = ", ".join(bench["starts"][cell["start"]]) or "none"
        mrr = [f"{cell[protocol]['mrr']:.3f}" for protocol in ("typed", "full")]
        lines.append([cell["graph"], cell["row"], parts, cell["epochs"], *mrr])
    text = table(["graph", "row", "from the authors' program", "epochs", "typed MRR", "full MRR"], lines)
    return f"{text}\n\n`{bench['command']}`, {bench['device']}, one seed."


def controls() -> str:
    """Typed and full MRR of each control, a column for each composition and graph."""
    group = kept("controls")
    if not group:
        return NOT_YET
    groups, lines = records.by_seeds(group), []
    columns = sorted(
        {(row.split("/")[0], data) for data, row, _ in groups}, key=lambda pair: (pair[0] != "hole", pair[1])
    )
    for reason, names in CONTROLS.items():
        for name in names:
            cells = []
            for composition, data in columns:
                runs = groups.get((data, f"{composition}/{name}", "control"), [])
                both = [[run["mrr"] for run in runs], [run["full"]["mrr"] for run in runs]]
                cells.append(" / ".join(f"{records.mean(values)[0]:.3f}" for values in both) if runs else "")
            if any(cells):
                lines.append([reason, f"`{name}`", *cells])
    titles = [f"{'HolE' if composition == 'hole' else 'DistMult'}, {data}" for composition, data in columns]
    about = f"MRR typed / full, means over at most {max(map(len, groups.values()))} seeds, d = {group[0]['dim']}. "
    about += f"`harmonium paper table controls --dataset GRAPH`. {origin(group)}"
    return f"{table(['what', 'control', *titles], lines)}\n\n{about}"


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


PARTS: dict[str, list[tuple[str, Callable[[], str]]]] = {
    "README.md": [("headline", headline)],
    "docs/paper.md": [
        ("tokens", tokens),
        ("claims", claims),
        ("rows", paper_rows),
        *((name, partial(analysis, name)) for name in ("neighbourhoods", "density", "gain", "classification")),
        ("starts", starts),
        ("controls", controls),
    ],
    "docs/results.md": [
        ("leaderboard", leaderboard),
        ("defaults", defaults),
        ("presets", presets),
        ("quality", quality),
        ("explanations", explanations),
        ("noise-weights", noise_weights),
        ("truth", truth),
        ("audit", audit),
    ],
    "docs/performance.md": [
        ("gpu", gpu_speed),
        ("all-entity", all_entity_steps),
        ("cpu", cpu_speed),
        ("scale", scale),
        ("large-graph", large_graph),
        ("memory", memory),
        ("rounding", rounding),
        ("large-gpu", large_gpu),
    ],
    "docs/tutorial.md": [
        ("tutorial-metrics", tutorial_metrics),
        ("tutorial-predict", partial(printed, "predict", "(North Macedonia")),
        ("tutorial-similar", partial(printed, "similar", "most like Switzerland", 5)),
    ],
    "docs/reliability.md": [("load", load)],
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
