"""torch.fft: discrete Fourier transforms, of complex, real and Hermitian signals.

All are formulas over three records (`ir/ops/fourier.py`), so they have gradients of any order.
norm: 'backward' divides by the number of elements in inverse transforms, 'forward' in the others,
'ortho' by its root in both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node
from tilewright.ir.shape import normalize_axis

from .functions.arguments import into, is_whole
from .functions.joining import roll
from .functions.promotion import floating
from .functions.ranges import arange
from .functions.spellings import by_numpys_names
from .recording import default_dtype, named_dtype, record
from .recording.builders import builder

if TYPE_CHECKING:
    from ._tensor import Tensor

__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "hfft2", "hfftn", "ifft", "ifft2",
    "ifftn", "ifftshift", "ihfft", "ihfft2", "ihfftn", "irfft", "irfft2", "irfftn", "rfft", "rfft2",
    "rfftfreq", "rfftn",
]  # fmt: skip

Sizes = tuple[int, ...]


def _as_float(x: Node) -> Node:
    x = floating(x)
    if x.dtype in dtypes.HALVES:
        raise RuntimeError(f"Unsupported dtype {x.dtype}{at_user_line()}")
    return x


def _as_complex(x: Node) -> Node:
    return x if x.dtype.is_complex else ops.cast(x, x.dtype.to_complex())


def _resized(x: Node, axis: int, size: int) -> Node:
    """`x` with the last elements along an axis cut off, or zeros behind them."""
    own = x.shape[axis]
    if size < own:
        return ops.slice_axis(x, axis, 0, size)
    if size == own:
        return x
    none = [0] * x.rank
    more = [size - own if i == axis else 0 for i in range(x.rank)]
    return ops.pad(x, none, more, none)


@builder("fft_c2c", gradient="FftC2CBackward0")
def _c2c(x: Node, sizes: Sizes | None, axes: Sizes, norm: str, inverse: bool) -> Node:
    """sizes: of the transform along `axes`; None for those of `x`, so that calls on signals of
    other lengths are alike."""
    x = _as_float(x)
    for axis, size in zip(axes, sizes or ()):
        x = _resized(x, axis, size)
    return ops.fourier(x, axes, inverse, norm) if axes else _as_complex(x)


@builder("fft_r2c", gradient="FftR2CBackward0")
def _r2c(x: Node, sizes: Sizes | None, axes: Sizes, norm: str, inverse: bool) -> Node:
    """Half of the transform along the last of `axes`: the other half is conjugate."""
    x = _as_float(x)
    for axis, size in zip(axes, sizes or ()):
        x = _resized(x, axis, size)
    return ops.fourier_half(x, axes, inverse, norm)


@builder("fft_c2r", gradient="FftC2RBackward0")
def _c2r(x: Node, sizes: Sizes | None, axes: Sizes, norm: str, inverse: bool) -> Node:
    """The real transform of a Hermitian signal, of which `x` has half along the last of `axes`."""
    x = _as_complex(_as_float(x))
    if sizes is None:
        return ops.fourier_real(x, axes, 2 * (x.shape[axes[-1]] - 1), inverse, norm)
    for axis, size in zip(axes, (*sizes[:-1], sizes[-1] // 2 + 1), strict=True):
        x = _resized(x, axis, size)
    return ops.fourier_real(x, axes, sizes[-1], inverse, norm)


def _checked_norm(norm: str | None) -> str:
    if norm not in (None, "backward", "ortho", "forward"):
        raise RuntimeError(f'Invalid normalization mode: "{norm}"{at_user_line()}')
    return norm or "backward"


def _no_complex(name: str, x: Any) -> None:
    if x.dtype.is_complex:
        raise RuntimeError(f"{name} expects a real input tensor, but got {x.dtype}{at_user_line()}")


def _along(x: Any, s: Any, dim: Any, halved: bool) -> tuple[Sizes | None, Sizes]:
    """(sizes, axes) of a transform; no sizes if they are those of `x`. halved: whether x has half
    of the last axis."""
    shape = x.shape
    rank = len(shape)
    if s is None and dim.__class__ is tuple and len(dim) == 1:  # nearly all calls
        axis = normalize_axis(dim[0], rank)
        if shape[axis] > halved:
            return None, (axis,)
    s, dim = ((n,) if isinstance(n, int) else n for n in (s, dim))
    if dim is None:
        count = rank if s is None else len(s)
        if count > rank:
            raise RuntimeError(
                f"Got shape with {count} values but input tensor only has {rank} dimensions."
                f"{at_user_line()}"
            )
        axes = tuple(range(rank - count, rank))
    else:
        axes = tuple(normalize_axis(d, rank) for d in dim)
    if len(set(axes)) != len(axes):
        raise RuntimeError(f"FFT dims must be unique{at_user_line()}")
    if s is not None and len(s) != len(axes):
        raise RuntimeError(
            f"When given, dim and shape arguments must have the same length{at_user_line()}"
        )
    sizes = [x.shape[a] if s is None or s[i] == -1 else int(s[i]) for i, a in enumerate(axes)]
    if halved and axes and (s is None or s[-1] == -1):
        sizes[-1] = 2 * (x.shape[axes[-1]] - 1)
    for size in sizes:
        if size < 1:
            raise RuntimeError(f"Invalid number of data points ({size}) specified{at_user_line()}")
    return None if s is None else tuple(sizes), axes


def _transform(
    name: str, build: Callable[..., Node], inverse: bool, doc: str, first: str = ""
) -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
    """The forms of a transform over one dimension, two, and any number.

    first: 'real' if the input must be real, 'conj' if it is conjugated first, or the result.
    """
    halved, real_only = build is _c2r, build is _r2c

    def run(called: str, x: Any, s: Any, dim: Any, norm: Any, out: Any) -> Any:
        kind = _checked_norm(norm)
        if real_only:
            _no_complex(called, x)
        dims = (int(dim),) if isinstance(dim, int) or is_whole(dim) else dim
        sizes, axes = _along(x, s, dims, halved)
        if not axes and (halved or real_only):
            raise RuntimeError(f"{called} must transform at least one axis{at_user_line()}")
        return into(out, record(build, x, sizes, axes, kind, inverse))

    def one(
        input: Any, n: int | None = None, dim: int = -1, norm: str | None = None, *, out: Any = None
    ) -> Any:
        return run(name, input, None if n is None else (n,), dim, norm, out)

    def two(
        input: Any,
        s: Sequence[int] | None = None,
        dim: int | Sequence[int] = (-2, -1),
        norm: str | None = None,
        *,
        out: Any = None,
    ) -> Any:
        if dim is None:
            raise TypeError(f"fft_{name}2(): argument 'dim' must be tuple of ints{at_user_line()}")
        return run(f"{name}2", input, s, dim, norm, out)

    def any_number(
        input: Any,
        s: Sequence[int] | None = None,
        dim: int | Sequence[int] | None = None,
        norm: str | None = None,
        *,
        out: Any = None,
    ) -> Any:
        return run(f"{name}n", input, s, dim, norm, out)

    for function, ending in ((one, ""), (two, "2"), (any_number, "n")):
        function.__name__ = function.__qualname__ = f"{name}{ending}"
        function.__doc__ = doc
    return by_numpys_names(one), by_numpys_names(two), by_numpys_names(any_number)


fft, fft2, fftn = _transform("fft", _c2c, False, "The discrete Fourier transform.")
ifft, ifft2, ifftn = _transform("ifft", _c2c, True, "The inverse Fourier transform.")
rfft, rfft2, rfftn = _transform(
    "rfft", _r2c, False, "The transform of a real signal: the half that tells the other one."
)
irfft, irfft2, irfftn = _transform(
    "irfft", _c2r, True, "The inverse of `rfft`. n: the number of elements of the result."
)
hfft, hfft2, hfftn = _transform(
    "hfft", _c2r, False, "The real transform of a Hermitian signal, given by its first half."
)
ihfft, ihfft2, ihfftn = _transform("ihfft", _r2c, True, "The inverse of `hfft`, of a real signal.")


def _frequencies(name: str, n: int, d: float, half: bool, options: Any) -> Any:
    dtype = named_dtype(options.pop("dtype", None), default_dtype())
    out = options.pop("out", None)
    requires_grad = options.pop("requires_grad", False)
    if half:
        line = arange(n // 2 + 1, dtype=dtype, **options)
    else:
        line = roll(arange(-(n // 2), (n + 1) // 2, dtype=dtype, **options), -(n // 2))
    found = line * (1.0 / (n * d))
    return into(out, found.requires_grad_() if requires_grad else found)


def fftfreq(n: int, d: float = 1.0, **options: Any) -> Tensor:
    """The frequencies of the elements of `fft` of n samples, d apart."""
    return _frequencies("fftfreq", n, d, False, options)


def rfftfreq(n: int, d: float = 1.0, **options: Any) -> Tensor:
    """The frequencies of the elements of `rfft` of n samples, d apart."""
    return _frequencies("rfftfreq", n, d, True, options)


def _shifted(input: Any, dim: Any, sign: int) -> Any:
    dims = range(input.dim()) if dim is None else (dim,) if isinstance(dim, int) else dim
    dims = [normalize_axis(d, input.dim()) for d in dims]
    by = [input.shape[d] // 2 if sign > 0 else (input.shape[d] + 1) // 2 for d in dims]
    if not dims:
        raise RuntimeError(f"`shifts` required: a tensor without dimensions has no{at_user_line()}")
    return roll(input, by, dims)


@by_numpys_names
def fftshift(input: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
    """The zero frequency moved to the centre."""
    return _shifted(input, dim, 1)


@by_numpys_names
def ifftshift(input: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
    """The inverse of `fftshift`."""
    return _shifted(input, dim, -1)
