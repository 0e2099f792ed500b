"""A run as a repository of the Hub: its card is what huggingface_hub reads, and the folder is the same run."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import harmonium
from harmonium.answers.open_run import open_run
from harmonium.answers.send.hub_folder import card
from harmonium.data.vocabulary import Vocabulary
from harmonium.errors import HarmoniumError
from harmonium.run.run import Run
from small import family

NASTY = 'x: "y"\n---\n# | <script>alert(1)</script> [a](b) \x07 \U0001f600'


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("runs") / "run"
    settings = ["model.entity_dim=4", "train.epochs=1", "train.negatives=4"]
    trained = harmonium.train(replace(family(), name="family"), "paper", overrides=settings)
    saved = replace(trained, config=replace(trained.config, data="/home/somebody/secret.csv")).save(folder)
    open_run(saved).fact_calibration()
    return Run.load(saved)


def test_the_folder_is_the_same_run_verified_byte_by_byte(run: Run, tmp_path: Path) -> None:
    files = harmonium.export(run, tmp_path / "my-model", to="hub")
    assert {file.name for file in files} >= {
        "README.md",
        "run.json",
        "model.safetensors",
        "fact_calibration.json",
    }
    assert all(file.is_file() for file in files)
    copy = tmp_path / "downloaded"
    shutil.copytree(tmp_path / "my-model", copy)
    again = Run.load(copy)
    assert again.fingerprint == run.fingerprint and again.metrics == run.metrics
    assert all(torch.equal(value, again.model.state_dict()[key]) for key, value in run.model.state_dict().items())
    assert harmonium.complete(again, top=3) == harmonium.complete(run, top=3)
    for name in ("model.safetensors", "data.graph", "config.toml", "metrics.json"):
        content = bytearray((copy / name).read_bytes())
        content[len(content) // 2] ^= 1
        (copy / name).write_bytes(content)
        with pytest.raises(HarmoniumError, match=name):
            Run.load(copy)
        content[len(content) // 2] ^= 1
        (copy / name).write_bytes(content)


def test_paths_of_this_machine_are_left_out(run: Run, tmp_path: Path) -> None:
    harmonium.export(run, tmp_path / "m", to="hub")
    for file in (tmp_path / "m").iterdir():
        assert b"somebody" not in file.read_bytes()
        assert str(run.path).encode() not in file.read_bytes()


def test_names_in_a_card_are_neither_yaml_nor_markup(run: Run) -> None:
    import yaml

    graph = replace(run.graph, name=NASTY, relations=Vocabulary([NASTY, "b|c", "*d*"], kind="relation"))
    content = card(replace(run, graph=graph), NASTY)
    _, head, body = content.split("---\n", 2)
    metadata = yaml.safe_load(head)
    assert metadata["license"] == "unknown"
    assert "<script>" not in body and "\x07" not in content and "[a](b)" not in body
