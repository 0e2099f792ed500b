"""`--set` takes the names that keyword arguments have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from command_line import Result, settings, write_graph
from harmonium.run.run import Run
from small import family


def test_short_names_and_any_case(call: Callable[..., Result], tmp_path: Path) -> None:
    write_graph(family(), tmp_path / "family")
    given = settings("num_epochs=2", "model=ComplEx", "dim=4", "harmony=false", "optimizer=Adam", "train.lr=0.1")
    done = call("train", "--preset", "paper", "--data", tmp_path / "family", "--out", tmp_path / "run", *given)
    assert done.code == 0, done.err
    config = Run.load(tmp_path / "run").config
    assert (config.model.composition, config.model.entity_dim, config.model.harmony) == ("complex", 4, False)
    assert (config.train.epochs, config.train.optimiser, config.train.learning_rate) == (2, "adam", 0.1)


def test_a_wrong_name_is_an_error_with_suggestions(call: Callable[..., Result]) -> None:
    for command in ("train", "plan"):
        wrong = call(command, "--data", "atlas", *settings("epoch=2"))
        assert wrong.code == 2
        assert "no setting 'epoch'; did you mean train.epochs? `harmonium train --settings` lists all" in wrong.err
