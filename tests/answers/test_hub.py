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
from harmonium.run import manifest
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
        "fact_calibration.typed.json",
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


def test_huggingface_hub_reads_the_card(run: Run, tmp_path: Path) -> None:
    import huggingface_hub as hub

    harmonium.export(run, tmp_path / "my-model", to="hub")
    loaded = hub.ModelCard.load(tmp_path / "my-model" / "README.md")
    assert loaded.data.library_name == "harmonium" and loaded.data.license == "unknown"
    assert loaded.data.pipeline_tag == "graph-ml" and "link-prediction" in loaded.data.tags
    assert f"| this model | {run.metrics['mrr']:.3f} |" in loaded.text and "filtered by train+valid+test" in loaded.text
    assert "realistic ties" in loaded.text and "contains all facts" in loaded.text
    hub.metadata_load(tmp_path / "my-model" / "README.md")


def test_names_in_a_card_are_neither_yaml_nor_markup(run: Run) -> None:
    import yaml

    graph = replace(run.graph, name=NASTY, relations=Vocabulary([NASTY, "b|c", "*d*"], kind="relation"))
    content = card(replace(run, graph=graph), NASTY)
    _, head, body = content.split("---\n", 2)
    metadata = yaml.safe_load(head)
    assert metadata["license"] == "unknown"
    assert "<script>" not in body and "\x07" not in content and "[a](b)" not in body


def test_an_edited_card_is_not_replaced(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "m"
    harmonium.export(run, out, to="hub")
    harmonium.export(run, out, to="hub", overwrite=True)
    (out / "README.md").write_text("edited")
    with pytest.raises(HarmoniumError, match=r"README.md: not written by harmonium, or changed"):
        harmonium.export(run, out, to="hub", overwrite=True)
    with pytest.raises(HarmoniumError, match="--overwrite"):
        harmonium.export(run, out, to="hub")
    assert (out / "README.md").read_text() == "edited"


def test_what_a_run_of_others_links_to_is_not_published(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As a downloaded repository could: a link in place of a file, also one that its manifest adds."""
    secret = tmp_path / "secret"
    secret.write_text("password")
    assert run.path is not None
    hostile = Path(shutil.copytree(run.path, tmp_path / "hostile"))
    described = manifest.read(hostile)
    manifest.write(hostile, replace(described, files=described.files | {"notes.txt": described.files["metrics.json"]}))
    for name in ("fact_calibration.typed.json", "notes.txt"):
        (hostile / name).unlink(missing_ok=True)
        (hostile / name).symlink_to(secret)
    files = harmonium.export(Run.load(hostile), tmp_path / "published", to="hub")
    assert "fact_calibration.typed.json: its contents changed since the run was written; it is left out" in caplog.text
    assert not {"fact_calibration.typed.json", "notes.txt"} & {file.name for file in files}
    assert all(b"password" not in file.read_bytes() for file in (tmp_path / "published").iterdir())
    assert Run.load(tmp_path / "published").fingerprint == run.fingerprint
