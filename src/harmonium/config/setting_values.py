"""Settings as users give them: resolves names (epochs is train.epochs), parses and checks values.

One mechanism for `--set`, keyword arguments and dicts. A setting has a full name, `train.epochs`; a short one, its last
word, where that is unambiguous; and perhaps others, those that other libraries use (`also` in config.py).
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import math
import os
import re
import tomllib
import types
import typing
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar

from harmonium.errors import HarmoniumError

NUMBER_WITHOUT_ZERO = re.compile(r"[+-]?(\.[0-9]+|[0-9]+\.)([eE][+-]?[0-9]+)?")  # .05 and 5., which TOML refuses
LARGEST_INTEGER = 2**63  # absolute value, as PyTorch's integers have 64 bits
Overrides = Sequence[str] | Mapping[str, Any]  # `key=value` each, or values by name, perhaps in groups
Settings = TypeVar("Settings")
Field = tuple[str, Any, Mapping[str, Any]]  # full name, type, metadata


# Names ----------------------------------------------------------------------------------------------------------------


def full_keys(kind: type, overrides: Overrides) -> dict[str, Any]:
    """full name -> value; an unknown or ambiguous name is an error with suggestions. Of repeated names the last counts."""
    settings: dict[str, Any] = {}
    if isinstance(overrides, Mapping):
        for name, value in _flatten(kind, overrides):
            key = full_key(kind, name, value)
            if key in settings:
                raise HarmoniumError(f"settings: {key} is given twice, once as '{name}'; give it once")
            settings[key] = value
        return settings
    for override in [overrides] if isinstance(overrides, str) else overrides:
        name, equals, text = override.partition("=")
        if not equals:
            raise HarmoniumError(f"--set {override}: expected key=value, such as train.epochs=50")
        value = _parse(text.strip())
        settings[full_key(kind, name.strip(), value)] = value
    return settings


def names_of(kind: type) -> dict[str, list[str]]:
    """full name -> other names of each setting; names shared by several settings are left out."""
    names = {key: [key.rpartition(".")[2], *metadata["also"]] for key, _, metadata in _fields(kind)}
    counts = Counter(name for all_names in names.values() for name in all_names)
    return {key: [name for name in given if counts[name] == 1 and name != key] for key, given in names.items()}


def full_key(kind: type, name: str, value: Any) -> str:
    """The full name of a setting, given any of its names; of several settings, the one that accepts `value`."""
    group, dot, last = name.rpartition(".")
    named = [
        field
        for field in _fields(kind)
        if last in (field[0].rpartition(".")[2], *field[2]["also"]) and group in ("", field[0].rpartition(".")[0])
    ]
    if dot and len(named) != 1:
        return name  # `build` refuses an unknown name, with its location
    if len(named) > 1:
        named = [field for field in named if _accepts(field, value)] or named
    if len(named) == 1:
        return named[0][0]
    if named:
        choices = " or ".join(f"{key} ({metadata['help']})" for key, _, metadata in named)
        raise HarmoniumError(f"settings: '{name}' is ambiguous, and {value!r} fits none or several: {choices}")
    if dataclasses.is_dataclass(_hints(kind).get(name)):
        raise HarmoniumError(f"settings: '{name}' is a group of settings, such as {name}.NAME")
    raise HarmoniumError(f"settings: no setting '{name}'{_suggestions(kind, name)}")


def _suggestions(kind: type, name: str) -> str:
    """The settings with the most similar names, and where to find the others."""
    names = {
        word: key for key, _, metadata in _fields(kind) for word in (key.rpartition(".")[2], *metadata["also"], key)
    }
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    keys = dict.fromkeys(names[word] for word in near)
    hint = f"; did you mean {' or '.join(keys)}?" if keys else ";"
    return f"{hint} `harmonium train --settings` lists all of them"


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    """Name -> type of each field of a dataclass."""
    return typing.get_type_hints(kind)


def _fields(kind: type, prefix: str = "") -> Iterator[Field]:
    """Every setting of a dataclass and of the groups in it."""
    hints = _hints(kind)
    for entry in dataclasses.fields(kind):
        if dataclasses.is_dataclass(hints[entry.name]):
            yield from _fields(hints[entry.name], f"{prefix}{entry.name}.")
        else:
            yield prefix + entry.name, hints[entry.name], entry.metadata


def _accepts(field: Field, value: Any) -> bool:
    key, hint, limits = field
    try:
        _check(value, hint, limits, key)
    except HarmoniumError:
        return False
    return True


def _flatten(kind: type, values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(name, value) of settings in groups, such as {"train": {"epochs": 5}}, or a TrainConfig as the value of `train`."""
    hints = _hints(kind)
    for name, value in values.items():
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            value = dataclasses.asdict(value)
        if isinstance(value, Mapping) and dataclasses.is_dataclass(hints.get(name)):
            yield from _flatten(hints[name], value, f"{prefix}{name}.")
        else:
            yield prefix + str(name), value


def put(tree: dict[str, Any], key: str, value: Any) -> None:
    """Set the value of a setting, by its full name, in a tree."""
    *groups, name = key.split(".")
    for group in groups:
        tree = tree.setdefault(group, {})
        if not isinstance(tree, dict):
            raise HarmoniumError(f"settings: {key}: '{group}' is a setting, not a group of settings")
    tree[name] = value


# Values ---------------------------------------------------------------------------------------------------------------


def build(
    kind: type[Settings],
    tree: dict[str, Any],
    location: str,
    locations: Mapping[str, str] = types.MappingProxyType({}),
    prefix: str = "",
) -> Settings:
    """A dataclass from a tree of values; an unknown key, a wrong type or range is an error that names the key."""
    hints = _hints(kind)  # type: ignore[arg-type]  # mypy takes type[Settings] for not hashable
    entries = {entry.name: entry for entry in dataclasses.fields(kind)}  # type: ignore[arg-type]  # any dataclass
    values = {}
    for key, value in tree.items():
        where = locations.get(f"{prefix}{key}", location)
        if key not in entries:
            near = difflib.get_close_matches(str(key), entries, n=1, cutoff=0.6)
            hint = f"; did you mean {prefix}{near[0]}? There" if near else "; there"
            known = ", ".join(prefix + name for name in entries)
            raise HarmoniumError(f"{where}: no setting '{prefix}{key}'{hint} are {known}")
        if dataclasses.is_dataclass(hints[key]):
            if not isinstance(value, dict):
                raise HarmoniumError(f"{where}: '{prefix}{key}' is a group of settings, such as {prefix}{key}.NAME")
            values[key] = build(hints[key], value, location, locations, f"{prefix}{key}.")
        else:
            values[key] = _check(value, hints[key], entries[key].metadata, f"{where}: {prefix}{key}")
    return kind(**values)


def _check(value: Any, hint: Any, limits: Mapping[str, Any], setting: str) -> Any:
    """Check the type and the range of a value, and return it; a whole number is accepted for a float."""
    if isinstance(hint, types.UnionType):
        if value is None:
            return None
        hint = next(member for member in typing.get_args(hint) if member is not type(None))
    value = _plain(value)
    if typing.get_origin(hint) is Literal:
        choice = value.lower() if isinstance(value, str) else value
        if choice not in typing.get_args(hint):
            raise HarmoniumError(f"{setting} must be one of {', '.join(typing.get_args(hint))}, not {value!r}")
        return choice
    if type(value) is int and abs(value) >= LARGEST_INTEGER:
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


def _plain(value: Any) -> Any:
    """NumPy numbers as Python numbers, paths as text, a composition (a class with a `name`) as its name."""
    if type(value).__module__ == "numpy" and hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
        value = value.item()
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    return getattr(value, "name", value) if isinstance(value, type) else value


def _parse(text: str) -> Any:
    """Parse a value in TOML notation; numbers such as .05 and unquoted words are accepted, `none` means no value."""
    if text == "none":
        return None
    if NUMBER_WITHOUT_ZERO.fullmatch(text):
        return float(text)
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, LookupError, RecursionError):
        return text
