"""torch.signal.windows: window functions.

Each gives a vector of M weights, computed in float64 and rounded once to `dtype`, float32 or
float64. sym: whether the window is symmetric, for the design of filters; else it is one period of
M, for spectra. M = 1 gives [1]. ValueError for a negative M, another dtype or another layout.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir import dtype as dtypes
from tilewright.ir.location import at_user_line

from .. import recording
from ..functions.from_data import tensor

if TYPE_CHECKING:
    from tilewright.ir.dtype import DType

    from .._tensor import Tensor
    from ..types import DeviceLike

__all__ = [
    "bartlett",
    "blackman",
    "cosine",
    "exponential",
    "gaussian",
    "general_cosine",
    "general_hamming",
    "hamming",
    "hann",
    "kaiser",
    "nuttall",
]

_STRIDED = "torch.strided"


def _window(
    name: str,
    M: int,
    weights: Callable[[np.ndarray, float], np.ndarray],
    sym: bool,
    dtype: DType | None,
    layout: Any,
    device: DeviceLike | None,
    requires_grad: bool,
    single: float = 1.0,
) -> Tensor:
    """The tensor of weights(positions 0 … M - 1, length of a period). single: the one for M = 1."""
    dtype = recording.default_dtype() if dtype is None else recording.named_dtype(dtype)
    try:
        M = operator.index(M)
    except TypeError:
        raise TypeError(
            f"{name}: expected an int window length, got M={M!r}{at_user_line()}"
        ) from None
    if M < 0:
        raise ValueError(f"{name} requires non-negative window length, got M={M}{at_user_line()}")
    if str(layout) != _STRIDED:
        raise ValueError(
            f"{name} is implemented for strided tensors only, got: {layout}{at_user_line()}"
        )
    if dtype not in (dtypes.float32, dtypes.float64):
        raise ValueError(f"{name} expects float32 or float64 dtypes, got: {dtype}{at_user_line()}")
    period = M if not sym else M - 1
    found = np.full(M, single) if M < 2 else weights(np.arange(M, dtype=np.float64), period)
    return tensor(found.astype(dtype.np), device=device, requires_grad=requires_grad)


def _cosines(a: Iterable[float]) -> Callable[[np.ndarray, float], np.ndarray]:
    coefficients = [(-1) ** i * float(w) for i, w in enumerate(a)]

    def weights(at: np.ndarray, period: float) -> np.ndarray:
        angle = 2 * math.pi / period * at
        return np.asarray(sum(w * np.cos(i * angle) for i, w in enumerate(coefficients)))

    return weights


def bartlett(
    M: int,
    *,
    sym: bool = True,
    dtype: DType | None = None,
    layout: Any = _STRIDED,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A triangle: 1 - |2 n / (M - 1) - 1|."""

    def weights(at: np.ndarray, period: float) -> np.ndarray:
        return 1 - np.abs(2 * at / period - 1)

    return _window("bartlett", M, weights, sym, dtype, layout, device, requires_grad)


def blackman(
    M: int,
    *,
    sym: bool = True,
    dtype: DType | None = None,
    layout: Any = _STRIDED,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """`general_cosine` of 0.42, 0.5 and 0.08."""
    weights = _cosines((0.42, 0.5, 0.08))
    return _window("blackman", M, weights, sym, dtype, layout, device, requires_grad)


def cosine(
    M: int,
    *,
    sym: bool = True,
    dtype: DType | None = None,
    layout: Any = _STRIDED,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Half a wave: sin(pi (n + 1/2) / M)."""

    def weights(at: np.ndarray, period: float) -> np.ndarray:
        return np.sin(math.pi / (period + 1) * (at + 0.5))

    return _window("cosine", M, weights, sym, dtype, layout, device, requires_grad)


def exponential(
    M: int,
    *,
    center: float | None = None,
    tau: float = 1.0,
    sym: bool = True,
    dtype: DType | None = None,
    layout: Any = _STRIDED,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """exp(-|n - center| / tau). center: the middle by default, as it must be if `sym` holds."""
    if tau <= 0:
        raise ValueError(f"Tau must be positive, got: {tau} instead.{at_user_line()}")
    if sym and center is not None:
        raise ValueError(f"Center must be None for symmetric windows{at_user_line()}")

    def weights(at: np.ndarray, period: float) -> np.ndarray:
        return np.exp(-np.abs(at - (period / 2 if center is None else center)) / tau)

    single = math.exp(-abs(center or 0) / tau)
    return _window("exponential", M, weights, sym, dtype, layout, device, requires_grad, single)


def gaussian(
    M: int,
    *,
    std: float = 1.0,
    sym: bool = True,
    dtype: DType | None = None,
    layout: Any = _STRIDED,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """exp(-((n - middle) / std)^2 / 2)."""
    if std <= 0:
        raise ValueError(
            f"Standard deviation must be positive, got: {std} instead.{at_user_line()}"
        )

    def weights(at: np.ndarray, period: float) -> np.ndarray:
        return np.exp(-0.5 * ((at - period / 2) / std) ** 2)

    return _window("gaussian", M, weights, sym, dtype, layout, device, requires_grad)


def general_cosine(
    M: int,
    *,
    a: Iterable[float],
    sym: bool = True,
    dtype: DType | None = None,
    layout: Any = _STRIDED,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """The sum of (-1)^i a[i] cos(2 pi i n / (M - 1))."""
    if not isinstance(a, Iterable):
        raise TypeError(f"Coefficients must be a list/tuple{at_user_line()}")
    a = list(a)
    if not a:
        raise ValueError(f"Coefficients cannot be empty{at_user_line()}")
    return _window("general_cosine", M, _cosines(a), sym, dtype, layout, device, requires_grad)


def general_hamming(
    M: int,
    *,
    alpha: float = 0.54,
    sym: bool = True,
    dtype: DType | None = None,
    layout: Any = _STRIDED,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """`general_cosine` of alpha and 1 - alpha."""
    weights = _cosines((alpha, 1 - alpha))
    return _window("general_hamming", M, weights, sym, dtype, layout, device, requires_grad)


def hamming(
    M: int,
    *,
    sym: bool = True,
    dtype: DType | None = None,
    layout: Any = _STRIDED,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """`general_hamming` of 0.54."""
    weights = _cosines((0.54, 0.46))
    return _window("hamming", M, weights, sym, dtype, layout, device, requires_grad)


def hann(
    M: int,
    *,
    sym: bool = True,
    dtype: DType | None = None,
    layout: Any = _STRIDED,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """`general_hamming` of 0.5: a raised cosine."""
    weights = _cosines((0.5, 0.5))
    return _window("hann", M, weights, sym, dtype, layout, device, requires_grad)


def kaiser(
    M: int,
    *,
    beta: float = 12.0,
    sym: bool = True,
    dtype: DType | None = None,
    layout: Any = _STRIDED,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """I0(beta sqrt(1 - (2 n / (M - 1) - 1)^2)) / I0(beta)."""
    if beta < 0:
        raise ValueError(f"beta must be non-negative, got: {beta} instead.{at_user_line()}")

    def weights(at: np.ndarray, period: float) -> np.ndarray:
        inside = np.maximum(1 - (2 * at / period - 1) ** 2, 0)
        return np.i0(beta * np.sqrt(inside)) / np.i0(beta)

    return _window("kaiser", M, weights, sym, dtype, layout, device, requires_grad)


def nuttall(
    M: int,
    *,
    sym: bool = True,
    dtype: DType | None = None,
    layout: Any = _STRIDED,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """`general_cosine` of 0.3635819, 0.4891775, 0.1365995 and 0.0106411."""
    weights = _cosines((0.3635819, 0.4891775, 0.1365995, 0.0106411))
    return _window("nuttall", M, weights, sym, dtype, layout, device, requires_grad)
