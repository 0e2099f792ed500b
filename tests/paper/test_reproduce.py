"""Recipes have the paper's numbers, and reproductions are recorded, resumed and not repeated."""

from __future__ import annotations

import json
import math
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import harmonium
from harmonium.cli.app import main
from harmonium.config.settings import Config
from harmonium.data.graph import SPLITS
from harmonium.errors import HarmoniumError, Interrupted
from harmonium.model.harmony import Harmony
from harmonium.paper import records, tables
from harmonium.paper import reproduce as script
from harmonium.paper.density import density
from harmonium.paper.reproduce import ANALYSES, reproduce
from harmonium.paper.rows import CONTROLS, RECIPES, published
from harmonium.run.run import Run
from harmonium.training.state import Progress
from small import family

PAPER = {  # mr, mrr, hits@1, hits@3, hits@10
    "FB15K/distmult": (28, 0.710, 0.605, 0.792, 0.876),
    "FB15K/hdistmult-inf": (23, 0.806, 0.751, 0.845, 0.898),
    "FB15K/hdistmult-50": (23, 0.742, 0.661, 0.799, 0.881),
    "FB15K/hole": (39, 0.409, 0.289, 0.464, 0.647),
    "FB15K/hhole-inf": (32, 0.682, 0.575, 0.763, 0.850),
    "FB15K/hhole-1": (21, 0.796, 0.727, 0.848, 0.901),
    "FB15K/htpr-inf": (150, 0.278, 0.192, 0.305, 0.447),
    "FB15K/htpr-1": (134, 0.295, 0.204, 0.326, 0.471),
    "WN18/distmult": (220, 0.825, 0.714, 0.938, 0.950),
    "WN18/hdistmult-inf": (164, 0.841, 0.740, 0.943, 0.955),
    "WN18/hdistmult-3": (184, 0.831, 0.732, 0.931, 0.945),
    "WN18/hole": (205, 0.916, 0.893, 0.936, 0.946),
    "WN18/hhole-inf": (293, 0.919, 0.903, 0.934, 0.942),
    "WN18/hhole-2": (183, 0.939, 0.931, 0.945, 0.951),
}
QUICK = ["train.epochs=2", "model.entity_dim=8", "model.relation_dim=none", "model.rank=none", "train.batch_size=64"]


def test_every_row_of_the_paper_has_its_two_recipes() -> None:
    files = {f"{path.parent.name}/{path.stem}" for path in RECIPES.glob("*/*.toml")} - {
        "controls/hole",
        "controls/distmult",
    }
    assert files == {name + end for name in PAPER for end in ("", ".calibrated")}


@pytest.mark.parametrize("name", PAPER)
def test_recipes(name: str) -> None:
    """The faithful one has the paper's constants and numbers; the calibrated one is the same model, initialised anew."""
    dataset, row = name.split("/")
    kind, _, faithfulness = row.partition("-")
    numbers = published(dataset, row)
    assert numbers.pop("table") == ("htpr" if "htpr" in row else "table1")
    assert tuple(numbers[m] for m in records.METRICS) == PAPER[name]
    faithful = Config.read(RECIPES / f"{name}.toml")
    calibrated = Config.read(RECIPES / f"{name}.calibrated.toml")
    for config in (faithful, calibrated):
        model, train, evaluate = config.model, config.train, config.evaluate
        assert config.data == dataset
        assert model.composition == {"htpr": "tensorproduct"}.get(
            kind, kind.removeprefix("h") if faithfulness else kind
        )
        assert model.harmony == bool(faithfulness)
        assert not faithfulness or model.faithfulness == float(faithfulness)
        assert model.entity_dim == (5 if "tpr" in row else 512 if dataset == "FB15K" else 256)
        assert model.relation_dim == (20 if "tpr" in row else None)
        unit = config is faithful or "tpr" not in row  # calibrated HTPR does not normalise vectors
        assert (model.constraint, model.normalise, model.rank) == ("frobenius", unit, None)
        assert (train.negatives, train.batch_size, train.optimiser) == (500, 512 if unit else 256, "adam")
        assert (evaluate.candidates, evaluate.ties, evaluate.filtered) == ("typed-all", "pessimistic", True)
    assert (faithful.model.initialisation, faithful.model.cap) == ("paper", None)
    assert calibrated.model.initialisation == "calibrated"
    assert (faithful.train.learning_rate, faithful.train.schedule, faithful.train.metric) == (
        0.001,
        "constant",
        "hits@10",
    )
    rate = 0.003 if calibrated.model.normalise else 0.03
    assert (calibrated.train.learning_rate, calibrated.train.schedule, calibrated.train.metric) == (
        rate,
        "linear",
        "mrr",
    )
    assert faithful.train.loss == ("linear-margin" if row == "hole" else "sampled")
    assert calibrated.train.loss == "sampled"


def test_every_control_is_a_change_of_the_base_and_has_its_partner() -> None:
    names = [name for controls in CONTROLS.values() for name in controls]
    assert len(set(names)) == len(names)
    for recipe in ("hole", "distmult"):
        file = RECIPES / "controls" / f"{recipe}.toml"
        assert Config.read(file).model.composition == recipe
        for controls in CONTROLS.values():
            for name, overrides in controls.items():
                assert Config.read(file, overrides) != Config.read(file) or name == "lambda-1"
    for power in ("0.5", "1", "2", "5", "10", "50"):  # a partner with the same cap and tokens that stay
        finite, still = (
            Config.read(RECIPES / "controls" / "hole.toml", CONTROLS["quadratic capacity"][name]).model
            for name in (f"lambda-{power}", f"inf-cap-{float(power) - 0.25:g}")
        )
        caps = [Harmony(2, model.faithfulness, cap=model.cap).cap for model in (finite, still)]
        assert caps[0] == caps[1] == float(power) - 0.25
        assert math.isinf(still.faithfulness)


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for HARMONIUM_DATA with the graph `family`."""
    folder, graph = tmp_path_factory.mktemp("shelf"), family()
    (folder / "family").mkdir()
    for split in SPLITS:
        lines = ["\t".join(names) + "\n" for names in graph.names_of(getattr(graph, split))]
        (folder / "family" / f"{split}.txt").write_text("".join(lines), encoding="utf-8")
    return folder


@pytest.fixture
def make(shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list]:
    """reproduce() on `family`, small and quick, in a temporary folder."""
    monkeypatch.setenv("HARMONIUM_DATA", str(shelf))

    def run(experiment: str, overrides: list[str] | None = None, **options: object) -> list:
        options = {"dataset": "family", "scale": "small", "runs": tmp_path, "log": lambda _: None} | options
        return reproduce(experiment, overrides=QUICK if overrides is None else overrides, **options)

    return run


def forbid_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "fit", lambda *_: pytest.fail("trained again"))


@pytest.mark.slow
def test_table1_records_what_its_runs_reach(make, tmp_path: Path) -> None:
    made = make("table1", rows=["distmult", "hhole-1"])
    assert [(r["row"], r["variant"]) for r in made] == [
        (row, variant) for row in ("distmult", "hhole-1") for variant in ("faithful", "calibrated")
    ]
    assert sorted(made, key=records.key) == sorted(
        json.loads((tmp_path / "results" / "table1.json").read_text(encoding="utf-8")), key=records.key
    )
    for record in made:
        run = Run.load(tmp_path / "family" / f"{record['row']}.{record['variant']}.seed0")
        typed = harmonium.evaluate(run, candidates="typed-all", ties="pessimistic").metrics
        full = harmonium.evaluate(run).metrics
        for metric in records.METRICS:
            assert record[metric] == pytest.approx(typed[metric])
            assert record["full"][metric] == pytest.approx(full[metric])
        assert (record["protocol"]["candidates"], record["full"]["protocol"]["candidates"]) == ("typed-all", "full")
        assert record["settings"]["model"]["initialisation"] == (
            "paper" if record["variant"] == "faithful" else "calibrated"
        )
        assert (record["epochs"], record["best_epoch"], record["published"]) == (2, run.history.best_epoch, None)
        assert list(record["valid"]) == ["hits@10" if record["variant"] == "faithful" else "mrr"]
        assert {"command", "commit", "device", "seconds", "model", "lambda", "dim", "seed"} <= set(record)
    assert [r["lambda"] for r in made[::2]] == [None, 1.0]
    assert [r["model"] for r in made[::2]] == ["DistMult", "HHolE"]


def test_what_is_done_is_not_run_again(make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = make("table1", rows=["hhole-1"], variant="calibrated", seeds=[0, 1])
    assert first[0]["settings"]["train"]["seed"] == 0
    assert first[1]["mrr"] != first[0]["mrr"]
    messages: list[str] = []
    changed = make("table1", [*QUICK, "train.epochs=3"], rows=["hhole-1"], variant="calibrated", log=messages.append)
    assert changed[0]["epochs"] == 3
    assert any("train.epochs=3" in line for line in messages)
    forbid_training(monkeypatch)
    again = make("table1", [*QUICK, "train.epochs=3"], rows=["hhole-1"], variant="calibrated")
    assert again == changed
    assert make("table1", rows=["hhole-1"], variant="calibrated", seeds=[1]) == [first[1]]
    kept = records.read(tmp_path / "results" / "table1.json")
    assert [(r["seed"], r["epochs"]) for r in kept] == [(0, 3), (1, 2)]


def test_the_command_of_a_record_makes_it_again(
    make, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (record,) = make("table1", rows=["hdistmult-50"], variant="calibrated", seeds=(3,))
    words = shlex.split(record["command"])
    monkeypatch.setattr(sys, "argv", [*words, "--runs", str(tmp_path / "again"), "--json"])
    with pytest.raises(SystemExit):
        main()
    (again,) = json.loads(capsys.readouterr().out)
    drop = ("seconds", "training_seconds")
    assert {k: v for k, v in again.items() if k not in drop} == {k: v for k, v in record.items() if k not in drop}


def watched(steps: list[int], stop: int | None = None) -> Callable[[Progress], None]:
    """A callback that notes each step, and interrupts at one."""

    def progress(now: Progress) -> None:
        steps.append(now.step)
        if now.step == stop:
            raise KeyboardInterrupt

    return progress


@pytest.mark.parametrize(("experiment", "rows"), [("table1", "hhole-1"), ("controls", "hole/plain")])
def test_an_interrupted_run_leaves_no_record_and_continues(make, tmp_path: Path, experiment: str, rows: str) -> None:
    options, seen, again = {"rows": [rows], "variant": "calibrated"}, [], []
    (whole,) = make(experiment, **options, runs=tmp_path / "whole", progress=watched(seen))
    last, often = len(seen), [*QUICK, "train.checkpoint_every=1"]
    with pytest.raises(Interrupted, match=f"{rows}.*same command"):
        make(experiment, often, **options, progress=watched([], stop=last))
    assert not (tmp_path / "results").exists()
    (record,) = make(experiment, often, **options, progress=watched(again))
    assert again == [last]  # that step was not saved
    assert all(record[metric] == whole[metric] for metric in records.METRICS)
    assert not list((tmp_path / "family").rglob("checkpoints"))


def test_every_analysis_uses_one_trained_run(make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make("table1", rows=["hhole-1", "hdistmult-50"], variant="calibrated")
    forbid_training(monkeypatch)
    for name in ANALYSES:
        made = make(name)
        assert [r["row"] for r in made] == (["hdistmult-50", "hhole-1"] if name == "gain" else ["hhole-1"])
        assert records.read(tmp_path / "results" / f"{name}.json") == json.loads(json.dumps(records.plain(made)))
        assert make(name) == records.read(tmp_path / "results" / f"{name}.json")
        head, rows = tables.TABLES[name](made)
        assert rows
        assert all(len(row) == len(head) for row in rows)
    assert density(tmp_path / "family" / "hhole-1.calibrated.seed0").positives.queries == 20


@pytest.mark.parametrize(
    ("experiment", "options", "message"),
    [
        ("table2", {}, "'table2'.*table1, htpr, controls"),
        ("table1", {"rows": ["hhole-7"]}, "hhole-7.*distmult, hdistmult-inf"),
        ("table1", {"variant": "new"}, "--variant .*faithful, authors, calibrated, both"),
        ("table1", {"scale": "tiny"}, "--scale .*full or small"),
        ("table1", {"dataset": "FB15K"}, "FB15K.*HARMONIUM_DATA"),
    ],
)
def test_errors_list_the_choices(make, experiment: str, options: dict, message: str) -> None:
    with pytest.raises(HarmoniumError, match=message):
        make(experiment, **options)
