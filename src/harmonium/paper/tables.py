"""Records as tables: published numbers above ours, for the terminal and for docs/paper.md."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from harmonium.paper.records import METRICS, Record, by_seeds, format_mean, mean

Table = tuple[list[str], list[list[str]]]  # columns, rows


def model_table(records: Sequence[Record], full: Sequence[str] = ("mrr", "hits@10")) -> Table:
    """Published numbers above ours; metrics under the typed protocol, then under the standard one."""
    rows, shown = [], ""
    for group in sorted(by_seeds(records).values(), key=lambda group: paper_order(group[0])):
        first = group[0]
        if (name := label(first)) != shown and first["published"]:
            rows.append(
                [name, "published", *(_number([first["published"][m]], m) for m in METRICS), *[""] * len(full), ""]
            )
        shown = name
        seeds = f", {len(group)} seeds" if len(group) > 1 else ""
        typed = [_number([r[m] for r in group], m) for m in METRICS]
        standard = [_number([r["full"][m] for r in group], m) for m in full]
        rows.append([name, f"{first['variant']}{seeds}", *typed, *standard, against_published(group)])
    return ["model", "source", *METRICS, *(f"full {m}" for m in full), "MRR gap"], rows


def label(record: Record) -> str:
    """The model as the paper's tables name it."""
    faithfulness = "" if record["lambda"] is None else f" λ={float(record['lambda']):g}"
    relation_dim = record["settings"]["model"]["relation_dim"]
    return f"{record['model']}{faithfulness} d={record['dim']}" + (f"x{relation_dim}" if relation_dim else "")


def paper_order(record: Record) -> tuple[Any, ...]:
    """The paper's order: plain, lambda infinite, lambda finite."""
    model = record["settings"]["model"]
    return model["composition"], model["harmony"], -float(record["lambda"] or 0), record["variant"] == "calibrated"


def _number(values: Sequence[float], metric: str) -> str:
    return format_mean(values, 0 if metric == "mr" else 3)


def against_published(group: Sequence[Record]) -> str:
    """Mean typed MRR minus the published one, both as printed."""
    if not group[0]["published"]:
        return ""
    return f"{round(mean([r['mrr'] for r in group])[0], 3) - group[0]['published']['mrr']:+.3f}"


def control_table(records: Sequence[Record]) -> Table:
    """Typed and full MRR of each control for each composition, in the order of the records."""
    groups = {row: group for (_, row, _), group in by_seeds(records).items()}
    compositions, names = (list(dict.fromkeys(row.split("/")[i] for row in groups)) for i in (0, 1))
    rows = []
    for name in names:
        cells, seeds = [], 0
        for group in (groups.get(f"{composition}/{name}", []) for composition in compositions):
            typed, full = [r["mrr"] for r in group], [r["full"]["mrr"] for r in group]
            cells += [format_mean(typed), format_mean(full)] if group else ["", ""]
            seeds = max(seeds, len(group))
        rows.append([name, str(seeds), *cells])
    heads = [f"{composition}{kind} mrr" for composition in compositions for kind in ("", ", full")]
    return ["control", "seeds", *heads], rows


PAPER_DENSITY = {"positives": (0.241, 99.7), "negatives": (-0.059, -62.4)}  # FB15K: change in true neighbours of 5, t
PAPER_GAIN = {  # FB15K: Spearman's rho of the gain with the change of rank
    "HHolE": {"rank": -0.0157, "reciprocal_rank": 0.1370, "reciprocal_rank_changed": 0.3746},
    "HDistMult": {"rank": 0.1226},
}


def density_table(records: Sequence[Record]) -> Table:
    """The change in true neighbours from composed to token, with the paper's t test and intervals by clusters."""
    rows = []
    for record in records:
        for name, published in PAPER_DENSITY.items():
            density = record[name]
            intervals = (f"{low:+.3f} to {high:+.3f}" for low, high in (density["by_fact"], density["by_relation"]))
            paper = f"{published[0]:+.3f} (t = {published[1]:.1f})" if record["dataset"] == "FB15K" else "-"
            numbers = [f"{density['queries']:,}", f"{density['composed']:.3f}", f"{density['token']:.3f}"]
            change = f"{density['change']['mean']:+.3f} (t = {float(density['change']['t']):.1f})"
            rows.append([f"{_run_label(record)}: {name}", *numbers, paper, change, *intervals])
    head = ["triples", "queries", "composed", "token", "published change", "change", "by triple", "by relation"]
    return head, rows


def gain_table(records: Sequence[Record]) -> Table:
    """Spearman's rho of harmony gain with three changes of rank, published and ours, by candidates."""
    rows = []
    for record in records:
        published = PAPER_GAIN.get(record["model"], {}) if record["dataset"] == "FB15K" else {}
        for candidates, gain in record["candidates"].items():
            cells = [f"{gain[name]:.3f}" for name in ("mrr_before", "mrr_after", "unchanged")]
            for kind, rho in gain["spearman"].items():
                paper = f" ({published[kind]:+.3f})" if kind in published and candidates == "typed-all" else ""
                cells.append(format_mean([rho["rho"]], 3, "+") + paper)
            rows.append([_run_label(record), candidates, f"{record['queries']:,}", *cells])
    kinds = ["rho, rank (published)", "rho, 1/rank", "rho, 1/rank where changed"]
    return ["model", "candidates", "queries", "MRR by H(x, x)", "MRR by H(mu, x)", "unchanged", *kinds], rows


def classification_table(records: Sequence[Record]) -> Table:
    names = ("accuracy", "accuracy_one_threshold", "auc", "average_precision")
    rows = [[_run_label(r), r["source"], *(format_mean([r["metrics"][name]]) for name in names)] for r in records]
    return ["model", "labelled facts", *(name.replace("_", " ") for name in names)], rows


def neighbourhood_table(records: Sequence[Record]) -> Table:
    """Each triple's nearest neighbours by composed vector and by token; true ones are ticked."""
    rows = []
    for record in records:
        for guise in record["neighbourhoods"]:
            sides = ("; ".join("✓ " * n["true"] + n["name"] for n in guise[side]) for side in ("composed", "token"))
            head, relation, tail = guise["triple"]
            rows.append(["✓ " * guise["true"] + f"{head}, {relation.rsplit('/', 1)[-1]}, {tail}", *sides])
    return ["triple", "nearest composed", "nearest token"], rows


def _run_label(record: Record) -> str:
    return f"{label(record)}, {record['variant']}, seed {record['seed']}"


TABLES: dict[str, Callable[[Sequence[Record]], Table]] = {
    "table1": model_table,
    "htpr": model_table,
    "controls": control_table,
    "neighbourhoods": neighbourhood_table,
    "density": density_table,
    "gain": gain_table,
    "classification": classification_table,
}
