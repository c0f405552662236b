"""Ops without an ONNX form, each with the reason for the error message."""

from __future__ import annotations

from tilewright.ir import ops
from tilewright.ir.op import REGISTRY

from ..exporter import UNSUPPORTED

_TRAINING = "it belongs to training: export the forward pass"
_NO_OPERATOR = "ONNX has no operator for it, and no short formula is accurate"

UNSUPPORTED.update(
    {
        ops.random_bits: "random numbers of ONNX runtimes are not ours; draw them outside the "
        "model, and export it in eval mode",
        ops.dropout: "it draws random numbers; pass training=False or export the module in eval "
        "mode",
        ops.bitcast: "ONNX reads no bits as another type before opset 26",
        ops.erfinv: _NO_OPERATOR,
        ops.lgamma: _NO_OPERATOR,
        ops.digamma: _NO_OPERATOR,
        ops.zeta: _NO_OPERATOR,
        ops.external: "it is a kernel of yours, which ONNX runtimes don't have",
        ops.conv_weight_grad: _TRAINING,
        ops.conv_weight_grad_wide: _TRAINING,
        REGISTRY["cumprod"]: _NO_OPERATOR,
        REGISTRY["cummax"]: _NO_OPERATOR,
        REGISTRY["cummin"]: _NO_OPERATOR,
        REGISTRY["cummax_index"]: _NO_OPERATOR,
        REGISTRY["cummin_index"]: _NO_OPERATOR,
        REGISTRY["logcumsumexp"]: _NO_OPERATOR,
    }
)
