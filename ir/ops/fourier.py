"""The discrete Fourier transform, by NumPy's routine."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..dtype import COMPLEX
from ..location import at_user_line
from ..node import Node
from ..op import Aval
from .host import back, on_host, routine


def _types(x: Node, axes: tuple[int, ...], inverse: bool) -> tuple[Aval, ...]:
    if x.dtype.category != COMPLEX:
        raise RuntimeError(f"fft: expected a complex tensor, got {x.dtype}{at_user_line()}")
    return ((x.shape, x.dtype),)


def _numpy(x: Any, axes: tuple[int, ...], inverse: bool) -> tuple[Any, ...]:
    # These norms leave the factor to the other direction.
    made = np.fft.ifftn(x, None, axes, "forward") if inverse else np.fft.fftn(x, None, axes)
    return (np.ascontiguousarray(made).astype(x.dtype, copy=False),)


def _vjp(
    g: Node, out: Node, x: Node, axes: tuple[int, ...], inverse: bool, index: int
) -> tuple[Node]:
    return (fourier_op(g, axes, inverse, 0),)  # its matrix is symmetric


fourier_op = routine("fft", _types, _numpy, 1, ("axes", "inverse"), _vjp)


def fourier(x: Node, axes: tuple[int, ...], inverse: bool) -> Node:
    """Sums of x_j exp(-2 pi i jk / n) over `axes`; of exp(2 pi i jk / n) if `inverse`. Neither has
    a factor."""
    (on,), device = on_host((x,))
    return back((fourier_op(on, axes, inverse, 0),), device)[0]
