"""Diagnoses of known graphs by `harmonium doctor`, and of cleaned copies of those that leak.

HARMONIUM_DATA=folder-of-datasets python benchmarks/bench_doctor.py results/doctor.json
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from harmonium import doctor, load
from harmonium.data.checks.diagnosis import Diagnosis
from harmonium.run.environment import environment

GRAPHS = ("FB15K", "WN18", "FB15K-237", "WN18RR")


def row(diagnosis: Diagnosis, relations: int) -> dict[str, Any]:
    """The part of a diagnosis that the docs show."""
    numbers = {finding.name: finding.numbers for finding in diagnosis.findings}
    return {
        "verdict": diagnosis.verdict,
        "reason": diagnosis.reason,
        "relations": relations,
        "triples": diagnosis.triples,
        "redundant": numbers["redundant relations"]["share"],
        "symmetric": numbers["symmetric leakage"]["share"],
        "linked": numbers["linked pairs"]["either"] / diagnosis.triples["test"],
        "rules": diagnosis.rule_baseline["metrics"],
        "protocol": diagnosis.rule_baseline["protocol"],
    }


def main() -> None:
    rows = {}
    for name in GRAPHS:
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / f"{name}-clean"
            diagnosis = doctor(name, clean=copy)
            rows[name] = row(diagnosis, load(name).n_relations)
            if diagnosis.verdict == "leaking":
                rows[f"{name}, cleaned"] = row(doctor(copy), load(copy).n_relations)
        print(name, rows[name]["verdict"], flush=True)
    about = {"command": "python benchmarks/bench_doctor.py results/doctor.json"}
    about |= {"environment": environment(), "graphs": rows}
    Path(sys.argv[1]).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
