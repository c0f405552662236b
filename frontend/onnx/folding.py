"""Constant folding in a finished ONNX graph."""

from __future__ import annotations

from typing import Any

import numpy as np

from .package import require_onnx
from .protos import reads

LARGEST = 1 << 24
"""The most elements of a value that is folded."""

_GROWING = frozenset({"Expand", "Tile", "ConstantOfShape", "Range", "EyeLike"})
"""Operators whose results may be far larger than what they are made of."""


def fold(proto: Any) -> None:
    """Compute the nodes that depend on initializers alone, and drop the initializers that nothing
    reads any more."""
    onnx = require_onnx()
    from onnx.reference import ReferenceEvaluator

    graph = proto.graph
    known = {i.name: i for i in graph.initializer}
    outputs = {o.name for o in graph.output}
    kept = []
    for node in graph.node:
        plain = not any(a.g.node or a.graphs for a in node.attribute)
        inputs = [known.get(name) for name in node.input if name]
        if (
            not plain
            or node.domain
            or node.op_type in _GROWING
            or not inputs
            or any(i is None or np.prod(i.dims, dtype=np.int64) > LARGEST for i in inputs)
            or outputs.intersection(node.output)
        ):
            kept.append(node)
            continue
        feed = {name: onnx.numpy_helper.to_array(known[name]) for name in node.input if name}
        try:
            made = ReferenceEvaluator(node).run(None, feed)
        except Exception:  # what the evaluator of the package can't compute stays
            kept.append(node)
            continue
        for name, array in zip(node.output, made, strict=True):
            tensor = onnx.numpy_helper.from_array(np.ascontiguousarray(array), name)
            known[name] = tensor
            graph.initializer.append(tensor)
    del graph.node[:]
    graph.node.extend(kept)
    used = {name for node in graph.node for name in reads(node)} | outputs
    unused = [i for i, each in enumerate(graph.initializer) if each.name not in used]
    for i in reversed(unused):
        del graph.initializer[i]


def fold_batch_norms(proto: Any) -> None:
    """Make each batch normalization that alone reads a convolution a part of its weights."""
    onnx = require_onnx()
    graph = proto.graph
    known = {i.name: onnx.numpy_helper.to_array(i) for i in graph.initializer}
    readers: dict[str, int] = {o.name: 1 for o in graph.output}
    for node in graph.node:
        for name in reads(node):
            readers[name] = readers.get(name, 0) + 1
    producers = {name: node for node in graph.node for name in node.output}
    taken = {*known, *producers}
    kept = []
    for node in list(graph.node):
        kept.append(node)
        conv = producers.get(node.input[0]) if node.op_type == "BatchNormalization" else None
        if conv is None or conv.op_type != "Conv" or readers[node.input[0]] > 1:
            continue
        if not {*conv.input[1:], *node.input[1:]} <= set(known):
            continue
        scale, shift, mean, variance = (known[name].astype(np.float64) for name in node.input[1:])
        epsilon = next((a.f for a in node.attribute if a.name == "epsilon"), 1e-5)
        factor = scale / np.sqrt(variance + epsilon)
        weight = known[conv.input[1]]
        bias = known[conv.input[2]] if len(conv.input) > 2 else 0.0
        made = {
            "weight": weight * factor.reshape(-1, *(1,) * (weight.ndim - 1)),
            "bias": (bias - mean) * factor + shift,
        }
        del conv.input[1:]
        for kind, array in made.items():
            name = f"{node.output[0]}.{kind}"
            while name in taken:
                name += "_"
            taken.add(name)
            conv.input.append(name)
            graph.initializer.append(
                onnx.numpy_helper.from_array(array.astype(weight.dtype, order="C"), name)
            )
        conv.output[0] = node.output[0]
        kept.pop()
    del graph.node[:]
    graph.node.extend(kept)
