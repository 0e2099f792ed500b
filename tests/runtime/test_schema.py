"""JSON values are read by type hints: right ones come back, and each kind of wrong one is an error that names its key."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Literal, NotRequired, TypedDict

import pytest

from harmonium.runtime import schema


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Row(TypedDict):
    epoch: schema.Count
    note: NotRequired[str]


@dataclass(frozen=True)
class Inner:
    share: schema.Share
    numbers: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Outer:
    name: str
    count: schema.Count
    pair: tuple[int, bool]
    kind: Literal["a", "b"]
    minutes: schema.Unbounded
    anything: Any
    by_colour: dict[Colour, Inner]
    by_number: dict[int, list[schema.NonNegative]]
    rows: list[Row]
    optional: float | None = None


GOOD: dict[str, Any] = {
    "name": "x",
    "count": 3,
    "pair": [-1, True],
    "kind": "b",
    "minutes": math.inf,
    "anything": [{"a": math.nan}],
    "by_colour": {"red": {"share": 1, "numbers": [1, -2.5]}, "blue": {"share": 0.5}},
    "by_number": {"7": [0.0, 2.0]},
    "rows": [{"epoch": 1}, {"epoch": 2, "note": "n"}],
}


def test_a_right_value_becomes_typed_objects() -> None:
    value = schema.read(Outer, GOOD)
    assert value.by_colour == {Colour.RED: Inner(1.0, [1.0, -2.5]), Colour.BLUE: Inner(0.5)}
    assert (value.pair, value.minutes, value.by_number) == ((-1, True), math.inf, {7: [0.0, 2.0]})
    assert value.optional is None
    assert type(value.by_colour[Colour.RED].numbers[0]) is float
    assert schema.read(Outer, GOOD | {"optional": 2}).optional == 2.0
    assert asdict(value)["rows"] == GOOD["rows"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": 3}, "name must be text, not 3"),
        ({"count": -1}, "count must be between 0 and inf, not -1"),
        ({"count": True}, "count must be a whole number, not True"),
        ({"count": 1.0}, "count must be a whole number, not 1.0"),
        ({"count": 2**63}, "count must be a finite number"),
        ({"pair": [1]}, "pair must be a list of 2 values"),
        ({"pair": [1, 0]}, r"pair\[1\] must be true or false, not 0"),
        ({"kind": "c"}, "kind must be one of a, b, not 'c'"),
        ({"kind": []}, "kind must be one of a, b"),
        ({"minutes": math.nan}, "minutes must be a finite number"),
        ({"minutes": -math.inf}, "minutes must be a finite number"),
        ({"optional": math.inf}, "optional must be a finite number"),
        ({"optional": 10**400}, "optional must be a number"),
        ({"optional": "1"}, "optional must be a number, not '1'"),
        ({"by_colour": {"green": {"share": 1}}}, "by_colour.green must be one of red, blue"),
        ({"by_colour": {"red": {}}}, "by_colour.red.share is missing"),
        ({"by_colour": {"red": {"share": 1.01}}}, "by_colour.red.share must be between 0 and 1"),
        ({"by_colour": {"red": {"share": 1, "x": 1}}}, "by_colour.red.x is unknown"),
        ({"by_colour": {"red": {"share": 1, "numbers": [1.0, math.nan]}}}, r"numbers\[1\] must be a finite number"),
        ({"by_colour": {"red": {"share": 1, "numbers": [1.0, None]}}}, r"numbers\[1\] must be a number, not None"),
        ({"by_number": {"7": [-1.0]}}, r"by_number.7\[0\] must be between 0 and inf"),
        ({"by_number": {"x": []}}, "by_number.x must be named by a whole number"),
        ({"by_number": {"²": []}}, "by_number.² must be named by a whole number"),
        ({"by_number": []}, r"by_number must be an object, not \[\]"),
        ({"rows": {}}, "rows must be a list"),
        ({"rows": [{}]}, r"rows\[0\].epoch is missing"),
        ({"rows": [{"epoch": 1, "more": 1}]}, r"rows\[0\].more is unknown"),
    ],
)
def test_a_wrong_value_is_an_error_that_names_its_key(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        schema.read(Outer, GOOD | change)
