"""Metrics as tables."""

from __future__ import annotations

from collections.abc import Mapping

from harmonium.evaluation.metrics import METRICS, Estimate
from harmonium.runtime.displayed import Table


def metrics_table(title: str, rows: Mapping[str, Mapping[str, float]], protocol: str) -> Table:
    """One row of metrics per name, and one of weighted metrics where facts have weights, with the protocol as caption."""
    cells: list[list[object]] = []
    for name, values in rows.items():
        cells.append([name, *(float(values[metric]) for metric in METRICS)])
        if "weighted_mrr" in values:
            cells.append([f"{name}, weighted", *(float(values[f"weighted_{metric}"]) for metric in METRICS)])
    return Table(title, ["", *METRICS], cells, f"protocol: {protocol}")


def interval_rows(estimate: Estimate | None) -> dict[str, dict[str, float]]:
    """Lower and upper ends of confidence intervals, as rows of a table of metrics."""
    if estimate is None:
        return {}
    ends = {"  95 %: from": 0, "  to": 1}
    return {title: {metric: both[end] for metric, both in estimate.intervals.items()} for title, end in ends.items()}
