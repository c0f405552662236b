"""Ops that only the compiler makes: for layouts, memory, and writes that no user names."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir import ops
from tilewright.ir.dtype import accumulator, bfloat16, float32, int64
from tilewright.ir.node import Node, grad_mode
from tilewright.ir.numeric import products
from tilewright.ir.op import Aval, Kind, Op
from tilewright.ir.ops.host import routine
from tilewright.ir.ops.scan import positions_in_order
from tilewright.ir.shape import Size, broadcast

initial = Op(
    "initial",
    Kind.ELEMENTWISE,
    lambda x, update: (x.shape, x.dtype),
    params=("update",),
    numpy="{0}",
    triton="{0}",
    float8=True,
    complex=True,
    complex_half=True,
)
"""The contents of memory before an update: a copy of its base, for that one update alone."""


# Complex numbers, whose parts are neighbours in memory (pairs/).

pair = Op(
    "pair",
    Kind.ELEMENTWISE,
    lambda x, y: (broadcast(x.shape, y.shape), x.dtype.to_complex()),
    numpy=ops.complex.numpy,
    cost=0,
    error=0,
)
"""The complex numbers with these parts. A kernel stores both."""

part = Op(
    "part",
    Kind.MOVEMENT,
    lambda z, i: (z.shape, z.dtype.to_real()),
    params=("i",),
    numpy=lambda z, i: np.array(z.imag if i else z.real),
)
"""The real parts (0) or the imaginary parts (1) of complex numbers."""

flat = Op(
    "flat",
    Kind.MOVEMENT,
    lambda z: (Size((*z.shape[:-1], 2 * z.shape[-1])), z.dtype.to_real()),
    numpy=lambda z: np.ascontiguousarray(z).view(z.real.dtype),
)
"""The memory of complex numbers as that of real ones: along the last dimension parts alternate."""

unflat = Op(
    "unflat",
    Kind.MOVEMENT,
    lambda x: (Size((*x.shape[:-1], x.shape[-1] // 2)), x.dtype.to_complex()),
    numpy=lambda x: np.ascontiguousarray(x).view(np.result_type(x.dtype, 1j)),
)
"""The inverse of `flat`: real numbers as the memory of complex ones."""


running_product = routine(
    "running_product",
    lambda z, axis: ((z.shape, z.dtype),),
    products.running_product,
    1,
    ("axis",),
    fills=True,
)
"""`cumprod` of complex numbers: there is no kernel for a fold of pairs."""

total_product = routine(
    "total_product",
    lambda z: ((Size(z.shape[:-1]), z.dtype),),
    products.total_product,
    1,
    fills=True,
)
"""`prod` of complex numbers along the last axis, which goes."""

small_products = routine(
    "small_products",
    lambda a, b: ((Size((*a.shape[:-1], b.shape[-1])), a.dtype),),
    products.small_products,
    1,
    fills=True,
)
"""`matmul` of many small complex matrices, by the BLAS behind NumPy: a kernel would have to make
real matrices of them, which takes longer than their products."""


# Float32 as digits that tensor cores multiply (legalize/digits.py).

DIGITS = tuple(
    Op(
        f"digit_{i}",
        Kind.ELEMENTWISE,
        lambda x, time: (x.shape, bfloat16),
        params=("time",),
        numpy=f"special.digit({{0}}, {i})",
        triton=f"tw_digit_{i}({{0}})",
        cost=3 * i + 3,
    )
    for i in range(3)
)
"""Float32 as the sum of three bfloat16 of 8 bits each: the nearest one, that of the rest, and what
is left. Of infinity and NaN the last two are 0. time: a number for uses that lie far apart, which
don't share memory."""

of_digits = Op(
    "of_digits",
    Kind.ELEMENTWISE,
    lambda first, second, third: (broadcast(first.shape, second.shape), float32),
    numpy="({2} + {1}) + {0}",
    triton="({2} + {1}) + {0}",
)
"""The number that has these digits, exactly."""


ordered = Op(
    "ordered",
    Kind.SCAN,
    lambda x, axis, run: (x.shape, x.dtype),
    params=("axis", "run"),
    numpy=lambda x, axis, run: np.sort(x, axis=axis),
)
"""Integers in ascending order along an axis; for `run` see `kernel.Ordered`."""


leading = Op(
    "leading",
    Kind.SCAN,
    lambda x, axis, descending, count: (x.shape, int64),
    params=("axis", "descending", "count"),
    numpy=lambda x, axis, descending, count: positions_in_order(x, axis, descending),
)
"""An argsort of which only the first `count` positions along the axis are wanted. The others are
undefined."""


grouped_scatter = Op(
    "grouped_scatter",
    Kind.SCATTER,
    lambda *given: ops.scatter.infer(*given),  # of this module: it is never recorded or exported
    params=("axis", "mode"),
    numpy=ops.scatter.numpy,
)
"""A scatter along one axis in which only neighbouring values meet."""


def last(x: Node) -> Node:
    """[n, c, *in] as [n, *in, c]."""
    return _turned(x, (0, *range(2, x.rank), 1))


def first(x: Node) -> Node:
    """[n, *in, c] as [n, c, *in]."""
    return _turned(x, (0, x.rank - 1, *range(1, x.rank - 1)))


def _turned(x: Node, order: tuple[int, ...]) -> Node:
    longer = [i for i in order if x.shape[i] != 1]
    if longer == sorted(longer):
        return ops.reshape(x, tuple(x.shape[i] for i in order))  # no element moves
    return ops.permute(x, order)


def plain(node: Node) -> Node:
    """The contraction over [n, c, *in] that one of `CHANNELS_LAST` stands for; for the gradient of
    a weight, that of all parts together."""
    of = CHANNELS_LAST[node.op]
    with grad_mode(False):
        return of(*map(first, node.operands), *node.attrs[: len(of.params)])


def _op(of: Op, params: tuple[str, ...] = ()) -> Op:
    def infer(a: Node, b: Node, *attrs: Any) -> Aval:
        own, more = attrs[: len(of.params)], attrs[len(of.params) :]
        n, channels, *rest = of(first(a), first(b), *own).shape
        parted = any(p != 1 for p in more)  # parts are added up later, and not rounded before
        return Size((*more, n, *rest, channels)), accumulator(a.dtype) if parted else a.dtype

    params = (*of.params, *params)
    return Op(f"{of.name}_last", Kind.CONTRACTION, infer, params, convolution=of.convolution)


conv_last = _op(ops.conv)


conv_input_grad_last = _op(ops.conv_input_grad)


conv_weight_grad_last = _op(ops.conv_weight_grad, ("parts",))
"""[parts, o, *kernel, c / groups]: the batch is cut in parts, each summed by itself."""


CHANNELS_LAST = {
    conv_last: ops.conv,
    conv_input_grad_last: ops.conv_input_grad,
    conv_weight_grad_last: ops.conv_weight_grad,
}


def _numpy(base: Any, value: Any, starts: Any, steps: Any) -> Any:
    out = np.array(base)
    ends = (a + n * s for a, n, s in zip(starts, value.shape, steps, strict=True))
    out[tuple(map(slice, starts, ends, steps))] = value
    return out


overwrite = Op(
    "overwrite",
    Kind.SCATTER,
    lambda base, value, starts, steps: (base.shape, base.dtype),
    params=("starts", "steps"),
    numpy=_numpy,
)
"""`base` with `value` in the place of the slice that has its shape, these starts and steps."""
