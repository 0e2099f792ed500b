"""What a search may choose: the table [search] of a recipe, and settings with some of their values changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from harmonium.config.settings import Config, read_toml
from harmonium.errors import HarmoniumError


@dataclass(frozen=True)
class Search:
    """The table [search] of a recipe: what may be chosen, and for how long."""

    minutes: Mapping[str, float]  # by kind of device: cpu, cuda
    dims: Mapping[str, list[int]]
    trial_dim: Mapping[str, int] = field(default_factory=dict)
    choices: Mapping[str, list[Any]] = field(default_factory=dict)  # alternatives by setting
    large: Mapping[str, Any] = field(default_factory=dict)  # settings where all-entity training takes too long

    @classmethod
    def read(cls, source: str | Path) -> Search | None:
        """The search of a recipe; None where its settings are all that there is."""
        path, _, tree = read_toml(source)
        if "search" not in tree:
            return None
        try:
            return cls(**tree["search"])
        except TypeError as error:
            raise HarmoniumError(
                f"{path}: [search] has minutes, dims, trial_dim, choices and large ({error})"
            ) from None

    def check(self, config: Config) -> None:
        """Raise an error for a name that is no setting."""
        with_settings(config, {**self.large, **{key: values[0] for key, values in self.choices.items()}})


def with_settings(config: Config, values: Mapping[str, Any]) -> Config:
    """The settings with some of them changed, by keys such as train.n3."""
    for key, value in values.items():
        group, _, name = key.partition(".")
        if not name or not hasattr(getattr(config, group, None), name):
            raise HarmoniumError(f"[search] names '{key}', which is no setting")
        config = replace(config, **{group: replace(getattr(config, group), **{name: value})})
    return config


def settings_by_key(config: Config) -> dict[str, Any]:
    """The settings of the model and its training, by keys such as train.n3."""
    groups = {"model": asdict(config.model), "train": asdict(config.train)}
    return {f"{group}.{key}": value for group, settings in groups.items() for key, value in settings.items()}


def changed_settings(config: Config, start: Config) -> dict[str, Any]:
    """The settings that differ from those of a start."""
    before = settings_by_key(start)
    return {key: value for key, value in settings_by_key(config).items() if value != before[key]}


def show_value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)
