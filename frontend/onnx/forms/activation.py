"""Activations with an ONNX operator of their own. The others are decomposed."""

from __future__ import annotations

from tilewright.ir import ops
from tilewright.ir.dtype import float64

from ..align import Traced
from ..exporter import FORMS, Exporter, Form, form


@form(ops.softmax, ops.log_softmax)
def _softmax(e: Exporter, t: Traced, x: str) -> str | None:
    return e.add(str(t.op.onnx), x, axis=t.attrs[0]) if t.rank else None


@form(ops.gelu)
def _gelu(e: Exporter, t: Traced, x: str) -> str | None:
    return e.add("Gelu", x, approximate=t.attrs[0]) if e.opset >= 20 else None


@form(ops.softplus)
def _softplus(e: Exporter, t: Traced, x: str) -> str | None:
    beta, threshold = t.attrs
    # Beyond 15 Softplus differs from x by less than a float32's rounding.
    if threshold < 15 or t.dtype.itemsize > 4:
        return None
    if beta == 1:
        return e.add("Softplus", x)
    return e.add("Div", e.add("Softplus", e.add("Mul", x, e.number(beta, t))), e.number(beta, t))


def _with_attribute(op_type: str, attribute: str) -> Form:
    def emit(e: Exporter, t: Traced, x: str) -> str | None:
        if t.dtype is float64:  # attributes are float32
            return None
        return e.add(op_type, x, **{attribute: float(t.attrs[0])})

    return emit


FORMS[ops.elu] = _with_attribute("Elu", "alpha")
FORMS[ops.leaky_relu] = _with_attribute("LeakyRelu", "alpha")


@form(ops.celu)
def _celu(e: Exporter, t: Traced, x: str) -> str | None:
    # ONNX defines Celu for float32 only.
    return e.add("Celu", x, alpha=float(t.attrs[0])) if t.dtype.name == "float32" else None


@form(ops.prelu)
def _prelu(e: Exporter, t: Traced, x: str, weight: str) -> str:
    return e.add("PRelu", x, weight)


@form(ops.hardtanh, ops.clamp)
def _clip(e: Exporter, t: Traced, x: str) -> str:
    bounds = ["" if bound is None else e.number(bound, t) for bound in t.attrs]
    return e.add("Clip", x, *bounds)


@form(ops.hardsigmoid)
def _hardsigmoid(e: Exporter, t: Traced, x: str) -> str | None:
    if t.dtype is float64:
        return None
    return e.add("HardSigmoid", x, alpha=1 / 6, beta=0.5)


@form(ops.hardshrink, ops.softshrink)
def _shrink(e: Exporter, t: Traced, x: str) -> str | None:
    if t.dtype is float64:
        return None
    bound = float(t.attrs[0])
    return e.add("Shrink", x, lambd=bound, bias=bound if t.op is ops.softshrink else 0.0)
