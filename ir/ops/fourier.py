"""Discrete Fourier transforms: routines of the host (`ir/numeric/fourier.py`), and on other devices
passes of kernels (`fourier_passes.py`).

A transform is linear and its matrix symmetric, so its derivative is a transform in the same
direction. axes: the dimensions that are transformed. norm: 'backward', 'forward' or 'ortho', as in
PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..dtype import COMPLEX, FLOAT, complex_of, real_of
from ..location import at_user_line
from ..node import Node
from ..numeric import fourier as numeric
from ..op import Aval
from ..shape import Ints, Size
from .binary import bitwise_or, eq
from .complex import imag, make, real
from .fourier_passes import fourier_passes, half_passes, real_passes
from .generate import constant
from .host import HOST, routine
from .movement import expand, positions_along
from .ternary import where
from .unary import full_like, zeros_like


def _resized(shape: Size, axis: int, size: int) -> Size:
    return Size(size if i == axis else s for i, s in enumerate(shape))


def _need(name: str, holds: bool, kind: str, x: Node) -> None:
    if not holds:
        raise RuntimeError(f"{name}: expected a {kind} tensor, got {x.dtype}{at_user_line()}")


def _single(function: Callable[..., Any]) -> Callable[..., tuple[Any]]:
    """The routine of one result that takes memory for it."""
    return lambda *args, **out: (function(*args, **out),)


def _fft_types(x: Node, axes: Ints, inverse: bool, norm: str) -> tuple[Aval, ...]:
    _need("fft", x.dtype.category >= FLOAT, "complex or real", x)
    return ((x.shape, complex_of(x.dtype)),)


def _fft_vjp(
    g: Node, out: Node, x: Node, axes: Ints, inverse: bool, norm: str, index: int
) -> tuple[Node]:
    found = fourier_op(g, axes, inverse, norm, 0)
    return (found if x.dtype.category == COMPLEX else real(found),)


fourier_op = routine(
    "fft",
    _fft_types,
    _single(numeric.complex_to_complex),
    1,
    ("axes", "inverse", "norm"),
    _fft_vjp,
    fills=True,
)
"""The transform of complex or real numbers."""


def _weighted(z: Node, axis: int, size: int, weight: float) -> Node:
    """Half of a Hermitian signal of `size`; the elements that stand for two of it by a weight."""
    shape = [z.shape[i] if i == axis else 1 for i in range(z.rank)]
    place = expand(positions_along(axis, shape), shape)
    alone = bitwise_or(eq(place, full_like(place, 0)), eq(place * 2, full_like(place, size)))
    number = real_of(z.dtype)
    one, other = (expand(constant(w, number), shape) for w in (1, weight))
    factor = expand(where(alone, one, other), z.shape)
    return make(real(z) * factor, imag(z) * factor)


def _rfft_types(x: Node, axes: Ints, inverse: bool, norm: str) -> tuple[Aval, ...]:
    _need("rfft", x.dtype.category >= FLOAT, "complex or real", x)
    return ((_resized(x.shape, axes[-1], x.shape[axes[-1]] // 2 + 1), complex_of(x.dtype)),)


def _rfft_vjp(
    g: Node, out: Node, x: Node, axes: Ints, inverse: bool, norm: str, index: int
) -> tuple[Node]:
    size = x.shape[axes[-1]]
    found = back_op(_weighted(g, axes[-1], size, 0.5), axes, size, inverse, norm, 0)
    return (make(found, zeros_like(found)) if x.dtype.category == COMPLEX else found,)


half_op = routine(
    "rfft",
    _rfft_types,
    _single(numeric.real_to_complex),
    1,
    ("axes", "inverse", "norm"),
    _rfft_vjp,
    fills=True,
)
"""The first half, along the last of `axes`, of the transform of real numbers, or of the real parts
of complex ones."""


def _irfft_types(z: Node, axes: Ints, size: int, inverse: bool, norm: str) -> tuple[Aval, ...]:
    _need("irfft", z.dtype.category == COMPLEX, "complex", z)
    return ((_resized(z.shape, axes[-1], size), real_of(z.dtype)),)


def _irfft_vjp(
    g: Node, out: Node, z: Node, axes: Ints, size: int, inverse: bool, norm: str, index: int
) -> tuple[Node]:
    return (_weighted(half_op(g, axes, inverse, norm, 0), axes[-1], size, 2),)


back_op = routine(
    "irfft",
    _irfft_types,
    _single(numeric.complex_to_real),
    1,
    ("axes", "size", "inverse", "norm"),
    _irfft_vjp,
    fills=True,
)
"""The real transform of a Hermitian signal, of which the operand is the first half along the last
of `axes`; `size` is that of the whole. Imaginary parts of what stands for itself don't count."""


def fourier(x: Node, axes: Ints, inverse: bool, norm: str) -> Node:
    """Sums of x_j exp(-2 pi i jk / n) over `axes`; of exp(2 pi i jk / n) if `inverse`."""
    if x.device in (None, HOST):
        return fourier_op(x, axes, inverse, norm, 0)
    return fourier_passes(x, axes, inverse, norm)


def fourier_half(x: Node, axes: Ints, inverse: bool, norm: str) -> Node:
    """The first half of the transform of a real `x` along the last of `axes`."""
    if x.device in (None, HOST):
        return half_op(x, axes, inverse, norm, 0)
    return half_passes(x, axes, inverse, norm)


def fourier_real(z: Node, axes: Ints, size: int, inverse: bool, norm: str) -> Node:
    """The transform of a Hermitian signal by its first half along the last of `axes`."""
    if z.device in (None, HOST):
        return back_op(z, axes, size, inverse, norm, 0)
    return real_passes(z, axes, size, inverse, norm)
