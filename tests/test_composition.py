from __future__ import annotations

import pytest
import torch

from harmonium.composition import Composition, find_composition
from harmonium.errors import HarmoniumError
from laws import check_composition


@pytest.mark.parametrize("name", ["distmult", "hole", "complex", "tensorproduct"])
@pytest.mark.parametrize("entity_dim", [1, 2, 5, 6])
def test_laws(name: str, entity_dim: int) -> None:
    composition = find_composition(name)
    if name == "complex" and entity_dim % 2:
        with pytest.raises(HarmoniumError, match="even entity_dim"):
            composition.dim(entity_dim, entity_dim)
        return
    check_composition(composition, entity_dim)


def test_tensor_product_takes_its_own_relation_size() -> None:
    check_composition(find_composition("tensorproduct"), entity_dim=3, relation_dim=4)


def test_a_users_composition_needs_one_formula() -> None:
    class Concatenation(Composition):  # affine, not linear, in each slot
        def compose(self, head, relation, tail):
            head, relation, tail = torch.broadcast_tensors(head, relation, tail)
            return torch.cat([head, relation, tail], dim=-1)

    try:
        check_composition(Concatenation(), 4)
        assert isinstance(find_composition("concatenation"), Concatenation)
    finally:
        del Composition.registry["concatenation"]


def expected_scores(head: list[float], relation: list[float], tail: list[float]) -> dict[str, float]:
    """Each plain model's score by its own textbook sum, written apart from the library."""
    d, half = len(head), len(head) // 2
    z = [
        complex(head[i], head[half + i])
        * complex(relation[i], relation[half + i])
        * complex(tail[i], tail[half + i]).conjugate()
        for i in range(half)
    ]
    return {
        "distmult": sum(h * r * t for h, r, t in zip(head, relation, tail, strict=True)),
        "hole": sum(relation[k] * sum(head[i] * tail[(i + k) % d] for i in range(d)) for k in range(d)),
        "complex": sum(z).real,
        "tensorproduct": sum(head) * sum(relation) * sum(tail),
    }


def test_sum_of_the_composed_vector_is_the_textbook_score() -> None:
    vectors = torch.randn(3, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    expected = expected_scores(*vectors.tolist())
    assert set(expected) == set(Composition.registry)
    for name, score in expected.items():
        assert find_composition(name).compose(*vectors).sum().item() == pytest.approx(score, rel=1e-12)


def test_sizes_that_cannot_be_used_are_refused() -> None:
    with pytest.raises(HarmoniumError, match="relation_dim equal to entity_dim"):
        find_composition("hole").dim(4, 5)
    with pytest.raises(HarmoniumError, match="choose smaller"):
        find_composition("tensorproduct").dim(100, 100)
    with pytest.raises(HarmoniumError, match="no composition 'transe'; there are complex, distmult"):
        find_composition("transe")
