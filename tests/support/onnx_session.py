"""Runs exported programs in onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime as runtime

runtime.set_default_logger_severity(4)


def session(program: Any) -> Any:
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    model = program.model_proto.SerializeToString()
    return runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def outputs(program: Any, *arrays: np.ndarray) -> list[np.ndarray]:
    s = session(program)
    return s.run(None, {i.name: a for i, a in zip(s.get_inputs(), arrays, strict=True)})


def operators(program: Any) -> list[str]:
    return [node.op_type for node in program.model_proto.graph.node]
