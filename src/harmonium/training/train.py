"""The public functions `train` and `resume`: fit a model, evaluate it, and write the run folder."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from harmonium.data.datasets import load
from harmonium.data.graph import Graph
from harmonium.evaluation.evaluation import evaluate_with_baseline
from harmonium.model.build import build_model
from harmonium.model.gradient_graph import GradientGraph
from harmonium.run import checkpoint
from harmonium.run.checkpoint import Checkpoints
from harmonium.run.environment import environment
from harmonium.run.run import History, Run
from harmonium.runtime import torchrun
from harmonium.runtime.config import Config
from harmonium.runtime.device import pick_device
from harmonium.runtime.distributed import World, local_main_first, process_group, run_on_main
from harmonium.runtime.errors import HarmoniumError, out_of_memory_error
from harmonium.runtime.folders import is_unfinished, remove_leftovers, reserve
from harmonium.training.fit import fit
from harmonium.training.initial_vectors import import_embeddings
from harmonium.training.state import Progress
from harmonium.training.tracking import Log, tracking

OnProgress = Callable[[Progress], None]


def train(
    config: Config | str | Path | None = None,
    data: str | Graph | None = None,
    out: str | Path | None = None,
    overrides: Sequence[str] = (),
    overwrite: bool = False,
    progress: OnProgress | None = None,
    track: Sequence[str] = (),
) -> Run:
    """Train a model on a graph, evaluate it, and write a run folder to `out` if given.

    `track` also logs metrics to `tensorboard:DIR`, `wandb:PROJECT`, `mlflow:URI` or `csv:FILE`.

    >>> run = harmonium.train(data="atlas", overrides=["model.entity_dim=32", "train.epochs=20"], out="runs/small")
    """
    settings, folder = read_settings(config, overrides), None if out is None else Path(out)
    if torchrun.rank():  # only the main process reports
        progress, track = None, ()
    with process_group() as world:
        if folder is not None:
            if torchrun.restart_count() and run_on_main(world, partial(_holds_training, folder, settings)):
                return resume(folder, progress=progress, track=track)
            run_on_main(world, partial(reserve, folder, overwrite))
        settings, graph = load_graph(settings, data, world)
        device = str(pick_device(settings.train.device))
        saving = checkpoint.begin(folder, overwrite, settings, graph, device, world) if folder else nullcontext()
        with saving as checkpoints:
            model = _build(settings, graph, world)
            with tracking(track, settings) as log:
                history = fit(model, graph, settings, progress, log, checkpoints)
                return _evaluate_and_save(settings, graph, model, history, log, checkpoints)


def resume(
    run: str | Path,
    overrides: Sequence[str] = (),
    progress: OnProgress | None = None,
    track: Sequence[str] = (),
) -> Run:
    """Continue a training that was stopped or killed; on a CPU the result is the same to the byte.

    Some settings, such as the learning rate, may change. A finished run is returned as it is.

    >>> harmonium.resume("runs/mine", overrides=["train.learning_rate=0.001"])
    """
    folder = Path(run)
    if torchrun.rank():
        progress, track = None, ()
    if is_unfinished(folder):
        with process_group() as world, checkpoint.reopen(folder, overrides, world) as (checkpoints, settings, graph):
            model = _build(settings, graph, world)
            with tracking(track, settings) as log:
                history = fit(model, graph, settings, progress, log, checkpoints)
                return _evaluate_and_save(settings, graph, model, history, log, checkpoints)
    if overrides and (folder / "run.json").is_file():
        raise HarmoniumError(f"{folder} is finished and its settings cannot change; train again with other settings")
    with suppress(OSError):
        remove_leftovers(folder)
    return Run.load(folder)


def read_settings(config: Config | str | Path | None, overrides: Sequence[str]) -> Config:
    """Settings as `train`, `plan` and `tune` accept them, with overrides applied."""
    return Config.of(asdict(config), overrides) if isinstance(config, Config) else Config.read(config, overrides)


def load_graph(settings: Config, data: str | Graph | None, world: World | None = None) -> tuple[Config, Graph]:
    """The graph to train on, and the settings with its name; processes of a machine share what is downloaded."""
    source = settings.data if data is None else data
    with local_main_first(world):
        graph = load(source)
    return replace(settings, data=str(source) if isinstance(source, str | Path) else graph.name), graph


def _holds_training(folder: Path, settings: Config) -> bool:
    """Whether a run folder holds this training, unfinished or finished, from before torchrun restarted it."""
    with suppress(HarmoniumError, LookupError):
        stored = checkpoint.settings(folder) if is_unfinished(folder) else Config.read(folder / "config.toml")
        return replace(stored, data=settings.data) == settings
    return False


def _build(settings: Config, graph: Graph, world: World | None) -> GradientGraph:
    """A new model, after a check that all processes are to train the same one."""
    if world is not None:
        versions = {key: value for key, value in environment().items() if key not in ("device", "platform")}
        world.check_agreement(
            {**versions, "settings": replace(settings, data="").to_toml(), "graph": graph.fingerprint()}
        )
    try:
        model = build_model(settings.model, graph.n_entities, graph.n_relations, settings.train.seed, world)
    except (RuntimeError, MemoryError) as error:
        raise out_of_memory_error(error, "lower model.entity_dim or model.rank") from error
    if settings.train.initial_vectors is not None:
        import_embeddings(model, graph, settings.train.initial_vectors)
    return model


def _evaluate_and_save(
    settings: Config,
    graph: Graph,
    model: GradientGraph,
    history: History,
    log: Log | None,
    checkpoints: Checkpoints | None,
) -> Run:
    """The run of a fitted model, which replaces its checkpoints, if any; the main process writes it."""
    device = pick_device(checkpoints.device if checkpoints else settings.train.device)
    evaluation, world = evaluate_with_baseline(model.cpu(), graph, settings.evaluate), model.world
    run = Run(settings, graph, model, history, evaluation, environment=environment(device))
    model.gather_entities()
    if log and evaluation:
        log({"epoch": len(history.rows), evaluation.protocol.split: evaluation.metrics})
    if checkpoints is None:
        return run
    folder = checkpoints.run
    return replace(run, path=run_on_main(world, lambda: run.save(folder, overwrite=True)))
