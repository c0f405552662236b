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
        ops.acos: 30,
        ops.acosh: 78,
        ops.add: 1,
        ops.asin: 31,
        ops.asinh: 20,
        ops.atan: 27,
        ops.atan2: 10,
        ops.atanh: 44,
        ops.ceil: 1,
        ops.copysign: 2,
        ops.cos: 29,
        ops.cosh: 33,
        ops.digamma: 451,
        ops.div: 17,
        ops.eq: 1,
        ops.erf: 26,
        ops.erfc: 68,
        ops.erfc_near: 68,
        ops.erfinv: 25,
        ops.exp: 12,
        ops.exp2: 8,
        ops.expm1: 21,
        ops.floor: 1,
        ops.floor_divide: 72,
        ops.fmod: 21,
        ops.gcd: 10,
        ops.ge: 1,
        ops.gt: 1,
        ops.isfinite: 2,
        ops.isinf: 2,
        ops.isnan: 1,
        ops.le: 1,
        ops.lgamma: 211,
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
        ops.pow: 22,
        ops.reciprocal: 17,
        ops.relu: 2,
        ops.remainder: 26,
        ops.root: 17,
        ops.round: 6,
        ops.rsqrt: 11,
        ops.sigmoid: 22,
        ops.sign: 4,
        ops.sin: 27,
        ops.sinh: 12,
        ops.sqrt: 17,
        ops.sub: 1,
        ops.tan: 32,
        ops.tanh: 31,
        ops.trunc: 3,
        ops.where: 1,
        ops.zeta: 822,
    }
)
"""The time of ops in instructions; that of others is `Op.cost`."""
