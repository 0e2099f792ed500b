"""What a training tells others: read back from TensorBoard's files and CSV, and from stand-ins for W&B and MLflow."""

from __future__ import annotations

import csv
import re
import struct
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import harmonium
from harmonium.errors import Stopped
from harmonium.tracking import TRACKERS, tracking
from small import family

SETS = ["model.entity_dim=8", "train.epochs=4", "train.evaluate_every=2", "train.batch_size=64", "train.negatives=8"]


def train(*track: str, **options: Any) -> harmonium.Run:
    return harmonium.train(data=family(), sets=SETS, track=track, **options)


def expected(run: harmonium.Run) -> dict[tuple[int, str], float]:
    """(epoch, name) -> value of all that must be told."""
    found = {}
    for row in run.history.rows:
        if "valid" in row:
            found |= {(row["epoch"], f"valid/{k}"): v for k, v in row["valid"].items()}
            found |= {(row["epoch"], k): row[k] for k in ("loss", "seconds")}
    return found | {(4, f"test/{k}"): v for k, v in run.metrics["metrics"].items()}


def test_csv_has_every_validation_and_the_final_metrics(tmp_path: Path) -> None:
    run = train(f"csv:{tmp_path / 'new' / 'log.csv'}")
    with (tmp_path / "new" / "log.csv").open(encoding="utf-8") as file:
        told = {(int(row["epoch"]), row["name"]): float(row["value"]) for row in csv.DictReader(file)}
    assert told == expected(run)
    assert {epoch for epoch, _ in told} == {2, 4}


def events(file: Path) -> list[Any]:
    """The records of an event file: length, its checksum, an Event, its checksum."""
    from tensorboardX.proto.event_pb2 import Event

    found, rest = [], file.read_bytes()
    while rest:
        (length,) = struct.unpack_from("<Q", rest)
        found.append(Event.FromString(rest[12 : 12 + length]))
        rest = rest[16 + length :]
    return found


def test_tensorboard_files_hold_the_values(tmp_path: Path) -> None:
    run = train(f"tensorboard:{tmp_path / 'board'}")
    (file,) = (tmp_path / "board").iterdir()
    told = {
        (event.step, value.tag): value.simple_value
        for event in events(file)
        for value in event.summary.value
        if value.HasField("simple_value")
    }
    wanted = expected(run)
    assert {(epoch, re.sub(r"[^\w/.-]", "_", name)) for epoch, name in wanted} == set(told)
    assert told[4, "valid/mrr"] == pytest.approx(wanted[4, "valid/mrr"])
    assert told[2, "loss"] == pytest.approx(wanted[2, "loss"])


def test_wandb_gets_settings_and_values(monkeypatch: pytest.MonkeyPatch) -> None:
    told, ended = {}, []

    def log(values: dict[str, float], step: int) -> None:
        told.update({(step, name): value for name, value in values.items()})

    def init(project: str, config: dict[str, Any]) -> SimpleNamespace:
        assert (project, config["model.entity_dim"], config["data"]) == ("mine", 8, "family")
        return SimpleNamespace(log=log, finish=lambda: ended.append(True))

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    assert expected(train("wandb:mine")) == told
    assert ended == [True]


def test_mlflow_gets_names_that_it_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    told, calls = {}, []

    def log_metrics(values: dict[str, float], step: int) -> None:
        assert all(re.fullmatch(r"[/\w.\- :]*", name) for name in values)  # MLflow's own rule
        told.update({(step, name): value for name, value in values.items()})

    stub = SimpleNamespace(
        set_tracking_uri=lambda uri: calls.append(uri),
        set_experiment=lambda name: calls.append(name),
        start_run=lambda: calls.append("start"),
        log_params=lambda settings: calls.append(settings["train.epochs"]),
        log_metrics=log_metrics,
        end_run=lambda: calls.append("end"),
    )
    monkeypatch.setitem(sys.modules, "mlflow", stub)
    run = train("mlflow:http://localhost:5000")
    assert calls == ["http://localhost:5000", "harmonium", "start", 4, "end"]
    assert told == {(epoch, name.replace("@", "_at_")): value for (epoch, name), value in expected(run).items()}


def test_trackers_are_closed_when_training_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []
    monkeypatch.setattr(TRACKERS["csv"], "close", lambda self: (closed.append(True), self.file.close()))
    with pytest.raises(ZeroDivisionError), tracking([f"csv:{tmp_path / 'a.csv'}"], harmonium.Config()):
        raise ZeroDivisionError
    assert closed == [True]


def test_training_outlives_a_tracker_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(self: Any, epoch: int, values: dict[str, float]) -> None:
        raise ConnectionError("the server went away")

    monkeypatch.setattr(TRACKERS["csv"], "log", fail)
    assert len(train(f"csv:{tmp_path / 'a.csv'}").history.rows) == 4
    assert caplog.messages == ["CSV follows no more: the server went away"]


def test_nobody_listening_costs_nothing() -> None:
    with tracking([], harmonium.Config()) as log:
        assert log is None


def test_a_resumed_training_goes_on_in_the_same_file(tmp_path: Path) -> None:
    where = f"csv:{tmp_path / 'log.csv'}"

    def stop(now: Any) -> None:
        if now.epoch == 3:
            raise KeyboardInterrupt

    with pytest.raises(Stopped):
        train(where, out=tmp_path / "run", watch=stop)
    run = harmonium.resume(tmp_path / "run", track=[where])
    with (tmp_path / "log.csv").open(encoding="utf-8") as file:
        told = {(int(row["epoch"]), row["name"]): float(row["value"]) for row in csv.DictReader(file)}
    assert told == expected(run)


def test_what_cannot_be_tracked_is_said_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(harmonium.HarmoniumError, match="there are tensorboard, wandb, mlflow, csv"):
        train("excel")
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(harmonium.HarmoniumError, match="pip install 'wandb'"):
        train("wandb")
    (tmp_path / "file").write_text("")
    with pytest.raises(harmonium.HarmoniumError, match="cannot be used"):
        train(f"csv:{tmp_path / 'file' / 'log.csv'}")
