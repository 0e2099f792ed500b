"""One public function per command: what the command line does, from Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harmonium import evaluation, prediction
from harmonium.analysis import neighbours as neighbourhoods
from harmonium.analysis.neighbours import Neighbourhood
from harmonium.config import Config, EvaluateConfig, build
from harmonium.datasets import load
from harmonium.errors import HarmoniumError
from harmonium.evaluation import Evaluation, Frequency
from harmonium.graph import SPLITS, Graph, Slot, Triples
from harmonium.prediction import Answer
from harmonium.run import Run, reserve
from harmonium.training import Progress, build_model, fit


def train(
    config: Config | str | Path | None = None,
    data: str | Graph | None = None,
    out: str | Path | None = None,
    sets: Sequence[str] = (),
    overwrite: bool = False,
    watch: Callable[[Progress], None] | None = None,
) -> Run:
    """Train a model on a graph, evaluate it, and write the run folder when `out` is given.

    >>> run = harmonium.train(data="atlas", sets=["model.entity_dim=32", "train.epochs=20"], out="runs/small")
    """
    if not isinstance(config, Config):
        config = Config.read(config, sets)
    elif sets:
        raise HarmoniumError("give either a Config or settings as text, not both")
    if out is not None:
        reserve(out, overwrite)
    graph = data if isinstance(data, Graph) else load(data or config.data)
    config = replace(config, data=graph.name if isinstance(data, Graph) else str(data or config.data))
    model = build_model(config.model, graph.n_entities, graph.n_relations, config.train.seed)
    history = fit(model, graph, config, watch)
    run = Run(config, graph, model.cpu(), history, _metrics(model, graph, config.evaluate))
    return replace(run, path=run.save(out, overwrite)) if out is not None else run


def _metrics(model: evaluation.Scorer, graph: Graph, protocol: EvaluateConfig) -> dict[str, Any]:
    """The final metrics of a run and the frequency baseline's, on the split asked for or else valid."""
    if not len(getattr(graph, protocol.split)):
        protocol = replace(protocol, split="valid")
    if not len(getattr(graph, protocol.split)):
        return {}
    baseline = evaluation.evaluate(Frequency(graph), graph, protocol)
    return {**evaluation.evaluate(model, graph, protocol).to_json(), "frequency_baseline": baseline.metrics}


def open_run(run: Run | str | Path) -> Run:
    return run if isinstance(run, Run) else Run.load(run)


def evaluate(
    run: Run | str | Path,
    data: str | Graph | None = None,
    chunk: int | None = None,
    watch: Callable[[int], None] | None = None,
    **protocol: Any,
) -> Evaluation:
    """Rank a split of the run's own graph (or of another with the same names) under a protocol.

    One file as `data` is ranked whole; what the run's own graph knows is filtered as well.

    >>> harmonium.evaluate("runs/demo", split="test", candidates="typed-train", ties="pessimistic").metrics
    """
    run = open_run(run)
    chosen = _protocol(protocol)
    if data is None:
        graph = run.graph
    elif isinstance(data, Graph) or not Path(data).is_file():
        graph = _same_names(run, data if isinstance(data, Graph) else load(data))
    else:
        facts = _same_names(run, load(data, valid=0, test=0))
        graph = replace(run.graph, name=facts.name, **{chosen.split: facts.train})
    return evaluation.evaluate(run.model, graph, chosen, chunk=chunk, watch=watch)


def _protocol(values: dict[str, Any]) -> EvaluateConfig:
    return build(EvaluateConfig, {k: v for k, v in values.items() if v is not None}, "protocol")


def _same_names(run: Run, other: Graph) -> Graph:
    """The other graph's triples in the ids of the run."""
    entities = [run.graph.entities.index(text) for text in other.entities.ids]
    relations = [run.graph.relations.index(text) for text in other.relations.ids]
    splits = {}
    for split in SPLITS:
        rows = getattr(other, split).rows().tolist()
        splits[split] = Triples.from_rows([[entities[h], relations[r], entities[t]] for h, r, t in rows])
    return replace(run.graph, name=other.name, **splits)


def predict(
    run: Run | str | Path,
    head: str | None = None,
    relation: str | None = None,
    tail: str | None = None,
    top: int = 10,
    new_only: bool = False,
) -> list[Answer]:
    """The best answers to a query with one slot left out, by name.

    >>> harmonium.predict("runs/demo", head="Switzerland", relation="official language")
    """
    run = open_run(run)
    return prediction.answer(run.model, run.graph, prediction.ask(run.graph, head, relation, tail), top, new_only)


def neighbours(
    run: Run | str | Path,
    head: str,
    relation: str,
    tail: str,
    slot: str = "head",
    count: int = 5,
    typed: bool = True,
) -> Neighbourhood:
    """The nearest triplets to one, by composed vector and by token, when one slot changes.

    >>> harmonium.neighbours("runs/demo", "Switzerland", "official language", "French")
    """
    run = open_run(run)
    if slot not in ("head", "tail"):
        raise HarmoniumError(f"neighbourhoods change the head or the tail, not '{slot}'")
    triple = run.graph.triple(head, relation, tail)
    return neighbourhoods.neighbours(run.model, run.graph, triple, Slot(slot), count, typed)


def info(graph_or_run: str | Path | Graph | Run) -> dict[str, Any]:
    """What a graph holds (counts, relations with an example) and, for a run, how it was trained and what it scored."""
    found: dict[str, Any] = {}
    graph = graph_or_run
    if isinstance(graph, str | Path) and (Path(graph) / "run.json").is_file():
        graph = Run.load(graph)
    if isinstance(graph, Run):
        run, graph = graph, graph.graph
        found["run"] = {
            "path": str(run.path),
            "settings": {key: vars(getattr(run.config, key)) for key in ("model", "train")},
            "parameters": sum(p.numel() for p in run.model.parameters()),
            "epochs": len(run.history.rows),
            "best_epoch": run.history.best_epoch,
            "stopped": run.history.stopped,
            "seconds": run.history.seconds,
            "metrics": run.metrics,
        }
    elif not isinstance(graph, Graph):
        graph = load(graph)
    categories, counts = graph.categories(), graph.train.relation.bincount(minlength=graph.n_relations)
    first = {}
    for position, relation in enumerate(graph.train.relation.tolist()):
        first.setdefault(relation, position)
    found["graph"] = {
        "name": graph.name,
        "entities": graph.n_entities,
        "relations": graph.n_relations,
        "triples": {split: len(getattr(graph, split)) for split in SPLITS},
        "unseen": {split: int(graph.unseen(getattr(graph, split)).sum()) for split in ("valid", "test")},
        "notes": list(graph.notes),
        "by_relation": [
            {
                "name": graph.relations.name(r),
                "train": int(counts[r]),
                "category": categories[r],
                "example": graph.spell(graph.train[[first[r]]])[0] if r in first else None,
            }
            for r in counts.argsort(descending=True, stable=True).tolist()
        ],
    }
    return found
