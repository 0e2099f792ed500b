"""tune(): finds a planted optimum, continues a stored study, and writes settings that reproduce its result."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import harmonium
from harmonium.config.settings import Config
from harmonium.run.run import History
from harmonium.training.search import tuning
from small import family, make_graph

QUICK = ["model.entity_dim=8", "model.rank=2", "train.epochs=4", "train.evaluate_every=2", "train.batch_size=64"]
QUICK += ["train.negatives=8", "model.faithfulness=1"]
SPACE = {"train": {"learning_rate": {"low": 1e-4, "high": 0.1, "log": True}, "optimiser": ["adam", "adagrad"]}}


def tune(trials: int, **options: Any) -> tuning.Tuning:
    return harmonium.tune(
        config="paper", data=family(), trials=trials, **({"space": SPACE, "overrides": QUICK} | options)
    )


def plant_optimum(monkeypatch: pytest.MonkeyPatch, peak: float = 0.02) -> list[Config]:
    """Replace training by an MRR that peaks at one learning rate, with four validations; returns what was tried."""
    tried = []

    def fit(model: Any, graph: Any, config: Config, on_validation: Any) -> History:
        tried.append(config)
        value = 1 / (1 + abs(config.train.learning_rate - peak) / peak)
        history = History()
        for epoch in range(1, 5):
            history.rows.append({"epoch": epoch, "valid": {"mrr": value * epoch / 4}})
            on_validation(history.rows[-1])
        return history

    monkeypatch.setattr(tuning, "fit", fit)
    return tried


def test_the_best_trial_is_nearest_to_the_optimum(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = plant_optimum(monkeypatch)
    result = tune(25)
    nearest = min((config.train.learning_rate for config in tried), key=lambda rate: abs(rate - 0.02))
    assert result.best.train.learning_rate == nearest
    assert result.best.model.entity_dim == 8
    assert result.value == pytest.approx(1 / (1 + abs(nearest - 0.02) / 0.02))
    assert result.value > 0.8
    assert len(tried) == len(result.trials) == 25
    assert {config.train.optimiser for config in tried} == {"adam", "adagrad"}
    assert len({config.train.learning_rate for config in tried}) == 25
    report = result.to_json()
    assert report["settings"]["train.learning_rate"] == nearest
    assert "pruned" in {trial["state"] for trial in report["trials"]}


def test_a_pruned_trial_stops_at_its_first_bad_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    reports: list[int] = []

    def fit(model: Any, graph: Any, config: Config, on_validation: Any) -> History:
        bad, history = len(reports) >= 5 * 3, History()
        for epoch in range(1, 4):
            reports.append(epoch)
            history.rows.append({"epoch": epoch, "valid": {"mrr": 0.1 if bad else 0.5}})
            on_validation(history.rows[-1])
        return history

    monkeypatch.setattr(tuning, "fit", fit)
    result = tune(6)
    assert [trial["state"] for trial in result.trials] == ["complete"] * 5 + ["pruned"]
    assert reports[15:] == [1]


def test_a_stored_study_continues_with_other_draws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tried, storage = plant_optimum(monkeypatch), tmp_path / "new" / "a.study"
    tune(3, storage=storage)
    progress: list[int] = []
    result = tune(5, storage=storage, progress=progress.append)
    assert len(tried) == len(result.trials) == 5
    assert progress == [3, 1, 1]
    assert len({config.train.learning_rate for config in tried}) == 5
    again = tune(5, storage=storage)
    assert len(tried) == 5
    assert again == result
    with pytest.raises(harmonium.HarmoniumError, match="other data, settings or search space"):
        tune(5, storage=storage, overrides=[*QUICK, "train.seed=1"])


def test_an_interrupted_trial_ends_the_search_and_does_not_count(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tried = plant_optimum(monkeypatch)
    plain = tuning.fit

    def fit(*arguments: Any, on_validation: Any) -> History:
        history = plain(*arguments, on_validation=on_validation)
        if len(tried) == 3:
            history.stopped = "interrupted in epoch 2"
        return history

    monkeypatch.setattr(tuning, "fit", fit)
    with pytest.raises(KeyboardInterrupt):
        tune(5, storage=tmp_path / "a")
    assert len(tried) == 3
    assert len(tune(5, storage=tmp_path / "a").trials) == 5
    assert len(tried) == 6


def test_a_failed_trial_is_reported_and_the_search_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    plant_optimum(monkeypatch)
    plain = tuning.fit

    def fit(model: Any, graph: Any, config: Config, on_validation: Any) -> History:
        if config.train.optimiser == "adagrad":
            raise harmonium.HarmoniumError("the loss became nan")
        return plain(model, graph, config, on_validation)

    monkeypatch.setattr(tuning, "fit", fit)
    result = tune(8)
    failed = [trial for trial in result.trials if trial["settings"]["train.optimiser"] == "adagrad"]
    assert failed
    assert all(trial["error"] == "the loss became nan" for trial in failed)
    with pytest.raises(harmonium.HarmoniumError, match="2 trials.*the loss became nan"):
        tune(2, space={"train": {"optimiser": ["adagrad"]}})


def test_training_with_the_written_settings_reaches_the_reported_value(tmp_path: Path) -> None:
    """For real, no stand-in: the default space, a few trials, then `train` with the file."""
    out = tmp_path / "best.toml"
    result = tune(2, space=None, out=out)
    searched = set(result.trials[0]["settings"])
    assert {"model.composition", "model.harmony", "train.loss", "train.n3"} <= searched
    assert not searched & {setting.partition("=")[0] for setting in QUICK}
    config = Config.read(out)
    assert config == result.best
    history = harmonium.train(family(), config).history
    assert max(row["valid"]["mrr"] for row in history.rows if "valid" in row) == pytest.approx(result.value)
    tune(1, space=None, out=out)  # its own file may be replaced
    out.write_text("data = 'mine'\n", encoding="utf-8")
    with pytest.raises(harmonium.HarmoniumError, match="not written by tune"):
        tune(1, space=None, out=out)
    assert out.read_text(encoding="utf-8") == "data = 'mine'\n"


@pytest.mark.parametrize(
    ("overrides", "omitted"),
    [
        ((), set()),
        (("model.harmony=false",), {"model.harmony", "model.faithfulness", "model.rank"}),
        (("train.loss=full",), {"train.loss", "train.negatives"}),
        (("model.rank=8",), {"model.rank"}),
    ],
)
def test_the_default_space_omits_settings_without_effect(
    overrides: tuple[str, ...], omitted: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant_optimum(monkeypatch)
    everything = {f"{group}.{key}" for group, keys in tuning.SPACE.items() for key in keys}
    for trial in harmonium.tune(family(), trials=6, overrides=overrides).trials:
        settings = trial["settings"]
        idle = {"model.faithfulness", "model.rank"} if settings.get("model.harmony") is False else set()
        idle |= {"train.negatives"} if settings.get("train.loss") == "full" else set()
        assert set(settings) == everything - omitted - idle


def test_a_space_is_read_from_toml(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tried = plant_optimum(monkeypatch)
    text = '[model]\nrank = ["none", 4]\nreciprocal = [true]\n[train]\nnegatives = {low = 3, high = 5}\n'
    (tmp_path / "space.toml").write_text(text, encoding="utf-8")
    harmonium.tune(
        config="paper", data=family(), trials=12, space=tmp_path / "space.toml", overrides=["model.entity_dim=8"]
    )
    assert {config.model.rank for config in tried} == {None, 4}
    assert {config.train.negatives for config in tried} == {3, 4, 5}
    assert all(config.model.reciprocal for config in tried)


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({"train": {"learning_rat": [1.0]}}, "no setting 'train.learning_rat'"),
        ({"train": {"learning_rate": [-1.0]}}, "must be above 0"),
        ({"train": {"epochs": {"low": 1.0, "high": 5.0}}}, "must be a whole number"),
        ({"train": {"epochs": {"low": 5, "high": 1}}}, "low <= high"),
        ({"train": {"n3": {"low": 0.0, "high": 1.0, "log": True}}}, "above 0 with log"),
        ({"train": {"n3": {"low": 0.0, "high": 1.0, "step": 1}}}, "a list of choices, or a range"),
        ({"train": {"n3": 3}}, "a list of choices, or a range"),
        ({"train": {"n3": []}}, "a list of choices, or a range"),
        ("nowhere.toml", "cannot be read as TOML"),
    ],
)
def test_a_bad_space_is_refused_before_training(space: Any, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = plant_optimum(monkeypatch)
    with pytest.raises(harmonium.HarmoniumError, match=message):
        harmonium.tune(family(), "paper", trials=1, space=space)
    assert tried == []


def test_a_search_that_is_impossible_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plant_optimum(monkeypatch)
    with pytest.raises(harmonium.HarmoniumError, match="nothing to search"):
        harmonium.tune(family(), "paper", space={"train": {"n3": [0.0, 1.0]}}, overrides=["train.n3=0"])
    with pytest.raises(harmonium.HarmoniumError, match="no validation facts"):
        harmonium.tune(make_graph(sizes=(40, 0, 10)), "paper")
    (tmp_path / "a.study").write_text("not a study\n", encoding="utf-8")
    with pytest.raises(harmonium.HarmoniumError, match="a.study"):
        harmonium.tune(family(), "paper", storage=tmp_path / "a.study")
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(harmonium.HarmoniumError, match=r"pip install 'harmonium\[tune\]'"):
        harmonium.tune(family(), "paper")
