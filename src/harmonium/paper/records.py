"""Records of reproductions: a JSON list per experiment, one object per run, identified by its settings."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from harmonium.config.settings import Config
from harmonium.errors import HarmoniumError

Record = dict[str, Any]
METRICS = ("mr", "mrr", "hits@1", "hits@3", "hits@10")
KEY = ("dataset", "row", "variant", "seed")  # one record each
NOT_COMPARED = {  # settings that do not change the result
    "data", "train.device", "train.threads", "train.checkpoint_minutes", "train.checkpoint_every", "train.checkpoint_keep",
}  # fmt: skip


def read(path: Path) -> list[Record]:
    """The records of a file; empty if there is no file yet."""
    try:
        records: list[Record] = json.loads(path.read_text(encoding="utf-8"))
        return records
    except FileNotFoundError:
        return []
    except (OSError, json.JSONDecodeError) as error:
        raise HarmoniumError(f"{path}: not a readable list of results ({error}); move it away") from error


def keep(path: Path, record: Record) -> None:
    """Add a record, replacing one of the same row, variant and seed; atomic."""
    others = [other for other in read(path) if key(other) != key(record)]
    records = sorted([*others, record], key=lambda r: tuple(map(str, key(r))))
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(plain(records), indent=1, ensure_ascii=False, allow_nan=False)
        temporary.write_text(text + "\n", encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise HarmoniumError(f"{path}: cannot be written ({error.strerror}); choose another --results") from error


def key(record: Record) -> tuple[Any, ...]:
    return tuple(record[name] for name in KEY)


def plain(value: Any) -> Any:
    """Strict JSON: infinity becomes the string inf, NaN becomes null."""
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value


def settings(config: Config) -> dict[str, Any]:
    tree: dict[str, Any] = plain(dataclasses.asdict(config))
    return tree


def differences(record: Record, config: Config) -> list[str]:
    """Settings that differ from those of the record, as `key=value`."""
    before = _flat(settings(Config())) | _flat(record["settings"])  # settings newer than the record: their defaults
    return [f"{k}={v}" for k, v in _flat(settings(config)).items() if k not in NOT_COMPARED and before[k] != v]


def _flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return flat


def by_seeds(records: Iterable[Record]) -> dict[tuple[str, str, str], list[Record]]:
    """(dataset, row, variant) -> its records, one per seed."""
    groups: dict[tuple[str, str, str], list[Record]] = {}
    for record in records:
        groups.setdefault((record["dataset"], record["row"], record["variant"]), []).append(record)
    return groups


def mean(values: Sequence[float]) -> tuple[float, float | None]:
    """The mean and the half-width of its 95 % interval by Student's t; no interval for one value."""
    if len(values) < 2:
        return values[0], None
    from scipy.stats import t

    half = t.ppf(0.975, len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return statistics.fmean(values), float(half)


def format_mean(values: Sequence[float | None], digits: int = 3, sign: str = "") -> str:
    """`0.837` or, over several seeds, `0.837 ± 0.002`."""
    numbers = [value for value in values if value is not None]
    if len(numbers) < len(values):
        return "-"
    middle, half = mean(numbers)
    return f"{middle:{sign}.{digits}f}" + ("" if half is None else f" ± {half:.{digits}f}")
