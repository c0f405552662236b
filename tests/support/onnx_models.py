"""ONNX models made by hand, and what onnxruntime computes with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw

RNG = np.random.default_rng(0)


Node = tuple[Any, ...]
"""(operator, inputs, outputs, attributes), names with blanks between them. `ai.onnx.ml:Scaler` is
an operator of another domain."""


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def model_of(
    nodes: Sequence[Node],
    inputs: Mapping[str, Any],
    weights: Mapping[str, np.ndarray],
    outputs: str = "y",
    opset: int = 18,
    domains: Mapping[str, int] | None = None,
) -> Any:
    """A ModelProto. inputs: sizes of floats by name, each a number or a name; or (dtype, sizes)."""
    made = []
    for i, (op_type, reads, writes, *rest) in enumerate(nodes):
        names = ["" if n == "-" else n for n in reads.split()]
        attributes = rest[0] if rest else {}
        domain, _, plain = op_type.rpartition(":")
        node = helper.make_node(plain, names, writes.split(), name=f"{plain}_{i}", **attributes)
        node.domain = domain
        made.append(node)
    given = []
    for name, sizes in inputs.items():
        dtype, sizes = sizes if isinstance(sizes, tuple) else (TensorProto.FLOAT, sizes)
        given.append(helper.make_tensor_value_info(name, dtype, sizes))
    graph = helper.make_graph(
        made,
        "graph",
        given,
        [helper.make_value_info(n, onnx.TypeProto()) for n in outputs.split()],
        [numpy_helper.from_array(np.asarray(v), n) for n, v in weights.items()],
    )
    imports = [helper.make_opsetid(*each) for each in {"": opset, **(domains or {})}.items()]
    proto = helper.make_model(graph, opset_imports=imports, ir_version=8)
    return onnx.shape_inference.infer_shapes(proto)


def theirs(proto: Any, *arrays: np.ndarray) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    found: list[np.ndarray] = session.run(
        None, {i.name: a for i, a in zip(session.get_inputs(), arrays, strict=True)}
    )
    return found


def ours(model: Any, *arrays: np.ndarray) -> list[np.ndarray]:
    found = model(*(tw.tensor(a) for a in arrays))
    return [t.detach().numpy() for t in (found if isinstance(found, tuple) else (found,))]


def same(model: Any, proto: Any, *arrays: np.ndarray, tolerance: float = 2e-5) -> None:
    for mine, other in zip(ours(model, *arrays), theirs(proto, *arrays), strict=True):
        assert mine.dtype == other.dtype and mine.shape == other.shape
        np.testing.assert_allclose(mine, other, rtol=tolerance, atol=tolerance)
