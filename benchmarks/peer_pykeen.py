"""Time PyKEEN on one benchmark task, on the CPU, and print the outcome as one JSON object.

The models keep PyKEEN's defaults apart from the dimension: DistMult normalises all entity vectors after
each step and regularises relation vectors, HolE clips entity norms at 1. Training uses Adam (dense
gradients) and PyKEEN's CrossEntropyLoss, a softmax over the scored candidates. Loading and warm-up are not
timed; automatic memory optimisation is off in training and has nothing to search for in evaluation.

* sampled: SLCWATrainingLoop, default BasicNegativeSampler. Throughput counts positive triples, each of
  which comes with --negatives corrupted ones.
* all-entity: LCWATrainingLoop, tails only. An instance is a distinct (head, relation) pair, scored against
  every entity with all of its known tails as labels; --batch counts pairs. Throughput counts the training
  triples so covered, by their mean per pair (2.91 on FB15K-237); detail.queries_per_s counts the pairs.
* ranking: one RankBasedEvaluator.evaluate call, both sides of a random subset of the test triples, filtered
  by all known triples. Throughput counts queries, two a triple; the time includes all that the call does for
  the filter. Batches of 16 to 256 triples were level within noise, so PyKEEN's own 32 for CPUs is used.

--batch is of training only. The training loops run on the whole training set; a callback stops them after
a whole number of steps, at least --seconds and MIN_STEPS. An idle machine matters: see cpu_per_wall.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import resource
import time
from pathlib import Path
from typing import Any

import torch
from pykeen.evaluation import RankBasedEvaluator
from pykeen.losses import CrossEntropyLoss
from pykeen.models import DistMult, ERModel, HolE
from pykeen.training import LCWATrainingLoop, SLCWATrainingLoop, TrainingCallback
from pykeen.triples import TriplesFactory
from pykeen.utils import prepare_filter_triples
from pykeen.version import get_version

MODELS: dict[str, type[ERModel]] = {"distmult": DistMult, "hole": HolE}
SPLITS = ("train", "valid", "test")
WARMUP_STEPS = {"sampled": 5, "all-entity": 2}
MIN_STEPS = 3
RANK_BATCH = 32
PILOT_TRIPLES = 4 * RANK_BATCH


class TimeUp(Exception):
    """Raised by the stopwatch to leave a training loop."""


class Stopwatch(TrainingCallback):
    """Time whole training steps, from one point of a step to the same point of a later one."""

    def __init__(self, warmup: int, seconds: float) -> None:
        super().__init__()
        self.steps, self.seconds = -warmup, seconds
        self.instances = 0
        self.start = self.start_cpu = self.wall = self.cpu = 0.0

    def post_batch(self, epoch: int, batch: dict[str, torch.Tensor], **kwargs: Any) -> None:
        """Count the batch (triples or pairs) and note the time; raise TimeUp once it is spent."""
        self.steps += 1
        if self.steps <= 0:
            self.start, self.start_cpu = time.perf_counter(), time.process_time()
            return
        self.instances += len(batch["positives" if "positives" in batch else "pairs"])
        self.wall, self.cpu = time.perf_counter() - self.start, time.process_time() - self.start_cpu
        if self.wall >= self.seconds and self.steps >= MIN_STEPS:
            raise TimeUp


def load(folder: Path) -> dict[str, TriplesFactory]:
    """Read the three splits over one vocabulary (a few entities do not occur in train)."""
    rows = [line.split("\t") for s in SPLITS for line in (folder / f"{s}.txt").read_text().splitlines()]
    names = {"entity_to_id": {x for h, _, t in rows for x in (h, t)}, "relation_to_id": {r for _, r, _ in rows}}
    ids = {key: {name: i for i, name in enumerate(sorted(entries))} for key, entries in names.items()}
    return {s: TriplesFactory.from_path(folder / f"{s}.txt", **ids) for s in SPLITS}


def train(model: ERModel, factory: TriplesFactory, args: argparse.Namespace) -> dict[str, Any]:
    """Time PyKEEN's training loop for the task, in training triples a second."""
    options: dict[str, Any] = {"optimizer": "Adam", "automatic_memory_optimization": False}
    if args.task == "sampled":
        options["negative_sampler_kwargs"] = {"num_negs_per_pos": args.negatives}
    kind = SLCWATrainingLoop if args.task == "sampled" else LCWATrainingLoop
    loop = kind(model=model, triples_factory=factory, **options)
    progress = Stopwatch(WARMUP_STEPS[args.task], args.seconds)
    run: dict[str, Any] = {"use_tqdm": False, "num_workers": 0, "drop_last": True, "pin_memory": False}
    with contextlib.suppress(TimeUp):
        loop.train(factory, num_epochs=1_000_000, batch_size=args.batch, callbacks=progress, **run)
    detail = {"loss": type(loop.loss).__name__, "batch": args.batch, "steps": progress.steps}
    triples = progress.instances
    if args.task == "all-entity":
        detail["queries_per_s"] = round(progress.instances / progress.wall, 2)
        triples = round(triples * factory.num_triples / len(factory.mapped_triples[:, :2].unique(dim=0)))
    return outcome(triples, "triples/s", progress.wall, progress.cpu, detail)


def rank(model: ERModel, splits: dict[str, TriplesFactory], args: argparse.Namespace) -> dict[str, Any]:
    """Time one filtered evaluation, in queries a second, sized by a pilot to take about --seconds."""
    test = splits["test"].mapped_triples[torch.randperm(splits["test"].num_triples)]
    known = [splits[s].mapped_triples for s in SPLITS]

    def timed(count: int) -> tuple[float, float]:
        options: dict[str, Any] = {"additional_filter_triples": known, "use_tqdm": False}
        wall, cpu = time.perf_counter(), time.process_time()
        RankBasedEvaluator(filtered=True).evaluate(model, test[:count], batch_size=RANK_BATCH, **options)
        return time.perf_counter() - wall, time.process_time() - cpu

    timed(RANK_BATCH)  # warm-up
    start = time.perf_counter()
    prepare_filter_triples(test, known)
    fixed = time.perf_counter() - start
    per_triple = max(timed(PILOT_TRIPLES)[0] - fixed, 1e-3) / PILOT_TRIPLES
    count = min(len(test), max(PILOT_TRIPLES, int((args.seconds - fixed) / per_triple)))
    detail = {"batch": RANK_BATCH, "test_triples": count, "filter_dedup_s": round(fixed, 3)}
    return outcome(2 * count, "queries/s", *timed(count), detail)


def outcome(n: int, unit: str, wall: float, cpu: float, detail: dict[str, Any]) -> dict[str, Any]:
    """Put together what a task measured; the peak memory is that of the whole process."""
    peak = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)
    measured: dict[str, Any] = {"throughput": round(n / wall, 2), "unit": unit, "n": n, "seconds": round(wall, 3)}
    return {**measured, "cpu_per_wall": round(cpu / wall, 3), "peak_rss_mb": peak, "detail": detail}


def main() -> None:
    """Run the task named on the command line."""
    parser = argparse.ArgumentParser(description="Time PyKEEN on one benchmark task.")
    parser.add_argument("--data", type=Path, required=True, help="folder of train.txt, valid.txt, test.txt")
    parser.add_argument("--model", choices=MODELS, required=True)
    parser.add_argument("--task", choices=(*WARMUP_STEPS, "ranking"), required=True)
    parser.add_argument("--seconds", type=float, default=30.0)
    for name, default in (("dim", 128), ("batch", 512), ("negatives", 64), ("threads", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    splits = load(args.data)
    options: dict[str, Any] = {"embedding_dim": args.dim, "loss": CrossEntropyLoss(), "random_seed": 0}
    model = MODELS[args.model](triples_factory=splits["train"], **options)
    result = rank(model, splits, args) if args.task == "ranking" else train(model, splits["train"], args)
    about = {"task": args.task, "model": args.model, "dim": args.dim, "threads": args.threads}
    print(json.dumps({**about, **result, "pykeen": get_version(), "torch": torch.__version__}))


if __name__ == "__main__":
    main()
