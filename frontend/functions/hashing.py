"""torch.hash_tensor: the bits of a tensor in one number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir.dtype import uint64
from tilewright.ir.location import at_user_line
from tilewright.ir.op import not_implemented
from tilewright.ir.shape import normalize_axis

from . import from_data
from .arguments import into
from .spellings import by_numpys_names

if TYPE_CHECKING:
    from .._tensor import Tensor


@by_numpys_names
def hash_tensor(
    input: Tensor,
    dim: int | Sequence[int] = (),
    *,
    keepdim: bool = False,
    mode: int = 0,
    out: Tensor | None = None,
) -> Tensor:
    """The exclusive or of the elements' bits, by dimensions or over all: uint64.

    Floating-point numbers count as float64, others as int64. The host computes it.
    """
    if mode != 0:
        raise RuntimeError(f"hash_tensor: the only mode is 0, got {mode}{at_user_line()}")
    if input.dtype.is_complex:
        raise not_implemented("xor_sum_cpu", input.dtype)
    values = input.detach().cpu()._array()
    wide = np.float64 if input.is_floating_point() else np.int64
    bits = values.astype(wide).view(np.uint64).reshape(input.shape)
    dims = (dim,) if isinstance(dim, int) else tuple(dim)
    axes = tuple(normalize_axis(d, input.dim()) for d in dims) or tuple(range(input.dim()))
    made: Any = bits
    fold: Any = np.bitwise_xor.reduce
    for axis in sorted(axes, reverse=True):
        made = fold(made, axis=axis, keepdims=keepdim)
    return into(
        out, from_data.tensor(np.asarray(made), dtype=uint64, device=input.device), cast=False
    )
