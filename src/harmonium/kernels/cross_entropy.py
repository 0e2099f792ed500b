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

Where candidates are sharded over processes, each multiplies with its own: with its sum of exponentials Z_i its share of
the softmax is the local one times Z_i / Z, and the processes exchange log Z_i and the true scores alone (`Shard`).
"""

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from harmonium.kernels import precision
from harmonium.kernels.triton_backend import has_triton

PRODUCTS_AT_ONCE = {"cpu": 1 << 23, "cuda": 1 << 28}  # numbers in memory: 32 MB on a CPU, 1 GB on a GPU
PRODUCTS_KEPT = {"cpu": 1 << 27, "cuda": 1 << 28}  # for the backward pass; computing them again costs a third more
MIN_ROUNDED_CANDIDATES = 1000  # with fewer, products in float32 are as fast on a CPU
ALIGNMENT = 8  # a GPU multiplies fastest where the number of candidates is a multiple of it


class Processes(Protocol):
    """The processes that hold a shard of the candidates each (`runtime.distributed.World`)."""

    @property
    def size(self) -> int: ...

    def sum_of_exponentials(self, logs: Tensor, summed: Tensor) -> tuple[Tensor, Tensor]:
        """log(sum of exp(x)) of logs, and the sum of `summed`, over all processes."""


class Shard(NamedTuple):
    """Which candidates this process holds."""

    offset: int  # number of the first one
    n_candidates: int  # of all processes
    processes: Processes

    def local(self, target: Tensor, n_local: int) -> tuple[Tensor, Tensor]:
        """Positions of the answers that this process holds, and their columns."""
        held = ((target >= self.offset) & (target < self.offset + n_local)).nonzero()[:, 0]
        return held, target[held] - self.offset


def cross_entropy(
    vectors: Tensor,
    core: Tensor,
    candidates: Tensor,
    target: Tensor,
    smoothing: float = 0.0,
    weights: Tensor | None = None,
    query_of: Tensor | None = None,
    shard: Shard | None = None,
) -> Tensor:
    """The mean over answers; vectors (1 + rank, q, d), N (rank, rank), candidates (n, d), target (m,): the answers.

    `smoothing` is the share of the target probability that is spread evenly over all candidates. The loss of an answer is
    multiplied by its weight (m,), if there are weights. `query_of` (m,), ascending, is the query of each answer;
    by default answer and query have the same position.

    With a `shard` the candidates are those of this process, and targets are numbers among all. The value is this process's
    equal part of the loss, its gradients those through its own candidates: summed over the processes both are whole.
    """
    shares = vectors.new_full((len(target),), 1 / len(target)) if weights is None else weights / len(target)
    loss: Tensor = _CrossEntropy.apply(vectors, core, candidates, target, smoothing, shares, query_of, shard)  # type: ignore[no-untyped-call]
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
        shard: Shard | None,
    ) -> Tensor:
        if shard is not None and query_of is None:
            query_of = torch.arange(len(target), device=target.device)
        dtype = operand_dtype(vectors, len(candidates) if shard is None else shard.n_candidates)
        operand = _pad_rows(candidates, dtype) if shard is None else candidates.to(dtype)
        loss, log_normaliser = vectors.new_empty(len(target)), vectors.new_empty(vectors.shape[1])
        kept: list[Tensor] = []
        truth, mean = torch.zeros_like(loss), torch.zeros_like(log_normaliser)  # of a shard
        keeps = vectors.shape[:2].numel() * len(operand) <= PRODUCTS_KEPT[vectors.device.type]
        for part in _query_blocks(vectors, len(operand)):
            answers, row = _answers_of(part, query_of)
            products = _multiply(vectors[:, part].to(dtype), operand)
            if shard is None or row is None:
                loss[answers], log_normaliser[part] = score_rows(
                    products, core, target[answers], len(candidates), smoothing, row
                )
            else:
                truth[answers], mean[part], log_normaliser[part] = score_shard(
                    products, core, target[answers], len(candidates), row, shard
                )
            if keeps:
                kept.append(products)
        mass = torch.ones_like(log_normaliser)  # share of each query's probability that these candidates have
        if shard is not None:
            total, summed = shard.processes.sum_of_exponentials(log_normaliser, torch.cat([truth, mean]))
            truth, mean = summed.split([len(truth), len(mean)])
            mass = (log_normaliser - total).exp()
            loss = (total - smoothing * mean)[query_of] - (1 - smoothing) * truth
            loss /= shard.processes.size
        ctx.smoothing, ctx.n_candidates = smoothing, len(candidates)
        ctx.query_of, ctx.shard = query_of, shard
        ctx.save_for_backward(vectors, core, operand, target, shares, log_normaliser, mass, *kept)
        return loss @ shares

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        vectors, core, operand, target, shares, log_normaliser, mass, *kept = ctx.saved_tensors
        n, scale = ctx.n_candidates, g * shares
        mixed = mix_directions(core, vectors, operand.dtype)
        moments: list[Tensor] = []  # M, by blocks of queries
        dcandidates = None
        for number, part in enumerate(_query_blocks(vectors, len(operand))):
            answers, row = _answers_of(part, ctx.query_of)
            products = kept[number] if kept else _multiply(vectors[:, part].to(operand.dtype), operand)
            if ctx.shard is None or row is None:
                if not kept:
                    score_rows(products, core, target[answers], n, ctx.smoothing, row)
                weights = weigh_rows(
                    products,
                    log_normaliser[part],
                    target[answers],
                    scale[answers],
                    n,
                    ctx.smoothing,
                    operand.dtype,
                    row,
                )
            else:
                if not kept:
                    score_shard(products, core, target[answers], n, row, ctx.shard)
                weights = weigh_shard(
                    products, mass[part], target[answers], scale[answers], ctx.smoothing, operand.dtype, row, ctx.shard
                )
            weights = weights.flatten(0, 1)  # G (1 + rank) * b rows
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
            *[None] * 5,
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
    scores = _complete_scores(products, core)[:, :n_candidates]
    truth = scores.gather(1, target[:, None])[:, 0] if row is None else scores[row, target]
    mean = scores.mean(1) if smoothing else 0
    log_normaliser = _exponentiate(scores)
    shared = log_normaliser - smoothing * mean
    return (shared if row is None else shared[row]) - (1 - smoothing) * truth, log_normaliser


def score_shard(
    products: Tensor, core: Tensor, target: Tensor, n_local: int, row: Tensor, shard: Shard
) -> tuple[Tensor, Tensor, Tensor]:
    """Of `score_rows` what one process knows: the scores of answers that it holds (others: 0), its part of each query's
    mean score, and the log of its sum of exponentials.
    """
    scores = _complete_scores(products, core)[:, :n_local]
    held, column = shard.local(target, n_local)
    truth = scores.new_zeros(len(target)).index_copy_(0, held, scores[row[held], column])
    mean = scores.sum(1) / shard.n_candidates
    return truth, mean, _exponentiate(scores)


def _complete_scores(products: Tensor, core: Tensor) -> Tensor:
    """(b, n): the linear products plus the quadratic part, in place."""
    if len(products) > 1:
        directions = products[1:].flatten(1)
        products[0] += ((core @ directions) * directions).sum(0).view_as(products[0])
    return products[0]


def _exponentiate(scores: Tensor) -> Tensor:
    """(b,): the log of each row's sum of exponentials, which replace the scores, divided by that of the largest."""
    if not scores.shape[1]:  # a process without candidates
        return scores.new_full((len(scores),), -torch.inf)
    largest = scores.amax(1)
    return scores.sub_(largest[:, None]).exp_().sum(1).log_().add_(largest)


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
    total = scale.new_zeros(len(g)).index_add_(0, row, scale)
    g.mul_((total / g.sum(1))[:, None])
    if smoothing:
        g[:, :n_candidates] -= total[:, None] * (smoothing / n_candidates)
    g.index_put_((row, target), (smoothing - 1) * scale, accumulate=True)
    return _weigh_directions(products, dtype)


def weigh_shard(
    products: Tensor,
    mass: Tensor,
    target: Tensor,
    scale: Tensor,
    smoothing: float,
    dtype: torch.dtype,
    row: Tensor,
    shard: Shard,
) -> Tensor:
    """`weigh_rows` of one process, whose candidates have the share `mass` (b,) of each query's probability."""
    g = products[0]
    total = scale.new_zeros(len(g)).index_add_(0, row, scale)
    g.mul_((total * mass / g.sum(1))[:, None])
    if smoothing:
        g -= total[:, None] * (smoothing / shard.n_candidates)
    held, column = shard.local(target, g.shape[1])
    g.index_put_((row[held], column), (smoothing - 1) * scale[held], accumulate=True)
    return _weigh_directions(products, dtype)


def _weigh_directions(products: Tensor, dtype: torch.dtype) -> Tensor:
    """G_k = g p_k from g in products[0] and the other products."""
    if len(products) == 1:
        return products.to(dtype)
    g = products[0]
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
