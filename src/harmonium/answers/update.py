"""Update a run as its graph changes: facts are added, removed or recorded as false, without training again."""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harmonium.answers.calibration.judgement_correction import correction_file, correction_for
from harmonium.config.settings import EvaluateConfig
from harmonium.data.datasets import load
from harmonium.data.graph import Graph
from harmonium.data.graph_changes import GraphChange, GraphSizes, change_graph
from harmonium.data.tables.reading_options import NAMES as READING
from harmonium.errors import HarmoniumError, refuse_unknown
from harmonium.evaluation.evaluation import EvaluationSummary, evaluate_with_baselines
from harmonium.model.scoring import Scorer
from harmonium.run import manifest
from harmonium.run.run import UNREADABLE, Run
from harmonium.run.updates import FINAL_PREFIX, MovedVectors, Update, UpdateRecord
from harmonium.runtime.folders import locked_folder, reserve
from harmonium.training.refit.local_refit import Refitted, refit

logger = logging.getLogger("harmonium")
EVALUATED, MIN_EVALUATED = 4000, 250  # facts ranked after an update, at most and at least; `evaluate` ranks all
EVALUATED_SCORES = 1 << 28  # candidates compared with them, at most, unless for MIN_EVALUATED facts


def update(
    run: Run | str | Path,
    add: Any = None,
    remove: Any = None,
    *,
    out: str | Path | None = None,
    overwrite: bool = False,
    undo: bool = False,
    progress: Callable[[int], None] | None = None,
    command: str = "",
    **reading: Any,
) -> Run:
    """Change the facts of a run without training again; only the vectors concerned move.

    `add` and `remove` are files of head, relation, tail or anything else that `load` reads. Added facts may name new
    entities and relations. Removed facts are forgotten and recorded as false; facts to be removed that the graph does
    not have are only recorded as false. Neither is ever proposed again, until it is added. `undo` gives back the run
    before its last update. `reading` are options of `load`: on_bad="skip" leaves out bad rows.

    >>> run = harmonium.update("runs/demo", add="facts.tsv", remove="wrong.tsv", out="runs/newer")
    >>> run.updates[-1], run.rejected
    """
    run = Run.of(run)
    refuse_unknown(reading, OPTIONS, READING)
    given = add is not None or remove is not None
    if undo and given:
        raise HarmoniumError("an update takes facts to add or remove, or is undone: one of these at a time")
    if not (undo or given):
        raise HarmoniumError("nothing to update: give facts to add, or facts to remove, or undo the last update")
    if out is not None:
        reserve(out, overwrite)
    if undo:
        updated = _undone(run)
    else:
        to_add = None if add is None else _load(add, run.graph, reading)
        unweighted = {key: value for key, value in reading.items() if key != "weight_column"}
        to_remove = None if remove is None else _load(remove, run.graph, unweighted)  # which needs no weights
        change = change_graph(run.graph, to_add, to_remove, reading.get("on_bad", "error"))
        updated = _updated(run, change, progress, command)
    if out is None:
        return replace(updated, path=None)
    with _unchanged(run, Path(out)):
        correction = correction_for(run)
        computed = {} if correction is None else correction_file(correction, updated.graph.n_relations)
        return replace(updated, path=updated.save(out, overwrite, computed))


OPTIONS = tuple(inspect.signature(update).parameters)[:-1]


def _updated(run: Run, change: GraphChange, progress: Callable[[int], None] | None, command: str) -> Run:
    if len(change.added) > len(run.graph.train):
        logger.warning(
            "%s added facts are more than the %s that the run was trained on; training again on all of them takes less time",
            f"{len(change.added):,}",
            f"{len(run.graph.train):,}",
        )
    began = time.perf_counter()
    refitted = refit(run.model, change, run.config.train, progress)
    moved = {"": MovedVectors(run.model, refitted.entities, refitted.relations)}
    final = None
    if run.final is not None:
        refitted_final = refit(run.final, change, run.config.train, progress)
        moved[FINAL_PREFIX] = MovedVectors(run.final, refitted_final.entities, refitted_final.relations)
        final = refitted_final.model.eval()
    record = _record(run, change, refitted, command, time.perf_counter() - began)
    updated = replace(
        run,
        graph=change.graph,
        model=refitted.model.eval(),
        final=final,
        grammar=None if run.grammar is None else run.grammar.with_relations(change.graph.n_relations),
        updates=(*run.updates, Update.of(record, change, moved)),
    )
    return replace(updated, evaluation=_evaluate(updated.held_out_scorer(), change.graph, run.config.evaluate))


def _load(facts: Any, graph: Graph, reading: dict[str, Any]) -> Graph:
    """Facts to add or remove, a Graph as it is. A first row that may be a header is a fact if it has a known entity."""
    if isinstance(facts, Graph):
        return facts
    try:
        given = load(facts, valid=0, test=0, **reading)
    except HarmoniumError:
        without_header = _load_without_header(facts, graph, reading)
        if without_header is None:
            raise
        return without_header
    is_doubtful = any(note.kind == "header" for note in given.notes)
    return (_load_without_header(facts, graph, reading) or given) if is_doubtful else given


def _load_without_header(facts: Any, graph: Graph, reading: dict[str, Any]) -> Graph | None:
    """The facts with the first row as one of them; None where that has no known entity, or the user said what it is."""
    if "header" in reading:
        return None
    with suppress(HarmoniumError):
        whole = load(facts, valid=0, test=0, header=False, **reading)
        if any(whole.entities.ids[int(ids[0])] in graph.entities for ids in (whole.train.head, whole.train.tail)):
            return replace(whole, notes=tuple(note for note in whole.notes if note.kind != "header"))
    return None


def _record(run: Run, change: GraphChange, refitted: Refitted, command: str, seconds: float) -> UpdateRecord:
    return UpdateRecord(
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        command=command or "harmonium.update",
        added=len(change.added),
        removed=sum(map(len, change.removed_rows.values())),
        rejected=len(change.rejected),
        accepted=len(change.accepted),
        new_entities=change.new_entities,
        new_relations=change.new_relations,
        moved_entities=len(refitted.entities),
        moved_relations=len(refitted.relations),
        notes=list(change.notes),
        seconds=seconds,
        before=run.fingerprint,
        sizes=GraphSizes.of(run.graph),
        metrics=run.evaluation.to_json() if run.evaluation else {},
    )


def _evaluate(scorer: Scorer, graph: Graph, protocol: EvaluateConfig) -> EvaluationSummary | None:
    """Metrics of a sample of the facts where there are many, and so labelled."""
    count = max(MIN_EVALUATED, min(EVALUATED, EVALUATED_SCORES // graph.n_entities))
    return evaluate_with_baselines(scorer, graph, replace(protocol, sample=protocol.sample or count), MIN_EVALUATED)


def _undone(run: Run) -> Run:
    """The run before its last update."""
    if not run.updates:
        raise HarmoniumError(f"{run.path or 'the run'}: there is no update to undo")
    last, damaged = run.updates[-1], f"{run.path or 'the run'}: its last update cannot be undone"
    try:
        graph = last.restore_graph(run.graph)
        model = last.restore(graph, run.model)
        final = None if run.final is None else last.restore(graph, run.final, FINAL_PREFIX).eval()
    except UNREADABLE as error:
        raise HarmoniumError(f"{damaged} ({error}); open the run before it instead") from error
    metrics = last.record.metrics
    evaluation = EvaluationSummary.from_json(metrics) if metrics else None
    grammar = None if run.grammar is None else run.grammar.with_relations(graph.n_relations)
    before = replace(
        run,
        graph=graph,
        model=model.eval(),
        evaluation=evaluation,
        updates=run.updates[:-1],
        grammar=grammar,
        final=final,
    )
    if before.fingerprint != last.record.before:
        raise HarmoniumError(f"{damaged}: the result would be another run than before; open that one instead")
    return before


@contextmanager
def _unchanged(run: Run, out: Path) -> Iterator[None]:
    """Hold the lock of a run that is replaced by its update; an error if it is no longer the one that was read."""
    with ExitStack() as stack:
        if run.path is not None and out.exists() and out.resolve() == run.path.resolve():
            changed = HarmoniumError(f"{out} was changed by another process meanwhile; update it again")
            try:
                stack.enter_context(locked_folder(out))
            except BlockingIOError:
                raise changed from None
            except OSError:  # a file system without locks
                pass
            if manifest.read(out).fingerprint != run.fingerprint:
                raise changed
        yield
