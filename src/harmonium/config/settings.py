"""One typed tree of settings: one field = one TOML key = one `--set` flag, and its help is its description."""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
import tomllib
import types
import typing
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from harmonium.config.setting_values import LARGEST_INTEGER, Overrides, build, full_keys, put
from harmonium.errors import HarmoniumError
from harmonium.runtime.untrusted import read_text, refuse_pickle

RECIPES = Path(__file__).parent / "recipes"
PAPER_RECIPES = Path(__file__).parents[1] / "paper" / "recipes"  # named paper/FB15K/hhole-1, ...
MAX_DIMENSIONS = 2**16
MAX_SHOWN_BOUND = 10**5  # larger upper bounds only guard against mistakes, and are not shown
MAX_THREADS = 512  # with a hundred thousand, the thread pool of PyTorch aborts the process


def option(
    default: Any,
    help: str,
    above: float | None = None,
    least: float | None = None,
    most: float | None = None,
    also: tuple[str, ...] = (),
) -> Any:
    """A field with its description and its range; numbers need a lower and an upper bound, which may be infinite.

    `also` are other names of the setting, such as those of other libraries.
    """
    limits = {"above": above, "least": least, "most": most}
    return field(default=default, metadata={"help": help, **limits, "also": also})


@dataclass(frozen=True)
class ModelConfig:
    composition: str = option(
        "hole",
        "Composition of head, relation and tail into one vector: a listed name, or your own (affine in each slot).",
        also=("model",),
    )
    entity_dim: int = option(
        64, "Size of an entity vector.", least=1, most=MAX_DIMENSIONS, also=("dim", "embedding_dim", "k")
    )
    entity_dtype: Literal["float32", "bfloat16"] = option(
        "float32", "Type of stored entity vectors; bfloat16 halves their memory and is rounded stochastically."
    )
    relation_dim: int | None = option(
        None, "Size of a relation vector; default: chosen by the composition.", least=1, most=MAX_DIMENSIONS
    )
    harmony: bool = option(True, "Score by harmony (a Gradient Graph); false: the plain model, the sum of x.")
    faithfulness: float = option(
        1.0,
        "lambda: keeps a token close to its composed vector; small values let W reshape it, inf does not.",
        above=0,
        most=math.inf,
        also=("lambda",),
    )
    constraint: Literal["frobenius", "spectral"] = option("frobenius", "Norm of W that is kept below the cap.")
    cap: float | None = option(
        None, "Maximum norm of W; default: lambda - 0.25, or 2.5 if lambda is inf.", least=1e-6, most=1e9
    )
    rank: int | None = option(None, "Rank of W; default: full. A small rank is faster.", least=1, most=MAX_DIMENSIONS)
    initialisation: Literal["calibrated", "paper", "xavier"] = option(
        "calibrated",
        "Initial values; calibrated: scores of unit variance, W aligned with b; paper: random vectors of length one, small "
        "W and b; xavier: as the paper's authors start, each table, W and b uniform within sqrt(6 / (rows + columns)).",
        also=("initialization",),
    )
    initial_spread: float | None = option(
        None, "Standard deviation of initial vectors; default: 1 / sqrt(dimension).", least=1e-9, most=1e3
    )
    normalise: bool = option(True, "Normalise embeddings to length one.", also=("normalize",))
    reciprocal: bool = option(False, "A second vector per relation, which answers head queries as tail queries.")
    dropout: float = option(0.0, "Dropout on the entries of W during training, below 1.", least=0, most=0.999)

    def __post_init__(self) -> None:
        object.__setattr__(self, "composition", self.composition.lower())  # ComplEx is complex


@dataclass(frozen=True)
class TrainConfig:
    epochs: int = option(100, "Passes over the training triples.", least=1, most=10**6, also=("num_epochs", "n_epochs"))
    batch_size: int = option(512, "Training triples per step.", least=1, most=2**24)
    loss: str = option("sampled", "Loss of a fact and its negatives.")
    negatives: int = option(
        128,
        "Negatives per triple and side (all losses except full).",
        least=1,
        most=2**20,
        also=("num_negs_per_pos", "num_negatives", "eta"),
    )
    negative_group_size: int = option(
        1,
        "Number of triples that share negatives: faster, above all for plain models and W of low rank.",
        least=1,
        most=2**24,
    )
    margin: float = option(1.0, "Margin of the margin losses.", above=0, most=1e6)
    reduction: Literal["mean", "sum"] = option(
        "mean",
        "Whether a step minimises the mean or the sum of its queries' losses (to Adam only epsilon differs).",
    )
    alternate_sides: bool = option(
        False, "Two updates per batch, as in the code of the paper's authors: first for its heads, then for its tails."
    )
    optimiser: Literal["adam", "adagrad", "row-adagrad"] = option(
        "adam",
        "Optimiser; its state per entity: adam two vectors, adagrad one vector, row-adagrad one number.",
        also=("optimizer",),
    )
    learning_rate: float = option(0.003, "Learning rate.", above=0, most=1e38, also=("lr",))
    schedule: Literal["constant", "linear", "cosine"] = option(
        "linear", "Learning-rate schedule; linear, cosine: decays to zero along a line or half a cosine."
    )
    entity_storage: Literal["device", "host"] = option(
        "device",
        "Memory of the entity vectors; host: main memory, for tables larger than the GPU's, which still computes.",
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
    frequency_weight: float = option(
        0.0,
        "Share of the weight of a query that is proportional to the frequency of its answer; the rest is uniform "
        "(train.loss=full). "
        "Zhang 2020 used 0.9. Below 1.",
        least=0,
        most=0.999,
    )
    vector_dropout: float = option(
        0.0,
        "Dropout on the known vectors of a query, but not on candidates. Below 1.",
        least=0,
        most=0.999,
    )
    composed_dropout: float = option(
        0.0,
        "Dropout on composed vectors, with one mask for all candidates of a query. Below 1.",
        least=0,
        most=0.999,
    )
    weight_power: float = option(
        1.0,
        "Exponent of the weights of facts: 0 ignores weights; above 1, doubtful facts count less than their weights say.",
        least=0,
        most=100,
    )
    relation_prediction: float = option(
        0.0, "Weight of a softmax of the true relation over all relations (Chen 2021).", least=0, most=1e6
    )
    constraints: bool = option(
        False, "Learn constraints beside the vectors: paths, shared values, similar entities, names, usual values."
    )
    constraint_seconds: float = option(
        300.0,
        "Bound of the work of learning path rules, counted as seconds of a nominal CPU: more facts are learned from.",
        least=0,
        most=1e6,
    )
    last_training: bool = option(
        False,
        "At the end, train the vectors once more on all facts, held-out ones included; metrics are of those before.",
    )
    metric: Literal["mrr", "hits@1", "hits@3", "hits@10", "amri"] = option("mrr", "Metric for early stopping.")
    evaluate_every: int = option(5, "Epochs between validations.", least=1, most=10**6)
    patience: int = option(5, "Validations without improvement before training stops.", least=1, most=10**6)
    validation_triples: int = option(
        5000, "Maximum number of validation triples (a seeded sample).", least=1, most=10**9
    )
    initial_vectors: str | None = option(
        None, "File of initial vectors, matched by name: .npz or .parquet as `harmonium export` writes them."
    )
    seed: int = option(
        0,
        "Random seed of initialisation, order and negatives; it fixes the result on a CPU.",
        least=0,
        most=LARGEST_INTEGER - 1,
        also=("random_state", "random_seed"),
    )
    precision: Literal["high", "highest"] = option(
        "high", "Precision of float32 matrix products in training; high: TF32 or bfloat16 where faster; highest: full."
    )
    device: str = option("auto", "cpu, cuda, or auto: a GPU if there is one.")
    threads: int | None = option(None, "CPU threads; default: PyTorch's.", least=1, most=MAX_THREADS)
    checkpoint_minutes: float = option(
        5.0, "Minutes between checkpoints, from which `resume` continues.", above=0, most=math.inf
    )
    checkpoint_every: int | None = option(
        None, "Steps between checkpoints; default: only by time.", least=1, most=10**9
    )
    checkpoint_keep: int = option(2, "Number of checkpoints kept.", least=1, most=10**6)

    def __post_init__(self) -> None:
        object.__setattr__(self, "loss", self.loss.lower())


@dataclass(frozen=True)
class EvaluateConfig:
    split: Literal["train", "valid", "test"] = option("test", "Triples to rank.")
    candidates: Literal["full", "typed-train", "typed-all"] = option(
        "full", "Candidates: all entities, or those seen in that slot of the relation (in train; in all splits)."
    )
    ties: Literal["realistic", "optimistic", "pessimistic"] = option(
        "realistic",
        "Rank of the true answer among candidates with equal scores (up to float64 rounding): mean, first or last.",
    )
    side: Literal["head", "tail", "both"] = option("both", "Which slot of a triple is predicted.")
    filtered: bool = option(True, "Filtered ranks: other known answers are not counted as candidates.")
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

    >>> harmonium.Config.read("paper/FB15K/hhole-1", epochs=5)
    """

    data: str = option("atlas", "Dataset name, folder or file of facts.")
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    evaluate: EvaluateConfig = field(default_factory=EvaluateConfig)

    @classmethod
    def read(cls, source: str | Path | None, overrides: Overrides = (), **settings: Any) -> Config:
        """Settings from a TOML file or a recipe's name, then overrides, then settings by name (setting_values.py)."""
        given = full_keys(cls, overrides) | full_keys(cls, settings)
        if source is None:
            return cls.of({}, given)
        path, text, tree = read_toml(source)
        tree.pop("published", None)  # the numbers that a recipe should reproduce, for `harmonium paper table`
        tree.pop("search", None)  # what training/search/ may change
        if isinstance(train := tree.get("train"), dict):
            train.pop("harmony", None)  # in settings of earlier versions: when W was fitted
        locations = {key: f"{path}:{line}" for key, line in _lines(text).items()}
        return cls.of(tree, given, str(path), locations)

    @classmethod
    def of(
        cls,
        tree: dict[str, Any],
        overrides: Overrides = (),
        location: str = "settings",
        locations: Mapping[str, str] = types.MappingProxyType({}),
    ) -> Config:
        """Settings from a tree of values, then overrides; errors name the location of a key where it is known."""
        given = full_keys(cls, overrides)
        for key, value in given.items():
            put(tree, key, value)
        return build(cls, tree, location, {**locations, **dict.fromkeys(given, "settings")})

    def __repr__(self) -> str:
        """The settings that differ from their defaults."""
        groups = {"model": (self.model, ModelConfig()), "train": (self.train, TrainConfig())}
        groups["evaluate"] = (self.evaluate, EvaluateConfig())
        changed = [
            f"{group}.{name}={value!r}"
            for group, (settings, defaults) in groups.items()
            for name, value in vars(settings).items()
            if value != vars(defaults)[name]
        ]
        return f"Config({', '.join([f'data={self.data!r}', *changed])})"

    def to_toml(self) -> str:
        """The whole tree as TOML; reading it back gives the same settings."""
        lines = [f"data = {to_toml(self.data)}"]
        for group in ("model", "train", "evaluate"):
            lines += ["", f"[{group}]"]
            values = dataclasses.asdict(getattr(self, group))
            lines += [f"{key} = {to_toml(value)}" for key, value in values.items() if value is not None]
        return "\n".join(lines) + "\n"


def allowed_values(kind: type, name: str) -> tuple[str, ...]:
    """The values of a setting with a fixed set of values."""
    return tuple(typing.get_args(typing.get_type_hints(kind)[name]))


def recipes() -> dict[str, Path]:
    """The recipes in the package: their files by name, such as paper/FB15K/hhole-1."""
    files = {path.relative_to(RECIPES): path for path in RECIPES.rglob("*.toml")}
    files |= {Path("paper", path.relative_to(PAPER_RECIPES)): path for path in PAPER_RECIPES.rglob("*.toml")}
    return {name.as_posix().removesuffix(".toml"): files[name] for name in sorted(files)}


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
    files = recipes()
    if name in files:
        return files[name]
    near = difflib.get_close_matches(name, files, n=3, cutoff=0.3)
    hint = f"; similar: {', '.join(near)}" if near else ""
    raise HarmoniumError(f"{source}: cannot be read (No such file or directory), and no recipe has this name{hint}")


class Setting(NamedTuple):
    """Description of one setting, for help and reference."""

    key: str
    default: str  # as TOML; empty if there is none
    help: str
    values: str  # the allowed values


def describe(kind: type = Config, prefix: str = "") -> list[Setting]:
    """Every setting, in order."""
    rows: list[Setting] = []
    for entry in dataclasses.fields(kind):
        hint = typing.get_type_hints(kind)[entry.name]
        if entry.default is dataclasses.MISSING:
            rows += describe(hint, f"{prefix}{entry.name}.")
        else:
            values = _describe_values(hint, entry.metadata)
            rows.append(Setting(prefix + entry.name, to_toml(entry.default), entry.metadata["help"], values))
    return rows


def _describe_values(hint: Any, limits: Mapping[str, Any]) -> str:
    """The allowed values of a setting in a few characters: a|b|c, true|false, N >= 1, 0 to 0.999."""
    if isinstance(hint, types.UnionType):
        hint = next(member for member in typing.get_args(hint) if member is not type(None))
    if typing.get_origin(hint) is Literal:
        return "|".join(typing.get_args(hint))
    if hint is bool:
        return "true|false"
    if hint is str:
        return "text"
    above, least, most = limits["above"], limits["least"], limits["most"]
    low = f"above {above:g}" if above is not None else f"from {least:,}"
    return low if most > MAX_SHOWN_BOUND else f"{low} to {most:,}"


def flatten(config: Config) -> dict[str, Any]:
    """Every setting by its key, such as train.epochs."""
    groups = {"model": config.model, "train": config.train, "evaluate": config.evaluate}
    values = {f"{name}.{key}": value for name, group in groups.items() for key, value in vars(group).items()}
    return {"data": config.data, **values}


def _lines(text: str) -> dict[str, int]:
    """Line number of each key in a TOML text, for keys in plain notation."""
    lines: dict[str, int] = {}
    group = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if header := re.match(r"\s*\[\s*([\w.-]+)\s*\]", line):
            group = f"{header[1]}."
            lines.setdefault(header[1], number)
        elif key := re.match(r"\s*([\w.-]+)\s*=", line):
            lines.setdefault(group + key[1], number)
    return lines


def to_toml(value: Any) -> str:
    """A value in TOML notation; "" for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in escaped) + '"'
    return repr(value)
