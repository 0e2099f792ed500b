"""Triton kernels: quadratic scores of gathered candidates, and passes over rows.

    s[b, j] = y' M y + linear[b] . e,      e = table[ids[b, j]],      y = query[b] o e,

with M = matrix[group[b]] symmetric and `o` the elementwise product, or, on rows laid out as [re | im], the complex
product conj(query) * e (sign 1) or query * conj(e) (sign -1), where the first pair holds two real numbers, multiplied
each by itself. Rows have D = 2 * HALF numbers: both halves, each padded with zeros to a multiple of the block sizes.
"""
# Triton compiles these functions: they are its language, not Python's, and have no Python types.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

import triton
import triton.language as tl


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
def compose_kernel(table, query, sign, linear, ids, y, scores, n, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
                   HALF: tl.constexpr, COMPLEX: tl.constexpr, WIDE: tl.constexpr):  # fmt: skip
    """y = query o e and scores = linear . e for one query and ROWS candidates."""
    tiles = tl.cdiv(n, ROWS)
    b = tl.program_id(0) // tiles
    rows, j, live = _candidates(ids, b, tl.program_id(0) % tiles * ROWS, n, ROWS, WIDE)
    positions = b.to(tl.int64) * n + j
    sign_b = tl.load(sign + b).to(table.dtype.element_ty)
    dots = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in tl.range(0, HALF, COLUMNS):
        columns = start + tl.arange(0, COLUMNS)
        e0, e1 = _gather(table, rows, columns, HALF)
        q0, q1 = _vector(query, b, columns, HALF)
        l0, l1 = _vector(linear, b, columns, HALF)
        y0, y1 = _compose(e0, e1, q0, q1, sign_b, columns, COMPLEX)
        target = y + positions[:, None] * (2 * HALF) + columns[None, :]
        tl.store(target, y0, mask=live[:, None])
        tl.store(target + HALF, y1, mask=live[:, None])
        dots += e0.to(tl.float32) * l0 + e1.to(tl.float32) * l1
    tl.store(scores + positions, tl.sum(dots, 1), mask=live)


@triton.jit(do_not_specialize=["n"])
def push_kernel(left, right, y, group, pushed, scores, n, TILE: tl.constexpr, WIDTH: tl.constexpr,
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
        tile = left.load([b * n + first, start])
        acc = tl.dot(tile, right.load([row + start, column]), acc, input_precision=PRECISION)
    j = first + tl.arange(0, TILE)
    live = j < n
    positions = b.to(tl.int64) * n + j
    cells = positions[:, None] * D + (column + tl.arange(0, WIDTH))[None, :]
    tl.store(pushed + cells, acc.to(pushed.dtype.element_ty), mask=live[:, None])
    composed = tl.load(y + cells, mask=live[:, None], other=0.0)
    tl.atomic_add(scores + positions, tl.sum(acc * composed, 1), mask=live, sem="relaxed")


@triton.jit(do_not_specialize=["n", "size"])
def vectors_kernel(table, query, sign, linear, ids, gs, pushed, dtable, dvectors, n, size, ROWS: tl.constexpr,
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
    sign_b = tl.load(sign + b)
    q0, q1 = _vector(query, b, columns, HALF)
    q0, q1 = q0.to(tl.float32), q1.to(tl.float32)
    l0, l1 = _vector(linear, b, columns, HALF)
    real = (columns == 0)[None, :]
    sum_q0 = tl.zeros((ROWS, COLUMNS), tl.float32)
    sum_q1, sum_l0, sum_l1 = sum_q0, sum_q0, sum_q0
    for start in tl.range(0, n, ROWS):
        rows, j, live = _candidates(ids, b, start, n, ROWS, WIDE)
        positions = b.to(tl.int64) * n + j
        g = tl.load(gs + positions, mask=live, other=0.0)[:, None]
        cells = positions[:, None] * D + columns[None, :]
        dy0 = tl.load(pushed + cells, mask=live[:, None], other=0.0).to(tl.float32) * (2 * g)
        dy1 = tl.load(pushed + cells + HALF, mask=live[:, None], other=0.0).to(tl.float32) * (2 * g)
        e0, e1 = _gather(table, rows, columns, HALF)
        e0, e1 = e0.to(tl.float32), e1.to(tl.float32)
        if COMPLEX:
            dy1 = tl.where(real, dy1, dy1 * sign_b)
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
def moment_kernel(y, gs, offsets, largest, dmatrix, n, SPLIT: tl.constexpr, STEP: tl.constexpr,
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
    part_rows = tl.cdiv(tl.cdiv(end - first, SPLIT), STEP) * STEP
    first += part % SPLIT * part_rows
    end = tl.minimum(first + part_rows, end)
    k = tl.arange(0, STEP)
    c = tl.arange(0, OUTER)
    left = y + (first + k)[:, None] * D + (I * OUTER + c)[None, :]
    right = y + (first + k)[:, None] * D + (J * OUTER + c)[None, :]
    weight = gs + first + k
    acc = tl.zeros((OUTER, OUTER), tl.float32)
    for start in tl.range(0, (end - first).to(tl.int32), STEP):
        live = k < end - first - start
        g = tl.load(weight, mask=live, other=0.0).to(y.dtype.element_ty)
        tile = tl.load(left, mask=live[:, None], other=0.0)
        weighted = tl.load(right, mask=live[:, None], other=0.0) * g[:, None]
        acc = tl.dot(tl.trans(tile), weighted, acc, input_precision=PRECISION)
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


@triton.jit(do_not_specialize=["count"])
def scaled_columns_kernel(matrix, scales, out, count, width, SIZE: tl.constexpr):
    g, k = tl.program_id(1), tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    live = k < count
    scale = tl.load(scales + g * width + k % width, mask=live)
    tl.store(out + g.to(tl.int64) * count + k, tl.load(matrix + k, mask=live) * scale, mask=live)


@triton.jit(do_not_specialize=["rows", "plane"])
def scaled_columns_gradients_kernel(g, matrix, scales, dmatrix, dscales, rows, width, plane, COUNT: tl.constexpr,
                                    PADDED: tl.constexpr, ROWS: tl.constexpr, SIZE: tl.constexpr):  # fmt: skip
    """The gradients of ROWS rows and SIZE columns: in the matrix, and the part of these rows of that in the scales."""
    first, j = tl.program_id(0).to(tl.int64) * ROWS, tl.program_id(1) * SIZE + tl.arange(0, SIZE)
    k = tl.arange(0, PADDED)
    inside = (k < COUNT)[:, None] & (j < width)[None, :]
    scale = tl.load(scales + k[:, None] * width + j[None, :], mask=inside, other=0.0)
    total = tl.zeros((PADDED, SIZE), tl.float32)
    for row in range(first, tl.minimum(first + ROWS, rows)):
        cells = row * width + j
        part = tl.load(g + k.to(tl.int64)[:, None] * plane + cells[None, :], mask=inside, other=0.0)
        tl.store(dmatrix + cells, tl.sum(part * scale, 0), mask=j < width)
        total += part * tl.load(matrix + cells, mask=j < width, other=0.0)[None, :]
    part_of_rows = tl.program_id(0) * COUNT * width
    tl.store(dscales + part_of_rows + k[:, None] * width + j[None, :], total, mask=inside)


@triton.jit(do_not_specialize=["n"])
def unit_rows_kernel(rows, unit, inverse_length, n, d, ROWS: tl.constexpr, SIZE: tl.constexpr):
    i, k = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, SIZE)
    live = (i < n)[:, None] & (k < d)[None, :]
    positions = i.to(tl.int64)[:, None] * d + k[None, :]
    x = tl.load(rows + positions, mask=live, other=0.0)
    scale = 1 / tl.maximum(tl.sqrt(tl.sum(x * x, 1)), 1e-12)
    tl.store(unit + positions, x * scale[:, None], mask=live)
    tl.store(inverse_length + i, scale, mask=i < n)


@triton.jit(do_not_specialize=["n"])
def unit_rows_gradient_kernel(g, unit, inverse_length, out, n, d, ROWS: tl.constexpr, SIZE: tl.constexpr):
    i, k = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, SIZE)
    live = (i < n)[:, None] & (k < d)[None, :]
    positions = i.to(tl.int64)[:, None] * d + k[None, :]
    dunit = tl.load(g + positions, mask=live, other=0.0)
    u = tl.load(unit + positions, mask=live, other=0.0)
    scale = tl.load(inverse_length + i, mask=i < n, other=0.0)
    tl.store(out + positions, (dunit - u * tl.sum(dunit * u, 1)[:, None]) * scale[:, None], mask=live)


@triton.jit
def adagrad_kernel(parameter, squares, gradient, rate, count, eps, SIZE: tl.constexpr):
    """One Adagrad update of SIZE numbers: squares += g^2, parameter -= rate g / (sqrt(squares) + eps)."""
    i = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    live = i < count
    g = tl.load(gradient + i, mask=live, other=0.0)
    total = tl.load(squares + i, mask=live, other=0.0) + g * g
    tl.store(squares + i, total, mask=live)
    value = tl.load(parameter + i, mask=live, other=0.0)
    tl.store(parameter + i, value - tl.load(rate) * g / (tl.sqrt(total) + eps), mask=live)


@triton.jit
def complex_product_kernel(left, right, out, half, SIGN: tl.constexpr, SIZE: tl.constexpr):
    """left * right (SIGN 1) or conj(left) * right (SIGN -1) of one row and SIZE coordinates."""
    k = tl.program_id(1) * SIZE + tl.arange(0, SIZE)
    live = k < half
    real = tl.program_id(0).to(tl.int64) * (2 * half) + k
    a, b = tl.load(left + real, mask=live), tl.load(left + real + half, mask=live) * SIGN
    c, d = tl.load(right + real, mask=live), tl.load(right + real + half, mask=live)
    tl.store(out + real, a * c - b * d, mask=live)
    tl.store(out + real + half, a * d + b * c, mask=live)


@triton.jit
def complex_product_gradients_kernel(g, left, right, dleft, dright, half, SIGN: tl.constexpr, SIZE: tl.constexpr):
    """g conj(right) (conjugated for SIGN -1) and g conj(left) (g left for SIGN -1) of one row and SIZE coordinates."""
    k = tl.program_id(1) * SIZE + tl.arange(0, SIZE)
    live = k < half
    real = tl.program_id(0).to(tl.int64) * (2 * half) + k
    u, v = tl.load(g + real, mask=live), tl.load(g + real + half, mask=live)
    a, b = tl.load(left + real, mask=live), tl.load(left + real + half, mask=live) * SIGN
    c, d = tl.load(right + real, mask=live), tl.load(right + real + half, mask=live)
    tl.store(dleft + real, u * c + v * d, mask=live)
    tl.store(dleft + real + half, (v * c - u * d) * SIGN, mask=live)
    tl.store(dright + real, u * a + v * b, mask=live)
    tl.store(dright + real + half, v * a - u * b, mask=live)


@triton.jit
def sum_of_cubes_kernel(vectors, sums, width, PARTS: tl.constexpr, SIZE: tl.constexpr):
    """sums[row] = sum of m^3 with m the magnitude of a coordinate with PARTS numbers, `width` apart."""
    vectors += tl.program_id(0).to(tl.int64) * (PARTS * width)
    total = tl.zeros((SIZE,), tl.float32)
    for start in tl.range(0, width, SIZE):
        k = start + tl.arange(0, SIZE)
        squares = tl.zeros((SIZE,), tl.float32)
        for part in tl.static_range(PARTS):
            v = tl.load(vectors + part * width + k, mask=k < width, other=0.0)
            squares += v * v
        total += squares * tl.sqrt(squares)
    tl.store(sums + tl.program_id(0), tl.sum(total, 0))


@triton.jit
def sum_of_cubes_gradient_kernel(vectors, g, out, width, PARTS: tl.constexpr, SIZE: tl.constexpr):
    """3 g m v of one row and SIZE coordinates."""
    k = tl.program_id(1) * SIZE + tl.arange(0, SIZE)
    live = k < width
    cells = tl.program_id(0).to(tl.int64) * (PARTS * width) + k
    squares = tl.zeros((SIZE,), tl.float32)
    for part in tl.static_range(PARTS):
        v = tl.load(vectors + cells + part * width, mask=live, other=0.0)
        squares += v * v
    slope = 3 * tl.load(g) * tl.sqrt(squares)
    for part in tl.static_range(PARTS):
        v = tl.load(vectors + cells + part * width, mask=live, other=0.0)
        tl.store(out + cells + part * width, slope * v, mask=live)
