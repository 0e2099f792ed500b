"""The passes over products of kernels/cross_entropy.py as Triton kernels: each number is read once and written once."""
# Triton compiles the kernels: they are its language, not Python's, and have no Python types.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

import torch
import triton
import triton.language as tl
from torch import Tensor

CANDIDATES_PER_PROGRAM = 1024  # read at a time
LOWEST = tl.constexpr(-1e38)  # below every score; twice it is finite too


@triton.jit(do_not_specialize=["plane"])
def score_kernel(products, core, target, loss, log_normaliser, plane, n, stride, smoothing, RANK: tl.constexpr,
                 PADDED: tl.constexpr, SIZE: tl.constexpr):  # fmt: skip
    """The loss of one query; products of one vector are `plane` numbers behind those of the vector before."""
    row = tl.program_id(0)
    products += row.to(tl.int64) * stride
    true = tl.load(target + row)
    # by position in a tile, until the end: the largest score, the sum of exponentials relative to it, and other sums
    largest = tl.full((SIZE,), LOWEST, tl.float32)
    total = tl.zeros((SIZE,), tl.float32)
    true_score = tl.zeros((SIZE,), tl.float32)
    sum_scores = tl.zeros((SIZE,), tl.float32)
    k = tl.arange(0, PADDED)
    for start in tl.range(0, n, SIZE):
        j = start + tl.arange(0, SIZE)
        live = j < n
        scores = tl.load(products + j, mask=live, other=0.0)
        if RANK > 0:
            cells = (1 + k).to(tl.int64)[:, None] * plane + j[None, :]
            tile = tl.load(products + cells, mask=(k < RANK)[:, None] & live[None, :], other=0.0)
            mixed = tl.zeros((PADDED, SIZE), tl.float32)
            for l in tl.static_range(RANK):
                column = tl.load(core + k * RANK + l, mask=k < RANK, other=0.0)
                row_l = tl.load(products + (1 + l) * plane + j, mask=live, other=0.0)
                mixed += column[:, None] * row_l[None, :]
            scores += tl.sum(mixed * tile, 0)
            tl.store(products + j, scores, mask=live)
        true_score += tl.where(j == true, scores, 0.0)
        sum_scores += scores
        scores = tl.where(live, scores, 2 * LOWEST)
        largest_yet = tl.maximum(largest, scores)
        total = total * tl.exp(largest - largest_yet) + tl.exp(scores - largest_yet)
        largest = largest_yet
    overall = tl.max(largest, 0)
    normaliser = overall + tl.log(tl.sum(total * tl.exp(largest - overall), 0))
    tl.store(log_normaliser + row, normaliser)
    tl.store(loss + row, normaliser - (1 - smoothing) * tl.sum(true_score, 0) - smoothing * tl.sum(sum_scores, 0) / n)


@triton.jit(do_not_specialize=["plane"])
def mix_kernel(core, vectors, out, plane, RANK: tl.constexpr, PADDED: tl.constexpr, SIZE: tl.constexpr):
    """out[k] = 2 sum_l N_kl vectors[l] of SIZE numbers; those of one vector are `plane` behind those of the one before."""
    j, k = tl.program_id(0) * SIZE + tl.arange(0, SIZE), tl.arange(0, PADDED)
    mixed = tl.zeros((PADDED, SIZE), tl.float32)
    for l in tl.static_range(RANK):
        column = tl.load(core + k * RANK + l, mask=k < RANK, other=0.0)
        mixed += column[:, None] * tl.load(vectors + l * plane + j, mask=j < plane, other=0.0)[None, :]
    cells = k.to(tl.int64)[:, None] * plane + j[None, :]
    live = (k < RANK)[:, None] & (j < plane)[None, :]
    tl.store(out + cells, (2 * mixed).to(out.dtype.element_ty), mask=live)


@triton.jit(do_not_specialize=["plane"])
def weigh_kernel(products, log_normaliser, target, scale, weights, plane, n, stride, smoothing, RANK: tl.constexpr,
                 SIZE: tl.constexpr):  # fmt: skip
    """G of one query and SIZE candidates, and zeros for the padding."""
    row = tl.program_id(0)
    j = tl.program_id(1) * SIZE + tl.arange(0, SIZE)
    inside = j < stride
    cells = row.to(tl.int64) * stride + j
    scores = tl.load(products + cells, mask=inside, other=0.0)
    g = tl.exp(scores - tl.load(log_normaliser + row)) - smoothing / n
    g -= tl.where(j == tl.load(target + row), 1 - smoothing, 0.0)
    g = tl.where(j < n, g * tl.load(scale + row), 0.0)
    tl.store(weights + cells, g.to(weights.dtype.element_ty), mask=inside)
    for _ in tl.static_range(RANK):
        cells += plane
        value = g * tl.load(products + cells, mask=inside, other=0.0)
        tl.store(weights + cells, value.to(weights.dtype.element_ty), mask=inside)


def score_rows(
    products: Tensor, core: Tensor, target: Tensor, n_candidates: int, smoothing: float
) -> tuple[Tensor, Tensor]:
    """See `cross_entropy.score_rows`; products are contiguous."""
    count, rows, stride = products.shape
    loss, log_normaliser = products.new_empty(rows), products.new_empty(rows)
    padded = triton.next_power_of_2(max(1, count - 1))
    score_kernel[(rows,)](
        products, core.contiguous(), target, loss, log_normaliser, rows * stride, n_candidates, stride, smoothing,
        RANK=count - 1, PADDED=padded, SIZE=CANDIDATES_PER_PROGRAM // (1 if count == 1 else 4), num_warps=8,
    )  # fmt: skip
    return loss, log_normaliser


def mix_directions(core: Tensor, vectors: Tensor, dtype: torch.dtype) -> Tensor:
    """See `cross_entropy.mix_directions`; vectors are contiguous."""
    out, rank, plane = torch.empty_like(vectors, dtype=dtype), len(vectors) - 1, vectors[0].numel()
    out[0] = vectors[0]
    mix_kernel[(triton.cdiv(plane, CANDIDATES_PER_PROGRAM // 4),)](
        core.contiguous(), vectors[1:], out[1:], plane, RANK=rank, PADDED=triton.next_power_of_2(rank),
        SIZE=CANDIDATES_PER_PROGRAM // 4, num_warps=4,
    )  # fmt: skip
    return out


def weigh_rows(
    products: Tensor,
    log_normaliser: Tensor,
    target: Tensor,
    scale: Tensor,
    n_candidates: int,
    smoothing: float,
    dtype: torch.dtype,
) -> Tensor:
    """See `cross_entropy.weigh_rows`; products are contiguous."""
    count, rows, stride = products.shape
    weights = torch.empty_like(products, dtype=dtype)
    weigh_kernel[(rows, triton.cdiv(stride, CANDIDATES_PER_PROGRAM))](
        products, log_normaliser.contiguous(), target, scale, weights, rows * stride, n_candidates, stride, smoothing,
        RANK=count - 1, SIZE=CANDIDATES_PER_PROGRAM, num_warps=4,
    )  # fmt: skip
    return weights
