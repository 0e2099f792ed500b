"""Read JSON values by type hints: a wrong type, or a number out of range or not finite, is an error that names the key."""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired, TypeVar

T = TypeVar("T")
LARGEST_INTEGER = 2**63  # absolute value, as PyTorch's integers have 64 bits
JSON_TYPE_NAMES = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    dict: "an object",
    list: "a list",
}


@dataclass(frozen=True)
class Range:
    """Annotation of a number with the range that is allowed."""

    least: float = -math.inf
    most: float = math.inf
    infinite: bool = False  # whether infinity is allowed


Unbounded = Annotated[float, Range(least=0, infinite=True)]
NonNegative = Annotated[float, Range(least=0)]
Share = Annotated[float, Range(0, 1)]
Count = Annotated[int, Range(least=0)]


def read(kind: type[T], value: Any, key: str = "") -> T:
    """A dataclass, or anything else that a type hint describes, from a JSON value.

    Supports lists, tuples, dicts, literals, enumerations, typed dictionaries and unions with None. Fields of a dataclass may
    be absent only if they have a default; unknown fields are errors.
    """
    result: T = _read(kind, value, key)
    return result


def _read(hint: Any, value: Any, key: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin is NotRequired:
        return _read(arguments[0], value, key)
    if origin is Annotated:
        return _within(arguments[0], arguments[1], value, key)
    if origin is Literal:
        if type(value) is not str or value not in arguments:
            raise _error(key, f"one of {', '.join(arguments)}", value)
        return value
    if origin in (types.UnionType, typing.Union):
        (member,) = (argument for argument in arguments if argument is not types.NoneType)
        return None if value is None else _read(member, value, key)
    if origin is list:
        return _read_list(arguments[0], value, key)
    if origin is tuple:
        return _read_tuple(arguments, value, key)
    if origin is dict:
        return _read_dict(arguments, value, key)
    if typing.is_typeddict(hint):
        required = {name for name, field in _hints(hint).items() if typing.get_origin(field) is not NotRequired}
        return _read_fields(hint, required, value, key, dict)
    if dataclasses.is_dataclass(hint):
        fields = [field for field in dataclasses.fields(hint) if field.init]
        required = {f.name for f in fields if f.default is f.default_factory is dataclasses.MISSING}
        return _read_fields(hint, required, value, key, typing.cast(Callable[..., Any], hint))
    if issubclass(hint, enum.Enum):
        return _member(hint, value, key)
    return _typed(hint, value, key)


def _typed(hint: Any, value: Any, key: str) -> Any:
    """Check that a value has this plain type; a whole number is accepted for a float, and floats must be finite."""
    if hint is float and type(value) is int and abs(value) < LARGEST_INTEGER:
        value = float(value)
    if type(value) is not hint:
        raise _error(key, JSON_TYPE_NAMES[hint], value)
    if (hint is int and abs(value) >= LARGEST_INTEGER) or (hint is float and not math.isfinite(value)):
        raise _error(key, "a finite number of ordinary size", value)
    return value


def _within(hint: Any, limits: Range, value: Any, key: str) -> Any:
    if limits.infinite and type(value) is float and value == math.inf:
        return value
    value = _read(hint, value, key)
    if not limits.least <= value <= limits.most:
        raise _error(key, f"between {limits.least:g} and {limits.most:g}", value)
    return value


def _read_list(hint: Any, value: Any, key: str) -> list[Any]:
    items = _typed(list, value, key)
    if _are_usual(hint, items):
        return list(items)
    return [_read(hint, item, f"{key}[{i}]") for i, item in enumerate(items)]


def _are_usual(hint: Any, items: list[Any]) -> bool:
    """Whether all items are numbers of the right type in the default range: a fast check for long lists."""
    base, limits = typing.get_args(hint)[:2] if typing.get_origin(hint) is Annotated else (hint, Range())
    if base not in (bool, int, float) or {type(item) for item in items} != {base}:
        return False
    low, high = max(limits.least, 1 - LARGEST_INTEGER), min(limits.most, LARGEST_INTEGER - 1)
    return low <= min(items) and max(items) <= high and not math.isnan(sum(items))


def _read_tuple(arguments: tuple[Any, ...], value: Any, key: str) -> tuple[Any, ...]:
    items = _typed(list, value, key)
    if len(items) != len(arguments):
        raise _error(key, f"a list of {len(arguments)} values", value)
    return tuple(_read(hint, item, f"{key}[{i}]") for i, (hint, item) in enumerate(zip(arguments, items, strict=True)))


def _read_dict(arguments: tuple[Any, ...], value: Any, key: str) -> dict[Any, Any]:
    name_hint, hint = arguments
    result = {}
    for name, item in _typed(dict, value, key).items():
        result[_read_key(name_hint, name, key)] = _read(hint, item, _join(key, name))
    return result


def _read_key(hint: Any, name: str, key: str) -> Any:
    """A key of a dict, converted from the text that JSON has."""
    if hint is int:
        if not (name.isascii() and name.isdecimal() and len(name) < 19):
            raise _error(_join(key, name), "named by a whole number", name)
        return int(name)
    return _read(hint, name, _join(key, name))


def _read_fields(hint: Any, required: set[str], value: Any, key: str, make: Callable[..., Any]) -> Any:
    hints, tree = _hints(hint), _typed(dict, value, key)
    if missing := sorted(required - tree.keys()):
        raise ValueError(f"{_join(key, missing[0])} is missing")
    if unknown := sorted(tree.keys() - hints.keys()):
        raise ValueError(f"{_join(key, unknown[0])} is unknown")
    return make(**{name: _read(hints[name], item, _join(key, name)) for name, item in tree.items()})


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind, include_extras=True)


def _member(hint: type[enum.Enum], value: Any, key: str) -> enum.Enum:
    try:
        return hint(value)
    except ValueError as error:
        raise _error(key, f"one of {', '.join(str(member.value) for member in hint)}", value) from error


def _join(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name


def _error(key: str, expected: str, value: Any) -> ValueError:
    return ValueError(f"{key or 'the value'} must be {expected}, not {value!r:.60}")
