"""tune(): hyper-parameter search with Optuna; a study stored in a file continues where it stopped."""

import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harmonium.config.setting_values import Overrides
from harmonium.config.settings import Config
from harmonium.data.compressed import create_file
from harmonium.data.graph import Graph
from harmonium.data.tables.reading_options import split_keywords
from harmonium.errors import HarmoniumError
from harmonium.evaluation.metrics import decisive
from harmonium.model.build import build_model
from harmonium.runtime.displayed import Displayed, one_line
from harmonium.runtime.untrusted import read_text
from harmonium.training.fit import fit
from harmonium.training.notebook_progress import trial_progress
from harmonium.training.search.search import for_vectors
from harmonium.training.train import Base, given_settings, load_graph, read_settings

SPACE: dict[str, Any] = {  # the form of a search space in TOML: lists of choices, or ranges; "none" unsets a setting
    "model": {
        "composition": ["complex", "distmult", "hole"],
        "entity_dim": [64, 128, 256],
        "reciprocal": [True, False],
        "harmony": [False, True],
        "faithfulness": {"low": 0.5, "high": 8.0, "log": True},
        "rank": [1, 4, 16],
    },
    "train": {
        "loss": ["full", "sampled"],
        "negatives": {"low": 64, "high": 1024, "log": True},
        "learning_rate": {"low": 0.03, "high": 0.6, "log": True},
        "batch_size": [100, 250, 1000],
        "n3": {"low": 1e-3, "high": 0.3, "log": True},
        "relation_prediction": [0.0, 0.5, 4.0],
    },
}
CONDITIONS: dict[str, dict[str, Any]] = {  # settings that have an effect only where another has one value
    "model.faithfulness": {"model.harmony": True},
    "model.rank": {"model.harmony": True},
    "train.negatives": {"train.loss": "sampled"},
}
HEADER = "# found by harmonium tune"
Ranges = Mapping[str, Any]  # a list of choices or a range, by setting


@dataclass(frozen=True)
class Tuning(Displayed):
    """The result of a study: the best settings, and every trial in order."""

    best: Config
    metric: str
    value: float
    trials: list[dict[str, Any]]  # number, state (complete or pruned), value, settings; error where training failed
    notes: tuple[str, ...] = ()  # of the graph

    def __repr__(self) -> str:
        return one_line(self, f"best of {len(self.trials)} trials: {self.metric} {self.value:.3f}")

    def to_json(self) -> dict[str, Any]:
        best = max((t for t in self.trials if t["state"] == "complete"), key=lambda t: t["value"])
        return {"metric": self.metric, "value": self.value, "settings": best["settings"], "trials": self.trials}


def tune(
    data: Any = None,
    config: Base | Mapping[str, Any] = None,
    trials: int = 20,
    storage: str | Path | None = None,
    space: dict[str, Any] | str | Path | None = None,
    overrides: Overrides = (),
    out: str | Path | None = None,
    progress: Callable[[int], None] | None = None,
    *,
    preset: str | None = None,
    **keywords: Any,
) -> Tuning:
    """Search for the settings with the best validation metric; bad trials are stopped early.

    `space` is a tree like Config's whose values are lists of choices or ranges {low, high, log}, or a TOML file of it.
    Graph, options of reading it and settings are given as to `train`, and these settings stay fixed. With `storage` (a
    file) the same call continues until there are `trials` in all.

    >>> harmonium.tune("atlas", trials=20, epochs=30, storage="atlas.study", out="best.toml").best
    """
    reading, settings = split_keywords(keywords)
    start, given = given_settings(config, preset, overrides, settings)
    base, graph = load_graph(read_settings(start, given), data, reading=reading)
    ranges = _search_space(space, base, given)
    if not len(graph.valid):
        raise HarmoniumError(f"{graph.name} has no validation facts; `harmonium convert` can split some off")
    if out is not None:
        _check_replaceable(Path(out))
    progress = trial_progress(progress, trials)
    study = _open_study(storage, {"config": base.to_toml(), "space": repr(ranges)}, base.train.seed)
    done = len(_finished_trials(study))
    if progress and done:
        progress(min(done, trials))
    study.optimize(
        lambda trial: _run_trial(trial, base, graph, ranges),
        n_trials=max(trials - done, 0),
        callbacks=[lambda *_: progress(1)] if progress else None,
    )
    finished = _finished_trials(study)
    if not any(trial["state"] == "complete" for trial in finished):
        reason = next((trial["error"] for trial in finished if "error" in trial), "no trial was run")
        raise HarmoniumError(f"none of {len(finished)} trials completed; the first error: {reason}")
    best = _with_settings(base, study.best_params)
    if out is not None:
        summary = f"{base.train.metric} {study.best_value:.4f} on validation, best of {len(finished)} trials"
        with create_file(Path(out)) as file:
            file.write(f"{HEADER}: {summary}\n{best.to_toml()}".encode())
    return Tuning(best, base.train.metric, study.best_value, finished, tuple(map(str, graph.notes)))


def _check_replaceable(out: Path) -> None:
    """Refuse, before any trial, to replace a file that tune did not write."""
    if out.exists() and not (out.is_file() and out.read_bytes().startswith(HEADER.encode())):
        raise HarmoniumError(f"{out} exists and was not written by tune; choose another --out")
    out.parent.mkdir(parents=True, exist_ok=True)


def _search_space(space: dict[str, Any] | str | Path | None, base: Config, fixed: Collection[str]) -> Ranges:
    """The choices or range of each setting to search, checked; without those that are fixed or have no effect."""
    omitted = set(fixed)
    if space is None:
        space = SPACE
        searched = {key for key, _ in _flatten(SPACE)} - omitted
        settled = [key for key in searched if not CONDITIONS.get(key, {"": None}).keys() & searched]
        omitted |= {key for key in settled if not _has_effect(key, base)}
    elif not isinstance(space, dict):
        file = Path(space)
        try:
            space = tomllib.loads(read_text(file))
            if not list(_flatten(space)):
                raise HarmoniumError("no settings in it")
        except (OSError, ValueError, RecursionError) as error:
            raise HarmoniumError(f"--space {file}: cannot be read as TOML ({error})") from error
    ranges = {key: values for key, values in _flatten(space) if key not in omitted}
    for key, values in ranges.items():
        for value in _extremes(key, values):
            _with_settings(base, {key: value})
    if not ranges:
        raise HarmoniumError("every setting of the search space is fixed by --set; there is nothing to search")
    return ranges


def _flatten(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(key, choices or range) of every setting in a search space."""
    for key, value in tree.items():
        if isinstance(value, dict) and "low" not in value and "high" not in value:
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _extremes(key: str, values: Any) -> list[Any]:
    """The choices, or the ends of the range, after a check of their form."""
    if isinstance(values, list) and values:
        return values
    if isinstance(values, dict) and {"low", "high"} <= set(values) <= {"low", "high", "log"}:
        low, high = values["low"], values["high"]
        is_number = type(low) is type(high) and type(low) in (int, float)
        if is_number and low <= high and (low > 0 or not values.get("log")):
            return [low, high]
    raise HarmoniumError(
        f"search space: {key} must be a list of choices, or a range such as {{low = 0.001, high = 0.1, log = true}} "
        f"(low <= high, both whole or both not, above 0 with log), not {values!r}"
    )


def _with_settings(base: Config, values: dict[str, Any]) -> Config:
    """The base settings with some of them changed."""
    return read_settings(base, {key: None if value == "none" else value for key, value in values.items()})


def _run_trial(trial: Any, base: Config, graph: Graph, ranges: Ranges) -> float:
    """Train with suggested settings; returns the best validation metric. A trial that fails counts as pruned."""
    from optuna import TrialPruned

    values: dict[str, Any] = {}
    for key, choices in ranges.items():
        if _has_effect(key, _with_settings(base, values)):
            values[key] = _suggest(trial, key, choices)
    metric = base.train.metric

    def report(row: dict[str, Any]) -> None:
        trial.report(decisive(row["valid"], metric), row["epoch"])
        if trial.should_prune():
            raise TrialPruned

    try:
        config = _with_settings(base, values)
        model = build_model(for_vectors(config).model, graph.n_entities, graph.n_relations, config.train.seed)
        history = fit(model, graph, config, on_validation=report)
    except HarmoniumError as error:  # such as a loss that became nan
        trial.set_user_attr("error", str(error))
        raise TrialPruned from error
    if history.stopped.startswith("interrupted"):
        raise KeyboardInterrupt
    return max(decisive(row["valid"], metric) for row in history.rows if "valid" in row)


def _has_effect(key: str, config: Config) -> bool:
    """Whether a setting matters beside the others."""
    conditions = ((*other.split("."), value) for other, value in CONDITIONS.get(key, {}).items())
    return all(getattr(getattr(config, group), name) == value for group, name, value in conditions)


def _suggest(trial: Any, key: str, values: Any) -> Any:
    if isinstance(values, list):
        return trial.suggest_categorical(key, values)
    suggest = trial.suggest_int if isinstance(values["low"], int) else trial.suggest_float
    return suggest(key, values["low"], values["high"], log=values.get("log", False))


def _open_study(storage: str | Path | None, attributes: dict[str, str], seed: int) -> Any:
    """A new study, or the one in a file, which must have the same settings and space."""
    try:
        import optuna
        from optuna.storages.journal import JournalFileBackend
    except ImportError as error:
        raise HarmoniumError("tuning needs Optuna: pip install 'harmonium[tune]'") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        journal = None
        if storage is not None:
            Path(storage).parent.mkdir(parents=True, exist_ok=True)
            journal = optuna.storages.JournalStorage(JournalFileBackend(str(storage)))
        study = optuna.create_study(
            storage=journal,
            pruner=optuna.pruners.MedianPruner(),
            study_name="harmonium",
            direction="maximize",
            load_if_exists=True,
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise HarmoniumError(f"--storage {storage}: not a readable study ({error}); choose a new file") from error
    if study.user_attrs and study.user_attrs != attributes:
        raise HarmoniumError(
            f"--storage {storage} holds a study of other data, settings or search space; use those, or a new file"
        )
    for key, value in attributes.items():
        study.set_user_attr(key, value)
    study.sampler = optuna.samplers.TPESampler(seed=seed + len(study.trials))  # a continued study draws anew
    return study


def _finished_trials(study: Any) -> list[dict[str, Any]]:
    """Completed and pruned trials as plain values; interrupted ones do not count."""
    return [
        {
            "number": trial.number,
            "state": trial.state.name.lower(),
            "value": trial.value if trial.state.name == "COMPLETE" else None,
            "settings": trial.params,
            **trial.user_attrs,
        }
        for trial in study.trials
        if trial.state.name in ("COMPLETE", "PRUNED")
    ]
