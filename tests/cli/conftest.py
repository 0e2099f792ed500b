from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from command_line import FAST, Result, shell, write_graph
from harmonium.cli import app as cli
from harmonium.model.composition import Composition
from small import family


@pytest.fixture
def call(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], quick_updates: None
) -> Callable[..., Result]:
    """A command in this process, which is faster than `shell`; a plugin's compositions are forgotten afterwards."""
    monkeypatch.setattr(Composition, "registry", dict(Composition.registry))

    def run(*arguments: str | Path) -> Result:
        monkeypatch.setattr(sys, "argv", ["harmonium", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        captured = capsys.readouterr()
        return Result(stopped.value.code or 0, captured.out, captured.err)

    return run


@pytest.fixture(scope="session")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a graph, `family`, a run trained on it, `runs/family`, and what training printed."""
    folder = tmp_path_factory.mktemp("workspace")
    write_graph(family(), folder / "family")
    trained = shell("train", "--preset", "paper", "--data", "family", *FAST, cwd=folder)
    assert trained.code == 0, trained.err
    (folder / "out.txt").write_text(trained.out, encoding="utf-8")
    (folder / "err.txt").write_text(trained.err, encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def run(workspace: Path) -> Path:
    return workspace / "runs" / "family"
