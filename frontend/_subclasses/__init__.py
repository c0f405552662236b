"""torch._subclasses: tensors without values, which tell a device."""

from .fake_tensor import (
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)

__all__ = ["DynamicOutputShapeException", "FakeTensor", "FakeTensorMode"]
