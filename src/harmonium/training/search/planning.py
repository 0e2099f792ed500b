"""plan(): what a training will take, estimated from a few real steps and rankings.

Everything is built at full size, so memory is measured. Where the tables alone would not fit, nothing is tried.
"""

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harmonium.config.setting_values import Overrides
from harmonium.config.settings import Config, EvaluateConfig, TrainConfig
from harmonium.data.graph import Graph
from harmonium.data.tables.reading_options import split_keywords
from harmonium.data.triples import Triples
from harmonium.evaluation.baselines import Frequency
from harmonium.evaluation.candidates import MAX_SCORES_HELD
from harmonium.evaluation.evaluation import evaluate_scorer
from harmonium.model.build import build_model
from harmonium.model.gradient_graph import GradientGraph
from harmonium.model.harmony import Harmony
from harmonium.model.scoring import Scorer
from harmonium.runtime.device import pick_device, use_threads
from harmonium.runtime.displayed import Displayed, Line, Part, Table, notes, one_line
from harmonium.training.fit import validation_sample
from harmonium.training.relative_weights import relative_weights
from harmonium.training.search.cost import count_parameters, count_tables, free_memory, now, time_steps
from harmonium.training.state import TrainingState
from harmonium.training.train import Base, given_settings, load_graph, read_settings

GROWTH = 2  # where only some chunks of queries are tried, the largest of all takes about twice their memory
RANKING_SECONDS = 0.25  # time spent on timing each of three rankings


@dataclass(frozen=True)
class Plan(Displayed):
    """An estimate: seconds by what takes them, bytes by what they hold. Early stopping can only make it shorter."""

    graph: str
    device: str
    parameters: int
    epochs: int
    steps: int  # per epoch
    fits: bool  # whether tables and optimiser state fit in free memory; if not, nothing was timed
    step_seconds: float
    seconds: dict[str, float]
    memory: dict[str, int]
    notes: tuple[str, ...] = ()  # of the graph

    def __repr__(self) -> str:
        time = f"about {self.total_seconds:,.0f} s" if self.fits else "does not fit in memory"
        return one_line(self, f"{self.graph}: {time}", f"{self.peak_memory / 1e6:,.0f} MB", f"{self.epochs:,} epochs")

    def display(self) -> Iterator[Part]:
        """Memory and time; where it does not fit, what to do."""
        work = f"{self.epochs:,} epochs of {self.steps:,} steps on {self.device}"
        yield Line(f"{self.graph}: {self.parameters:,} parameters, {work}", "bold")
        yield from notes(self.notes)
        memory = [[name, _bytes_text(count)] for name, count in [*self.memory.items(), ("total", self.peak_memory)]]
        yield Table("Memory", ["for", "about"], memory)
        if not self.fits:
            yield Line(
                "does not fit: lower model.entity_dim, set model.entity_dtype=bfloat16 and "
                "train.optimiser=row-adagrad, or use more memory or several machines (torchrun)",
                "red",
            )
            return
        times = [[name, _duration(count)] for name, count in [*self.seconds.items(), ("total", self.total_seconds)]]
        per_step = f"a step {_duration(self.step_seconds)}, an epoch {_duration(self.steps * self.step_seconds)}"
        yield Table("Time", ["for", "about"], times, f"{per_step}; validation may stop training earlier")

    def records(self) -> list[dict[str, Any]]:
        """Bytes and seconds by what takes them."""
        amounts = (("bytes", self.memory), ("seconds", self.seconds))
        return [{"what": name, "unit": unit, "amount": n} for unit, parts in amounts for name, n in parts.items()]

    @property
    def total_seconds(self) -> float:
        return sum(self.seconds.values())

    @property
    def peak_memory(self) -> int:
        return sum(self.memory.values())

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"total_seconds": self.total_seconds, "peak_memory": self.peak_memory}


def _bytes_text(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def _duration(seconds: float) -> str:
    if seconds < 1:
        return f"{1000 * seconds:.3g} ms"
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min {rest} s"


def plan(
    data: Any = None,
    config: Base | Mapping[str, Any] = None,
    overrides: Overrides = (),
    *,
    preset: str | None = None,
    **keywords: Any,
) -> Plan:
    """How long a training would take on this machine, and how much memory, from about two seconds of it.

    Graph, options of reading it and settings are given as to `train`.

    >>> harmonium.plan("FB15K-237", dim=256).total_seconds
    """
    reading, settings = split_keywords(keywords)
    base, given = given_settings(config, preset, overrides, settings)
    config, graph = load_graph(read_settings(base, given), data, reading=reading)
    return _plan(config, graph)


def _plan(config: Config, graph: Graph) -> Plan:
    """The estimate for these settings."""
    settings, device = config.train, pick_device(config.train.device)
    if settings.threads:
        use_threads(settings.threads)
    parameters = count_parameters(config, graph)
    steps = math.ceil(len(graph.split("train")) / settings.batch_size)
    header = (graph.name, str(device), parameters, settings.epochs, steps)
    tables = count_tables(config, graph, parameters, device)
    memory = {"program and graph": _resident_memory(device)} | tables
    if sum(tables.values()) > free_memory(device):
        return Plan(*header, False, math.nan, {}, memory, tuple(map(str, graph.notes)))
    return Plan(*header, True, *_measure(config, graph, device, memory), tuple(map(str, graph.notes)))


def _measure(
    config: Config, graph: Graph, device: torch.device, memory: dict[str, int]
) -> tuple[float, dict[str, float], dict[str, int]]:
    """Seconds of a step, seconds of a training by what takes them, and bytes by what they hold."""
    settings, protocol, start = config.train, config.evaluate, now()
    model = build_model(config.model, graph.n_entities, graph.n_relations, settings.seed)
    train = relative_weights(graph.train, settings.weight_power).to(device)
    state = TrainingState(model.move_to(device, settings.entity_storage), train, settings)
    step, building = state.training_step, now() - start
    step_seconds = time_steps(state)
    start = now()
    state.check()
    check_seconds = now() - start
    after_steps = _resident_memory(device)
    memory = memory | {
        "optimiser": _total_bytes(step.state_dict().values()),
        "gradients": _total_bytes(p.grad for p in step.dense_parameters if p.grad is not None),
    }
    memory["steps"] = after_steps - sum(memory.values()) + memory["best model"]
    _roughen(model)
    valid, test = validation_sample(graph, settings), graph.splits[protocol.split]
    test = (test if len(test) else graph.valid)[: protocol.sample]
    validation = _time_ranking(model, graph, EvaluateConfig(split="valid"), valid, device)
    scorers, cpu = (model.cpu(), Frequency(graph)), torch.device("cpu")
    seconds = {
        "building": building,
        "steps": step.n_steps * step_seconds,
        "checks": settings.epochs * check_seconds,
        "validations": math.ceil(settings.epochs / settings.evaluate_every) * validation,
        "final evaluation": sum(_time_ranking(scorer, graph, protocol, test, cpu) for scorer in scorers),
    } | _after_vectors(settings, graph, settings.epochs * check_seconds + step.n_steps * step_seconds)
    growth = 1 if len(test) * graph.n_entities <= MAX_SCORES_HELD["cpu"] else GROWTH
    memory["evaluation"] = growth * (_resident_memory(device) - after_steps)
    return step_seconds, seconds, {name: max(0, size) for name, size in memory.items()}


def _after_vectors(settings: TrainConfig, graph: Graph, training_seconds: float) -> dict[str, float]:
    """Seconds of what follows the training of the vectors, where the settings ask for it.

    The weights of constraints, and what these add to the evaluation, are not estimated.
    """
    seconds: dict[str, float] = {}
    if settings.constraints:
        seconds["path rules, at most"] = settings.constraint_seconds
    if settings.last_training and len(graph.train):
        seconds["last training"] = training_seconds * len(graph.facts()) / len(graph.train)
    return seconds


def _time_ranking(
    scorer: Scorer, graph: Graph, protocol: EvaluateConfig, triples: Triples | None, device: torch.device
) -> float:
    """The time to rank all triples: that of one, and what each further one of a chunk or more adds."""
    if triples is None or not len(triples):
        return 0.0

    def timed(count: int) -> float:
        start = now()
        part = triples[torch.linspace(0, len(triples) - 1, count).long()]
        evaluate_scorer(scorer, graph, protocol, part, device=device)
        return now() - start

    timed(1)  # warm-up
    first = timed(1)
    count = min(max(1, MAX_SCORES_HELD[device.type] // graph.n_entities), len(triples))
    seconds = timed(count)
    while seconds < RANKING_SECONDS and count < len(triples):
        count = min(4 * count, len(triples))
        seconds = timed(count)
    return first + max(0.0, seconds - first) / max(1, count - 1) * (len(triples) - 1)


@torch.no_grad()
def _roughen(model: GradientGraph) -> None:
    """Add noise to W, as training does: how fast ranks are computed depends on its spectrum."""
    if isinstance(model.form, Harmony):
        free = model.form.free
        noise = torch.randn(free.shape, generator=torch.Generator().manual_seed(0)).to(free.device)
        free.add_(noise * free.norm() / noise.norm())


def _total_bytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)


def _resident_memory(device: torch.device) -> int:
    """Bytes that this process holds now; in the command line, which keeps freed memory, also the most it held."""
    if device.type == "cuda":
        return torch.cuda.memory_reserved(device)
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # not Linux: only the counted tables are known
        return 0
