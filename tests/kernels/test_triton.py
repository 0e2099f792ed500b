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
    count_above,
    join_halves,
    prepare,
    quadratic_scores,
    score_all,
    split_halves,
)
from kernels.quadratic_reference import random_problem, reference_scores, relative_errors, scores_and_gradients

DEVICE = "cpu" if INTERPRETED else "cuda"
WAYS = [
    {"mode": "product"},
    {"mode": "complex", "conjugate_entity": False},
    {"mode": "complex", "conjugate_entity": True},
]
# several tiles, chunks and output blocks at small sizes
SMALL = Blocks(16, 16, 4, 3, 16, 16, 16, 4, 3, depth=16, outer=16, split=1, moment_warps=4)


def errors(problem, way, dtype=torch.float32, **options):
    """Relative errors of scores and gradients against float64: those of the kernels, of the definition in dtype."""
    gs = torch.randn(problem["ids"].shape, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    define = partial(reference_scores, **way)
    kernels = partial(quadratic_scores, **way, operand_dtype=dtype, **options)
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
    check(random_problem(11, d, 3, n, 2, DEVICE), {"mode": "product"})


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
    check(random_problem(20, 60, 3, 20, 1, DEVICE), way, blocks=replace(SMALL, backward_chunk=32, outer=32))


def test_rows_past_two_gigabytes():
    """Offsets of 64 bits give the same."""
    problem, gs = random_problem(20, 24, 3, 9, 2, DEVICE), torch.randn(3, 9, device=DEVICE)
    ids, offsets = problem.pop("ids"), torch.tensor([0, 1, 3], dtype=torch.int32, device=DEVICE)
    narrow = prepare(**problem, **WAYS[1], n=9, operand_dtype=torch.float32)
    wide = replace(narrow, constants={**narrow.constants, "WIDE": True})
    torch.testing.assert_close(wide.scores(ids), narrow.scores(ids))
    torch.testing.assert_close(wide.vector_gradients(ids, gs), narrow.vector_gradients(ids, gs))
    torch.testing.assert_close(wide.matrix_gradient(ids, gs, offsets), narrow.matrix_gradient(ids, gs, offsets))


def test_given_offsets():
    problem = random_problem(20, 24, 3, 9, 6, DEVICE)
    problem["group"] = torch.tensor([1, 1, 4], dtype=torch.int32, device=DEVICE)
    offsets = torch.tensor([0, 0, 2, 2, 2, 3, 3], dtype=torch.int32, device=DEVICE)
    check(problem, WAYS[2], blocks=SMALL, group_offsets=offsets)


def test_repeated_candidates_add_up():
    problem = random_problem(3, 16, 2, 40, 1, DEVICE)
    problem["ids"][:] = 1
    check(problem, {"mode": "product"}, blocks=SMALL)


@pytest.mark.parametrize("way", WAYS)
def test_half_precision(way):
    """No worse than twice the error of the definition in that precision. The interpreter has no bfloat16."""
    dtype = torch.float16 if INTERPRETED else torch.bfloat16
    found, plain = errors(random_problem(40, 64, 4, 33, 2, DEVICE), way, dtype)
    assert all(found[name] <= 2 * plain[name] for name in found), (found, plain)


def test_gradients_only_where_wanted():
    problem = random_problem(9, 16, 2, 5, 1, DEVICE)
    problem["query"].requires_grad_()
    quadratic_scores(**problem, mode="product", operand_dtype=torch.float32).sum().backward()
    assert problem["query"].grad is not None
    assert all(problem[name].grad is None for name in ("table", "matrix", "linear"))


def test_gradients_are_like_the_arguments():
    problem = random_problem(9, 15, 2, 5, 1, DEVICE)
    leaves = {name: problem[name].double().requires_grad_() for name in ("table", "query", "matrix", "linear")}
    problem["ids"] = problem["ids"].long()
    quadratic_scores(**{**problem, **leaves}, mode="product", operand_dtype=torch.float32).sum().backward()
    assert {leaf.grad.dtype for leaf in leaves.values()} == {torch.float64}
    assert leaves["matrix"].grad.equal(leaves["matrix"].grad.mT)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("d, entities", [(8, 1), (34, 45)])
def test_score_all(way, d, entities):
    problem = random_problem(entities, d, 4, entities, 3, DEVICE)
    problem["ids"] = torch.arange(entities, device=DEVICE).expand(4, entities)
    expected = reference_scores(**{k: v.double() if v.is_floating_point() else v for k, v in problem.items()}, **way)
    del problem["ids"]
    found = score_all(**problem, **way, operand_dtype=torch.float32, blocks=SMALL)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("way", WAYS)
def test_count_above(way):
    problem = random_problem(45, 34, 4, 1, 3, DEVICE)
    del problem["ids"]
    options = {"conjugate_entity": False, **way, "operand_dtype": torch.float32, "blocks": SMALL}
    scores = score_all(**problem, **options)
    low, high = scores.sort().values[:, [17, 30]].T.contiguous()
    high[0], low[1] = scores[0].max(), scores[1].max() + 1  # nothing above; nothing in doubt
    above, pairs, counter = count_above(**problem, **options, low=low, high=high, capacity=200)
    doubtful = ((scores >= low[:, None]) & (scores <= high[:, None])).nonzero().tolist()
    assert above.tolist() == (scores > high[:, None]).sum(1).tolist()
    assert sorted(pairs[: counter.item()].tolist()) == doubtful
    short = count_above(**problem, **options, low=low, high=high, capacity=7)
    assert short[0].equal(above)
    assert short[2].equal(counter)
    assert all(pair in doubtful for pair in short[1].tolist())


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
        quadratic_scores(**problem, mode="complex")
    with pytest.raises(ValueError, match="no mode"):
        quadratic_scores(**problem, mode="sum")
