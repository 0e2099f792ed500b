"""One public function per command: what the command line does, from Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from harmonium import (
    addition,
    checkpoint,
    classification,
    completion,
    distributed,
    evaluation,
    launch,
    prediction,
    query_file,
)
from harmonium.analysis import neighbours as neighbourhoods
from harmonium.analysis.density import Density, measure_density
from harmonium.analysis.dynamics import Dynamics, follow
from harmonium.analysis.entity_tokens import RIDGE, EntityNeighbourhood, entity_neighbours
from harmonium.analysis.explain import Explainer, Explanation
from harmonium.analysis.gain import Gain, measure_gain
from harmonium.analysis.neighbours import Neighbourhood
from harmonium.calibration import Calibration, calibration_of
from harmonium.classification import Classification
from harmonium.config import Config, EvaluateConfig, build
from harmonium.datasets import load
from harmonium.distributed import alone_or_first
from harmonium.ensemble import Ensemble, product_of_experts
from harmonium.errors import HarmoniumError
from harmonium.evaluation import Evaluation, Frequency
from harmonium.export import import_embeddings
from harmonium.folder import reserve, sweep, unfinished
from harmonium.gaps import measure_gaps
from harmonium.graph import SPLITS, Graph, Slot, Triples
from harmonium.prediction import Answer, Scored
from harmonium.rows import Rows
from harmonium.run import Run, environment
from harmonium.suspicion import refuse_pickle
from harmonium.tracking import tracking
from harmonium.training import Progress, build_model, fit, pick_device


def train(
    config: Config | str | Path | None = None,
    data: str | Graph | None = None,
    out: str | Path | None = None,
    sets: Sequence[str] = (),
    overwrite: bool = False,
    watch: Callable[[Progress], None] | None = None,
    track: Sequence[str] = (),
) -> Run:
    """Train a model on a graph, evaluate it, and write the run folder when `out` is given.

    `track` names who else follows it: `tensorboard:DIR`, `wandb:PROJECT`, `mlflow:URI`, `csv:FILE` (harmonium.tracking).

    >>> run = harmonium.train(data="atlas", sets=["model.entity_dim=32", "train.epochs=20"], out="runs/small")
    """
    if not isinstance(config, Config):
        config = Config.read(config, sets)
    elif sets:
        raise HarmoniumError("give either a Config or settings as text, not both")
    with distributed.joined() as world:
        if out is not None and launch.attempt() and alone_or_first(world, lambda: _begun(Path(out), config)):
            return _resume(Path(out), (), watch, track, world)
        if out is not None:
            alone_or_first(world, lambda: reserve(out, overwrite))
        data = config.data if data is None else data
        with distributed.one_by_one(world):  # what is downloaded or built is kept for the others
            graph = load(data)
        config = replace(config, data=str(data) if isinstance(data, str | Path) else graph.name)
        if out is None:
            return _train(config, graph, watch, track=track, world=world)
        device = str(pick_device(config.train.device))
        with checkpoint.begin(Path(out), overwrite, config, graph, device, environment(), world) as checkpoints:
            return _train(config, graph, watch, checkpoints, track, world)


def _begun(path: Path, config: Config) -> bool:
    """Whether a run folder holds this very training, begun or finished before torchrun started it again."""
    with suppress(HarmoniumError, LookupError):
        found = checkpoint.settings(path) if unfinished(path) else Config.read(path / "config.toml")
        return replace(found, data=config.data) == config
    return False


def resume(
    run: str | Path,
    sets: Sequence[str] = (),
    watch: Callable[[Progress], None] | None = None,
    track: Sequence[str] = (),
) -> Run:
    """Go on with a training that was stopped or killed; on a CPU it ends as if it had not been, to the byte.

    Settings such as the learning rate may change on the way. A finished run is returned as it is.

    >>> harmonium.resume("runs/mine", sets=["train.learning_rate=0.001"])
    """
    with distributed.joined() as world:
        return _resume(Path(run), sets, watch, track, world)


def _resume(
    path: Path,
    sets: Sequence[str],
    watch: Callable[[Progress], None] | None,
    track: Sequence[str],
    world: distributed.World | None,
) -> Run:
    if not unfinished(path):
        if sets and (path / "run.json").is_file():
            raise HarmoniumError(f"{path} is finished, so its settings stay; train again with others")
        with suppress(OSError):
            sweep(path)
        return Run.load(path)
    with checkpoint.reopen(path, sets, environment(), world) as (checkpoints, config, graph):
        return _train(config, graph, watch, checkpoints, track, world)


def _train(
    config: Config,
    graph: Graph,
    watch: Callable[[Progress], None] | None,
    checkpoints: checkpoint.Checkpoints | None = None,
    track: Sequence[str] = (),
    world: distributed.World | None = None,
) -> Run:
    """Fit, evaluate, and put the run in the place of its checkpoints; in a world the first process does the last."""
    if world is not None:
        same = {**environment(), "settings": replace(config, data="").to_toml(), "graph": graph.fingerprint()}
        world.agree({key: value for key, value in same.items() if key not in ("device", "platform")})
        watch, track = (watch, track) if world.leads else (None, ())
    try:
        model = build_model(config.model, graph.n_entities, graph.n_relations, config.train.seed, world)
    except (RuntimeError, MemoryError) as error:
        raise evaluation.no_memory(error, "lower model.entity_dim or model.rank") from error
    if config.train.init is not None:
        import_embeddings(model, graph, config.train.init)
    with tracking(track, config) as log:
        history = fit(model, graph, config, watch, log, checkpoints)
        run = Run(config, graph, model.cpu(), history, _metrics(model, graph, config.evaluate))
        if world is not None:
            model.gather()
        if log and run.metrics:
            log({"epoch": len(history.rows), run.metrics["protocol"]["split"]: run.metrics["metrics"]})
    if not checkpoints:
        return run
    path = alone_or_first(world, lambda: run.save(checkpoints.run, overwrite=True))
    return replace(run, path=path)


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
    run: Run | str | Path | Sequence[Run | str | Path],
    data: str | Graph | None = None,
    chunk: int | None = None,
    watch: Callable[[int], None] | None = None,
    weights: Sequence[float] | None = None,
    gaps: int | None = None,
    **protocol: Any,
) -> Evaluation:
    """Rank a split of the run's own graph (or of another with the same names) under a protocol.

    Several runs are ranked together, as a product of experts with these `weights` (all 1 when left out).
    One file as `data` is ranked whole; what the run's own graph knows is filtered as well.
    With `gaps` so many facts are scored in float64 too, to say how many ranks hang on rounding.

    >>> harmonium.evaluate("runs/demo", split="test", candidates="typed-train", ties="pessimistic").metrics
    """
    runs = [open_run(each) for each in ([run] if isinstance(run, Run | str | Path) else run)]
    several = product_of_experts(runs, weights)
    run, scorer = runs[0], several if len(runs) > 1 else runs[0].model
    chosen = _protocol(protocol)
    if data is None:
        graph = run.graph
    elif isinstance(data, Graph) or not Path(data).is_file():
        graph = _same_names(run, data if isinstance(data, Graph) else load(data))
    else:
        facts = _same_names(run, load(data, valid=0, test=0))
        graph = replace(run.graph, name=facts.name, **{chosen.split: facts.train})
    with distributed.joined() as world:
        found = evaluation.evaluate(scorer, graph, chosen, chunk=chunk, watch=watch, world=world)
    if not gaps:
        return found
    exact = Ensemble([deepcopy(each.model).double() for each in runs], weights if len(runs) > 1 else None)
    return replace(found, gaps=measure_gaps(scorer, exact, graph, chosen, gaps, chunk=chunk, watch=watch))


def _protocol(values: dict[str, Any]) -> EvaluateConfig:
    return build(EvaluateConfig, {k: v for k, v in values.items() if v is not None}, "protocol")


def _same_names(run: Run, other: Graph) -> Graph:
    """The other graph's triples in the ids of the run."""
    entities, relations = (
        torch.tensor([own.index(text) for text in names.ids], dtype=torch.int64)
        for own, names in ((run.graph.entities, other.entities), (run.graph.relations, other.relations))
    )
    facts = {split: getattr(other, split) for split in SPLITS}
    splits = {s: Triples(entities[f.head], relations[f.relation], entities[f.tail]) for s, f in facts.items()}
    return replace(run.graph, name=other.name, **splits)


def predict(
    run: Run | str | Path,
    head: str | None = None,
    relation: str | None = None,
    tail: str | None = None,
    top: int = 10,
    new_only: bool = False,
    typed: bool = False,
    among: Sequence[str] | str | Path | None = None,
    probability: bool = True,
    watch: Callable[[int], None] | None = None,
) -> Rows[Answer]:
    """The best answers to a query with one slot left out, by name, with the probability that each is true.

    `typed` leaves entities seen in that slot of the relation, `among` those of a list, or of a file, one on each line.
    The first answer of a run takes a while, as its probabilities are fitted then (`harmonium.calibrate`).

    >>> harmonium.predict("runs/demo", head="Switzerland", relation="official language")
    """
    run = open_run(run)
    query = prediction.ask(run.graph, head, relation, tail)
    allowed = _among(run.graph, query.slot, among)
    sure = calibration_of(run, watch) if probability else None
    found = prediction.answer_all(run.model, run.graph, query.slot, query.triple, top, new_only, sure, allowed, typed)
    return Rows(next(found))


def _among(graph: Graph, slot: Slot, names: Sequence[str] | str | Path | None) -> torch.Tensor | None:
    """The ids of the candidates that are asked for."""
    if names is None:
        return None
    if isinstance(names, str | Path):
        refuse_pickle(Path(names))
        try:
            lines = Path(names).read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise HarmoniumError(f"--among {names}: cannot be read ({error}); give a name on each line") from error
        wanted = [(f"{names}:{number}", line) for number, line in enumerate(lines, start=1) if line.strip()]
    else:
        wanted = [("among", name) for name in names]
    if not wanted:
        raise HarmoniumError(f"--among {names}: nothing in it; give a name on each line")
    known = prediction.vocabulary(graph, slot)
    return torch.tensor([query_file.located(where, lambda name=name: known.index(name)) for where, name in wanted])


def predict_file(
    run: Run | str | Path,
    queries: str | Path,
    out: str | Path,
    top: int = 10,
    new_only: bool = False,
    typed: bool = False,
    among: Sequence[str] | str | Path | None = None,
    probability: bool = True,
    watch: Callable[[int], None] | None = None,
) -> int:
    """Answer every query of a file (head, relation, tail, one of them '?') into another; says how many rows it wrote.

    >>> harmonium.predict_file("runs/demo", "questions.tsv", "answers.parquet", top=5, new_only=True)
    """
    run = open_run(run)
    sure = calibration_of(run) if probability else None

    def rows() -> Iterator[dict[str, Any]]:
        asked = query_file.read_queries(queries, run.graph)
        for slot, part in query_file.batches(asked):
            triples, allowed = Triples.cat([query.triple for query in part]), _among(run.graph, slot, among)
            found = prediction.answer_all(run.model, run.graph, slot, triples, top, new_only, sure, allowed, typed)
            for query, answers in zip(part, found, strict=True):
                yield from query_file.answer_rows(run.graph, query, answers)
                if watch:
                    watch(1)

    return query_file.write_rows(out, rows(), str(run.path))


def score(
    run: Run | str | Path,
    facts: str | Path | Sequence[tuple[str, str, str]],
    out: str | Path | None = None,
    watch: Callable[[int], None] | None = None,
) -> Rows[Scored] | int:
    """The score, probability and rank of each fact of a file (or list), and whether it is known.

    With `out` they are written there as they come, and their number is returned.

    >>> harmonium.score("runs/demo", [("Switzerland", "official language", "French")])
    """
    run = open_run(run)
    chunks = (
        query_file.read_facts(facts, run.graph)
        if isinstance(facts, str | Path)
        else [run.graph.triple(*fact) for fact in facts]
    )
    sure = calibration_of(run)

    def scored() -> Iterator[Scored]:
        for part in chunks:
            yield from prediction.score_all(run.model, run.graph, part, sure)
            if watch:
                watch(len(part))

    return Rows(scored()) if out is None else query_file.write_rows(out, (s.to_json() for s in scored()), str(run.path))


def complete(
    run: Run | str | Path,
    relations: str | Sequence[str] | None = None,
    top: int = 1000,
    typed: bool = True,
    out: str | Path | None = None,
    watch: Callable[[int], None] | None = None,
) -> Rows[dict[str, Any]]:
    """The most probable facts that a graph lacks, of some relations or (left out) of all, most probable first.

    `typed` leaves heads and tails that the relation was seen with.

    >>> harmonium.complete("runs/demo", "borders", top=20)
    """
    run = open_run(run)
    names = [relations] if isinstance(relations, str) else relations
    numbers = None if names is None else [run.graph.relations.index(name) for name in names]
    with distributed.joined() as world:
        calibration = alone_or_first(world, lambda: calibration_of(run))
        missing = completion.complete(run.model, run.graph, numbers, top, typed, calibration, watch, world)
    found = missing.rows(run.graph)
    if out is not None and launch.rank() == 0:
        query_file.write_rows(out, iter(found), str(run.path))
    return Rows(found)


def calibrate(
    run: Run | str | Path, plot: str | Path | None = None, watch: Callable[[int], None] | None = None
) -> Calibration:
    """How the run's scores become probabilities, and how those did on test facts; made once and kept in its folder.

    >>> harmonium.calibrate("runs/demo", plot="reliability.png")
    """
    draw = _drawing(plot, "calibration_figure")
    found = calibration_of(open_run(run), watch)
    draw(found)
    return found


def neighbours(
    run: Run | str | Path,
    head: str,
    relation: str,
    tail: str,
    slot: str = "head",
    count: int = 5,
    typed: bool = True,
    of: str = "triplets",
    ridge: float = RIDGE,
    plot: str | Path | None = None,
) -> Neighbourhood | EntityNeighbourhood:
    """The nearest triplets to one, by composed vector and by token, when one slot changes.

    `of="entities"`: the entity vectors nearest to the entity's own and to its token in the triplet, which `ridge` > 0
    holds near the entity's own.

    >>> harmonium.neighbours("runs/demo", "Switzerland", "official language", "French")
    """
    run = open_run(run)
    if slot not in ("head", "tail"):
        raise HarmoniumError(f"neighbourhoods change the head or the tail, not '{slot}'")
    if of not in ("triplets", "entities"):
        raise HarmoniumError(f"neighbourhoods are of triplets or of entities, not of '{of}'")
    triple = run.graph.triple(head, relation, tail)
    if not ridge > 0:
        raise HarmoniumError(f"ridge must be positive, not {ridge}: the slot map may have no inverse")
    if of == "entities":
        if plot is not None:
            raise HarmoniumError("only neighbourhoods of triplets are drawn; leave out --plot or ask for triplets")
        return entity_neighbours(run.model, run.graph, triple, Slot(slot), count, typed, ridge)
    if plot is not None:
        from harmonium.figures import guises_figure

        guises_figure(run.model, run.graph, [triple], _drawable(plot), Slot(slot), count, typed)
    return neighbourhoods.neighbours(run.model, run.graph, triple, Slot(slot), count, typed)


def _drawable(path: str | Path) -> Path:
    """Where a figure may be written; its folder is made."""
    path = Path(path)
    if path.suffix not in (".png", ".pdf", ".svg"):
        raise HarmoniumError(f"--plot {path}: a figure ends in .png, .pdf or .svg")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HarmoniumError(f"--plot {path}: its folder cannot be made ({error.strerror})") from error
    return path


def _drawing(plot: str | Path | None, figure: str) -> Callable[[Any], None]:
    """What draws a result, if that is asked for; a path that cannot be is refused now, before the work."""
    path = None if plot is None else _drawable(plot)
    return lambda found: path and getattr(import_module("harmonium.figures"), figure)(found, path)


def _model_on(run: Run, device: str) -> Any:
    """The run's model on a device; the run keeps its own."""
    device = pick_device(device)
    return run.model if device.type == "cpu" else deepcopy(run.model).to(device)


def classify(
    run: Run | str | Path,
    labelled: str | Path | Sequence[str | Path] | None = None,
    seed: int = 0,
    device: str = "auto",
    plot: str | Path | None = None,
) -> Classification:
    """Tell true facts from false ones: thresholds and probabilities chosen on validation, judged on test.

    `labelled` is a folder with classification_valid.txt and classification_test.txt, or two such files. Without it the
    false facts are made from the run's own valid and test splits, by another head or tail seen there.

    >>> harmonium.classify("runs/demo").metrics["accuracy"]
    """
    run = open_run(run)
    draw = _drawing(plot, "classification_figure")
    if labelled:
        files = [Path(file) for file in ([labelled] if isinstance(labelled, str | Path) else labelled)]
        if len(files) == 1 and files[0].is_dir():
            files = [files[0] / f"classification_{split}.txt" for split in ("valid", "test")]
        if len(files) != 2:
            raise HarmoniumError(f"--labelled is one folder or two files, valid and test; given: {len(files)}")
        valid, test = (classification.read_labelled(file, run.graph) for file in files)
        source = " and ".join(file.name for file in files)
    else:
        generator = torch.Generator().manual_seed(seed)
        valid, test = (classification.labelled(run.graph, split, generator) for split in ("valid", "test"))
        source = f"half of them false: another head or tail seen in that place, seed {seed}"
    found = classification.classify(_model_on(run, device), run.graph, valid, test, source=source)
    draw(found)
    return found


def density(
    run: Run | str | Path,
    labelled: str | Path | None = None,
    count: int = 5,
    typed: bool = True,
    seed: int = 0,
    device: str = "auto",
    watch: Callable[[int], None] | None = None,
) -> Density:
    """Whether tokens of true triplets have more true neighbours than composed vectors have, and false ones fewer.

    `labelled` is a file of head, relation, tail and label 1 or -1; without it the test split is taken, and as many
    false triplets are made from it by another head or tail.

    >>> harmonium.density("runs/demo").positives.change
    """
    run = open_run(run)
    if labelled is not None:
        triples, labels = classification.read_labelled(labelled, run.graph)
    else:
        triples, labels = classification.labelled(run.graph, "test", torch.Generator().manual_seed(seed))
    return measure_density(_model_on(run, device), run.graph, triples, labels, count, typed, watch)


def gain(
    run: Run | str | Path,
    split: str = "valid",
    limit: int = 100_000,
    ties: str = "realistic",
    seed: int = 0,
    device: str = "auto",
    plot: str | Path | None = None,
    watch: Callable[[int], None] | None = None,
) -> Gain:
    """Whether triplets that gain harmony by optimisation gain rank by it: Spearman correlations of the two.

    >>> harmonium.gain("runs/demo").to_json()["candidates"]["full"]["spearman"]
    """
    run = open_run(run)
    draw = _drawing(plot, "gain_figure")
    found = measure_gain(_model_on(run, device), run.graph, split, limit, ties, seed, watch)
    draw(found)
    return found


def dynamics(
    run: Run | str | Path,
    head: str,
    relation: str,
    tail: str,
    steps: int | None = None,
    samples: int = 500,
    seed: int = 0,
    plot: str | Path | None = None,
) -> Dynamics:
    """How the network climbs from a triplet's composed vector to its token, and states around that.

    >>> harmonium.dynamics("runs/demo", "Switzerland", "official language", "French", plot="climb.png")
    """
    run, draw = open_run(run), _drawing(plot, "dynamics_figure")
    found = follow(run.model, run.graph, run.graph.triple(head, relation, tail), steps, samples, seed)
    draw(found)
    return found


def explain(
    run: Run | str | Path,
    head: str,
    relation: str,
    tail: str,
    count: int = 5,
    same_relation: bool = True,
    plot: str | Path | None = None,
) -> Explanation:
    """Why a fact scores as it does: harmony in its parts, the directions of W that pushed it, the facts behind it.

    >>> harmonium.explain("runs/demo", "Switzerland", "official language", "French").reasons
    """
    run = open_run(run)
    draw = _drawing(plot, "explain_figure")
    found = Explainer(run.model, run.graph).explain(run.graph.triple(head, relation, tail), count, same_relation)
    draw(found)
    return found


def add(
    run: Run | str | Path,
    facts: str | Path | Graph,
    out: str | Path | None = None,
    overwrite: bool = False,
    watch: Callable[[int], None] | None = None,
) -> tuple[Run, addition.Addition]:
    """Solve for the vectors of entities never seen, from a few facts about them; every other vector stays as it is.

    `facts` is a file of head, relation, tail in which new names stand beside known ones; relations must be known.

    >>> harmonium.add("runs/demo", "facts.tsv", out="runs/more")[1].names
    """
    run = open_run(run)
    if out is not None:
        reserve(out, overwrite)
    given = facts if isinstance(facts, Graph) else load(facts, valid=0, test=0)
    added = addition.extend(run.graph, given)
    model = addition.add_entities(run.model, added, run.config.train, watch)
    wider = replace(run, graph=added.graph, model=model, metrics=_metrics(model, added.graph, run.config.evaluate))
    return replace(wider, path=wider.save(out, overwrite) if out is not None else None), added


def convert(
    source: Any,
    out: str | Path,
    to: str | None = None,
    valid: float = 0,
    test: float = 0,
    seed: int = 0,
    overwrite: bool = False,
    **options: Any,
) -> Graph:
    """Write a graph in another format, with its splits and names; what brings no splits may be split on the way.

    `out` is one file (its ending says the format) or a folder of splits in the format `to`; `options` are those of `load`.

    >>> harmonium.convert("facts.csv", "facts", columns="from,kind,to", valid=0.05, test=0.05)
    """
    from harmonium import formats

    out = Path(out)
    if not overwrite and (out.is_file() or (out.is_dir() and any(out.iterdir()))):
        raise HarmoniumError(f"{out} is already there; choose another name or say --overwrite")
    kind = formats.writable(out, to)
    graph = load(source, seed=seed, valid=valid, test=test, **options)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        notes = formats.write(graph, out, kind)
    except OSError as error:
        raise HarmoniumError(f"{out}: cannot be written ({error.strerror or error})") from error
    return replace(graph, notes=(*graph.notes, *notes))


def info(graph_or_run: str | Path | Graph | Run) -> dict[str, Any]:
    """What a graph holds (counts, relations with an example) and, for a run, how it was trained and what it scored."""
    found: dict[str, Any] = {}
    graph = graph_or_run
    if isinstance(graph, str | Path) and ((Path(graph) / "run.json").is_file() or unfinished(Path(graph))):
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
    positions = torch.arange(len(graph.train))
    first = torch.full((graph.n_relations,), len(positions)).scatter_reduce_(0, graph.train.relation, positions, "amin")
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
                "example": graph.spell(graph.train[first[r : r + 1]])[0] if counts[r] else None,
            }
            for r in counts.argsort(descending=True, stable=True).tolist()
        ],
    }
    return found
