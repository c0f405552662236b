"""Records of products whose factors are bytes, few rows and a large matrix of halves, or matrices
that a processor has registers for: each is compiled alone, for its sizes.

NumPy would write the matrix out in floats first, which takes up to four times the memory and longer
than the product itself. A layer's sizes are few, and the code of its kernel is that of all sizes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from tilewright.ir import ops
from tilewright.ir.node import Node, grad_mode
from tilewright.ir.op import Op
from tilewright.ir.ops.generate import leaf

from ..plan import Plan
from . import copies

LAYERS: tuple[Op, ...] = (
    ops.linear_int8,
    ops.linear_int4,
    ops.linear_dynamic,
    ops.linear_by_rows,
)
_plans: dict[Any, Plan] = {}
_MOST = 1024
"""The plans from which all are forgotten."""


def clear() -> None:
    """Forget all plans."""
    _plans.clear()
    _met.clear()


def layer(node: Node) -> Callable[..., Any]:
    """The form of a layer."""
    op, attrs, operands = node.op, node.attrs, _kinds(node)
    turned = (False,) * len(operands)

    def compute(*arrays: Any) -> Any:
        return _run(op, attrs, operands, turned, [copies.in_order(a) for a in arrays])

    return compute


def product(node: Node, otherwise: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """The form of products. A matrix whose transpose is contiguous is read as it lies. otherwise:
    computes it until its sizes have been met a few times."""
    op, operands = node.op, _kinds(node)

    def compute(*arrays: Any) -> Any:
        across = [a.swapaxes(-1, -2) for a in arrays]
        turned = tuple(
            [t.flags.c_contiguous and not a.flags.c_contiguous for a, t in zip(arrays, across)]
        )
        if otherwise is not None and _is_new((op, operands, turned)):
            return otherwise(*arrays)
        lie = zip(arrays, across, turned)
        given = [copies.in_order(t if is_turned else a) for a, t, is_turned in lie]
        return _run(op, (), operands, turned, given)

    return compute


_met: Counter[Any] = Counter()
_OFTEN = 8
"""The times that a product is met before it is compiled, where that takes longer than to compute it
some times."""


def _is_new(key: Any) -> bool:
    if _met[key] > _OFTEN:
        return False
    if len(_met) >= _MOST:
        _met.clear()
    _met[key] += 1
    return _met[key] <= _OFTEN


_Kinds = tuple[tuple[Any, Any], ...]


def _kinds(node: Node) -> _Kinds:
    return tuple([(o.shape, o.dtype) for o in node.operands])


def _run(
    op: Op, attrs: tuple[Any, ...], operands: _Kinds, turned: tuple[bool, ...], given: list[Any]
) -> Any:
    key = op, attrs, operands, turned
    plan = _plans.get(key)
    if plan is None:
        if len(_plans) >= _MOST:
            clear()
        nodes = []
        with grad_mode(False):
            for i, ((shape, dtype), is_turned) in enumerate(zip(operands, turned)):
                lies = (*shape[:-2], shape[-1], shape[-2]) if is_turned else shape
                node = leaf(i, lies, dtype)
                nodes.append(ops.transpose(node) if is_turned else node)
            plan = _plans[key] = Plan([op(*nodes, *attrs)])
    return plan.run(given, ())[0]
