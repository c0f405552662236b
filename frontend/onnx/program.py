"""The result of an export."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.runtime import files

from ..functions.from_data import tensor
from ..inspection.tracing import tensors_of
from .package import require_onnx
from .session import LIMIT, arrays_of, session_of

if TYPE_CHECKING:
    from .._tensor import Tensor

SMALLEST_OUTSIDE = 1024
"""Bytes of the smallest weight that external data holds."""


class ONNXProgram:
    """An ONNX model: `model_proto`, which can be saved, and called by onnxruntime."""

    def __init__(self, model_proto: Any, exported_program: Any = None):
        self.model_proto = model_proto
        self.exported_program = exported_program
        self._session: Any = None

    @property
    def model(self) -> Any:
        """The ModelProto."""
        return self.model_proto

    # ---- files -------------------------------------------------------------------------------

    def save(
        self,
        destination: Any,
        *,
        include_initializers: bool = True,
        keep_initializers_as_inputs: bool = False,
        external_data: bool | None = None,
    ) -> None:
        """Write the model to a path or a binary file.

        include_initializers: whether weights are written. keep_initializers_as_inputs: whether they
        are inputs too, which a run may replace. external_data: write weights to a file of their own
        beside the path, `NAME.data`; so are those of a model beyond protobuf's limit of 2 GB.
        """
        onnx = require_onnx()
        proto = self.model_proto
        if keep_initializers_as_inputs or not include_initializers:
            proto = _with_weights_as_inputs(onnx, proto, include_initializers)
        if not isinstance(destination, (str, os.PathLike)):
            destination.write(proto.SerializeToString())
            return
        path = Path(destination)
        if proto.ByteSize() < LIMIT and not external_data:
            with files.whole(path) as file:
                file.write(proto.SerializeToString())
            return
        location = path.name + ".data"
        path.with_name(location).unlink(missing_ok=True)  # onnx would append to it
        copy = onnx.ModelProto()
        copy.CopyFrom(proto)
        onnx.save(
            copy,
            str(path),
            save_as_external_data=True,
            location=location,
            size_threshold=SMALLEST_OUTSIDE,
        )

    # ---- runs --------------------------------------------------------------------------------

    def initialize_inference_session(self, initializer: Callable[[Any], Any] | None = None) -> None:
        """Make the session of onnxruntime that calls use. initializer: makes one of the bytes of
        the model."""
        proto = self.model_proto
        if initializer is None:
            self._session = session_of(proto)
        else:
            self._session = initializer(proto.SerializeToString())

    def release(self) -> None:
        """Drop the session."""
        self._session = None

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
        """Run the model in onnxruntime, with the arguments that the exported one takes."""
        if self._session is None:
            self.initialize_inference_session()
        return self._tensors(self._session.run(None, self._feed(args, kwargs)))

    def call_reference(self, *args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
        """Run the model in the evaluator of the package onnx, which is slow and exact."""
        onnx = require_onnx()
        from onnx.reference import ReferenceEvaluator

        del onnx
        run = ReferenceEvaluator(self.model_proto).run
        return self._tensors(run(None, self._feed(args, kwargs)))

    def compute_values(
        self, value_names: Sequence[str], args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> tuple[Tensor, ...]:
        """The values of that name inside of the model, for these arguments."""
        onnx = require_onnx()
        proto = onnx.ModelProto()
        proto.CopyFrom(self.model_proto)
        del proto.graph.output[:]
        for name in value_names:
            proto.graph.output.add().name = name
        run = session_of(proto).run
        return self._tensors(run(list(value_names), self._feed(args, kwargs or {})))

    def _feed(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        weights = {w.name for w in self.model_proto.graph.initializer}
        names = [i.name for i in self.model_proto.graph.input if i.name not in weights]
        given = dict(tensors_of("", list(args)))
        by_name = {n: t for key, value in kwargs.items() for n, t in tensors_of(key, value)}
        rest = [n for n in names if n not in by_name]
        if set(by_name) - set(names) or len(rest) != len(given):
            raise ValueError(
                f"the program takes {len(names)} tensors ({', '.join(names)}), got {len(given)} "
                f"without a name and {', '.join(by_name) or 'none'} by name"
            )
        every = {**by_name, **dict(zip(rest, given.values(), strict=True))}
        return dict(zip(every, arrays_of(list(every.values())), strict=True))

    def _tensors(self, arrays: Sequence[Any]) -> tuple[Tensor, ...]:
        return tuple(tensor(np.asarray(a)) for a in arrays)

    # ---- changes -----------------------------------------------------------------------------

    def optimize(self) -> None:
        """Fold what depends on weights and constants alone, and drop what nothing reads."""
        from .folding import fold

        fold(self.model_proto)
        self.release()

    def apply_weights(self, state_dict: Mapping[str, Any]) -> None:
        """Replace weights, by their names in the state_dict. Those in another form (the gates of an
        LSTM) stay."""
        onnx = require_onnx()
        for weight in self.model_proto.graph.initializer:
            given = state_dict.get(weight.name)
            if given is None:
                continue
            (array,) = arrays_of([given])
            if list(array.shape) != list(weight.dims):
                raise ValueError(
                    f"apply_weights: {weight.name} has shape {list(weight.dims)}, got "
                    f"{list(array.shape)}"
                )
            weight.CopyFrom(onnx.numpy_helper.from_array(np.ascontiguousarray(array), weight.name))
        self.release()

    def rename_axes(self, rename_mapping: Mapping[Any, str]) -> None:
        """Give sizes other names. Sizes that are formulas of them keep the old names' place."""
        graph = self.model_proto.graph
        for value in (*graph.input, *graph.output, *graph.value_info):
            for dim in value.type.tensor_type.shape.dim:
                if dim.dim_param:
                    dim.dim_param = _renamed(dim.dim_param, rename_mapping)
        self.release()

    def quantized(self, samples: Any, **options: Any) -> ONNXProgram:
        """The program with weights and activations of 8 bits: see `quantization.quantize`."""
        from .quantization import quantize

        def feed(sample: Any) -> dict[str, np.ndarray]:
            return self._feed(sample if isinstance(sample, (tuple, list)) else (sample,), {})

        return ONNXProgram(quantize(self.model_proto, feed, samples, **options))

    def __repr__(self) -> str:
        graph = self.model_proto.graph
        return f"<ONNXProgram {graph.name}: {len(graph.node)} nodes>"


def _renamed(text: str, names: Mapping[Any, str]) -> str:
    import re

    known = {str(k): v for k, v in names.items()}
    return re.sub(r"[A-Za-z_]\w*", lambda m: known.get(m.group(), m.group()), text)


def _with_weights_as_inputs(onnx: Any, proto: Any, kept: bool) -> Any:
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    helper, graph = onnx.helper, copy.graph
    for weight in graph.initializer:
        graph.input.append(
            helper.make_tensor_value_info(weight.name, weight.data_type, list(weight.dims))
        )
    if not kept:
        del graph.initializer[:]
    return copy
