"""Ops without an ONNX form, each with the reason that an export gives: those that public ops
declare, and those that no public op is made of alone."""

from __future__ import annotations

from tilewright.ir import ops
from tilewright.ir.op import REGISTRY, Kind

from ...functions.call import DECLARED
from ..exporter import FORMS, UNSUPPORTED

_NO_ALGEBRA = "ONNX has no operators of linear algebra"
_TRAINING = "it belongs to training: export the forward pass"

UNSUPPORTED.update(
    {
        **dict.fromkeys(
            ops.DRAWS,
            "random numbers of ONNX runtimes are not ours; draw them outside the model, and export "
            "it in eval mode",
        ),
        ops.dropout: "it draws random numbers; pass training=False or export the module in eval "
        "mode",
        ops.gamma_sample: "it draws random numbers; draw them outside the model",
        ops.bitcast: "ONNX reads no bits as another type before opset 26",
        ops.external: "it is a kernel of yours, which ONNX runtimes don't have",
        ops.pinv: _NO_ALGEBRA,
        **dict.fromkeys(
            (
                ops.real,
                ops.imag,
                ops.complex,
                ops.conj_op,
                ops.fourier_op,
                ops.rfft_op,
                ops.irfft_op,
            ),
            "it has complex numbers",
        ),
        ops.conv_weight_grad: _TRAINING,
        ops.conv_weight_grad_wide: _TRAINING,
    }
)
for _record in ops.polynomials.values():
    UNSUPPORTED[_record] = "ONNX has no operator for it: give the degree as a number"
for _record in REGISTRY.values():
    if _record.kind is Kind.HOST and _record not in FORMS:
        UNSUPPORTED.setdefault(_record, _NO_ALGEBRA)
for _op in DECLARED.values():
    UNSUPPORTED.update(_op.unexportable or {})
