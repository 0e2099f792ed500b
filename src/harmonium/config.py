"""One typed tree of settings: one field = one TOML key = one `--set` flag, and its help is its description."""

from __future__ import annotations

import dataclasses
import math
import re
import tomllib
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from harmonium.errors import HarmoniumError
from harmonium.suspicion import refuse_pickle

LARGEST = 2**63  # whole numbers stay below, as PyTorch's do


def option(default: Any, help: str, above: float | None = None, least: float | None = None) -> Any:
    """A field with its description and its range."""
    return field(default=default, metadata={"help": help, "above": above, "least": least})


@dataclass(frozen=True)
class ModelConfig:
    composition: str = option("hole", "how head, relation and tail become one vector: distmult, hole, complex, ...")
    entity_dim: int = option(64, "size of an entity vector", least=1)
    entity_dtype: Literal["float32", "bfloat16"] = option(
        "float32", "how entity vectors are kept; bfloat16: half the memory, rounded at random so that small steps count"
    )
    relation_dim: int | None = option(None, "size of a relation vector; the composition decides when left out", least=1)
    harmony: bool = option(True, "score by harmony (a Gradient Graph); false gives the plain model, the sum of x")
    faithfulness: float = option(
        1.0,
        "lambda: how strongly a token is held to its composed vector; small lets W reshape it, inf not at all",
        above=0,
    )
    constraint: Literal["frobenius", "spectral"] = option("frobenius", "which norm of W is kept below the cap")
    cap: float | None = option(
        None, "largest norm of W, below lambda; lambda - 0.25 (2.5 at inf) when left out", above=0
    )
    rank: int | None = option(None, "rank of W; full when left out, faster when small", least=1)
    initialisation: Literal["calibrated", "paper"] = option("calibrated", "calibrated: unit score spread, W along b")
    normalise: bool = option(True, "embeddings of length one")
    reciprocal: bool = option(False, "a second vector per relation, answering head queries as tail queries")
    dropout: float = option(0.0, "share of W's entries left out at random in each training step, below 1", least=0)


@dataclass(frozen=True)
class TrainConfig:
    epochs: int = option(100, "passes over the training triples", least=1)
    batch_size: int = option(512, "triples in a step", least=1)
    loss: Literal["sampled", "full", "linear-margin", "logistic-margin", "logistic"] = option(
        "sampled",
        "softmax against sampled negatives (the paper) or all entities; hinge on scores (Yang 2015, the paper's HolE*) "
        "or on their sigmoids (Nickel 2016); log-loss of true or corrupted (Nickel 2016)",
    )
    negatives: int = option(128, "corrupted triples per true one and side (every loss but full)", least=1)
    sampler: Literal["uniform", "degree", "typed"] = option(
        "uniform",
        "who corrupts: anyone; entities with many facts more often; half of them entities seen in that slot of the "
        "relation. The softmax (train.loss=sampled) is corrected for how they were drawn",
    )
    shared: int = option(
        1,
        "so many triples of a batch share their corruptions: quicker, most of all for plain models and W of low rank",
        least=1,
    )
    margin: float = option(1.0, "by how much the margin losses want the true triple to win", above=0)
    optimizer: Literal["adam", "adagrad", "row-adagrad"] = option(
        "adam", "the optimiser; row-adagrad remembers one number for an entity, adagrad a vector, adam two"
    )
    learning_rate: float = option(0.003, "step size of the optimiser", above=0)
    schedule: Literal["constant", "linear"] = option("linear", "the learning rate stays, or falls in a line to zero")
    rows: Literal["touched", "all"] = option(
        "touched", "on large graphs (where a step uses under half the entities) move only the rows a step touched"
    )
    table: Literal["device", "host"] = option(
        "device",
        "where entity vectors lie; host: in the memory of the host, which is larger, beside a GPU that computes",
    )
    n3: float = option(0.0, "weight of the nuclear 3-norm regulariser", least=0)
    relation_corruption: float = option(
        0.0, "weight of a softmax of the true relation against all others (Chen 2021)", least=0
    )
    type_loss: float = option(
        0.0, "weight of predicting from its vector in which slot of which relation an entity stands", least=0
    )
    metric: Literal["mrr", "hits@1", "hits@3", "hits@10", "amri"] = option("mrr", "validation metric to stop on")
    evaluate_every: int = option(5, "epochs between validations", least=1)
    patience: int = option(5, "validations without improvement before stopping", least=1)
    validation_triples: int = option(5000, "validate on at most this many triples (a seeded sample)", least=1)
    init: str | None = option(
        None, "vectors to start from, by name: .npz or .parquet as `harmonium export` writes them"
    )
    seed: int = option(0, "of initialisation, order and negatives; same seed, same result on a CPU", least=0)
    precision: Literal["high", "highest"] = option(
        "high",
        "products of matrices in training: high rounds what is multiplied where that is faster; highest does not",
    )
    device: str = option("auto", "cpu, cuda, or auto: a GPU when there is one")
    threads: int | None = option(None, "CPU threads; PyTorch decides when left out", least=1)
    checkpoint_minutes: float = option(5.0, "minutes between checkpoints, from which `resume` goes on", above=0)
    checkpoint_every: int | None = option(None, "steps between checkpoints; by the clock alone when left out", least=1)
    checkpoint_keep: int = option(2, "how many checkpoints are kept, the last ones", least=1)


@dataclass(frozen=True)
class EvaluateConfig:
    split: Literal["train", "valid", "test"] = option("test", "which triples are ranked")
    candidates: Literal["full", "typed-train", "typed-all"] = option(
        "full", "rank among all entities, or those seen in that slot of the relation (in train; in all splits)"
    )
    ties: Literal["realistic", "optimistic", "pessimistic"] = option("realistic", "where the truth stands among equals")
    side: Literal["head", "tail", "both"] = option("both", "which slot is asked for")
    filtered: bool = option(True, "other known answers do not count against the true one")
    unseen: Literal["keep", "drop"] = option("keep", "test triples with an entity that training never saw")
    sample: int | None = option(
        None,
        "rank so many facts of the split, drawn at random, and tell how sure that estimate is; all when left out",
        least=2,
    )


@dataclass(frozen=True)
class Config:
    """All settings of a run: the graph, the model, the training, the protocol."""

    data: str = option("atlas", "dataset name, folder or file of triples")
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    evaluate: EvaluateConfig = field(default_factory=EvaluateConfig)

    @classmethod
    def read(cls, path: str | Path | None, sets: typing.Sequence[str] = ()) -> Config:
        """Settings from a TOML file, then `key=value` overrides such as `model.faithfulness=inf`."""
        tree: dict[str, Any] = {}
        text = ""
        if path is not None:
            refuse_pickle(Path(path))
            try:
                text = Path(path).read_text(encoding="utf-8-sig")
                tree = tomllib.loads(text)
            except OSError as error:
                raise HarmoniumError(f"{path}: cannot be read ({error.strerror})") from error
            except (ValueError, RecursionError) as error:  # tomllib lets through what int() and nesting raise
                raise HarmoniumError(f"{path}: not TOML: {error}") from error
        tree.pop("published", None)  # what a recipe's source reports, for harmonium.reproduce
        return cls.of(
            tree, sets, str(path or "settings"), {key: f"{path}:{line}" for key, line in _lines(text).items()}
        )

    @classmethod
    def of(
        cls,
        tree: dict[str, Any],
        sets: typing.Sequence[str] = (),
        where: str = "settings",
        places: dict[str, str] | None = None,
    ) -> Config:
        """Settings from a tree of values, then overrides; `places` says where a key stands, when it is more than `where`."""
        places = dict(places or {})
        for text in sets:
            key, equals, value = text.partition("=")
            if not equals:
                raise HarmoniumError(f"--set {text}: expected key=value, such as train.epochs=50")
            *groups, leaf = key.strip().split(".")
            place = tree
            for group in groups:
                place = place.setdefault(group, {})
                if not isinstance(place, dict):
                    raise HarmoniumError(f"--set {text}: '{group}' is a setting, not a group of settings")
            place[leaf] = _parse(value.strip())
            places[key.strip()] = "settings"
        return build(cls, tree, where, places)

    def to_toml(self) -> str:
        """The whole tree as TOML; reading it back gives the same settings."""
        lines = [f"data = {_toml(self.data)}"]
        for group in ("model", "train", "evaluate"):
            lines += ["", f"[{group}]"]
            values = dataclasses.asdict(getattr(self, group))
            lines += [f"{key} = {_toml(value)}" for key, value in values.items() if value is not None]
        return "\n".join(lines) + "\n"


def describe(kind: type = Config, prefix: str = "") -> list[tuple[str, str, str]]:
    """(key, default, help) of every setting."""
    rows = []
    for entry in dataclasses.fields(kind):
        if entry.default is dataclasses.MISSING:
            rows += describe(typing.get_type_hints(kind)[entry.name], f"{prefix}{entry.name}.")
        else:
            default = "" if entry.default is None else _toml(entry.default)
            rows.append((prefix + entry.name, default, entry.metadata["help"]))
    return rows


def _lines(text: str) -> dict[str, int]:
    """Where each key of a TOML text stands, as far as it is written plainly."""
    found, group = {}, ""
    for number, line in enumerate(text.splitlines(), start=1):
        if header := re.match(r"\s*\[\s*([\w.-]+)\s*\]", line):
            group = f"{header[1]}."
            found.setdefault(header[1], number)
        elif key := re.match(r"\s*([\w.-]+)\s*=", line):
            found.setdefault(group + key[1], number)
    return found


def build(
    kind: type,
    tree: dict[str, Any],
    where: str,
    places: typing.Mapping[str, str] = types.MappingProxyType({}),
    prefix: str = "",
) -> Any:
    """A dataclass from a tree of values; an unknown key, a wrong type or range is an error that names the key."""
    hints = typing.get_type_hints(kind)
    values = {}
    for key, value in tree.items():
        at = places.get(f"{prefix}{key}", where)
        entry = next((f for f in dataclasses.fields(kind) if f.name == key), None)
        if entry is None:
            known = ", ".join(prefix + f.name for f in dataclasses.fields(kind))
            raise HarmoniumError(f"{at}: no setting '{prefix}{key}'; there are {known}")
        if dataclasses.is_dataclass(hints[key]):
            if not isinstance(value, dict):
                raise HarmoniumError(f"{at}: '{prefix}{key}' is a group of settings, such as {prefix}{key}.NAME")
            values[key] = build(hints[key], value, where, places, f"{prefix}{key}.")
        else:
            values[key] = _check(value, hints[key], entry.metadata, f"{at}: {prefix}{key}")
    return kind(**values)


def _check(value: Any, hint: Any, limits: typing.Mapping[str, Any], where: str) -> Any:
    if isinstance(hint, types.UnionType):
        if value is None:
            return None
        hint = next(h for h in typing.get_args(hint) if h is not type(None))
    if typing.get_origin(hint) is Literal:
        if value not in typing.get_args(hint):
            raise HarmoniumError(f"{where} is one of {', '.join(typing.get_args(hint))}, not {value!r}")
        return value
    if type(value) is int and abs(value) >= LARGEST:
        raise HarmoniumError(f"{where} is too large a number")
    if hint is float and type(value) is int:
        value = float(value)
    if type(value) is not hint:
        names = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
        raise HarmoniumError(f"{where} must be {names[hint]}, not {value!r}")
    if isinstance(value, float) and math.isnan(value):
        raise HarmoniumError(f"{where} must be a number, not nan")
    if limits.get("above") is not None and not value > limits["above"]:
        raise HarmoniumError(f"{where} must be above {limits['above']}, not {value}")
    if limits.get("least") is not None and not value >= limits["least"]:
        raise HarmoniumError(f"{where} must be at least {limits['least']}, not {value}")
    return value


def _parse(text: str) -> Any:
    """A value as TOML would read it; bare words are text, `none` is nothing."""
    if text == "none":
        return None
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, LookupError, RecursionError):
        return text


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in escaped) + '"'
    return repr(value)
