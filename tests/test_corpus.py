"""Malformed input through the command line: exit code 2, one line that names the file, and nothing left behind.

corpus/KIND/ holds the inputs, KINDS what is done with them, corpus/expected.tsv what each message must contain.
"""

from __future__ import annotations

import json
import pickle
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import harmonium
from harmonium.answers.open_run import open_run
from harmonium.cli import app as cli
from harmonium.runtime import storage
from harmonium.runtime.untrusted import harmless
from small import family

CORPUS = Path(__file__).parent / "corpus"
EXPECTED = dict(
    line.split("\t") for line in (CORPUS / "expected.tsv").read_text(encoding="utf-8").splitlines() if line.strip()
)
KINDS: dict[str, Callable[[Path, Path, Path], list[str | Path]]] = {  # of an input, a run and an output folder
    "graphs": lambda case, run, out: ["convert", case, out / "facts.tsv"],
    "configs": lambda case, run, out: ["train", case, "--out", out / "run"],
    "queries": lambda case, run, out: ["predict", run, "--queries", case, "--out", out / "answers.tsv"],
    "labelled": lambda case, run, out: ["classify", run, "--labelled", case, "--labelled", case],
    "among": lambda case, run, out: ["predict", run, "--head", "person 1", "--relation", "next", "--among", case],
    "run-folders": lambda case, run, out: ["evaluate", case],
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    harmonium.train(
        config="paper",
        data=family(),
        overrides=["model.entity_dim=4", "train.epochs=1", "train.negatives=4"],
        out=folder,
    )
    open_run(folder).fact_calibration()  # as predict would, which writes into the folder
    return folder


def add_case(run: Path, case: Path, folder: Path) -> Path:
    """The run with the files of a case in it, and with right checksums."""
    shutil.copytree(run, folder)
    shutil.copytree(case, folder, dirs_exist_ok=True)
    if not (case / "run.json").exists():
        manifest = json.loads((folder / "run.json").read_bytes())
        manifest.pop("sha256")
        for file in case.iterdir():
            manifest["files"][file.name] = storage.FileRecord(file.stat().st_size, storage.digest(file.read_bytes()))
        (folder / "run.json").write_bytes(storage.manifest_bytes(manifest))
    return folder


def test_every_input_of_the_corpus_has_an_expectation() -> None:
    cases = {f"{kind}/{case.name}" for kind in KINDS for case in (CORPUS / kind).iterdir()}
    assert cases == EXPECTED.keys()
    assert len(cases) >= 80


@pytest.mark.parametrize("name", EXPECTED)
def test_malformed_input_gives_one_clear_message(
    name: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    case, out = CORPUS / name, tmp_path / "out"
    out.mkdir()
    if name.startswith("run-folders/"):
        case = add_case(run, case, tmp_path / "run")
    before = {file: file.read_bytes() for file in run.iterdir()}
    monkeypatch.chdir(out)
    monkeypatch.setattr(sys, "argv", ["harmonium", *map(str, KINDS[name.split("/")[0]](case, run, out))])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    printed, message = capfd.readouterr()
    message = re.sub(r"\Ahead = .*\n", "", message)  # how the columns were read, before what is wrong with a row
    assert stopped.value.code == 2, message
    assert message.startswith("error: ")
    assert message.count("\n") == 1
    assert EXPECTED[name] in message.replace(str(case), "FILE")
    assert message[:-1].isprintable()
    assert len(message) < 2500
    assert "code from data was run" not in printed + message
    assert not printed
    assert not list(out.iterdir())
    assert {file: file.read_bytes() for file in run.iterdir()} == before


def test_names_cannot_control_a_terminal() -> None:
    assert harmless("a\x1b[2J\u202eb\0\x07\ud800") == r"a\x1b[2J\u202eb\x00\x07\ud800"
    assert harmless("<script>Zürich نامه\u200cها 東京\n") == "<script>Zürich نامه\u200cها 東京\n"


def test_odd_names_are_kept_and_shown_as_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["<script>alert(1)</script>", "\x1b[2J", "\u202egnol", "a\0b", "x" * 5000]
    file = tmp_path / "facts.tsv"
    file.write_text("".join(f"{name}\tr\tb\n" for name in names), encoding="utf-8")
    assert list(harmonium.load(file, valid=0, test=0).entities.ids) == [names[0], "b", *names[1:]]
    monkeypatch.setattr(sys, "argv", ["harmonium", "doctor", str(file)])
    with pytest.raises(SystemExit):
        cli.main()
    printed = capsys.readouterr()
    assert not set("\x1b\0\u202e") & set(printed.out + printed.err)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("value", [{"a": 1}, [1, 2], ("x", 2.5), Path("x"), {1, 2}, "text"], ids=repr)
def test_a_pickle_is_known_by_its_contents(tmp_path: Path, protocol: int, value: object) -> None:
    file = tmp_path / "facts.tsv"
    file.write_bytes(pickle.dumps(value, protocol))
    with pytest.raises(harmonium.HarmoniumError, match="facts.tsv: a pickle" if protocol > 1 else "facts.tsv:"):
        harmonium.load(file)
