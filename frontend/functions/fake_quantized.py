"""Fake quantization: tensors of floats, rounded as quantized ones would be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.location import at_user_line

from ..recording import Handle, record
from .creation import zeros_like
from .from_data import tensor
from .masks import where
from .quantized import require_channels

if TYPE_CHECKING:
    from .._tensor import Tensor


def _require_order(low: int, high: int) -> None:
    if low > high:
        raise RuntimeError(
            f"`quant_min` should be less than or equal to `quant_max`, got {low} and {high}"
            f"{at_user_line()}"
        )


def fake_quantize_per_tensor_affine(
    input: Tensor,
    scale: float | Tensor,
    zero_point: int | Tensor,
    quant_min: int,
    quant_max: int,
) -> Tensor:
    """`input` rounded to the numbers for which integers from quant_min to quant_max stand. The
    gradient goes straight through where no integer is cut off."""
    _require_order(quant_min, quant_max)
    if not isinstance(zero_point, Handle) and not quant_min <= zero_point <= quant_max:
        raise RuntimeError(
            f"`zero_point` must be between `quant_min` and `quant_max`, got {zero_point}"
            f"{at_user_line()}"
        )
    scale, zero_point = (
        n.reshape(()) if isinstance(n, Handle) else tensor(n, device=input.device)
        for n in (scale, zero_point)
    )
    return _fake(input, scale, zero_point, None, quant_min, quant_max)


def fake_quantize_per_channel_affine(
    input: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int
) -> Tensor:
    """The same with a scale and a zero point for each place along `axis`. Whether zero points lie
    between quant_min and quant_max isn't looked at: it would end the recording."""
    _require_order(quant_min, quant_max)
    if scale.shape != zero_point.shape:
        raise RuntimeError(
            f"scale and zero-point need to have the same dimensions, got {tuple(scale.shape)} and "
            f"{tuple(zero_point.shape)}{at_user_line()}"
        )
    require_channels(input, scale, axis)
    if zero_point.dtype is dtypes.int64:
        raise RuntimeError(
            "Zero-point must be Int32, Float or Half, got torch.int64: call zero_point.int()"
            f"{at_user_line()}"
        )
    if zero_point.dtype.is_floating_point:
        return _fake_by_floats(input, scale, zero_point, axis, quant_min, quant_max)
    return _fake(input, scale, zero_point, axis % input.dim(), quant_min, quant_max)


def _fake(
    input: Tensor, scale: Tensor, zero_point: Tensor, axis: int | None, low: int, high: int
) -> Tensor:
    return record(
        ops.fake_quantize, input, scale.detach(), zero_point.detach(), axis, int(low), int(high)
    )


def _fake_by_floats(
    input: Tensor, scale: Tensor, zero_point: Tensor, axis: int, low: int, high: int
) -> Tensor:
    """The same with zero points that aren't integers."""
    shape = [1] * input.dim()
    shape[axis] = -1
    step, zero = scale.detach().view(shape), zero_point.detach().view(shape)
    codes = (input.detach() * step.reciprocal() + zero).round()
    inside = (codes >= low) & (codes <= high)
    rounded = (codes.clamp(low, high) - zero) * step
    return rounded + (input - input.detach()) * inside  # the second term is 0, with a gradient


def _fake_quantize_learnable_per_tensor_affine(
    input: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    quant_min: int,
    quant_max: int,
    grad_factor: float = 1.0,
) -> Tensor:
    """Fake quantization with gradients of `scale` and `zero_point` (one element each), which are
    multiplied by `grad_factor`. The zero point is rounded. Esser et al., Learned Step Size
    Quantization, 2020."""
    step, zero = scale.reshape(()), zero_point.reshape(())
    return _learnable(input, step, zero, quant_min, quant_max, grad_factor)


def _fake_quantize_learnable_per_channel_affine(
    input: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    axis: int,
    quant_min: int,
    quant_max: int,
    grad_factor: float = 1.0,
) -> Tensor:
    """The same with a scale and a zero point for each place along `axis`."""
    require_channels(input, scale, axis)
    shape = [1] * input.dim()
    shape[axis] = -1
    step, zero = scale.view(shape), zero_point.view(shape)
    return _learnable(input, step, zero, quant_min, quant_max, grad_factor)


def _learnable(x: Tensor, step: Tensor, zero: Tensor, low: int, high: int, factor: float) -> Tensor:
    """Beside the value stand terms that are 0, with the gradients: that of the step is the rounded
    number minus x, over the step, and -zero or the end where the integer is cut off; that of the
    zero point is -step there."""
    held, size, middle = x.detach(), step.detach(), zero.detach()
    centre = (middle + 0.5).floor().clamp(low, high)
    codes = (held * size.reciprocal()).round() + centre
    kept = codes.clamp(low, high) - centre
    inside = (codes >= low) & (codes <= high)
    value = kept * size
    of_step = where(inside, kept - held / size, kept) * factor
    of_zero = where(inside, zeros_like(value), -size.expand(value.shape)) * factor
    return value + (x - held) * inside + (step - size) * of_step + (zero - middle) * of_zero


def fbgemm_parameters(
    low: np.ndarray, high: np.ndarray, least: int, most: int, symmetric: bool
) -> tuple[np.ndarray, np.ndarray]:
    """(scales, zero points) with which integers from `least` to `most` cover the ranges from `low`
    to `high` and 0, as FBGEMM chooses them: a symmetric scale uses the least integer as well."""
    low, high = np.minimum(low.astype(np.float64), 0), np.maximum(high.astype(np.float64), 0)
    balanced = symmetric & (low < 0) & (high > 0)
    below, above = (most - least) // 2 + 1, (most - least) // 2
    widest = np.maximum(-low / below, high / above)
    width = np.where(balanced, widest * (below + above), high - low)
    scale = width / (most - least)
    scale = np.where(scale.astype(np.float32) == 0, 0.1, scale)
    # Of both ends, the one whose zero point is the more exact.
    of_low, of_high = least - low / scale, most - high / scale
    closer = abs(least) - low / scale < abs(most) + high / scale
    zero = np.clip(np.rint(np.where(closer, of_low, of_high)), least, most)
    zero = np.where(balanced, np.rint((least + most) / 2), zero)
    return scale.astype(np.float32), zero.astype(np.int32)


def fused_moving_avg_obs_fake_quant(
    input: Tensor,
    observer_on: Tensor,
    fake_quant_on: Tensor,
    running_min: Tensor,
    running_max: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    averaging_const: float,
    quant_min: int,
    quant_max: int,
    ch_axis: int,
    per_row_fake_quant: bool = False,
    symmetric_quant: bool = False,
) -> Tensor:
    """`input`, rounded to integers from quant_min to quant_max if `fake_quant_on`.

    If `observer_on`, the averages of the least and largest numbers, the scale and the zero point
    are written first: of each place along `ch_axis`, if `per_row_fake_quant`.
    """
    if observer_on.item():
        x = input.detach()
        if per_row_fake_quant:
            rows = x.movedim(ch_axis, 0).flatten(1)
            low, high = rows.amin(1), rows.amax(1)
        else:
            low, high = x.min(), x.max()
        for running, now in ((running_min, low), (running_max, high)):
            begun = running.numel() and not running.isinf().any()
            found = running + averaging_const * (now - running) if begun else now
            running.resize_(found.shape).copy_(found)
        limits = [np.atleast_1d(t.numpy()) for t in (running_min, running_max)]
        chosen = fbgemm_parameters(limits[0], limits[1], quant_min, quant_max, symmetric_quant)
        for written, value in zip((scale, zero_point), chosen, strict=True):
            written.resize_(value.shape).copy_(tensor(value))
    if not fake_quant_on.item():
        return input
    if per_row_fake_quant:
        return fake_quantize_per_channel_affine(
            input, scale, zero_point, ch_axis, quant_min, quant_max
        )
    return fake_quantize_per_tensor_affine(input, scale, zero_point, quant_min, quant_max)
