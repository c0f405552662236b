"""torch._subclasses: PyTorch's tensors without values. Tensors on the device `meta` are ours."""

from .fake_tensor import FakeTensor, FakeTensorMode

__all__ = ["FakeTensor", "FakeTensorMode"]
