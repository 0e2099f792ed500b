"""Evaluate runs: rank the true answers of a split, for one run or a product of several."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch

from harmonium.data.datasets import load
from harmonium.data.graph import Graph
from harmonium.data.triples import Triples
from harmonium.data.vocabulary import Vocabulary
from harmonium.evaluation.ensemble import Ensemble
from harmonium.evaluation.evaluation import Evaluation, evaluate_scorer
from harmonium.evaluation.expert_weights import learn_weights
from harmonium.evaluation.rounding_check import check_rounding
from harmonium.run.run import Run, open_run
from harmonium.runtime import distributed
from harmonium.runtime.config import EvaluateConfig, build
from harmonium.runtime.errors import HarmoniumError
from harmonium.runtime.untrusted import is_file


def evaluate(
    run: Run | str | Path | Sequence[Run | str | Path],
    data: str | Path | Graph | None = None,
    chunk: int | None = None,
    progress: Callable[[int], None] | None = None,
    weights: Sequence[float] | str = "equal",
    rounding_check: int | None = None,
    **protocol: Any,
) -> Evaluation:
    """Rank a split of the run's graph, or of another graph with the same names, under a protocol.

    Several runs are ranked together as a product of experts with `weights`: one number per run, "equal" (all 1) or
    "learned" (on the validation facts of the first run's graph).
    A file as `data` is ranked whole, and the facts of the run's graph are filtered as well.
    `rounding_check` facts are also scored in float64, to count the ranks that depend on rounding.

    >>> harmonium.evaluate("runs/demo", split="test", candidates="typed-train", ties="pessimistic").metrics
    """
    runs = [open_run(each) for each in ([run] if isinstance(run, Run | str | Path) else run)]
    settings = {name: value for name, value in protocol.items() if value is not None}
    chosen: EvaluateConfig = build(EvaluateConfig, settings, "protocol")
    experts = product_of_experts(runs, _expert_weights(runs, weights, chosen))
    scorer = experts if len(runs) > 1 else runs[0].model
    graph = _graph_to_rank(runs[0].graph, data, chosen.split)
    with distributed.process_group() as world:
        evaluation = evaluate_scorer(scorer, graph, chosen, chunk=chunk, progress=progress, world=world)
    if experts.weights is not None:
        evaluation = replace(evaluation, weights=tuple(experts.weights))
    if not rounding_check:
        return evaluation
    exact = Ensemble([deepcopy(each.model).double() for each in runs], experts.weights)
    return replace(evaluation, rounding=check_rounding(scorer, exact, graph, chosen, rounding_check, chunk, progress))


def _expert_weights(
    runs: Sequence[Run], weights: Sequence[float] | str, protocol: EvaluateConfig
) -> Sequence[float] | None:
    """One weight per run; None: all 1."""
    if not isinstance(weights, str):
        return weights
    if weights not in ("equal", "learned"):
        raise HarmoniumError(f"weights are equal, learned or one number per run, not '{weights}'")
    if weights == "equal" or len(runs) < 2:
        return None
    if protocol.split == "valid":
        raise HarmoniumError("weights learned on validation facts say nothing about their own quality there; rank test")
    models = product_of_experts(runs).experts
    return learn_weights(models, runs[0].graph).weights


def _graph_to_rank(graph: Graph, data: str | Path | Graph | None, split: str) -> Graph:
    """The run's graph, another in its ids, or the run's with the facts of a file as the split."""
    if data is None:
        return graph
    if isinstance(data, Graph) or not is_file(data):
        return _translate(graph, data if isinstance(data, Graph) else load(data))
    facts = _translate(graph, load(data, valid=0, test=0))
    splits = graph.splits | {split: facts.train}
    return replace(graph, name=facts.name, train=splits["train"], valid=splits["valid"], test=splits["test"])


def _translate(graph: Graph, other: Graph) -> Graph:
    """The facts of another graph in the ids of this one."""
    entities = torch.tensor([graph.entities.index(name) for name in other.entities.ids], dtype=torch.int64)
    relations = torch.tensor([graph.relations.index(name) for name in other.relations.ids], dtype=torch.int64)
    train, valid, test = (
        Triples(entities[facts.head], relations[facts.relation], entities[facts.tail])
        for facts in other.splits.values()
    )
    return replace(graph, name=other.name, train=train, valid=valid, test=test)


def product_of_experts(runs: Sequence[Run], weights: Sequence[float] | None = None) -> Ensemble:
    """The models of several runs as one scorer; all must have the same names and the same facts."""
    for run in runs[1:]:
        pair = f"{runs[0].path or 'the first run'} and {run.path or 'another'}"
        _check_same_names(runs[0].graph.entities, run.graph.entities, pair)
        _check_same_names(runs[0].graph.relations, run.graph.relations, pair)
        for split, facts in run.graph.splits.items():
            first = runs[0].graph.splits[split]
            if not first.to_rows().equal(facts.to_rows()):
                raise HarmoniumError(
                    f"{pair} have different {split} triples ({len(first):,} and {len(facts):,}): one may be tested on "
                    "what the other was trained on. Train both on the same graph"
                )
    return Ensemble([run.model for run in runs], weights)


def _check_same_names(first: Vocabulary, second: Vocabulary, pair: str) -> None:
    for number, (one, other) in enumerate(zip_longest(first.ids, second.ids, fillvalue="(none)")):
        if one != other:
            raise HarmoniumError(
                f"{pair} have different {first.kind} names: number {number} is '{one}' in one and '{other}' in the other. "
                "Train both on the same graph"
            )
