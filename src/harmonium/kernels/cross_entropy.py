"""Cross-entropy of the true candidate against all candidates, and its gradients, by matrix products alone.

A query has 1 + rank vectors: v_0, its linear query, and v_k, its directions under a W of low rank. With the products
p_k = v_k.e the score of a candidate is p_0 + sum_kl N_kl p_k p_l, up to a constant of the query. The gradient
g = softmax - truth of the scores reaches everything else through the tensors G_0 = g and G_k = g p_k:

    M_k = G_k E    dv_0 = M_0    dv_k = 2 sum_l N_kl M_l    dN_kl = M_k.v_l    dE = G_0'v_0 + sum_l G_l'(2 sum_k N_kl v_k)

Answers to one query share its scores: with answers a of weights w_a its loss is (sum w_a) log Z - sum w_a s_a, and
g = (sum w_a) softmax - w. N multiplies vectors, never (rank, queries, candidates) tensors, and the cost is 3 (1 + rank)
matrix products. Those tensors exist for one block of queries at a time; the products are kept for the backward pass where
they are few and computed again otherwise. In training the operands of the products are bfloat16 where the hardware
multiplies such numbers; their sums are float32, which a CPU rounds to bfloat16 as well.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from harmonium.kernels import precision
from harmonium.kernels.triton_backend import has_triton

PRODUCTS_AT_ONCE = {"cpu": 1 << 23, "cuda": 1 << 28}  # numbers in memory: 32 MB on a CPU, 1 GB on a GPU
PRODUCTS_KEPT = {"cpu": 1 << 27, "cuda": 1 << 28}  # for the backward pass; computing them again costs a third more
MIN_ROUNDED_CANDIDATES = 1000  # with fewer, products in float32 are as fast on a CPU
ALIGNMENT = 8  # a GPU multiplies fastest where the number of candidates is a multiple of it


def cross_entropy(
    vectors: Tensor,
    core: Tensor,
    candidates: Tensor,
    target: Tensor,
    smoothing: float = 0.0,
    weights: Tensor | None = None,
    query_of: Tensor | None = None,
) -> Tensor:
    """The mean over answers; vectors (1 + rank, q, d), N (rank, rank), candidates (n, d), target (m,): the answers.

    `smoothing` is the share of the target probability that is spread evenly over all candidates. The loss of an answer is
    multiplied by its weight (m,), if there are weights. `query_of` (m,), ascending, is the query of each answer;
    by default answer and query have the same position.
    """
    shares = vectors.new_full((len(target),), 1 / len(target)) if weights is None else weights / len(target)
    loss: Tensor = _CrossEntropy.apply(vectors, core, candidates, target, smoothing, shares, query_of)  # type: ignore[no-untyped-call]
    return loss


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        vectors: Tensor,
        core: Tensor,
        candidates: Tensor,
        target: Tensor,
        smoothing: float,
        shares: Tensor,
        query_of: Tensor | None,
    ) -> Tensor:
        dtype = operand_dtype(vectors, len(candidates))
        operand = _pad_rows(candidates, dtype)
        loss, log_normaliser = vectors.new_empty(len(target)), vectors.new_empty(vectors.shape[1])
        kept: list[Tensor] = []
        keeps = vectors.shape[:2].numel() * len(operand) <= PRODUCTS_KEPT[vectors.device.type]
        for part in _query_blocks(vectors, len(operand)):
            answers, row = _answers_of(part, query_of)
            products = _multiply(vectors[:, part].to(dtype), operand)
            loss[answers], log_normaliser[part] = score_rows(
                products, core, target[answers], len(candidates), smoothing, row
            )
            if keeps:
                kept.append(products)
        ctx.smoothing, ctx.n_candidates = smoothing, len(candidates)
        ctx.query_of = query_of
        ctx.save_for_backward(vectors, core, operand, target, shares, log_normaliser, *kept)
        return loss @ shares

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, Tensor | None, None, None, None, None]:
        vectors, core, operand, target, shares, log_normaliser, *kept = ctx.saved_tensors
        n, scale = ctx.n_candidates, g * shares
        mixed = mix_directions(core, vectors, operand.dtype)
        moments: list[Tensor] = []  # M, by blocks of queries
        dcandidates = None
        for number, part in enumerate(_query_blocks(vectors, len(operand))):
            answers, row = _answers_of(part, ctx.query_of)
            products = kept[number] if kept else _multiply(vectors[:, part].to(operand.dtype), operand)
            if not kept:
                score_rows(products, core, target[answers], n, ctx.smoothing, row)
            weights = weigh_rows(
                products, log_normaliser[part], target[answers], scale[answers], n, ctx.smoothing, operand.dtype, row
            ).flatten(0, 1)  # G (1 + rank) * b rows
            moments.append(_matmul(weights, operand).view(len(vectors), -1, vectors.shape[-1]))
            if ctx.needs_input_grad[2]:
                part_gradient = _matmul(weights.T, mixed[:, part].flatten(0, 1))
                dcandidates = part_gradient if dcandidates is None else dcandidates.add_(part_gradient)
        moment = moments[0] if len(moments) == 1 else torch.cat(moments, dim=1)
        dcore = (moment[1:].transpose(0, 1) @ vectors[1:].permute(1, 2, 0)).sum(0)  # a small product for each query
        return (
            mix_directions(core, moment, moment.dtype),
            dcore,
            None if dcandidates is None else dcandidates[:n],
            None,
            None,
            None,
            None,
        )


def operand_dtype(vectors: Tensor, n_candidates: int) -> torch.dtype:
    """bfloat16 where the operands of products may be rounded and the device multiplies such numbers faster."""
    if not vectors.is_cuda:
        return precision.operand_dtype(vectors) if n_candidates >= MIN_ROUNDED_CANDIDATES else vectors.dtype
    rounds = vectors.dtype == torch.float32 and precision.may_round()
    return torch.bfloat16 if rounds else vectors.dtype


def score_rows(
    products: Tensor, core: Tensor, target: Tensor, n_candidates: int, smoothing: float, row: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The loss of each answer, and the log-normaliser (log of the sum of exponentials) of each query.

    What `weigh_rows` needs replaces products[0] of products (1 + rank, b, n), whose columns from n_candidates on are
    padding. `row` is the query of each answer; default: the query at its position.
    """
    if row is None and products.is_cuda and products.dtype == torch.float32 and has_triton():
        from harmonium.kernels import triton_cross_entropy

        return triton_cross_entropy.score_rows(products, core, target, n_candidates, smoothing)
    if len(products) > 1:
        directions = products[1:].flatten(1)
        products[0] += ((core @ directions) * directions).sum(0).view_as(products[0])
    scores = products[0, :, :n_candidates]
    truth = scores.gather(1, target[:, None])[:, 0] if row is None else scores[row, target]
    mean = scores.mean(1) if smoothing else 0
    largest = scores.amax(1)
    log_normaliser = scores.sub_(largest[:, None]).exp_().sum(1).log_().add_(largest)
    shared = log_normaliser - smoothing * mean
    return (shared if row is None else shared[row]) - (1 - smoothing) * truth, log_normaliser


def weigh_rows(
    products: Tensor,
    log_normaliser: Tensor,
    target: Tensor,
    scale: Tensor,
    n_candidates: int,
    smoothing: float,
    dtype: torch.dtype,
    row: Tensor | None = None,
) -> Tensor:
    """(1 + rank, b, n): G, the gradient of the sum of scale (m,) times the losses, from what `score_rows` left."""
    if row is None and products.is_cuda and products.dtype == torch.float32 and has_triton():
        from harmonium.kernels import triton_cross_entropy

        return triton_cross_entropy.weigh_rows(products, log_normaliser, target, scale, n_candidates, smoothing, dtype)
    g = products[0]  # exponentials, kept from the forward pass: besides the products they take the most time
    g[:, n_candidates:] = 0
    row = torch.arange(len(g), device=g.device) if row is None else row
    total = scale.new_zeros(len(g)).index_add_(0, row, scale)[:, None]
    g.mul_(total / g.sum(1, keepdim=True))
    if smoothing:
        g[:, :n_candidates] -= total * (smoothing / n_candidates)
    g.index_put_((row, target), (smoothing - 1) * scale, accumulate=True)
    if len(products) == 1:
        return products.to(dtype)
    weights = torch.empty_like(products, dtype=dtype)
    weights[0] = g
    torch.mul(products[1:], g, out=weights[1:])
    return weights


def _query_blocks(vectors: Tensor, n_candidates: int) -> Iterator[slice]:
    """Slices of the queries of vectors (1 + rank, m, d) whose products are computed at once, of about equal size."""
    count, n_queries, _ = vectors.shape
    n_blocks = max(1, -(-n_queries * count * n_candidates // PRODUCTS_AT_ONCE[vectors.device.type]))
    size = max(1, -(-n_queries // n_blocks))
    return (slice(start, min(start + size, n_queries)) for start in range(0, n_queries, size))


def _answers_of(part: slice, query_of: Tensor | None) -> tuple[slice, Tensor | None]:
    """The answers to a block of queries, and the query of each within the block (None: the one at its position)."""
    if query_of is None:
        return part, None
    first, last = torch.searchsorted(query_of, torch.tensor([part.start, part.stop], device=query_of.device)).tolist()
    return slice(first, last), query_of[first:last] - part.start


def _pad_rows(candidates: Tensor, dtype: torch.dtype) -> Tensor:
    """The candidates as operands of products; on a GPU with rows of zeros up to a multiple of ALIGNMENT."""
    n, dim = candidates.shape
    padding = -n % ALIGNMENT if candidates.is_cuda else 0
    if not padding:
        return candidates.to(dtype)
    operand = candidates.new_empty(n + padding, dim, dtype=dtype)
    operand[:n], operand[n:] = candidates, 0
    return operand


def _multiply(vectors: Tensor, operand: Tensor) -> Tensor:
    """(1 + rank, b, d) -> (1 + rank, b, n)."""
    return _matmul(vectors.flatten(0, 1), operand.T).view(*vectors.shape[:2], -1)


def _matmul(left: Tensor, right: Tensor) -> Tensor:
    """The product, in float32 where the operands are bfloat16; a CPU rounds it to bfloat16 in between."""
    if left.dtype != torch.bfloat16:
        return left @ right
    return torch.mm(left, right, out_dtype=torch.float32) if left.is_cuda else torch.mm(left, right).float()


def mix_directions(core: Tensor, vectors: Tensor, dtype: torch.dtype) -> Tensor:
    """v_0 and 2 sum_l N_kl v_l of vectors (1 + rank, m, d)."""
    if len(vectors) == 1:
        return vectors.to(dtype)
    if vectors.is_cuda and vectors.dtype == torch.float32 and has_triton():
        from harmonium.kernels import triton_cross_entropy

        return triton_cross_entropy.mix_directions(core, vectors.contiguous(), dtype)
    return torch.cat([vectors[:1], (2 * core @ vectors[1:].flatten(1)).view_as(vectors[1:])]).to(dtype)
