"""Sampled scores of a full quadratic form, and the loss of them, in plain PyTorch: by blocks that stay in the cache.

s = x'Ax + c'x has the slope 2Ax + c, so one product, Ax + c, is kept for both the score and its gradient. Products are
what most of the time goes into: their operands are rounded where they may be (precision.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

from harmonium.kernels.precision import operands
from harmonium.kernels.rows import Rows, add_up

BLOCK = 1 << 22  # numbers composed at once by a CPU: more, and they leave the cache; fewer, and calls cost more

Loss = Callable[[Tensor, slice], Tensor]  # the mean over the queries in a slice, of their scores (m, n)


def sampled_scores(form, slot_map, table: Tensor, ids: Tensor) -> Tensor:
    """(b, n): see `reference.sampled_scores`."""
    rows, scores = Rows.apply(table, ids), []
    for part in _blocks(ids, len(form.vector)):
        composed = slot_map.select(part).beside_candidates().apply(rows[part])
        scores.append(Quadratic.apply(composed, form.core, form.vector))
    return torch.cat(scores) + form.constant


def sampled_loss(form, slot_maps, table: Tensor, ids, of: Loss) -> Tensor | None:
    """The loss of all such scores, those of the first slot map first; None where the composition is no product."""
    products = [slot_map.composition.product(slot_map) for slot_map in slot_maps]
    if None in products:
        return None
    known, weights = [product.known for product in products], [product.weight for product in products]
    return Products.apply(form.core, form.vector, table, form.constant, list(ids), of, products, *known, *weights)


class Quadratic(torch.autograd.Function):
    """x'Ax + c'x of composed vectors (b, n, dim): with P = Ax + c the gradients are g (2P - c), (gx)'x and gx."""

    @staticmethod
    def forward(ctx, composed: Tensor, matrix: Tensor, vector: Tensor) -> Tensor:
        ctx.wide, dtype = composed.dtype, operands(composed)
        composed, vector = composed.to(dtype), vector.to(dtype)
        pushed = torch.addmm(vector, composed.flatten(0, 1), matrix.to(dtype)).view_as(composed)
        ctx.save_for_backward(composed, pushed, vector)
        return torch.sum(pushed * composed, -1, dtype=ctx.wide)

    @staticmethod
    def backward(ctx, g: Tensor) -> tuple[Tensor, ...]:
        composed, pushed, vector = ctx.saved_tensors
        g = g.to(composed.dtype).unsqueeze(-1)
        weighted = (composed * g).flatten(0, 1)
        found = (pushed - vector / 2).mul_(2 * g), weighted.T @ composed.flatten(0, 1), weighted.sum(0)
        return tuple(some.to(ctx.wide) for some in found)


class Products(torch.autograd.Function):
    """The loss of the same where x = weight * (known o e), e = table[ids]: see `Product`. One ids (b, n) a slot map.

    A block is composed, scored, its loss taken and its gradients added up while it is in the cache. What is left for the
    end are the gradients of rows, which are added row by row. With spectra E and K a correlation is the inverse transform
    of conj(K) E, and if D is the spectrum of its gradient, those of known and e have the spectra conj(D) E and D K. What
    comes out turned meets A and c turned.
    """

    @staticmethod
    def forward(ctx, core, vector, table, constant, ids, of, products, *given) -> Tensor:
        known, weights = given[: len(ids)], given[len(ids) :]
        dim, correlates, dtype, wide = table.shape[1], products[0].correlates, operands(table), table.dtype
        kind = wide if correlates else dtype  # of composed vectors: transforms are not rounded
        prepare = torch.fft.rfft if correlates else partial(torch.Tensor.to, dtype=dtype)
        table, known = prepare(table), [prepare(some) for some in known]
        dcore, dvector, dconstant = (torch.zeros_like(some) for some in (core, vector, constant))
        dknown, dweights = ([None if v is None else torch.empty_like(v) for v in some] for some in (known, weights))
        drows, room = table.new_empty(sum(some.numel() for some in ids), table.shape[1]), Room(table.device)
        loss, start, queries, first = vector.new_zeros(()), 0, sum(map(len, ids)), 0
        for side, (some, product) in enumerate(zip(ids, products, strict=True)):
            turn, beside = product.turned, known[side][:, None]
            matrix, slope = _turned(core.to(dtype), turn, 0, 1), _turned(vector.to(dtype), turn)
            half, weight = _turned(vector.to(kind), turn) / 2, weights[side]
            weight = None if weight is None else _turned(weight, turn)[:, None]
            dmatrix, dslope = torch.zeros_like(core), torch.zeros_like(vector)
            for part in _blocks(some, dim):
                shape, count = (*some[part].shape, dim), some[part].numel()
                rows = room("rows", (count, table.shape[1]), table.dtype)
                rows = torch.index_select(table, 0, some[part].flatten(), out=rows).view(*shape[:2], -1)
                composed = room("composed", shape, kind)
                if correlates:
                    mixed = torch.mul(rows, beside[part].conj(), out=room("mixed", rows.shape, table.dtype))
                    near = torch.fft.irfft(mixed, n=dim, out=room("near", shape, kind))
                    torch.mul(near, weight[part], out=composed)
                else:
                    torch.mul(rows, beside[part], out=composed)
                operand = composed if kind == dtype else room("operand", shape, dtype).copy_(composed)
                low = room("low", shape, dtype)
                torch.addmm(slope, operand.flatten(0, 1), matrix, out=low.flatten(0, 1))
                pushed = low if kind == dtype else room("pushed", shape, kind).copy_(low)  # Ax + c
                terms = torch.mul(pushed, composed, out=room("terms", shape, kind))
                scores = torch.sum(terms, -1, dtype=wide) + constant
                value, g = _slope(of, scores, slice(first + part.start, first + part.start + len(scores)), queries)
                loss, dconstant, g = loss + value, dconstant + g.sum(), g.to(kind)
                weighted = torch.mul(composed, g, out=terms)
                dslope += weighted.sum(1).sum(0)  # in two, both threads add
                weighted = weighted if kind == dtype else low.copy_(weighted)
                dmatrix += operand.flatten(0, 1).T @ weighted.flatten(0, 1)
                pulled = pushed.sub_(half).mul_(2 * g)  # the gradient of x
                if correlates:
                    torch.sum(near.mul_(pulled), 1, out=dweights[side][part])
                    pulled = torch.fft.rfft(pulled.mul_(weight[part]), out=mixed)
                torch.mul(pulled, beside[part], out=drows[start : start + count].view(rows.shape))
                torch.sum(pulled.mul_(rows.conj_physical_() if correlates else rows), 1, out=dknown[side][part])
                start += count
            first += len(some)
            dcore, dvector = dcore + _turned(dmatrix, turn, 0, 1), dvector + _turned(dslope, turn)
            dweights[side] = None if weight is None else _turned(dweights[side], turn)
        dtable = add_up(torch.cat([some.flatten() for some in ids]), drows, len(table))
        if correlates:
            dtable, dknown = torch.fft.irfft(dtable, n=dim), [torch.fft.irfft(some.conj(), n=dim) for some in dknown]
        dtable, dknown = dtable.to(wide), [some.to(wide) for some in dknown]
        ctx.found = (dcore, dvector, dtable, dconstant, *dknown, *dweights)
        return loss

    @staticmethod
    def backward(ctx, g: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.found is None:
            raise RuntimeError("the gradients of a sampled loss were taken, and are gone; compute the loss again")
        found, ctx.found = ctx.found, None  # whoever gets them may write to them
        dcore, dvector, dtable, dconstant, *dgiven = (d if d is None or g == 1 else d * g for d in found)
        return dcore, dvector, dtable, dconstant, None, None, None, *dgiven


def _slope(of: Loss, scores: Tensor, which: slice, queries: int) -> tuple[Tensor, Tensor]:
    """What some queries add to the mean loss of all, and its gradient in their scores, (m, n, 1)."""
    with torch.enable_grad():
        scores = scores.requires_grad_()
        value = of(scores, which) * (len(scores) / queries)
    return value.detach(), torch.autograd.grad(value, scores)[0].unsqueeze(-1)


class Room:
    """Memory by name, used again for each block so that it stays in the cache."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.held = device, {}

    def __call__(self, name: str, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        count = math.prod(shape)
        if name not in self.held or len(self.held[name]) < count:
            self.held[name] = torch.empty(count, dtype=dtype, device=self.device)
        return self.held[name][:count].view(shape)


def _turned(vectors: Tensor, turn: bool, *dims: int) -> Tensor:
    """Coordinate k to -k, in a circle; or as they are."""
    dims = dims or (-1,)
    return vectors.flip(dims).roll([1] * len(dims), dims) if turn else vectors


def _blocks(ids: Tensor, dim: int) -> Iterator[slice]:
    """Queries scored at once, about as many each time."""
    count = 1 if ids.is_cuda else -(-ids.numel() * dim // BLOCK)
    size = max(1, -(-len(ids) // max(1, count)))
    return (slice(start, min(start + size, len(ids))) for start in range(0, len(ids), size))
