"""Run the demo and the first commands of the tutorial, and keep what they print: python benchmarks/demo.py OUT.json.

`render.py` puts the numbers and the printed text into the docs, so that these are what the program prints.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

COMMANDS = {  # of docs/tutorial.md
    "demo": ["demo"],
    "predict": ["predict", "runs/demo", "--head", "North Macedonia", "--relation", "borders", "--top", "5"],
    "similar": ["similar", "runs/demo", "Switzerland", "--as", "official language=German"],
}


def run(folder: str, words: list[str]) -> str:
    """What a command prints, in a terminal of 100 columns."""
    command = [sys.executable, "-m", "harmonium", *words]
    done = subprocess.run(
        command, cwd=folder, env=os.environ | {"COLUMNS": "100"}, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


def main(out: str) -> None:
    from harmonium.evaluation.evaluation import evaluate_scorer
    from harmonium.run.run import Run

    with tempfile.TemporaryDirectory() as folder:
        printed = {name: run(folder, words) for name, words in COMMANDS.items()}
        trained = Run.load(Path(folder) / "runs" / "demo")
    assert trained.evaluation is not None
    vectors = evaluate_scorer(trained.model, trained.graph, trained.config.evaluate)
    evaluation = trained.evaluation.to_json()
    result: dict[str, Any] = {
        "command": "harmonium demo",
        "measured_by": "python benchmarks/demo.py results/demo.json",
        "graph": trained.graph.name,
        "seed": trained.config.train.seed,
        "device": trained.environment["device"],
        "environment": trained.environment,
        "seconds": trained.history.seconds,
        "load_average": os.getloadavg()[0],
        "protocol": trained.evaluation.describe(),
        "metrics": trained.metrics,
        "baselines": evaluation["baselines"],
        "by_category": evaluation["by_category"],
        "vectors_alone": vectors.metrics,
        "printed": printed,
    }
    Path(out).write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
