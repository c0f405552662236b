"""Shapes and dtypes of the values in a graph, by a run of it."""

from __future__ import annotations

from typing import Any, NamedTuple

from tilewright.ir.dtype import DType

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
    if not isinstance(value, Handle):
        return value
    t: Any = value
    return TensorMetadata(t.shape, t.dtype, t.requires_grad, t.stride(), None, False, {})


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
