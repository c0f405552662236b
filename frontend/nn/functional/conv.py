"""Convolutions, and padding."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.ir import ops
from tilewright.ir.dtype import BOOL, SIGNED, UNSIGNED, int64
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node
from tilewright.ir.shape import require_positive

from ...functions.arguments import is_whole
from ...functions.call import public
from ...functions.fitting import fitting
from ...functions.promotion import WHOLE, refuse
from ...recording import record
from ...recording.builders import LOWER, builder

if TYPE_CHECKING:
    from ..._tensor import Tensor
    from .signatures import Convolution, TransposedConvolution


def tuple_of(value: int | Sequence[int], dims: int, what: str = "argument") -> tuple[int, ...]:
    """A number for each of `dims` dimensions."""
    if isinstance(value, int) or is_whole(value):
        return (int(value),) * dims  # type: ignore[arg-type]
    out = tuple(int(v) for v in value)
    if len(out) == 1:
        out *= dims
    if len(out) != dims:
        raise RuntimeError(
            f"expected {what} to be a single integer value or a list of {dims} values to match the "
            f"convolution dimensions, but got {what}={list(out)}{at_user_line()}"
        )
    return out


def _said(
    padding: str, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> tuple[int | tuple[int, int], ...]:
    """The padding that a word stands for. It is an argument of the recorded call, as a call of
    another kernel has another one, which doesn't follow from the kernel's size by a simple rule."""
    if padding == "valid":
        return (0,) * len(kernel)
    if padding != "same":
        raise RuntimeError(
            f"Invalid padding string: '{padding}', expected 'same' or 'valid'{at_user_line()}"
        )
    if any(s != 1 for s in stride):
        raise RuntimeError(
            f"padding='same' is not supported for strided convolutions{at_user_line()}"
        )
    spread = [d * (k - 1) for k, d in zip(kernel, dilation)]  # a kernel of another rank is refused
    return tuple((s // 2, s - s // 2) for s in spread)


def _pairs(padding: Sequence[int | tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    pairs = tuple(p if isinstance(p, tuple) else (p, p) for p in padding)
    if any(p < 0 for pair in pairs for p in pair):
        raise RuntimeError(f"negative padding is not supported{at_user_line()}")
    return pairs


def _check_dtypes(x: Node, weight: Node, bias: Sequence[Node]) -> None:
    for name, other in (("weight", weight), *(("bias", b) for b in bias)):
        if other.dtype is not x.dtype:
            raise RuntimeError(
                f"Input type ({x.dtype}) and {name} type ({other.dtype}) should be the same"
                f"{at_user_line()}"
            )


def _need_product(name: str, x: Node, groups: int, *categories: int) -> None:
    """Raise for groups that aren't positive, and for dtypes of these categories that PyTorch's
    routine doesn't take: it takes int64."""
    if groups <= 0:
        raise RuntimeError(f"non-positive groups is not supported{at_user_line()}")
    if x.dtype is not int64:
        refuse(name, x, *categories)


def _batched(dims: int, x: Node, name: str) -> tuple[Node, bool]:
    """`x` with a batch dimension, and whether that had to be added."""
    if x.rank == dims + 1:
        return ops.unsqueeze(x, 0), True
    if x.rank != dims + 2:
        raise RuntimeError(
            f"Expected {dims + 1}D (unbatched) or {dims + 2}D (batched) input to {name}, but got "
            f"input of size: {list(x.shape)}{at_user_line()}"
        )
    return x, False


def _biased(y: Node, bias: Sequence[Node], alone: bool) -> Node:
    if bias:
        if bias[0].shape != (y.shape[1],):
            raise RuntimeError(
                f"Given weight with {y.shape[1]} output channels, expected bias to be "
                f"1-dimensional with {y.shape[1]} elements, "
                f"but got bias of size {list(bias[0].shape)} instead{at_user_line()}"
            )
        y = y + ops.reshape(bias[0], (1, y.shape[1], *(1 for _ in y.shape[2:])))
    return ops.squeeze(y, (0,)) if alone else y


def _conv_builder(dims: int) -> Callable[..., Node]:
    def build(x: Node, weight: Node, *args: Any) -> Node:
        *bias, stride, padding, dilation, groups = args
        x, alone = _batched(dims, x, f"conv{dims}d")
        if weight.rank != dims + 2:
            raise RuntimeError(
                f"conv{dims}d: expected weight[o, c, …] with {dims} spatial dimensions, got "
                f"{list(weight.shape)}{at_user_line()}"
            )
        _check_dtypes(x, weight, bias)
        _need_product(f"slow_conv{dims}d_cpu", x, groups, *((BOOL,) if dims < 3 else WHOLE))
        pairs = _pairs(padding)
        return _biased(ops.conv(x, weight, stride, pairs, dilation, groups), bias, alone)

    return builder(f"conv{dims}d", casts=LOWER, gradient="ConvolutionBackward0")(build)


def _conv(dims: int) -> Convolution:
    build = _conv_builder(dims)

    def conv(
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: int | Sequence[int] = 1,
        padding: str | int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
    ) -> Tensor:
        steps, spaces = tuple_of(stride, dims, "stride"), tuple_of(dilation, dims, "dilation")
        if isinstance(padding, str):
            around: tuple[Any, ...] = _said(padding, weight.shape[2:], steps, spaces)
        else:
            around = tuple_of(padding, dims, "padding")
        attrs = steps, around, spaces, operator.index(groups)
        if bias is None:
            return record(build, input, weight, *attrs)
        return record(build, input, weight, bias, *attrs)

    name = conv.__name__ = conv.__qualname__ = f"conv{dims}d"
    conv.__doc__ = (
        f"Cross-correlation of input[n, c, …] with weight[o, c / groups, …] over {dims} spatial "
        "dimensions.\n\n    padding: a number, one a dimension, 'valid' or 'same'."
    )
    return public(name, build, method=False)(conv)


conv1d, conv2d, conv3d = _conv(1), _conv(2), _conv(3)


def _transpose_builder(dims: int) -> Callable[..., Node]:
    def build(x: Node, weight: Node, *args: Any) -> Node:
        *bias, stride, padding, output_padding, groups, dilation = args
        x, alone = _batched(dims, x, f"conv_transpose{dims}d")
        _check_dtypes(x, weight, bias)
        _need_product(f"slow_conv_transpose{dims}d_out_cpu", x, groups, *WHOLE)
        require_positive(f"conv_transpose{dims}d", stride=stride, dilation=dilation)
        size = []
        for n, k, s, p, extra, d in zip(
            x.shape[2:], weight.shape[2:], stride, padding, output_padding, dilation, strict=True
        ):
            if extra >= max(s, d):
                raise RuntimeError(
                    "output padding must be smaller than either stride or dilation, but got "
                    f"output_padding {extra}, stride {s} and dilation {d}{at_user_line()}"
                )
            size.append((n - 1) * s - 2 * p + d * (k - 1) + extra + 1)
        pairs = tuple((p, p) for p in padding)
        y = ops.conv_input_grad(x, weight, tuple(size), stride, pairs, dilation, groups)
        return _biased(y, bias, alone)

    name = f"conv_transpose{dims}d"
    return builder(name, casts=LOWER, gradient="ConvolutionBackward0")(build)


def _transpose(dims: int) -> TransposedConvolution:
    build = _transpose_builder(dims)

    def conv_transpose(
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        output_padding: int | Sequence[int] = 0,
        groups: int = 1,
        dilation: int | Sequence[int] = 1,
    ) -> Tensor:
        attrs = (
            tuple_of(stride, dims, "stride"),
            tuple_of(padding, dims, "padding"),
            tuple_of(output_padding, dims, "output_padding"),
            operator.index(groups),
            tuple_of(dilation, dims, "dilation"),
        )
        if bias is None:
            return record(build, input, weight, *attrs)
        return record(build, input, weight, bias, *attrs)

    name = conv_transpose.__name__ = conv_transpose.__qualname__ = f"conv_transpose{dims}d"
    conv_transpose.__doc__ = (
        f"The transposed convolution over {dims} spatial dimensions: the gradient of conv{dims}d "
        "in its input.\n\n    input[n, c, …], weight[c, o / groups, …]."
    )
    return public(name, build, method=False)(conv_transpose)


conv_transpose1d, conv_transpose2d, conv_transpose3d = _transpose(1), _transpose(2), _transpose(3)


# Padding.


def _pad_name(args: Any) -> str:
    _, pad, mode, _ = args
    kind = {"reflect": "Reflection", "replicate": "Replication"}.get(mode)
    if kind is None:
        return "ConstantPadNdBackward0" if mode == "constant" else "CopySlices"
    return f"{kind}Pad{len(pad) // 2}DBackward0"


@builder("pad", gradient=_pad_name)
def _pad(x: Node, pad: tuple[int, ...], mode: str, value: complex) -> Node:
    dims = len(pad) // 2
    if len(pad) % 2 or dims > x.rank:
        raise RuntimeError(
            f"Padding length should be an even number and at most twice the input's {x.rank} "
            f"dimensions, got {list(pad)}{at_user_line()}"
        )
    if mode == "constant":
        return _pad_constant(x, pad, value)
    if mode in ("reflect", "replicate"):
        refuse("reflection_pad" if mode == "reflect" else "replication_pad", x, BOOL)
    for i in range(dims):
        axis, before, after = x.rank - 1 - i, pad[2 * i], pad[2 * i + 1]
        _need_room(x, axis, before, after)
        grow, crop = (max(before, 0), max(after, 0)), (max(-before, 0), max(-after, 0))
        if mode == "circular":  # goes round what is left
            x = _pad_axis(_cropped(x, axis, *crop), axis, *grow, mode)
        else:  # mirrors and repeats what was there
            x = _cropped(_pad_axis(x, axis, *grow, mode), axis, *crop)
    return x


def _cropped(x: Node, axis: int, before: int, after: int) -> Node:
    if not before and not after:
        return x
    return ops.slice_axis(x, axis, before, x.shape[axis] - after)


def _need_room(x: Node, axis: int, before: int, after: int) -> None:
    if x.shape[axis] + before + after < 0:
        raise RuntimeError(
            f"The input size {x.shape[axis]}, plus negative padding {before} and {after}, "
            f"resulted in a negative output size{at_user_line()}"
        )


def _pad_constant(x: Node, pad: tuple[int, ...], value: complex) -> Node:
    low, high = [0] * x.rank, [0] * x.rank
    starts, stops = [0] * x.rank, list(x.shape)
    for i in range(len(pad) // 2):
        axis, before, after = x.rank - 1 - i, pad[2 * i], pad[2 * i + 1]
        low[axis], high[axis] = max(before, 0), max(after, 0)
        # Negative padding crops.
        starts[axis], stops[axis] = max(-before, 0), x.shape[axis] + min(after, 0)
        _need_room(x, axis, before, after)
    inside = ops.slice_(x, starts, stops, [1] * x.rank)
    return ops.pad(inside, low, high, value=ops.constant(value, x.dtype))


def _pad_axis(x: Node, axis: int, before: int, after: int, mode: str) -> Node:
    size = x.shape[axis]

    def part(start: int, stop: int) -> Node:
        return ops.slice_axis(x, axis, start, stop)

    limit = size - 1 if mode == "reflect" else size
    if mode != "replicate" and max(before, after) > limit:
        raise RuntimeError(
            f"Padding size should be less than the corresponding input dimension, but got: padding "
            f"({before}, {after}) at dimension {axis} of input {list(x.shape)}{at_user_line()}"
        )
    if mode == "reflect" and axis < x.rank - 1:
        # Reads at places: parts of several axes, joined, would nest in one kernel.
        place = ops.abs(ops.iota(before + size + after) - before)
        return ops.gather(x, (size - 1) - ops.abs((size - 1) - place), axis)
    if mode == "reflect":
        left, right = (
            ops.flip(part(start, start + count), (axis,))
            for start, count in ((1, before), (size - 1 - after, after))
        )
    elif mode == "circular":
        left, right = part(size - before, size), part(0, after)
    elif mode == "replicate":
        shape = list(x.shape)
        left = ops.expand(part(0, 1), (*shape[:axis], before, *shape[axis + 1 :]))
        right = ops.expand(part(size - 1, size), (*shape[:axis], after, *shape[axis + 1 :]))
    else:
        raise NotImplementedError(f"Unrecognised padding mode {mode}{at_user_line()}")
    parts = [p for p, n in ((left, before), (x, size), (right, after)) if n]
    return ops.cat(parts, axis) if parts else x


def pad(
    input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> Tensor:
    """`input` padded. `pad` is (before, after) for the last dimension, then the one before, ….

    mode: 'constant', 'reflect', 'replicate' or 'circular'. Negative numbers crop.
    """
    sizes = tuple(int(p) for p in pad)
    number = 0.0 if value is None else complex(value) if input.is_complex() else float(value)
    return record(_pad, input, sizes, mode, fitting(number, input.dtype))


@builder("unfold", gradient="Im2ColBackward0")
def _unfold(x: Node, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Node:
    x, alone = _batched(2, x, "unfold")
    refuse("im2col_out_cpu", x, UNSIGNED, SIGNED)
    outer = (0, 0)
    padded = ops.pad(x, (*outer, *padding), (*outer, *padding))
    view = ops.windows(padded, (2, 3), kernel, stride, dilation)  # [n, c, *out, *kernel]
    n, c, h, w = view.shape[:4]
    order = ops.permute(view, (0, 1, 4, 5, 2, 3))
    y = ops.reshape(order, (n, c * kernel[0] * kernel[1], h * w))
    return ops.squeeze(y, (0,)) if alone else y


def unfold(
    input: Tensor,
    kernel_size: int | Sequence[int],
    dilation: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    stride: int | Sequence[int] = 1,
) -> Tensor:
    """The windows of input[n, c, h, w] as columns: [n, c * kernel, windows]."""
    attrs = [tuple_of(v, 2) for v in (kernel_size, dilation, padding, stride)]
    return record(_unfold, input, *attrs)


@builder("fold", gradient="Col2ImBackward0")
def _fold(x: Node, output_size: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Node:
    require_positive("fold", stride=stride, dilation=dilation)
    alone = x.rank == 2
    if alone:
        x = ops.unsqueeze(x, 0)
    padded = [s + 2 * p for s, p in zip(output_size, padding, strict=True)]
    out = [
        (s - d * (k - 1) - 1) // t + 1
        for s, k, d, t in zip(padded, kernel, dilation, stride, strict=True)
    ]
    c = x.shape[1] // (kernel[0] * kernel[1])
    view = ops.reshape(x, (x.shape[0], c, *kernel, *out))
    view = ops.permute(view, (0, 1, 4, 5, 2, 3))
    y = ops.fold(view, (x.shape[0], c, *padded), (2, 3), kernel, stride, dilation)
    y = ops.slice_axis(y, 2, padding[0], padding[0] + output_size[0])
    y = ops.slice_axis(y, 3, padding[1], padding[1] + output_size[1])
    return ops.squeeze(y, (0,)) if alone else y


def fold(
    input: Tensor,
    output_size: int | Sequence[int],
    kernel_size: int | Sequence[int],
    dilation: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    stride: int | Sequence[int] = 1,
) -> Tensor:
    """The adjoint of `unfold`: overlapping columns summed into [n, c, *output_size]."""
    values = (output_size, kernel_size, dilation, padding, stride)
    return record(_fold, input, *[tuple_of(v, 2) for v in values])


def _pixel_shuffle(x: Node, r: int) -> Node:
    *lead, c, h, w = x.shape
    if c % (r * r):
        raise RuntimeError(
            "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square "
            f"of upscale_factor, but input.size(-3)={c} is not divisible by {r * r}{at_user_line()}"
        )
    k = len(lead)
    y = ops.reshape(x, (*lead, c // (r * r), r, r, h, w))
    y = ops.permute(y, (*range(k), k, k + 3, k + 1, k + 4, k + 2))
    return ops.reshape(y, (*lead, c // (r * r), h * r, w * r))


@public("pixel_shuffle", _pixel_shuffle, method=False)
def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """[…, c r^2, h, w] to […, c, h r, w r]."""
    return record(_pixel_shuffle, input, int(upscale_factor))


@public("conv_tbc", method=False)
def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """conv1d of input[time, batch, in] with weight[k, in, out] and bias[out]; the result is
    [time, batch, out]."""
    for name, given, rank in (("Input", input, 3), ("Weight", weight, 3), ("Bias", bias, 1)):
        if given.dim() != rank:
            raise RuntimeError(
                f"{name} must have {rank} dims, got {given.dim()}: conv_tbc takes input[time, "
                f"batch, in], weight[k, in, out] and bias[out]{at_user_line()}"
            )
    made = conv1d(input.permute(1, 2, 0), weight.permute(2, 1, 0), bias, padding=pad)
    return made.permute(2, 0, 1)
