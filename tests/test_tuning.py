"""A search finds what was planted, goes on where it stopped, and leaves settings that train as it said."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import harmonium
from harmonium import tuning
from harmonium.config import Config
from harmonium.training import History
from small import family, make_graph

QUICK = ["model.entity_dim=8", "model.rank=2", "train.epochs=4", "train.evaluate_every=2", "train.batch_size=64"]
QUICK += ["train.negatives=8", "model.faithfulness=1"]
SPACE = {"train": {"learning_rate": {"low": 1e-4, "high": 0.1, "log": True}, "optimizer": ["adam", "adagrad"]}}


def planted(monkeypatch: pytest.MonkeyPatch, peak: float = 0.02) -> list[Config]:
    """In the place of training: an MRR that peaks at one learning rate, told at four validations; returns what was tried."""
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


def test_the_best_of_the_trials_is_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = planted(monkeypatch)
    found = harmonium.tune(data=family(), trials=25, space=SPACE, sets=QUICK)
    nearest = min((config.train.learning_rate for config in tried), key=lambda rate: abs(rate - 0.02))
    assert found.best.train.learning_rate == nearest
    assert found.best.model.entity_dim == 8
    assert found.value == pytest.approx(1 / (1 + abs(nearest - 0.02) / 0.02))
    assert found.value > 0.8
    assert len(tried) == len(found.trials) == 25
    assert {config.train.optimizer for config in tried} == {"adam", "adagrad"}
    assert len({config.train.learning_rate for config in tried}) == 25
    told = found.to_json()
    assert told["settings"]["train.learning_rate"] == nearest
    assert "pruned" in {trial["state"] for trial in told["trials"]}


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
    found = harmonium.tune(data=family(), trials=6, space=SPACE, sets=QUICK)
    assert [trial["state"] for trial in found.trials] == ["complete"] * 5 + ["pruned"]
    assert reports[15:] == [1]


def test_a_study_goes_on_and_makes_other_draws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tried, where = planted(monkeypatch), tmp_path / "some" / "a.study"
    harmonium.tune(data=family(), trials=3, storage=where, space=SPACE, sets=QUICK)
    moved: list[int] = []
    found = harmonium.tune(data=family(), trials=5, storage=where, space=SPACE, sets=QUICK, watch=moved.append)
    assert len(tried) == len(found.trials) == 5
    assert moved == [3, 1, 1]
    assert len({config.train.learning_rate for config in tried}) == 5
    again = harmonium.tune(data=family(), trials=5, storage=where, space=SPACE, sets=QUICK)
    assert len(tried) == 5
    assert again == found
    with pytest.raises(harmonium.HarmoniumError, match="other data, settings or search space"):
        harmonium.tune(data=family(), trials=5, storage=where, space=SPACE, sets=[*QUICK, "train.seed=1"])


def test_an_interrupted_trial_ends_the_search_and_does_not_count(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tried = planted(monkeypatch)
    good = tuning.fit

    def fit(*arguments: Any, on_validation: Any) -> History:
        history = good(*arguments, on_validation=on_validation)
        if len(tried) == 3:
            history.stopped = "interrupted in epoch 2"
        return history

    monkeypatch.setattr(tuning, "fit", fit)
    with pytest.raises(KeyboardInterrupt):
        harmonium.tune(data=family(), trials=5, storage=tmp_path / "a", space=SPACE, sets=QUICK)
    assert len(tried) == 3
    assert len(harmonium.tune(data=family(), trials=5, storage=tmp_path / "a", space=SPACE, sets=QUICK).trials) == 5
    assert len(tried) == 6


def test_a_trial_that_fails_is_told_and_the_search_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    planted(monkeypatch)
    good = tuning.fit

    def fit(model: Any, graph: Any, config: Config, on_validation: Any) -> History:
        if config.train.optimizer == "adagrad":
            raise harmonium.HarmoniumError("the loss became nan")
        return good(model, graph, config, on_validation)

    monkeypatch.setattr(tuning, "fit", fit)
    found = harmonium.tune(data=family(), trials=8, space=SPACE, sets=QUICK)
    failed = [trial for trial in found.trials if trial["settings"]["train.optimizer"] == "adagrad"]
    assert failed
    assert all(trial["error"] == "the loss became nan" for trial in failed)
    with pytest.raises(harmonium.HarmoniumError, match="no trial of 2 came to its end; the first says: the loss"):
        harmonium.tune(data=family(), trials=2, space={"train": {"optimizer": ["adagrad"]}}, sets=QUICK)


def test_settings_that_were_written_train_to_the_value_that_was_told(tmp_path: Path) -> None:
    """For real, no stand-in: the default space, a few trials, then `train` with the file."""
    out = tmp_path / "best.toml"
    found = harmonium.tune(data=family(), trials=2, sets=QUICK, out=out)
    assert set(found.trials[0]["settings"]) == {"train.learning_rate", "train.n3"}
    config = Config.read(out)
    assert config == found.best
    history = harmonium.train(config, data=family()).history
    assert max(row["valid"]["mrr"] for row in history.rows if "valid" in row) == pytest.approx(found.value)
    harmonium.tune(data=family(), trials=1, sets=QUICK, out=out)  # its own file may be replaced
    out.write_text("data = 'mine'\n", encoding="utf-8")
    with pytest.raises(harmonium.HarmoniumError, match="not written by tune"):
        harmonium.tune(data=family(), trials=1, sets=QUICK, out=out)
    assert out.read_text(encoding="utf-8") == "data = 'mine'\n"


@pytest.mark.parametrize(
    ("sets", "left_out"),
    [
        ((), set()),
        (("model.harmony=false",), {"model.faithfulness", "model.rank"}),
        (("train.loss=full",), {"train.negatives"}),
        (("model.rank=8",), {"model.rank"}),
    ],
)
def test_the_default_space_has_what_matters(
    sets: tuple[str, ...], left_out: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    planted(monkeypatch)
    found = harmonium.tune(data=family(), trials=1, sets=sets)
    everything = {f"{group}.{key}" for group, keys in tuning.SPACE.items() for key in keys}
    assert set(found.trials[0]["settings"]) == everything - left_out


def test_a_space_is_read_from_toml(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tried = planted(monkeypatch)
    text = '[model]\nrank = ["none", 4]\nreciprocal = [true]\n[train]\nnegatives = {low = 3, high = 5}\n'
    (tmp_path / "space.toml").write_text(text, encoding="utf-8")
    harmonium.tune(data=family(), trials=12, space=tmp_path / "space.toml", sets=["model.entity_dim=8"])
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
    tried = planted(monkeypatch)
    with pytest.raises(harmonium.HarmoniumError, match=message):
        harmonium.tune(data=family(), trials=1, space=space)
    assert tried == []


def test_what_cannot_be_searched_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    planted(monkeypatch)
    with pytest.raises(harmonium.HarmoniumError, match="nothing to search"):
        harmonium.tune(data=family(), space={"train": {"n3": [0.0, 1.0]}}, sets=["train.n3=0"])
    with pytest.raises(harmonium.HarmoniumError, match="no validation facts"):
        harmonium.tune(data=make_graph(sizes=(40, 0, 10)))
    (tmp_path / "a.study").write_text("not a study\n", encoding="utf-8")
    with pytest.raises(harmonium.HarmoniumError, match="not a study"):
        harmonium.tune(data=family(), storage=tmp_path / "a.study")
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(harmonium.HarmoniumError, match=r"pip install 'harmonium\[tune\]'"):
        harmonium.tune(data=family())
