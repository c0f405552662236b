"""The options with which PyTorch chooses the chunks of `linear_cross_entropy`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from tilewright.ir import dtype as dtypes
from tilewright.ir.dtype import DType
from tilewright.ir.location import at_user_line

_SUMS = (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64)


@dataclass(frozen=True)
class LinearCrossEntropyOptions:
    """PyTorch's choice of chunks for `nn.functional.linear_cross_entropy`.

    It is checked and has no effect: here the scores are always computed in blocks of rows, whose
    size follows from the shapes, and the gradient can be taken twice. Raises ValueError if a field
    has none of PyTorch's values.
    """

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: Literal["accurate", "balanced", "compact", "auto"] = "auto"
    acc_dtype: DType | None = None

    def __post_init__(self) -> None:
        size, method = self.batch_chunk_size, self.chunking_method
        if size is not None and not (isinstance(size, int) and size > 0):
            raise ValueError(
                f"batch_chunk_size must be positive int or None, got {size}{at_user_line()}"
            )
        if method is not None and not re.fullmatch(r"auto|aspect_ratio(:0*[1-9]\d*)?", method):
            raise ValueError(
                f"invalid chunking_method: {method!r}, expected None, 'auto', 'aspect_ratio' or "
                f"'aspect_ratio:2'{at_user_line()}"
            )
        if self.acc_policy not in ("accurate", "balanced", "compact", "auto"):
            raise ValueError(
                f"invalid acc_policy: {self.acc_policy!r}, expected 'accurate', 'balanced', "
                f"'compact' or 'auto'{at_user_line()}"
            )
        if self.acc_dtype is not None and self.acc_dtype not in _SUMS:
            raise ValueError(
                "acc_dtype must be one of {None, torch.float16, torch.bfloat16, torch.float32, "
                f"torch.float64}}, got {self.acc_dtype}{at_user_line()}"
            )
