"""Products of float32 on tensor cores that multiply bfloat16.

A float32 is the sum of three bfloat16 digits, so a product of two is the sum of nine products. The
three of the last digits are below half a unit in the last place of a float32: six are left. Tensor
cores cut each of their sums off instead of rounding it, which adds up over thousands of terms. So a
step's sums, the small products first, are added to those of the steps before in float32.

Henry, Tang, Heinecke: Leveraging the bfloat16 Artificial Intelligence Datatype For Higher-Precision
Computations (2019). Ootomo, Yokota: Recovering single precision accuracy from Tensor Cores (2022).
"""

from __future__ import annotations

from tilewright.ir.dtype import bfloat16

from ..ops import of_digits
from .ir import Apply, Dot, Kernel, Load, Value

PRODUCTS = ((2, 0), (1, 1), (0, 2), (1, 0), (0, 1), (0, 0))
"""The digits of the factors that are multiplied, the smallest products first."""


def digits(factor: Value) -> tuple[Load, ...] | None:
    """The digits of a factor that lies in memory as such; None if it doesn't."""
    if not isinstance(factor, Apply) or factor.op is not of_digits:
        return None
    found = tuple(v for v in factor.args if isinstance(v, Load) and v.buffer.dtype is bfloat16)
    return found if len(found) == len(factor.args) else None


def has_digits(kernel: Kernel) -> bool:
    """Whether a kernel is one of products whose factors lie in memory as digits."""
    dots = [v for v in kernel.values if isinstance(v, Dot)]
    made = all(digits(d.a) and digits(d.b) for d in dots)
    return bool(dots) and made and not kernel.columns
