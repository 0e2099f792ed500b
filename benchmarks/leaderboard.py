"""One row of the leaderboard: python benchmarks/leaderboard.py --dataset FB15K-237 --preset plain --seeds 3 [--ensemble].

Trains a preset with each seed, ranks all test facts (filtered, all entities, unseen ones kept) with realistic and with
pessimistic ties, and writes the row into results/leaderboard.json, in place of an earlier one of the same command.
Several presets make a row each, and `--rules` one of learned path rules. `--ensemble` also adds the product of all models,
of all seeds and presets, and of the rules, with weights learned on validation facts.
Needs torch, numpy and safetensors only, where the dataset is a .graph file.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch
from portable_command import portable_command

from harmonium.config.settings import Config, EvaluateConfig
from harmonium.data.canonical_order import in_canonical_order
from harmonium.data.datasets import load
from harmonium.data.graph import Graph
from harmonium.evaluation.evaluation import describe_protocol, evaluate_scorer
from harmonium.grammar.ensemble import Ensemble
from harmonium.grammar.expert_weights import learn_weights
from harmonium.grammar.path_rules import PathRules
from harmonium.model.build import build_model, title
from harmonium.model.gradient_graph import GradientGraph
from harmonium.model.scoring import Scorer
from harmonium.run.environment import environment
from harmonium.runtime.device import pick_device
from harmonium.training.fit import fit
from harmonium.training.search.search import select
from harmonium.training.train import given_settings, read_recipe

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results" / "leaderboard.json"
PROTOCOL = EvaluateConfig(split="test", ties="realistic")
METRICS = ("mrr", "hits@1", "hits@10")
KEY = ("dataset", "preset", "overrides", "minutes", "seeds", "ensemble", "device")  # one row each
NAMES = {"fb237": "FB15K-237", "fb15k237": "FB15K-237", "fb15k": "FB15K", "wn18": "WN18", "wn18rr": "WN18RR"}

Row = dict[str, Any]


@dataclass(frozen=True)
class Expert:
    """A model and what it cost."""

    scorer: Scorer
    seconds: float  # of search and training; reading the graph and ranking do not count
    parameters: int


@dataclass(frozen=True)
class Training:
    """A trained model and its settings."""

    model: GradientGraph
    config: Config  # as it was trained, choices of a search included
    seconds: float

    @property
    def expert(self) -> Expert:
        return Expert(self.model, self.seconds, sum(parameter.numel() for parameter in self.model.parameters()))


def train(graph: Graph, preset: str, overrides: Sequence[str], minutes: float | None) -> Training:
    """Train a preset as `harmonium train` does; the model stays on its device."""
    started = time.perf_counter()
    given = given_settings(None, None, overrides, {})[1]
    config, search = read_recipe(preset, given)
    if search is not None:
        config, _ = select(config, search, graph, list(given), minutes)
    model = build_model(config.model, graph.n_entities, graph.n_relations, config.train.seed)
    fit(model, graph, config)
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return Training(model, config, time.perf_counter() - started)


def rank(scorer: Scorer, graph: Graph, device: torch.device) -> dict[str, float]:
    """Test metrics with realistic ties, and the MRR with pessimistic ones."""
    ranks = evaluate_scorer(scorer, graph, PROTOCOL, device=device).ranks
    realistic = ranks.metrics("realistic")
    return {name: realistic[name] for name in METRICS} | {"mrr_pessimistic": ranks.metrics("pessimistic")["mrr"]}


def measure(options: argparse.Namespace) -> list[Row]:
    """A row for the single models of each preset, one for path rules and one for the product of all, if asked for."""
    graph, rows, experts = in_canonical_order(load(options.dataset)), [], []
    device = pick_device(given_settings(None, None, options.set, {})[1].get("train.device", "auto"))
    for preset in options.preset:
        row, of_preset = measure_preset(graph, preset, options, device)
        rows.append(row)
        experts += of_preset
    if options.rules:
        row, rules = measure_rules(graph, options, device)
        rows.append(row)
        experts.append(rules)
    if options.ensemble:
        names = {"preset": " + ".join(row["preset"] for row in rows), "model": " * ".join(row["model"] for row in rows)}
        rows.append({**rows[0], "seeds": options.seeds} | names | combine(experts, graph, device))
        del rows[-1]["per_seed"]
        print(f"{graph.name} ensemble MRR {rows[-1]['mrr']:.4f}, weights {rows[-1]['weights']}", flush=True)
    return rows


def measure_preset(
    graph: Graph, preset: str, options: argparse.Namespace, device: torch.device
) -> tuple[Row, list[Expert]]:
    """The row of the single models of a preset, and the models."""
    experts, per_seed = [], []
    for seed in range(options.seeds):
        training = train(graph, preset, [*options.set, f"train.seed={seed}"], options.minutes)
        per_seed.append({"seed": seed, **rank(training.model, graph, device), "seconds": round(training.seconds, 1)})
        print(f"{graph.name} {preset} {json.dumps(per_seed[-1])}", flush=True)
        experts.append(training.expert)
        if not options.ensemble:
            training.model.cpu()
    averages = {name: mean(row[name] for row in per_seed) for name in (*METRICS, "mrr_pessimistic")}
    seconds = round(mean(expert.seconds for expert in experts), 1)
    config = training.config
    settings = {group: asdict(getattr(config, group)) for group in ("model", "train")}
    row = describe(graph, device, options) | {"model": model_name(config), "preset": preset, "settings": settings}
    row |= averages | {"seconds": seconds, "parameters": experts[0].parameters}
    return row | {"ensemble": False, "per_seed": per_seed}, experts


def measure_rules(graph: Graph, options: argparse.Namespace, device: torch.device) -> tuple[Row, Expert]:
    """The row of path rules, which have no seed, and the rules."""
    started = time.perf_counter()
    rules = PathRules.learn(graph.train, graph.n_entities, graph.n_relations)
    expert = Expert(rules, time.perf_counter() - started, len(rules))
    row = describe(graph, device, options) | {"model": "path rules", "preset": "path-rules", "settings": {}}
    row |= rank(rules, graph, device) | {"seconds": round(expert.seconds, 1), "parameters": len(rules)}
    print(f"{graph.name} path rules MRR {row['mrr']:.4f}, {len(rules)} rules, {row['seconds']} s", flush=True)
    return row | {"overrides": [], "seeds": 1, "ensemble": False, "per_seed": []}, expert


def combine(experts: Sequence[Expert], graph: Graph, device: torch.device) -> Row:
    """The product of the models, and what it cost in all."""
    scorers = [expert.scorer for expert in experts]
    started = time.perf_counter()
    weights = learn_weights(scorers, graph, device).weights
    seconds = sum(expert.seconds for expert in experts) + time.perf_counter() - started
    return rank(Ensemble(scorers, weights), graph, device) | {
        "seconds": round(seconds, 1),
        "parameters": sum(expert.parameters for expert in experts),
        "ensemble": True,
        "weights": [round(weight, 4) for weight in weights],
    }


def describe(graph: Graph, device: torch.device, options: argparse.Namespace) -> Row:
    """What was ranked, how and where."""
    return {
        "dataset": options.name or NAMES.get("".join(filter(str.isalnum, graph.name.lower())), graph.name),
        "overrides": options.set,
        "minutes": options.minutes,
        "ties": PROTOCOL.ties,
        "protocol": describe_protocol(PROTOCOL),
        "queries": 2 * len(graph.test),
        "seeds": options.seeds,
        **{key: value for key, value in environment(device).items() if key in ("device", "torch", "commit")},
        "command": portable_command("leaderboard.py", options.arguments),
    }


def model_name(config: Config) -> str:
    """The model with its regulariser and auxiliary loss, and its size: ComplEx-DURA + relation prediction, d = 4000."""
    settings = config.train
    regulariser = "-DURA" if settings.dura else "-N3" if settings.n3 else ""
    auxiliary = " + relation prediction" if settings.relation_prediction else ""
    return f"{title(config)}{regulariser}{auxiliary}, d = {config.model.entity_dim}"


def keep(path: Path, rows: Sequence[Row]) -> None:
    """Add rows to a file, in place of earlier ones with the same key; atomic."""
    stored: list[Row] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    keys = [row_key(row) for row in rows]
    stored = sorted([row for row in stored if row_key(row) not in keys] + list(rows), key=row_key)
    text = json.dumps([_strict(row) for row in stored], indent=1, allow_nan=False) + "\n"
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def row_key(row: Row) -> tuple[str, ...]:
    return tuple(json.dumps(row[name]) for name in KEY)


def _strict(value: Any) -> Any:
    """Strict JSON: infinity (of a faithfulness) becomes a string."""
    if isinstance(value, dict):
        return {name: _strict(part) for name, part in value.items()}
    return str(value) if value in (float("inf"), float("-inf")) else value


def main(arguments: Sequence[str] | None = None) -> None:
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", required=True, help="dataset name, folder, file of triples or .graph file")
    parser.add_argument("--name", help="name of the dataset in the table; default: the graph's")
    parser.add_argument(
        "--preset", default=[], nargs="+", help="preset, recipe or file of settings; several: a row each"
    )
    parser.add_argument("--rules", action="store_true", help="also learn and rank path rules")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds: 0, 1, ...")
    parser.add_argument("--ensemble", action="store_true", help="also rank the product of all models")
    parser.add_argument("--minutes", type=float, help="time budget of a preset that searches")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="settings that stay fixed")
    parser.add_argument("--results", type=Path, default=RESULTS, help="file of rows")
    options = parser.parse_args(arguments)
    if not options.preset and not options.rules:
        parser.error("--preset or --rules says what to rank")
    n_models = options.seeds * len(options.preset) + options.rules
    if options.seeds < 1 or (options.ensemble and n_models < 2):
        parser.error("--seeds is at least 1, and --ensemble needs two models: of several seeds, presets or rules")
    options.arguments = [word for word in arguments if word not in ("--results", str(options.results))]
    keep(options.results, measure(options))


if __name__ == "__main__":
    main()
