"""Affine maps and convolutions."""

from __future__ import annotations

from tilewright.ir import ops

from ..align import Traced, across
from ..exporter import Exporter, form


@form(ops.linear)
def _linear(e: Exporter, t: Traced, x: str, weight: str, *bias: str) -> str:
    if t.rank == 2:
        return e.add("Gemm", x, weight, *bias, transB=1)
    product = e.add("MatMul", x, e.add("Transpose", weight, perm=[1, 0]))
    return e.add("Add", product, *bias) if bias else product


@form(ops.matmul, ops.matmul_fast, ops.matmul_wide)
def _matmul(e: Exporter, t: Traced, *operands: str) -> str:
    if t.operands[0].dtype is not t.dtype:
        operands = tuple(e.cast(x, t.dtype) for x in operands)
    return e.add("MatMul", *operands)


@form(ops.conv)
def _conv(e: Exporter, t: Traced, x: str, weight: str) -> str:
    return e.add("Conv", x, weight, **_attributes(e, t, *t.attrs))


def _attributes(
    e: Exporter, t: Traced, stride: object, padding: object, dilation: object, groups: int
) -> dict[str, object]:
    strides, pads, dilations = e.static(t, "padding", (stride, padding, dilation))
    return {
        "kernel_shape": list(t.operands[1].shape[2:]),
        "strides": list(strides),
        "pads": [p[0] for p in pads] + [p[1] for p in pads],
        "dilations": list(dilations),
        "group": groups,
    }


@form(ops.conv_input_grad)
def _transposed(e: Exporter, t: Traced, g: str, weight: str) -> str:
    size, *attrs = t.attrs
    stride, padding, dilation, _ = attrs
    kernel = t.operands[1].shape[2:]
    # The output padding is the difference to the size by the formula.
    extra = [
        across(lambda n, m, k, s=s, p=p, d=d: n - (s * (m - 1) + d * (k - 1) + 1 - sum(p)), n, m, k)
        for n, m, k, s, p, d in zip(
            size, t.operands[0].shape[2:], kernel, stride, padding, dilation, strict=True
        )
    ]
    e.static(t, "output padding", extra)
    return e.add(
        "ConvTranspose", g, weight, output_padding=list(extra), **_attributes(e, t, *attrs)
    )
