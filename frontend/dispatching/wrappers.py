"""Wrappers: tensors of a class with `__torch_dispatch__` that have no memory of their own.

A wrapper is a compound without rules (`recording/compounds.py`): what nobody answers for is an
error.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from tilewright.ir.dtype import DType
from tilewright.ir.location import at_user_line
from tilewright.ir.shape import Size, contiguous_strides

from .. import _tensor, devices, layouts, overriding, recording
from ..recording.compounds import COMPOUND
from .asking import asked


class Wrapper:
    """What a tensor without memory of its own tells of itself. A class of such tensors gets these
    in the place of Tensor's."""

    _wrapped: tuple[Size, DType, str, tuple[int, ...], Any]

    def _typed(self) -> tuple[Size, DType, str]:
        return self._wrapped[:3]

    shape = property(lambda self: self._wrapped[0])
    dtype = property(lambda self: self._wrapped[1])
    layout = property(lambda self: self._wrapped[4])
    requires_grad = property(lambda self: False, lambda self, value: self.requires_grad_(value))
    is_leaf = property(lambda self: True)
    grad_fn = property(lambda self: None)

    def stride(self, dim: int | None = None) -> Any:
        return self._wrapped[3] if dim is None else self._wrapped[3][dim]

    def is_contiguous(self, memory_format: Any = None) -> bool:
        return self._wrapped[3] == tuple(contiguous_strides(self._wrapped[0]))

    def storage_offset(self) -> int:
        return 0

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        if requires_grad:
            _refuse_gradients(type(self))
        return self

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        shape, dtype, device, *_ = self._wrapped
        return f"{type(self).__name__}(size={tuple(shape)}, dtype={dtype}, device='{device}')"


def _refuse_gradients(cls: type) -> None:
    raise NotImplementedError(
        f"{cls.__name__}: a tensor with a __torch_dispatch__ can't require a gradient here, as it "
        "is asked above autograd. Let the tensors that it wraps require it, or write an "
        f"autograd.Function{at_user_line()}"
    )


_prepared: set[type] = set()
_PYTHONS = {"__module__", "__doc__", "__dict__", "__weakref__", "__annotations__"}


def make_wrapper(
    cls: type,
    size: Sequence[int],
    strides: Sequence[int] | None = None,
    storage_offset: int = 0,
    memory_format: Any = None,
    dtype: Any = None,
    layout: Any = layouts.strided,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    **_: Any,
) -> Any:
    """A tensor of class `cls` without memory, of this size, dtype and device."""
    if not callable(getattr(cls, "__torch_dispatch__", None)):
        raise RuntimeError(
            f"{cls.__name__}: _make_wrapper_subclass needs a class with a __torch_dispatch__"
            f"{at_user_line()}"
        )
    if requires_grad:
        _refuse_gradients(cls)
    if cls not in _prepared:
        _prepared.add(cls)
        overriding.dispatch(asked)
        base = _tensor.Tensor
        for name, value in vars(Wrapper).items():
            if (
                name in vars(base)
                and name not in _PYTHONS
                and inspect.getattr_static(cls, name) is vars(base)[name]
            ):
                setattr(cls, name, value)
        overriding.adopt(cls)
    where = devices.resolve(device)
    shape = Size(map(int, size))
    steps = tuple(contiguous_strides(shape) if strides is None else map(int, strides))
    made: Any = object.__new__(cls)
    made._node = COMPOUND
    made._wrapped = (shape, recording.named_dtype(dtype), where, steps, layout)
    return made
