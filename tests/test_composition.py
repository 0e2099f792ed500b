from __future__ import annotations

import pytest
import torch

from harmonium.composition import Composition, find_composition
from harmonium.errors import HarmoniumError
from harmonium.graph import Slot
from harmonium.harmony import Sum
from harmonium.model import GradientGraph
from laws import check_composition, random_triples

NAMES = [
    "distmult",
    "hole",
    "complex",
    "tensorproduct",
    "concatenation",
    "rescal",
    "rescalproduct",
    "triplecorrelation",
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("entity_dim", [1, 5, 6])
def test_laws(name: str, entity_dim: int) -> None:
    composition = find_composition(name)
    if name == "complex" and entity_dim % 2:
        with pytest.raises(HarmoniumError, match="even entity_dim"):
            composition.dim(entity_dim, entity_dim)
        return
    check_composition(composition, entity_dim)


@pytest.mark.parametrize("name", ["tensorproduct", "concatenation"])
def test_some_take_their_own_relation_size(name: str) -> None:
    check_composition(find_composition(name), entity_dim=3, relation_dim=4)


def test_a_users_composition_needs_one_formula() -> None:
    class Translation(Composition):  # affine, not linear, in each slot
        def compose(self, head, relation, tail):
            return head + relation - tail

    try:
        check_composition(Translation(), 4)
        assert isinstance(find_composition("translation"), Translation)
    finally:
        del Composition.registry["translation"]


def expected_scores(
    head: list[float], relation: list[float], tail: list[float], matrix: list[list[float]]
) -> dict[str, float]:
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
        "concatenation": sum(head) + sum(relation) + sum(tail),
        "rescal": sum(head[i] * matrix[i][j] * tail[j] for i in range(d) for j in range(d)),
        "rescalproduct": sum(head[i] * matrix[i][j] * tail[j] for i in range(d) for j in range(d)),
        "triplecorrelation": sum(head) * sum(relation) * sum(tail),
    }


def test_sum_of_the_composed_vector_is_the_textbook_score() -> None:
    generator = torch.Generator().manual_seed(3)
    head, relation, tail = vectors = torch.randn(3, 6, dtype=torch.float64, generator=generator)
    matrix = torch.randn(6, 6, dtype=torch.float64, generator=generator)
    expected = expected_scores(*vectors.tolist(), matrix.tolist())
    assert set(expected) == set(Composition.registry) == set(NAMES)
    for name, score in expected.items():
        given = matrix.flatten() if name.startswith("rescal") else relation
        assert find_composition(name).compose(head, given, tail).sum().item() == pytest.approx(score, rel=1e-12)


def test_each_coordinate_by_its_definition() -> None:
    """Sums alone would not notice a coordinate in a wrong place."""
    generator = torch.Generator().manual_seed(4)
    head, relation, tail = torch.randn(3, 5, dtype=torch.float64, generator=generator)
    matrix = torch.randn(5, 5, dtype=torch.float64, generator=generator)
    places, d = range(5), 5
    shifted = [[head[i] * relation[j] * tail[(i + j + k) % d] for i in places for j in places] for k in places]
    expected = {
        "concatenation": [*head, *relation, *tail],
        "rescal": [head[i] * matrix[i, j] * tail[j] for i in places for j in places],
        "rescalproduct": [head[i] * sum(matrix[i, j] * tail[j] for j in places) for i in places],
        "triplecorrelation": [sum(terms) for terms in shifted],
    }
    for name, coordinates in expected.items():
        given = matrix.flatten() if name.startswith("rescal") else relation
        found = find_composition(name).compose(head, given, tail)
        torch.testing.assert_close(found, torch.stack(coordinates), rtol=1e-12, atol=1e-12)
    hole = find_composition("hole").compose(head, relation, tail).sum()
    torch.testing.assert_close(torch.stack(expected["triplecorrelation"])[0], hole)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "rescalproduct"])
@pytest.mark.parametrize("slot", list(Slot))
def test_bounds_hold_and_are_exact_where_they_say_so(name: str, slot: Slot) -> None:
    composition, generator = find_composition(name), torch.Generator().manual_seed(5)
    relation_dim = composition.relation_dim(4)
    model = GradientGraph(composition, 7, 3, 4, Sum(composition.dim(4, relation_dim))).double().initialise()
    slot_map = model.snapshot().slot_map(slot, random_triples(model))
    candidates = torch.randn(9, slot_map.slot_dim, dtype=torch.float64, generator=generator)
    length = (slot_map.beside_candidates().apply(candidates) - slot_map.offset[:, None]).square().sum(-1)  # (b, n)
    bound = composition.norm_bound(slot_map, candidates)
    assert (bound >= length * (1 - 1e-12)).all()
    if name not in ("hole", "complex"):
        torch.testing.assert_close(bound.expand_as(length), length)


def test_sizes_that_cannot_be_used_are_refused() -> None:
    with pytest.raises(HarmoniumError, match="relation_dim equal to entity_dim"):
        find_composition("hole").dim(4, 5)
    with pytest.raises(HarmoniumError, match="choose smaller"):
        find_composition("tensorproduct").dim(100, 100)
    with pytest.raises(HarmoniumError, match="rescalproduct needs relation_dim 25, .* not 5; leave model.relation_dim"):
        find_composition("rescalproduct").dim(5, 5)
    with pytest.raises(HarmoniumError, match="rescal of entity_dim 142 has 20,164 coordinates; choose at most 141, or"):
        find_composition("rescal").dim(142, 142**2)
    assert find_composition("rescal").dim(141, 141**2) == 19_881
    with pytest.raises(HarmoniumError, match="no composition 'transe'; there are complex, concatenation, distmult"):
        find_composition("transe")
