"""How the settings of a run were chosen: what was tried, what was chosen and why."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from harmonium.runtime import schema


@dataclass(frozen=True)
class Trial:
    """One short training: the settings in which it differs from the recipe, and how well it ranked held-out facts."""

    settings: dict[str, Any]
    mrr: float | None  # None: the training failed
    seconds: float
    error: str | None = None


@dataclass(frozen=True)
class Selection:
    """The result of a search (training/search/search.py)."""

    settings: dict[str, Any]  # the chosen ones that differ from the built-in defaults, by key
    reasons: list[str]
    trials: list[Trial]
    trial_size: dict[str, Any]  # the settings in which trials differ from the final training
    held_out: schema.Count  # facts that judged each trial
    minutes: schema.Unbounded  # the budget
    seconds: schema.NonNegative  # spent on the search

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Any) -> Selection:
        """Read what `to_json` made; a ValueError names what is missing or of another kind."""
        return schema.read(cls, value, "selection")
