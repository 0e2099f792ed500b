"""Triton kernels for quadratic scores of gathered candidates.

    s[b, j] = y' M y + linear[b] . e,      e = table[ids[b, j]],      y = query[b] o e,

with M = matrix[group[b]] symmetric and `o` the elementwise product, or, on rows laid out as [re | im], the complex
product conj(query) * e (sign 1) or query * conj(e) (sign -1), where the first pair holds two real numbers, multiplied
each by itself.

Four kernels: two stream rows (compose y; gradients of the vectors) and two multiply (y M with the scores; the gradient
of M). Between them y and y M are written once each, (B, n, D) in the operand type: a product whose operands are plain
tiles runs close to the speed of the tensor cores, which is worth more than the bytes.
Rows have D = 2 * HALF numbers: both halves, each padded with zeros to a multiple of the block sizes (`split_halves`).
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def _compose(e0, e1, q0, q1, sign, columns, COMPLEX: tl.constexpr):
    """Halves of q o e: (q0 e0, q1 e1), or (q0 e0 + q1 e1, sign (q0 e1 - q1 e0)), but for the real pair in column 0."""
    if COMPLEX:
        real = (columns == 0)[None, :]
        y0 = q0 * e0 + tl.where(real, 0.0, q1).to(q1.dtype) * e1
        return y0, tl.where(real, q1 * e1, (q0 * e1 - q1 * e0) * sign)
    else:
        return q0 * e0, q1 * e1


@triton.jit
def _candidates(ids, b, start, n, ROWS: tl.constexpr, WIDE: tl.constexpr):
    """Candidates start .. start + ROWS of query b: their rows of the table, positions, and which of them exist."""
    j = start + tl.arange(0, ROWS)
    live = j < n
    rows = tl.load(ids + b.to(tl.int64) * n + j, mask=live, other=0)
    return rows.to(tl.int64) if WIDE else rows, j, live


@triton.jit
def _gather(table, rows, columns, HALF: tl.constexpr):
    """The given columns of both halves of the given rows: two (rows, columns) tiles."""
    source = table + rows[:, None] * (2 * HALF) + columns[None, :]
    return tl.load(source), tl.load(source + HALF)


@triton.jit
def _vector(x, b, columns, HALF: tl.constexpr):
    """The given columns of both halves of row b: two (1, columns) tiles."""
    source = x + b.to(tl.int64) * (2 * HALF) + columns
    return tl.load(source)[None, :], tl.load(source + HALF)[None, :]


@triton.jit(do_not_specialize=["n"])
def _compose_kernel(table, query, sign, linear, ids, y, scores, n, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
                    HALF: tl.constexpr, COMPLEX: tl.constexpr, WIDE: tl.constexpr):  # fmt: skip
    """y = query o e and scores = linear . e for one query and ROWS candidates."""
    tiles = tl.cdiv(n, ROWS)
    b = tl.program_id(0) // tiles
    rows, j, live = _candidates(ids, b, tl.program_id(0) % tiles * ROWS, n, ROWS, WIDE)
    place = b.to(tl.int64) * n + j
    turn = tl.load(sign + b).to(table.dtype.element_ty)
    dots = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in tl.range(0, HALF, COLUMNS):
        columns = start + tl.arange(0, COLUMNS)
        e0, e1 = _gather(table, rows, columns, HALF)
        q0, q1 = _vector(query, b, columns, HALF)
        l0, l1 = _vector(linear, b, columns, HALF)
        y0, y1 = _compose(e0, e1, q0, q1, turn, columns, COMPLEX)
        target = y + place[:, None] * (2 * HALF) + columns[None, :]
        tl.store(target, y0, mask=live[:, None])
        tl.store(target + HALF, y1, mask=live[:, None])
        dots += e0.to(tl.float32) * l0 + e1.to(tl.float32) * l1
    tl.store(scores + place, tl.sum(dots, 1), mask=live)


@triton.jit(do_not_specialize=["n"])
def _push_kernel(left, right, y, group, pushed, scores, n, TILE: tl.constexpr, WIDTH: tl.constexpr,
                 DEPTH: tl.constexpr, HALF: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    """pushed = y M and scores += y . pushed for TILE candidates of one query and WIDTH columns.

    `left` and `right` describe the rows of y, and those of all matrices, as tiles for the tensor memory accelerator.
    """
    D: tl.constexpr = 2 * HALF
    NB: tl.constexpr = D // WIDTH
    tiles = tl.cdiv(n, TILE)
    b = tl.program_id(0) // NB // tiles
    first = tl.program_id(0) // NB % tiles * TILE
    column = tl.program_id(0) % NB * WIDTH
    row = tl.load(group + b) * D
    acc = tl.zeros((TILE, WIDTH), tl.float32)
    for start in tl.range(0, D, DEPTH):  # rows past the last candidate are another query's, and are not stored
        some = left.load([b * n + first, start])
        acc = tl.dot(some, right.load([row + start, column]), acc, input_precision=PRECISION)
    j = first + tl.arange(0, TILE)
    live = j < n
    place = b.to(tl.int64) * n + j
    here = place[:, None] * D + (column + tl.arange(0, WIDTH))[None, :]
    tl.store(pushed + here, acc.to(pushed.dtype.element_ty), mask=live[:, None])
    own = tl.load(y + here, mask=live[:, None], other=0.0)
    tl.atomic_add(scores + place, tl.sum(acc * own, 1), mask=live, sem="relaxed")


@triton.jit(do_not_specialize=["n", "size"])
def _vectors_kernel(table, query, sign, linear, ids, gs, pushed, dtable, dvectors, n, size, ROWS: tl.constexpr,
                    COLUMNS: tl.constexpr, HALF: tl.constexpr, COMPLEX: tl.constexpr, WIDE: tl.constexpr):  # fmt: skip
    """Gradients of table, query and linear from dy = 2 gs (y M), for one query and COLUMNS columns of each half:

    dtable[e] += (adjoint of o in e)(dy) + gs linear[b];  dquery[b] = sum_j (adjoint in q)(dy);
    dlinear[b] = sum_j gs e, which is `size` numbers after dquery[b] in dvectors.
    The adjoints of conj(q) * e are q * dy in e, and conj(dy) * e in q.
    """
    D: tl.constexpr = 2 * HALF
    NB: tl.constexpr = HALF // COLUMNS
    b = tl.program_id(0) // NB
    columns = tl.program_id(0) % NB * COLUMNS + tl.arange(0, COLUMNS)
    turn = tl.load(sign + b)
    q0, q1 = _vector(query, b, columns, HALF)
    q0, q1 = q0.to(tl.float32), q1.to(tl.float32)
    l0, l1 = _vector(linear, b, columns, HALF)
    real = (columns == 0)[None, :]
    sum_q0 = tl.zeros((ROWS, COLUMNS), tl.float32)
    sum_q1, sum_l0, sum_l1 = sum_q0, sum_q0, sum_q0
    for start in tl.range(0, n, ROWS):
        rows, j, live = _candidates(ids, b, start, n, ROWS, WIDE)
        place = b.to(tl.int64) * n + j
        g = tl.load(gs + place, mask=live, other=0.0)[:, None]
        here = place[:, None] * D + columns[None, :]
        dy0 = tl.load(pushed + here, mask=live[:, None], other=0.0).to(tl.float32) * (2 * g)
        dy1 = tl.load(pushed + here + HALF, mask=live[:, None], other=0.0).to(tl.float32) * (2 * g)
        e0, e1 = _gather(table, rows, columns, HALF)
        e0, e1 = e0.to(tl.float32), e1.to(tl.float32)
        if COMPLEX:
            dy1 = tl.where(real, dy1, dy1 * turn)
            across = tl.where(real, 0.0, q1)
            de0, de1 = q0 * dy0 - across * dy1, across * dy0 + tl.where(real, q1, q0) * dy1
        else:
            de0, de1 = q0 * dy0, q1 * dy1
        target = dtable + rows[:, None] * D + columns[None, :]
        tl.atomic_add(target, de0 + g * l0, mask=live[:, None], sem="relaxed")
        tl.atomic_add(target + HALF, de1 + g * l1, mask=live[:, None], sem="relaxed")
        dq0, dq1 = _compose(e0, e1, dy0, dy1, 1.0, columns, COMPLEX)
        sum_q0 += dq0
        sum_q1 += dq1
        sum_l0 += g * e0
        sum_l1 += g * e1
    target = dvectors + b.to(tl.int64) * D + columns
    tl.store(target, tl.sum(sum_q0, 0))
    tl.store(target + HALF, tl.sum(sum_q1, 0))
    tl.store(target + size, tl.sum(sum_l0, 0))
    tl.store(target + size + HALF, tl.sum(sum_l1, 0))


@triton.jit
def _add_or_store(target, value, ADD: tl.constexpr):
    if ADD:
        tl.atomic_add(target, value, sem="relaxed")
    else:
        tl.store(target, value.to(target.dtype.element_ty))


@triton.jit(do_not_specialize=["n"])
def _moment_kernel(y, gs, offsets, largest, dmatrix, n, SPLIT: tl.constexpr, STEP: tl.constexpr,
                   OUTER: tl.constexpr, HALF: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    """dmatrix[g] = sum of gs y y' over the rows of group g: blocks (I, J) and (J, I), I <= J, each OUTER x OUTER.

    A program sums one of SPLIT parts of the group's rows; SPLIT > 1 adds atomically. Groups are taken in the order of
    `largest`, since the last to end should be short.
    """
    D: tl.constexpr = 2 * HALF
    NB: tl.constexpr = D // OUTER
    I = tl.program_id(0) // NB % NB
    J = tl.program_id(0) % NB
    part = tl.program_id(0) // (NB * NB)
    if I > J:
        return
    group = tl.load(largest + part // SPLIT)
    first = tl.load(offsets + group).to(tl.int64) * n
    end = tl.load(offsets + group + 1).to(tl.int64) * n
    share = tl.cdiv(tl.cdiv(end - first, SPLIT), STEP) * STEP
    first += part % SPLIT * share
    end = tl.minimum(first + share, end)
    k = tl.arange(0, STEP)
    c = tl.arange(0, OUTER)
    left = y + (first + k)[:, None] * D + (I * OUTER + c)[None, :]
    right = y + (first + k)[:, None] * D + (J * OUTER + c)[None, :]
    weight = gs + first + k
    acc = tl.zeros((OUTER, OUTER), tl.float32)
    for start in tl.range(0, (end - first).to(tl.int32), STEP):
        live = k < end - first - start
        g = tl.load(weight, mask=live, other=0.0).to(y.dtype.element_ty)
        some = tl.load(left, mask=live[:, None], other=0.0)
        weighted = tl.load(right, mask=live[:, None], other=0.0) * g[:, None]
        acc = tl.dot(tl.trans(some), weighted, acc, input_precision=PRECISION)
        left += STEP * D
        right += STEP * D
        weight += STEP
    dmatrix += group.to(tl.int64) * (D * D)
    transposed = tl.trans(acc)
    if I == J:
        acc = (acc + transposed) / 2
    else:
        _add_or_store(dmatrix + (J * OUTER + c)[:, None] * D + (I * OUTER + c)[None, :], transposed, SPLIT > 1)
    _add_or_store(dmatrix + (I * OUTER + c)[:, None] * D + (J * OUTER + c)[None, :], acc, SPLIT > 1)


@dataclass(frozen=True)
class Blocks:
    """Block sizes: powers of two, 16 or more (except split); those in columns divide D, `columns` half of it."""

    columns: int = 64  # of each half, in the kernels that stream rows
    rows: int = 32  # that compose holds at once
    gradient_rows: int = 8  # and the gradient: four numbers to a thread, as atomic additions want them
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
    layout: dict  # of a row: HALF, whether it is COMPLEX, whether offsets of rows are WIDE, of 64 bits

    def scores(self, ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(B, n) scores of the candidates ids (B, n), and their y and y M, (B, n, D)."""
        (batch, n), size, blocks = ids.shape, self.table.shape[1], self.blocks
        y, pushed = (self.table.new_empty(batch, n, size) for _ in range(2))
        out = self.linear.new_empty(batch, n)
        _compose_kernel[(batch * triton.cdiv(n, blocks.rows),)](
            self.table, self.query, self.sign, self.linear, ids, y, out, n, blocks.rows, blocks.columns, **self.layout
        )
        _push_kernel[(batch * triton.cdiv(n, blocks.tile) * (size // blocks.width),)](
            TensorDescriptor.from_tensor(y.view(-1, size), [blocks.tile, blocks.depth]),
            TensorDescriptor.from_tensor(self.matrix.view(-1, size), [blocks.depth, blocks.width]),
            y, self.group, pushed, out, n, blocks.tile, blocks.width, blocks.depth, size // 2, self.precision,
            num_warps=blocks.warps, num_stages=blocks.stages,
        )  # fmt: skip
        return out, y, pushed

    def vector_gradients(self, ids: Tensor, gs: Tensor, pushed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients of table (N, D), query (B, D) and linear (B, D), in fp32, from gs (B, n) = d loss / d scores."""
        dtable, dvectors = self.linear.new_zeros(self.table.shape), self.linear.new_empty(2, *self.query.shape)
        _vectors_kernel[(len(ids) * (self.table.shape[1] // 2 // self.blocks.columns),)](
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
        _moment_kernel[((y.shape[2] // blocks.outer) ** 2 * len(out) * blocks.split,)](
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
    def forward(ctx, table, query, matrix, linear, ids, group, offsets, sign, options):
        ids = ids.int().contiguous()
        op = prepare(table, query, matrix, group, linear, sign, ids.shape[1], **options)
        scores, y, pushed = op.scores(ids)
        ctx.save_for_backward(op.table, op.query, op.sign, op.matrix, op.linear, op.group, ids, offsets, y, pushed)
        ctx.rest = op.blocks, op.precision, op.layout
        ctx.d, ctx.dtypes = table.shape[1], [x.dtype for x in (table, query, matrix, linear)]
        return scores

    @staticmethod
    @once_differentiable
    def backward(ctx, gs):
        *tensors, ids, offsets, y, pushed = ctx.saved_tensors
        op, gs, wanted = Operands(*tensors, *ctx.rest), gs.float().contiguous(), ctx.needs_input_grad
        dtable = dquery = dmatrix = dlinear = None
        if wanted[0] or wanted[1] or wanted[3]:
            dtable, dquery, dlinear = op.vector_gradients(ids, gs, pushed)
        if wanted[2]:
            dmatrix = join_halves(op.matrix_gradient(gs, y, offsets).mT, ctx.d).mT
        gradients = zip((dtable, dquery, dmatrix, dlinear), ctx.dtypes, wanted, strict=False)
        return *(join_halves(x, ctx.d).to(dtype) if want else None for x, dtype, want in gradients), *5 * [None]


def quadratic_scores(
    table: Tensor, query: Tensor, ids: Tensor, matrix: Tensor, group: Tensor, linear: Tensor,
    sign: Tensor | None = None, group_offsets: Tensor | None = None, **options,
) -> Tensor:  # fmt: skip
    """(B, n) fp32: scores of the candidates ids (B, n); differentiable in table, query, matrix and linear.

    table (N, d), query (B, d), linear (B, d); matrix (G, d, d) symmetric, of which query b uses number group[b].
    `sign` (B,) makes the product complex: 1 for conj(query) * e, -1 for query * conj(e).
    `group` (B,) is sorted; `group_offsets` (G + 1,) int32 says where its runs start (computed when not given).
    The options are those of `prepare`. Nothing waits for the device, and no shape depends on data: CUDA graphs fit.
    """
    if group_offsets is None:
        numbers = torch.arange(len(matrix) + 1, device=group.device, dtype=group.dtype)
        group_offsets = torch.searchsorted(group.contiguous(), numbers, out_int32=True)
    return _QuadraticScores.apply(table, query, matrix, linear, ids, group, group_offsets, sign, options)


@triton.jit(do_not_specialize=["count"])
def _scaled_kernel(matrix, scales, out, count, width, SIZE: tl.constexpr):
    g, k = tl.program_id(1), tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    live = k < count
    scale = tl.load(scales + g * width + k % width, mask=live)
    tl.store(out + g.to(tl.int64) * count + k, tl.load(matrix + k, mask=live) * scale, mask=live)


def scaled_columns(matrix: Tensor, scales: Tensor) -> Tensor:
    """(g, m, n): matrix (m, n) with column j times scales[g, j], for each row of scales (g, n)."""
    out = scales.new_empty(len(scales), *matrix.shape)
    if len(scales):
        _scaled_kernel[(triton.cdiv(matrix.numel(), 4096), len(scales))](
            matrix.contiguous(), scales.contiguous(), out, matrix.numel(), matrix.shape[1], SIZE=4096
        )
    return out


@triton.jit(do_not_specialize=["n"])
def _unit_kernel(rows, unit, shrink, n, d, ROWS: tl.constexpr, SIZE: tl.constexpr):
    i, k = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, SIZE)
    live = (i < n)[:, None] & (k < d)[None, :]
    place = i.to(tl.int64)[:, None] * d + k[None, :]
    x = tl.load(rows + place, mask=live, other=0.0)
    scale = 1 / tl.maximum(tl.sqrt(tl.sum(x * x, 1)), 1e-12)
    tl.store(unit + place, x * scale[:, None], mask=live)
    tl.store(shrink + i, scale, mask=i < n)


@triton.jit(do_not_specialize=["n"])
def _unit_gradient_kernel(g, unit, shrink, out, n, d, ROWS: tl.constexpr, SIZE: tl.constexpr):
    i, k = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, SIZE)
    live = (i < n)[:, None] & (k < d)[None, :]
    place = i.to(tl.int64)[:, None] * d + k[None, :]
    slope = tl.load(g + place, mask=live, other=0.0)
    u = tl.load(unit + place, mask=live, other=0.0)
    scale = tl.load(shrink + i, mask=i < n, other=0.0)
    tl.store(out + place, (slope - u * tl.sum(slope * u, 1)[:, None]) * scale[:, None], mask=live)


def unit_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows (n, d) divided by their lengths, and one over the lengths (n, 1)."""
    unit, shrink = torch.empty_like(rows), rows.new_empty(len(rows), 1)
    _by_rows(_unit_kernel, rows, unit, shrink)
    return unit, shrink


def unit_rows_gradient(g: Tensor, unit: Tensor, shrink: Tensor) -> Tensor:
    """(g - u (u.g)) / |e| for g (n, d)."""
    out = torch.empty_like(unit)
    _by_rows(_unit_gradient_kernel, g, unit, shrink, out)
    return out


def _by_rows(kernel, *tables: Tensor) -> None:
    """One pass over the rows of contiguous tables, several rows to a program."""
    n, d = tables[0].shape
    size = triton.next_power_of_2(d)
    rows = max(1, 4096 // size)
    if n:
        kernel[(triton.cdiv(n, rows),)](*tables, n, d, ROWS=rows, SIZE=size, num_warps=8 if size > 4096 else 4)
