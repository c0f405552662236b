"""The operations of the products in recorded nodes: matrices, convolutions, attention."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from tilewright.ir.loop import body
from tilewright.ir.node import Node
from tilewright.ir.op import Kind, Op
from tilewright.ir.ops.attention import (
    attention,
    attention_args,
    attention_key_grad,
    attention_logsumexp,
    attention_query_grad,
    attention_value_grad,
)
from tilewright.ir.ops.contraction import (
    conv,
    conv_input_grad,
    conv_weight_grad,
    conv_weight_grad_wide,
    matmul,
    matmul_fast,
)
from tilewright.ir.ops.grouped import grouped_matmul, grouped_weight_grad
from tilewright.ir.ops.linear import linear
from tilewright.ir.passes.autodiff import decomposed

from .saving import between

Count = Mapping[str, int]
"""Operations by the name of PyTorch's operator."""


def _matmul(node: Node) -> Count:
    a, b = (o.shape for o in node.operands[:2])
    name = "bmm" if len(a) > 2 and len(b) > 2 else "mm"
    return {name: 2 * math.prod(node.shape) * a[-1]}


def _linear(node: Node) -> Count:
    name = "addmm" if len(node.operands) > 2 else "mm"
    return {name: 2 * math.prod(node.shape) * node.operands[0].shape[-1]}


def _grouped(node: Node) -> Count:
    x, w = (o.shape for o in node.operands[:2])
    return {"_grouped_mm": 2 * x[0] * x[1] * w[-1]}


def _convolution(node: Node) -> Count:
    image, kernel = node.shape, node.operands[1].shape
    return {"convolution": 2 * math.prod(image) * math.prod(kernel[1:])}


def _transposed(node: Node) -> Count:
    image, kernel = (o.shape for o in node.operands[:2])
    return {"convolution": 2 * math.prod(image) * math.prod(kernel[1:])}


def _weight_grad(node: Node) -> Count:
    return {"convolution": 2 * math.prod(node.operands[0].shape) * math.prod(node.shape[1:])}


def _attention(products: int) -> Callable[[Node], Count]:
    """The work of so many products of the size of the scores."""

    def count(node: Node) -> Count:
        a = attention_args(*node.operands, *node.attrs)
        rows, keys = a.q.shape[-2], a.k.shape[-2]
        width = (a.q.shape[-1] + a.v.shape[-1]) // 2
        size = 2 * math.prod(a.batch) * rows * keys * width
        return {"_scaled_dot_product_flash_attention": products * size}

    return count


_FORMULAS: dict[Op, Callable[[Node], Count]] = {
    matmul: _matmul,
    matmul_fast: _matmul,
    linear: _linear,
    grouped_matmul: _grouped,
    grouped_weight_grad: _grouped,
    conv: _convolution,
    conv_input_grad: _transposed,
    conv_weight_grad: _weight_grad,
    conv_weight_grad_wide: _weight_grad,
    attention: _attention(2),
    attention_logsumexp: _attention(1),  # the scores again
    attention_query_grad: _attention(2),  # those of the weights too
    attention_key_grad: _attention(1),
    attention_value_grad: _attention(1),
}


def work(node: Node) -> Count:
    """The operations of a node alone."""
    found: Count | None = node.memo.get("flops")
    if found is None:
        found = node.memo["flops"] = _counted(node)
    return found


def _counted(node: Node) -> Count:
    formula = _FORMULAS.get(node.op)
    if formula is not None:
        return formula(node)
    if node.op.kind is Kind.LOOP:
        _, results = body(node.op, node.operands, node.attrs)
        return total(between(results, set()), node.operands[0].shape[0])
    if node.op.decompose is None:
        return {}
    return total(between([decomposed(node)], set(node.operands)) - set(node.operands))


def total(nodes: Iterable[Node], times: int = 1) -> Count:
    """The operations of nodes together, `times` times."""
    found: Counter[str] = Counter()
    for node in nodes:
        for name, count in work(node).items():
            found[name] += count * times
    return found
