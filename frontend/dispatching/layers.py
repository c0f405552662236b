"""Layers that PyTorch has as formulas over operators of `aten`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir.dtype import DType
from tilewright.ir.location import at_user_line, warn

from ..overriding import plain
from ..recording import Handle
from . import late
from .calls import answers, operator

Function = Callable[..., Any]


def unasked(func: Function, *args: Any, **options: Any) -> Any:
    """A call that has no formula here: modes aren't asked for it, and are told so. An error for
    tensors that have a `__torch_dispatch__`."""
    name = func.__name__
    if any(answers(each) for each in (*args, *options.values())):
        raise NotImplementedError(
            f"{name}: these arguments have no formula for __torch_dispatch__ here{at_user_line()}"
        )
    warn(f"{name}: modes with __torch_dispatch__ aren't asked for these arguments", once=True)
    return plain(func)(*args, **options)


# ---- convolutions --------------------------------------------------------------------------------


def _several(value: Any, count: int) -> list[int]:
    return [*value] if isinstance(value, Sequence) else [value] * count


def convolution(dims: int) -> Function:
    def formula(
        input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
        dilation: Any = 1, groups: int = 1,
    ) -> Any:  # fmt: skip
        steps, spread = _several(stride, dims), _several(dilation, dims)
        if padding == "same":
            total = [d * (k - 1) for d, k in zip(spread, weight.shape[2:])]
            odd = [side for n in reversed(total) for side in (0, n % 2)]
            if any(odd):
                input = operator(late.aten().constant_pad_nd.default, input, odd)
            padding = [n // 2 for n in total]
        around = [0] * dims if padding == "valid" else _several(padding, dims)
        given = weight, bias, steps, around, spread, False, [0] * dims, groups
        return _batched(input, dims, *given)

    return formula


def convolution_transposed(dims: int) -> Function:
    def formula(
        input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
        output_padding: Any = 0, groups: int = 1, dilation: Any = 1,
    ) -> Any:  # fmt: skip
        numbers = [_several(v, dims) for v in (stride, padding, dilation)]
        return _batched(
            input, dims, weight, bias, *numbers, True, _several(output_padding, dims), groups
        )

    return formula


def _batched(input: Any, dims: int, *given: Any) -> Any:
    op = late.aten().convolution.default
    if input.dim() == dims + 2:
        return operator(op, input, *given)
    return late.top().squeeze(operator(op, late.top().unsqueeze(input, 0), *given), 0)


# ---- norms ---------------------------------------------------------------------------------------


def batch_norm(
    input: Any, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None,
    training: bool = False, momentum: float = 0.1, eps: float = 1e-5,
) -> Any:  # fmt: skip
    op = late.aten().native_batch_norm.default
    return operator(op, input, weight, bias, running_mean, running_var, training, momentum, eps)[0]


def layer_norm(
    input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Any:
    op = late.aten().native_layer_norm.default
    return operator(op, input, list(normalized_shape), weight, bias, eps)[0]


def group_norm(
    input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Any:
    n, c, *rest = input.shape
    op = late.aten().native_group_norm.default
    return operator(op, input, weight, bias, n, c, math.prod(rest), num_groups, eps)[0]


def instance_norm(
    input: Any, running_mean: Any = None, running_var: Any = None, weight: Any = None,
    bias: Any = None, use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-5,
) -> Any:  # fmt: skip
    given = running_mean, running_var, weight, bias, use_input_stats, momentum, eps
    if running_mean is not None or not use_input_stats:
        return unasked(late.functional().instance_norm, input, *given)
    n, c, *rest = input.shape
    scale, shift = (None if t is None else late.top().Tensor.repeat(t, n) for t in (weight, bias))
    flat = input.view([1, n * c, *rest])
    return batch_norm(flat, None, None, scale, shift, True, momentum, eps).view([n, c, *rest])


# ---- pools and sizes -----------------------------------------------------------------------------


def max_pool(dims: int) -> Function:
    def formula(
        input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
        ceil_mode: bool = False, return_indices: bool = False,
    ) -> Any:  # fmt: skip
        op = getattr(late.aten(), f"max_pool{dims}d_with_indices").default
        kernel = _several(kernel_size, dims)
        steps = kernel if stride is None else _several(stride, dims)
        found = operator(
            op, input, kernel, steps, _several(padding, dims), _several(dilation, dims), ceil_mode
        )
        return found if return_indices else found[0]

    return formula


def adaptive_avg_pool(dims: int) -> Function:
    def formula(input: Any, output_size: Any) -> Any:
        wanted = _several(output_size, dims)
        axes = range(-dims, 0)
        size = [input.shape[a] if n is None else n for a, n in zip(axes, wanted)]
        if all(n == 1 for n in size):
            return late.top().mean(input, [*reversed(axes)], True)
        return operator(getattr(late.aten(), f"_adaptive_avg_pool{dims}d").default, input, size)

    return formula


_UPSAMPLED = {
    "nearest": "upsample_nearest{}d",
    "nearest-exact": "_upsample_nearest_exact{}d",
    "linear": "upsample_linear{}d",
    "bilinear": "upsample_bilinear{}d",
    "trilinear": "upsample_trilinear{}d",
    "bicubic": "upsample_bicubic{}d",
}


def interpolate(
    input: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
    align_corners: Any = None, recompute_scale_factor: Any = None, antialias: bool = False,
) -> Any:  # fmt: skip
    dims = input.dim() - 2
    if antialias or recompute_scale_factor or mode not in _UPSAMPLED:
        return unasked(
            late.functional().interpolate, input, size, scale_factor, mode, align_corners,
            recompute_scale_factor, antialias,
        )  # fmt: skip
    scales: list[float] = []
    if size is None:
        scales = [float(s) for s in _several(scale_factor, dims)]
        size = [math.floor(n * s) for n, s in zip(input.shape[2:], scales)]
    corners = [] if mode.startswith("nearest") else [bool(align_corners)]
    op = getattr(late.aten(), _UPSAMPLED[mode].format(dims)).default
    return operator(op, input, _several(size, dims), *corners, *scales)


def pad(input: Any, pad: Any, mode: str = "constant", value: Any = None) -> Any:
    around = list(pad)
    if mode == "constant":
        return operator(late.aten().constant_pad_nd.default, input, around, float(value or 0))
    if mode == "circular":
        return unasked(late.functional().pad, input, around, mode, value)
    kind = {"reflect": "reflection", "replicate": "replication"}[mode]
    return operator(getattr(late.aten(), f"{kind}_pad{len(around) // 2}d").default, input, around)


def unfold(
    input: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Any:
    given = [_several(each, 2) for each in (kernel_size, dilation, padding, stride)]
    return operator(late.aten().im2col.default, input, *given)


# ---- rows, attention, losses ---------------------------------------------------------------------


def embedding(
    input: Any, weight: Any, padding_idx: Any = None, max_norm: Any = None,
    norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False,
) -> Any:  # fmt: skip
    if max_norm is not None or scale_grad_by_freq or sparse:
        return unasked(
            late.functional().embedding, input, weight, padding_idx, max_norm, norm_type,
            scale_grad_by_freq, sparse,
        )  # fmt: skip
    at = [] if padding_idx is None else [padding_idx]
    return operator(late.aten().embedding.default, weight, input, *at)


def scaled_dot_product_attention(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    options = {} if attn_mask is None else {"attn_mask": attn_mask}
    options |= {} if scale is None else {"scale": scale}
    on_cpu = query.dim() == 4 and query.device.type == "cpu" and not dropout_p
    if not on_cpu or enable_gqa or query.shape[-1] != value.shape[-1]:
        function = late.functional().scaled_dot_product_attention
        return unasked(
            function, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa
        )
    op = late.aten()._scaled_dot_product_flash_attention_for_cpu.default
    return operator(op, query, key, value, 0.0, is_causal, **options)[0]


def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    if not training or p == 0:
        return input
    return operator(late.aten().native_dropout.default, input, p, True)[0]


def soft(name: str) -> Function:
    def formula(input: Any, dim: Any = None, *rest: Any, dtype: Any = None, **_: Any) -> Any:
        dtype = next((each for each in rest if isinstance(each, DType)), dtype)
        input = input if dtype is None else input.to(dtype)
        return operator(getattr(late.aten(), name).default, input, dim, False)

    return formula


_REDUCTIONS = ("none", "mean", "sum")


def nll_loss(
    input: Any, target: Any, weight: Any = None, size_average: Any = None,
    ignore_index: int = -100, reduce: Any = None, reduction: str = "mean",
) -> Any:  # fmt: skip
    how = _REDUCTIONS.index(reduction)
    if input.dim() <= 2:
        op = late.aten().nll_loss_forward.default
        return operator(op, input, target, weight, how, ignore_index)[0]
    shape, op = target.shape, late.aten().nll_loss2d_forward.default
    if input.dim() != 4:
        n, c, *_ = input.shape
        input = input.view([n, c, 1, math.prod(shape[1:])])
        target = target.view([n, 1, math.prod(shape[1:])])
    found = operator(op, input, target, weight, how, ignore_index)[0]
    return found.view(list(shape)) if reduction == "none" and len(shape) != 3 else found


def cross_entropy(
    input: Any, target: Any, weight: Any = None, size_average: Any = None,
    ignore_index: int = -100, reduce: Any = None, reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:  # fmt: skip
    if label_smoothing or target.dtype.is_floating_point:
        return unasked(
            late.functional().cross_entropy, input, target, weight, size_average, ignore_index,
            reduce, reduction, label_smoothing,
        )  # fmt: skip
    axis = 1 if input.dim() > 1 else 0
    logs = operator(late.aten()._log_softmax.default, input, axis, False)
    return nll_loss(logs, target, weight, None, ignore_index, None, reduction)


def binary_cross_entropy_with_logits(
    input: Any, target: Any, weight: Any = None, size_average: Any = None, reduce: Any = None,
    reduction: str = "mean", pos_weight: Any = None,
) -> Any:  # fmt: skip
    op, how = late.aten().binary_cross_entropy_with_logits.default, _REDUCTIONS.index(reduction)
    return operator(op, input, target, weight, pos_weight, how)


def l1_loss(
    input: Any, target: Any, size_average: Any = None, reduce: Any = None,
    reduction: str = "mean", weight: Any = None,
) -> Any:  # fmt: skip
    if weight is not None or not isinstance(target, Handle) or input.shape != target.shape:  # type: ignore[attr-defined]
        return unasked(
            late.functional().l1_loss, input, target, size_average, reduce, reduction, weight
        )
    away = late.top().abs(input - target)
    return away if reduction == "none" else getattr(late.top(), reduction)(away)


def known() -> dict[str, Function]:
    """The formulas, by the names that they have in nn.functional."""
    found: dict[str, Function] = {
        each.__name__: each
        for each in (
            *(batch_norm, layer_norm, group_norm, instance_norm, interpolate, pad, unfold),
            *(embedding, scaled_dot_product_attention, dropout, nll_loss, cross_entropy, l1_loss),
            binary_cross_entropy_with_logits,
        )
    }
    for d in (1, 2, 3):
        found[f"conv{d}d"], found[f"conv_transpose{d}d"] = convolution(d), convolution_transposed(d)
    for d in (2, 3):
        found[f"max_pool{d}d"], found[f"adaptive_avg_pool{d}d"] = max_pool(d), adaptive_avg_pool(d)
    return found
