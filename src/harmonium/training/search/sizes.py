"""Sizes that fit a graph and a time budget: batch, epochs, dimension, candidates. Decided from counted work alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from harmonium.config.settings import Config
from harmonium.data.graph import Graph
from harmonium.training.search.cost import count_parameters, count_tables, total_memory
from harmonium.training.search.held_out import MIN_HELD_OUT
from harmonium.training.search.space import Search, with_settings
from harmonium.training.search.work import epoch_seconds

FINAL_SHARE = 0.4  # of the budget is kept for the final training
CONSTRAINTS_SHARE = 0.2  # of what is left after the search goes to learning path rules, where they are asked for
RESERVED = 0.1  # of the same goes to validations, weights of constraints and the evaluation
PLANNED_TRIALS = 5  # whole trainings that the rest of the budget should allow; hopeless trials take half of one
MIN_TRIAL_EPOCHS = 4
MIN_FULL_EPOCHS = 12  # with fewer epochs a softmax over sampled entities learns more in the same time
MIN_STEPS = 1500  # optimiser steps of a training on a small graph
ENOUGH = 0.75  # of the epochs of a final training
MEMORY_SHARE = 0.4  # of the machine's memory for tables; gradients and work space take as much again


def training_share(config: Config) -> float:
    """The share that the first training has of the time after the search."""
    share = 1 - RESERVED - (CONSTRAINTS_SHARE if config.train.constraints else 0)
    return share / 2 if config.train.last_training else share  # once on train facts, once on all


@dataclass(frozen=True)
class Sizer:
    """The graph, the budget and what is fixed: all that sizes depend on."""

    search: Search
    graph: Graph
    fixed: frozenset[str]
    device: torch.device
    budget: float  # nominal seconds

    def epoch_seconds(self, config: Config, change: Mapping[str, Any]) -> float:
        """The nominal seconds of an epoch with some settings changed."""
        return epoch_seconds(with_settings(config, change), self.graph, self.device.type)

    def dims(self, config: Config) -> list[int]:
        """The dimensions to choose from, ascending."""
        if "model.entity_dim" in self.fixed:
            return [config.model.entity_dim]
        return sorted(self.search.dims[self.device.type])

    def trial_dim(self, config: Config) -> int:
        dims = self.dims(config)
        return min(self.search.trial_dim.get(self.device.type, dims[len(dims) // 2]), dims[-1])

    def _large(self, config: Config) -> dict[str, Any]:
        """The settings for many entities; empty where a softmax over all entities was not asked for or they are few."""
        few = self.graph.n_entities <= 2 * self.search.large.get("train.negatives", 0)
        if config.train.loss != "full" or "train.loss" in self.fixed or few:
            return {}
        return {key: value for key, value in self.search.large.items() if key not in self.fixed}

    def fit_to_graph(self, config: Config) -> tuple[Config, list[str]]:
        """Batches of a hundredth of the facts, enough steps on a small graph, sampled candidates on a large one."""
        count = len(self.graph.train)
        if "train.batch_size" not in self.fixed:
            config = with_settings(config, {"train.batch_size": min(max(count // 100, 16), 1000)})
        if "train.epochs" not in self.fixed:
            epochs = max(config.train.epochs, math.ceil(MIN_STEPS * config.train.batch_size / max(count, 1)))
            config = with_settings(config, {"train.epochs": epochs})
        large, seconds = self._large(config), self.epoch_seconds(config, {"model.entity_dim": self.trial_dim(config)})
        if not large or FINAL_SHARE * self.budget >= MIN_FULL_EPOCHS * seconds:
            return config, []
        config = with_settings(config, large)
        reason = f"an epoch with all {self.graph.n_entities:,} entities as candidates takes {seconds:.0f} s"
        return config, [f"train.loss = {config.train.loss}: {reason}"]

    def trial_size(self, config: Config, n_parts: int) -> dict[str, Any]:
        """The settings in which trials differ from the final training; empty where the budget allows no trials.

        Trials have all epochs where that is possible, since short trainings prefer too little regularisation. What is best
        for a very small model is a worse guide than a shorter training, or than one with sampled candidates.
        """
        trial_dim, available = self.trial_dim(config), (1 - FINAL_SHARE) * self.budget
        sizes: list[dict[str, Any]] = [{"model.entity_dim": trial_dim}]
        if large := self._large(config):
            group = config.train.batch_size
            sizes.append(sizes[0] | large | {"train.batch_size": group, "train.negative_group_size": group})
        smaller = [sizes[-1] | {"model.entity_dim": dim} for dim in reversed(self.dims(config)) if dim < trial_dim]
        best: dict[str, Any] = {}
        for size in [*sizes, *smaller]:
            if best and size in smaller:
                break
            epochs = int(available / (PLANNED_TRIALS * n_parts * self.epoch_seconds(config, size)))
            if epochs >= config.train.epochs:
                return size
            if epochs > best.get("train.epochs", MIN_TRIAL_EPOCHS - 1):
                best = size | {"train.epochs": epochs}
            if epochs >= ENOUGH * config.train.epochs:
                break
        return best

    def final_size(self, config: Config, spent: float) -> tuple[Config, list[str]]:
        """The largest dimension with which all epochs fit the rest of the budget, or else as many epochs as fit."""
        rest, reasons = max(self.budget - spent, FINAL_SHARE * self.budget), []
        if config.train.constraints and "train.constraint_seconds" not in self.fixed:
            config = with_settings(config, {"train.constraint_seconds": CONSTRAINTS_SHARE * rest})
        available = training_share(config) * rest
        wanted, dims = config.train.epochs, self.dims(config)
        for dim in reversed(list(filter(partial(self._fits_memory, config), dims)) or dims[:1]):
            epochs = int(available / self.epoch_seconds(config, {"model.entity_dim": dim}))
            if epochs >= wanted or (dim <= self.trial_dim(config) and epochs >= ENOUGH * wanted):
                break
        if len(dims) > 1:
            config = with_settings(config, {"model.entity_dim": dim})
            limit = "the largest offered" if dim == dims[-1] else "the largest that fits the budget"
            reasons.append(f"model.entity_dim = {dim}: {limit}")
        if "train.epochs" not in self.fixed and epochs < wanted:
            config = with_settings(config, {"train.epochs": max(1, epochs)})
            reasons.append(f"train.epochs = {max(1, epochs)}: as many as fit the budget")
        if "train.evaluate_every" not in self.fixed:
            few = len(self.graph.valid) < MIN_HELD_OUT  # too few to choose an epoch by
            every = config.train.epochs if few else max(1, config.train.epochs // 10)
            config = with_settings(config, {"train.evaluate_every": every})
        return config, reasons

    def _fits_memory(self, config: Config, dim: int) -> bool:
        config = with_settings(config, {"model.entity_dim": dim})
        tables = count_tables(config, self.graph, count_parameters(config, self.graph), self.device)
        return sum(tables.values()) < MEMORY_SHARE * total_memory(self.device)
