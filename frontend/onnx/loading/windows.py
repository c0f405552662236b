"""Col2Im: overlapping windows put together."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...functions import creation
from .table import operator
from .values import tensor_of


@operator("Col2Im", host=("image", "block"))
def col2im(
    x: Any,
    image: Any,
    block: Any,
    *,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Any:
    """The sums of the columns x[n, c * block, windows] in an image [n, c, *image] of any rank."""
    sizes, kernel = [int(n) for n in image], [int(n) for n in block]
    dims = len(sizes)
    dilations, strides = dilations or [1] * dims, strides or [1] * dims
    pads = pads or [0] * (2 * dims)
    whole = [n + low + high for n, low, high in zip(sizes, pads[:dims], pads[dims:], strict=True)]
    counts = [
        (n - d * (k - 1) - 1) // s + 1
        for n, k, s, d in zip(whole, kernel, strides, dilations, strict=True)
    ]
    places = np.zeros((1, 1), np.int64)  # [elements of a block, windows]
    for n, k, s, d, count in zip(whole, kernel, strides, dilations, counts, strict=True):
        along = np.arange(k)[:, None] * d + np.arange(count) * s  # [k, count]
        places = (places[:, None, :, None] * n + along[None, :, None, :]).reshape(
            places.shape[0] * k, places.shape[1] * count
        )
    n, channels = x.shape[0], x.shape[1] // math.prod(kernel)
    flat = creation.zeros((n, channels, math.prod(whole)), dtype=x.dtype, device=x.device)
    index = tensor_of(places.reshape(-1), x.device).expand(n, channels, -1)
    summed = flat.scatter_add(2, index, x.reshape(n, channels, -1)).reshape(n, channels, *whole)
    cut = tuple(slice(low, low + size) for low, size in zip(pads[:dims], sizes, strict=True))
    return summed[(..., *cut)]
