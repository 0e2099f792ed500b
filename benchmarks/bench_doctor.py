"""What `harmonium doctor` says of known graphs, and of cleaned copies of those that leak.

HARMONIUM_DATA=folder-of-datasets python benchmarks/bench_doctor.py results/doctor.json
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from harmonium import doctor, load
from harmonium.doctor import Diagnosis
from harmonium.evaluation import describe
from harmonium.reproduce import commit
from harmonium.run import environment

GRAPHS = ("FB15K", "WN18", "FB15K-237", "WN18RR")


def row(found: Diagnosis, relations: int) -> dict[str, Any]:
    """What the docs show of a diagnosis."""
    numbers = {finding.name: finding.numbers for finding in found.findings}
    return {
        "verdict": found.verdict,
        "reason": found.reason,
        "relations": relations,
        "triples": found.triples,
        "redundant": numbers["redundant relations"]["share"],
        "symmetric": numbers["symmetric leakage"]["share"],
        "linked": numbers["linked pairs"]["either"] / found.triples["test"],
        "rules": found.baseline.metrics,
        "protocol": describe(found.baseline.protocol),
    }


def main() -> None:
    rows = {}
    for name in GRAPHS:
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / f"{name}-clean"
            found = doctor(name, clean=copy)
            rows[name] = row(found, load(name).n_relations)
            if found.verdict == "leaking":
                rows[f"{name}, cleaned"] = row(doctor(copy), load(copy).n_relations)
        print(name, rows[name]["verdict"], flush=True)
    about = {"command": "python benchmarks/bench_doctor.py results/doctor.json", "commit": commit()}
    about |= {"environment": environment(), "graphs": rows}
    Path(sys.argv[1]).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
