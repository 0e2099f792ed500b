"""Sampled scores of full quadratic forms, and their loss, by blocks of queries that stay in a processor's cache.

s = x'Ax + c'x has the slope 2Ax + c, so one product, Ax + c, is kept for both the score and its gradient. Products take
most of the time, so their operands are rounded where that is allowed (precision.py).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from harmonium.kernels.gather import gather_rows, sum_by_id
from harmonium.kernels.interfaces import CorrelationProduct, ElementwiseProduct, Loss, Product, SlotMapLike
from harmonium.kernels.precision import operand_dtype
from harmonium.kernels.quadratic_form import QuadraticForm

NUMBERS_AT_ONCE = 1 << 22  # composed at once on a CPU: more would leave the cache, fewer cost more calls


def query_blocks(ids: Tensor, dim: int) -> Iterator[slice]:
    """Slices of the queries of ids (b, n) to score at once, of about equal size; all at once on a GPU."""
    count = 1 if ids.is_cuda else -(-ids.numel() * dim // NUMBERS_AT_ONCE)
    size = max(1, -(-len(ids) // max(1, count)))
    return (slice(start, min(start + size, len(ids))) for start in range(0, len(ids), size))


def sampled_scores(form: QuadraticForm, slot_map: SlotMapLike, table: Tensor, ids: Tensor) -> Tensor:
    """(b, n): see `reference.sampled_scores`."""
    rows = gather_rows(table, ids)
    scores: list[Tensor] = []
    for part in query_blocks(ids, len(form.vector)):
        composed = slot_map.select(part).beside_candidates().apply(rows[part])
        scores.append(_QuadraticScores.apply(composed, form.core, form.vector))  # type: ignore[no-untyped-call]
    return torch.cat(scores) + form.constant


class _QuadraticScores(torch.autograd.Function):
    """x'Ax + c'x of composed vectors (b, n, dim): with P = Ax + c the gradients are g (2P - c), (gx)'x and gx."""

    @staticmethod
    def forward(ctx: Any, composed: Tensor, matrix: Tensor, vector: Tensor) -> Tensor:
        ctx.dtype, dtype = composed.dtype, operand_dtype(composed)
        composed, vector = composed.to(dtype), vector.to(dtype)
        pushed = torch.addmm(vector, composed.flatten(0, 1), matrix.to(dtype)).view_as(composed)
        ctx.save_for_backward(composed, pushed, vector)
        return torch.sum(pushed * composed, -1, dtype=ctx.dtype)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        composed, pushed, vector = ctx.saved_tensors
        g = g.to(composed.dtype).unsqueeze(-1)
        weighted = (composed * g).flatten(0, 1)
        dcomposed = (pushed - vector / 2).mul_(2 * g)
        dmatrix = weighted.T @ composed.flatten(0, 1)
        return dcomposed.to(ctx.dtype), dmatrix.to(ctx.dtype), weighted.sum(0).to(ctx.dtype)


def sampled_loss(
    form: QuadraticForm, slot_maps: Sequence[SlotMapLike], table: Tensor, ids: list[Tensor], loss: Loss
) -> Tensor | None:
    """The loss of all sampled scores, slot map by slot map; None if a composition is not a product.

    A block is composed, scored, its loss taken and its gradients summed while it is in the cache. Only the gradients
    of gathered rows are kept, and summed by row at the end.
    """
    products: list[Product] = []
    for slot_map in slot_maps:
        product = slot_map.product()
        if product is None:
            return None
        products.append(product)
    correlations = [product for product in products if isinstance(product, CorrelationProduct)]
    if len(correlations) not in (0, len(products)):
        return None
    compute = partial(_loss_and_gradients, form, table, ids, loss, products)
    inputs = [product.known for product in products] + [product.weight for product in correlations]
    value: Tensor = _LossWithGradients.apply(  # type: ignore[no-untyped-call]
        compute, form.core, form.vector, form.constant, table, *inputs
    )
    return value


class _LossWithGradients(torch.autograd.Function):
    """Gradients are computed in the forward pass, and only scaled by that of the loss in the backward pass."""

    @staticmethod
    def forward(ctx: Any, compute: Callable[[], tuple[Tensor, list[Tensor]]], *_inputs: Tensor) -> Tensor:
        value, ctx.gradients = compute()
        return value

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.gradients is None:
            raise RuntimeError("backward was called twice on a sampled loss; compute the loss again")
        gradients, ctx.gradients = ctx.gradients, None  # the caller may write to them
        return None, *(gradients if g == 1 else [gradient * g for gradient in gradients])


def _loss_and_gradients(
    form: QuadraticForm, table: Tensor, ids: list[Tensor], loss: Loss, products: list[Product]
) -> tuple[Tensor, list[Tensor]]:
    """The loss, and its gradients in core, vector, constant, table, all known vectors, then all weights."""
    core, vector, constant = cast(Tensor, form.core), form.vector, form.constant
    dtype, buffers = operand_dtype(table), _Buffers(table.device)
    sides = [
        _CorrelationSide(product, buffers)
        if isinstance(product, CorrelationProduct)
        else _ElementwiseSide(product, dtype, buffers)
        for product in products
    ]
    encoded = sides[0].encode(table)
    drows = encoded.new_empty(sum(candidates.numel() for candidates in ids), encoded.shape[1])
    value = vector.new_zeros(())
    dcore, dvector, dconstant = torch.zeros_like(core), torch.zeros_like(vector), torch.zeros_like(constant)
    n_queries, first_query, first_row = sum(len(candidates) for candidates in ids), 0, 0
    for candidates, side in zip(ids, sides, strict=True):
        block_form = _BlockForm(side.reverse(core), side.reverse(vector), dtype, buffers)
        for part in query_blocks(candidates, table.shape[1]):
            block = candidates[part]
            rows = buffers("rows", (block.numel(), encoded.shape[1]), encoded.dtype)
            rows = torch.index_select(encoded, 0, block.flatten(), out=rows).view(*block.shape, -1)
            composed = side.compose(rows, part)  # (m, n, dim)
            scores = block_form.score(composed, table.dtype) + constant
            queries = slice(first_query + part.start, first_query + part.stop)
            block_value, dscores = _loss_of_block(loss, scores, queries, n_queries)
            value, dconstant = value + block_value, dconstant + dscores.sum()
            dcomposed = block_form.add_gradients(composed, dscores.to(side.dtype))
            side.pull_back(dcomposed, rows, part, drows[first_row : first_row + block.numel()].view(rows.shape))
            first_row += block.numel()
        first_query += len(candidates)
        dcore, dvector = dcore + side.reverse(block_form.dmatrix), dvector + side.reverse(block_form.dvector)
    dtable = sides[0].decode(sum_by_id(torch.cat([candidates.flatten() for candidates in ids]), drows, len(table)))
    dknown = [side.known_gradient() for side in sides]
    dweights = [side.weight_gradient() for side in sides if isinstance(side, _CorrelationSide)]
    return value, [dcore, dvector, dconstant, dtable, *dknown, *dweights]


def _loss_of_block(loss: Loss, scores: Tensor, queries: slice, n_queries: int) -> tuple[Tensor, Tensor]:
    """Contribution of these queries to the mean loss of all, and its gradient in their scores, (m, n, 1)."""
    with torch.enable_grad():
        scores = scores.requires_grad_()
        value = loss(scores, queries) * (len(scores) / n_queries)
    return value.detach(), torch.autograd.grad(value, scores)[0].unsqueeze(-1)


class _Buffers:
    """Named buffers, reused for each block so that they stay in the cache."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.memory: dict[str, Tensor] = {}

    def __call__(self, name: str, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        count = math.prod(shape)
        if name not in self.memory or len(self.memory[name]) < count:
            self.memory[name] = torch.empty(count, dtype=dtype, device=self.device)
        return self.memory[name][:count].view(*shape)

    def cast(self, name: str, values: Tensor, dtype: torch.dtype) -> Tensor:
        """The values in a dtype, copied to the named buffer if they have another."""
        return values if values.dtype == dtype else self(name, values.shape, dtype).copy_(values)


class _ElementwiseSide:
    """Composed vectors x = known * e of one slot map, and the gradients of known."""

    def __init__(self, product: ElementwiseProduct, operand_dtype: torch.dtype, buffers: _Buffers) -> None:
        self.dtype, self.table_dtype, self.buffers = operand_dtype, product.known.dtype, buffers
        self.known = product.known.to(operand_dtype)
        self.dknown = torch.empty_like(self.known)

    def encode(self, vectors: Tensor) -> Tensor:
        return vectors.to(self.dtype)

    def decode(self, gradients: Tensor) -> Tensor:
        """Gradients of vectors from those of encoded vectors."""
        return gradients.to(self.table_dtype)

    def reverse(self, coordinates: Tensor) -> Tensor:
        """A matrix or vector of the form in the order of the composed coordinates, or back."""
        return coordinates

    def compose(self, rows: Tensor, part: slice) -> Tensor:
        """(m, n, dim), from the encoded rows of the candidates of the queries in `part`."""
        return torch.mul(rows, self.known[part, None], out=self.buffers("composed", rows.shape, self.dtype))

    def pull_back(self, dcomposed: Tensor, rows: Tensor, part: slice, drows: Tensor) -> None:
        """Write the gradients of the rows into `drows`, and keep those of known; overwrites `dcomposed` and the rows."""
        torch.mul(dcomposed, self.known[part, None], out=drows)
        torch.sum(dcomposed.mul_(rows), 1, out=self.dknown[part])

    def known_gradient(self) -> Tensor:
        return self.decode(self.dknown)


class _CorrelationSide:
    """Composed vectors x = weight * corr(known, e) of one slot map, and the gradients of known and weight.

    With spectra E and K a correlation is the inverse transform of conj(K) E, and if D is the spectrum of its gradient,
    those of known and e have the spectra conj(D) E and D K. With the candidate first everything else is reversed.
    """

    def __init__(self, product: CorrelationProduct, buffers: _Buffers) -> None:
        self.dtype, self.dim, self.buffers = product.known.dtype, product.known.shape[-1], buffers
        self.is_reversed = product.candidate_first
        self.known = torch.fft.rfft(product.known)
        self.weight = self.reverse(product.weight, (1,))
        self.dknown, self.dweight = torch.empty_like(self.known), torch.empty_like(self.weight)

    def encode(self, vectors: Tensor) -> Tensor:
        spectra: Tensor = torch.fft.rfft(vectors)
        return spectra

    def decode(self, gradients: Tensor) -> Tensor:
        vectors: Tensor = torch.fft.irfft(gradients, n=self.dim)
        return vectors

    def reverse(self, coordinates: Tensor, dims: Sequence[int] | None = None) -> Tensor:
        """Reverse indices (k to -k modulo dim, along `dims` or all) if the candidate comes first; else unchanged."""
        dims = range(coordinates.dim()) if dims is None else dims
        return coordinates.flip(*dims).roll([1] * len(dims), list(dims)) if self.is_reversed else coordinates

    def compose(self, rows: Tensor, part: slice) -> Tensor:
        shape = (*rows.shape[:2], self.dim)
        self.spectrum = self.buffers("spectrum", rows.shape, rows.dtype)
        self.correlated = self.buffers("correlated", shape, self.dtype)
        torch.mul(rows, self.known[part, None].conj(), out=self.spectrum)
        torch.fft.irfft(self.spectrum, n=self.dim, out=self.correlated)
        return torch.mul(self.correlated, self.weight[part, None], out=self.buffers("composed", shape, self.dtype))

    def pull_back(self, dcomposed: Tensor, rows: Tensor, part: slice, drows: Tensor) -> None:
        torch.sum(self.correlated.mul_(dcomposed), 1, out=self.dweight[part])
        dspectrum = torch.fft.rfft(dcomposed.mul_(self.weight[part, None]), out=self.spectrum)
        torch.mul(dspectrum, self.known[part, None], out=drows)
        torch.sum(dspectrum.mul_(rows.conj_physical_()), 1, out=self.dknown[part])

    def known_gradient(self) -> Tensor:
        return self.decode(self.dknown.conj())

    def weight_gradient(self) -> Tensor:
        return self.reverse(self.dweight, (1,))


class _BlockForm:
    """x'Ax + c'x of blocks of composed vectors (m, n, dim), and the gradients of A and c summed over blocks.

    Products have operands of `operand_dtype`, which may be smaller than the dtype of composed vectors.
    """

    def __init__(self, matrix: Tensor, vector: Tensor, operand_dtype: torch.dtype, buffers: _Buffers) -> None:
        self.matrix, self.vector, self.buffers = matrix.to(operand_dtype), vector.to(operand_dtype), buffers
        self.half_vector = vector / 2
        self.dmatrix, self.dvector = torch.zeros_like(matrix), torch.zeros_like(vector)

    def score(self, composed: Tensor, dtype: torch.dtype) -> Tensor:
        """(m, n) in dtype. Keeps Ax + c for the gradients."""
        self.operand = self.buffers.cast("operand", composed, self.matrix.dtype)
        product = self.buffers("product", composed.shape, self.matrix.dtype)
        torch.addmm(self.vector, self.operand.flatten(0, 1), self.matrix, out=product.flatten(0, 1))
        self.pushed = self.buffers.cast("pushed", product, composed.dtype)  # Ax + c
        self.terms = torch.mul(self.pushed, composed, out=self.buffers("terms", composed.shape, composed.dtype))
        return torch.sum(self.terms, -1, dtype=dtype)

    def add_gradients(self, composed: Tensor, dscores: Tensor) -> Tensor:
        """Add to the gradients of A and c; returns the gradient of the block that was scored last."""
        weighted = torch.mul(composed, dscores, out=self.terms)
        self.dvector += weighted.sum(1).sum(0)  # in two steps, so that all threads add
        weighted = self.buffers.cast("product", weighted, self.matrix.dtype)
        self.dmatrix += self.operand.flatten(0, 1).T @ weighted.flatten(0, 1)
        return self.pushed.sub_(self.half_vector.to(self.pushed.dtype)).mul_(2 * dscores)
