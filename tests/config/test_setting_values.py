"""Settings by any of their names, from `--set`, keyword arguments and dicts alike."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

import harmonium
from harmonium.config.setting_values import full_key, full_keys, names_of
from harmonium.config.settings import Config, TrainConfig
from harmonium.errors import HarmoniumError
from harmonium.model.composition import Composition

NAMES = names_of(Config)
ALL = [(key, name) for key, names in NAMES.items() for name in names]


@pytest.mark.parametrize(("key", "name"), ALL)
def test_every_short_name_is_its_setting_everywhere(key: str, name: str) -> None:
    value = dict(_flat(Config()))[key]
    assert full_key(Config, name, value) == key
    assert full_keys(Config, {name: value}) == {key: value}
    text = "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    assert list(full_keys(Config, [f"{name}={text}"])) == [key]


def _flat(config: object, prefix: str = "") -> list[tuple[str, object]]:
    rows: list[tuple[str, object]] = []
    for field in dataclasses.fields(config):  # type: ignore[arg-type]
        value = getattr(config, field.name)
        rows += (
            _flat(value, f"{prefix}{field.name}.")
            if dataclasses.is_dataclass(value)
            else [(prefix + field.name, value)]
        )
    return rows


def test_groups_dataclasses_and_full_names_are_the_same() -> None:
    expected = Config.read(None, ["train.epochs=5", "model.composition=complex"])
    for given in (
        {"epochs": 5, "model": "complex"},
        {"train": {"epochs": 5}, "model": {"composition": "complex"}},
        {"train.epochs": 5, "model.composition": "ComplEx"},
        {"train": TrainConfig(epochs=5), "composition": "COMPLEX"},
        {"train": {"num_epochs": 5}, "model": "complex"},
        ["train.num_epochs=5", "composition=Complex"],
    ):
        assert Config.read(None, given) == expected
    assert Config.read(None, ["epochs=4"], num_epochs=5, model="ComplEx") == expected


@pytest.mark.parametrize("text", ["0.05", ".05", "5e-2", "+.05", ".5e-1", "5.e-2"])
def test_numbers_as_people_write_them(text: str) -> None:
    assert Config.read(None, [f"train.n3={text}"]).train.n3 == 0.05


def test_values_of_other_types_that_mean_the_same() -> None:
    class Mine(Composition):
        name = "Mine"

        def compose(self, head, relation, tail):  # type: ignore[no-untyped-def]
            return head * relation * tail

    config = Config.read(
        None,
        {
            "lr": np.float64(0.5),
            "epochs": np.int64(3),
            "normalise": np.bool_(False),
            "model": Mine,
            "optimizer": "Adam",
        },
        initial_vectors=Path("a") / "b.npz",
        loss="Full",
    )
    train = config.train
    assert (train.learning_rate, train.epochs, config.model.normalise) == (0.5, 3, False)
    assert (type(train.learning_rate), type(train.epochs)) == (float, int)
    assert (config.model.composition, train.optimiser, train.loss) == ("mine", "adam", "full")
    assert train.initial_vectors == str(Path("a") / "b.npz")
    del Composition.registry["mine"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"epoch": 3}, "no setting 'epoch'; did you mean train.epochs"),
        ({"learningrate": 3}, "no setting 'learningrate'; did you mean train.learning_rate"),
        ({"test_size": 0.2}, "no setting 'test_size'.*--settings"),
        ({"train": {"epoch": 3}}, "no setting 'train.epoch'; did you mean train.epochs"),
        ({"evaluate": "test"}, "'evaluate' is a group of settings"),
        ({"epochs": 3, "num_epochs": 4}, "train.epochs is given twice, once as 'num_epochs'"),
        ({"epochs": "50"}, "train.epochs must be a whole number, not '50'"),
        ({"epochs": np.array([1, 2])}, "train.epochs must be a whole number"),
        ("epochs", "--set epochs: expected key=value"),
    ],
)
def test_wrong_names_and_values_are_named(given: dict[str, object] | str, message: str) -> None:
    with pytest.raises(HarmoniumError, match=message):
        Config.read(None, given)


@pytest.mark.parametrize("function", ["train", "plan"])
def test_wrong_settings_are_refused_before_the_graph_is_read(function: str) -> None:
    call = getattr(harmonium, function)
    with pytest.raises(HarmoniumError, match="no composition 'transe'; there are complex"):
        call("no such graph", model="TransE")
    with pytest.raises(HarmoniumError, match="did you mean train.epochs"):
        call("no such graph", epoch=5)
    with pytest.raises(HarmoniumError, match="a config .fast. or a preset .paper., not both"):
        call("no such graph", "fast", preset="paper")
    with pytest.raises(HarmoniumError, match="a preset, a file, a Config or a dict, not a list"):
        call("no such graph", [True, False])
