"""tune(): settings found by trying, with Optuna; a study in a file goes on where it stopped."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harmonium.config import Config
from harmonium.datasets import load
from harmonium.errors import HarmoniumError
from harmonium.formats.files import create
from harmonium.graph import Graph
from harmonium.training import build_model, fit

SPACE = {  # in the form of a search space in TOML: a list of choices, or a range; "none" leaves a setting out
    "model": {
        "entity_dim": [32, 64, 128],
        "faithfulness": {"low": 0.5, "high": 8.0, "log": True},
        "rank": ["none", 8, 32],
    },
    "train": {
        "learning_rate": {"low": 3e-4, "high": 3e-2, "log": True},
        "batch_size": [256, 512, 1024],
        "negatives": {"low": 32, "high": 512, "log": True},
        "n3": {"low": 1e-6, "high": 1e-2, "log": True},
    },
}
HEADER = "# found by harmonium tune"


@dataclass(frozen=True)
class Tuning:
    """What a study found: the best settings, and every trial in its order."""

    best: Config
    metric: str
    value: float
    trials: list[dict[str, Any]]  # number, state (complete or pruned), value, settings; error where training failed

    def to_json(self) -> dict[str, Any]:
        best = max((t for t in self.trials if t["state"] == "complete"), key=lambda t: t["value"])
        return {"metric": self.metric, "value": self.value, "settings": best["settings"], "trials": self.trials}


def tune(
    config: Config | str | Path | None = None,
    data: str | Graph | None = None,
    trials: int = 20,
    storage: str | Path | None = None,
    space: dict[str, Any] | str | Path | None = None,
    sets: Sequence[str] = (),
    out: str | Path | None = None,
    watch: Callable[[int], None] | None = None,
) -> Tuning:
    """Search for the settings with the best validation metric; bad trials are stopped early.

    `space` is a tree like Config's whose values are lists of choices or ranges {low, high, log}, or a TOML file of it;
    what `sets` says stays fixed. With `storage` (a file) the same call goes on until there are `trials` in all.

    >>> harmonium.tune(data="atlas", trials=20, storage="atlas.study", out="best.toml").best
    """
    optuna = _optuna()
    base = config if isinstance(config, Config) else Config.read(config)
    base = Config.of(tomllib.loads(base.to_toml()), sets)
    data = base.data if data is None else data
    graph = load(data)
    base = replace(base, data=str(data) if isinstance(data, str | Path) else graph.name)
    tree = tomllib.loads(base.to_toml())
    fixed = {text.partition("=")[0].strip() for text in sets}
    ranges = {key: values for key, values in _flat(_read(space)) if key not in fixed}
    if space is None:
        ranges = {key: values for key, values in ranges.items() if _matters(key, base)}
    for key, values in ranges.items():
        for value in _ends(key, values):
            _settings(tree, {key: value})
    if not ranges:
        raise HarmoniumError("every setting of the search space is fixed by --set; there is nothing to search")
    if not len(graph.valid):
        raise HarmoniumError(
            f"{graph.name} has no validation facts to judge by; `harmonium convert` can split them off"
        )
    if out is not None:
        _ours(Path(out))
    study = _study(optuna, storage, {"config": base.to_toml(), "space": repr(ranges)}, base.train.seed)

    def attempt(trial: Any) -> float:
        settings = {key: _suggest(trial, key, values) for key, values in ranges.items()}

        def judge(row: dict[str, Any]) -> None:
            trial.report(row["valid"][base.train.metric], row["epoch"])
            if trial.should_prune():
                raise optuna.TrialPruned

        try:
            tried = _settings(tree, settings)
            model = build_model(tried.model, graph.n_entities, graph.n_relations, tried.train.seed)
            history = fit(model, graph, tried, on_validation=judge)
        except HarmoniumError as error:  # such as a loss that became nan
            trial.set_user_attr("error", str(error))
            raise optuna.TrialPruned from error
        if history.stopped.startswith("interrupted"):
            raise KeyboardInterrupt
        return max(row["valid"][base.train.metric] for row in history.rows if "valid" in row)

    done = len(_finished(study))
    if watch and done:
        watch(min(done, trials))
    callbacks = [lambda *_: watch(1)] if watch else None
    study.optimize(attempt, n_trials=max(trials - done, 0), callbacks=callbacks)
    found = _finished(study)
    if not any(trial["state"] == "complete" for trial in found):
        why = next((trial["error"] for trial in found if "error" in trial), "none was tried")
        raise HarmoniumError(f"no trial of {len(found)} came to its end; the first says: {why}")
    best = _settings(tree, study.best_params)
    if out is not None:
        with create(Path(out)) as file:
            about = f"{HEADER}: {base.train.metric} {study.best_value:.4f} on validation, best of {len(found)} trials\n"
            file.write((about + best.to_toml()).encode())
    return Tuning(best, base.train.metric, study.best_value, found)


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise HarmoniumError("tuning needs Optuna: pip install 'harmonium[tune]'") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def _read(space: dict[str, Any] | str | Path | None) -> dict[str, Any]:
    if space is None or isinstance(space, dict):
        return space or SPACE
    try:
        return tomllib.loads(Path(space).read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise HarmoniumError(f"--space {space}: cannot be read as TOML ({error})") from error


def _flat(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(key, choices or range) of every setting in a search space."""
    for key, value in tree.items():
        if isinstance(value, dict) and "low" not in value and "high" not in value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _matters(key: str, config: Config) -> bool:
    """Whether a setting of the default space does anything to the model and loss that are asked for."""
    needed = {"model.faithfulness": config.model.harmony, "model.rank": config.model.harmony}
    return needed.get(key, config.train.loss != "full" or key != "train.negatives")


def _ends(key: str, values: Any) -> list[Any]:
    """The choices, or the ends of the range, after a check of their form."""
    if isinstance(values, list) and values:
        return values
    if isinstance(values, dict) and {"low", "high"} <= set(values) <= {"low", "high", "log"}:
        low, high = values["low"], values["high"]
        if (
            type(low) is type(high)
            and type(low) in (int, float)
            and (0 if values.get("log") else low - 1) < low <= high
        ):
            return [low, high]
    raise HarmoniumError(
        f"search space: {key} is a list of choices, or a range such as {{low = 0.001, high = 0.1, log = true}} "
        f"(low <= high, both whole or both not, above 0 with log), not {values!r}"
    )


def _suggest(trial: Any, key: str, values: Any) -> Any:
    if isinstance(values, list):
        return trial.suggest_categorical(key, values)
    suggest = trial.suggest_int if isinstance(values["low"], int) else trial.suggest_float
    return suggest(key, values["low"], values["high"], log=values.get("log", False))


def _settings(tree: dict[str, Any], values: dict[str, Any]) -> Config:
    """The base settings with some of them changed."""
    text = [f"{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in values.items()]
    groups = {key: dict(value) if isinstance(value, dict) else value for key, value in tree.items()}
    return Config.of(groups, text, "search space")


def _study(optuna: Any, storage: str | Path | None, about: dict[str, str], seed: int) -> Any:
    """A new study, or the one in a file, which must be of the same settings."""
    from optuna.storages import InMemoryStorage, JournalStorage
    from optuna.storages.journal import JournalFileBackend

    try:
        if storage is not None:
            Path(storage).parent.mkdir(parents=True, exist_ok=True)
        place = InMemoryStorage() if storage is None else JournalStorage(JournalFileBackend(str(storage)))
        study = optuna.create_study(
            storage=place,
            pruner=optuna.pruners.MedianPruner(),
            study_name="harmonium",
            direction="maximize",
            load_if_exists=True,
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise HarmoniumError(f"--storage {storage}: not a study that can be read ({error}); take a new file") from error
    if study.user_attrs and study.user_attrs != about:
        raise HarmoniumError(
            f"--storage {storage} holds a study of other data, settings or search space; repeat those, or take a new file"
        )
    for key, value in about.items():
        study.set_user_attr(key, value)
    study.sampler = optuna.samplers.TPESampler(seed=seed + len(study.trials))  # not the first draws again
    return study


def _finished(study: Any) -> list[dict[str, Any]]:
    """Trials that came to an end, as plain values; one that was interrupted does not count."""
    kept = [trial for trial in study.trials if trial.state.name in ("COMPLETE", "PRUNED")]
    return [
        {
            "number": trial.number,
            "state": trial.state.name.lower(),
            "value": trial.value if trial.state.name == "COMPLETE" else None,
            "settings": trial.params,
            **trial.user_attrs,
        }
        for trial in kept
    ]


def _ours(out: Path) -> None:
    """Refuse, before any work is spent, to replace a file that tune did not write."""
    if out.exists() and not (out.is_file() and out.read_bytes().startswith(HEADER.encode())):
        raise HarmoniumError(f"{out} is there and was not written by tune; choose another --out")
    out.parent.mkdir(parents=True, exist_ok=True)
