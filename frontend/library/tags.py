"""torch.Tag: what programs tell PyTorch's compiler of their operators."""

from __future__ import annotations

import enum
from collections.abc import Iterable


class Tag(enum.Enum):
    """A fact about an operator, with PyTorch's number."""

    core = 0
    cudagraph_unsafe = 1
    data_dependent_output = 2
    dynamic_output_shape = 3
    flexible_layout = 4
    generated = 5
    inplace = 6
    inplace_view = 7
    maybe_aliasing_or_mutating = 8
    needs_contiguous_strides = 9
    needs_exact_strides = 10
    needs_fixed_stride_order = 11
    nondeterministic_bitwise = 12
    nondeterministic_seeded = 13
    out = 14
    out_variant = 15
    pointwise = 16
    pt2_compliant_tag = 17
    reduction = 18
    view_copy = 19

    def __int__(self) -> int:
        return int(self.value)

    __index__ = __int__


def listed(tags: Tag | Iterable[Tag] | None, *more: Tag) -> list[Tag]:
    """The tags that were given as one or several, in the order of their numbers."""
    given = (tags,) if isinstance(tags, Tag) else tuple(tags or ())
    return sorted({*given, *more}, key=int)
