"""Routines of small matrices as kernels, with a program for each matrix (`elimination.py`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright.ir import ops
from tilewright.ir.dtype import DType
from tilewright.ir.node import Node
from tilewright.ir.op import Op

from ..lower.external import External, Registered, external, register
from ..lower.host import routine_of
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


def kernel_of(node: Node) -> External:
    """The kernel that computes a node of such a routine on its device."""
    found = routine_of(node)

    def make() -> Registered:
        return Registered(matrices(found.op, found.attrs, found.inputs, found.outputs))

    return external(register((found.op, found.attrs, found.inputs), make))


def matrices(op: Op, attrs: Sequence[Any], inputs: Types, outputs: Types) -> Emitted:
    """The kernel of a routine on matrices that fit a tile (`Op.tile`)."""
    if op is ops.permutation:
        return _exchanges(op, attrs[0], inputs, outputs)
    (*batch, rows, columns), _ = inputs[0]
    lines = [
        "pid = tl.program_id(0).to(tl.int64)",
        "i = tl.arange(0, N)[:, None]",
        "j = tl.arange(0, N)[None, :]",
    ]
    if op is ops.qr:
        sizes = {"m": rows, "n": columns, "n_q": outputs[0][0][-1]}
        lines += [
            "k = tl.arange(0, K)[None, :]",
            f"a = {_load('in0', 'm', 'n', 'k')}",
            "q, r = tw_reflect(a, tl.minimum(m, n))",
            _store("out0", "q", "m", "n_q", "j"),
            _store("out1", "r", "n_q", "n", "k"),
        ]
    elif op is ops.lu:
        sizes = {"m": rows, "n": columns, "n_q": min(rows, columns)}
        lines += [
            "k = tl.arange(0, K)[None, :]",
            f"a = {_load('in0', 'm', 'n', 'k')}",
            "x, pivots, info = tw_lu(a, m, n_q)",
            _store("out0", "x", "m", "n", "k"),
            "tl.store(out1 + pid * n_q + i, pivots, mask=i < n_q)",
            "tl.store(out2 + pid, info)",
        ]
    else:
        columns = outputs[0][0][-1]
        sizes = {"n": rows, "n_k": columns}
        lines += [
            "k = tl.arange(0, K)[None, :]",
            f"a = {_load('in0', 'n', 'n', 'j')}",
            *([f"b = {_load('in1', 'n', 'n_k', 'k')}"] if len(inputs) == 2 else []),
            _FORMS[op].format(*attrs),
            _store("out0", "x", "n", "n_k", "k"),
            *(["tl.store(out1 + pid, info)"] if len(outputs) == 2 else []),
        ]
    edge, width = (max(_LEAST, power_of_two(x)) for x in (rows, columns))
    warps = max(1, edge * max(edge, width) // 512)
    return _emitted(
        op, lines, sizes, {"N": edge, "K": width}, math.prod(batch), warps, inputs, outputs
    )


def _exchanges(op: Op, rows: int, inputs: Types, outputs: Types) -> Emitted:
    (*batch, steps), _ = inputs[0]
    lines = [
        "pid = tl.program_id(0).to(tl.int64)",
        "i = tl.arange(0, N)[:, None]",
        "pivots = tl.load(in0 + pid * n_q + i, mask=i < n_q, other=0)",
        "order = tw_exchange(pivots, n_q)",
        "tl.store(out0 + pid * m + i, order, mask=i < m)",
    ]
    sizes, edge = {"m": rows, "n_q": steps}, max(_LEAST, power_of_two(rows))
    return _emitted(op, lines, sizes, {"N": edge}, math.prod(batch), 1, inputs, outputs)


def _emitted(
    op: Op,
    lines: list[str],
    sizes: dict[str, int],
    constexprs: dict[str, int],
    programs: int,
    warps: int,
    inputs: Types,
    outputs: Types,
) -> Emitted:
    names = [f"out{i}" for i in range(len(outputs))] + [f"in{i}" for i in range(len(inputs))]
    arguments = (
        *(
            Argument(name, POINTER[dtype.name], "buffer", i)
            for i, (name, (_, dtype)) in enumerate(zip(names, (*outputs, *inputs), strict=True))
        ),
        *(Argument(name, "i32", "size", size) for name, size in sizes.items()),
    )
    name = f"{op.name}_tile"
    return Emitted(
        name=name,
        body=source(name, arguments, constexprs, lines),
        lines=tuple(lines),
        header=f"# {op.name}\n\n",
        arguments=arguments,
        constexprs=constexprs,
        grid=programs,
        num_warps=warps,
        num_stages=1,
    )


def _load(buffer: str, rows: str, columns: str, along: str) -> str:
    """The tile of a matrix; zeros beyond its end."""
    inside = f"(i < {rows}) & ({along} < {columns})"
    return f"tl.load({buffer} + (pid * {rows} + i) * {columns} + {along}, mask={inside}, other=0)"


def _store(buffer: str, value: str, rows: str, columns: str, along: str) -> str:
    inside = f"(i < {rows}) & ({along} < {columns})"
    place = f"{buffer} + (pid * {rows} + i) * {columns} + {along}"
    return f"tl.store({place}, {value}, mask={inside})"
