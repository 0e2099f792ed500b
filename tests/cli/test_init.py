"""The command init: a commented settings file that train accepts."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import harmonium
from harmonium.config.settings import Config, describe
from harmonium.training.search.settings_file import MARK, settings_file


@pytest.fixture(scope="module")
def written(workspace: Path) -> str:
    return settings_file(workspace / "family", minutes=0.05)


def test_every_setting_is_there_with_its_meaning_and_values(written: str) -> None:
    assert written.startswith(MARK)
    assert "40 entities, 3 relations; facts: 100 in train, 10 in valid, 10 in test" in written
    plain = " ".join(re.sub(r"^# ", "", written, flags=re.MULTILINE).split())
    for row in describe():
        assert re.search(rf"^(# )?{row.key.rpartition('.')[2]} = ", written, re.MULTILINE), row.key
        assert row.help in plain
        assert row.values == "text" or f"Values: {row.values}." in plain


def test_every_line_that_sets_something_is_explained(written: str) -> None:
    lines = written.splitlines()
    for number, line in enumerate(lines):
        if line and not line.startswith(("#", "[")):
            assert lines[number - 1].startswith("# "), line


def test_what_is_chosen_follows_from_the_graph(written: str, workspace: Path) -> None:
    chosen = tomllib.loads(written)
    assert chosen["data"] == str(workspace / "family")
    assert chosen["train"]["batch_size"] == 16
    assert chosen["train"]["epochs"] >= 1
    assert "about a hundredth of the 100 training facts" in written
    assert "model.entity_dim" not in chosen and chosen["model"]["entity_dim"] in (32, 64, 128, 256, 512)
    assert "search" not in chosen and "# [search]" in written


def test_all_of_it_is_toml_once_uncommented(written: str) -> None:
    """Each commented setting holds a value that can be set, where it has one."""
    for line in written.splitlines():
        if re.match(r"# \w+ = (?!\.\.\.)", line) and "{" not in line and "[" not in line:
            tomllib.loads(line.removeprefix("# "))
    search = written[written.index("# [search]") :]
    assert "choices" in tomllib.loads(re.sub(r"^# ?", "", search, flags=re.MULTILINE))["search"]


def test_train_accepts_it(call, workspace: Path, tmp_path: Path) -> None:
    file, out = tmp_path / "mine.toml", tmp_path / "run"
    quick = ["--preset", "paper", "--set", "train.epochs=2", "--set", "model.entity_dim=4"]
    result = call("init", workspace / "family", "--out", file, *quick)
    assert (result.code, f"harmonium train --config {file}" in result.words) == (0, True), result.err
    assert call("train", "--config", file, "--out", out).code == 0
    trained = harmonium.Run.load(out).config
    assert trained == Config.read(file)
    assert (trained.train.epochs, trained.model.entity_dim, trained.data) == (2, 4, str(workspace / "family"))


def test_without_a_graph_it_holds_a_preset(call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = call("init", "--preset", "plain")
    assert (result.code, "--data GRAPH" in result.out) == (0, True)
    assert Config.read("harmonium.toml") == Config.read("plain")


def test_other_files_are_not_replaced(call, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    assert call("init", "--out", file).code == 0
    assert "--overwrite" in call("init", "--out", file).err
    assert call("init", "--out", file, "--overwrite").code == 0
    file.write_text("a = 1\n", encoding="utf-8")
    assert "will not be replaced" in call("init", "--out", file, "--overwrite").err
    assert file.read_text(encoding="utf-8") == "a = 1\n"
    assert "ends in .toml" in call("init", "--out", tmp_path / "mine.txt").err
    assert "no folder" in call("init", "--out", tmp_path / "gone" / "mine.toml").err


def test_the_first_argument_of_train_is_a_graph_or_settings(call, workspace: Path, tmp_path: Path) -> None:
    quick = ["--preset", "paper", "--set", "train.epochs=1", "--set", "model.entity_dim=4", "--out"]
    assert call("train", workspace / "family", *quick, tmp_path / "run").code == 0
    assert "two graphs" in call("train", "a.csv", "--data", "b.csv").err
    assert "two settings files" in call("train", "a.toml", "--config", "b.toml").err
    assert "not both" in call("train", "a.toml", "--preset", "fast").err
    assert "--preset is one of" in call("train", "atlas", "--preset", "fastest").err
