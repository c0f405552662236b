"""Discrete Fourier transforms of arrays: by native code, by SciPy or by NumPy.

Where the runtime has native code, it computes what that serves. SciPy and NumPy have the algorithms
of pocketfft. SciPy's transforms several lines in the lanes of a vector and on several cores, so it
computes large arrays in a quarter of the time; but it takes a third of a second to load. So NumPy
computes small arrays, and all if SciPy isn't there.

norm: as in PyTorch, 'backward' divides inverse transforms by the number of elements, 'forward' the
others, 'ortho' both by its root.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

LARGE = 1 << 15
"""The elements from which SciPy computes, if it is there."""

workers: Callable[[], int] = lambda: os.cpu_count() or 1  # noqa: E731
"""The number of threads of large transforms, which the runtime tells. No bit depends on it."""


class Native(Protocol):
    """What the runtime's native code does (`runtime/native/fourier.py`)."""

    def serves(self, shape: Sequence[int], sizes: Sequence[int], dtype: Any) -> bool: ...

    def transform(
        self,
        x: Any,
        axis: int,
        inverse: bool,
        factor: float,
        size: int,
        reads: str,
        writes: str,
        out: Any = None,
    ) -> Any: ...


native: Native | None = None
"""The native code, which the runtime tells."""
ENOUGH = 1 << 12
"""The elements from which native code computes: its calls take some 30 µs."""

_OTHER = {"backward": "forward", "forward": "backward", "ortho": "ortho"}
"""The norm by which a transform has the factor that the inverse one has by this norm."""


@functools.cache
def _scipy() -> Any:
    """scipy.fft; None if it isn't installed."""
    try:
        import scipy.fft
    except ImportError:
        return None
    return scipy.fft


def _library(x: Any) -> tuple[Any, dict[str, Any]]:
    """The module that transforms an array, and its options."""
    found = _scipy() if x.size >= LARGE else None
    return (np.fft, {}) if found is None else (found, {"workers": workers()})


@functools.cache
def _complex_of(dtype: Any) -> Any:
    """The dtype of the transforms of numbers of another one."""
    return np.result_type(dtype, np.complex64)


def _as(made: Any, dtype: Any) -> Any:
    return np.asarray(made, dtype, order="C")


def _natively(
    x: Any,
    axes: tuple[int, ...],
    size: int,
    inverse: bool,
    norm: str,
    reads: str,
    writes: str,
    out: Any,
) -> Any:
    """The transform by native code, or None if that doesn't serve. size: along the last axis."""
    if native is None or x.size < ENOUGH:
        return None
    dtype = x.dtype if reads == "real" else _complex_of(x.dtype)
    sizes = [*(x.shape[a] for a in axes[:-1]), size]
    shape = [*x.shape]
    shape[axes[-1]] = size
    if not native.serves(shape, sizes, dtype):
        return None
    factor = _factor(math.prod(sizes), inverse, norm)
    given = np.ascontiguousarray(x, dtype)
    order = list(zip(axes, sizes, strict=True))
    if writes == "half":  # real lines come first, and last where they are the result
        order.reverse()
    memory = None if writes == "real" else out  # of the complex results, of all axes
    for axis, n in order:
        is_last = axis == axes[-1]
        way = (reads, writes) if is_last else ("complex", "complex")
        target = out if is_last and writes == "real" else memory
        given = native.transform(given, axis, inverse, factor if is_last else 1.0, n, *way, target)
        memory = given
    return given


def _factor(count: int, inverse: bool, norm: str) -> float:
    if norm == "ortho":
        return 1 / math.sqrt(count)
    return 1 / count if (norm == "backward") == inverse else 1.0


def complex_to_complex(
    x: Any, axes: tuple[int, ...], inverse: bool, norm: str, out: Any = None
) -> Any:
    """The transform of `x`, which may be real. out: memory that the result may take."""
    found = _natively(x, axes, x.shape[axes[-1]], inverse, norm, "complex", "complex", out)
    if found is not None:
        return found
    library, options = _library(x)
    if library is np.fft and len(axes) == 1:  # half the time that its `fftn` takes for few elements
        one = library.ifft if inverse else library.fft
        made = one(x, axis=axes[0], norm=norm)
    else:
        several = library.ifftn if inverse else library.fftn
        made = several(x, axes=axes, norm=norm, **options)
    return _as(made, _complex_of(x.dtype))


def real_to_complex(
    x: Any, axes: tuple[int, ...], inverse: bool, norm: str, out: Any = None
) -> Any:
    """The first half, along the last of `axes`, of the transform of the real parts of `x`."""
    norm = _OTHER[norm] if inverse else norm
    made = _natively(x, axes, x.shape[axes[-1]], False, norm, "real", "half", out)
    if made is None:
        library, options = _library(x)
        if library is np.fft and len(axes) == 1:
            made = library.rfft(x.real, axis=axes[0], norm=norm)
        else:
            made = library.rfftn(x.real, axes=axes, norm=norm, **options)
    made = _as(made, _complex_of(x.dtype))
    return np.conj(made, out=made) if inverse else made


def complex_to_real(
    z: Any, axes: tuple[int, ...], size: int, inverse: bool, norm: str, out: Any = None
) -> Any:
    """The real transform of a Hermitian array of which `z` has the first half along the last of
    `axes`; `size` is that of the whole. The imaginary parts at its ends don't count."""
    if not inverse:
        z, norm = np.conj(z), _OTHER[norm]
    found = _natively(z, axes, size, True, norm, "half", "real", out)
    if found is not None:
        return found
    library, options = _library(z)
    if library is np.fft and len(axes) == 1:
        made = library.irfft(z, size, axis=axes[0], norm=norm)
        return _as(made, z.real.dtype)
    sizes = [*(z.shape[a] for a in axes[:-1]), size]
    return _as(library.irfftn(z, s=sizes, axes=axes, norm=norm, **options), z.real.dtype)
