"""Instructions that an element of each op takes on a GPU, counted in the machine's code.

Written by `python bench/instructions.py --write`: float32 for sm_90, Triton 3.9.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tilewright.ir import ops
from tilewright.ir.op import Op

INSTRUCTIONS: Mapping[Op, int] = MappingProxyType(
    {
        ops.abs: 1,
        ops.acos: 23,
        ops.acosh: 72,
        ops.add: 1,
        ops.asin: 24,
        ops.asinh: 13,
        ops.atan: 20,
        ops.atan2: 10,
        ops.atanh: 37,
        ops.ceil: 1,
        ops.copysign: 2,
        ops.cos: 29,
        ops.cosh: 19,
        ops.digamma: 367,
        ops.div: 10,
        ops.eq: 1,
        ops.erf: 18,
        ops.erfc: 47,
        ops.erfc_near: 47,
        ops.erfinv: 18,
        ops.exp: 8,
        ops.exp2: 8,
        ops.expm1: 14,
        ops.floor: 1,
        ops.floor_divide: 51,
        ops.fmod: 14,
        ops.gcd: 10,
        ops.ge: 1,
        ops.gt: 1,
        ops.isfinite: 2,
        ops.isinf: 2,
        ops.isnan: 1,
        ops.le: 1,
        ops.lgamma: 204,
        ops.log: 26,
        ops.log10: 26,
        ops.log1p: 25,
        ops.log2: 28,
        ops.logical_not: 2,
        ops.lt: 1,
        ops.maximum: 1,
        ops.minimum: 1,
        ops.mul: 1,
        ops.ne: 1,
        ops.neg: 1,
        ops.pow: 15,
        ops.reciprocal: 10,
        ops.relu: 2,
        ops.remainder: 19,
        ops.root: 10,
        ops.round: 6,
        ops.rsqrt: 8,
        ops.sigmoid: 16,
        ops.sign: 4,
        ops.sin: 27,
        ops.sinh: 12,
        ops.sqrt: 10,
        ops.sub: 1,
        ops.tan: 25,
        ops.tanh: 17,
        ops.trunc: 3,
        ops.where: 1,
        ops.zeta: 745,
    }
)
"""The time of ops in instructions; that of others is `Op.cost`."""
