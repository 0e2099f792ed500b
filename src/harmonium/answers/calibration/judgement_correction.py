"""What judgements of people change in the probabilities of missing facts.

    log-odds = intercept + slope * uncorrected log-odds + deviation of the relation

It is fitted by review/recalibration.py, kept in the run folder, and part of the calibration of `complete`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from harmonium.errors import HarmoniumError
from harmonium.run import manifest
from harmonium.run.run import Run
from harmonium.runtime import schema

FILE = "judgement_correction.json"  # in a run folder


@dataclass(frozen=True)
class JudgementCorrection:
    """A monotone change of log-odds; of relations that nobody judged the common one."""

    intercept: float
    slope: schema.NonNegative
    by_relation: dict[int, float]
    facts: schema.Count  # judged, from which it was learned

    def shift(self, relation: int) -> float:
        """How much the log-odds of the facts of a relation change that are as likely true as not."""
        return self.intercept + self.by_relation.get(relation, 0.0)

    def apply(self, log_odds: Tensor, relations: Tensor) -> Tensor:
        """(n,): corrected log-odds of facts of these relations (n,)."""
        corrected = self.intercept + self.slope * log_odds
        for relation, deviation in self.by_relation.items():
            corrected[relations == relation] += deviation
        return corrected


@dataclass(frozen=True)
class _Kept:
    """The contents of the file; without a correction where it was dropped."""

    correction: JudgementCorrection | None


def _parse(value: Any, n_relations: int) -> _Kept:
    kept = schema.read(_Kept, value)
    if kept.correction is not None and max(kept.correction.by_relation, default=0) >= n_relations:
        raise ValueError("a relation that the graph does not have")
    return kept


def correction_for(run: Run) -> JudgementCorrection | None:
    """The correction that is kept in a run folder, if there is one."""
    kept = manifest.read_kept(run.path, run.fingerprint, FILE, lambda value: _parse(value, run.graph.n_relations))
    return None if kept is None else kept.correction


def correction_file(correction: JudgementCorrection, n_relations: int) -> dict[str, Any]:
    """The file of a correction for a run with so many relations, which have the same ids, by its name."""
    by_relation = {relation: d for relation, d in correction.by_relation.items() if relation < n_relations}
    return {FILE: _Kept(replace(correction, by_relation=by_relation))}


def keep_correction(run: Run, correction: JudgementCorrection | None) -> None:
    """Keep a correction in a run folder, in place of an earlier one; None drops it."""
    if run.path is None:
        raise HarmoniumError("the run is in no folder, so nothing is kept; save it first")
    manifest.keep(run.path, run.fingerprint, FILE, _Kept(correction))
    if correction_for(run) != correction:
        raise HarmoniumError(f"{run.path}: cannot be written, so the correction was not kept; is the folder writable?")
