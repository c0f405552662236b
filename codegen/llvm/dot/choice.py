"""Which contractions native code computes at least as fast as a BLAS library."""

from __future__ import annotations

import math

from ...kernel import Dot, Kernel
from ..machine import CannotLower, Machine
from .cut import tiling
from .operand import Operand

FEW = 1 << 15
"""Up to so many products a plain loop beats the calls that a library takes."""


def check_speed(kernel: Kernel, machine: Machine) -> None:
    """CannotLower for a kernel that a library computes faster: a large contraction whose operands
    are not matrices in memory, or that no tiles suit."""
    dots = sum(isinstance(v, Dot) for v in kernel.values)
    points = math.prod(a.extent for a in (*kernel.parallel, *kernel.reduction))
    if not dots or points * dots <= FEW:
        return
    cut = tiling(kernel, machine)
    if cut is None:
        raise CannotLower("contractions of this form and size are left to BLAS")
    if not (Operand(cut, True).in_memory and Operand(cut, False).in_memory):
        raise CannotLower("contractions of computed operands are left to BLAS")
