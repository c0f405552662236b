"""Triton kernels as users write them."""

from __future__ import annotations

import triton
import triton.language as tl

SCALE: tl.constexpr = tl.constexpr(3)


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = places < n
    x = tl.load(x_ptr + places, mask=mask)
    y = tl.load(y_ptr + places, mask=mask)
    tl.store(out_ptr + places, x + y, mask=mask)


@triton.jit
def scale_kernel(x_ptr, out_ptr, factor, n, BLOCK: tl.constexpr = 16):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = places < n
    tl.store(out_ptr + places, tl.load(x_ptr + places, mask=mask) * factor, mask=mask)


@triton.jit
def double_in_place(x_ptr, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    where = x_ptr + places
    tl.store(where, tl.load(where, mask=places < n) * 2, mask=places < n)


@triton.jit
def sum_and_difference(a_ptr, x_ptr, b_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """Writes its first and third parameter."""
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = places < n
    x, y = tl.load(x_ptr + places, mask=mask), tl.load(y_ptr + places, mask=mask)
    tl.store(a_ptr + places, x + y, mask=mask)
    tl.store(b_ptr + places, x - y, mask=mask)


@triton.jit
def matrix_copy(x_ptr, out_ptr, rows, columns, stride0, stride1, M: tl.constexpr, N: tl.constexpr):
    """out[i, j] = x[i, j], by the strides of x; out is contiguous."""
    i = tl.program_id(0) * M + tl.arange(0, M)[:, None]
    j = tl.program_id(1) * N + tl.arange(0, N)[None, :]
    mask = (i < rows) & (j < columns)
    x = tl.load(x_ptr + i * stride0 + j * stride1, mask=mask)
    tl.store(out_ptr + i * columns + j, x, mask=mask)


@triton.jit
def fill_matrix(out_ptr, value, rows, columns, stride0, stride1, M: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, M)[:, None]
    j = tl.arange(0, N)[None, :]
    tl.store(out_ptr + i * stride0 + j * stride1, value, mask=(i < rows) & (j < columns))


@triton.jit
def _softmax_of(x):
    e = tl.exp(x - tl.max(x, axis=0))
    return e / tl.sum(e, axis=0)


@triton.jit
def _put(where, value, mask):
    tl.store(where, value, mask=mask)


@triton.jit
def softmax_kernel(x_ptr, out_ptr, best_ptr, width, BLOCK: tl.constexpr):
    """Softmax of rows. Calls kernel functions of this file, and Triton's own written in Triton."""
    row, places = tl.program_id(0), tl.arange(0, BLOCK)
    mask = places < width
    x = tl.load(x_ptr + row * width + places, mask=mask, other=-float("inf")).to(tl.float32)
    _put(out_ptr + row * width + places, _softmax_of(x) * SCALE, mask)
    _, at = tl.max(x, axis=0, return_indices=True)
    tl.store(best_ptr + row, at)


@triton.jit
def count_kernel(x_ptr, counts_ptr, n, BLOCK: tl.constexpr):
    """Adds the number of elements with each value to `counts`."""
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + places, mask=places < n, other=0)
    tl.atomic_add(counts_ptr + x, 1, mask=places < n)


@triton.jit
def optional_bias(x_ptr, bias_ptr, out_ptr, n, negate, BLOCK: tl.constexpr, TYPE: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = places < n
    x = tl.load(x_ptr + places, mask=mask)
    if bias_ptr is not None:
        x += tl.load(bias_ptr + places, mask=mask)
    if negate:
        x = -x
    tl.store(out_ptr + places, x.to(TYPE), mask=mask)


configs = [
    triton.Config({"BLOCK": 32}, num_warps=2),
    triton.Config({"BLOCK": 64}, num_warps=4),
]


@triton.autotune(configs=configs, key=["n"])
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def tuned_double(x_ptr, out_ptr, block_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    """Doubles x. Also stores its block, and whether it left out masks."""
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(out_ptr + places, tl.load(x_ptr + places) * 2)
    else:
        tl.store(out_ptr + places, tl.load(x_ptr + places, mask=places < n) * 2, mask=places < n)
    tl.store(block_ptr, BLOCK * 10 + EVEN)


several = [
    triton.Config({"BLOCK": 32}, num_warps=2),
    triton.Config({"BLOCK": 64}, num_warps=4),
    triton.Config({"BLOCK": 128}, num_warps=4, num_stages=2),
    triton.Config({"BLOCK": 16}, num_warps=2),
    triton.Config({"BLOCK": 8}, num_warps=2),
]


@triton.autotune(configs=several, key=["n"])
@triton.jit
def tuned_scale(x_ptr, out_ptr, n, factor, BLOCK: tl.constexpr):
    """Scales x. It is wrong with blocks of 16, and doesn't compile with blocks of 8."""
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = places < n
    if BLOCK == 16:
        mask = places < n - 1
    tl.static_assert(BLOCK != 8)
    x = tl.load(x_ptr + places, mask=mask)
    tl.store(out_ptr + places, x * factor, mask=mask)


@triton.jit
def fails(x_ptr, n, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), tl.no_such_function(n))


@triton.jit
def sine_gradient(g_ptr, x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = places < n
    g, x = tl.load(g_ptr + places, mask=mask), tl.load(x_ptr + places, mask=mask)
    tl.store(out_ptr + places, g * tl.cos(x), mask=mask)


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, m, n, k, am, ak, bk, bn, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr
):
    """c = a @ b by the strides of both. Pointers advance, as in Triton's tutorial."""
    columns = tl.cdiv(n, N)
    i = (tl.program_id(0) // columns) * M + tl.arange(0, M)
    j = (tl.program_id(0) % columns) * N + tl.arange(0, N)
    step = tl.arange(0, K)
    a_ptrs = a_ptr + (i % m)[:, None] * am + step[None, :] * ak
    b_ptrs = b_ptr + step[:, None] * bk + (j % n)[None, :] * bn
    total = tl.zeros((M, N), dtype=tl.float32)
    for block in range(0, tl.cdiv(k, K)):
        left = k - block * K
        a = tl.load(a_ptrs, mask=step[None, :] < left, other=0.0)
        b = tl.load(b_ptrs, mask=step[:, None] < left, other=0.0)
        total = tl.dot(a, b, total)
        a_ptrs += K * ak
        b_ptrs += K * bk
    c_ptrs = c_ptr + n * i[:, None] + j[None, :]
    tl.store(c_ptrs, total.to(tl.float16), mask=(i[:, None] < m) & (j[None, :] < n))


@triton.jit
def _plus(a, b):
    return a + b


@triton.jit
def scans_kernel(x_ptr, sums_ptr, rest_ptr, sorted_ptr, total_ptr, BLOCK: tl.constexpr):
    places = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + places)
    tl.store(sums_ptr + places, tl.associative_scan(x, 0, _plus))
    tl.store(rest_ptr + places, tl.cumsum(x, 0, reverse=True))
    tl.store(sorted_ptr + places, tl.sort(x, descending=True))
    tl.store(total_ptr, tl.sum(x > 0))
    tl.store(total_ptr + 1, tl.argmin(x, 0))


@triton.jit
def locked_sums(sums_ptr, locks_ptr, GROUPS: tl.constexpr):
    """Each program adds its number to the sum of its group, one at a time."""
    program = tl.program_id(0)
    lock = locks_ptr + program % GROUPS
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    place = sums_ptr + program % GROUPS
    tl.store(place, tl.load(place) + program)
    tl.atomic_xchg(lock, 0)


@triton.jit
def descriptors(x_ptr, out_ptr, m, n, M: tl.constexpr, N: tl.constexpr):
    x = tl.make_tensor_descriptor(x_ptr, shape=[m, n], strides=[n, 1], block_shape=[M, N])
    out = tl.make_tensor_descriptor(out_ptr, shape=[m, n], strides=[n, 1], block_shape=[M, N])
    for half in tl.static_range(2):
        where = [tl.program_id(0) * M, half * N]
        out.store(where, tl.sigmoid(x.load(where)))


@triton.jit
def scale_narrow(x_ptr, out_ptr, factor, n, BLOCK: tl.constexpr = 16):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = places < n
    x = tl.load(x_ptr + places, mask=mask).to(tl.float32)
    tl.store(out_ptr + places, (x * factor).to(out_ptr.dtype.element_ty), mask=mask)
