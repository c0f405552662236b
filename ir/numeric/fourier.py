"""Discrete Fourier transforms of arrays, by SciPy or by NumPy.

Both have the algorithms of pocketfft. SciPy's transforms several lines in the lanes of a vector and
on several cores, so it computes large arrays in a quarter of the time; but it takes a third of a
second to load. So NumPy computes small arrays, and all if SciPy isn't there.

norm: as in PyTorch, 'backward' divides inverse transforms by the number of elements, 'forward' the
others, 'ortho' both by its root.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import numpy as np

LARGE = 1 << 15
"""The elements from which SciPy computes, if it is there."""

workers: Callable[[], int] = lambda: os.cpu_count() or 1  # noqa: E731
"""The number of threads of large transforms, which the runtime tells. No bit depends on it."""

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


def _as(made: Any, dtype: Any) -> Any:
    return np.ascontiguousarray(made).astype(dtype, copy=False)


def complex_to_complex(x: Any, axes: tuple[int, ...], inverse: bool, norm: str) -> Any:
    """The transform of `x`, which may be real."""
    library, options = _library(x)
    function = library.ifftn if inverse else library.fftn
    made = function(x, axes=axes, norm=norm, **options)
    return _as(made, np.result_type(x.dtype, np.complex64))


def real_to_complex(x: Any, axes: tuple[int, ...], inverse: bool, norm: str) -> Any:
    """The first half, along the last of `axes`, of the transform of a real `x`."""
    library, options = _library(x)
    made = library.rfftn(x, axes=axes, norm=_OTHER[norm] if inverse else norm, **options)
    made = _as(made, np.result_type(x.dtype, np.complex64))
    return np.conj(made, out=made) if inverse else made


def complex_to_real(z: Any, axes: tuple[int, ...], size: int, inverse: bool, norm: str) -> Any:
    """The real transform of a Hermitian array of which `z` has the first half along the last of
    `axes`; `size` is that of the whole. The imaginary parts at its ends don't count."""
    library, options = _library(z)
    if not inverse:
        z, norm = np.conj(z), _OTHER[norm]
    sizes = [*(z.shape[a] for a in axes[:-1]), size]
    return _as(library.irfftn(z, s=sizes, axes=axes, norm=norm, **options), z.real.dtype)
