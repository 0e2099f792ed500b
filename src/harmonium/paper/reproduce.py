"""Rerun the paper's tables, controls and analyses: train what is missing, record it with the published numbers.

An interrupted run continues from its checkpoint; a record with the same settings is not made again.

    harmonium paper table table1 --dataset FB15K --rows hhole-1 --seeds 0,1
"""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from harmonium.analysis.neighbours import nearest_triples
from harmonium.answers.classify import classify
from harmonium.config.settings import Config, EvaluateConfig
from harmonium.data.datasets import load, locate
from harmonium.data.graph import SPLITS, Graph
from harmonium.errors import HarmoniumError, Interrupted
from harmonium.evaluation.evaluation import evaluate_scorer
from harmonium.model.build import build_model, title
from harmonium.paper import records
from harmonium.paper.density import density as measure_density
from harmonium.paper.gain import gain as measure_gain
from harmonium.paper.guises import guises
from harmonium.paper.records import METRICS, Record
from harmonium.paper.rows import VARIANTS, Row, control_rows, paper_rows
from harmonium.run import checkpoint
from harmonium.run.environment import environment
from harmonium.run.run import Run
from harmonium.runtime.device import pick_device
from harmonium.runtime.folders import is_unfinished
from harmonium.training.fit import fit
from harmonium.training.state import Progress

TABLES = ("table1", "htpr")
STANDARD = EvaluateConfig()  # reported in addition to the recipe's protocol: all entities, realistic ties


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
        command = f"harmonium paper table {experiment} --dataset {shlex.quote(self.graph.name)}"
        command += f" --rows {self.row.name}{variant} --seeds {self.seed} {self.options}"
        settings = records.settings(self.config)
        about = environment(pick_device(self.config.train.device))
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
            "commit": about.get("commit"),
            "device": about["device"],
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


# Analyses of a trained run -------------------------------------------------------------------------------------------


def neighbourhoods(run: Run, labelled: Path | None, device: str) -> dict[str, Any]:
    near = [nearest_triples(run.model, run.graph, run.graph.triple(*triple)) for triple in guises(run.graph)]
    return {"neighbourhoods": [neighbourhood.to_json() for neighbourhood in near]}


def density(run: Run, labelled: Path | None, device: str) -> dict[str, Any]:
    return measure_density(run, labelled and labelled / "classification_test.txt", device=device).to_json()


def gain(run: Run, labelled: Path | None, device: str) -> dict[str, Any]:
    return measure_gain(run, device=device).to_json()


def classification(run: Run, labelled: Path | None, device: str) -> dict[str, Any]:
    measured = classify(run, labelled).to_json()
    return {name: value for name, value in measured.items() if name not in ("thresholds", "by_relation")}


ANALYSES: dict[str, Callable[[Run, Path | None, str], dict[str, Any]]] = {
    "neighbourhoods": neighbourhoods,
    "density": density,
    "gain": gain,
    "classification": classification,
}
EXPERIMENTS = (*TABLES, "controls", *ANALYSES)


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
