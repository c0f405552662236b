"""Shapes and dtypes of the values in a graph, by a run of it."""

from __future__ import annotations

from typing import Any, NamedTuple

from tilewright.ir.dtype import DType

from ...layouts import channels_last, channels_last_3d, contiguous_format
from ...recording import Handle
from ..interpreter import Interpreter
from ..node import Node, map_aggregate

__all__ = ["ShapeProp", "TensorMetadata"]


class TensorMetadata(NamedTuple):
    """What is known of a tensor."""

    shape: Any
    dtype: DType
    requires_grad: bool
    stride: tuple[int, ...]
    memory_format: Any
    is_quantized: bool
    qparams: dict[str, Any]


def _described(value: Any) -> Any:
    return _extract_tensor_metadata(value) if isinstance(value, Handle) else value


def _extract_tensor_metadata(result: Any, include_contiguity: bool = True) -> TensorMetadata:
    """What is known of a tensor. include_contiguity: whether its memory format is looked for."""
    formats = (contiguous_format, channels_last, channels_last_3d) if include_contiguity else ()
    ranks = {channels_last: 4, channels_last_3d: 5}
    found = (
        f
        for f in formats
        if result.dim() == ranks.get(f, result.dim()) and result.is_contiguous(memory_format=f)
    )
    return TensorMetadata(
        result.shape,
        result.dtype,
        result.requires_grad,
        result.stride(),
        next(found, None),
        result.is_quantized,
        {},
    )


class ShapeProp(Interpreter):
    """Runs a module, and notes in each node's meta the `tensor_meta` and the type of its value."""

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        noted = map_aggregate(result, _described)
        if noted is not result:
            n.meta["tensor_meta"] = noted
        n.meta["type"] = type(result)
        return result

    def propagate(self, *args: Any) -> Any:
        """Run the module with these inputs."""
        return super().run(*args)
