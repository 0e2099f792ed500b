"""One typed tree of settings: one field = one TOML key = one `--set` flag, and its help is its description."""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
import tomllib
import types
import typing
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from harmonium.runtime.errors import HarmoniumError
from harmonium.runtime.untrusted import read_text, refuse_pickle

RECIPES = Path(__file__).parent / "recipes"
TOO_LARGE = 2**63  # for PyTorch's integers
MOST_DIMENSIONS = 2**16
MOST_THREADS = 512  # with a hundred thousand, the thread pool of PyTorch ends the process

Settings = TypeVar("Settings")


def option(
    default: Any, help: str, above: float | None = None, least: float | None = None, most: float | None = None
) -> Any:
    """A field with its description and its range; a number has a lower and an upper bound, which may be infinite."""
    return field(default=default, metadata={"help": help, "above": above, "least": least, "most": most})


@dataclass(frozen=True)
class ModelConfig:
    composition: str = option(
        "hole",
        "How head, relation and tail become one vector: distmult, hole, complex, ..., or your own (affine in each slot).",
    )
    entity_dim: int = option(64, "Size of an entity vector.", least=1, most=MOST_DIMENSIONS)
    entity_dtype: Literal["float32", "bfloat16"] = option(
        "float32", "Type of stored entity vectors; bfloat16 halves their memory and is rounded stochastically."
    )
    relation_dim: int | None = option(
        None, "Size of a relation vector; default: chosen by the composition.", least=1, most=MOST_DIMENSIONS
    )
    harmony: bool = option(True, "Score by harmony (a Gradient Graph); false: the plain model, the sum of x.")
    faithfulness: float = option(
        1.0,
        "lambda: holds a token to its composed vector; small values let W reshape it, inf does not.",
        above=0,
        most=math.inf,
    )
    constraint: Literal["frobenius", "spectral"] = option("frobenius", "Which norm of W is kept below the cap.")
    cap: float | None = option(
        None, "Largest norm of W; default: lambda - 0.25, or 2.5 if lambda is inf.", least=1e-6, most=1e9
    )
    rank: int | None = option(None, "Rank of W; default: full. A small rank is faster.", least=1, most=MOST_DIMENSIONS)
    initialisation: Literal["calibrated", "paper", "xavier"] = option(
        "calibrated",
        "Initial values; calibrated: scores of unit variance, W aligned with b; paper: random vectors of length one, small "
        "W and b; xavier: as the paper's authors start, each table, W and b uniform within sqrt(6 / (rows + columns)).",
    )
    initial_spread: float | None = option(
        None, "Standard deviation of initial vectors; default: 1 / sqrt(dimension).", least=1e-9, most=1e3
    )
    normalise: bool = option(True, "Normalise embeddings to length one.")
    reciprocal: bool = option(False, "A second vector per relation, which answers head queries as tail queries.")
    dropout: float = option(0.0, "Dropout on the entries of W during training, below 1.", least=0, most=0.999)


@dataclass(frozen=True)
class TrainConfig:
    epochs: int = option(100, "Passes over the training triples.", least=1, most=10**6)
    batch_size: int = option(512, "Triples in a step.", least=1, most=2**24)
    loss: Literal["sampled", "full", "linear-margin", "logistic-margin", "logistic"] = option(
        "sampled",
        "sampled: softmax over sampled negatives (the paper); full: over all entities; linear-margin: hinge on scores "
        "(Yang 2015, the paper's HolE*); logistic-margin: on their sigmoids (Nickel 2016); logistic: log loss of true "
        "and negative triples (Nickel 2016).",
    )
    negatives: int = option(128, "Negatives per triple and side (every loss but full).", least=1, most=2**20)
    sampler: Literal["uniform", "degree", "typed"] = option(
        "uniform",
        "Distribution of negatives: uniform; degree: in proportion to the entity's facts; typed: half of them entities "
        "seen in that slot of the relation. The softmax (train.loss=sampled) corrects for the distribution.",
    )
    negative_group_size: int = option(
        1,
        "Triples that share their negatives: faster, most of all for plain models and W of low rank.",
        least=1,
        most=2**24,
    )
    margin: float = option(1.0, "Margin of the margin losses.", above=0, most=1e6)
    reduction: Literal["mean", "sum"] = option(
        "mean",
        "Whether a step minimises the mean or the sum of its queries' losses (which Adam's epsilon distinguishes).",
    )
    alternate_sides: bool = option(
        False, "Two updates a batch, as the paper's authors have it: one for its heads, then one for its tails."
    )
    optimiser: Literal["adam", "adagrad", "row-adagrad"] = option(
        "adam", "Optimiser; its state per entity: adam two vectors, adagrad one vector, row-adagrad one number."
    )
    learning_rate: float = option(0.003, "Learning rate.", above=0, most=1e38)
    schedule: Literal["constant", "linear", "cosine"] = option(
        "linear", "Learning-rate schedule; linear, cosine: decays to zero along a line or half a cosine."
    )
    warm_up: float = option(
        0.0, "Share of the steps in which the learning rate first rises from zero, below 1.", least=0, most=0.999
    )
    average: float = option(
        0.0,
        "Share of the epochs, the last ones, whose weights are averaged; validated and kept are then the means. Below 1.",
        least=0,
        most=0.999,
    )
    sparse_updates: bool = option(
        True, "Update only the entity vectors that a step uses, on graphs where it uses less than half of them."
    )
    entity_storage: Literal["device", "host"] = option(
        "device", "Memory that holds the entity vectors; host: larger than a GPU's, which still computes."
    )
    n3: float = option(0.0, "Weight of the nuclear 3-norm regulariser.", least=0, most=1e6)
    f2: float = option(0.0, "Weight of the squared L2 norms of the vectors in a batch.", least=0, most=1e6)
    dura: float = option(
        0.0,
        "Weight of DURA (Zhang 2020): squared norms of the head, the tail and the query vectors of a triple.",
        least=0,
        most=1e6,
    )
    dura_entities: float = option(
        1.0,
        "Weight of head and tail relative to the query vectors in DURA; its authors used 1/3 (ComplEx) and 4 (RESCAL).",
        least=0,
        most=1e6,
    )
    label_smoothing: float = option(
        0.0,
        "Share of the target probability spread evenly over all candidates (train.loss=full or sampled), below 1.",
        least=0,
        most=0.999,
    )
    vector_dropout: float = option(
        0.0,
        "Dropout on the coordinates of a query's known vectors; candidates are kept whole. Below 1.",
        least=0,
        most=0.999,
    )
    composed_dropout: float = option(
        0.0,
        "Dropout on the coordinates of composed vectors, the same for all candidates of a query. Below 1.",
        least=0,
        most=0.999,
    )
    relation_prediction: float = option(
        0.0, "Weight of a softmax of the true relation over all relations (Chen 2021).", least=0, most=1e6
    )
    type_loss: float = option(
        0.0, "Weight of predicting from an entity's vector the slots of relations it appears in.", least=0, most=1e6
    )
    harmony: Literal["joint", "after", "optional", "tokens"] = option(
        "joint",
        "When W and b are fitted; joint: with the vectors; after: to validation facts, once the vectors are trained; "
        "optional: after, and not where validation prefers the plain model; tokens: after, W along b, which leaves scores "
        "as they are and brings the tokens of entities in one role together.",
    )
    metric: Literal["mrr", "hits@1", "hits@3", "hits@10", "amri"] = option("mrr", "Metric for early stopping.")
    evaluate_every: int = option(5, "Epochs between validations.", least=1, most=10**6)
    patience: int = option(5, "Validations without improvement before training stops.", least=1, most=10**6)
    validation_triples: int = option(
        5000, "Largest number of validation triples (a seeded sample).", least=1, most=10**9
    )
    initial_vectors: str | None = option(
        None, "File of initial vectors, matched by name: .npz or .parquet as `harmonium export` writes them."
    )
    seed: int = option(
        0,
        "Random seed of initialisation, order and negatives; it fixes the result on a CPU.",
        least=0,
        most=TOO_LARGE - 1,
    )
    precision: Literal["high", "highest"] = option(
        "high", "Precision of float32 matrix products in training; high: TF32 where that is faster; highest: full."
    )
    device: str = option("auto", "cpu, cuda, or auto: a GPU if there is one.")
    threads: int | None = option(None, "CPU threads; default: PyTorch's.", least=1, most=MOST_THREADS)
    checkpoint_minutes: float = option(
        5.0, "Minutes between checkpoints, from which `resume` continues.", above=0, most=math.inf
    )
    checkpoint_every: int | None = option(
        None, "Steps between checkpoints; default: only by time.", least=1, most=10**9
    )
    checkpoint_keep: int = option(2, "Number of checkpoints kept.", least=1, most=10**6)


@dataclass(frozen=True)
class EvaluateConfig:
    split: Literal["train", "valid", "test"] = option("test", "Triples to rank.")
    candidates: Literal["full", "typed-train", "typed-all"] = option(
        "full", "Candidates: all entities, or those seen in that slot of the relation (in train; in all splits)."
    )
    ties: Literal["realistic", "optimistic", "pessimistic"] = option(
        "realistic",
        "Rank of the true answer among equal scores (within the rounding of float64): in the middle, first or last.",
    )
    side: Literal["head", "tail", "both"] = option("both", "Which slot is predicted.")
    filtered: bool = option(True, "Filtered ranks: other known answers do not count.")
    unseen: Literal["keep", "drop"] = option("keep", "Test triples with an entity that is not in train.")
    sample: int | None = option(
        None,
        "Rank a random sample of this many triples, with a confidence interval; default: all.",
        least=2,
        most=10**9,
    )


@dataclass(frozen=True)
class Config:
    """All settings of a run: the graph, the model, the training, the evaluation protocol.

    >>> harmonium.Config.read("large/distmult", ["train.epochs=5"])
    """

    data: str = option("atlas", "Dataset name, folder or file of triples.")
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    evaluate: EvaluateConfig = field(default_factory=EvaluateConfig)

    @classmethod
    def read(cls, source: str | Path | None, overrides: Sequence[str] = ()) -> Config:
        """Settings from a TOML file or a recipe's name, then `key=value` overrides such as `model.faithfulness=inf`."""
        if source is None:
            return cls.of({}, overrides)
        path, text, tree = read_toml(source)
        tree.pop("published", None)  # the numbers that a recipe should reproduce, for benchmarks/reproduce.py
        tree.pop("search", None)  # what training/selection.py may change
        locations = {key: f"{path}:{line}" for key, line in _lines(text).items()}
        return cls.of(tree, overrides, str(path), locations)

    @classmethod
    def of(
        cls,
        tree: dict[str, Any],
        overrides: Sequence[str] = (),
        location: str = "settings",
        locations: Mapping[str, str] = types.MappingProxyType({}),
    ) -> Config:
        """Settings from a tree of values, then overrides; errors name the location of a key where it is known."""
        for override in overrides:
            _override(tree, override)
        overridden = {override.partition("=")[0].strip(): "settings" for override in overrides}
        return build(cls, tree, location, {**locations, **overridden})

    def to_toml(self) -> str:
        """The whole tree as TOML; reading it back gives the same settings."""
        lines = [f"data = {_toml(self.data)}"]
        for group in ("model", "train", "evaluate"):
            lines += ["", f"[{group}]"]
            values = dataclasses.asdict(getattr(self, group))
            lines += [f"{key} = {_toml(value)}" for key, value in values.items() if value is not None]
        return "\n".join(lines) + "\n"


def recipes() -> list[str]:
    """The names of the recipes in the package, such as paper/FB15K/hhole-1."""
    return sorted(path.relative_to(RECIPES).as_posix().removesuffix(".toml") for path in RECIPES.rglob("*.toml"))


def presets() -> list[str]:
    """The names of the recipes for any graph: best, fast, ..."""
    return [name for name in recipes() if "/" not in name]


def read_toml(source: str | Path) -> tuple[Path, str, dict[str, Any]]:
    """The path, the text and the values of a TOML file, given by its path or by the name of a recipe."""
    path = _find(source)
    refuse_pickle(path)
    try:
        text = read_text(path)
        return path, text, tomllib.loads(text)
    except OSError as error:
        raise HarmoniumError(f"{path}: cannot be read ({error.strerror})") from error
    except HarmoniumError:
        raise
    except (ValueError, RecursionError) as error:  # tomllib passes on what int() and deep nesting raise
        raise HarmoniumError(f"{path}: not TOML: {error}") from error


def _find(source: str | Path) -> Path:
    """A file of settings, by its path or by the name of a recipe."""
    name = str(source).removesuffix(".toml")
    with suppress(OSError):  # a name may be too long for a file
        if Path(source).exists():
            return Path(source)
    if name in recipes():
        return RECIPES / f"{name}.toml"
    near = difflib.get_close_matches(name, recipes(), n=3, cutoff=0.3)
    hint = f"; similar: {', '.join(near)}" if near else ""
    raise HarmoniumError(f"{source}: cannot be read (No such file or directory), and no recipe has this name{hint}")


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


def _override(tree: dict[str, Any], override: str) -> None:
    """Set the value of one `key=value` in a tree."""
    key, equals, value = override.partition("=")
    if not equals:
        raise HarmoniumError(f"--set {override}: expected key=value, such as train.epochs=50")
    *groups, name = key.strip().split(".")
    for group in groups:
        tree = tree.setdefault(group, {})
        if not isinstance(tree, dict):
            raise HarmoniumError(f"--set {override}: '{group}' is a setting, not a group of settings")
    tree[name] = _parse(value.strip())


def _lines(text: str) -> dict[str, int]:
    """The line of each key of a TOML text, for keys in plain notation."""
    lines: dict[str, int] = {}
    group = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if header := re.match(r"\s*\[\s*([\w.-]+)\s*\]", line):
            group = f"{header[1]}."
            lines.setdefault(header[1], number)
        elif key := re.match(r"\s*([\w.-]+)\s*=", line):
            lines.setdefault(group + key[1], number)
    return lines


def build(
    kind: type[Settings],
    tree: dict[str, Any],
    location: str,
    locations: Mapping[str, str] = types.MappingProxyType({}),
    prefix: str = "",
) -> Settings:
    """A dataclass from a tree of values; an unknown key, a wrong type or range is an error that names the key."""
    hints = typing.get_type_hints(kind)
    entries = {entry.name: entry for entry in dataclasses.fields(kind)}  # type: ignore[arg-type]  # any dataclass
    values = {}
    for key, value in tree.items():
        where = locations.get(f"{prefix}{key}", location)
        if key not in entries:
            known = ", ".join(prefix + name for name in entries)
            raise HarmoniumError(f"{where}: no setting '{prefix}{key}'; there are {known}")
        if dataclasses.is_dataclass(hints[key]):
            if not isinstance(value, dict):
                raise HarmoniumError(f"{where}: '{prefix}{key}' is a group of settings, such as {prefix}{key}.NAME")
            values[key] = build(hints[key], value, location, locations, f"{prefix}{key}.")
        else:
            values[key] = _check(value, hints[key], entries[key].metadata, f"{where}: {prefix}{key}")
    return kind(**values)


def _check(value: Any, hint: Any, limits: Mapping[str, Any], setting: str) -> Any:
    """The value, if it has the type and is in the range of a setting; a whole number may stand for a float."""
    if isinstance(hint, types.UnionType):
        if value is None:
            return None
        hint = next(member for member in typing.get_args(hint) if member is not type(None))
    if typing.get_origin(hint) is Literal:
        if value not in typing.get_args(hint):
            raise HarmoniumError(f"{setting} is one of {', '.join(typing.get_args(hint))}, not {value!r}")
        return value
    if type(value) is int and abs(value) >= TOO_LARGE:
        raise HarmoniumError(f"{setting} is too large a number")
    if hint is float and type(value) is int:
        value = float(value)
    if type(value) is not hint:
        names = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
        raise HarmoniumError(f"{setting} must be {names[hint]}, not {value!r}")
    if isinstance(value, float) and math.isnan(value):
        raise HarmoniumError(f"{setting} must be a number, not nan")
    above, least, most = limits["above"], limits["least"], limits["most"]
    if above is not None and value <= above:
        raise HarmoniumError(f"{setting} must be above {above}, not {value}")
    if least is not None and value < least:
        raise HarmoniumError(f"{setting} must be at least {least}, not {value}")
    if most is not None and value > most:
        raise HarmoniumError(f"{setting} must be at most {most:,}, not {value}")
    return value


def _parse(text: str) -> Any:
    """A value in TOML's notation; bare words are text, `none` is no value."""
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
