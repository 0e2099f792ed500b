from __future__ import annotations

import pytest
import torch

from harmonium.data.triples import Slot
from harmonium.errors import HarmoniumError
from harmonium.model.composition import Composition, find_composition
from harmonium.model.gradient_graph import GradientGraph
from harmonium.model.harmony import Sum
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
    if name != "complex" or entity_dim % 2 == 0:
        check_composition(find_composition(name), entity_dim)


@pytest.mark.parametrize("name", ["tensorproduct", "concatenation"])
def test_laws_with_another_relation_size(name: str) -> None:
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


def test_each_coordinate_by_its_definition() -> None:
    """The sum of the coordinates is the textbook score of the plain model."""
    head, relation, tail = torch.randn(3, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    matrix = torch.randn(6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    d, half, coordinates = 6, 3, range(6)
    pairs = [torch.complex(vector[:half], vector[half:]) for vector in (head, relation)]
    product = pairs[0] * pairs[1]
    shifted = [
        [head[i] * relation[j] * tail[(i + j + k) % d] for i in coordinates for j in coordinates] for k in coordinates
    ]
    expected = {
        "distmult": [head[i] * relation[i] * tail[i] for i in coordinates],
        "hole": [relation[k] * sum(head[i] * tail[(i + k) % d] for i in coordinates) for k in coordinates],
        "complex": [*product.real * tail[:half], *product.imag * tail[half:]],
        "tensorproduct": [h * r * t for h in head for r in relation for t in tail],
        "concatenation": [*head, *relation, *tail],
        "rescal": [head[i] * matrix[i, j] * tail[j] for i in coordinates for j in coordinates],
        "rescalproduct": [head[i] * sum(matrix[i, j] * tail[j] for j in coordinates) for i in coordinates],
        "triplecorrelation": [sum(terms) for terms in shifted],
    }
    assert set(expected) == set(Composition.registry) == set(NAMES)
    for name, values in expected.items():
        composed = find_composition(name).compose(
            head, matrix.flatten() if name.startswith("rescal") else relation, tail
        )
        torch.testing.assert_close(composed, torch.stack(values), rtol=1e-12, atol=1e-12)
    hermitian = (product * torch.complex(tail[:half], tail[half:]).conj()).real.sum()
    torch.testing.assert_close(torch.stack(expected["complex"]).sum(), hermitian)
    torch.testing.assert_close(expected["triplecorrelation"][0], torch.stack(expected["hole"]).sum())


BOUNDED = [name for name in NAMES if name != "rescalproduct"]


@pytest.mark.parametrize("name", BOUNDED)
@pytest.mark.parametrize("slot", list(Slot))
def test_bounds_hold_and_are_exact_where_they_say_so(name: str, slot: Slot) -> None:
    composition, generator = find_composition(name), torch.Generator().manual_seed(5)
    relation_dim = composition.relation_dim(4)
    model = GradientGraph(composition, 7, 3, 4, Sum(composition.dim(4, relation_dim))).double().initialise()
    slot_map = model.scorer().slot_map(slot, random_triples(model))
    candidates = torch.randn(9, slot_map.slot_dim, dtype=torch.float64, generator=generator)
    length = (slot_map.beside_candidates().apply(candidates) - slot_map.offset[:, None]).square().sum(-1)  # (b, n)
    bound = composition.norm_bound(slot_map, candidates)
    assert (bound >= length * (1 - 1e-12)).all()
    if name not in ("hole", "complex"):
        torch.testing.assert_close(bound.expand_as(length), length)


@pytest.mark.parametrize(
    ("name", "entity_dim", "relation_dim", "message"),
    [
        ("hole", 4, 5, "relation_dim equal to entity_dim"),
        ("complex", 5, 5, "even entity_dim"),
        ("tensorproduct", 100, 100, "choose smaller"),
        ("rescalproduct", 5, 5, "needs relation_dim 25, .* not 5; remove model.relation_dim"),
        ("rescal", 142, 142**2, "20,164 coordinates; choose at most 141"),
        ("transe", 4, 4, "no composition 'transe'; there are complex, concatenation, distmult"),
    ],
)
def test_sizes_that_cannot_be_used_are_refused(name: str, entity_dim: int, relation_dim: int, message: str) -> None:
    with pytest.raises(HarmoniumError, match=message):
        find_composition(name).dim(entity_dim, relation_dim)
