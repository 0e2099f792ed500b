"""Train PyKEEN's ComplEx on the CPU and print its filtered test MRR whenever a budget of minutes is spent, as lines of JSON.

The setting that its users report for these graphs and that LibKGE's search found alike: ComplEx with reciprocal relations,
1-N training (LCWA) with a softmax over all entities, Adagrad, N3. Only training is timed: neither reading nor evaluation.
Ties are realistic, as in harmonium; both sides of each test triple are ranked against all entities.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from pathlib import Path
from typing import Any

import torch
from peer_pykeen import SPLITS, TimeUp, load
from pykeen.evaluation import RankBasedEvaluator
from pykeen.losses import CrossEntropyLoss
from pykeen.models import ComplEx
from pykeen.regularizers import LpRegularizer
from pykeen.training import LCWATrainingLoop, TrainingCallback
from pykeen.triples import TriplesFactory
from pykeen.version import get_version

DEFAULTS = {"dim": 128, "batch": 256, "learning_rate": 0.1, "n3": 0.01}


class Budgets(TrainingCallback):
    """Evaluate after each budget of training, whose clock stands still meanwhile."""

    def __init__(self, seconds: list[float], evaluate: Any) -> None:
        super().__init__()
        self.left, self.evaluate_now, self.epochs = sorted(seconds), evaluate, 0
        self.paused = self.paused_cpu = 0.0
        self.start, self.start_cpu = time.perf_counter(), time.process_time()

    def post_batch(self, epoch: int, batch: Any, **kwargs: Any) -> None:
        spent, cpu = (
            time.perf_counter() - self.start - self.paused,
            time.process_time() - self.start_cpu - self.paused_cpu,
        )
        if spent < self.left[0]:
            return
        began, began_cpu = time.perf_counter(), time.process_time()
        budget = self.left.pop(0) / 60
        row = {"budget": budget, "seconds": round(spent, 1), "cpu": round(cpu, 1), "mrr": self.evaluate_now()}
        print(json.dumps({**row, "epochs": epoch, "version": get_version()}), flush=True)
        self.model.train()
        self.paused += time.perf_counter() - began
        self.paused_cpu += time.process_time() - began_cpu
        if not self.left:
            raise TimeUp


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--minutes", type=float, nargs="+", required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--optimiser", choices=("Adagrad", "Adam"), default="Adagrad")
    parser.add_argument("--split", choices=SPLITS[1:], default="test", help="valid: to choose settings by")
    for name, default in DEFAULTS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    splits = load(args.data)
    train = splits["train"]
    reciprocal = TriplesFactory(
        train.mapped_triples, train.entity_to_id, train.relation_to_id, create_inverse_triples=True
    )
    regulariser = {"regularizer": LpRegularizer(weight=args.n3, p=3.0), "embedding_dim": args.dim // 2}
    model = ComplEx(triples_factory=reciprocal, loss=CrossEntropyLoss(), random_seed=0, **regulariser)
    known = [splits[split].mapped_triples for split in SPLITS if split != args.split]

    def mrr() -> float:
        options: dict[str, Any] = {"additional_filter_triples": known, "use_tqdm": False, "batch_size": 32}
        result = RankBasedEvaluator(filtered=True).evaluate(model, splits[args.split].mapped_triples, **options)
        return float(result.get_metric("both.realistic.inverse_harmonic_mean_rank"))

    optimiser = getattr(torch.optim, args.optimiser)(model.parameters(), lr=args.learning_rate)
    loop = LCWATrainingLoop(
        model=model, triples_factory=reciprocal, optimizer=optimiser, automatic_memory_optimization=False
    )
    budgets = Budgets([60 * minutes for minutes in args.minutes], mrr)
    run: dict[str, Any] = {"use_tqdm": False, "num_workers": 0, "pin_memory": False}
    with contextlib.suppress(TimeUp):
        loop.train(reciprocal, num_epochs=1_000_000, batch_size=args.batch, callbacks=budgets, **run)


if __name__ == "__main__":
    main()
