"""How a search chose the settings of a run: its trials, the choice and the reasons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from harmonium.runtime import schema
from harmonium.runtime.displayed import Displayed, Line, Part, Table


@dataclass(frozen=True)
class Task:
    """A pending search, stored with a training that was stopped before its first step."""

    search: dict[str, Any]  # the table [search] of the recipe
    fixed: list[str]  # settings that the user gave
    minutes: float | None


@dataclass(frozen=True)
class Trial:
    """One short training: the settings in which it differs from the recipe, and how well it ranked held-out facts."""

    settings: dict[str, Any]
    mrr: float | None  # None: the training failed
    seconds: float
    error: str | None = None  # if the training failed


@dataclass(frozen=True)
class Selection(Displayed):
    """The result of a search (training/search/search.py)."""

    settings: dict[str, Any]  # the chosen ones that differ from the built-in defaults, by key
    reasons: list[str]
    trials: list[Trial]
    trial_size: dict[str, Any]  # the settings in which trials differ from the final training
    held_out: schema.Count  # facts on which each trial was evaluated
    minutes: schema.Unbounded  # the budget
    seconds: schema.NonNegative  # spent on the search

    def display(self) -> Iterator[Part]:
        """The trials, the chosen settings and the reasons."""
        if self.trials:
            rows = [
                [number, settings_text(trial.settings) or "the recipe's settings", trial.mrr, f"{trial.seconds:.1f} s"]
                for number, trial in enumerate(self.trials, start=1)
            ]
            judged = f"trainings with {settings_text(self.trial_size)}, judged by {self.held_out:,} held-out facts"
            caption = f"{judged}; the search took {self.seconds:.0f} s"
            yield Table("Trials", ["", "settings", "mrr", "time"], rows, caption)
        yield Line("Chosen", "bold")
        for reason in self.reasons:
            yield Line(f"  {reason}")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Any) -> Selection:
        """Read what `to_json` made; a ValueError names a missing key or a wrong type."""
        return schema.read(cls, value, "selection")


def settings_text(settings: Mapping[str, Any]) -> str:
    """Settings in one line, such as: n3 0.1, composition distmult."""
    shown = {key: f"{value:.3g}" if isinstance(value, float) else str(value) for key, value in settings.items()}
    return ", ".join(f"{key.split('.')[-1]} {value}" for key, value in shown.items())
