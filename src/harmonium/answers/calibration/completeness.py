"""How complete each relation of a graph is."""

from __future__ import annotations

from typing import Any

from harmonium.answers.calibration.fact_probability import Completeness
from harmonium.answers.open_run import OpenRun
from harmonium.data.checks.completeness import in_words


def completeness_of(opened: OpenRun) -> list[dict[str, Any]]:
    """For each relation that has facts, most facts first: how many are known and how many missing, with an interval."""
    calibration = opened.fact_calibration()
    if calibration is None:
        return []
    relations = sorted(calibration.completeness(opened.graph), key=lambda relation: -relation.known)
    return [_to_row(opened, relation) for relation in relations]


def _to_row(opened: OpenRun, completeness: Completeness) -> dict[str, Any]:
    low, high = completeness.interval
    return {
        "relation": opened.graph.relations.name(completeness.relation),
        "known": completeness.known,
        "missing": completeness.missing,
        "complete_low": low,
        "complete_high": high,
        "held_out": completeness.held_out,
        "text": in_words(low, high),
    }
