"""Quadratic scores of gathered candidates by Triton kernels: block sizes, operands and gradients.

Four kernels (triton_kernels.py): two stream rows (compose y; gradients of the vectors) and two multiply (y M with the
scores; the gradient of M). Between them y and y M are written once each, (B, n, D) in the operand type: a product whose
operands are plain tiles runs close to the speed of the tensor cores, which is worth more than the bytes.
"""

from dataclasses import dataclass
from typing import Any

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad
from triton.tools.tensor_descriptor import TensorDescriptor

from harmonium.kernels.triton_kernels import compose_kernel, moment_kernel, push_kernel, vectors_kernel


@dataclass(frozen=True)
class Blocks:
    """Block sizes: powers of two, 16 or more (except split); those in columns divide D, `columns` half of it."""

    columns: int = 64  # of each half, in the kernels that stream rows
    rows: int = 32  # held at once by the compose kernel
    gradient_rows: int = 8  # and by the gradient kernel: four numbers per thread suit atomic additions
    tile: int = 128  # y M: candidates of a program, its columns, columns of y per step
    width: int = 128
    depth: int = 64
    warps: int = 8
    stages: int = 3
    outer: int = 128  # gradient of M: columns of an output block, rows per step, programs that share a block
    step: int = 128
    split: int = 16
    moment_warps: int = 8
    moment_stages: int = 3


def default_blocks(d: int, n: int, batch: int, groups: int, dtype: torch.dtype) -> Blocks:
    """Block sizes for rows of d numbers and n candidates per query; fp32 products are unrolled, so kept small."""
    half, length = (max(16, triton.next_power_of_2(size)) for size in ((d + 1) // 2, n))
    columns, largest = min(half, 64), 32 if dtype == torch.float32 else 128
    size = 2 * triton.cdiv((d + 1) // 2, columns) * columns  # D
    even = size & -size  # the largest power of two that divides it
    outer = min(even, largest)
    programs, steps = groups * (size // outer) ** 2, batch * n // groups // 512
    return Blocks(
        columns, tile=min(length, largest), width=min(even, largest), depth=min(even, largest, 64),
        outer=outer, step=largest, split=max(1, min(1056 // programs, steps)),
    )  # fmt: skip


def split_halves(x: Tensor, half: int) -> Tensor:
    """(..., d) -> (..., 2 * half): both halves of the last dimension padded with zeros; x itself if nothing changes."""
    if x.shape[-1] == 2 * half:
        return x
    x = pad(x, (0, x.shape[-1] % 2)).unflatten(-1, (2, -1))
    return pad(x, (0, half - x.shape[-1])).flatten(-2)


def join_halves(x: Tensor, d: int) -> Tensor:
    """(..., 2 * half) -> (..., d): the inverse of `split_halves`."""
    return x if x.shape[-1] == d else x.unflatten(-1, (2, -1))[..., : (d + 1) // 2].flatten(-2)[..., :d]


@dataclass(frozen=True)
class Operands:
    """What the kernels read, and their launches: rows of D numbers in the operand type, `linear` in fp32."""

    table: Tensor  # (N, D)
    query: Tensor  # (B, D)
    sign: Tensor  # (B,) fp32
    matrix: Tensor  # (G, D, D)
    linear: Tensor  # (B, D)
    group: Tensor  # (B,) int32
    blocks: Blocks
    precision: str  # of fp32 products
    layout: dict[str, int]  # of a row: HALF, whether it is COMPLEX, whether offsets of rows are WIDE, of 64 bits

    def scores(self, ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(B, n) scores of the candidates ids (B, n), and their y and y M, (B, n, D)."""
        (batch, n), size, blocks = ids.shape, self.table.shape[1], self.blocks
        y, pushed = (self.table.new_empty(batch, n, size) for _ in range(2))
        out = self.linear.new_empty(batch, n)
        compose_kernel[(batch * triton.cdiv(n, blocks.rows),)](
            self.table, self.query, self.sign, self.linear, ids, y, out, n, blocks.rows, blocks.columns, **self.layout
        )
        push_kernel[(batch * triton.cdiv(n, blocks.tile) * (size // blocks.width),)](
            TensorDescriptor.from_tensor(y.view(-1, size), [blocks.tile, blocks.depth]),
            TensorDescriptor.from_tensor(self.matrix.view(-1, size), [blocks.depth, blocks.width]),
            y, self.group, pushed, out, n, blocks.tile, blocks.width, blocks.depth, size // 2, self.precision,
            num_warps=blocks.warps, num_stages=blocks.stages,
        )  # fmt: skip
        return out, y, pushed

    def vector_gradients(self, ids: Tensor, gs: Tensor, pushed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients of table (N, D), query (B, D) and linear (B, D), in fp32, from gs (B, n) = d loss / d scores."""
        dtable, dvectors = self.linear.new_zeros(self.table.shape), self.linear.new_empty(2, *self.query.shape)
        vectors_kernel[(len(ids) * (self.table.shape[1] // 2 // self.blocks.columns),)](
            self.table, self.query, self.sign, self.linear, ids, gs, pushed, dtable, dvectors, ids.shape[1],
            self.query.numel(), self.blocks.gradient_rows, self.blocks.columns, **self.layout,
        )  # fmt: skip
        return dtable, *dvectors

    def matrix_gradient(self, gs: Tensor, y: Tensor, offsets: Tensor) -> Tensor:
        """Gradient of matrix (G, D, D), in fp32 or, where nothing is added up, the operand type.

        Queries offsets[g] .. offsets[g + 1] use matrix g.
        """
        blocks, largest = self.blocks, offsets.diff().argsort(descending=True)
        out = self.linear.new_zeros(self.matrix.shape) if blocks.split > 1 else torch.empty_like(self.matrix)
        moment_kernel[((y.shape[2] // blocks.outer) ** 2 * len(out) * blocks.split,)](
            y, gs, offsets, largest, out, y.shape[1], blocks.split, blocks.step, blocks.outer, y.shape[2] // 2,
            self.precision, num_warps=blocks.moment_warps, num_stages=blocks.moment_stages,
        )  # fmt: skip
        return out


def prepare(
    table: Tensor, query: Tensor, matrix: Tensor, group: Tensor, linear: Tensor, sign: Tensor | None, n: int,
    operand_dtype: torch.dtype = torch.bfloat16, allow_tf32: bool = False, blocks: Blocks | None = None,
) -> Operands:  # fmt: skip
    """The arguments as the kernels read them: padded, in the operand type (bf16, fp16 or fp32), contiguous."""
    d = table.shape[1]
    if sign is not None and d % 2:
        raise ValueError(f"complex rows are [re | im], of even length, not {d}")
    blocks = blocks or default_blocks(d, n, len(query), len(matrix), operand_dtype)
    half = triton.cdiv((d + 1) // 2, blocks.columns) * blocks.columns
    squares = split_halves(split_halves(matrix, half).mT, half).mT  # (G, D, D)
    precision = "ieee" if operand_dtype == torch.float32 and not allow_tf32 else "tf32"
    layout = {"HALF": half, "COMPLEX": sign is not None, "WIDE": len(table) * 2 * half >= 2**31}
    table, query, squares = (
        x.to(operand_dtype).contiguous() for x in (split_halves(table, half), split_halves(query, half), squares)
    )
    sign = linear.new_ones(len(query)) if sign is None else sign
    linear = split_halves(linear, half).float().contiguous()
    return Operands(table, query, sign.float(), squares, linear, group.int(), blocks, precision, layout)


class _QuadraticScores(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, table: Tensor, query: Tensor, matrix: Tensor, linear: Tensor, ids: Tensor, group: Tensor,
        offsets: Tensor, sign: Tensor | None, options: dict[str, Any],
    ) -> Tensor:  # fmt: skip
        ids = ids.int().contiguous()
        op = prepare(table, query, matrix, group, linear, sign, ids.shape[1], **options)
        scores, y, pushed = op.scores(ids)
        ctx.save_for_backward(op.table, op.query, op.sign, op.matrix, op.linear, op.group, ids, offsets, y, pushed)
        ctx.rest = op.blocks, op.precision, op.layout
        ctx.d, ctx.dtypes = table.shape[1], [x.dtype for x in (table, query, matrix, linear)]
        return scores

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gs: Tensor) -> tuple[Tensor | None, ...]:
        *tensors, ids, offsets, y, pushed = ctx.saved_tensors
        op, gs, wanted = Operands(*tensors, *ctx.rest), gs.float().contiguous(), ctx.needs_input_grad[:4]
        gradients: list[Tensor | None] = [None] * 4  # of table, query, matrix, linear
        if wanted[0] or wanted[1] or wanted[3]:
            gradients[0], gradients[1], gradients[3] = op.vector_gradients(ids, gs, pushed)
        if wanted[2]:
            gradients[2] = join_halves(op.matrix_gradient(gs, y, offsets).mT, ctx.d).mT
        for i, (gradient, dtype) in enumerate(zip(gradients, ctx.dtypes, strict=True)):
            gradients[i] = join_halves(gradient, ctx.d).to(dtype) if wanted[i] and gradient is not None else None
        return *gradients, None, None, None, None, None


def quadratic_scores(
    table: Tensor, query: Tensor, ids: Tensor, matrix: Tensor, group: Tensor, linear: Tensor,
    sign: Tensor | None = None, group_offsets: Tensor | None = None, **options: Any,
) -> Tensor:  # fmt: skip
    """(B, n) fp32: scores of the candidates ids (B, n); differentiable in table, query, matrix and linear.

    table (N, d), query (B, d), linear (B, d); matrix (G, d, d) symmetric, of which query b uses number group[b].
    `sign` (B,) makes the product complex: 1 for conj(query) * e, -1 for query * conj(e).
    `group` (B,) is sorted; `group_offsets` (G + 1,) int32 has the start of each run (default: computed).
    The options are those of `prepare`. Nothing waits for the device, and no shape depends on data: CUDA graphs fit.
    """
    if group_offsets is None:
        numbers = torch.arange(len(matrix) + 1, device=group.device, dtype=group.dtype)
        group_offsets = torch.searchsorted(group.contiguous(), numbers, out_int32=True)
    inputs = (table, query, matrix, linear, ids, group, group_offsets, sign, options)
    scores: Tensor = _QuadraticScores.apply(*inputs)  # type: ignore[no-untyped-call]
    return scores
