"""The gradients of convolutions, given that of the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.ir.location import at_user_line

from ..autograd import grad, is_grad_enabled, set_grad_enabled
from ..functions.creation import zeros
from . import functional as F

if TYPE_CHECKING:
    from .._tensor import Tensor

__all__ = [f"conv{d}d_{what}" for d in (1, 2, 3) for what in ("input", "weight")]

Options = int | Sequence[int]


def _derived(convolve: Callable[..., Any], given: Any, size: Sequence[int], first: bool, g: Any,
             *options: Any) -> Any:  # fmt: skip
    """The gradient with respect to the operand of shape `size`, at which the convolution is
    linear: so its value doesn't matter."""
    keeps = is_grad_enabled()
    with set_grad_enabled(True):
        free = zeros(tuple(size), dtype=given.dtype, device=given.device).requires_grad_()
        x, weight = (free, given) if first else (given, free)
        made = convolve(x, weight, None, *options)
        if made.shape != g.shape:
            raise RuntimeError(
                f"expected a grad_output of shape {tuple(made.shape)}, got {tuple(g.shape)}"
                f"{at_user_line()}"
            )
        return grad(made, free, g, create_graph=keeps)[0]


def conv1d_input(
    input_size: Sequence[int],
    weight: Tensor,
    grad_output: Tensor,
    stride: Options = 1,
    padding: Options = 0,
    dilation: Options = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of conv1d with respect to its input, of shape `input_size`."""
    return _derived(
        F.conv1d, weight, input_size, True, grad_output, stride, padding, dilation, groups
    )


def conv1d_weight(
    input: Tensor,
    weight_size: Sequence[int],
    grad_output: Tensor,
    stride: Options = 1,
    padding: Options = 0,
    dilation: Options = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of conv1d with respect to its weight, of shape `weight_size`."""
    return _derived(
        F.conv1d, input, weight_size, False, grad_output, stride, padding, dilation, groups
    )


def conv2d_input(
    input_size: Sequence[int],
    weight: Tensor,
    grad_output: Tensor,
    stride: Options = 1,
    padding: Options = 0,
    dilation: Options = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of conv2d with respect to its input, of shape `input_size`."""
    return _derived(
        F.conv2d, weight, input_size, True, grad_output, stride, padding, dilation, groups
    )


def conv2d_weight(
    input: Tensor,
    weight_size: Sequence[int],
    grad_output: Tensor,
    stride: Options = 1,
    padding: Options = 0,
    dilation: Options = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of conv2d with respect to its weight, of shape `weight_size`."""
    return _derived(
        F.conv2d, input, weight_size, False, grad_output, stride, padding, dilation, groups
    )


def conv3d_input(
    input_size: Sequence[int],
    weight: Tensor,
    grad_output: Tensor,
    stride: Options = 1,
    padding: Options = 0,
    dilation: Options = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of conv3d with respect to its input, of shape `input_size`."""
    return _derived(
        F.conv3d, weight, input_size, True, grad_output, stride, padding, dilation, groups
    )


def conv3d_weight(
    input: Tensor,
    weight_size: Sequence[int],
    grad_output: Tensor,
    stride: Options = 1,
    padding: Options = 0,
    dilation: Options = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of conv3d with respect to its weight, of shape `weight_size`."""
    return _derived(
        F.conv3d, input, weight_size, False, grad_output, stride, padding, dilation, groups
    )
