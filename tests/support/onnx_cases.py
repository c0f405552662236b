"""Cases of ops as ONNX programs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from graph_oracle import Case, run
from op_cases import CASES

import tilewright as tw
from tilewright import recording
from tilewright.ir import ops
from tilewright.ir.node import Node
from tilewright.onnx import export, exporter, forms

forms.register()


def needs_weight_leaf(each: Case) -> bool:
    return each.name == "pos_weight" or (
        each.name.startswith(("nll_loss", "cross_entropy")) and each.name.endswith("True")
    )


def unsupported(each: Case) -> bool:
    names = {op.name for op in exporter.UNSUPPORTED}
    composed = {"polygamma", "cholesky_inverse", "cholesky_solve"}  # of ops without a form
    return each.name.split("(")[0].split(" ")[0] in names | composed


CHOSEN = [c for c in CASES if not needs_weight_leaf(c)]


def exported(each: Case, dtype: Any, opset: int) -> tuple[Any, list[np.ndarray], np.ndarray]:
    """The program, its inputs, and what it should give: the case in float64."""
    arrays = [a.astype(dtype) if a.dtype.kind == "f" else a for a in each.inputs]
    wide = Case(each.name, each.f, each.torch, tuple(arrays))
    leaves = wide.leaves(np.float64)
    (expected,) = run([each.f(*leaves)], leaves)
    program = export(
        lambda *xs: recording.record(each.f, *xs),
        tuple(tw.tensor(a) for a in arrays),
        opset_version=opset,
        verify=False,
    )
    return program, arrays, expected


def opsets() -> list[int]:
    # Gelu came with 20, GroupNormalization became ours with 21, RMSNormalization came with 23.
    return [n for n in (18, 21, 23) if n <= onnx.defs.onnx_opset_version()]


INTEGERS = np.array([[7, -8, 0, 3], [-1, 5, 100, -100]])


DIVISORS = np.array([3, -3, 2, 7])


INTEGER_CASES: dict[str, Callable[..., Node]] = {
    **{
        op.name: op
        for op in (
            ops.add, ops.sub, ops.mul, ops.maximum, ops.minimum, ops.eq, ops.ne, ops.lt, ops.le,
            ops.gt, ops.ge, ops.bitwise_and, ops.bitwise_or, ops.bitwise_xor, ops.floor_divide,
            ops.remainder, ops.fmod, ops.gcd,
        )
    },
    "shift_left": lambda x, y: ops.shift_left(x, y * y - y * y + 2),
    "shift_right": lambda x, y: ops.shift_right(x, y * y - y * y + 2),
    "pow": lambda x, y: ops.pow(y, y - y + 2),
    "where": lambda x, y: ops.where(x > y, x, y + x),
    "neg, abs, sign": lambda x, y: ops.neg(x) * ops.abs(y) + ops.sign(x),
    "floor, trunc": lambda x, y: ops.floor(x) + ops.trunc(y) + ops.round(x),
    "sum": lambda x, y: ops.sum(x, (1,)),
    "prod": lambda x, y: ops.prod(y, (0,)),
    "max, min": lambda x, y: ops.max(x, (0,)) - ops.min(x, (0, 1)),
    "argmax": lambda x, y: ops.argmax(x, (0, 1)) + ops.argmin(x, (1,)),
    "cumsum": lambda x, y: ops.cumsum(x, 0),
    "argsort": lambda x, y: ops.argsort(x, 1, False),
    "argsort descending": lambda x, y: ops.argsort(x * 0, 1, True),
    "clamp": lambda x, y: ops.clamp(x, -2, 3),
    "relu": lambda x, y: ops.relu(x),
    "matmul": lambda x, y: ops.matmul(x, ops.transpose(x)),
    "not": lambda x, y: ops.bitwise_not(x),
    "isfinite": lambda x, y: ops.bitwise_and(ops.isfinite(x), ops.logical_not(ops.isnan(y))),
}  # fmt: skip


EDGES = np.array([math.nan, math.inf, -math.inf, 0.0, -0.0, 0.5, -0.5, 1, -1, 3, -3, 30, -30])


EDGY = "isnan isinf isfinite sign trunc floor ceil round abs relu expm1 log1p rsqrt reciprocal"
