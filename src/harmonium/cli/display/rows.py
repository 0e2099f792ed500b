"""Results as rows, for the formats of `--format` that are tables for programs: CSV, TSV, JSON lines, Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harmonium.analysis.explain import Explanation
    from harmonium.answers.calibration.probability import Calibration
    from harmonium.answers.classify import Classification, LabelledFact
    from harmonium.data.checks.diagnosis import Diagnosis
    from harmonium.training.search.planning import Plan

Rows = list[dict[str, Any]]
FACT = ("head", "relation", "tail")


def relation_rows(contents: Mapping[str, Any]) -> Rows:
    """What `info` says of a graph: a row for each relation, with an example."""
    rows = []
    for relation in contents["graph"]["by_relation"]:
        example = dict(zip(("example_head", "example_tail"), (relation["example"] or (None,) * 3)[::2], strict=True))
        counts = {"relation": relation["name"], "train": relation["train"], "category": relation["category"]}
        rows.append(counts | example)
    return rows


def run_rows(contents: Mapping[str, Any]) -> Rows:
    """What `info` says of a run: a row for each property of its model, its training and its evaluation."""
    run = contents["run"]
    values = {f"model.{key}": value for key, value in run["model"].items()}
    values |= {key: run[key] for key in ("path", "parameters", "epochs", "best_epoch", "stopped", "seconds")}
    values |= {f"metrics.{name}": value for name, value in run["metrics"].get("metrics", {}).items()}
    for number, update in enumerate(run["updates"], start=1):
        names = ("made", "change", "command")
        values |= {f"update {number}.{name}": update[name] for name in names}
        values |= {f"update {number}.{name} before": value for name, value in update["metrics_before"].items()}
    return [{"property": key, "value": value} for key, value in values.items()]


def finding_rows(diagnosis: Diagnosis) -> Rows:
    """The findings or, with an older version, what contradicts it."""
    if diagnosis.since:
        return list(diagnosis.since.rows)
    names = ("level", "name", "text", "advice", "examples")
    return [{name: asdict(finding)[name] for name in names} for finding in diagnosis.findings]


def label_rows(facts: Sequence[LabelledFact]) -> Rows:
    return [
        dict(zip(FACT, fact.triple, strict=True)) | {"label": fact.label, "probability": fact.probability}
        for fact in facts
    ]


def classification_rows(classifier: Classification) -> Rows:
    """The accuracy of all test facts, then of each relation."""
    everything = {"relation": "all", "facts": len(classifier.labels), "accuracy": classifier.metrics["accuracy"]}
    return [everything, *({"relation": name, **row} for name, row in classifier.by_relation().items())]


def calibration_rows(calibration: Calibration) -> Rows:
    """The bins of every reliability curve that have answers."""
    return [
        {"slot": slot.value, "questions": kind.value, **part}
        for slot, fit in calibration.fits.items()
        for kind, judged in fit.reliability.items()
        for part in judged.bins
        if part["facts"]
    ]


def explanation_rows(explanation: Explanation) -> Rows:
    """The training facts behind an answer: those it depends on, with its rank without them, then single effects."""
    rows: Rows = [
        {"kind": "necessary", **dict(zip(FACT, each.fact, strict=True)), "rank_without": each.rank, "effect": None}
        for each in explanation.necessary
    ]
    return rows + [
        {"kind": "single", **dict(zip(FACT, each.fact, strict=True)), "rank_without": None, "effect": each.effect}
        for each in explanation.reasons
    ]


def plan_rows(plan: Plan) -> Rows:
    memory = [{"what": name, "unit": "bytes", "amount": amount} for name, amount in plan.memory.items()]
    return memory + [{"what": name, "unit": "seconds", "amount": amount} for name, amount in plan.seconds.items()]
