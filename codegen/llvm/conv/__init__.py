"""Convolutions and their gradients as native code: products over windows, without unfolding them.

A sum of products whose one operand is read through windows is computed as a matrix product whose
rows are gathered by two tables: the element of row m at step k lies at rows[m] + steps[k]. The
image is copied once, with its border, so that no product needs a condition; the other operand is
packed in panels of columns that fill registers.
"""

from .kernel import write
from .plan import Plan, plan
from .roles import size

__all__ = ["Plan", "plan", "size", "write"]
