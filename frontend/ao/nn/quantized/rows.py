"""torch.ops.quantized.embedding_bag_*: tables of bytes whose rows end in their scale and offset.

A row of D numbers takes D bytes and two floats of 32 bits, or D / 2 or D / 4 bytes and two floats
of 16 bits. Code c stands for c * scale + offset, and the offset is the least number of the row.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tilewright.ir import dtype as dtypes
from tilewright.ir.location import at_user_line

from ....functions.joining import cat, stack
from ....nn import functional as F

if TYPE_CHECKING:
    from ...._tensor import Tensor

_PER_BYTE = {"byte": 1, "4bit": 2, "2bit": 4}
_MODES = ("sum", "mean", "max")


def _tail(per_byte: int) -> Any:
    """The type of a row's scale and offset."""
    return dtypes.float32 if per_byte == 1 else dtypes.float16


def prepack(
    kind: str, weight: Tensor, optimized_qparams: bool = False, nbins: int = 200,
    ratio: float = 0.16,
) -> Tensor:  # fmt: skip
    """The rows of a weight[..., D] of float32 or float16 as bytes."""
    count = _PER_BYTE[kind]
    name = f"embedding_bag_{kind}_prepack"
    if weight.dtype not in (dtypes.float32, dtypes.float16):
        raise RuntimeError(
            f"'{name}' only support float32 or float16, got {weight.dtype}{at_user_line()}"
        )
    if optimized_qparams:
        raise NotImplementedError(
            f"{name}: optimized_qparams: the search for a row's range isn't there{at_user_line()}"
        )
    if weight.shape[-1] % count:
        raise RuntimeError(
            f"q{name.replace('_', '', 1)} only works for the number of columns a multiple of "
            f"{count}, got {weight.shape[-1]}{at_user_line()}"
        )
    x = weight.detach().to(dtypes.float32)
    least, most = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
    if count == 1:
        scale, codes = (most - least) / 255, (x - least) * (255 / (most - least + 1e-8))
    else:
        least = least.half().float()
        scale = ((most - least) / (2 ** (8 // count) - 1)).half().float()
        scale = scale.where(scale != 0, 1.0)
        codes = (x - least) * scale.reciprocal()
    codes = codes.round().clamp(0, 2 ** (8 // count) - 1).to(dtypes.uint8)
    if count > 1:
        groups = codes.unflatten(-1, (-1, count))
        codes = sum(groups[..., i] << 8 // count * i for i in range(count))  # type: ignore[assignment]
    facts: Any = cat([scale, least], -1).to(_tail(count)).contiguous()
    return cat([codes, facts.view(dtypes.uint8)], -1)


def unpack(kind: str, weight: Tensor) -> Tensor:
    """The numbers of a table of bytes."""
    count = _PER_BYTE[kind]
    width = 2 * _tail(count).itemsize
    facts = weight[..., -width:].contiguous().view(_tail(count)).float()
    held, bits = weight[..., :-width], 8 // count
    if count > 1:
        held = stack([held >> bits * i & 2**bits - 1 for i in range(count)], -1).flatten(-2)
    return held.float() * facts[..., :1] + facts[..., 1:]


def rowwise_offsets(
    kind: str, weight: Tensor, indices: Tensor, offsets: Tensor | None = None,
    scale_grad_by_freq: bool = False, mode: int = 0, pruned_weights: bool = False,
    per_sample_weights: Tensor | None = None, compressed_indices_mapping: Tensor | None = None,
    include_last_offset: bool = False,
) -> Tensor:  # fmt: skip
    """Sums of rows of such a table over bags of indices. compressed_indices_mapping: with
    pruned_weights, the rows for the indices, -1 for those that were cut off."""
    places = indices.long()
    if pruned_weights and compressed_indices_mapping is not None:
        places = compressed_indices_mapping.long()[places]
        there = (places >= 0).float()
        per_sample_weights = there if per_sample_weights is None else per_sample_weights * there
        places = places.clamp(min=0)
    if mode != 0 and per_sample_weights is not None:
        raise NotImplementedError(
            f"embedding_bag_{kind}_rowwise_offsets: weights of samples go with sums alone (mode 0)"
            f"{at_user_line()}"
        )
    return F.embedding_bag(
        places, unpack(kind, weight), None if offsets is None else offsets.long(),
        mode=_MODES[mode], per_sample_weights=per_sample_weights,
        include_last_offset=include_last_offset,
    )  # fmt: skip


OPERATORS: dict[str, Callable[..., Any]] = {
    f"embedding_bag_{kind}_{function.__name__}": functools.partial(function, kind)  # type: ignore[attr-defined]
    for kind in _PER_BYTE
    for function in (prepack, unpack, rowwise_offsets)
}
"""torch.ops.quantized."""
