"""torch.range. It has a file of its own, in which Python's `range` isn't needed."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from tilewright.ir.location import at_user_line

from .. import recording
from . import creation

if TYPE_CHECKING:
    from .._tensor import Tensor


def range(start: float = 0, end: float | None = None, step: float = 1, **options: Any) -> Tensor:
    """Deprecated: the numbers from `start` to `end`, which is one of them, of the default dtype."""
    warnings.warn(
        "torch.range is deprecated and will be removed in a future release because its behavior is "
        "inconsistent with Python's range builtin. Instead, use torch.arange, which produces values"
        " in [start, end).",
        stacklevel=2,
    )
    if end is None:
        start, end = 0, start
    if step == 0 or (end - start) / step < 0:
        raise RuntimeError(
            "step must be nonzero, and upper bound and lower bound consistent with its sign, got "
            f"start {start}, end {end}, step {step}{at_user_line()}"
        )
    options["dtype"] = options.get("dtype") or recording.default_dtype()
    count = int((end - start) / step + 1e-9) + 1
    return creation.arange(start, start + (count - 0.5) * step, step, **options)
