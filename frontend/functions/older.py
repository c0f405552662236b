"""Methods of tensors that PyTorch keeps for older programs, and functions beside them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from tilewright.ir.location import at_user_line

from .. import recording
from ..recording import views
from . import arguments, creation, shapes
from .call import public

if TYPE_CHECKING:
    from tilewright.ir.dtype import DType

    from .._tensor import Tensor
    from ..types import DeviceLike


@public("resize", function=False)
def resize(self: Tensor, *sizes: Any) -> Tensor:
    """Deprecated: a tensor with the same elements in another shape."""
    warnings.warn("non-inplace resize is deprecated", stacklevel=2)
    shape = arguments.sizes(sizes)
    count = 1
    for n in shape:
        count *= n
    if count != self.numel():
        raise RuntimeError(
            f"requested resize to {'x'.join(map(str, shape))} ({count} elements in total), but the "
            f"given tensor has a size of {'x'.join(map(str, self.shape))} ({self.numel()} elements)"
            ". autograd's resize can only change the shape of a given tensor, while preserving the "
            f"number of elements.{at_user_line()}"
        )
    return self.contiguous().view(shape)


@public("resize_as", function=False)
def resize_as(self: Tensor, tensor: Tensor) -> Tensor:
    """Deprecated: a tensor with the same elements in the shape of another one."""
    return resize(self, tensor.shape)


@public("is_inference")
def is_inference(input: Tensor) -> bool:
    """Whether a tensor was made in inference mode, or is a view of such a tensor."""
    return recording.is_inference(input)


@public("is_distributed")
def is_distributed(input: Tensor) -> bool:
    """False."""
    return False


def empty_strided(
    size: Sequence[int],
    stride: Sequence[int],
    *,
    dtype: DType | None = None,
    layout: Any = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """A tensor of zeros with these strides."""
    if len(size) != len(stride):
        raise RuntimeError(
            f"dimensionality of sizes ({len(size)}) must match dimensionality of strides "
            f"({len(stride)}){at_user_line()}"
        )
    flat = creation.zeros(
        views.span(size, stride), dtype=dtype, device=device, pin_memory=pin_memory
    )
    return shapes.as_strided(flat, size, stride).detach().requires_grad_(requires_grad)


def empty_permuted(size: Sequence[int], physical_layout: Sequence[int], **options: Any) -> Tensor:
    """A tensor of zeros whose dimensions lie in memory in the order of `physical_layout`."""
    if sorted(physical_layout) != list(range(len(size))):
        raise RuntimeError(
            f"Dimensions of physical_layout must be those of size, got {tuple(physical_layout)}"
            f"{at_user_line()}"
        )
    stride, step = [0] * len(size), 1
    for axis in reversed(physical_layout):
        stride[axis] = step
        step *= max(size[axis], 1)
    return empty_strided(size, stride, **options)


@public("new_empty_strided", function=False)
def new_empty_strided(
    self: Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    dtype: DType | None = None,
    device: DeviceLike | None = None,
    **options: Any,
) -> Tensor:
    """A tensor of zeros with these strides, by default of this dtype and on this device."""
    dtype, device = dtype or self.dtype, self.device if device is None else device
    return empty_strided(size, stride, dtype=dtype, device=device, **options)


def _removed(name: str, instead: str) -> Callable[..., NoReturn]:
    def refuse(*args: Any, **options: Any) -> NoReturn:
        raise RuntimeError(
            f"This function was deprecated since version 1.9 and is now removed: {name}. Use "
            f"{instead} instead.{at_user_line()}"
        )

    refuse.__name__ = refuse.__qualname__ = name
    return refuse


for _name, _instead in (
    ("solve", "torch.linalg.solve(A, B)"),
    ("lstsq", "torch.linalg.lstsq(A, B)"),
    ("eig", "torch.linalg.eig(A)"),
    ("symeig", "torch.linalg.eigh(A)"),
):
    public(_name)(_removed(_name, _instead))
public("matrix_rank", method=False)(_removed("matrix_rank", "torch.linalg.matrix_rank(A)"))


def _absent(kind: str) -> Callable[..., Tensor]:
    def move(self: Tensor, device: Any = None, non_blocking: bool = False, **_: Any) -> Tensor:
        return self.to(kind)

    move.__name__ = move.__qualname__ = kind
    move.__doc__ = f"A copy on a device of the kind {kind}, which isn't here: an error."
    return move


for _name in ("xpu", "ipu", "mtia"):
    public(_name, function=False)(_absent(_name))


def get_device(input: Tensor) -> int:
    """The number of the tensor's GPU, -1 for the CPU."""
    return input.get_device()
