"""The choice between native code and a BLAS library, by which one computes a contraction faster."""

from __future__ import annotations

import math

from tilewright.ir.dtype import HALVES, DType

from ..kernel import Bundle, Dot, Kernel
from . import conv, dot
from .machine import CannotLower, Machine

FEW = 1 << 15
"""Up to so many products a plain loop beats the calls of a library."""


def check_speed(kernel: Kernel | Bundle, machine: Machine) -> None:
    """Raises CannotLower for a kernel that a library computes faster: a large contraction whose
    operands are not matrices in memory, or for which no tiles are suitable."""
    if isinstance(kernel, Bundle) or kernel.is_chained or conv.plan(kernel) is not None:
        return
    dots = sum(isinstance(v, Dot) for v in kernel.values)
    points = math.prod(a.extent for a in (*kernel.parallel, *kernel.reduction))
    if not dots or points * dots <= FEW:
        return
    cut = dot.tiling(kernel, machine)
    if cut is None:
        if any(_has_no_blas(b.dtype) for b in kernel.inputs):
            return
        raise CannotLower("contractions of this form and size are left to BLAS")
    if not (dot.Operand(cut, True).in_memory and dot.Operand(cut, False).in_memory):
        raise CannotLower("contractions of computed operands are left to BLAS")


def _has_no_blas(dtype: DType) -> bool:
    """Whether NumPy multiplies matrices of this type by plain loops, or would copy them first."""
    return dtype in HALVES or not (dtype.is_floating_point or dtype.is_complex)
