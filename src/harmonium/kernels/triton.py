"""Triton kernels for quadratic scores of gathered candidates.

    s[b, j] = y' M y + linear[b] . e,      e = table[ids[b, j]],      y = query[b] o e,

with M = matrix[group[b]] symmetric and `o` the elementwise product, or, on rows laid out as [re | im], the complex
product conj(query) * e (sign 1) or query * conj(e) (sign -1), where the first pair holds two real numbers, multiplied
each by itself. No tensor of shape (B, n, d) is ever written: every kernel gathers rows of
the table and composes y on the fly.

Kernels see rows of D = 2 * HALF numbers: both halves of a row, each padded with zeros to a multiple of the block
sizes (`split_halves`). Complex products take them as re and im. Scores, and gradients of
the vectors, keep the composed tile y (TILE, D) in registers as the left operand of the tensor cores and stream M
through shared memory: D <= 512 is the fast range, a larger D spills.
"""

# ruff: noqa: RUF005 (Triton has no unpacking in tuples)

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad


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


@triton.jit
def _composed_tile(table, query, sign, linear, b, rows, HALF: tl.constexpr, CHUNK: tl.constexpr, COMPLEX: tl.constexpr,
                   PRECISION: tl.constexpr):  # fmt: skip
    """y as a tuple of (rows, CHUNK) chunks, the products linear[b] . e (rows,), and a zero chunk.

    The zero is a product of zeros: adding it gives y the layout of an accumulator, which is also that of a left
    operand in registers. Without it the compiler keeps y in shared memory, where there is no room for it.
    """
    dtype: tl.constexpr = table.dtype.element_ty
    zero = tl.dot(tl.zeros((rows.shape[0], 16), dtype), tl.zeros((16, CHUNK), dtype), input_precision=PRECISION)
    zero = zero.to(dtype)
    first = ()
    second = ()
    dots = tl.zeros((rows.shape[0],), tl.float32)
    turn = tl.load(sign + b).to(dtype)
    for start in tl.static_range(0, HALF, CHUNK):
        columns = start + tl.arange(0, CHUNK)
        e0, e1 = _gather(table, rows, columns, HALF)
        q0, q1 = _vector(query, b, columns, HALF)
        l0, l1 = _vector(linear, b, columns, HALF)
        y0, y1 = _compose(e0, e1, q0, q1, turn, columns, COMPLEX)
        first = first + (y0 + zero,)
        second = second + (y1 + zero,)
        dots += tl.sum(e0.to(tl.float32) * l0 + e1.to(tl.float32) * l1, 1)
    return first + second, dots, zero


@triton.jit
def _pin(chunks, zero):
    """The same chunks: the additions keep chunks that rotate through a loop in registers, and the loop pipelined."""
    pinned = ()
    for i in tl.static_range(len(chunks)):
        pinned = pinned + (chunks[i] + zero,)
    return pinned


@triton.jit
def _block(matrix, i, j, D: tl.constexpr, CHUNK: tl.constexpr):
    """Block (i, j) of M: (CHUNK, CHUNK)."""
    k = tl.arange(0, CHUNK)
    return tl.load(matrix + (i * CHUNK + k)[:, None] * D + (j * CHUNK + k)[None, :])


@triton.jit
def _tile_scores(table, query, sign, linear, matrix, group, b, rows, HALF: tl.constexpr, CHUNK: tl.constexpr,
                 COMPLEX: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    """s = linear[b] . e + sum_J y_J . (sum_i w_i M[J, J+i] y_[J+i]) for each of the rows.

    Block indices are modulo the even number of blocks NB. By symmetry the distances i = 0 .. NB / 2 suffice, that
    is (NB / 2 + 1) / NB of the products; w = 2, but 1 for i = 0 and, as both ends meet it, for i = NB / 2.
    The chunks rotate by one per step, so that chunk i of the tuple is always y_[J+i].
    """
    D: tl.constexpr = 2 * HALF
    NB: tl.constexpr = D // CHUNK
    matrix += tl.load(group + b).to(tl.int64) * (D * D)
    y, scores, zero = _composed_tile(table, query, sign, linear, b, rows, HALF, CHUNK, COMPLEX, PRECISION)
    for J in tl.range(0, NB):
        y = _pin(y, zero)
        acc = tl.zeros((rows.shape[0], CHUNK), tl.float32)
        for i in tl.static_range(1, NB // 2):
            acc = tl.dot(y[i], _block(matrix, (J + i) % NB, J, D, CHUNK), acc, input_precision=PRECISION)
        acc += acc
        acc = tl.dot(y[NB // 2], _block(matrix, (J + NB // 2) % NB, J, D, CHUNK), acc, input_precision=PRECISION)
        acc = tl.dot(y[0], _block(matrix, J, J, D, CHUNK), acc, input_precision=PRECISION)
        scores += tl.sum(acc * y[0].to(tl.float32), 1)
        y = y[1:] + y[:1]
    return scores


@triton.jit(do_not_specialize=["n"])
def _scores_kernel(table, query, sign, linear, matrix, group, ids, scores, n, TILE: tl.constexpr,
                   CHUNK: tl.constexpr, HALF: tl.constexpr, COMPLEX: tl.constexpr, PRECISION: tl.constexpr,
                   WIDE: tl.constexpr):  # fmt: skip
    """scores[b, j] = y' M y + linear[b] . e for one query and TILE candidates."""
    tiles = tl.cdiv(n, TILE)
    b = tl.program_id(0) // tiles
    rows, j, live = _candidates(ids, b, tl.program_id(0) % tiles * TILE, n, TILE, WIDE)
    s = _tile_scores(table, query, sign, linear, matrix, group, b, rows, HALF, CHUNK, COMPLEX, PRECISION)
    tl.store(scores + b.to(tl.int64) * n + j, s, mask=live)


@triton.jit(do_not_specialize=["n", "size"])
def _vectors_kernel(table, query, sign, linear, matrix, group, ids, gs, dtable, dvectors, n, size, TILE: tl.constexpr,
                    CHUNK: tl.constexpr, COLUMNS: tl.constexpr, HALF: tl.constexpr, COMPLEX: tl.constexpr,
                    PRECISION: tl.constexpr, WIDE: tl.constexpr):  # fmt: skip
    """Gradients of table, query and linear from dy = 2 gs (y M), by steps of COLUMNS columns of each half:

    dtable[e] += (adjoint of o in e)(dy) + gs linear[b];  dquery[b] += sum_j (adjoint in q)(dy);
    dlinear[b] += sum_j gs e, which is `size` numbers after dquery[b] in dvectors.
    The adjoints of conj(q) * e are q * dy in e, and conj(dy) * e in q.
    """
    D: tl.constexpr = 2 * HALF
    tiles = tl.cdiv(n, TILE)
    b = tl.program_id(0) // tiles
    rows, j, live = _candidates(ids, b, tl.program_id(0) % tiles * TILE, n, TILE, WIDE)
    g = tl.load(gs + b.to(tl.int64) * n + j, mask=live, other=0.0)[:, None]
    matrix += tl.load(group + b).to(tl.int64) * (D * D)
    y, _, _ = _composed_tile(table, query, sign, linear, b, rows, HALF, CHUNK, COMPLEX, PRECISION)
    k = tl.arange(0, CHUNK)
    pair = tl.arange(0, 2)
    turn = tl.load(sign + b)
    dvectors += b.to(tl.int64) * D
    both = tl.arange(0, 2 * COLUMNS)
    both = both % COLUMNS + both // COLUMNS * HALF  # the same columns of either half, side by side
    for start in tl.range(0, HALF, COLUMNS):
        columns = start + tl.arange(0, COLUMNS)
        e0, e1 = _gather(table, rows, columns, HALF)
        acc = tl.zeros((TILE, 2 * COLUMNS), tl.float32)
        for i in tl.static_range(D // CHUNK):
            block = tl.load(matrix + (i * CHUNK + k)[:, None] * D + (start + both)[None, :])
            acc = tl.dot(y[i], block, acc, input_precision=PRECISION)
        dy0, dy1 = tl.split(tl.permute(tl.reshape(acc * (2 * g), TILE, 2, COLUMNS), 0, 2, 1))
        q0, q1 = _vector(query, b, columns, HALF)
        q0, q1 = q0.to(tl.float32), q1.to(tl.float32)
        if COMPLEX:
            real = (columns == 0)[None, :]
            dy1 = tl.where(real, dy1, dy1 * turn)
            across = tl.where(real, 0.0, q1)
            de0, de1 = q0 * dy0 - across * dy1, across * dy0 + tl.where(real, q1, q0) * dy1
        else:
            de0, de1 = q0 * dy0, q1 * dy1
        l0, l1 = _vector(linear, b, columns, HALF)
        target = dtable + rows[:, None] * D + columns[None, :]
        tl.atomic_add(target, de0 + g * l0, mask=live[:, None], sem="relaxed")
        tl.atomic_add(target + HALF, de1 + g * l1, mask=live[:, None], sem="relaxed")
        e0, e1 = e0.to(tl.float32), e1.to(tl.float32)
        dq0, dq1 = _compose(e0, e1, dy0, dy1, 1.0, columns, COMPLEX)
        sums = tl.sum(tl.join(tl.join(dq0, dq1), tl.join(g * e0, g * e1)), 0)  # (COLUMNS, half, query or linear)
        place = columns[:, None, None] + (pair * HALF)[None, :, None] + (pair * size)[None, None, :]
        tl.atomic_add(dvectors + place, sums, sem="relaxed")


@triton.jit
def _composed_rows(e0, e1, query, sign, b, columns, HALF: tl.constexpr, COMPLEX: tl.constexpr):
    """[y0 | y1] of gathered rows (K, C): (K, 2 C)."""
    q0, q1 = _vector(query, b, columns, HALF)
    turn = tl.load(sign + b).to(q0.dtype)
    y0, y1 = _compose(e0, e1, q0, q1, turn, columns, COMPLEX)
    return tl.reshape(tl.permute(tl.join(y0, y1), 0, 2, 1), e0.shape[0], 2 * e0.shape[1])


@triton.jit
def _add_or_store(target, value, ADD: tl.constexpr):
    if ADD:
        tl.atomic_add(target, value, sem="relaxed")
    else:
        tl.store(target, value.to(target.dtype.element_ty))


@triton.jit(do_not_specialize=["n"])
def _moment_kernel(table, query, sign, ids, gs, offsets, dmatrix, n, SPLIT: tl.constexpr, DEPTH: tl.constexpr,
                   OUTER: tl.constexpr, HALF: tl.constexpr, COMPLEX: tl.constexpr, PRECISION: tl.constexpr,
                   WIDE: tl.constexpr):  # fmt: skip
    """dmatrix[g] = sum_{b in g, j} gs y y': blocks (I, J) and (J, I), I <= J, each of OUTER columns of both halves.

    A program sums one of SPLIT parts of the group's steps of DEPTH candidates of one query; SPLIT > 1 adds
    atomically. Rows are gathered one step ahead of the product that uses them, row numbers two steps ahead.
    """
    D: tl.constexpr = 2 * HALF
    NB: tl.constexpr = HALF // OUTER
    I = tl.program_id(0) // NB % NB
    J = tl.program_id(0) % NB
    part = tl.program_id(0) // (NB * NB)
    if I > J:
        return
    tiles = tl.cdiv(n, DEPTH)
    first = tl.load(offsets + part // SPLIT) * tiles
    end = tl.load(offsets + part // SPLIT + 1) * tiles
    share = tl.cdiv(end - first, SPLIT)
    first += part % SPLIT * share
    end = tl.minimum(first + share, end)
    ci = I * OUTER + tl.arange(0, OUTER)
    cj = J * OUTER + tl.arange(0, OUTER)
    acc = tl.zeros((2 * OUTER, 2 * OUTER), tl.float32)
    if first < end:
        rows, _, _ = _candidates(ids, first // tiles, first % tiles * DEPTH, n, DEPTH, WIDE)
        i0, i1 = _gather(table, rows, ci, HALF)
        j0, j1 = _gather(table, rows, cj, HALF)
        after = tl.minimum(first + 1, end - 1)
        rows, _, _ = _candidates(ids, after // tiles, after % tiles * DEPTH, n, DEPTH, WIDE)
        for step in tl.range(first, end, num_stages=1):
            next_i0, next_i1 = _gather(table, rows, ci, HALF)
            next_j0, next_j1 = _gather(table, rows, cj, HALF)
            after = tl.minimum(step + 2, end - 1)
            rows, _, _ = _candidates(ids, after // tiles, after % tiles * DEPTH, n, DEPTH, WIDE)
            b = step // tiles
            k = step % tiles * DEPTH + tl.arange(0, DEPTH)
            g = tl.load(gs + b.to(tl.int64) * n + k, mask=k < n, other=0.0).to(i0.dtype)
            yi = _composed_rows(i0, i1, query, sign, b, ci, HALF, COMPLEX) * g[:, None]
            yj = _composed_rows(j0, j1, query, sign, b, cj, HALF, COMPLEX)
            acc = tl.dot(tl.trans(yi), yj, acc, input_precision=PRECISION)
            i0, i1, j0, j1 = next_i0, next_i1, next_j0, next_j1
    c = tl.arange(0, 2 * OUTER)
    c = c % OUTER + c // OUTER * HALF
    dmatrix += (part // SPLIT).to(tl.int64) * (D * D)
    transposed = tl.trans(acc)
    if I == J:
        acc = (acc + transposed) / 2
    else:
        _add_or_store(dmatrix + (J * OUTER + c)[:, None] * D + (I * OUTER + c)[None, :], transposed, SPLIT > 1)
    _add_or_store(dmatrix + (I * OUTER + c)[:, None] * D + (J * OUTER + c)[None, :], acc, SPLIT > 1)


@dataclass(frozen=True)
class Blocks:
    """Block sizes: powers of two, 16 or more (except split). Those in columns divide the length of a padded half."""

    tile: int = 128  # scores: candidates of a program, 16 for each warp
    chunk: int = 64  # columns of a chunk of y
    warps: int = 8
    stages: int = 3
    backward_tile: int = 128  # gradients of vectors: the same
    backward_chunk: int = 64
    columns: int = 32  # columns of each half per step
    backward_warps: int = 8
    backward_stages: int = 3
    depth: int = 128  # gradient of M: candidates per step
    outer: int = 64  # columns of each half of an output block
    split: int = 66  # programs that share an output block
    moment_warps: int = 8
    moment_registers: int | None = None  # of a thread; 128 lets two programs of 8 warps share a multiprocessor


def default_blocks(d: int, n: int, batch: int, groups: int, dtype: torch.dtype) -> Blocks:
    """Block sizes for rows of d numbers and n candidates per query; fp32 products are unrolled, so kept small."""
    half, length = (max(16, triton.next_power_of_2(size)) for size in ((d + 1) // 2, n))
    tile, chunk, outer = min(length, 128), min(half, 64), min(half, 64)
    if dtype == torch.float32:
        tile, chunk, outer = min(tile, 32), min(chunk, 32), 16
    columns, warps = min(outer, 32), max(4, tile // 16)
    width = 2 * triton.cdiv((d + 1) // 2, chunk) * chunk  # D
    # numbers of M that a step reads, forward and backward; as many steps as fit are under way at once
    room = 3 * 2**16 // dtype.itemsize
    stages, backward_stages = (
        max(1, min(3, room // size)) for size in ((width // 2 + chunk) * chunk, width * 2 * columns)
    )
    steps, programs = batch * triton.cdiv(n, tile) // groups, groups * triton.cdiv(half, outer) ** 2
    return Blocks(
        min(tile, 64), chunk, 4, min(stages, 2), tile, chunk, columns, warps, backward_stages, depth=tile, outer=outer,
        split=max(1, min(1056 // programs, steps // 4)), moment_warps=8 if outer == 64 else 4,
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
    constants: dict

    def scores(self, ids: Tensor) -> Tensor:
        """(B, n) scores of the candidates ids (B, n)."""
        out = self.linear.new_empty(ids.shape)
        _scores_kernel[(len(out) * triton.cdiv(out.shape[1], self.blocks.tile),)](
            self.table, self.query, self.sign, self.linear, self.matrix, self.group, ids, out, out.shape[1],
            TILE=self.blocks.tile, CHUNK=self.blocks.chunk, **self.constants,
            num_warps=self.blocks.warps, num_stages=self.blocks.stages,
        )  # fmt: skip
        return out

    def vector_gradients(self, ids: Tensor, gs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients of table (N, D), query (B, D) and linear (B, D), in fp32, from gs (B, n) = d loss / d scores."""
        dtable, dvectors = (self.linear.new_zeros(shape) for shape in (self.table.shape, (2, *self.query.shape)))
        _vectors_kernel[(len(ids) * triton.cdiv(ids.shape[1], self.blocks.backward_tile),)](
            self.table, self.query, self.sign, self.linear, self.matrix, self.group, ids, gs, dtable, dvectors,
            ids.shape[1], self.query.numel(), TILE=self.blocks.backward_tile, CHUNK=self.blocks.backward_chunk,
            COLUMNS=self.blocks.columns, **self.constants, num_warps=self.blocks.backward_warps,
            num_stages=self.blocks.backward_stages,
        )  # fmt: skip
        return dtable, *dvectors

    def matrix_gradient(self, ids: Tensor, gs: Tensor, offsets: Tensor) -> Tensor:
        """Gradient of matrix (G, D, D), in fp32 or, where nothing is added up, the operand type.

        Queries offsets[g] .. offsets[g + 1] use matrix g.
        """
        split = self.blocks.split
        out = self.linear.new_zeros(self.matrix.shape) if split > 1 else torch.empty_like(self.matrix)
        _moment_kernel[((self.constants["HALF"] // self.blocks.outer) ** 2 * len(out) * split,)](
            self.table, self.query, self.sign, ids, gs, offsets, out, ids.shape[1], SPLIT=split, DEPTH=self.blocks.depth,
            OUTER=self.blocks.outer, **self.constants, num_warps=self.blocks.moment_warps,
            maxnreg=self.blocks.moment_registers,
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
    unit = max(blocks.chunk, blocks.backward_chunk, blocks.columns, blocks.outer)
    half = triton.cdiv((d + 1) // 2, unit) * unit
    squares = split_halves(split_halves(matrix, half).mT, half).mT  # (G, D, D)
    ieee = operand_dtype == torch.float32 and not allow_tf32
    constants = {"HALF": half, "COMPLEX": sign is not None, "PRECISION": "ieee" if ieee else "tf32"}
    constants["WIDE"] = len(table) * 2 * half >= 2**31
    table, query, squares = (
        x.to(operand_dtype).contiguous() for x in (split_halves(table, half), split_halves(query, half), squares)
    )
    sign = linear.new_ones(len(query)) if sign is None else sign
    linear = split_halves(linear, half)
    return Operands(table, query, sign.float(), squares, linear.float().contiguous(), group.int(), blocks, constants)


class _QuadraticScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx, table, query, matrix, linear, ids, group, offsets, sign, options):
        ids = ids.int().contiguous()
        op = prepare(table, query, matrix, group, linear, sign, ids.shape[1], **options)
        ctx.save_for_backward(op.table, op.query, op.sign, op.matrix, op.linear, op.group, ids, offsets)
        ctx.rest = op.blocks, op.constants
        ctx.d, ctx.dtypes = table.shape[1], [x.dtype for x in (table, query, matrix, linear)]
        return op.scores(ids)

    @staticmethod
    @once_differentiable
    def backward(ctx, gs):
        *tensors, ids, offsets = ctx.saved_tensors
        op, gs, wanted = Operands(*tensors, *ctx.rest), gs.float().contiguous(), ctx.needs_input_grad
        dtable = dquery = dmatrix = dlinear = None
        if wanted[0] or wanted[1] or wanted[3]:
            dtable, dquery, dlinear = op.vector_gradients(ids, gs)
        if wanted[2]:
            dmatrix = join_halves(op.matrix_gradient(ids, gs, offsets).mT, ctx.d).mT
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
