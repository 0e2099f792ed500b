"""The public functions `train` and `resume`: fit a model, evaluate it, and write the run folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from harmonium.config.setting_values import Overrides, full_keys
from harmonium.config.settings import Config
from harmonium.data.canonical_order import in_canonical_order
from harmonium.data.datasets import read_graph
from harmonium.data.graph import Graph
from harmonium.data.tables.reading_options import Options, split_keywords
from harmonium.errors import HarmoniumError, out_of_memory_error
from harmonium.evaluation.evaluation import EvaluationSummary, evaluate_with_baselines
from harmonium.model.build import build_model
from harmonium.model.gradient_graph import GradientGraph
from harmonium.run import checkpoint
from harmonium.run.checkpoint import Checkpoints
from harmonium.run.environment import environment
from harmonium.run.run import History, Run
from harmonium.run.selection import Selection, Task
from harmonium.runtime import torchrun
from harmonium.runtime.device import pick_device
from harmonium.runtime.distributed import World, local_main_first, process_group, run_on_main
from harmonium.runtime.folders import is_finished, is_unfinished, refuse_current_folder, remove_leftovers, reserve
from harmonium.training.fit import fit
from harmonium.training.initial_vectors import import_embeddings
from harmonium.training.notebook_progress import OnProgress, stage_counter, training_progress
from harmonium.training.search.search import TimeLimit, select
from harmonium.training.search.space import Search
from harmonium.training.setting_choices import check_choices
from harmonium.training.tracking import Log, check_targets, tracking

if TYPE_CHECKING:
    from harmonium.grammar.parameters import GrammarParameters

DEFAULT = "best"  # the preset used if no settings are given
LAST_TRAINING = "last training, on all facts"
MIN_LAST_EPOCHS = 0.75  # share of the epochs of the last training; with fewer its vectors are worse than those before
Base = Config | str | Path | None  # settings, a recipe's name or a file of settings


def train(
    data: Any = None,
    config: Base | Mapping[str, Any] = None,
    out: str | Path | None = None,
    *,
    overrides: Overrides = (),
    overwrite: bool = False,
    progress: OnProgress | Literal[False] | None = None,
    track: Sequence[str] = (),
    minutes: float | None = None,
    preset: str | None = None,
    like: str | Path | None = None,
    **keywords: Any,
) -> Run:
    """Train a model on a graph, evaluate it, and write a run folder to `out` if given.

    `data` is anything that `load` reads; its options, such as columns and on_bad, are keyword arguments here too. `config`
    is a preset (best, fast, plain, paper; also `preset=...`), another recipe or file of settings, or a `Config`. The
    default, best, chooses the model that ranks held-out facts of this graph best, within the time budget of `minutes`.
    Settings, by their full or short names, stay fixed: as keyword arguments, as a dict in place of `config`, or as
    `overrides` (a dict, or `key=value` each). `like` is a run folder whose settings are used: nothing is searched. `track`
    also logs metrics to `tensorboard:DIR`, `wandb:PROJECT`, `mlflow:URI` or `csv:FILE`. A notebook shows a progress bar
    (`progress=False`: none).

    >>> run = harmonium.train("facts.csv", epochs=50, model="ComplEx", out="runs/mine")
    >>> run = harmonium.train("facts.csv", columns="person,knows,friend", on_bad="skip")
    >>> run = harmonium.train("atlas", "plain", dim=32, learning_rate=0.1)
    >>> run = harmonium.train("atlas", {"model.entity_dim": 32, "train": {"epochs": 20}})
    """
    reading, settings = split_keywords(keywords)
    Options.of(reading)  # check them before the work begins
    if like is not None:
        if config is not None or preset is not None:
            raise HarmoniumError("give like=RUN or other settings, not both")
        config = settings_of_run(Path(like))
    base, given = given_settings(config, preset, overrides, settings)
    folder = None if out is None else Path(out)
    report = training_progress(progress)
    if torchrun.rank():  # only the main process reports
        report, track = None, ()
    with process_group() as world:
        chosen, search = read_recipe(base, given)
        if minutes is not None and search is None:
            raise HarmoniumError(
                "a time budget (minutes) needs settings with a table [search], such as the preset best"
            )
        if folder is not None:
            if torchrun.restart_count() and run_on_main(world, partial(_holds_training, folder, chosen)):
                return resume(folder, progress=report, track=track)
            run_on_main(world, partial(reserve, folder, overwrite))
            run_on_main(world, partial(check_targets, track, folder))
        chosen, graph = load_graph(chosen, data, world, reading)
        device = str(pick_device(chosen.train.device))
        task = Task(asdict(search), list(given), minutes) if search is not None else None
        saving = checkpoint.begin(folder, overwrite, chosen, graph, device, world, task) if folder else nullcontext()
        with saving as checkpoints:
            return _train(chosen, graph, world, task, checkpoints, report, track)


def resume(
    run: str | Path,
    overrides: Overrides = (),
    *,
    progress: OnProgress | Literal[False] | None = None,
    track: Sequence[str] = (),
    **settings: Any,
) -> Run:
    """Continue a training that was stopped or killed; on a CPU the result is identical to that without interruption.

    Some settings, such as the learning rate, may change. A finished run is returned as it is.

    >>> harmonium.resume("runs/mine", learning_rate=0.001)
    """
    folder, given = Path(run), given_settings(None, None, overrides, settings)[1]
    report = training_progress(progress)
    if torchrun.rank():
        report, track = None, ()
    remove_leftovers(folder)
    if is_unfinished(folder):
        refuse_current_folder(folder)
        with process_group() as world, checkpoint.reopen(folder, given, world) as (checkpoints, chosen, graph):
            task = checkpoints.task
            if task is not None:
                task = replace(task, fixed=[*task.fixed, *given])
            return _train(chosen, graph, world, task, checkpoints, report, track)
    if given and is_finished(folder):
        raise HarmoniumError(f"{folder} is finished and its settings cannot change; train again with other settings")
    return Run.load(folder)


def _train(
    settings: Config,
    graph: Graph,
    world: World | None,
    task: Task | None,
    checkpoints: Checkpoints | None,
    report: OnProgress | None,
    track: Sequence[str],
) -> Run:
    """Do the pending search of settings (the task), if any; then train, evaluate and write the run."""
    if world is not None:
        versions = {key: value for key, value in environment().items() if key not in ("device", "platform")}
        shown = {"settings": replace(settings, data="").to_toml(), "search": str(task), "graph": graph.fingerprint()}
        world.check_agreement(versions | shown)
    selection, limit = checkpoints.selection if checkpoints else None, TimeLimit()
    if task is not None:
        settings, selection = select(settings, Search(**task.search), graph, task.fixed, task.minutes, report, world)
        limit = TimeLimit.after(selection, settings)
        if checkpoints:
            checkpoints.decide(settings, selection)
    model = _build(settings, graph, world)
    if checkpoints:
        checkpoints.reserve_space(_model_bytes(model, settings), graph.n_relations)
    with tracking(track, settings) as log:
        history = fit(model, graph, settings, report, log, checkpoints, limit.first_training)
        return _finish(settings, graph, model, history, log, checkpoints, selection, limit, report)


def settings_of_run(folder: Path) -> Path:
    """The settings file of a run; training with it again gives an equal model."""
    if not is_finished(folder):
        raise HarmoniumError(f"{folder} is not a finished run; `harmonium train` writes one")
    return folder / "config.toml"


def given_settings(
    config: Base | Mapping[str, Any], preset: str | None, overrides: Overrides, settings: Mapping[str, Any]
) -> tuple[Base, dict[str, Any]]:
    """The base of the settings (None: the default), and overrides by full name; of repeated ones the last counts."""
    given: dict[str, Any] = {}
    if not isinstance(config, Config | Mapping | str | Path | None):
        raise HarmoniumError(f"settings must be a preset, a file, a Config or a dict, not a {type(config).__name__}")
    if isinstance(config, Mapping):
        given = full_keys(Config, config)
        config = None
    if preset is not None and config is not None:
        raise HarmoniumError(f"give a config ({config}) or a preset ({preset}), not both")
    return config or preset, given | full_keys(Config, overrides) | full_keys(Config, settings)


def read_recipe(config: Base, overrides: Overrides) -> tuple[Config, Search | None]:
    """Settings with overrides applied, and the search of further settings, if any; default: the preset best."""
    search = None
    if isinstance(config, Config):
        settings = Config.of(asdict(config), overrides)
    else:
        config = config or DEFAULT
        settings, search = Config.read(config, overrides), Search.read(config)
    check_choices(settings)
    return settings, search


def read_settings(config: Base, overrides: Overrides) -> Config:
    """Settings as `plan` accepts them, with overrides applied."""
    return read_recipe(config, overrides)[0]


def load_graph(
    settings: Config, data: Any, world: World | None = None, reading: Mapping[str, Any] | None = None
) -> tuple[Config, Graph]:
    """The graph to train on, in canonical order, and the settings with its name.

    Processes of one machine share downloads.
    """
    source = settings.data if data is None else data
    with local_main_first(world):
        graph = source if isinstance(source, Graph) else read_graph(source, **reading or {})
    return replace(settings, data=str(source) if isinstance(source, str | Path) else graph.name), in_canonical_order(
        graph
    )


def _holds_training(folder: Path, settings: Config) -> bool:
    """Whether a run folder has this training, finished or not, from before a restart by torchrun.

    A finished one is recognised only if settings did not change: a search, or a fit of W, leaves others.
    """
    with suppress(HarmoniumError, LookupError):
        stored = checkpoint.given_settings(folder) if is_unfinished(folder) else Config.read(folder / "config.toml")
        return replace(stored, data=settings.data) == settings
    return False


def _build(settings: Config, graph: Graph, world: World | None) -> GradientGraph:
    """Build a new model with untrained vectors."""
    try:
        model = build_model(settings.model, graph.n_entities, graph.n_relations, settings.train.seed, world)
    except (RuntimeError, MemoryError) as error:
        raise out_of_memory_error(error, "lower model.entity_dim or model.rank") from error
    if settings.train.initial_vectors is not None:
        import_embeddings(model, graph, settings.train.initial_vectors)
    return model


def _finish(
    settings: Config,
    graph: Graph,
    model: GradientGraph,
    history: History,
    log: Log | None,
    checkpoints: Checkpoints | None,
    selection: Selection | None,
    limit: TimeLimit,
    report: OnProgress | None,
) -> Run:
    """Build the run of a fitted model; the main process writes it in place of the checkpoints, if any."""
    device = pick_device(checkpoints.device if checkpoints else settings.train.device)
    world = model.world
    if world is not None and (settings.train.constraints or settings.train.last_training):
        model.cpu().gather_entities(everywhere=True)
    model.cpu()
    grammar = _learn_constraints(model, graph, settings, report, world)
    run = Run(settings, graph, model, history, environment=environment(device), selection=selection, grammar=grammar)
    evaluation = _evaluate(run, report, world)
    if settings.train.last_training:
        final, stopped = _train_on_all(model, graph, settings, history, limit, report, world)
        run = replace(run, final=final, history=replace(history, stopped=stopped))
    run = replace(run, evaluation=evaluation)
    model.gather_entities()
    if log and evaluation:
        log({"epoch": len(history.rows), evaluation.protocol.split: evaluation.metrics})
    if checkpoints is None:
        return run
    save = partial(run.save, overwrite=True)
    return replace(run, path=run_on_main(world, lambda: checkpoints.write_run(save)))


def _evaluate(run: Run, report: OnProgress | None, world: World | None) -> EvaluationSummary | None:
    """Evaluate the scorer that has learned from train facts only."""
    protocol, graph = run.config.evaluate, run.graph
    n_facts = len(graph.splits[protocol.split]) or len(graph.valid)
    n_queries = min(n_facts, protocol.sample or n_facts) * (2 if protocol.side == "both" else 1)
    advance = stage_counter(report, "evaluating", n_queries, "queries")
    return evaluate_with_baselines(run.held_out_scorer(), graph, protocol, progress=advance, world=world)


def _learn_constraints(
    model: GradientGraph, graph: Graph, settings: Config, report: OnProgress | None, world: World | None
) -> GrammarParameters | None:
    """The constraints beside the vectors, if the settings ask for them and facts are held out."""
    if not settings.train.constraints:
        return None
    from harmonium.training.constraints import learn_constraints  # imports scipy, which the vectors do not need

    train = settings.train
    return learn_constraints(
        model, graph, seed=train.seed, seconds=train.constraint_seconds, report=report, world=world
    )


def _train_on_all(
    model: GradientGraph,
    graph: Graph,
    settings: Config,
    history: History,
    limit: TimeLimit,
    report: OnProgress | None,
    world: World | None,
) -> tuple[GradientGraph | None, str]:
    """Train the model that answers queries: with equal settings, up to the best epoch, on the facts of all splits.

    Returns it and how training ended. It is None if time ran out before most of the epochs were done.
    """
    if not len(graph.valid) + len(graph.test):
        return None, history.stopped
    everything = replace(graph, train=graph.facts(), valid=graph.valid[:0], test=graph.test[:0])
    epochs = history.best_epoch or settings.train.epochs
    chosen = replace(settings, train=replace(settings.train, epochs=epochs))
    on_step = None if report is None else lambda now: report(replace(now, stage=LAST_TRAINING))
    rest, needed = limit.rest(), MIN_LAST_EPOCHS * epochs
    seconds_an_epoch = history.seconds / max(1, len(history.rows))
    if rest is None or rest >= needed * seconds_an_epoch:
        final = _build(chosen, everything, world)
        if len(fit(final, everything, chosen, on_step, most_seconds=rest).rows) >= needed:
            final.cpu().gather_entities(everywhere=True)
            return final.eval(), history.stopped
    text = f"no time was left for the {LAST_TRAINING}: vectors that answer have seen train facts alone"
    return None, f"{history.stopped}; {text}"


def _model_bytes(model: GradientGraph, settings: Config) -> int:
    """Bytes of the parameters of the finished model, including all shards of its vectors."""
    tables = model.n_entities * model.entity.shape[1] * model.entity.element_size()
    others = sum(p.numel() * p.element_size() for name, p in model.named_parameters() if name != "entity")
    return tables + others
