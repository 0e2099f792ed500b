"""The Triton kernels against the definition. Without a GPU they run in Triton's interpreter, hence tiny sizes."""

# ruff: noqa: E402 (what is imported last depends on what is decided first)

import os
from dataclasses import replace
from functools import partial

import pytest
import torch

INTERPRETED = not torch.cuda.is_available()
if INTERPRETED:
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported
triton = pytest.importorskip("triton")
if INTERPRETED:
    from triton.runtime import interpreter

    if not isinstance(triton.language.cdiv, interpreter.InterpretedFunction):
        pytest.skip("Triton was imported before, to compile: set TRITON_INTERPRET=1", allow_module_level=True)
    patch_tensor = interpreter._patch_lang_tensor

    def patch_tensor_and_index(tensor, scope):  # Triton 3.6 reads loop bounds in a product that NumPy 2.4 refuses
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    interpreter._patch_lang_tensor = patch_tensor_and_index

from harmonium.kernels import cross_entropy, triton_cross_entropy, triton_rows
from harmonium.kernels.complex_product import complex_product
from harmonium.kernels.triton_quadratic import Blocks, join_halves, prepare, quadratic_scores, split_halves
from kernels.quadratic_reference import (
    DIFFERENTIABLE,
    random_problem,
    reference_scores,
    relative_errors,
    scores_and_gradients,
)

DEVICE = "cpu" if INTERPRETED else "cuda"
PRODUCTS = ["product", "conjugate query", "conjugate entity", "both"]
# several tiles, chunks and output blocks at small sizes
SMALL = Blocks(16, 16, 8, 16, 16, 16, outer=16, step=16, split=1)


def signs(product, batch):
    """The sign of each query's complex product; None for the product of numbers."""
    ones = torch.ones(batch, device=DEVICE)
    mixed = 1 - 2 * (torch.arange(batch, device=DEVICE) % 2).float()
    return {"product": None, "conjugate query": ones, "conjugate entity": -ones, "both": mixed}[product]


def errors(problem, product, dtype=torch.float32, **options):
    """Relative errors of scores and gradients against float64: those of the kernels, of the definition in dtype."""
    gs = torch.randn(problem["ids"].shape, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    sign = signs(product, len(problem["query"]))
    define = partial(reference_scores, sign=sign)
    kernels = partial(quadratic_scores, sign=sign, operand_dtype=dtype, **options)
    exact = scores_and_gradients(define, problem, torch.float64, gs)
    by_kernels = scores_and_gradients(kernels, problem, torch.float32, gs)
    return relative_errors(by_kernels, exact), relative_errors(scores_and_gradients(define, problem, dtype, gs), exact)


def check(problem, product, **options):
    by_kernels, _ = errors(problem, product, **options)
    assert max(by_kernels.values()) < 1e-5, by_kernels


EVEN = [(product, *size) for product in PRODUCTS for size in [(2, 1, 1), (8, 5, 2), (64, 33, 1), (98, 17, 2)]]
ODD = [("product", d, n, 2) for d in (1, 7, 97) for n in (1, 17)]


@pytest.mark.parametrize("product, d, n, groups", EVEN + ODD)
def test_scores_and_gradients(product, d, n, groups):
    check(random_problem(23, d, 3, n, groups, DEVICE), product)


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize(
    "d, groups, blocks",
    [
        (32, 7, SMALL),  # 2, 4 and 6 chunks, partial tiles, groups of several queries and of none
        (64, 7, SMALL),
        (90, 7, SMALL),
        (34, 1, replace(SMALL, split=4)),  # groups split over programs
        (34, 3, replace(SMALL, split=4)),
        (60, 1, replace(SMALL, columns=32, width=32, outer=64)),  # unequal chunks
    ],
)
def test_blocks(product, d, groups, blocks):
    check(random_problem(50, d, 5, 37, groups, DEVICE, seed=3), product, blocks=blocks)


def test_rows_past_two_gigabytes():
    """Offsets of 64 bits give the same."""
    problem, gs = random_problem(20, 24, 3, 9, 2, DEVICE), torch.randn(3, 9, device=DEVICE)
    ids = problem.pop("ids")
    narrow = prepare(**problem, sign=signs(PRODUCTS[1], 3), n=9, operand_dtype=torch.float32)
    wide = replace(narrow, layout={**narrow.layout, "WIDE": True})
    torch.testing.assert_close(wide.scores(ids), narrow.scores(ids))
    pushed = narrow.scores(ids)[2]
    torch.testing.assert_close(wide.vector_gradients(ids, gs, pushed), narrow.vector_gradients(ids, gs, pushed))


def test_given_offsets():
    problem = random_problem(20, 24, 3, 9, 6, DEVICE)
    problem["group"] = torch.tensor([1, 1, 4], dtype=torch.int32, device=DEVICE)
    offsets = torch.tensor([0, 0, 2, 2, 2, 3, 3], dtype=torch.int32, device=DEVICE)
    check(problem, PRODUCTS[2], blocks=SMALL, group_offsets=offsets)


def test_repeated_candidates_add_up():
    problem = random_problem(3, 16, 2, 40, 1, DEVICE)
    problem["ids"][:] = 1
    check(problem, "product", blocks=SMALL)


@pytest.mark.parametrize("product", PRODUCTS)
def test_half_precision(product):
    """No worse than twice the error of the definition in that precision. The interpreter has no bfloat16."""
    dtype = torch.float16 if INTERPRETED else torch.bfloat16
    by_kernels, plain = errors(random_problem(40, 64, 4, 33, 2, DEVICE), product, dtype)
    assert all(by_kernels[name] <= 2 * plain[name] for name in plain), (by_kernels, plain)


def test_gradients_are_like_the_arguments_and_only_where_wanted():
    problem = random_problem(9, 15, 2, 5, 1, DEVICE)
    leaves = {name: problem[name].double().requires_grad_(name != "linear") for name in DIFFERENTIABLE}
    problem["ids"] = problem["ids"].long()
    quadratic_scores(**{**problem, **leaves}, operand_dtype=torch.float32).sum().backward()
    assert leaves.pop("linear").grad is None
    assert {leaf.grad.dtype for leaf in leaves.values()} == {torch.float64}
    assert leaves["matrix"].grad.equal(leaves["matrix"].grad.mT)


@pytest.mark.parametrize("d", [1, 2, 7, 64])
def test_halves_are_inverse(d):
    x = torch.randn(3, d)
    split = split_halves(x, 32)
    assert split.shape == (3, 64)
    assert split[:, (d + 1) // 2 : 32].eq(0).all()
    assert join_halves(split, d).equal(x)


def test_refusals():
    problem = random_problem(9, 7, 2, 5, 1)
    with pytest.raises(ValueError, match="even"):
        quadratic_scores(**problem, sign=torch.ones(2))


@pytest.mark.parametrize("n, d", [(1, 1), (5, 7), (33, 130)])
def test_unit_rows_and_their_gradient(n: int, d: int) -> None:
    generator = torch.Generator().manual_seed(0)
    rows, g = (torch.randn(n, d, generator=generator).to(DEVICE) for _ in range(2))
    rows[0] = 0
    unit, inverse_length = triton_rows.unit_rows(rows)
    rows.requires_grad_()
    expected = rows / rows.norm(dim=1, keepdim=True).clamp(min=1e-12)
    torch.testing.assert_close(unit, expected.detach())
    expected[1:].backward(g[1:])
    torch.testing.assert_close(triton_rows.unit_rows_gradient(g, unit, inverse_length)[1:], rows.grad[1:])


def test_scaled_columns() -> None:
    matrix, scales = torch.randn(67, 65, device=DEVICE), torch.randn(3, 65, device=DEVICE)
    torch.testing.assert_close(triton_rows.scaled_columns(matrix, scales), matrix * scales[:, None])


@pytest.mark.parametrize("rows, width, count", [(1, 1, 1), (17, 130, 9), (40, 65, 3)])
def test_gradients_of_scaled_columns(rows, width, count):
    generator = torch.Generator().manual_seed(rows)
    leaves = [torch.randn(n, width, generator=generator).double().requires_grad_() for n in (rows, count)]
    g = torch.randn(count, rows, width, generator=generator)
    expected = torch.autograd.grad(leaves[0] * leaves[1][:, None], leaves, g.double())
    measured = triton_rows.scaled_columns_gradients(
        g.to(DEVICE), *(leaf.detach().float().to(DEVICE) for leaf in leaves)
    )
    for ours, exact in zip(measured, expected, strict=True):
        torch.testing.assert_close(ours.cpu().double(), exact, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rank, rows, width", [(1, 1, 1), (3, 5, 7), (8, 3, 200)])
def test_mixed_directions(rank, rows, width):
    generator = torch.Generator().manual_seed(rank)
    core, vectors = (
        torch.randn(rank, rank, generator=generator),
        torch.randn(1 + rank, rows, width, generator=generator),
    )
    expected = cross_entropy.mix_directions(core.double(), vectors.double(), torch.float64)
    measured = triton_cross_entropy.mix_directions(core.to(DEVICE), vectors.to(DEVICE), torch.float32)
    torch.testing.assert_close(measured.cpu().double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rank", [0, 1, 3, 17])
@pytest.mark.parametrize(
    "queries, candidates, padding, smoothing", [(1, 1, 0, 0.0), (3, 50, 6, 0.1), (2, 2100, 4, 0.0)]
)
def test_passes_of_the_cross_entropy(queries, candidates, padding, smoothing, rank):
    generator = torch.Generator().manual_seed(candidates + rank)
    products = torch.randn(1 + rank, queries, candidates + padding, generator=generator).to(DEVICE)
    core = torch.randn(rank, rank, generator=generator).to(DEVICE)
    core = (core + core.T) / (2 * max(1, rank))
    target = torch.randint(candidates, (queries,), generator=generator).to(DEVICE)
    scale = torch.rand(len(target), device=DEVICE)
    exact, ours = products.double().cpu(), products.clone()
    expected = cross_entropy.score_rows(exact, core.double().cpu(), target.cpu(), candidates, smoothing)
    measured = triton_cross_entropy.score_rows(ours, core, target, candidates, smoothing)
    for value, reference in zip(measured, expected, strict=True):
        torch.testing.assert_close(value.cpu().double(), reference, rtol=1e-5, atol=1e-5)
    arguments = scale, candidates, smoothing
    weights = triton_cross_entropy.weigh_rows(ours, measured[1], target, *arguments, torch.float32)
    reference = cross_entropy.weigh_rows(exact, expected[1], target.cpu(), scale.cpu(), *arguments[1:], torch.float64)
    torch.testing.assert_close(weights.cpu().double(), reference, rtol=1e-4, atol=1e-6)
    assert not weights[:, :, candidates:].any()


@pytest.mark.parametrize("shape", [(1,), (33, 7), (2100,)])
def test_adagrad_in_one_pass(shape):
    generator = torch.Generator().manual_seed(0)
    parameter, squares, gradient = (torch.randn(shape, generator=generator).to(DEVICE) for _ in range(3))
    squares = squares.square()
    expected_squares = squares + gradient.square()
    expected = parameter - 0.1 * gradient / (expected_squares.sqrt() + 1e-10)
    triton_rows.adagrad(parameter, squares, gradient, torch.tensor(0.1, device=DEVICE), 1e-10)
    torch.testing.assert_close(squares, expected_squares)
    torch.testing.assert_close(parameter, expected)


@pytest.mark.parametrize("conjugate", [False, True])
@pytest.mark.parametrize("n, d", [(1, 2), (5, 14), (3, 2100)])
def test_complex_products(n, d, conjugate):
    generator = torch.Generator().manual_seed(d)
    left, right, g = (torch.randn(n, d, generator=generator) for _ in range(3))
    leaves = [tensor.double().requires_grad_() for tensor in (left, right)]
    expected = complex_product(*leaves, conjugate)
    gradients = torch.autograd.grad(expected, leaves, g.double())
    left, right, g = left.to(DEVICE), right.to(DEVICE), g.to(DEVICE)
    torch.testing.assert_close(
        triton_rows.complex_product(left, right, conjugate).cpu().double(), expected.detach(), rtol=1e-5, atol=1e-6
    )
    measured = triton_rows.complex_product_gradients(g, left, right, conjugate)
    for ours, exact in zip(measured, gradients, strict=True):
        torch.testing.assert_close(ours.cpu().double(), exact, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("parts, n, d", [(1, 1, 1), (1, 3, 1100), (2, 4, 6), (2, 3, 2100), (4, 2, 12)])
def test_sums_of_cubes(parts, n, d):
    vectors = torch.randn(n, d, generator=torch.Generator().manual_seed(d)).to(DEVICE)
    vectors[0] = 0  # where the magnitude has no gradient, its cube has
    exact = vectors.double().cpu().requires_grad_()
    expected = exact.unflatten(1, (parts, -1)).square().sum(1).add(1e-60).pow(1.5).sum()
    expected.backward()
    torch.testing.assert_close(triton_rows.sum_of_cubes(vectors, parts).cpu().double(), expected.detach())
    g = torch.tensor(0.7, device=DEVICE)
    ours = triton_rows.sum_of_cubes_gradient(vectors, g, parts)
    torch.testing.assert_close(ours.cpu().double(), 0.7 * exact.grad, rtol=1e-5, atol=1e-5)
