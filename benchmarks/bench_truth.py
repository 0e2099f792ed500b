"""Are stated probabilities true? Missing facts are listed on graphs whose truth is known, and compared with it.

Of each bed the test facts are removed; the rest is trained on (train) and calibrated on (valid). CFamily, UMLS and Nations
are complete, so that every listed fact is one of those removed or false. Of atlas the same holds by its sources.

    python benchmarks/bench_truth.py results/truth.json CFamily=.data/CFamily UMLS=.data/UMLS atlas=atlas
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

SETTINGS = {"dim": 128, "epochs": 30, "n3": 0.01, "learning_rate": 0.1, "constraints": True, "threads": 1}
TOPS = (100, 300, 1000, 3000)
EDGES = (0.9, 0.7, 0.5, 0.3, 0.1)
LISTED = 6000


def judge(bed: str, data: str, constraints: bool) -> list[dict[str, Any]]:
    """Rows of stated and true shares, for tops and bins of the list, and of the total number of missing facts."""
    import harmonium
    from harmonium.answers.complete import find_missing
    from harmonium.answers.open_run import open_run
    from harmonium.data.triples import Slot, Triples

    whole = harmonium.load(data)
    graph = replace(whole, test=whole.test[:0])
    began = time.process_time()
    settings = SETTINGS | {"constraints": constraints}
    opened = open_run(harmonium.train(graph, "plain", progress=False, minutes=60, **settings))
    calibration = opened.fact_calibration()
    missing = find_missing(opened.search(), None, LISTED, calibration)
    facts, probabilities = missing.triples, missing.probabilities
    symmetric = opened.traits.symmetric[facts.relation]
    removed, swapped = whole.known_answers(Slot.TAIL, ("test",)), Triples(facts.tail, facts.relation, facts.head)
    true = (removed.contain(facts) | (removed.contain(swapped) & symmetric)).double()
    seconds = time.process_time() - began
    header = {"bed": bed, "constraints": constraints, "cpu_seconds": round(seconds, 1)}
    rows = []
    for top in TOPS:
        if top <= len(facts):
            rows.append(header | {"top": top, "stated": mean(probabilities[:top]), "true": mean(true[:top]), "n": top})
    high = 1.01
    for low in EDGES:
        inside = (probabilities >= low) & (probabilities < high)
        if int(inside.sum()) >= 20:
            bin = {
                "bin": low,
                "stated": mean(probabilities[inside]),
                "true": mean(true[inside]),
                "n": int(inside.sum()),
            }
            rows.append(header | bin)
        high = low
    estimated = sum(relation.missing for relation in calibration.completeness(graph))
    rows.append(header | {"missing_estimated": round(estimated), "missing_true": len(whole.test)})
    return rows


def mean(values: torch.Tensor) -> float:
    return round(values.double().mean().item(), 3)


def main(out: str, *beds: str) -> None:
    torch.set_num_threads(1)
    rows = []
    for bed in beds:
        name, data = bed.split("=", 1)
        for constraints in (True, False):
            rows += judge(name, data, constraints)
            for row in rows[-8:]:
                print(row, flush=True)
            content = {
                "command": f"python benchmarks/bench_truth.py results/{Path(out).name} BED=DATA ...",
                "rows": rows,
            }
            Path(out).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
