"""Evaluate runs: rank the true answers of a split, for one run or a product of several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, overload

from harmonium.config.setting_values import build
from harmonium.config.settings import EvaluateConfig
from harmonium.data.graph import SPLITS
from harmonium.data.tables.reading_options import split_keywords
from harmonium.errors import HarmoniumError
from harmonium.evaluation.evaluation import PARTS, Evaluation, evaluate_scorer
from harmonium.evaluation.experts import check_same_facts, combine_experts
from harmonium.evaluation.facts_to_rank import graph_to_rank
from harmonium.run.run import Run
from harmonium.runtime import distributed
from harmonium.runtime.frames import ResultList

AnyRun = Run | str | Path


@overload
def evaluate(run: AnyRun | Sequence[AnyRun], data: Any = None, *, by: None = None, **options: Any) -> Evaluation: ...


@overload
def evaluate(
    run: AnyRun | Sequence[AnyRun], data: Any = None, *, by: Literal["side", "category", "relation"], **options: Any
) -> ResultList[dict[str, Any]]: ...


def evaluate(
    run: AnyRun | Sequence[AnyRun],
    data: Any = None,
    *,
    by: Literal["side", "category", "relation"] | None = None,
    weights: Sequence[float] | str = "equal",
    rules: bool = False,
    without: str | Sequence[str] = (),
    chunk: int | None = None,
    progress: Callable[[int], None] | None = None,
    **protocol: Any,
) -> Evaluation | ResultList[dict[str, Any]]:
    """Rank a split of the run's graph, or of another graph with the same names, under a protocol.

    What is ranked has learned from train facts alone (`Run.held_out_scorer`), also where the run answers with more. Families
    of constraints named in `without` ("paths", "values", "names", ...) have no say, for comparison.

    `by="relation"` (or "side", "category") gives a table of the metrics of each part instead. `chunk` queries are scored at
    once, which changes memory and no result.

    Several runs are ranked together as a product of experts with `weights`: one number per run, "equal" (all 1) or
    "learned" (on the validation facts of the first run's graph). With `rules` one more expert are path rules, learned from
    the train facts of that graph; the weights are then learned, or given as numbers of which the last is theirs.
    `data` may also be the name of a split. A file, or facts in memory (a list, a frame, an array), are ranked whole, and
    the facts of the run's graph are filtered as well; options of `load` say how to read it, and on_bad="skip" leaves out
    facts with unknown names.

    >>> harmonium.evaluate("runs/demo", split="test", candidates="typed-train", ties="pessimistic").metrics
    """
    if by is not None and by not in PARTS:
        raise HarmoniumError(f"by is one of {', '.join(PARTS)}, not '{by}'")
    if isinstance(data, str) and data in SPLITS and not Path(data).exists():
        data, protocol = None, {"split": data, **protocol}
    runs = [Run.of(each) for each in ([run] if isinstance(run, AnyRun) else run)]
    if not runs:
        raise HarmoniumError("evaluate needs at least one run")
    left_out = [without] if isinstance(without, str) else without
    reading, protocol = split_keywords(protocol)
    settings = {name: value for name, value in protocol.items() if value is not None}
    chosen: EvaluateConfig = build(EvaluateConfig, settings, "protocol")
    graph = runs[0].graph
    for other in runs[1:]:
        check_same_facts(graph, other.graph, f"{runs[0].path or 'the first run'} and {other.path or 'another'}")
    ranked = graph_to_rank(graph, data, chosen.split, reading)
    product = combine_experts([each.held_out_scorer(left_out) for each in runs], graph, weights, rules, chosen.split)
    scorer = product if len(product.experts) > 1 else product.experts[0]
    with distributed.process_group() as world:
        evaluation = evaluate_scorer(scorer, ranked, chosen, chunk=chunk, progress=progress, world=world)
    if product.weights is not None:
        evaluation = replace(evaluation, weights=tuple(product.weights))
    return evaluation if by is None else evaluation.parts(by)
