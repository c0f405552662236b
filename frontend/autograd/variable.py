"""torch.autograd.Variable: PyTorch's older class of tensors that collect gradients."""

from __future__ import annotations

from typing import Any

from ..recording import Handle
from .hooks import queue_callback


class VariableMeta(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Handle)


class _Engine:
    """What makes backward passes."""

    queue_callback = staticmethod(queue_callback)


class Variable(metaclass=VariableMeta):
    """Variable(tensor, requires_grad=False) returns a tensor that shares the memory of `tensor`.
    Every tensor is an instance."""

    _execution_engine = _Engine()

    def __new__(cls, data: Any, requires_grad: bool = False, volatile: Any = None) -> Any:
        if not isinstance(data, Handle):
            raise TypeError(f"Variable data has to be a tensor, but got {type(data).__name__}")
        out = data.detach()  # type: ignore[attr-defined]
        return out.requires_grad_() if requires_grad else out
