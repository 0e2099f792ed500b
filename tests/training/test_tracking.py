"""Trackers: values read back from TensorBoard's files and CSV, and from stand-ins for W&B and MLflow."""

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
from harmonium.errors import Interrupted
from small import family

SETS = ["model.entity_dim=8", "train.epochs=4", "train.evaluate_every=2", "train.batch_size=64", "train.negatives=8"]


def train(*track: str, **options: Any) -> harmonium.Run:
    return harmonium.train(family(), "paper", overrides=SETS, track=track, **options)


def expected(run: harmonium.Run) -> dict[tuple[int, str], float]:
    """(epoch, name) -> value of all that must be logged."""
    values: dict[tuple[int, str], float] = {}
    for row in run.history.rows:
        if "valid" in row:
            values |= {(row["epoch"], f"valid/{k}"): v for k, v in row["valid"].items()}
            values |= {(row["epoch"], k): row[k] for k in ("loss", "seconds")}
    return values | {(4, f"test/{k}"): v for k, v in run.metrics.items()}


def test_csv_has_every_validation_and_the_final_metrics_after_an_interruption_too(tmp_path: Path) -> None:
    def stop(now: Any) -> None:
        if now.epoch == 3:
            raise KeyboardInterrupt

    whole, parts = (tmp_path / "new" / name for name in ("whole.csv", "parts.csv"))
    uninterrupted = train(f"csv:{whole}")
    with pytest.raises(Interrupted):
        train(f"csv:{parts}", out=tmp_path / "run", progress=stop)
    resumed = harmonium.resume(tmp_path / "run", track=[f"csv:{parts}"])
    for path, run in ((whole, uninterrupted), (parts, resumed)):
        with path.open(encoding="utf-8") as file:
            logged = {(int(row["epoch"]), row["name"]): float(row["value"]) for row in csv.DictReader(file)}
        assert logged == expected(run)
        assert {epoch for epoch, _ in logged} == {2, 4}


def events(file: Path) -> list[Any]:
    """The records of an event file: length, its checksum, an Event, its checksum."""
    from tensorboardX.proto.event_pb2 import Event

    records, rest = [], file.read_bytes()
    while rest:
        (length,) = struct.unpack_from("<Q", rest)
        records.append(Event.FromString(rest[12 : 12 + length]))
        rest = rest[16 + length :]
    return records


def test_tensorboard_files_hold_the_values(tmp_path: Path) -> None:
    run = train(f"tensorboard:{tmp_path / 'board'}")
    (file,) = (tmp_path / "board").iterdir()
    logged = {
        (event.step, value.tag): value.simple_value
        for event in events(file)
        for value in event.summary.value
        if value.HasField("simple_value")
    }
    wanted = expected(run)
    assert {(epoch, re.sub(r"[^\w/.-]", "_", name)) for epoch, name in wanted} == set(logged)
    assert logged[4, "valid/mrr"] == pytest.approx(wanted[4, "valid/mrr"])
    assert logged[2, "loss"] == pytest.approx(wanted[2, "loss"])


@pytest.mark.parametrize("in_training", [True, False])
def test_a_tracker_is_closed_when_training_fails_and_training_outlives_a_tracker(
    in_training: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ended: list[bool] = []

    def log(values: dict[str, float], step: int) -> None:
        raise ConnectionError("the server went away")

    def fail(now: Any) -> None:
        raise ZeroDivisionError

    run = SimpleNamespace(log=log, finish=lambda: ended.append(True))
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=lambda **_: run))
    if in_training:
        with pytest.raises(ZeroDivisionError):
            train("wandb", progress=fail)
    else:
        assert len(train("wandb").history.rows) == 4
        assert "the server went away" in caplog.text
    assert ended == [True]


def test_an_unusable_tracker_is_refused_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(harmonium.HarmoniumError, match="excel.*tensorboard, wandb, mlflow, csv"):
        train("excel")
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(harmonium.HarmoniumError, match="pip install 'wandb'"):
        train("wandb")
    (tmp_path / "file").write_text("")
    with pytest.raises(harmonium.HarmoniumError, match="--track csv:"):
        train(f"csv:{tmp_path / 'file' / 'log.csv'}")
