"""The search for settings: alternatives are adopted by held-out facts, within the budget, and what was done is kept."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import harmonium
from harmonium.config.settings import Config, presets
from harmonium.errors import HarmoniumError, Interrupted
from harmonium.model.build import build_model
from harmonium.run.run import Run
from harmonium.run.selection import Selection
from harmonium.training.fit import fit
from harmonium.training.search import held_out, search, sizes
from harmonium.training.search.held_out import held_out_parts
from harmonium.training.search.search import TimeLimit, select
from harmonium.training.search.space import Search, with_settings
from small import family, make_graph

CHOICES = {
    "train.n3": [0.001, 0.01, 0.1, 1.0],
    "model.composition": ["complex", "distmult"],
    "model.reciprocal": [True, False],
}
BASE = with_settings(Config(), {"model.composition": "complex", "model.reciprocal": True, "train.n3": 0.01})


def make_search(**values: Any) -> Search:
    sizes = {"minutes": {"cpu": 10.0}, "dims": {"cpu": [8, 16, 32]}, "trial_dim": {"cpu": 16}}
    return Search(**sizes | values)


def simulate(
    monkeypatch: pytest.MonkeyPatch, quality: Any, epoch_seconds: float = 1.0, slow: float = 1.0
) -> list[Config]:
    """Replace each training by an MRR that `quality(config)` gives, on a clock that its work advances, times `slow`.

    After half of its epochs a training has half of its MRR.
    """
    trained: list[Config] = []
    clock = 0.0

    def reciprocal_ranks(part: Any, config: Config, device: Any, progress: Any, at_half: Any) -> Tensor:
        nonlocal clock
        clock += slow * config.train.epochs * seconds(config) / 2
        trained.append(config)
        at_half(quality(config) / 2)
        clock += slow * config.train.epochs * seconds(config) / 2
        noise = torch.rand(2 * len(part.facts), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        return noise * 0.1 + quality(config)

    def seconds(config: Config) -> float:
        scale = 0.1 if config.train.loss == "sampled" else 1.0
        return epoch_seconds * scale * config.model.entity_dim / 16

    monkeypatch.setattr(held_out.HeldOut, "reciprocal_ranks", reciprocal_ranks)
    monkeypatch.setattr(sizes, "epoch_seconds", lambda config, *_: seconds(config))
    monkeypatch.setattr(search.time, "perf_counter", lambda: clock)
    return trained


def peak(config: Config) -> float:
    """Best at n3 = 0.1 with DistMult; reciprocity does not matter."""
    distance = abs(math.log10(config.train.n3) + 1)
    return 0.5 - 0.1 * distance + (0.1 if config.model.composition == "distmult" else 0)


def test_the_search_climbs_to_the_best_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    trained = simulate(monkeypatch, peak)
    config, selection = select(BASE, make_search(choices=CHOICES), family())
    assert (config.train.n3, config.model.composition, config.model.reciprocal) == (0.1, "distmult", True)
    assert [trial.settings.get("train.n3", 0.01) for trial in selection.trials[:3]] == [0.01, 0.1, 1.0]
    assert max(trial.mrr for trial in selection.trials) == pytest.approx(selection.trials[3].mrr)
    assert any("train.n3 = 0.1: better than 0.01" in reason for reason in selection.reasons)
    assert selection.settings["model.composition"] == "distmult"
    assert {c.model.entity_dim for c in trained} == {16} and config.model.entity_dim == 32


def test_fixed_settings_are_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    trained = simulate(monkeypatch, peak)
    fixed = ["train.n3", "model.entity_dim", "train.epochs", "train.batch_size"]
    config, _ = select(BASE, make_search(choices=CHOICES), family(), fixed)
    for key in ("n3", "epochs", "batch_size"):
        assert getattr(config.train, key) == getattr(BASE.train, key)
    assert config.model.entity_dim == BASE.model.entity_dim and {c.model.entity_dim for c in trained} == {16}
    assert config.model.composition == "distmult"


@pytest.mark.parametrize("minutes", [1.0, 3.0, 10.0])
def test_search_and_final_training_fit_the_budget(minutes: float, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = simulate(monkeypatch, peak, epoch_seconds=0.05)
    config, selection = select(BASE, make_search(choices=CHOICES), family(), minutes=minutes)
    assert len(selection.trials) == len(trained) / len(held_out_parts(family(), 0)) > 3
    final = config.train.epochs * 0.05 * config.model.entity_dim / 16
    assert selection.seconds <= (1 - sizes.FINAL_SHARE) * 60 * minutes
    assert selection.seconds + final <= 60 * minutes


@pytest.mark.parametrize("slow", [0.2, 1.9])
def test_a_busy_machine_chooses_the_same(slow: float, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = []
    for speed in (1.0, slow):
        simulate(monkeypatch, peak, slow=speed)
        config, selection = select(BASE, make_search(choices=CHOICES), family())
        chosen.append((config, selection.reasons, [(trial.settings, trial.mrr) for trial in selection.trials]))
    assert chosen[0] == chosen[1]


def test_a_machine_that_is_much_too_slow_ends_the_search_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    simulate(monkeypatch, peak, slow=20.0)
    config, selection = select(BASE, make_search(choices=CHOICES), family())
    assert len(selection.trials) < 4
    assert any("the machine is slow or busy" in reason for reason in selection.reasons)
    assert TimeLimit.after(selection, config).first_training == search.MIN_PATIENCE


def test_both_trainings_share_twice_the_budget_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    simulate(monkeypatch, peak)
    config = with_settings(BASE, {"train.last_training": True, "train.constraints": True})
    chosen, selection = select(config, make_search(choices=CHOICES), family(), minutes=10)
    limit = TimeLimit.after(selection, chosen)
    rest = 2 * 600 - selection.seconds
    assert limit.rest() == pytest.approx(rest)
    assert limit.first_training == pytest.approx(rest * (1 - sizes.RESERVED - sizes.CONSTRAINTS_SHARE) / 2)
    assert chosen.train.constraint_seconds == pytest.approx(sizes.CONSTRAINTS_SHARE * (600 - selection.seconds))
    assert TimeLimit().first_training is TimeLimit().rest() is None


def test_a_last_training_that_time_ends_is_not_kept_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"last_training": True, "epochs": 8, "dim": 4}
    whole = harmonium.train(family(), "plain", **settings)
    assert whole.final is not None and whole.history.stopped == "all epochs done"
    monkeypatch.setattr(TimeLimit, "rest", lambda _: 0.0)
    late = harmonium.train(family(), "plain", **settings)
    assert late.final is None and "no time was left for the last training" in late.history.stopped
    assert late.metrics == whole.metrics


def test_a_hopeless_trial_is_ended_after_half_of_its_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    simulate(monkeypatch, lambda config: 0.5 if config.train.n3 == 0.01 else 0.4)
    graph = make_graph(60, 3, (2000, 300, 10))
    _, selection = select(BASE, make_search(choices={"train.n3": CHOICES["train.n3"]}), graph)
    assert [trial.mrr is None for trial in selection.trials] == [False, True, True]
    assert "after half of its epochs" in str(selection.trials[1].error)
    assert selection.trials[1].seconds < 0.6 * selection.trials[0].seconds


def test_without_time_for_trials_the_recipe_is_used_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    trained = simulate(monkeypatch, peak, epoch_seconds=300.0)
    config, selection = select(BASE, make_search(choices=CHOICES), family())
    assert not trained and not selection.trials and config.train.n3 == BASE.train.n3
    assert config.model.entity_dim == 8 and 1 <= config.train.epochs < BASE.train.epochs
    assert any("no time for trials" in reason for reason in selection.reasons)


def test_a_graph_with_many_entities_is_trained_with_sampled_negatives(monkeypatch: pytest.MonkeyPatch) -> None:
    large = {"train.loss": "sampled", "train.negatives": 10, "train.negative_group_size": 20, "train.batch_size": 20}
    base = with_settings(BASE, {"train.loss": "full", "train.epochs": 20})
    wanted = make_search(choices=CHOICES, large=large)
    simulate(monkeypatch, peak, epoch_seconds=60.0)
    config, selection = select(base, wanted, family())
    assert (config.train.loss, config.train.negatives) == ("sampled", 10)
    assert "train.loss = sampled" in selection.reasons[0]
    trained = simulate(monkeypatch, peak, epoch_seconds=2.0)  # enough for the final training, not for trials
    config, selection = select(base, wanted, family())
    assert config.train.loss == "full" and {c.train.loss for c in trained} == {"sampled"}


def test_few_validation_facts_are_joined_by_parts_of_train() -> None:
    graph = family()  # 10 validation facts
    parts = held_out_parts(graph, 0)
    assert len(parts) > 1 and torch.equal(parts[0].facts.to_rows(), graph.valid.to_rows())
    for part in parts[1:]:
        held, kept = (set(map(tuple, t.to_rows().tolist())) for t in (part.facts, part.train.train))
        assert held and not held & kept and held | kept == set(map(tuple, graph.train.to_rows().tolist()))
        assert not len(part.train.valid)
        assert set(part.train.train.head.tolist()) | set(part.train.train.tail.tolist()) == set(range(graph.n_entities))
    many = make_graph(60, 3, (2000, 1500, 10))
    (only,) = held_out_parts(many, 0)
    assert len(only.facts) == held_out.MAX_HELD_OUT


def test_every_preset_trains_a_model_that_is_kept_with_its_selection(tmp_path: Path) -> None:
    """For real, with a budget of seconds."""
    for preset in presets():
        sizes = ["model.entity_dim=16", "train.epochs=8"]
        searches = Search.read(preset) is not None
        run = harmonium.train(family(), preset, tmp_path / preset, overrides=sizes, minutes=0.05 if searches else None)
        assert run.config.model.entity_dim == 16 and run.metrics
        loaded = Run.load(tmp_path / preset)
        assert loaded.selection == run.selection and loaded.metrics == run.metrics
        assert (run.selection is not None) == searches
        if run.selection:
            assert Selection.from_json(json.loads(json.dumps(run.selection.to_json()))) == run.selection


def test_resuming_keeps_the_selection(tmp_path: Path) -> None:
    def stop(now: Any) -> None:
        if now.stage == "training" and now.step == 20:
            raise KeyboardInterrupt

    overrides = ["train.checkpoint_every=5", "train.n3=0.01"]
    with pytest.raises(Interrupted, match="harmonium resume"):
        harmonium.train(family(), "fast", tmp_path / "run", overrides=overrides, progress=stop, minutes=0.05)
    resumed = harmonium.resume(tmp_path / "run")
    assert resumed.selection and resumed.selection.minutes == 0.05
    assert Run.load(tmp_path / "run").selection == resumed.selection


def test_an_interrupt_during_the_search_is_resumed_and_chooses_the_same(tmp_path: Path) -> None:
    def stop(now: Any) -> None:
        if now.stage.startswith("trial 2"):
            raise KeyboardInterrupt

    whole = harmonium.train(family(), "best", minutes=0.05, dim=8, epochs=10)
    with pytest.raises(Interrupted, match="harmonium resume .* continues from the beginning"):
        harmonium.train(family(), "best", tmp_path / "run", minutes=0.05, dim=8, epochs=10, progress=stop)
    resumed = harmonium.resume(tmp_path / "run")
    assert resumed.config.train == whole.config.train and resumed.metrics == whole.metrics


def test_a_training_like_another_run_is_the_same_to_the_bit(tmp_path: Path) -> None:
    run = harmonium.train(family(), out=tmp_path / "run", minutes=0.02, dim=8)
    again = harmonium.train(family(), like=tmp_path / "run")
    assert again.fingerprint == run.fingerprint and again.selection is None
    with pytest.raises(HarmoniumError, match="not both"):
        harmonium.train(family(), "fast", like=tmp_path / "run")
    with pytest.raises(HarmoniumError, match="is not a finished run"):
        harmonium.train(family(), like=tmp_path)


def test_a_training_that_takes_twice_the_budget_ends_and_says_so() -> None:
    config = Config.read("plain", ["train.epochs=50", "model.entity_dim=4"])
    model = build_model(config.model, family().n_entities, family().n_relations)
    history = fit(model, family(), config, most_seconds=0.0)
    assert (len(history.rows), "valid" in history.rows[0]) == (1, True)
    assert history.stopped == "twice its share of the time budget had passed after epoch 1 of 50"


def test_a_budget_needs_something_to_choose() -> None:
    with pytest.raises(harmonium.HarmoniumError, match="needs settings with a table"):
        harmonium.train(family(), "paper", minutes=1)


@pytest.mark.parametrize("minutes", [-1, math.nan, math.inf, "5"])
def test_a_budget_that_is_no_number_of_minutes_is_an_error(minutes: Any) -> None:
    with pytest.raises(HarmoniumError, match="time budget is a number of minutes"):
        select(BASE, make_search(choices=CHOICES), family(), minutes=minutes)
