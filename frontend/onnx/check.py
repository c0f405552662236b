"""Comparison of an exported model with our own results."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import recording
from ..inspection.tracing import Call, eval_mode, tensors_of
from .errors import OnnxExporterError

TOLERANCE = {2: 2e-2, 4: 1e-4, 8: 1e-6}
"""Bytes of a float -> the allowed error, relative to the largest element."""


def verify_program(program: Any, call: Call) -> float:
    """The largest difference between onnxruntime and the model; an error if it is too large."""
    try:
        import onnxruntime
    except ImportError as error:
        raise ImportError(
            "verify=True needs the package onnxruntime, which is not installed: "
            "pip install tilewright[onnx]"
        ) from error
    with eval_mode(call.model), recording.grad_mode(False):
        result = call.model(*call.args, **call.kwargs)
        wanted = [(name, np.asarray(t.detach())) for name, t in tensors_of("output", result)]
    session = onnxruntime.InferenceSession(
        program.model_proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    names = [i.name for i in session.get_inputs()]
    feed = {n: np.asarray(t.detach()) for n, t in zip(names, call.inputs, strict=True)}
    worst = 0.0
    for (name, ours), theirs in zip(wanted, session.run(None, feed), strict=True):
        difference = np.abs(ours.astype(np.float64) - theirs.astype(np.float64)).max(initial=0.0)
        scale = max(1.0, float(np.abs(ours.astype(np.float64)).max(initial=0.0)))
        if not difference <= TOLERANCE.get(ours.dtype.itemsize, 0) * scale:
            raise OnnxExporterError(
                f"verify: {name} differs by {difference:.3g} from what onnxruntime computes"
            )
        worst = max(worst, float(difference))
    return worst
