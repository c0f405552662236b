"""Pairs of our ops that are one ONNX operator. The first op must have no other users."""

from __future__ import annotations

import math
from collections.abc import Callable

from tilewright.ir import ops
from tilewright.ir.dtype import FLOAT
from tilewright.ir.op import REGISTRY, Op

from ..align import Traced, across
from ..exporter import FORMS, Exporter, Form

_sum = REGISTRY["sum"]


def _before(op: Op, fused: Callable[[Exporter, Traced], str | None]) -> None:
    """Register a form for `op` that tries `fused` first, then the op's present form."""
    plain: Form = FORMS[op]

    def emit(e: Exporter, t: Traced, *inputs: str) -> str | None:
        return fused(e, t) or plain(e, t, *inputs)

    FORMS[op] = emit


def _conv_with_bias(e: Exporter, t: Traced) -> str | None:
    conv, bias = t.operands
    if conv.op is not ops.conv or bias.op.name != "reshape" or e.users(conv) > 1:
        return None
    channels = (t.shape[1],)
    rank = t.rank - 2
    wide = (*channels, *(1,) * rank)
    if bias.operands[0].shape != channels or bias.shape not in (wide, (1, *wide)):
        return None
    inputs = [e.value(o) for o in (*conv.operands, bias.operands[0])]
    made = e.made_by(e.value(conv))
    return e.add("Conv", *inputs, **made)


def _mean(e: Exporter, t: Traced) -> str | None:
    total, count = t.operands
    if total.op is not _sum or t.dtype.category != FLOAT or e.users(total) > 1:
        return None
    sizes = [total.operands[0].shape[a] for a in total.attrs[0]]
    expected = across(lambda *each: math.prod(each), *sizes) if sizes else 1
    given = [ops.constant_value(n) for n in count.nodes] if count.op is _CONSTANT else []
    wanted = [expected] * len(given) if isinstance(expected, int) else list(expected)
    if not given or [float(g) for g in given] != [float(w) for w in wanted]:
        return None
    return e.add("ReduceMean", e.value(total.operands[0]), e.ints(total.attrs[0]), keepdims=1)


_CONSTANT = REGISTRY["constant"]

_before(ops.add, _conv_with_bias)
_before(ops.div, _mean)
