"""Choose a model for a graph within a time budget: a recipe's alternatives are tried in short trainings.

Each trial is a whole training, learning-rate decay included, of a smaller model. It is judged by the mean reciprocal rank
of held-out facts: validation facts, or several random parts of the training facts where there are few of those. The
alternatives of one setting are compared after those of another, each against the best settings so far.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from numbers import Real
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harmonium.config.settings import Config, EvaluateConfig, read_toml
from harmonium.data.graph import Graph
from harmonium.data.split import hold_out
from harmonium.data.triples import Triples
from harmonium.errors import HarmoniumError
from harmonium.evaluation.evaluation import draw_facts, evaluate_scorer
from harmonium.model.build import build_model
from harmonium.run.selection import Selection, Trial
from harmonium.runtime.device import pick_device, use_threads
from harmonium.training.fit import fit
from harmonium.training.relative_weights import relative_weights
from harmonium.training.search.cost import count_parameters, count_tables, free_memory, time_steps
from harmonium.training.state import Progress, TrainingState

FINAL_SHARE = 0.5  # of the budget is kept for the final training
PLANNED_TRIALS = 8  # that the rest of the budget should allow
MIN_TRIAL_EPOCHS = 4
MIN_FULL_EPOCHS = 12  # with fewer epochs a softmax over sampled entities learns more in the same time
MIN_STEPS = 1500  # optimiser steps of a training on a small graph
MIN_HELD_OUT = 250  # facts that judge a trial; where validation has fewer, training facts are held out too
MAX_HELD_OUT = 1000
MAX_PARTS = 4  # trainings of a trial on a graph with few facts
ENOUGH = 0.6  # of the epochs of a final training
EVIDENCE = 0.5  # standard errors by which an alternative must be better


@dataclass(frozen=True)
class Search:
    """The table [search] of a recipe: what may be chosen, and for how long."""

    minutes: Mapping[str, float]  # by kind of device: cpu, cuda
    dims: Mapping[str, list[int]]
    trial_dim: Mapping[str, int] = field(default_factory=dict)
    choices: Mapping[str, list[Any]] = field(default_factory=dict)  # alternatives by setting
    large: Mapping[str, Any] = field(default_factory=dict)  # settings where all-entity training takes too long

    @classmethod
    def read(cls, source: str | Path) -> Search | None:
        """The search of a recipe; None where its settings are all that there is."""
        path, _, tree = read_toml(source)
        if "search" not in tree:
            return None
        try:
            return cls(**tree["search"])
        except TypeError as error:
            raise HarmoniumError(
                f"{path}: [search] has minutes, dims, trial_dim, choices and large ({error})"
            ) from None


def select(
    config: Config,
    search: Search,
    graph: Graph,
    fixed: Sequence[str] = (),
    minutes: float | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> tuple[Config, Selection]:
    """The settings of the final training, and how they were chosen; settings named in `fixed` stay as they are."""
    if minutes is not None and not (isinstance(minutes, Real) and 0 <= minutes < math.inf):
        raise HarmoniumError(f"the time budget is a number of minutes from 0, not {minutes!r}")
    return _Selector(config, search, graph, frozenset(fixed), minutes, progress).run()


class _Selector:
    """One search: the best settings so far, the trials and the time left."""

    def __init__(
        self,
        config: Config,
        search: Search,
        graph: Graph,
        fixed: frozenset[str],
        minutes: float | None,
        progress: Callable[[Progress], None] | None,
    ) -> None:
        with_settings(config, {**search.large, **{key: values[0] for key, values in search.choices.items()}})  # checks
        self.search, self.graph, self.fixed, self.progress = search, graph, fixed, progress
        self.device = pick_device(config.train.device)
        self.minutes = search.minutes[self.device.type] if minutes is None else minutes
        self.started = time.perf_counter()
        self.trials: list[Trial] = []
        self.reasons: list[str] = []
        self.start = self.config = self._fit_to_graph(config)
        self.held_out: list[HeldOut] = []
        self.best: Tensor | None = None  # (queries,): the reciprocal ranks of the best trial
        self.timed: dict[Config, float] = {}  # seconds of an epoch, by settings

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.started

    @property
    def budget(self) -> float:
        return 60 * self.minutes

    def run(self) -> tuple[Config, Selection]:
        if self.config.train.threads:
            use_threads(self.config.train.threads)
        self._use_large_settings()
        size = self._trial_size() if self.search.choices else {}
        if size:
            self._try_choices(size)
        self._choose_size()
        defaults = dict(_flatten(Config()))
        chosen = {key: value for key, value in _flatten(self.config) if value != defaults[key]}
        held_out = sum(len(part.facts) for part in self.held_out)
        return self.config, Selection(chosen, self.reasons, self.trials, size, held_out, self.minutes, self.seconds)

    # Sizes -----------------------------------------------------------------------------------------------------------

    def _fit_to_graph(self, config: Config) -> Config:
        """Batches of a hundredth of the facts, and enough steps on a small graph."""
        count = len(self.graph.train)
        batch_size = min(max(count // 100, 16), 1000)
        if "train.batch_size" not in self.fixed:
            config = with_settings(config, {"train.batch_size": batch_size})
        if "train.epochs" not in self.fixed:
            epochs = max(config.train.epochs, math.ceil(MIN_STEPS * config.train.batch_size / max(count, 1)))
            config = with_settings(config, {"train.epochs": epochs})
        return config

    @property
    def dims(self) -> list[int]:
        """The dimensions to choose from, ascending."""
        if "model.entity_dim" in self.fixed:
            return [self.config.model.entity_dim]
        return sorted(self.search.dims[self.device.type])

    @property
    def trial_dim(self) -> int:
        middle = self.dims[len(self.dims) // 2]
        return min(self.search.trial_dim.get(self.device.type, middle), self.dims[-1])

    @property
    def large(self) -> dict[str, Any]:
        """The settings for many entities; empty where a softmax over all entities was not asked for or they are few."""
        few = self.graph.n_entities <= 2 * self.search.large.get("train.negatives", 0)
        if self.config.train.loss != "full" or "train.loss" in self.fixed or few:
            return {}
        return {key: value for key, value in self.search.large.items() if key not in self.fixed}

    def _use_large_settings(self) -> None:
        """Switch to sampled negatives where all-entity training is too slow."""
        large = self.large
        if not large:
            return
        seconds = self._epoch_seconds({"model.entity_dim": self.trial_dim})
        if FINAL_SHARE * self.budget < MIN_FULL_EPOCHS * seconds:
            self.config = self.start = with_settings(self.config, large)
            self.reasons.append(
                f"train.loss = {self.config.train.loss}: an epoch with all {self.graph.n_entities:,} entities as "
                f"candidates takes {seconds:.0f} s"
            )

    def _trial_size(self) -> dict[str, Any]:
        """The settings in which trials differ from the final training; empty where there is no time for trials.

        Trials with all entities as candidates that would have too few epochs sample candidates instead.
        """
        self.held_out = held_out_parts(self.graph, self.config.train.seed)
        if not self.held_out:
            self.reasons.append("no trials: too few facts to hold any out; the recipe's settings are used")
            return {}
        sizes: list[dict[str, Any]] = [{"model.entity_dim": self.trial_dim}]
        if large := self.large:
            group = self.config.train.batch_size
            sizes.append(sizes[0] | large | {"train.batch_size": group, "train.negative_group_size": group})
        smaller = [sizes[-1] | {"model.entity_dim": dim} for dim in reversed(self.dims) if dim < self.trial_dim]
        best: dict[str, Any] = {}
        for size in [*sizes, *smaller]:
            if best and size in smaller:  # what is best for a small model is a worse guide than a short training
                break
            trainings = PLANNED_TRIALS * len(self.held_out)
            available = (1 - FINAL_SHARE) * self.budget - self.seconds
            epochs = int(available / (trainings * self._epoch_seconds(size)))
            if epochs > best.get("train.epochs", MIN_TRIAL_EPOCHS - 1):
                best = size | {"train.epochs": min(epochs, self.config.train.epochs)}
            if epochs >= ENOUGH * self.config.train.epochs:
                break
        if not best:
            self.reasons.append(
                "no time for trials: the recipe's settings are used; a larger budget (minutes) allows them"
            )
        return best

    def _choose_size(self) -> None:
        """The largest dimension with which all epochs fit the rest of the budget, or else as many epochs as fit."""
        available = max(0.9 * (self.budget - self.seconds), 0.1 * self.budget)
        wanted = self.config.train.epochs
        fitting = [dim for dim in self.dims if self._fits_memory(dim)] or self.dims[:1]
        for dim in reversed(fitting):
            epochs = int(available / self._epoch_seconds({"model.entity_dim": dim}))
            if epochs >= wanted or (dim <= self.trial_dim and epochs >= ENOUGH * wanted):
                break
        if len(self.dims) > 1:
            self.config = with_settings(self.config, {"model.entity_dim": dim})
            limit = "the largest offered" if dim == self.dims[-1] else "the largest that fits the budget"
            self.reasons.append(f"model.entity_dim = {dim}: {limit}")
        if self._is_free("train.epochs") and epochs < wanted:
            self.config = with_settings(self.config, {"train.epochs": max(1, epochs)})
            self.reasons.append(f"train.epochs = {max(1, epochs)}: as many as fit the budget")
        if self._is_free("train.evaluate_every"):
            few = len(self.graph.valid) < MIN_HELD_OUT  # too few to choose an epoch by
            every = self.config.train.epochs if few else max(1, self.config.train.epochs // 5)
            self.config = with_settings(self.config, {"train.evaluate_every": every})

    def _is_free(self, key: str) -> bool:
        return key not in self.fixed

    def _fits_memory(self, dim: int) -> bool:
        config = with_settings(self.config, {"model.entity_dim": dim})
        tables = count_tables(config, self.graph, count_parameters(config, self.graph), self.device)
        return 2 * sum(tables.values()) < free_memory(self.device)  # gradients and work space take as much again

    def _epoch_seconds(self, change: dict[str, Any]) -> float:
        """The time of an epoch with some settings changed, from a few steps."""
        config = for_vectors(with_settings(self.config, change))
        if config not in self.timed:
            self.timed[config] = self._time_epoch(config)
        return self.timed[config]

    def _time_epoch(self, config: Config) -> float:
        model = build_model(config.model, self.graph.n_entities, self.graph.n_relations, config.train.seed)
        train = relative_weights(self.graph.train, config.train.weight_power).to(self.device)
        state = TrainingState(model.move_to(self.device), train, config.train)
        steps = math.ceil(len(train) / config.train.batch_size)
        return steps * time_steps(state, seconds=0.3)

    # Trials ----------------------------------------------------------------------------------------------------------

    def _try_choices(self, size: dict[str, Any]) -> None:
        """Compare the alternatives of each setting with the best settings so far."""
        self.best = self._run_trial({}, size)
        for key, values in self.search.choices.items():
            if not self._is_free(key):
                continue
            before = dict(_flatten(self.config))[key]
            for value in self._alternatives(key, values):
                if not self._has_time():
                    self.reasons.append(f"no time was left to try {key}")
                    return
                self._compare(key, value, size)
            after = dict(_flatten(self.config))[key]
            verdict = "no alternative was better" if after == before else f"better than {_show(before)}"
            self.reasons.append(f"{key} = {_show(after)}: {verdict}")

    def _alternatives(self, key: str, values: list[Any]) -> Iterator[Any]:
        """Every other choice; numbers upwards from the present one while that helps, and otherwise downwards."""
        start = dict(_flatten(self.config))[key]
        if isinstance(start, bool) or not isinstance(start, int | float):
            yield from (value for value in values if value != start)
            return
        for direction in (
            sorted(v for v in values if v > start),
            sorted((v for v in values if v < start), reverse=True),
        ):
            for value in direction:
                yield value
                if dict(_flatten(self.config))[key] != value:
                    break
            if dict(_flatten(self.config))[key] != start:
                return

    def _compare(self, key: str, value: Any, size: dict[str, Any]) -> None:
        """Adopt one setting if a trial with it is better."""
        reciprocal_ranks = self._run_trial({key: value}, size)
        if reciprocal_ranks is not None and is_better(reciprocal_ranks, self.best):
            self.best, self.config = reciprocal_ranks, with_settings(self.config, {key: value})

    def _has_time(self) -> bool:
        """Whether another trial leaves the final training its share."""
        longest = max(trial.seconds for trial in self.trials)
        return self.seconds + longest <= (1 - FINAL_SHARE) * self.budget

    def _reporter(self, stage: str) -> Callable[[Progress], None] | None:
        """The progress callback of one stage."""
        progress = self.progress
        return None if progress is None else lambda now: progress(replace(now, stage=stage))

    def _run_trial(self, change: dict[str, Any], size: dict[str, Any]) -> Tensor | None:
        """Train a small model on each part; (queries,): the reciprocal ranks of the held-out facts, None if it failed."""
        config = with_settings(self.config, change | size)
        started, start = time.perf_counter(), dict(_flatten(self.start))
        settings = {k: v for k, v in _flatten(with_settings(self.config, change)) if v != start[k]}
        stage = ", ".join(f"{key} {_show(value)}" for key, value in (change or {"recipe": "as it is"}).items())
        report = self._reporter(f"trial {len(self.trials) + 1}: {stage}")
        try:
            ranks = torch.cat([part.reciprocal_ranks(config, self.device, report) for part in self.held_out])
        except HarmoniumError as error:
            self.trials.append(Trial(settings, None, time.perf_counter() - started, str(error)))
            return None
        self.trials.append(Trial(settings, float(ranks.mean()), time.perf_counter() - started))
        return ranks


@dataclass(frozen=True)
class HeldOut:
    """A graph to train on, and the facts that judge the training."""

    train: Graph  # without validation facts
    known: Graph  # whose facts are filtered from the ranking
    facts: Triples

    def reciprocal_ranks(
        self, config: Config, device: torch.device, progress: Callable[[Progress], None] | None
    ) -> Tensor:
        """(2 n,): of the heads and the tails of the facts, under a model trained with these settings.

        Where facts have weights they are multiplied by them, so that their mean is the weighted one.
        """
        config = for_vectors(config)
        model = build_model(config.model, self.train.n_entities, self.train.n_relations, config.train.seed)
        history = fit(model, self.train, config, progress)
        if history.stopped.startswith("interrupted"):
            raise KeyboardInterrupt
        evaluation = evaluate_scorer(model, self.known, EvaluateConfig(split="valid"), self.facts, device=device)
        reciprocal, weight = 1 / evaluation.ranks.values("realistic").cpu(), evaluation.ranks.weight
        return reciprocal if weight is None or not weight.any() else reciprocal * weight / weight.mean()


def held_out_parts(graph: Graph, seed: int) -> list[HeldOut]:
    """The validation facts, or a sample of them; where they are few, random parts of the training facts as well.

    On a very small graph there may be none.
    """
    empty = graph.valid[:0]
    parts = []
    if len(graph.valid):
        parts.append(HeldOut(replace(graph, valid=empty), graph, draw_facts(graph.valid, MAX_HELD_OUT)))
    share = min(0.2, MIN_HELD_OUT / max(1, len(graph.train)))
    while sum(len(part.facts) for part in parts) < MIN_HELD_OUT and len(parts) < MAX_PARTS:
        train, facts = hold_out(graph, share, seed + 1000 + len(parts))
        if not len(facts):
            break
        reduced = replace(graph, train=train, valid=facts)
        parts.append(
            HeldOut(replace(reduced, valid=empty), replace(reduced, valid=Triples.cat([facts, graph.valid])), facts)
        )
    return parts


def is_better(candidate: Tensor, best: Tensor | None) -> bool:
    """Whether the reciprocal ranks of the same queries are higher by more than some of their standard error."""
    if best is None:
        return True
    difference = candidate - best
    error = difference.std() / math.sqrt(len(difference)) if len(difference) > 1 else torch.tensor(torch.inf)
    return bool(difference.mean() > EVIDENCE * error)


def for_vectors(config: Config) -> Config:
    """The settings with which vectors are trained where W and b are fitted afterwards: those of the plain model."""
    if config.train.harmony == "joint":
        return config
    return replace(config, model=replace(config.model, harmony=False))


def with_settings(config: Config, values: Mapping[str, Any]) -> Config:
    """The settings with some of them changed, by keys such as train.n3."""
    for key, value in values.items():
        group, _, name = key.partition(".")
        if not name or not hasattr(getattr(config, group, None), name):
            raise HarmoniumError(f"[search] names '{key}', which is no setting")
        config = replace(config, **{group: replace(getattr(config, group), **{name: value})})
    return config


def _flatten(config: Config) -> Iterator[tuple[str, Any]]:
    """(key, value) of the settings of the model and its training."""
    for group in ("model", "train"):
        yield from ((f"{group}.{key}", value) for key, value in asdict(getattr(config, group)).items())


def _show(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)
