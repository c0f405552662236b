"""The windows that torch itself has: torch.hann_window, …

They are those of torch.signal.windows, by default one period for spectra. Halves are rounded from
float32.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from tilewright.ir import dtype as dtypes
from tilewright.ir.location import at_user_line

from .. import recording
from ..functions.call import public
from . import windows

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._tensor import Tensor


def _made(
    name: str,
    build: Callable[..., Tensor],
    length: int,
    periodic: bool,
    options: Any,
    *given: float,
) -> Tensor:
    length = operator.index(length)
    if length < 0:
        raise RuntimeError(
            f"{name} requires non-negative window_length, got window_length={length}"
            f"{at_user_line()}"
        )
    dtype = recording.named_dtype(options.pop("dtype", None), recording.default_dtype())
    if not dtype.is_floating_point:
        raise RuntimeError(f"{name} expects floating point dtypes, got: {dtype}{at_user_line()}")
    requires_grad = options.pop("requires_grad", False)
    options.pop("pin_memory", None)
    wide = dtype if dtype is dtypes.float64 else dtypes.float32
    found = build(length, *given, sym=not periodic, dtype=wide, **options).to(dtype)
    return found.requires_grad_() if requires_grad else found


@public("bartlett_window", method=False)
def bartlett_window(window_length: int, periodic: bool = True, **options: Any) -> Tensor:
    """A triangle; see torch.signal.windows.bartlett."""
    return _made("bartlett_window", windows.bartlett, window_length, periodic, options)


@public("blackman_window", method=False)
def blackman_window(window_length: int, periodic: bool = True, **options: Any) -> Tensor:
    """Two cosines; see torch.signal.windows.blackman."""
    return _made("blackman_window", windows.blackman, window_length, periodic, options)


@public("hann_window", method=False)
def hann_window(window_length: int, periodic: bool = True, **options: Any) -> Tensor:
    """A raised cosine; see torch.signal.windows.hann."""
    return _made("hann_window", windows.hann, window_length, periodic, options)


def _cosine(M: int, alpha: float, beta: float, **options: Any) -> Tensor:
    """alpha - beta cos."""
    return windows.general_cosine(M, a=(alpha, beta), **options)


@public("hamming_window", method=False)
def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    **options: Any,
) -> Tensor:
    """alpha - beta cos(2 pi n / (N - 1)); see torch.signal.windows.hamming."""
    return _made("hamming_window", _cosine, window_length, periodic, options, alpha, beta)


def _kaiser(M: int, beta: float, **options: Any) -> Tensor:
    return windows.kaiser(M, beta=beta, **options)


@public("kaiser_window", method=False)
def kaiser_window(
    window_length: int, periodic: bool = True, beta: float = 12.0, **options: Any
) -> Tensor:
    """A window by the modified Bessel function of order 0; see torch.signal.windows.kaiser."""
    return _made("kaiser_window", _kaiser, window_length, periodic, options, beta)
