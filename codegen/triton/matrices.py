"""Routines of small matrices as kernels, with a program for each matrix (`elimination.py`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright.ir import ops
from tilewright.ir.dtype import DType
from tilewright.ir.op import Op

from ..schedule import power_of_two
from .emitted import POINTER, Argument, Emitted, source

Types = Sequence[tuple[tuple[int, ...], DType]]
_LEAST = 16
_FORMS = {
    ops.cholesky: "x, info = tw_factor(a, n)",
    ops.triangular_op: "x = tw_substitute(a, b, n, {0}, {1})",
    ops.solve: "x, info = tw_solve(a, b, n)",
    ops.inv: "x, info = tw_solve(a, (i == j).to(a.dtype), n)",
}


def matrices(op: Op, attrs: Sequence[Any], inputs: Types, outputs: Types) -> Emitted:
    """The kernel of a routine on matrices that fit a tile (`Op.tile`)."""
    (*batch, n, _), _ = inputs[0]
    columns = outputs[0][0][-1]
    has_b, has_info = len(inputs) == 2, len(outputs) == 2
    names = ["out0", *(["out1"] if has_info else []), "in0", *(["in1"] if has_b else [])]
    kinds = [POINTER[dtype.name] for _, dtype in (*outputs, *inputs)]
    lines = [
        "pid = tl.program_id(0).to(tl.int64)",
        "i = tl.arange(0, N)[:, None]",
        "j = tl.arange(0, N)[None, :]",
        "a = tl.load(in0 + (pid * n + i) * n + j, mask=(i < n) & (j < n), other=0)",
    ]
    place, inside = "(pid * n + i) * n_k + k", "(i < n) & (k < n_k)"
    lines.append("k = tl.arange(0, K)[None, :]")
    if has_b:
        lines.append(f"b = tl.load(in1 + {place}, mask={inside}, other=0)")
    lines.append(_FORMS[op].format(*attrs))
    lines.append(f"tl.store(out0 + {place}, x, mask={inside})")
    if has_info:
        lines.append("tl.store(out1 + pid, info)")
    edge, width = (max(_LEAST, power_of_two(x)) for x in (n, columns))
    constexprs = {"N": edge, "K": width}
    arguments = (
        *(Argument(x, kind, "buffer", i) for i, (x, kind) in enumerate(zip(names, kinds))),
        Argument("n", "i32", "size", n),
        Argument("n_k", "i32", "size", columns),
    )
    name = f"{op.name}_tile"
    return Emitted(
        name=name,
        body=source(name, arguments, constexprs, lines),
        lines=tuple(lines),
        header=f"# {op.name}\n\n",
        arguments=arguments,
        constexprs=constexprs,
        grid=math.prod(batch),
        num_warps=max(1, edge * max(edge, width) // 512),
        num_stages=1,
    )
