from __future__ import annotations

import dataclasses
import math
import typing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import harmonium
from harmonium.config import Config, EvaluateConfig, ModelConfig, TrainConfig, describe
from harmonium.errors import HarmoniumError

TOML = """
data = "folder"
[model]
composition = "complex"
faithfulness = 2
[train]
epochs = 7
"""


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    file = tmp_path / "config.toml"
    file.write_text(TOML, encoding="utf-8")
    return file


def test_defaults_when_nothing_is_said() -> None:
    assert harmonium.Config.read(None) == Config()
    assert Config().data == "atlas"
    assert Config().model.faithfulness == 1.0


def test_a_file_wins_over_defaults_and_set_over_the_file(toml: Path) -> None:
    config = Config.read(toml)
    assert (config.data, config.model.composition, config.train.epochs) == ("folder", "complex", 7)
    assert config.train.negatives == TrainConfig().negatives
    assert config.evaluate == EvaluateConfig()
    config = Config.read(toml, ["train.epochs=9", "data=other", "evaluate.ties=pessimistic"])
    assert (config.data, config.model.composition, config.train.epochs) == ("other", "complex", 9)
    assert config.evaluate.ties == "pessimistic"


def test_the_last_set_wins() -> None:
    assert Config.read(None, ["train.epochs=3", "train.epochs=4"]).train.epochs == 4


def test_a_whole_number_is_a_number(toml: Path) -> None:
    faithfulness = Config.read(toml).model.faithfulness
    assert faithfulness == 2.0
    assert type(faithfulness) is float


def test_values_are_read_as_toml_and_bare_words_are_text() -> None:
    config = Config.read(
        None,
        ["model.faithfulness=inf", "model.harmony=false", "train.learning_rate=1e-3", "data=a=b c", ' train.n3 = 0.5 '],
    )  # fmt: skip
    assert config.model.faithfulness == math.inf
    assert config.model.harmony is False
    assert config.train.learning_rate == 0.001
    assert config.data == "a=b c"
    assert config.train.n3 == 0.5
    assert Config.read(None, ['data="quoted"']).data == "quoted"


def test_none_takes_a_value_back(tmp_path: Path) -> None:
    file = tmp_path / "ranked.toml"
    file.write_text("[model]\nrank = 3\ncap = 0.5\n", encoding="utf-8")
    assert Config.read(file).model.rank == 3
    config = Config.read(file, ["model.rank=none", "model.cap=none"])
    assert config.model.rank is None
    assert config.model.cap is None


WRONG = {
    "unknown": ("train.epoch=3", "settings: no setting 'train.epoch'; there are train.epochs, train.batch_size"),
    "unknown group": ("trian.epochs=3", "settings: no setting 'trian'; there are data, model, train, evaluate"),
    "text for int": ("train.epochs=many", "settings: train.epochs must be a whole number, not 'many'"),
    "float for int": ("train.epochs=3.5", "settings: train.epochs must be a whole number, not 3.5"),
    "bool for int": ("train.epochs=true", "settings: train.epochs must be a whole number, not True"),
    "none for int": ("train.epochs=none", "settings: train.epochs must be a whole number, not None"),
    "text for float": ("train.n3=little", "settings: train.n3 must be a number, not 'little'"),
    "bool for float": ("train.n3=true", "settings: train.n3 must be a number, not True"),
    "int for bool": ("model.harmony=1", "settings: model.harmony must be true or false, not 1"),
    "list for text": ("data=[1]", "settings: data must be text, not [1]"),
    "text for optional": ("model.rank=full", "settings: model.rank must be a whole number, not 'full'"),
    "not above": ("model.faithfulness=0", "settings: model.faithfulness must be above 0, not 0.0"),
    "too small": ("train.epochs=0", "settings: train.epochs must be at least 1, not 0"),
    "negative": ("train.n3=-0.1", "settings: train.n3 must be at least 0, not -0.1"),
    "nan": ("model.faithfulness=nan", "settings: model.faithfulness must be a number, not nan"),
    "choice": ("train.loss=hinge", "settings: train.loss is one of sampled, full, linear-margin, "),
    "choice of another type": ("train.loss=1", "settings: train.loss is one of sampled, full, linear-margin, "),
    "setting as group": ("data.name=x", "settings: data must be text, not {'name': 'x'}"),
    "group as setting": ("model=hole", "settings: 'model' is a group of settings, such as model.NAME"),
    "no value": ("train.epochs", "--set train.epochs: expected key=value, such as train.epochs=50"),
}


@pytest.mark.parametrize(("text", "message"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_setting_is_named(text: str, message: str) -> None:
    with pytest.raises(HarmoniumError) as caught:
        Config.read(None, [text])
    assert str(caught.value).startswith(message)


def test_a_setting_of_the_file_is_not_a_group(toml: Path) -> None:
    with pytest.raises(HarmoniumError, match="--set data.name=x: 'data' is a setting, not a group of settings"):
        Config.read(toml, ["data.name=x"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[model\n", ": not TOML: "),
        ("data = 'ok'\n[model]\nrank = \n", ": not TOML: .*line 3"),
        ("[train]\nepochs = '3'\n", ":2: train.epochs must be a whole number, not '3'"),
        ("colour = 'red'\n", ":1: no setting 'colour'; there are data, model, train, evaluate"),
        ("model = 'hole'\n", ":1: 'model' is a group of settings"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(HarmoniumError, match=f"mine.toml{message}"):
        Config.read(file)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(HarmoniumError, match=r"gone\.toml: cannot be read \(No such file or directory\)"):
        Config.read(tmp_path / "gone.toml")
    (tmp_path / "latin.toml").write_bytes("data = 'Zürich'".encode("latin-1"))
    with pytest.raises(HarmoniumError, match=r"latin\.toml: not TOML: 'utf-8' codec"):
        Config.read(tmp_path / "latin.toml")


def values(kind: type) -> st.SearchStrategy:
    """Any settings that the types and ranges of the fields allow."""
    hints, fields = typing.get_type_hints(kind), {}
    for entry in dataclasses.fields(kind):
        hint, least, above = hints[entry.name], entry.metadata.get("least"), entry.metadata.get("above")
        if dataclasses.is_dataclass(hint):
            fields[entry.name] = values(hint)
            continue
        options = [h for h in typing.get_args(hint) if h is not type(None)]
        literal = typing.get_origin(hint) is typing.Literal
        number = st.floats(least if least is not None else above, exclude_min=above is not None, allow_nan=False)
        plain = {
            int: st.integers(least, 2**63 - 1),
            float: number,
            bool: st.booleans(),
            str: st.text(st.characters(exclude_categories=["Cs"])),
        }
        one = st.sampled_from(options) if literal else plain[options[0] if options else hint]
        fields[entry.name] = one if literal or not options else st.none() | one
    return st.builds(kind, **fields)


@given(config=values(Config))
def test_settings_survive_toml(config: Config, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("round") / "config.toml"
    file.write_bytes(config.to_toml().encode())
    assert Config.read(file) == config


def leaves(kind: type, prefix: str = "") -> list[str]:
    hints = typing.get_type_hints(kind)
    names = []
    for entry in dataclasses.fields(kind):
        inner = hints[entry.name]
        names += leaves(inner, f"{entry.name}.") if dataclasses.is_dataclass(inner) else [prefix + entry.name]
    return names


def test_every_setting_is_described() -> None:
    rows = {key: (default, help) for key, default, help in describe()}
    assert list(rows) == leaves(Config)
    assert all(len(help) > 8 for _, help in rows.values())
    assert rows["model.composition"][0] == '"hole"'
    assert rows["model.rank"][0] == ""
    assert rows["train.epochs"][0] == "100"
    assert rows["model.harmony"][0] == "true"


def test_every_described_default_can_be_set() -> None:
    sets = [f"{key}={default}" for key, default, _ in describe() if default]
    assert Config.read(None, sets) == Config()
    assert len(sets) > 25


def test_what_cannot_be_changed_by_mistake() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        ModelConfig().rank = 3
