"""The doctor: is this graph fit to learn from and to be evaluated on? The checks themselves are data/checks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from harmonium.answers.calibration.completeness import completeness_of
from harmonium.answers.open_run import open_run
from harmonium.config.settings import EvaluateConfig
from harmonium.data.checks.clean import clean_copy
from harmonium.data.checks.contradictions import find_contradictions
from harmonium.data.checks.diagnosis import Diagnosis, diagnose, judged_split
from harmonium.data.datasets import convert
from harmonium.data.graph import Graph
from harmonium.errors import HarmoniumError
from harmonium.evaluation.baselines import RuleBaseline
from harmonium.evaluation.evaluation import evaluate_scorer
from harmonium.run.run import Run, is_run_folder, open_graph


def doctor(
    source: Any,
    *,
    clean: str | Path | None = None,
    since: Any = None,
    top: int = 10,
    progress: Callable[[int], None] | None = None,
    **reading: Any,
) -> Diagnosis:
    """Check a graph for leaks and faults, with a verdict.

    `source`: anything that `load` reads, with its options as `reading`, or a run: its graph is checked, and how many facts
    of each relation it lacks is estimated.
    `clean`: a folder or file for a copy without leaks.
    `since`: an older version of the graph, or a run on it; facts that contradict it are listed.
    `top`: number of contradictions listed.

    >>> harmonium.doctor("atlas").verdict
    >>> harmonium.doctor("messy.csv", clean="clean")
    >>> harmonium.doctor("facts-2024.csv", since="facts-2023.csv").since.rows
    """
    out = None if clean is None else _check_free(Path(clean))
    graph = open_graph(source, **reading)
    older = None if since is None else _open_older(since, reading)
    diagnosis = replace(diagnose(graph), rule_baseline=rank_by_rules(graph, progress))
    if isinstance(source, Run) or is_run_folder(source):
        diagnosis = replace(diagnosis, completeness=completeness_of(open_run(source)))
    if older is not None:
        diagnosis = replace(diagnosis, since=find_contradictions(older, graph, top))
    if out is None:
        return diagnosis
    copy, report = clean_copy(graph)
    convert(copy, out)
    return replace(diagnosis, cleaned={"path": str(out), **report})


def _open_older(source: Any, reading: dict[str, Any]) -> Graph:
    is_read = not isinstance(source, Graph | Run) and not is_run_folder(source)
    return open_graph(source, **(reading if is_read else {}))


def _check_free(out: Path) -> Path:
    """Refuse a path that is taken or of an unknown format, before any work."""
    from harmonium.data.formats.registry import output_format

    if out.exists():
        raise HarmoniumError(f"--clean {out}: exists already; choose another name")
    output_format(out)
    return out


def rank_by_rules(graph: Graph, progress: Callable[[int], None] | None = None) -> dict[str, Any] | None:
    """Metrics and protocol of one-step rules alone on the held-out facts: what a model must beat. None without any."""
    split = judged_split(graph)
    if not len(graph.splits[split]):
        return None
    evaluation = evaluate_scorer(RuleBaseline(graph), graph, EvaluateConfig(split=split), progress=progress)
    return {"queries": len(evaluation.ranks), "metrics": evaluation.metrics, "protocol": evaluation.describe()}
