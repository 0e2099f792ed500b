"""Where harmony helps: each use beside its controls, over several seeds, with tests of significance.

    PYTHONPATH=src python benchmarks/harmony_map.py measure likelihood,roles FB237.graph --seeds 0,1 --values values
    PYTHONPATH=src python benchmarks/harmony_map.py report results/harmony-map.json --values values

`measure` trains, and stores the values of every query, by experiment, graph and seed, in the folder VALUES; calls of a few
minutes add seeds. `report` chooses a variant in each family by its mean on validation queries, over all seeds, and compares
the harmonic family with each control on test queries, once. Needs torch, numpy, scipy and safetensors.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from harmony_uses import Experiment, Families, Measured, Setup, classification, joint, likelihood, noise, rare
from role_retrieval import paper_roles, roles

from harmonium.config.settings import EvaluateConfig
from harmonium.data.datasets import load
from harmonium.errors import HarmoniumError
from harmonium.evaluation.evaluation import describe_protocol
from harmonium.evaluation.significance import compare_paired
from harmonium.paper import records
from harmonium.run.environment import environment
from harmonium.runtime import tensor_file
from harmonium.runtime.device import pick_device

EXPERIMENTS: dict[str, Experiment] = {
    "likelihood": likelihood,
    "classification": classification,
    "roles": roles,
    "paper-roles": paper_roles,
    "rare": rare,
    "joint": joint,
    "noise": noise,
}
CHOSEN_BY_FIRST_SEED = {"joint", "noise"}  # every variant is a training, so later seeds train the chosen ones only
OWN_RECIPE = {"paper-roles"}  # experiments that do not train the preset plain
RECIPES = {  # settings on top of the preset plain, by graph
    "FB15K-237": ["model.entity_dim=2000", "train.batch_size=500", "train.n3=0.05", "train.epochs=20"],
    "WN18RR": ["model.entity_dim=2000", "train.batch_size=250", "train.n3=0.1", "train.epochs=20"],
}
SEPARATOR = "|"
PROTOCOL = (
    f"reciprocal ranks of facts: {describe_protocol(EvaluateConfig())}; validation chooses variants; "
    "bootstrap over seeds, relations and queries, and sign flips over relations (evaluation/significance.py)"
)


# Measure -----------------------------------------------------------------------------------------------------------------


def measure(options: argparse.Namespace) -> None:
    graph = load(options.graph)
    for seed in map(int, options.seeds.split(",")):
        overrides = [*RECIPES.get(graph.name, []), *options.overrides]
        plain = Setup(graph, overrides, seed, options.device, types=options.types)
        for name in options.experiments.split(","):
            setup = plain if name not in OWN_RECIPE else replace(plain, overrides=options.overrides)
            started, file = time.perf_counter(), options.values / f"{graph.name}.{name}.{seed}.safetensors"
            if file.exists():
                print(f"{file}: already measured", flush=True)
                continue
            first = options.values / f"{graph.name}.{name}.0.safetensors"
            if name in CHOSEN_BY_FIRST_SEED and seed and first.exists():
                setup = replace(setup, variants=chosen_variants(read_values(first)[0]))
            measured = EXPERIMENTS[name](setup)
            about = {
                "experiment": name, "graph": graph.name, "seed": seed, "overrides": setup.overrides,
                "command": command(options),
                "device": environment(pick_device(options.device))["device"],
                "seconds": round(time.perf_counter() - started, 1),
            }  # fmt: skip
            write_values(file, measured, about)
            print(f"{file}: {about['seconds']} s", flush=True)
            for one in measured:
                for line in describe(one):
                    print(f"  {one.measure}: {line}", flush=True)


def command(options: argparse.Namespace) -> str:
    """The call that measures the same, for every seed and in any folder."""
    parts = ["measure", options.experiments, Path(options.graph).name, "--seeds", options.seeds]
    return f"python benchmarks/harmony_map.py {shlex.join([*parts, '--set', *options.overrides])}".removesuffix(
        " --set"
    )


def write_values(file: Path, measured: Iterable[Measured], about: dict[str, Any]) -> None:
    tensors: dict[str, Tensor] = {}
    for one in measured:
        for split, relation in one.relation.items():
            tensors[SEPARATOR.join([one.measure, "relation", "", split])] = relation.cpu().contiguous()
        for family, variants in one.families.items():
            for variant, values in variants.items():
                for split, column in values.items():
                    tensors[SEPARATOR.join([one.measure, family, variant, split])] = column.cpu().double().contiguous()
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as opened:
        opened.writelines(tensor_file.parts(tensors, {"about": json.dumps(about)}))


def read_values(file: Path) -> tuple[list[Measured], dict[str, Any]]:
    measures: dict[str, Measured] = {}
    tensors, metadata = tensor_file.read(file)
    for key, tensor in tensors.items():
        measure, family, variant, split = key.split(SEPARATOR)
        one = measures.setdefault(measure, Measured(measure, {}, {}))
        values = one.relation if family == "relation" else one.families.setdefault(family, {}).setdefault(variant, {})
        values[split] = tensor
    return list(measures.values()), json.loads(metadata["about"])


def chosen_variants(measured: Iterable[Measured]) -> dict[str, set[str]]:
    """For each family the variants that validation chooses in one of the measures."""
    chosen: dict[str, set[str]] = {}
    for one in measured:
        for family, variants in one.families.items():
            chosen.setdefault(family, set()).add(choose([variants]))
    return chosen


def describe(one: Measured) -> list[str]:
    """Means on validation queries: test queries are for the report."""
    lines = []
    for family, variants in one.families.items():
        means = [f"{name} {values['valid'].mean():.4f}" for name, values in variants.items() if "valid" in values]
        lines.append(f"{family}: {', '.join(means)}")
    return lines


# Report ------------------------------------------------------------------------------------------------------------------


def choose(by_seed: list[dict[str, dict[str, Tensor]]]) -> str:
    """The variant, among those of every seed, with the highest mean on validation queries; a single one needs no values."""
    names = [name for name in by_seed[0] if all(name in variants for variants in by_seed)]
    if len(names) == 1:
        return names[0]
    return max(names, key=lambda name: sum(variants[name]["valid"].mean().item() for variants in by_seed))


def report(options: argparse.Namespace) -> None:
    groups: dict[tuple[str, str], list[tuple[list[Measured], dict[str, Any]]]] = {}
    for file in sorted(options.values.glob("*.safetensors")):
        measured, about = read_values(file)
        groups.setdefault((about["experiment"], about["graph"]), []).append((measured, about))
    if not groups:
        raise HarmoniumError(f"{options.values}: no values; run harmony_map.py measure first")
    order = list(EXPERIMENTS)
    rows = [
        row
        for (experiment, graph), group in sorted(groups.items(), key=lambda item: (order.index(item[0][0]), item[0][1]))
        for row in compare_families(experiment, graph, group, options.samples)
    ]
    abouts = [about for group in groups.values() for _, about in group]
    result = {
        "command": f"python benchmarks/harmony_map.py report {options.out.name} --samples {options.samples}",
        "measured_by": sorted({about["command"] for about in abouts}),
        "device": ", ".join(sorted({about["device"] for about in abouts})),
        "protocol": PROTOCOL,
        "rows": rows,
    }
    text = json.dumps(records.plain(result), indent=1, allow_nan=False)
    options.out.write_text(text + "\n", encoding="utf-8")
    for row in rows:
        c = row["comparison"]
        print(
            f"{row['experiment']} {row['graph']} {row['measure']}: {row['model']} {c['model']:.4f} - {row['control']} "
            f"{c['control']:.4f} = {c['difference']:+.4f} p {c['p']:.4f} {c['sign_flip_p']:.4f}"
        )


def compare_families(
    experiment: str, graph: str, group: list[tuple[list[Measured], dict[str, Any]]], samples: int
) -> list[dict[str, Any]]:
    """Rows of one experiment on one graph: the harmonic family against every other, for each measure."""
    rows: list[dict[str, Any]] = []
    seeds = [about["seed"] for _, about in group]
    about = group[0][1]
    for number, one in enumerate(group[0][0]):
        by_seed = [_of_measure(measured, one.measure) for measured, _ in group]
        chosen = {family: choose([families[family] for families in by_seed]) for family in one.families}
        test = {f: torch.stack([families[f][chosen[f]]["test"] for families in by_seed]) for f in chosen}
        for family in chosen:
            if family == "harmony":
                continue
            comparison = compare_paired(test["harmony"], test[family], one.relation["test"], samples, seed=number)
            rows.append(
                {
                    "experiment": experiment, "graph": graph, "measure": one.measure, "model": chosen["harmony"],
                    "control": family if chosen[family] == family else f"{family}, {chosen[family]}", "family": family,
                    "seeds": seeds, "overrides": about["overrides"], "device": about["device"],
                    "seconds": sum(each["seconds"] for _, each in group),
                    "significant": comparison.is_significant(), "comparison": comparison.to_json(),
                }
            )  # fmt: skip
    return rows


def _of_measure(measured: list[Measured], name: str) -> Families:
    return next(one.families for one in measured if one.measure == name)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("measure", help="train and store the values of every query")
    one.add_argument("experiments", help=f"separated by commas: {', '.join(EXPERIMENTS)}")
    one.add_argument("graph", help="file of a graph")
    one.add_argument("--seeds", default="0,1,2,3,4")
    one.add_argument("--device", default="auto")
    one.add_argument("--values", type=Path, default=Path("values"))
    one.add_argument("--types", type=Path, help="file of entity types for roles, such as FB15K's entity_types.tsv")
    one.add_argument("--set", dest="overrides", nargs="+", default=[], metavar="KEY=VALUE")
    one.set_defaults(run=measure)
    two = commands.add_parser("report", help="compare on test queries")
    two.add_argument("out", type=Path)
    two.add_argument("--values", type=Path, default=Path("values"))
    two.add_argument("--samples", type=int, default=5000)
    two.set_defaults(run=report)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
