"""Evaluate runs: rank the true answers of a split, for one run or a product of several."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harmonium.config.setting_values import build
from harmonium.config.settings import EvaluateConfig
from harmonium.data.datasets import load
from harmonium.data.graph import SPLITS, Graph
from harmonium.data.tables.fact_file import reject_name
from harmonium.data.tables.reading_options import split_keywords
from harmonium.data.tables.skipped_rows import SkippedRows
from harmonium.data.triples import Slot
from harmonium.data.vocabulary import Vocabulary
from harmonium.errors import HarmoniumError
from harmonium.evaluation.evaluation import Evaluation, evaluate_scorer
from harmonium.grammar.ensemble import Ensemble
from harmonium.grammar.expert_weights import learn_weights
from harmonium.grammar.path_rules import PathRules
from harmonium.model.scoring import Scorer
from harmonium.run.run import Run, open_run
from harmonium.runtime import distributed
from harmonium.runtime.untrusted import is_file


def evaluate(
    run: Run | str | Path | Sequence[Run | str | Path],
    data: Any = None,
    chunk: int | None = None,
    progress: Callable[[int], None] | None = None,
    weights: Sequence[float] | str = "equal",
    rules: bool = False,
    **protocol: Any,
) -> Evaluation:
    """Rank a split of the run's graph, or of another graph with the same names, under a protocol.

    Several runs are ranked together as a product of experts with `weights`: one number per run, "equal" (all 1) or
    "learned" (on the validation facts of the first run's graph). With `rules` one more expert are path rules, learned from
    the train facts of that graph; the weights are then learned, or given as numbers of which the last is theirs.
    `data` may also be the name of a split. A file, or facts in memory (a list, a frame, an array), are ranked whole, and
    the facts of the run's graph are filtered as well; options of `load` say how to read it, and on_bad="skip" leaves out
    facts with unknown names.

    >>> harmonium.evaluate("runs/demo", split="test", candidates="typed-train", ties="pessimistic").metrics
    """
    if isinstance(data, str) and data in SPLITS and not Path(data).exists():
        data, protocol = None, {"split": data, **protocol}
    runs = [open_run(each) for each in ([run] if isinstance(run, Run | str | Path) else run)]
    reading, protocol = split_keywords(protocol)
    settings = {name: value for name, value in protocol.items() if value is not None}
    chosen: EvaluateConfig = build(EvaluateConfig, settings, "protocol")
    scorers = list(product_of_experts(runs).experts)
    if rules and isinstance(weights, str) and weights == "equal":
        weights = "learned"
    is_learned = isinstance(weights, str) and weights == "learned" and len(scorers) + rules > 1
    if is_learned and chosen.split == "valid":
        raise HarmoniumError("weights learned on validation facts say nothing about their own quality there; rank test")
    if rules:
        scorers.append(PathRules.learn(runs[0].graph.train, runs[0].graph.n_entities, runs[0].graph.n_relations))
    experts = Ensemble(scorers, _expert_weights(scorers, runs[0].graph, weights))
    scorer = experts if len(scorers) > 1 else scorers[0]
    graph = _graph_to_rank(runs[0].graph, data, chosen.split, reading)
    with distributed.process_group() as world:
        evaluation = evaluate_scorer(scorer, graph, chosen, chunk=chunk, progress=progress, world=world)
    if experts.weights is not None:
        evaluation = replace(evaluation, weights=tuple(experts.weights))
    return evaluation


def _expert_weights(experts: Sequence[Scorer], graph: Graph, weights: Sequence[float] | str) -> Sequence[float] | None:
    """One weight per expert; None: all 1."""
    if not isinstance(weights, str):
        return weights
    if weights not in ("equal", "learned"):
        raise HarmoniumError(f"weights are equal, learned or one number per run, not '{weights}'")
    if weights == "equal" or len(experts) < 2:
        return None
    return learn_weights(experts, graph).weights


def _graph_to_rank(graph: Graph, data: Any, split: str, reading: dict[str, Any]) -> Graph:
    """The run's graph, another in its ids, or the run's with the facts of a file as the split."""
    if data is None:
        return graph
    is_name = isinstance(data, str | Path) and not is_file(data)
    if isinstance(data, Graph) or is_name:
        return _translate(graph, load(data, **reading), reading)
    facts = _translate(graph, load(data, valid=0, test=0, **reading), reading)
    splits = graph.splits | {split: facts.train}
    train, valid, test = splits.values()
    return replace(graph, name=facts.name, train=train, valid=valid, test=test, notes=facts.notes)


def _translate(graph: Graph, other: Graph, reading: dict[str, Any]) -> Graph:
    """The facts of another graph in the ids of this one; those with unknown names are an error, or skipped."""
    skipped = SkippedRows(reading.get("on_bad", "error"))
    entities, relations = _ids(graph.entities, other.entities), _ids(graph.relations, other.relations)
    splits = []
    for split, facts in other.splits.items():
        ids = replace(facts, head=entities[facts.head], relation=relations[facts.relation], tail=entities[facts.tail])
        unknown = {slot: ids[slot] < 0 for slot in Slot}
        for slot, rows in unknown.items():
            vocabulary, theirs = (
                getattr(g, "relations" if slot is Slot.RELATION else "entities") for g in (graph, other)
            )
            for row in rows.nonzero()[:, 0].tolist():
                name = theirs.ids[int(facts[slot][row])]
                reject_name(
                    skipped,
                    vocabulary,
                    name,
                    other.name,
                    f": {split} fact {row + 1}" if len(other.valid) or len(other.test) else f": fact {row + 1}",
                )
        splits.append(ids[~(unknown[Slot.HEAD] | unknown[Slot.RELATION] | unknown[Slot.TAIL])])
    skipped.finish()
    train, valid, test = splits
    return replace(graph, name=other.name, train=train, valid=valid, test=test, notes=(*other.notes, *skipped.notes()))


def _ids(vocabulary: Vocabulary, other: Vocabulary) -> Tensor:
    """(n,) the id of each name of another vocabulary, -1 where it is not known or not unique."""
    matches = (vocabulary.find(name) for name in other.ids)
    return torch.tensor([ids[0] if len(ids) == 1 else -1 for ids in matches], dtype=torch.int64)


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
