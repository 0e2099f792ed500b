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

    def patch_tensor_and_index(tensor, scope):  # Triton 3.6 reads loop bounds in a way that NumPy 2.4 refuses
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    interpreter._patch_lang_tensor = patch_tensor_and_index

from harmonium.kernels.triton import (
    Blocks,
    join_halves,
    prepare,
    quadratic_scores,
    split_halves,
)
from kernels.quadratic_reference import random_problem, reference_scores, relative_errors, scores_and_gradients

DEVICE = "cpu" if INTERPRETED else "cuda"
WAYS = ["product", "conjugate query", "conjugate entity", "both"]
# several tiles, chunks and output blocks at small sizes
SMALL = Blocks(16, 16, 8, 16, 16, 16, outer=16, step=16, split=1)


def signs(way, batch):
    """The sign of each query's complex product; None for the product of numbers."""
    ones = torch.ones(batch, device=DEVICE)
    mixed = 1 - 2 * (torch.arange(batch, device=DEVICE) % 2).float()
    return {"product": None, "conjugate query": ones, "conjugate entity": -ones, "both": mixed}[way]


def errors(problem, way, dtype=torch.float32, **options):
    """Relative errors of scores and gradients against float64: those of the kernels, of the definition in dtype."""
    gs = torch.randn(problem["ids"].shape, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    sign = signs(way, len(problem["query"]))
    define = partial(reference_scores, sign=sign)
    kernels = partial(quadratic_scores, sign=sign, operand_dtype=dtype, **options)
    exact = scores_and_gradients(define, problem, torch.float64, gs)
    found = scores_and_gradients(kernels, problem, torch.float32, gs)
    return relative_errors(found, exact), relative_errors(scores_and_gradients(define, problem, dtype, gs), exact)


def check(problem, way, **options):
    found, _ = errors(problem, way, **options)
    assert max(found.values()) < 1e-5, found


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("d, n, groups", [(2, 1, 1), (8, 5, 2), (64, 33, 1), (98, 17, 2)])
def test_scores_and_gradients(way, d, n, groups):
    check(random_problem(23, d, 3, n, groups, DEVICE), way)


@pytest.mark.parametrize("d", [1, 7, 97])
@pytest.mark.parametrize("n", [1, 17])
def test_odd_widths(d, n):
    check(random_problem(11, d, 3, n, 2, DEVICE), "product")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("d", [32, 64, 90])
def test_many_blocks(way, d):
    """2, 4 and 6 chunks, partial tiles, groups of several queries and of none."""
    check(random_problem(50, d, 5, 37, 7, DEVICE, seed=3), way, blocks=SMALL)


@pytest.mark.parametrize("groups", [1, 3])
def test_groups_split_over_programs(groups):
    check(random_problem(50, 34, 5, 37, groups, DEVICE), WAYS[1], blocks=replace(SMALL, split=4))


@pytest.mark.parametrize("way", WAYS)
def test_unequal_chunks(way):
    check(random_problem(20, 60, 3, 20, 1, DEVICE), way, blocks=replace(SMALL, columns=32, width=32, outer=64))


def test_rows_past_two_gigabytes():
    """Offsets of 64 bits give the same."""
    problem, gs = random_problem(20, 24, 3, 9, 2, DEVICE), torch.randn(3, 9, device=DEVICE)
    ids = problem.pop("ids")
    narrow = prepare(**problem, sign=signs(WAYS[1], 3), n=9, operand_dtype=torch.float32)
    wide = replace(narrow, layout={**narrow.layout, "WIDE": True})
    torch.testing.assert_close(wide.scores(ids), narrow.scores(ids))
    pushed = narrow.scores(ids)[2]
    torch.testing.assert_close(wide.vector_gradients(ids, gs, pushed), narrow.vector_gradients(ids, gs, pushed))


def test_given_offsets():
    problem = random_problem(20, 24, 3, 9, 6, DEVICE)
    problem["group"] = torch.tensor([1, 1, 4], dtype=torch.int32, device=DEVICE)
    offsets = torch.tensor([0, 0, 2, 2, 2, 3, 3], dtype=torch.int32, device=DEVICE)
    check(problem, WAYS[2], blocks=SMALL, group_offsets=offsets)


def test_repeated_candidates_add_up():
    problem = random_problem(3, 16, 2, 40, 1, DEVICE)
    problem["ids"][:] = 1
    check(problem, "product", blocks=SMALL)


@pytest.mark.parametrize("way", WAYS)
def test_half_precision(way):
    """No worse than twice the error of the definition in that precision. The interpreter has no bfloat16."""
    dtype = torch.float16 if INTERPRETED else torch.bfloat16
    found, plain = errors(random_problem(40, 64, 4, 33, 2, DEVICE), way, dtype)
    assert all(found[name] <= 2 * plain[name] for name in found), (found, plain)


def test_gradients_only_where_wanted():
    problem = random_problem(9, 16, 2, 5, 1, DEVICE)
    problem["query"].requires_grad_()
    quadratic_scores(**problem, operand_dtype=torch.float32).sum().backward()
    assert problem["query"].grad is not None
    assert all(problem[name].grad is None for name in ("table", "matrix", "linear"))


def test_gradients_are_like_the_arguments():
    problem = random_problem(9, 15, 2, 5, 1, DEVICE)
    leaves = {name: problem[name].double().requires_grad_() for name in ("table", "query", "matrix", "linear")}
    problem["ids"] = problem["ids"].long()
    quadratic_scores(**{**problem, **leaves}, operand_dtype=torch.float32).sum().backward()
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
