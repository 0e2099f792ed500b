"""Choose a model for a graph within a time budget: a recipe's alternatives are tried in trainings of a smaller model.

A trial has as many epochs as the final training, learning-rate decay included, or nearly so. It is judged by the mean
reciprocal rank of held-out facts (held_out.py). The alternatives of one setting are compared after those of another, each
against the best settings so far; a trial that is far behind after half of its epochs is ended.

The budget is spent in counted work (work.py), so that a busy machine chooses the same as a quiet one and only takes
longer. The clock is a guard: at twice the budget, search and training end early and say so.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from harmonium.config.settings import Config
from harmonium.data.graph import Graph
from harmonium.errors import HarmoniumError
from harmonium.run.selection import Selection, Trial
from harmonium.runtime.device import pick_device, use_threads
from harmonium.runtime.distributed import World, agreed, run_on_main
from harmonium.training.search.held_out import MIN_HELD_OUT, HeldOut, held_out_parts, is_better
from harmonium.training.search.sizes import FINAL_SHARE, Sizer, training_share
from harmonium.training.search.space import Search, changed_settings, settings_by_key, show_value, with_settings
from harmonium.training.state import Progress

HOPELESS = 0.9  # of the MRR that the best trial had after half of its epochs: a trial below it is ended
PATIENCE = 2  # times the budget, by the clock, after which search and training end early
MIN_PATIENCE = 20.0  # seconds beyond a small budget
SHARED_STEP = 0.02  # nominal seconds of a step from which several processes train a trial together


@dataclass(frozen=True)
class TimeLimit:
    """How long trainings may take by the clock, so that all ends within twice the budget on a slow or busy machine.

    Both end normally on a machine that is half as fast as the nominal one.
    """

    first_training: float | None = None  # seconds; None: no limit
    end: float | None = None  # by time.perf_counter()

    @classmethod
    def after(cls, selection: Selection, settings: Config) -> TimeLimit:
        """What the search has left over."""
        rest = max(_patience(60 * selection.minutes) - selection.seconds, MIN_PATIENCE)
        share = training_share(settings)
        return cls(max(share * rest, MIN_PATIENCE), time.perf_counter() + rest)

    def rest(self) -> float | None:
        """Seconds that are left."""
        return None if self.end is None else max(0.0, self.end - time.perf_counter())


def _patience(seconds: float) -> float:
    """When work that a quiet machine does in these seconds is late."""
    return max(PATIENCE * seconds, seconds + MIN_PATIENCE)


def select(
    config: Config,
    search: Search,
    graph: Graph,
    fixed: Sequence[str] = (),
    minutes: float | None = None,
    progress: Callable[[Progress], None] | None = None,
    world: World | None = None,
) -> tuple[Config, Selection]:
    """The settings of the final training, and how they were chosen; settings named in `fixed` stay as they are.

    The processes of a `world` make the same decisions. They train trials together where steps are long, and otherwise the
    main one does alone: what a short step exchanges costs more than it gains.
    """
    if minutes is not None and not (isinstance(minutes, Real) and 0 <= minutes < math.inf):
        raise HarmoniumError(f"the time budget is a number of minutes from 0, not {minutes!r}")
    search.check(config)
    if config.train.threads:
        use_threads(config.train.threads)
    started, device = time.perf_counter(), pick_device(config.train.device)
    minutes = float(search.minutes[device.type] if minutes is None else minutes)
    sizer = Sizer(search, graph, frozenset(fixed), device, 60 * minutes)
    start, reasons = sizer.fit_to_graph(config)
    trials = Trials(start, sizer, progress, world)
    if search.choices:
        reasons += trials.run()
    chosen, size_reasons = sizer.final_size(trials.config, trials.work)
    settings, seconds = changed_settings(chosen, Config()), time.perf_counter() - started
    held_out = sum(len(part.facts) for part in trials.parts)
    reasons += size_reasons
    selection = Selection(settings, reasons, trials.done, trials.size, held_out, minutes, seconds)
    return (chosen, selection) if world is None else world.broadcast((chosen, selection))  # machines differ in memory


class Trials:
    """The trials of one search: the best settings so far, and the work that was done."""

    def __init__(
        self,
        start: Config,
        sizer: Sizer,
        progress: Callable[[Progress], None] | None = None,
        world: World | None = None,
    ) -> None:
        self.start = self.config = start
        self.sizer, self.progress, self.world = sizer, progress, world
        self.parts: list[HeldOut] = []
        self.size: dict[str, Any] = {}  # the settings in which trials differ from the final training
        self.done: list[Trial] = []
        self.best: Tensor | None = None  # (queries,): the reciprocal ranks of the best trial
        self.best_at_half: dict[int, float] = {}  # MRR of the best trial after half of its epochs, by part
        self.work = 0.0  # nominal seconds
        self.started = time.perf_counter()
        self.trains_together = False

    def run(self) -> list[str]:
        """Compare the alternatives of each setting with the best settings so far; returns what was decided and why."""
        self.parts = held_out_parts(self.sizer.graph, self.config.train.seed)
        if not self.parts:
            return ["no trials: too few facts to hold any out; the recipe's settings are used"]
        self.size = self.sizer.trial_size(self.config, len(self.parts))
        if not self.size:
            return ["no time for trials: the recipe's settings are used; a larger budget (minutes) allows them"]
        reasons: list[str] = []
        step_seconds = self._work_of({}) / len(self.parts) / self._steps()
        self.trains_together = self.world is not None and step_seconds >= SHARED_STEP
        self.best = self._try({})
        for key, values in self.sizer.search.choices.items():
            if key in self.sizer.fixed or key in self.size:
                continue
            before, ended = settings_by_key(self.config)[key], None
            for value in self._alternatives(key, values):
                if ended := self._why_not(key, value):
                    break
                self._compare(key, value)
            after = settings_by_key(self.config)[key]
            if after != before or ended is None:
                verdict = "no alternative was better" if after == before else f"better than {show_value(before)}"
                reasons.append(f"{key} = {show_value(after)}: {verdict}")
            if ended is not None:
                return [*reasons, ended]
        return reasons

    def _why_not(self, key: str, value: Any) -> str | None:
        """Why the search ends before this alternative; None where it is tried."""
        if self._is_late():
            return (
                "the machine is slow or busy: trials took twice their time, so other values of "
                f"{key} and what follows were not tried"
            )
        return None if self._has_budget(key, value) else f"no time was left to try {key} = {show_value(value)}"

    def _alternatives(self, key: str, values: list[Any]) -> Iterator[Any]:
        """Every other choice; numbers upwards from the present one while that helps, and otherwise downwards."""
        start = settings_by_key(self.config)[key]
        if isinstance(start, bool) or not isinstance(start, int | float):
            yield from (value for value in values if value != start)
            return
        for direction in (
            sorted(v for v in values if v > start),
            sorted((v for v in values if v < start), reverse=True),
        ):
            for value in direction:
                yield value
                if settings_by_key(self.config)[key] != value:
                    break
            if settings_by_key(self.config)[key] != start:
                return

    def _compare(self, key: str, value: Any) -> None:
        """Adopt one setting if a trial with it is better."""
        reciprocal_ranks = self._try({key: value})
        if reciprocal_ranks is not None and is_better(reciprocal_ranks, self.best):
            self.best, self.config = reciprocal_ranks, with_settings(self.config, {key: value})

    def _work_of(self, change: dict[str, Any]) -> float:
        """The nominal seconds of a whole trial."""
        epochs = with_settings(self.config, change | self.size).train.epochs
        return len(self.parts) * epochs * self.sizer.epoch_seconds(self.config, change | self.size)

    def _steps(self) -> int:
        """Optimiser steps of a trial of the recipe."""
        train = with_settings(self.config, self.size).train
        return train.epochs * math.ceil(len(self.sizer.graph.train) / train.batch_size)

    def _has_budget(self, key: str, value: Any) -> bool:
        """Whether another trial leaves the final training its share."""
        return self.work + self._work_of({key: value}) <= (1 - FINAL_SHARE) * self.sizer.budget

    def _is_late(self) -> bool:
        """Whether trials took twice their share of the budget, by the clock."""
        late = time.perf_counter() - self.started > _patience((1 - FINAL_SHARE) * self.sizer.budget)
        return agreed(self.world, late)

    def _try(self, change: dict[str, Any]) -> Tensor | None:
        """Train a small model on each part; (queries,): the reciprocal ranks of the held-out facts, None if it failed."""
        config, started = with_settings(self.config, change | self.size), time.perf_counter()
        settings = changed_settings(with_settings(self.config, change), self.start)
        report, work = self._reporter(change), self._work_of(change) / len(self.parts)
        at_half: dict[int, float] = {}
        ranks: list[Tensor] = []
        error = None
        try:
            for number, part in enumerate(self.parts):
                self.work += work / 2
                arguments = config, self.sizer.device, report, self._judge(number, at_half)
                if self.trains_together:
                    ranks.append(part.reciprocal_ranks(*arguments, self.world))
                else:
                    ranks.append(run_on_main(self.world, partial(part.reciprocal_ranks, *arguments)))
                self.work += work / 2
        except HarmoniumError as failure:
            error = str(failure)
        seconds = time.perf_counter() - started
        if error is not None:
            self.done.append(Trial(settings, None, seconds, error))
            return None
        result = torch.cat(ranks)
        self.done.append(Trial(settings, float(result.mean()), seconds))
        if is_better(result, self.best):
            self.best_at_half = at_half
        return result

    def _judge(self, part: int, at_half: dict[int, float]) -> Callable[[float], None]:
        """Told the MRR of a part after half of the epochs: an error ends a hopeless trial. Few facts say too little."""
        is_enough = len(self.parts[part].facts) >= MIN_HELD_OUT

        def judge(mrr: float) -> None:
            at_half[part] = mrr
            best = self.best_at_half.get(part, 0.0)
            if is_enough and mrr < HOPELESS * best:
                raise HarmoniumError(f"ended after half of its epochs: MRR {mrr:.3f}, the best trial had {best:.3f}")

        return judge

    def _reporter(self, change: dict[str, Any]) -> Callable[[Progress], None] | None:
        """The progress callback of one trial."""
        progress = self.progress
        stage = ", ".join(f"{key} {show_value(value)}" for key, value in (change or {"recipe": "as it is"}).items())
        stage = f"trial {len(self.done) + 1}: {stage}"
        return None if progress is None else lambda now: progress(replace(now, stage=stage))
