from __future__ import annotations

import dataclasses
import math
import typing
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import harmonium
from harmonium.config.settings import Config, EvaluateConfig, ModelConfig, TrainConfig, describe
from harmonium.errors import HarmoniumError
from small import make_graph

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


def test_a_file_wins_over_defaults_and_overrides_over_the_file(toml: Path) -> None:
    assert harmonium.Config.read(None) == Config()
    config = Config.read(toml)
    assert config == Config("folder", ModelConfig("complex", faithfulness=2.0), TrainConfig(epochs=7))
    assert type(config.model.faithfulness) is float
    config = Config.read(toml, ["train.epochs=8", "train.epochs=9", "data=other", "evaluate.ties=pessimistic"])
    assert (config.data, config.model.composition, config.train.epochs) == ("other", "complex", 9)
    assert config.evaluate.ties == "pessimistic"


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("model.faithfulness=inf", math.inf),
        ("model.harmony=false", False),
        ("train.learning_rate=1e-3", 0.001),
        (" train.n3 = 0.5 ", 0.5),
        ("data=a=b c", "a=b c"),
        ('data="quoted"', "quoted"),
        ("model.rank=none", None),
    ],
)
def test_values_are_toml_and_bare_words_are_text(tmp_path: Path, override: str, value: object) -> None:
    file = tmp_path / "ranked.toml"
    file.write_text("[model]\nrank = 3\n", encoding="utf-8")
    setting = Config.read(file, [override])
    for name in override.partition("=")[0].strip().split("."):
        setting = getattr(setting, name)
    assert setting == value


WRONG = {
    "unknown": (
        "train.epoch=3",
        "settings: no setting 'train.epoch'; did you mean train.epochs? There are ",
    ),
    "unknown group": (
        "trian.epochs=3",
        "settings: no setting 'trian'; did you mean train? There are data, model, ",
    ),
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
    "too large": ("train.threads=100000", "settings: train.threads must be at most 512, not 100000"),
    "infinite": ("train.learning_rate=inf", "settings: train.learning_rate must be at most 1e+38, not inf"),
    "negative": ("train.n3=-0.1", "settings: train.n3 must be at least 0, not -0.1"),
    "above the largest": ("model.dropout=1", "settings: model.dropout must be at most 0.999, not 1.0"),
    "nan": ("model.faithfulness=nan", "settings: model.faithfulness must be a number, not nan"),
    "choice": ("train.schedule=step", "settings: train.schedule must be one of constant, linear, cosine"),
    "choice of another type": ("train.schedule=1", "settings: train.schedule must be one of constant, linear, cosine"),
    "setting as group": ("data.name=x", "settings: data must be text, not {'name': 'x'}"),
    "group as setting": ("train=hole", "settings: 'train' is a group of settings, such as train.NAME"),
    "no value": ("train.epochs", "--set train.epochs: expected key=value, such as train.epochs=50"),
}


@pytest.mark.parametrize(("text", "message"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_setting_is_named(text: str, message: str) -> None:
    with pytest.raises(HarmoniumError) as caught:
        Config.read(None, [text])
    assert str(caught.value).startswith(message)


def values(kind: type) -> st.SearchStrategy:
    """Any settings that the types and ranges of the fields allow."""
    hints, fields = typing.get_type_hints(kind), {}
    for entry in dataclasses.fields(kind):
        hint, limits = hints[entry.name], entry.metadata
        least, above, most = (limits.get(name) for name in ("least", "above", "most"))
        if dataclasses.is_dataclass(hint):
            fields[entry.name] = values(hint)
            continue
        options = [h for h in typing.get_args(hint) if h is not type(None)]
        literal = typing.get_origin(hint) is typing.Literal
        lower = least if least is not None else above
        number = st.floats(lower, most, exclude_min=above is not None, allow_nan=False)
        plain = {
            int: st.integers(least, most),
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


def test_every_setting_is_described_with_a_default_that_can_be_set() -> None:
    rows = {row.key: (row.default, row.help) for row in describe()}
    tree = dataclasses.asdict(Config())
    assert list(rows) == ["data", *(f"{g}.{name}" for g in ("model", "train", "evaluate") for name in tree[g])]
    assert all(help for _, help in rows.values())
    assert (rows["model.composition"][0], rows["model.rank"][0], rows["train.epochs"][0]) == ('"hole"', "", "100")
    assert Config.read(None, [f"{key}={default}" for key, (default, _) in rows.items() if default]) == Config()


NUMBERS = [  # every setting that is a number
    (f"{group}.{entry.name}", entry.metadata)
    for group, kind in (("model", ModelConfig), ("train", TrainConfig), ("evaluate", EvaluateConfig))
    for entry in dataclasses.fields(kind)
    if {int, float}
    & {typing.get_type_hints(kind)[entry.name], *typing.get_args(typing.get_type_hints(kind)[entry.name])}
]


@pytest.mark.parametrize(("key", "limits"), NUMBERS, ids=[key for key, _ in NUMBERS])
def test_every_number_has_a_range_that_is_checked(key: str, limits: dict[str, float | None]) -> None:
    lower, most = limits["least"] if limits["above"] is None else limits["above"], limits["most"]
    assert lower is not None and most is not None
    assert lower >= 0
    for value in ("-1", "nan", "-inf", "-1e300", str(-(10**30)), str(10**30)):
        if not (value == str(10**30) and most == math.inf):
            with pytest.raises(HarmoniumError, match=key):
                Config.read(None, [f"{key}={value}"])
    for value in ("0", "1000000000", "1e9", "inf", "1e300", "9223372036854775807"):
        try:
            config = Config.read(None, [f"{key}={value}"])
        except HarmoniumError as error:
            assert key in str(error)
        else:
            group, name = key.split(".")
            assert lower <= getattr(getattr(config, group), name) <= most


@pytest.mark.parametrize(("key", "limits"), NUMBERS, ids=[key for key, _ in NUMBERS])
def test_training_at_the_bounds_works_or_is_an_error(
    request: pytest.FixtureRequest, key: str, limits: dict[str, float | None]
) -> None:
    """No traceback and no crash; bounds that would only take long or much memory are left out."""
    request.addfinalizer(partial(torch.set_num_threads, torch.get_num_threads()))
    small = [
        "model.composition=distmult",
        "model.entity_dim=4",
        "train.epochs=1",
        "train.batch_size=64",
        "train.negatives=4",
    ]
    bounds = {limits["least"], None if key in EXPENSIVE else limits["most"]} - {None}
    for value in bounds:
        with suppress(HarmoniumError):
            harmonium.train(make_graph(), "paper", overrides=[*small, f"{key}={value}"])


EXPENSIVE = {"train.epochs", "train.negatives"}
