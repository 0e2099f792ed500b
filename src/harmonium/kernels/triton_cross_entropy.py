"""The passes over products of kernels/cross_entropy.py as Triton kernels: each number is read once and written once."""
# Triton compiles the kernels: they are its language, not Python's, and have no Python types.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

import torch
import triton
import triton.language as tl
from torch import Tensor

SIZE = 1024  # candidates that a program reads at a time
MIN_RANK = 16  # the smallest side of a matrix that tl.dot multiplies


@triton.jit(do_not_specialize=["plane"])
def score_kernel(products, core, target, loss, log_normaliser, plane, n, stride, smoothing, RANK: tl.constexpr,
                 PADDED: tl.constexpr, SIZE: tl.constexpr):  # fmt: skip
    """The loss of one query; products of one vector are `plane` numbers behind those of the vector before."""
    row = tl.program_id(0)
    products += row.to(tl.int64) * stride
    true = tl.load(target + row)
    largest = -float("inf")
    total, true_score, sum_scores = 0.0, 0.0, 0.0
    k = tl.arange(0, PADDED)
    for start in tl.range(0, n, SIZE):
        j = start + tl.arange(0, SIZE)
        live = j < n
        scores = tl.load(products + j, mask=live, other=0.0)
        if RANK > 0:
            cells = (1 + k).to(tl.int64)[:, None] * plane + j[None, :]
            tile = tl.load(products + cells, mask=(k < RANK)[:, None] & live[None, :], other=0.0)
            square = (k < RANK)[:, None] & (k < RANK)[None, :]
            matrix = tl.load(core + k[:, None] * RANK + k[None, :], mask=square, other=0.0)
            scores += tl.sum(tl.dot(matrix, tile, input_precision="ieee") * tile, 0)
            tl.store(products + j, scores, mask=live)
        true_score += tl.sum(tl.where(j == true, scores, 0.0), 0)
        sum_scores += tl.sum(scores, 0)
        scores = tl.where(live, scores, -float("inf"))
        largest_yet = tl.maximum(largest, tl.max(scores, 0))
        total = total * tl.exp(largest - largest_yet) + tl.sum(tl.exp(scores - largest_yet), 0)
        largest = largest_yet
    normaliser = largest + tl.log(total)
    tl.store(log_normaliser + row, normaliser)
    tl.store(loss + row, normaliser - (1 - smoothing) * true_score - smoothing * sum_scores / n)


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
    g = tl.where(j < n, g * tl.load(scale), 0.0)
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
    padded = max(MIN_RANK, triton.next_power_of_2(count - 1))
    score_kernel[(rows,)](
        products, core.contiguous(), target, loss, log_normaliser, rows * stride, n_candidates, stride, smoothing,
        RANK=count - 1, PADDED=padded, SIZE=SIZE if count == 1 else SIZE // 4, num_warps=8,
    )  # fmt: skip
    return loss, log_normaliser


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
    weigh_kernel[(rows, triton.cdiv(stride, SIZE))](
        products, log_normaliser.contiguous(), target, scale, weights, rows * stride, n_candidates, stride, smoothing,
        RANK=count - 1, SIZE=SIZE, num_warps=4,
    )  # fmt: skip
    return weights
