from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from harmonium.data.triples import Slot
from harmonium.errors import HarmoniumError
from harmonium.model.composition import Composition, find_composition
from harmonium.model.gradient_graph import GradientGraph
from harmonium.model.harmony import Sum
from laws import check_composition, random_triples

NAMES = sorted(name for name, kind in Composition.registry.items() if kind.__module__.startswith("harmonium"))
SIZE = 6  # of an entity vector, below
Formula = Callable[[Tensor, Tensor, Tensor], list[Tensor]]
COORDINATES: dict[str, Formula] = {}  # of the composed vector, by definition


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


def coordinates_of(formula: Formula) -> Formula:
    """Declare the coordinates of a composition, written without the library; the function has the composition's name."""
    COORDINATES[formula.__name__] = formula
    return formula


@coordinates_of
def distmult(head, relation, tail):
    return [head[i] * relation[i] * tail[i] for i in range(SIZE)]


@coordinates_of
def hole(head, relation, tail):
    return [relation[k] * sum(head[i] * tail[(i + k) % SIZE] for i in range(SIZE)) for k in range(SIZE)]


@coordinates_of
def complex(head, relation, tail):
    half = SIZE // 2
    product = torch.complex(head[:half], head[half:]) * torch.complex(relation[:half], relation[half:])
    return [*product.real * tail[:half], *product.imag * tail[half:]]


@coordinates_of
def tensorproduct(head, relation, tail):
    return [h * r * t for h in head for r in relation for t in tail]


@coordinates_of
def concatenation(head, relation, tail):
    return [*head, *relation, *tail]


@coordinates_of
def rescal(head, relation, tail):
    matrix = relation.view(SIZE, SIZE)
    return [head[i] * matrix[i, j] * tail[j] for i in range(SIZE) for j in range(SIZE)]


@coordinates_of
def rescalproduct(head, relation, tail):
    matrix = relation.view(SIZE, SIZE)
    return [head[i] * sum(matrix[i, j] * tail[j] for j in range(SIZE)) for i in range(SIZE)]


@coordinates_of
def triplecorrelation(head, relation, tail):
    pairs = [(i, j) for i in range(SIZE) for j in range(SIZE)]
    return [sum(head[i] * relation[j] * tail[(i + j + k) % SIZE] for i, j in pairs) for k in range(SIZE)]


def random_vectors(name: str) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    sizes = (SIZE, find_composition(name).relation_dim(SIZE), SIZE)
    head, relation, tail = (torch.randn(size, dtype=torch.float64, generator=generator) for size in sizes)
    return head, relation, tail


@pytest.mark.parametrize("name", NAMES)
def test_each_coordinate_by_its_definition(name: str) -> None:
    vectors = random_vectors(name)
    assert name in COORDINATES, "declare its coordinates by @coordinates_of"
    composed = find_composition(name).compose(*vectors)
    torch.testing.assert_close(composed, torch.stack(COORDINATES[name](*vectors)), rtol=1e-12, atol=1e-12)


def test_sums_of_coordinates_are_the_scores_of_the_literature() -> None:
    head, relation, tail = vectors = random_vectors("complex")
    half = SIZE // 2
    pairs = [torch.complex(vector[:half], vector[half:]) for vector in vectors]
    hermitian = (pairs[0] * pairs[1] * pairs[2].conj()).real.sum()
    torch.testing.assert_close(torch.stack(complex(*vectors)).sum(), hermitian)
    torch.testing.assert_close(triplecorrelation(*vectors)[0], torch.stack(hole(head, relation, tail)).sum())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("slot", list(Slot))
def test_bounds_hold_and_are_exact_where_they_say_so(name: str, slot: Slot) -> None:
    composition, generator = find_composition(name), torch.Generator().manual_seed(5)
    relation_dim = composition.relation_dim(4)
    model = GradientGraph(composition, 7, 3, 4, Sum(composition.dim(4, relation_dim))).double().initialise()
    slot_map = model.scorer().slot_map(slot, random_triples(model))
    candidates = torch.randn(9, slot_map.slot_dim, dtype=torch.float64, generator=generator)
    length = (slot_map.beside_candidates().apply(candidates) - slot_map.offset[:, None]).square().sum(-1)  # (b, n)
    bound = composition.norm_bound(slot_map, candidates)
    if bound is None:
        return  # nothing is claimed
    assert (bound >= length * (1 - 1e-12)).all()
    if name in ("distmult", "tensorproduct", "concatenation", "rescal", "triplecorrelation"):
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
