"""A composition that would be mis-scored is refused, with the reason, before a model of it exists."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from harmonium.config.settings import ModelConfig
from harmonium.errors import HarmoniumError
from harmonium.kernels.interfaces import CorrelationProduct, ElementwiseProduct
from harmonium.model.build import build_model
from harmonium.model.composition import Composition, find_composition
from harmonium.model.composition_check import check_composition

Formula = Callable[[Tensor, Tensor, Tensor], Any]


@pytest.fixture
def register() -> Iterator[Callable[..., str]]:
    """Register a composition by its formula and attributes for one test."""
    before = dict(Composition.registry)

    def define(formula: Formula, **attributes: Any) -> str:
        def compose(_: Composition, head: Tensor, relation: Tensor, tail: Tensor) -> Any:
            return formula(head, relation, tail)

        type("Mine", (Composition,), {"compose": compose, **attributes})
        return "mine"

    yield define
    Composition.registry.clear()
    Composition.registry.update(before)


@pytest.mark.parametrize("name", sorted(Composition.registry))
@pytest.mark.parametrize("entity_dim", [1, 2, 6])
def test_the_compositions_of_the_package_pass(name: str, entity_dim: int) -> None:
    composition = find_composition(name)
    if name != "complex" or entity_dim % 2 == 0:
        check_composition(composition, entity_dim, composition.relation_dim(entity_dim))


AFFINE: dict[str, Formula] = {
    "translation": lambda h, r, t: h + r - t,
    "product": lambda h, r, t: h * r * t,
    "with a constant": lambda h, r, t: (h + 1) * (r - 2) * (t + 3),
    "two products": lambda h, r, t: h * r + r * t,
    "one coordinate": lambda h, r, t: (h * r * t).sum(-1, keepdim=True),
    "nothing of the relation": lambda h, r, t: h * t.roll(1, -1),
    "zero": lambda h, r, t: 0 * h * r * t,
    "large numbers": lambda h, r, t: 1e12 * h * r * t + 1e9,
    "matrix": lambda h, r, t: (h[..., :, None] * t[..., None, :]).flatten(-2) + F.pad(r, (0, 30)),
}


@pytest.mark.parametrize("name", AFFINE)
def test_formulas_that_are_affine_in_each_slot_pass(name: str, register: Callable[..., str]) -> None:
    build_model(ModelConfig(register(AFFINE[name]), 6), 5, 2)


CURVED: dict[str, tuple[str, Formula]] = {
    "distance": ("head", lambda h, r, t: -(h + r - t).abs()),
    "squared distance": ("head", lambda h, r, t: -(h + r - t).square()),
    "unit head": ("head", lambda h, r, t: F.normalize(h, dim=-1) * r * t),
    "squared relation": ("relation", lambda h, r, t: h * r * r * t),
    "rotation by an angle": ("relation", lambda h, r, t: h * r.cos() * t),
    "tanh of the tail": ("tail", lambda h, r, t: h * r * torch.tanh(t)),
    "rectified": ("relation", lambda h, r, t: h * t + 1e-3 * r.relu()),
    "clamped far away": ("head", lambda h, r, t: (h * r * t).clamp(-1e4, 1e4)),
    "rounded": ("head", lambda h, r, t: (h * r * t * 100).round()),
    "softmax": ("head", lambda h, r, t: h.softmax(-1) * r * t),
    "sorted": ("tail", lambda h, r, t: h * r * t.sort(-1).values),
    "random": ("head", lambda h, r, t: F.dropout(h * r * t)),
}


@pytest.mark.parametrize("name", CURVED)
def test_formulas_that_are_not_affine_in_each_slot_are_refused(name: str, register: Callable[..., str]) -> None:
    slot, formula = CURVED[name]
    expected = f"'mine' is not affine in its {slot}" if name != "random" else "or on chance"
    with pytest.raises(HarmoniumError, match=expected) as raised:
        build_model(ModelConfig(register(formula), 6), 5, 2)
    assert name == "random" or "affine in each slot (CONTRIBUTING.md" in str(raised.value)


@pytest.mark.parametrize(
    ("message", "formula"),
    [
        (r"returns the shape \(\).*one vector for each triple", lambda h, r, t: (h * r * t).sum(-1)),
        (r"returns the shape \(\).*one vector for each triple", lambda h, r, t: (h * r * t).sum()),
        (r"returns the shape \(6, 6\)", lambda h, r, t: h[..., :, None] * t[..., None, :]),
        (r"returns the shape \(3, 6\)", lambda h, r, t: torch.stack([h, r, t])),
        (r"returns the shape \(0,\)", lambda h, r, t: h[..., :0]),
        ("returns a float, not a tensor", lambda h, r, t: 1.0),
        ("returns a NoneType", lambda h, r, t: None),
        ("returns a tuple", lambda h, r, t: (h, r, t)),
        ("returns torch.float16 for torch.float32", lambda h, r, t: (h * r * t).half()),
        ("returns a tensor on meta for cpu; keep the device", lambda h, r, t: (h * r * t).to("meta")),
        ("not finite", lambda h, r, t: h / t * r),
        (r"fails on torch.float32 vectors.*'x'", lambda h, r, t: {}["x"]),
        (r"fails on torch.float32 vectors of shapes \(6,\)", lambda h, r, t: h @ torch.ones(7, 3)),
        ("fails on torch.float64 vectors", lambda h, r, t: (h * r * t) @ torch.ones(6, 6)),
        ("any leading dimensions", lambda h, r, t: torch.cat([h, r, t], dim=-1)),
        ("others of its batch", lambda h, r, t: h * r * t + (h.flatten(0, -2).sum(0) if h.dim() > 1 else h)),
    ],
)  # fmt: skip
def test_what_is_not_one_vector_for_each_triple_is_refused(
    message: str, formula: Formula, register: Callable[..., str]
) -> None:
    with pytest.raises(HarmoniumError, match=message):
        build_model(ModelConfig(register(formula), 6), 5, 2)


@pytest.mark.parametrize(
    ("message", "attributes"),
    [
        ("declares is_linear, but a zero head does not compose to zero", {"is_linear": True}),
        ("transpose with the head open", {"transpose": lambda self, slot_map, cotangent: cotangent * 2}),
        ("norm_bound with the head", {"norm_bound": lambda self, slot_map, c: c.square() @ c.square().T * 1e-9}),
        ("norm_bound with the head", {"norm_bound": lambda self, slot_map, c: c.square() @ c.square().T * math.nan}),
        ("product with the head", {"product": lambda self, slot_map: ElementwiseProduct(slot_map.first)}),
        (
            "product with the head",
            {"product": lambda self, slot_map: CorrelationProduct(slot_map.second, slot_map.first)},
        ),
        ("transpose, norm_bound or product fails", {"transpose": lambda self, slot_map, cotangent: {}["x"]}),
        ("transpose, norm_bound or product fails", {"norm_bound": lambda self, slot_map, c: "long"}),
        ("transpose, norm_bound or product fails", {"product": lambda self, slot_map: slot_map.first}),
    ],
)
def test_false_statements_are_refused(message: str, attributes: dict, register: Callable[..., str]) -> None:
    name = register(lambda h, r, t: h + r - t, **attributes)
    with pytest.raises(HarmoniumError, match=f"'mine'.*{message}"):
        build_model(ModelConfig(name, 6), 5, 2)
