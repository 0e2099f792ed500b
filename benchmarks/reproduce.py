"""Rerun the paper's tables, controls and analyses: train what is missing, record it with the published numbers.

    python benchmarks/reproduce.py table1 --dataset FB15K --rows hhole-1 --seeds 0,1

An interrupted run continues from its checkpoint; a record with the same settings is not made again. Needs only torch,
numpy, scipy and safetensors.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

import records
import torch
from paper_rows import VARIANTS, Row, control_rows, paper_rows
from records import METRICS, Record

import harmonium
from harmonium.config.settings import Config, EvaluateConfig
from harmonium.data.datasets import load, locate
from harmonium.data.graph import SPLITS, Graph
from harmonium.data.triples import Slot
from harmonium.errors import HarmoniumError, Interrupted
from harmonium.evaluation.evaluation import evaluate_scorer
from harmonium.model.build import build_model, title
from harmonium.paper.density import density as measure_density
from harmonium.paper.gain import gain as measure_gain
from harmonium.run import checkpoint
from harmonium.run.environment import environment
from harmonium.run.run import Run
from harmonium.runtime.allocator import keep_freed_memory
from harmonium.runtime.device import pick_device
from harmonium.runtime.folders import is_unfinished
from harmonium.training.fit import fit
from harmonium.training.state import Progress

TABLES = ("table1", "htpr")
STANDARD = EvaluateConfig()  # reported in addition to the recipe's protocol: all entities, realistic ties
OFFICE = (
    "/government/politician/government_positions_held./government/government_position_held/office_position_or_title"
)
GUISES = [  # the triplets of the paper's tables: heads, relation, tails, by their identifiers in FB15K
    # George W. Bush, Barack Obama, John McCain, Al Gore as President of the United States
    (["/m/09b6zr", "/m/02mjmr", "/m/0bymv", "/m/0d05fv"], OFFICE, ["/m/060d2"]),
    # Bob Dylan as singer-songwriter, screenwriter, disc jockey, writer
    (["/m/01vrncs"], "/people/person/profession", ["/m/016z4k", "/m/0dxtg", "/m/02dsz", "/m/0cbd2"]),
]


def reproduce(
    experiment: str,
    dataset: str | Path = "FB15K",
    rows: Sequence[str] = (),
    variant: str | None = None,
    seeds: Sequence[int] = (0,),
    scale: str = "full",
    overrides: Sequence[str] = (),
    runs: str | Path = "runs/reproduce",
    results: str | Path | None = None,
    log: Callable[[str], None] = print,
    progress: Callable[[Progress], None] | None = None,
) -> list[Record]:
    """Run the missing parts of an experiment and return its records; each is written as soon as its run is done.

    `rows` are names or patterns such as hhole-*; `progress` is called after each training step.
    """
    if scale not in ("full", "small"):
        raise HarmoniumError(f"--scale is full or small, not '{scale}'")
    variants, graph = _variants(variant, experiment), _load(dataset)
    selected = _select(experiment_rows(experiment, graph, variants, every=bool(rows)), rows)
    labelled = labelled_facts(dataset, graph)
    results = Path(results or ("results" if scale == "full" else Path(runs) / "results"))
    options = " ".join([f"--scale {scale}"] * (scale != "full") + [f"--set {text}" for text in overrides])
    log(f"{experiment} on {graph!r}: {len(selected) * len(seeds)} runs; results in {results}")
    made = []
    for row in selected:
        for seed in seeds:
            config = row.config(graph, seed, scale, overrides)
            job = Job(row, seed, graph, config, options, results, Path(runs), log, progress)
            made.append(job.analyse(experiment, labelled) if experiment in ANALYSES else job.record())
    return made


def experiment_rows(experiment: str, graph: Graph, variants: Sequence[str], every: bool = False) -> list[Row]:
    """The rows of a table, or the trained models that an analysis looks into."""
    if experiment in TABLES:
        return paper_rows(experiment, graph.name, variants)
    if experiment == "controls":
        return control_rows()
    if experiment not in ANALYSES:
        raise HarmoniumError(f"no experiment '{experiment}'; choose from {', '.join(EXPERIMENTS)}")
    harmonic = [row for row in paper_rows("table1", graph.name, variants) if re.fullmatch(r"h.*-[\d.]+", row.name)]
    compositions = ("hhole",) if experiment != "gain" else ("hhole", "hdistmult")
    return [row for row in harmonic if every or row.name.startswith(compositions)]


@dataclass(frozen=True)
class Job:
    """A row to run with one seed on one graph."""

    row: Row
    seed: int
    graph: Graph
    config: Config
    options: str  # of the command line
    results: Path
    runs: Path
    log: Callable[[str], None]
    progress: Callable[[Progress], None] | None

    @property
    def name(self) -> str:
        return f"{self.row.name}, {self.row.variant}, seed {self.seed}"

    @property
    def folder(self) -> Path:
        return self.runs / self.graph.name / f"{self.row.name}.{self.row.variant}.seed{self.seed}"

    def header(self, experiment: str) -> Record:
        """The fields every record has: which run this is and how to make it again."""
        variant = "" if self.row.table == "controls" else f" --variant {self.row.variant}"
        command = f"python benchmarks/reproduce.py {experiment} --dataset {shlex.quote(self.graph.name)}"
        command += f" --rows {self.row.name}{variant} --seeds {self.seed} {self.options}"
        settings = records.settings(self.config)
        return {
            "table": experiment,
            "dataset": self.graph.name,
            "sizes": graph_sizes(self.graph),
            "row": self.row.name,
            "variant": self.row.variant,
            "model": title(self.config),
            "lambda": settings["model"]["faithfulness"] if self.config.model.harmony else None,
            "dim": self.config.model.entity_dim,
            "seed": self.seed,
            "settings": settings,
            "command": command.strip(),
            "commit": commit(),
            "device": environment(pick_device(self.config.train.device))["device"],
        }

    def earlier(self, path: Path) -> Record | None:
        """The record of this job, if there is one with the same settings."""
        key = (self.graph.name, self.row.name, self.row.variant, self.seed)
        for record in records.read(path):
            if records.key(record) == key and record["sizes"] == graph_sizes(self.graph):
                changed = records.differences(record, self.config)
                if not changed:
                    return record
                self.log(f"{self.name}: the record in {path} had other settings; running with {', '.join(changed)}")
        return None

    def record(self) -> Record:
        """The record of this job; trains if it is missing."""
        record = self.earlier(self.results / f"{self.row.table}.json")
        if record is None:
            return self.train()[0]
        self.log(f"{self.name}: already done, {brief(record)}")
        return record

    def analyse(self, experiment: str, labelled: Path | None) -> Record:
        """The record of an analysis of this job's run; trains if the run is missing."""
        path = self.results / f"{experiment}.json"
        record = self.earlier(path)
        if record is not None:
            self.log(f"{self.name}: already done")
            return record
        run = self.run()
        self.log(f"{self.name}: {experiment} of {run.path}")
        started = time.perf_counter()
        measured = ANALYSES[experiment](run, labelled, self.config.train.device)
        record = self.header(experiment) | measured | {"seconds": round(time.perf_counter() - started, 1)}
        records.keep(path, record)
        return record

    def run(self) -> Run:
        """The trained run: an existing folder with these settings, or a new one."""
        if (self.folder / "run.json").is_file():
            run = Run.load(self.folder)
            if self.is_same(run.config, run.graph):
                return run
        return self.train()[1]

    def is_same(self, config: Config, graph: Graph) -> bool:
        changed = records.differences({"settings": records.settings(config)}, self.config)
        return not changed and graph_sizes(graph) == graph_sizes(self.graph)

    @contextlib.contextmanager
    def checkpoints(self) -> Iterator[checkpoint.Checkpoints]:
        """The checkpoints of an earlier attempt at this job, to continue from, or new ones."""
        try:
            if is_unfinished(self.folder):
                with checkpoint.reopen(self.folder, ()) as (checkpoints, config, graph):
                    if self.is_same(config, graph):
                        yield checkpoints
                        return
            device = str(pick_device(self.config.train.device))
            with checkpoint.begin(self.folder, True, self.config, self.graph, device) as checkpoints:
                yield checkpoints
        except Interrupted as stop:
            raise Interrupted(f"{self.name}: interrupted; run the same command to continue", stop.code) from None

    def train(self) -> tuple[Record, Run]:
        """Train, rank under both protocols, keep the record and (except for controls) the run folder."""
        with self.checkpoints() as checkpoints:
            record, run = self._train(checkpoints)
            if self.row.table != "controls":
                run = replace(run, path=run.save(self.folder, overwrite=True))
        if self.row.table == "controls":
            shutil.rmtree(self.folder)
        self.log(f"  {brief(record)} in {record['seconds']:.0f} s")
        return record, run

    def _train(self, checkpoints: checkpoint.Checkpoints) -> tuple[Record, Run]:
        train, device = self.config.train, checkpoints.device
        model = build_model(self.config.model, self.graph.n_entities, self.graph.n_relations, self.seed)

        def log_epoch(epoch: dict[str, Any]) -> None:
            metric = f"{train.metric} {epoch['valid'][train.metric]:.3f}"
            self.log(f"  epoch {epoch['epoch']}: {metric}, {epoch['seconds']:.0f} s")

        self.log(f"{self.name}: {title(self.config)}, at most {train.epochs} epochs")
        history = fit(model, self.graph, self.config, self.progress, log_epoch, checkpoints)
        trained = time.perf_counter()
        typed = evaluate_scorer(model, self.graph, self.config.evaluate, device=device)
        full = evaluate_scorer(model, self.graph, STANDARD, device=device)
        run = Run(self.config, self.graph, model.cpu(), history, typed.summary(), environment=environment(device))
        best = history.rows[history.best_epoch - 1].get("valid", {})
        record = self.header(self.row.table) | {
            "protocol": typed.to_json()["protocol"],
            **{name: typed.metrics[name] for name in METRICS},
            "full": {"protocol": full.to_json()["protocol"], **{name: full.metrics[name] for name in METRICS}},
            "published": self.row.published,
            "epochs": len(history.rows),
            "best_epoch": history.best_epoch,
            "valid": {train.metric: best[train.metric]} if best else None,
            "stopped": history.stopped,
            "training_seconds": round(history.seconds, 1),
            "seconds": round(history.seconds + time.perf_counter() - trained, 1),
        }
        records.keep(self.results / f"{self.row.table}.json", record)
        return record, run


def graph_sizes(graph: Graph) -> list[int]:
    """Entities, relations, triples of each split: distinguishes graphs of one name."""
    return [graph.n_entities, graph.n_relations, *(len(getattr(graph, split)) for split in SPLITS)]


def brief(record: Record) -> str:
    """MRR under both protocols, and the published one."""
    published = f" (published {record['published']['mrr']:.3f})" if record["published"] else ""
    return f"MRR {record['mrr']:.3f} typed{published}, {record['full']['mrr']:.3f} full"


@cache
def commit() -> str | None:
    """The commit of the source tree: HARMONIUM_COMMIT, or from git."""
    if os.environ.get("HARMONIUM_COMMIT"):
        return os.environ["HARMONIUM_COMMIT"]
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    return None


# Analyses of a trained run -------------------------------------------------------------------------------------------


def neighbourhoods(run: Run, labelled: Path | None, device: str) -> dict[str, Any]:
    return {"neighbourhoods": [harmonium.neighbours(run, *triple).to_json() for triple in guises(run.graph)]}


def density(run: Run, labelled: Path | None, device: str) -> dict[str, Any]:
    return measure_density(run, labelled and labelled / "classification_test.txt", device=device).to_json()


def gain(run: Run, labelled: Path | None, device: str) -> dict[str, Any]:
    return measure_gain(run, device=device).to_json()


def classification(run: Run, labelled: Path | None, device: str) -> dict[str, Any]:
    measured = harmonium.classify(run, labelled, device=device).to_json()
    return {name: value for name, value in measured.items() if name not in ("thresholds", "by_relation")}


ANALYSES: dict[str, Callable[[Run, Path | None, str], dict[str, Any]]] = {
    "neighbourhoods": neighbourhoods,
    "density": density,
    "gain": gain,
    "classification": classification,
}
EXPERIMENTS = (*TABLES, "controls", *ANALYSES)


def guises(graph: Graph, count: int = 4) -> list[tuple[str, str, str]]:
    """The triplets whose neighbourhoods are shown: the paper's or, on another graph, two entities in `count` guises each.

    Those are heads of one relation with many tails that other heads share, so that neighbours can be true.
    """
    paper = [(h, relation, t) for heads, relation, tails in GUISES for h in heads for t in tails]
    if {name for h, _, t in paper for name in (h, t)} <= set(graph.entities.ids) and OFFICE in graph.relations.ids:
        return paper
    facts = graph.facts()
    sharing = torch.bincount(
        graph.known_answers(Slot.HEAD).of(facts)[0], minlength=len(facts)
    )  # (n,) heads of each guise
    tails: dict[tuple[int, int], list[tuple[int, int]]] = {}  # (relation, head) -> (heads that share it, tail)
    for (h, r, t), heads in zip(facts.to_rows().tolist(), sharing.tolist(), strict=True):
        tails.setdefault((r, h), []).append((min(heads, count + 1), t))
    best: dict[
        int, tuple[int, int, list[int]]
    ] = {}  # relation -> how many heads share its best head's tails, head, tails
    for (r, h), candidates in tails.items():
        top = sorted(candidates, key=lambda guise: (-guise[0], guise[1]))[:count]
        entry = (sum(heads - 1 for heads, _ in top), h, [t for _, t in top])
        best[r] = max(best.get(r, entry), entry, key=lambda guise: (guise[0], -guise[1]))
    by_head: dict[int, tuple[int, list[int]]] = {}
    for r, (_, h, chosen) in sorted(best.items(), key=lambda entry: (-entry[1][0], entry[0])):
        by_head.setdefault(h, (r, chosen))
    names, relations = graph.entities.ids, graph.relations.ids
    return [(names[h], relations[r], names[t]) for h, (r, chosen) in list(by_head.items())[:2] for t in chosen]


def labelled_facts(dataset: str | Path, graph: Graph) -> Path | None:
    """The folder with the dataset's labelled true and false facts, if any: its folder, or the folder of a graph file."""
    path = locate(dataset)
    folders = [path] if path.is_dir() else [path.parent, path.parent / graph.name]
    return next((folder for folder in folders if (folder / "classification_test.txt").is_file()), None)


def _load(dataset: str | Path) -> Graph:
    try:
        return load(dataset)
    except HarmoniumError as error:
        if Path(dataset).exists():
            raise
        raise HarmoniumError(
            f"{error}. The paper's datasets are not part of harmonium: put the folder {Path(dataset).name} with its "
            "train.txt, valid.txt and test.txt into a folder and set HARMONIUM_DATA to that folder, or try "
            "--dataset atlas --scale small"
        ) from error


def _variants(variant: str | None, experiment: str) -> list[str]:
    variant = variant or ("both" if experiment in TABLES else "calibrated")
    choices = {name: [name] for name in VARIANTS} | {"both": ["faithful", "calibrated"]}
    if variant not in choices:
        raise HarmoniumError(f"--variant is {', '.join(choices)}, not '{variant}'")
    return choices[variant]


def _select(rows: list[Row], patterns: Sequence[str]) -> list[Row]:
    """The rows that match a pattern; a pattern without a match is an error."""
    for pattern in patterns:
        if not any(fnmatch(row.name, pattern) for row in rows):
            names = dict.fromkeys(row.name for row in rows)
            raise HarmoniumError(f"--rows {pattern}: no such row; choose from {', '.join(names)}")
    return [row for row in rows if not patterns or any(fnmatch(row.name, pattern) for pattern in patterns)]


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line, run, print the records as a table or as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("experiment", choices=EXPERIMENTS)
    parser.add_argument("--dataset", default="FB15K", help="name, folder or file of a graph")
    parser.add_argument(
        "--rows", default="", help="rows or patterns such as hhole-*, separated by commas; default: all"
    )
    parser.add_argument(
        "--variant",
        help="faithful, authors, calibrated or both (without authors); default: both for tables, otherwise calibrated",
    )
    parser.add_argument("--seeds", default="0", help="random seeds, such as 0,1,2")
    parser.add_argument("--scale", default="full", help="full, or small: a quick trial")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--runs", default="runs/reproduce", help="folder for the run folders")
    parser.add_argument("--results", help="folder for the records; default: results, with --scale small RUNS/results")
    parser.add_argument("--json", action="store_true", help="print the records as JSON")
    options = vars(parser.parse_args(arguments))
    as_json = options.pop("json")
    options["rows"] = [row for row in options["rows"].split(",") if row]
    if not all(seed.isdecimal() for seed in options["seeds"].split(",")):
        raise HarmoniumError(f"--seeds are whole numbers such as 0,1,2, not '{options['seeds']}'")
    options["seeds"] = [int(seed) for seed in options["seeds"].split(",")]
    made = reproduce(**options, log=lambda text: print(text, file=sys.stderr))
    if as_json:
        print(json.dumps(records.plain(made), ensure_ascii=False))
        return
    columns, lines = records.TABLES[options["experiment"]](made)
    for line in (columns, *lines):
        print("\t".join(line))


if __name__ == "__main__":
    keep_freed_memory()
    try:
        main()
    except (HarmoniumError, Interrupted) as error:
        sys.exit(f"error: {error}")
