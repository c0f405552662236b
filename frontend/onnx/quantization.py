"""Quantization of an exported program after training: weights and activations of 8 bits.

The program gets pairs of QuantizeLinear and DequantizeLinear (QDQ), which runtimes join with the
operator between them to one on integers. Weights are symmetric, with a scale for each channel;
activations have one scale and a zero point, from their ranges over samples.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from .folding import fold, fold_batch_norms
from .package import require_onnx
from .session import session_of

Feed = Callable[[Any], dict[str, np.ndarray]]

OPERATORS = ("Conv", "Gemm", "MatMul")
_FOLLOWERS = frozenset({"Relu", "Clip"})
"""Operators that are joined with the one before them: their result is what is quantized."""


def quantize(
    model_proto: Any,
    feed: Feed,
    samples: Iterable[Any],
    *,
    operators: Sequence[str] = OPERATORS,
    per_channel: bool = True,
    percentile: float = 100.0,
    reduce_range: bool = True,
) -> Any:
    """A copy of a ModelProto whose convolutions and products with weights are on int8.

    feed: the model's inputs for a sample. samples: arguments of calls of the program, each a tensor
        or a tuple: their activations give the ranges. operators: the kinds of nodes. per_channel:
        whether weights have a scale for each channel. percentile: which part of a sample's elements
        the range holds; 100 for all. reduce_range: whether weights take 7 of the 8 bits. Processors
        with AVX2 alone add two products in 16 bits, which overflow otherwise: results were off by a
        tenth there. With VNNI or on ARM, all 8 bits are a little more exact.

    Raises ValueError without samples, or if nothing can be quantized.
    """
    onnx = require_onnx()
    if model_proto.functions:
        raise ValueError(
            "quantized: the program has functions; export it without export_modules_as_functions"
        )
    proto = onnx.ModelProto()
    proto.CopyFrom(model_proto)
    fold_batch_norms(proto)
    fold(proto)
    work = _Quantization(onnx, proto, operators, per_channel, 63 if reduce_range else 127)
    chosen = work.chosen()
    if not chosen:
        raise ValueError(
            f"quantized: the program has no {', '.join(operators)} with float32 weights"
        )
    given = (feed(sample) for sample in samples)
    work.ranges = _ranges(proto, given, work.activations(chosen), percentile)
    work.run(chosen)
    onnx.checker.check_model(proto, full_check=True)
    return proto


def _ranges(
    proto: Any, feeds: Iterable[dict[str, np.ndarray]], names: Sequence[str], percentile: float
) -> dict[str, tuple[float, float]]:
    """The least and the largest element of each value over all samples."""
    onnx = require_onnx()
    watched = onnx.ModelProto()
    watched.CopyFrom(proto)
    inputs = {i.name for i in watched.graph.input}
    made = [n for n in names if n not in inputs]
    known = {o.name for o in watched.graph.output}
    watched.graph.output.extend(onnx.ValueInfoProto(name=n) for n in made if n not in known)
    session = session_of(watched, "quantizing an ONNX program")
    found: dict[str, tuple[float, float]] = {}
    for feed in feeds:
        values = dict(zip(made, session.run(made, feed), strict=True))
        values |= {n: feed[n] for n in names if n in inputs}
        for name, array in values.items():
            low, high = _range(array, percentile)
            before = found.get(name, (0.0, 0.0))
            found[name] = min(before[0], low), max(before[1], high)
    if not found:
        raise ValueError("quantized: there are no samples, which give the ranges of activations")
    return found


def _range(array: np.ndarray, percentile: float) -> tuple[float, float]:
    finite = array[np.isfinite(array)]
    if not finite.size:
        return 0.0, 0.0
    if percentile >= 100:
        return float(finite.min()), float(finite.max())
    low, high = np.percentile(finite, [100 - percentile, percentile])
    return float(low), float(high)


@dataclasses.dataclass
class _Quantization:
    """proto: changed in place. largest: integer of a weight. ranges: of activations, by name."""

    onnx: Any
    proto: Any
    operators: Sequence[str]
    per_channel: bool
    largest: int
    ranges: Mapping[str, tuple[float, float]] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        graph = self.proto.graph
        self.weights = {i.name: i for i in graph.initializer}
        self.outputs = {o.name for o in graph.output}
        self.taken = {n for node in graph.node for n in (*node.input, *node.output)}
        self.taken |= set(self.weights) | {i.name for i in graph.input}
        self.users: dict[str, list[Any]] = {}
        for node in graph.node:
            for name in node.input:
                self.users.setdefault(name, []).append(node)
        self.before: dict[int, list[Any]] = {}  # id of a node -> nodes to stand before it
        self.after: dict[int, list[Any]] = {}
        self.done: dict[str, str] = {}  # value -> its dequantized form

    def chosen(self) -> list[Any]:
        return [n for n in self.proto.graph.node if n.op_type in self.operators and self._fits(n)]

    def _fits(self, node: Any) -> bool:
        weight = self.weights.get(node.input[1])
        if weight is None or weight.data_type != self.onnx.TensorProto.FLOAT:
            return False
        if node.op_type == "MatMul":
            return len(weight.dims) == 2
        return not _attribute(node, "transA") and _attribute(node, "alpha", 1.0) == 1.0

    def _result(self, node: Any) -> tuple[Any, str]:
        """The node and the value that are quantized behind `node`."""
        users = self.users.get(node.output[0], [])
        alone = len(users) == 1 and node.output[0] not in self.outputs
        if alone and users[0].op_type in _FOLLOWERS:
            return users[0], users[0].output[0]
        return node, node.output[0]

    def activations(self, chosen: Sequence[Any]) -> list[str]:
        names = [name for n in chosen for name in (n.input[0], self._result(n)[1])]
        return [n for n in dict.fromkeys(names) if n not in self.weights]

    def run(self, chosen: Sequence[Any]) -> None:
        graph = self.proto.graph
        for node in chosen:
            source, weight = node.input[0], node.input[1]
            axis = _channels(node)
            scale = self._weight_scale(weight, axis)
            bias = node.input[2] if len(node.input) > 2 else ""
            if bias and bias in self.weights and source not in self.weights:
                given = scale * self._scale(source)[0]
                node.input[2] = self._constant(node, bias, given, 0, np.int32, 2**31 - 1)
            node.input[1] = self._constant(node, weight, scale, axis, np.int8, self.largest)
            if source not in self.weights:
                node.input[0] = self._pair(source, node)
        for node in chosen:
            last, name = self._result(node)
            if name not in self.outputs and name not in self.done:
                self._pair(name, last)
        producers = {name: n for n in graph.node for name in n.output}
        for name, plain in self.done.items():
            for user in self.users.get(name, []):
                for i, each in enumerate(user.input):
                    if each == name:
                        user.input[i] = plain
            producer = producers.get(name)
            pair = self.pairs[name]
            if producer is None:
                self.first += pair
            else:
                self.after.setdefault(id(producer), []).extend(pair)
        nodes = list(self.first)
        for node in graph.node:
            nodes += [*self.before.get(id(node), []), node, *self.after.get(id(node), [])]
        copies = [self._copy(n) for n in nodes]
        del graph.node[:]
        graph.node.extend(copies)
        used = {name for n in graph.node for name in n.input} | self.outputs
        kept = [self._copy(i) for i in self.weights.values() if i.name in used]
        del graph.initializer[:]
        graph.initializer.extend(kept)

    pairs: dict[str, list[Any]] = dataclasses.field(default_factory=dict)
    first: list[Any] = dataclasses.field(default_factory=list)

    def _copy(self, message: Any) -> Any:
        out = type(message)()
        out.CopyFrom(message)
        return out

    def _fresh(self, stem: str) -> str:
        name, number = stem, 0
        while name in self.taken:
            number += 1
            name = f"{stem}_{number}"
        self.taken.add(name)
        return name

    def _initializer(self, stem: str, array: np.ndarray) -> str:
        name = self._fresh(stem)
        self.weights[name] = self.onnx.numpy_helper.from_array(np.array(array, order="C"), name)
        return name

    def _scale(self, name: str) -> tuple[np.float32, int]:
        """(scale, zero point) of an activation: int8, and 0 is exact."""
        low, high = self.ranges[name]
        scale = np.float32(max(high - low, 1e-8) / 255)
        return scale, int(np.clip(np.round(-128 - low / scale), -128, 127))

    def _pair(self, name: str, node: Any) -> str:
        """The value in 8 bits and back."""
        if name not in self.done:
            scale, zero = self._scale(name)
            scale_name = self._initializer(f"{name}.scale", np.array(scale, np.float32))
            zero_name = self._initializer(f"{name}.zero_point", np.array(zero, np.int8))
            narrow, back = self._fresh(f"{name}.quantized"), self._fresh(f"{name}.dequantized")
            make = self.onnx.helper.make_node
            self.pairs[name] = [
                make("QuantizeLinear", [name, scale_name, zero_name], [narrow], name=narrow),
                make("DequantizeLinear", [narrow, scale_name, zero_name], [back], name=back),
            ]
            self.done[name] = back
        return self.done[name]

    def _weight_scale(self, name: str, axis: int) -> np.ndarray:
        """The scale of each channel, or of all."""
        array = self.onnx.numpy_helper.to_array(self.weights[name])
        others = tuple(i for i in range(array.ndim) if i != axis)
        largest = np.abs(array).max(axis=others if self.per_channel else None, initial=0)
        return np.maximum(largest, 1e-8).astype(np.float32) / np.float32(self.largest)

    def _constant(
        self, node: Any, name: str, scale: np.ndarray, axis: int, dtype: Any, limit: int
    ) -> str:
        """An initializer as integers, with a node that gives its floats before `node`."""
        array = self.onnx.numpy_helper.to_array(self.weights[name]).astype(np.float64)
        shape = [-1 if i == axis else 1 for i in range(array.ndim)]
        each = scale.reshape(shape) if scale.ndim else scale
        whole = np.clip(np.round(array / each), -limit, limit).astype(dtype)
        scale_name = self._initializer(f"{name}.scale", np.asarray(scale, np.float32))
        whole_name = self._initializer(f"{name}.quantized", whole)
        # onnxruntime joins products only if the zero points are there.
        zero_name = self._initializer(f"{name}.zero_point", np.zeros(scale.shape, dtype))
        back = self._fresh(f"{name}.dequantized")
        more = {"axis": axis} if scale.ndim else {}
        made = self.onnx.helper.make_node(
            "DequantizeLinear", [whole_name, scale_name, zero_name], [back], name=back, **more
        )
        self.before.setdefault(id(node), []).append(made)
        return back


def _channels(node: Any) -> int:
    """The axis of a weight's output channels."""
    return 0 if node.op_type == "Conv" or _attribute(node, "transB") else 1


def _attribute(node: Any, name: str, default: Any = 0) -> Any:
    for attribute in node.attribute:
        if attribute.name == name:
            return attribute.f if attribute.type == attribute.FLOAT else attribute.i
    return default
