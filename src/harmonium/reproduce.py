"""The paper's tables, run again: recipes, controls and analyses by name, resumed, recorded beside what was published.

`python -m harmonium.reproduce table1 dataset=FB15K rows=hhole-1 seeds=0,1` works where only torch, numpy and
safetensors are installed; `harmonium reproduce` is the same with options.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

import torch

from harmonium import checkpoint, commands, records
from harmonium.config import Config, EvaluateConfig
from harmonium.datasets import load, locate
from harmonium.errors import HarmoniumError, Stopped
from harmonium.evaluation import evaluate
from harmonium.folder import unfinished
from harmonium.graph import SPLITS, Graph, Slot
from harmonium.records import METRICS, Record
from harmonium.run import Run, environment
from harmonium.training import build_model, fit, pick_device

RECIPES = Path(__file__).parents[2] / "recipes"
TABLES = ("table1", "htpr")
STANDARD = EvaluateConfig()  # the protocol beside the recipe's own: all entities, realistic ties
NAMES = {"distmult": "DistMult", "hole": "HolE", "complex": "ComplEx", "tensorproduct": "TPR"}

# What the gain is made of: settings on top of recipes/controls/*.toml (calibrated, lambda = 1), by question.
# same-a: the cap c on W that gives A = W S / 2 the same largest norm at every lambda. |A| <= c/2 / (1 - c/lambda) = a
# means c = 2a / (1 + 2a/lambda); a = 1.5 is what the paper's cap gives at lambda = 1.
LARGEST_A = 1.5
LAMBDAS = (0.5, 1.0, 2.0, 5.0, 10.0, 50.0)
CONTROLS: dict[str, dict[str, list[str]]] = {
    "temperature": {
        "plain-fixed-scale": ["model.harmony=false", "model.initialisation=paper"],
        "plain": ["model.harmony=false"],  # a learned scale and no W
        "plain-free-norm": ["model.harmony=false", "model.normalise=false"],
        "linear": ["model.faithfulness=inf", "model.cap=1e-6"],  # b alone: a scale per coordinate, next to no W
    },
    "quadratic capacity": {
        **{f"lambda-{x:g}": [f"model.faithfulness={x}"] for x in LAMBDAS},  # the paper's cap, lambda - 0.25
        **{f"inf-cap-{x - 0.25:g}": ["model.faithfulness=inf", f"model.cap={x - 0.25}"] for x in LAMBDAS},
        **{
            f"same-a-{x:g}": [f"model.faithfulness={x}", f"model.cap={2 * LARGEST_A / (1 + 2 * LARGEST_A / x)}"]
            for x in (*LAMBDAS, float("inf"))
        },
    },
    "optimisation": {
        "paper-start": ["model.initialisation=paper"],
        "paper-start-inf": ["model.initialisation=paper", "model.faithfulness=inf"],
        "free-norm": ["model.normalise=false"],
    },
}


@dataclass(frozen=True)
class Row:
    """A line of a table: a recipe under a name, settings on top of it, and what its source reports."""

    table: str
    name: str
    variant: str
    recipe: Path
    sets: tuple[str, ...] = ()
    published: dict[str, Any] | None = None

    def config(self, graph: Graph, seed: int, scale: str, sets: Sequence[str]) -> Config:
        smaller = small(Config.read(self.recipe, self.sets), graph) if scale == "small" else []
        return replace(Config.read(self.recipe, [*self.sets, *smaller, *sets, f"train.seed={seed}"]), data=graph.name)


def published(dataset: str, row: str) -> dict[str, Any]:
    """What the paper reports for a row, and in which table; nothing for a calibrated recipe."""
    text = (RECIPES / "paper" / dataset / f"{row}.toml").read_text(encoding="utf-8")
    return tomllib.loads(text).get("published", {})


def paper_rows(table: str, dataset: str, variants: Sequence[str]) -> list[Row]:
    """The rows of one of the paper's tables, in its order; those of FB15K, nothing published, for another dataset."""
    found = []
    for recipe in (RECIPES / "paper" / dataset).glob("*.toml"):
        beside, model = published(dataset, recipe.stem), Config.read(recipe).model
        if beside.pop("table", None) == table:
            place = model.composition, model.harmony, -model.faithfulness
            files = {"faithful": recipe, "calibrated": recipe.with_suffix(".calibrated.toml")}
            found += [(place, Row(table, recipe.stem, v, files[v], published=beside)) for v in variants]
    if not found and dataset != "FB15K":
        return [replace(row, published=None) for row in paper_rows(table, "FB15K", variants)]
    if not found:
        raise HarmoniumError(f"no recipes in {RECIPES / 'paper'}; run from a source tree of harmonium, which has them")
    return [row for _, row in sorted(found, key=lambda entry: entry[0])]


def control_rows() -> list[Row]:
    return [
        Row("controls", f"{recipe.stem}/{name}", "control", recipe, tuple(sets))
        for recipe in sorted((RECIPES / "controls").glob("*.toml"), reverse=True)
        for controls in CONTROLS.values()
        for name, sets in controls.items()
    ]


def small(config: Config, graph: Graph) -> list[str]:
    """`--scale small`: the same steps in seconds on a small graph, in minutes on FB15K, with two CPU cores."""
    epochs = max(1, min(10, 500_000 // max(1, len(graph.train))))
    tensor = config.model.composition == "tensorproduct"
    sizes = ["model.entity_dim=3", "model.relation_dim=8"] if tensor else ["model.entity_dim=32"]
    return [
        *sizes, *(["model.rank=8"] if config.model.harmony else []), "train.batch_size=256", "train.negatives=32",
        f"train.epochs={epochs}", "train.validation_triples=500", f"train.learning_rate={10 * config.train.learning_rate}",
    ]  # fmt: skip


def sizes(graph: Graph) -> list[int]:
    """Entities, relations, triples of each split: tells graphs of one name apart."""
    return [graph.n_entities, graph.n_relations, *(len(getattr(graph, split)) for split in SPLITS)]


def title(config: Config) -> str:
    """HHolE, HDistMult, ...: the paper's name of a model."""
    name = NAMES.get(config.model.composition, config.model.composition)
    return f"H{name}" if config.model.harmony else name


# Analyses of a trained run -------------------------------------------------------------------------------------------

OFFICE = (
    "/government/politician/government_positions_held./government/government_position_held/office_position_or_title"
)
GUISES = [  # the triplets of the paper's tables: heads, relation, tails, by their identifiers in FB15K
    # George W. Bush, Barack Obama, John McCain, Al Gore as President of the United States
    (["/m/09b6zr", "/m/02mjmr", "/m/0bymv", "/m/0d05fv"], OFFICE, ["/m/060d2"]),
    # Bob Dylan as singer-songwriter, screenwriter, disc jockey, writer
    (["/m/01vrncs"], "/people/person/profession", ["/m/016z4k", "/m/0dxtg", "/m/02dsz", "/m/0cbd2"]),
]


def guises(graph: Graph, count: int = 4) -> list[tuple[str, str, str]]:
    """The triplets whose neighbourhoods are shown: the paper's or, on another graph, two entities in `count` guises each.

    Those stand as head of one relation with many tails that other heads share, so that neighbours can be true.
    """
    paper = [(h, relation, t) for heads, relation, tails in GUISES for h in heads for t in tails]
    if {name for h, _, t in paper for name in (h, t)} <= set(graph.entities.ids) and OFFICE in graph.relations.ids:
        return paper
    facts = graph.facts()
    sharing = torch.bincount(graph.answers(Slot.HEAD).of(facts)[0], minlength=len(facts))  # (n,) heads of each guise
    tails: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for (h, r, t), heads in zip(facts.rows().tolist(), sharing.tolist(), strict=True):
        tails.setdefault((r, h), []).append((min(heads, count + 1), t))
    best: dict[int, tuple[int, int, list[int]]] = {}  # relation -> how many share its best head's guises, who, which
    for (r, h), found in tails.items():
        top = sorted(found, key=lambda guise: (-guise[0], guise[1]))[:count]
        entry = (sum(heads - 1 for heads, _ in top), h, [t for _, t in top])
        best[r] = max(best.get(r, entry), entry, key=lambda guise: (guise[0], -guise[1]))
    by_head: dict[int, tuple[int, list[int]]] = {}
    for r, (_, h, chosen) in sorted(best.items(), key=lambda entry: (-entry[1][0], entry[0])):
        by_head.setdefault(h, (r, chosen))
    names, relations = graph.entities.ids, graph.relations.ids
    return [(names[h], relations[r], names[t]) for h, (r, chosen) in list(by_head.items())[:2] for t in chosen]


def neighbourhoods(run: Run, labelled: Path | None, device: str) -> dict[str, Any]:
    return {"neighbourhoods": [commands.neighbours(run, *triple).to_json() for triple in guises(run.graph)]}


def density(run: Run, labelled: Path | None, device: str) -> dict[str, Any]:
    return commands.density(run, labelled and labelled / "classification_test.txt", device=device).to_json()


def gain(run: Run, labelled: Path | None, device: str) -> dict[str, Any]:
    return commands.gain(run, device=device).to_json()


def classification(run: Run, labelled: Path | None, device: str) -> dict[str, Any]:
    found = commands.classify(run, labelled, device=device).to_json()
    return {name: value for name, value in found.items() if name not in ("thresholds", "by_relation")}


ANALYSES: dict[str, Callable[[Run, Path | None, str], dict[str, Any]]] = {
    "neighbourhoods": neighbourhoods,
    "density": density,
    "gain": gain,
    "classification": classification,
}


def labelled_facts(dataset: str | Path, graph: Graph) -> Path | None:
    """The folder with the dataset's own true and false facts, if it has any: itself, or beside a graph file."""
    where = locate(dataset)
    places = [where] if where.is_dir() else [where.parent, where.parent / graph.name]
    return next((place for place in places if (place / "classification_test.txt").is_file()), None)


def reproduce(
    experiment: str,
    dataset: str | Path = "FB15K",
    rows: Sequence[str] | str = (),
    variant: str | None = None,
    seeds: Sequence[int | str] | str = (0,),
    scale: str = "full",
    sets: Sequence[str] | str = (),
    runs: str | Path = "runs/reproduce",
    results: str | Path | None = None,
    say: Callable[[str], None] = print,
    bar: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext,
) -> list[Record]:
    """Run what is missing of an experiment and return its records; each is written as soon as its run is done.

    `rows` are names or patterns such as hhole-*, `bar` makes what watches one training. A record with the same settings
    is not made again.

    >>> harmonium.reproduce("table1", "atlas", rows=["hhole-1"], scale="small")
    """
    rows, sets, seeds = _listed(rows), _listed(sets), _listed(seeds)
    if not seeds or not all(str(seed).isdecimal() for seed in seeds):
        raise HarmoniumError(f"--seeds are whole numbers such as 0,1,2, not '{','.join(map(str, seeds))}'")
    if scale not in ("full", "small"):
        raise HarmoniumError(f"--scale is full or small, not '{scale}'")
    variants, graph = _variants(variant, experiment), _load(dataset)
    chosen = _select(rows_of(experiment, graph, variants, every=bool(rows)), rows)
    labelled = labelled_facts(dataset, graph)
    results = Path(results or ("results" if scale == "full" else Path(runs) / "results"))
    say(f"{experiment} on {graph!r}: {len(chosen) * len(seeds)} runs; results in {results}")
    found = []
    for row in chosen:
        for seed in map(int, seeds):
            options = [f"--scale {scale}"] * (scale != "full") + [f"--set {text}" for text in sets]
            config = row.config(graph, seed, scale, sets)
            job = Job(row, seed, graph, config, " ".join(options), results, Path(runs), say, bar)
            found.append(job.analyse(experiment, labelled) if experiment in ANALYSES else job.record())
    return found


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
    say: Callable[[str], None]
    bar: Callable[[], contextlib.AbstractContextManager[Any]]

    @property
    def name(self) -> str:
        return f"{self.row.name}, {self.row.variant}, seed {self.seed}"

    def about(self, experiment: str) -> Record:
        """Who made a record and how: what every record has."""
        which = "" if self.row.table == "controls" else f" --variant {self.row.variant}"
        command = (
            f"harmonium reproduce {experiment} --dataset {shlex.quote(self.graph.name)} --rows {self.row.name}{which}"
        )
        return {
            "table": experiment,
            "dataset": self.graph.name,
            "sizes": sizes(self.graph),
            "row": self.row.name,
            "variant": self.row.variant,
            "model": title(self.config),
            "lambda": records.settings(self.config)["model"]["faithfulness"] if self.config.model.harmony else None,
            "dim": self.config.model.entity_dim,
            "seed": self.seed,
            "settings": records.settings(self.config),
            "command": f"{command} --seeds {self.seed} {self.options}".strip(),
            "commit": commit(),
            "device": environment()["device"],
        }

    def earlier(self, path: Path) -> Record | None:
        """The record of this very job, if there is one; one with other settings will be replaced."""
        mine = (self.graph.name, self.row.name, self.row.variant, self.seed)
        for record in records.read(path):
            if records.key(record) == mine and record["sizes"] == sizes(self.graph):
                if not (changed := records.differences(record, self.config)):
                    return record
                self.say(f"{self.name}: the record in {path} had other settings; running with {', '.join(changed)}")
        return None

    def record(self) -> Record:
        """The record of this job, made now when it is missing."""
        if (record := self.earlier(self.results / f"{self.row.table}.json")) is None:
            return self.train()[0]
        self.say(f"{self.name}: done before, {brief(record)}")
        return record

    def analyse(self, experiment: str, labelled: Path | None) -> Record:
        """The record of an analysis of this job's run, made now when it is missing."""
        path = self.results / f"{experiment}.json"
        if (record := self.earlier(path)) is not None:
            self.say(f"{self.name}: done before")
            return record
        run = self.run()
        self.say(f"{self.name}: {experiment} of {run.path}")
        started = time.perf_counter()
        found = ANALYSES[experiment](run, labelled, self.config.train.device)
        record = self.about(experiment) | found | {"seconds": round(time.perf_counter() - started, 1)}
        records.keep(path, record)
        return record

    def run(self) -> Run:
        """The trained run: the folder that is there, if it has these settings, or a new one."""
        if (self.folder / "run.json").is_file():
            run = Run.load(self.folder)
            if self.same(run.config, run.graph):
                return run
        return self.train()[1]

    def same(self, config: Config, graph: Graph) -> bool:
        """Whether a training with these settings on this graph is the job's own."""
        changed = records.differences({"settings": records.settings(config)}, self.config)
        return not changed and sizes(graph) == sizes(self.graph)

    @contextlib.contextmanager
    def checkpoints(self) -> Iterator[checkpoint.Checkpoints]:
        """Those of an earlier attempt at this very job, to go on from, or new ones."""
        try:
            if unfinished(self.folder):
                with checkpoint.reopen(self.folder, (), environment()) as (found, config, graph):
                    if self.same(config, graph):
                        yield found
                        return
            device = str(pick_device(self.config.train.device))
            with checkpoint.begin(self.folder, True, self.config, self.graph, device, environment()) as found:
                yield found
        except Stopped as stop:
            raise Stopped(f"{self.name}: stopped; the same command goes on", stop.code) from None

    def train(self) -> tuple[Record, Run]:
        """Train, rank under both protocols, keep the record and (controls apart) the run folder."""
        with self.checkpoints() as checkpoints:
            record, run = self._train(checkpoints)
            if self.row.table != "controls":
                run = replace(run, path=run.save(self.folder, overwrite=True))
        if self.row.table == "controls":
            shutil.rmtree(self.folder)
        self.say(f"  {brief(record)} in {record['seconds']:.0f} s")
        return record, run

    def _train(self, checkpoints: checkpoint.Checkpoints) -> tuple[Record, Run]:
        train, device = self.config.train, checkpoints.device
        model = build_model(self.config.model, self.graph.n_entities, self.graph.n_relations, self.seed)

        def tell(now: dict[str, Any]) -> None:
            self.say(f"  epoch {now['epoch']}: {train.metric} {now['valid'][train.metric]:.3f}, {now['seconds']:.0f} s")

        self.say(f"{self.name}: {title(self.config)}, epochs: at most {train.epochs}")
        with self.bar() as watch:
            history = fit(model, self.graph, self.config, watch, tell, checkpoints)
        trained = time.perf_counter()
        typed, full = (
            evaluate(model, self.graph, protocol, device=device) for protocol in (self.config.evaluate, STANDARD)
        )
        run = Run(self.config, self.graph, model.cpu(), history, typed.to_json())
        best = history.rows[history.best_epoch - 1].get("valid", {})
        record = self.about(self.row.table) | {
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

    @property
    def folder(self) -> Path:
        return self.runs / self.graph.name / f"{self.row.name}.{self.row.variant}.seed{self.seed}"


def rows_of(experiment: str, graph: Graph, variants: Sequence[str], every: bool = False) -> list[Row]:
    """The rows of a table, or the trained models that an analysis looks into."""
    if experiment in TABLES:
        return paper_rows(experiment, graph.name, variants)
    if experiment == "controls":
        return control_rows()
    if experiment not in ANALYSES:
        raise HarmoniumError(f"no experiment '{experiment}'; there are {', '.join((*TABLES, 'controls', *ANALYSES))}")
    harmonic = [row for row in paper_rows("table1", graph.name, variants) if re.fullmatch(r"h.*-[\d.]+", row.name)]
    kinds = ("hhole",) if experiment != "gain" else ("hhole", "hdistmult")
    return [row for row in harmonic if every or row.name.startswith(kinds)]


def brief(record: Record) -> str:
    """MRR under both protocols, beside what was published."""
    beside = f" (published {record['published']['mrr']:.3f})" if record["published"] else ""
    return f"MRR {record['mrr']:.3f} typed{beside}, {record['full']['mrr']:.3f} full"


@cache
def commit() -> str | None:
    """The commit of the source tree: HARMONIUM_COMMIT, or what git says."""
    if os.environ.get("HARMONIUM_COMMIT"):
        return os.environ["HARMONIUM_COMMIT"]
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    return None


def _load(dataset: str | Path) -> Graph:
    try:
        return load(dataset)
    except HarmoniumError as error:
        if Path(dataset).exists():
            raise
        raise HarmoniumError(
            f"{error}. The paper's datasets are not part of harmonium: put the folder {Path(dataset).name} with its "
            "train.txt, valid.txt and test.txt somewhere and let HARMONIUM_DATA name the folder above it, or try "
            "--dataset atlas --scale small"
        ) from error


def _variants(variant: str | None, experiment: str) -> list[str]:
    variant = variant or ("both" if experiment in TABLES else "calibrated")
    choices = {"faithful": ["faithful"], "calibrated": ["calibrated"], "both": ["faithful", "calibrated"]}
    if variant not in choices:
        raise HarmoniumError(f"--variant is {', '.join(choices)}, not '{variant}'")
    return choices[variant]


def _select(found: list[Row], patterns: Sequence[str]) -> list[Row]:
    """The rows that a pattern names; a pattern that names none is an error."""
    for pattern in patterns:
        if not any(fnmatch(row.name, pattern) for row in found):
            names = dict.fromkeys(row.name for row in found)
            raise HarmoniumError(f"--rows {pattern}: no such row; there are {', '.join(names)}")
    return [row for row in found if not patterns or any(fnmatch(row.name, pattern) for pattern in patterns)]


def _listed(values: Sequence[Any] | str) -> list[Any]:
    return [part for part in values.split(",") if part] if isinstance(values, str) else list(values)


if __name__ == "__main__":
    try:
        made = reproduce(sys.argv[1], **dict(part.split("=", 1) for part in sys.argv[2:]))
    except (HarmoniumError, Stopped) as error:
        sys.exit(f"error: {error}")
    columns, table = records.TABLES[sys.argv[1]](made)
    for line in (columns, *table):
        print("\t".join(line))
