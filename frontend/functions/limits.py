"""Limits of the numbers that a dtype holds: finfo and iinfo."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np

from tilewright.ir.dtype import BOOL, DType
from tilewright.ir.location import at_user_line

from .. import recording


class finfo:
    """The limits of a floating point dtype (the default dtype if none is given): bits, eps, max,
    min, tiny (also called smallest_normal), resolution, and dtype, its name."""

    def __init__(self, type: DType | None = None):
        dtype = recording.named_dtype(type).to_real()  # of the parts of a complex one
        if not dtype.is_floating_point:
            raise TypeError(
                "torch.finfo() requires a floating point input type, got "
                f"{dtype}: use torch.iinfo{at_user_line()}"
            )
        known = ml_dtypes.finfo(dtype.np)
        self.bits, self.dtype = dtype.itemsize * 8, dtype.name
        self.eps, self.max, self.min = float(known.eps), float(known.max), float(known.min)
        self.tiny = self.smallest_normal = float(known.smallest_normal)
        self.resolution = 10.0 ** -math.floor(known.nmant * math.log10(2))

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if isinstance(other, finfo) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # as in PyTorch

    def __repr__(self) -> str:
        names = ("resolution", "min", "max", "eps", "smallest_normal", "tiny")
        numbers = ", ".join(f"{name}={getattr(self, name):g}" for name in names)
        return f"finfo({numbers}, dtype={self.dtype})"


class iinfo:
    """The limits of an integer dtype: bits, max, min, and dtype, its name."""

    def __init__(self, type: DType):
        type = recording.named_dtype(type)
        if type.is_differentiable or type.category == BOOL:
            raise TypeError(
                f"torch.iinfo() requires an integer input type, got {type}{at_user_line()}"
            )
        known = np.iinfo(type.np)
        self.bits, self.dtype = known.bits, type.name
        self.max, self.min = int(known.max), int(known.min)

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if isinstance(other, iinfo) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # as in PyTorch

    def __repr__(self) -> str:
        return f"iinfo(min={self.min:g}, max={self.max:g}, dtype={self.dtype})"
