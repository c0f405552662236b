"""Functions that torch itself has beside those of torch.nn.functional: with the order of arguments,
the numbers for words and the further results of PyTorch's operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilewright.ir.location import at_user_line

from ... import recording
from ...functions import complexes, creation, masks, ranges, searching, shapes
from ...functions.joining import cat, stack
from ...functions.spellings import by_numpys_names
from . import bag, conv, grids, loss, normalization, recurrent, resampling
from .dropout import alpha_dropout, feature_alpha_dropout, of_channels
from .dropout import dropout as zeroed
from .linear import embedding as rows_of

if TYPE_CHECKING:
    from tilewright.ir.dtype import DType

    from ..._tensor import Tensor

pixel_unshuffle, channel_shuffle = resampling.pixel_unshuffle, resampling.channel_shuffle
_REDUCTIONS = ("none", "mean", "sum")
_MODES, _PADDING = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")


def _named(words: Sequence[str], number: int, name: str) -> str:
    if number not in range(len(words)):
        raise ValueError(
            f"{name}() expects a number from 0 to {len(words) - 1}, which stands for "
            f"{', '.join(words)}, and got {number!r}{at_user_line()}"
        )
    return words[number]


def _softmax_backward_data(
    grad_output: Tensor, output: Tensor, dim: int, input_dtype: DType
) -> Tensor:
    """The gradient of softmax along `dim` from its result, in the input's dtype."""
    weighted = grad_output * output
    return (weighted - output * weighted.sum(dim, keepdim=True)).to(input_dtype)


# ---- losses: reduction 0, the default, is none, 1 the mean, 2 the sum ------------------------


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    reduction: int = 0,
) -> Tensor:
    how = _named(_REDUCTIONS, reduction, "reduction")
    return loss.binary_cross_entropy_with_logits(
        input, target, weight, reduction=how, pos_weight=pos_weight
    )


def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = 0
) -> Tensor:
    how = _named(_REDUCTIONS, reduction, "reduction")
    return loss.cosine_embedding_loss(input1, input2, target, margin, reduction=how)


def kl_div(
    input: Tensor, target: Tensor, reduction: int = 0, *, log_target: bool = False
) -> Tensor:
    """The divergence of exp(input) from target, elementwise; the mean is over all elements."""
    each = loss.kl_div(input, target, reduction="none", log_target=log_target)
    how = _named(_REDUCTIONS, reduction, "reduction")
    return each if how == "none" else each.mean() if how == "mean" else each.sum()


def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = 0
) -> Tensor:
    how = _named(_REDUCTIONS, reduction, "reduction")
    return loss.margin_ranking_loss(input1, input2, target, margin, reduction=how)


def poisson_nll_loss(
    input: Tensor, target: Tensor, log_input: bool, full: bool, eps: float, reduction: int
) -> Tensor:
    how = _named(_REDUCTIONS, reduction, "reduction")
    return loss.poisson_nll_loss(input, target, log_input, full, eps=eps, reduction=how)


def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: int = 0,
) -> Tensor:
    how = _named(_REDUCTIONS, reduction, "reduction")
    return loss.triplet_margin_loss(anchor, positive, negative, margin, p, eps, swap, reduction=how)


# ---- rows, grids, convolutions ---------------------------------------------------------------


def embedding(
    weight: Tensor,
    indices: Tensor,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Rows of weight[n, d]. A `padding_idx` of -1 is none."""
    padding = padding_idx if padding_idx >= 0 else None
    return rows_of(indices, weight, padding, scale_grad_by_freq=scale_grad_by_freq, sparse=sparse)


def embedding_renorm_(input: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> Tensor:
    """Scale the rows of `input` that the indices name to a norm of at most `max_norm`, in place."""
    rows_of(indices, input.detach(), None, max_norm, norm_type)
    return input


def embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The bags of rows, then the bag of each index, the sizes of the bags, and where the maxima
    are. mode: 0 is the sum, 1 the mean, 2 the maximum."""
    how = _named(("sum", "mean", "max"), mode, "mode")
    out = bag.embedding_bag(
        indices, weight, offsets, None, 2, scale_grad_by_freq, how, sparse, per_sample_weights,
        include_last_offset, padding_idx,
    )  # fmt: skip
    starts = offsets[:-1] if include_last_offset else offsets
    places = ranges.arange(indices.shape[0], device=indices.device, dtype=offsets.dtype)
    bags = searching.searchsorted(starts, places, right=True).to(offsets.dtype) - 1
    counted = creation.ones_like(bags)
    if padding_idx is not None:
        counted = counted * (indices != padding_idx % weight.shape[0])
    sizes = starts.new_zeros(starts.shape).index_add(0, bags, counted)
    if how != "max":
        return out, bags, sizes, starts.new_zeros(starts.shape if how == "mean" else 0)
    rows = weight.detach()[indices]
    hit = (rows == out.detach()[bags]) & (counted != 0).unsqueeze(1)
    first = masks.where(hit, places.unsqueeze(1), indices.shape[0])
    column = bags.unsqueeze(1).expand_as(first)
    last = indices.shape[0] - 1
    top = first.new_full(out.shape, last).scatter_reduce(0, column, first, "amin")
    return out, bags, sizes, indices[top.clamp(max=last)]


def affine_grid_generator(theta: Tensor, size: Sequence[int], align_corners: bool) -> Tensor:
    return grids.affine_grid(theta, size, align_corners)


@by_numpys_names
def grid_sampler(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """grid_sample. interpolation_mode: bilinear, nearest, bicubic. padding_mode: zeros, border,
    reflection."""
    mode = _named(_MODES, interpolation_mode, "interpolation_mode")
    padding = _named(_PADDING, padding_mode, "padding_mode")
    return grids.grid_sample(input, grid, mode, padding, align_corners)


grid_sampler_2d = grid_sampler_3d = grid_sampler


@by_numpys_names
def constant_pad_nd(input: Tensor, pad: Sequence[int], value: float = 0) -> Tensor:
    return conv.pad(input, pad, value=value)


def convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Tensor:
    """A convolution of 1, 2 or 3 dimensions, or the transpose of one."""
    dims = weight.dim() - 2
    if dims not in (1, 2, 3):
        raise RuntimeError(
            f"convolution: expected a weight of 3 to 5 dimensions, got {weight.dim()}"
            f"{at_user_line()}"
        )
    if transposed:
        turned: Any = (conv.conv_transpose1d, conv.conv_transpose2d, conv.conv_transpose3d)
        return turned[dims - 1](
            input, weight, bias, stride, padding, output_padding, groups, dilation
        )
    plain: Any = (conv.conv1d, conv.conv2d, conv.conv3d)
    return plain[dims - 1](input, weight, bias, stride, padding, dilation, groups)


# ---- dropout, normalization ------------------------------------------------------------------


def dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    return zeroed(input, p, train, inplace=True)


def alpha_dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    return alpha_dropout(input, p, train, inplace=True)


def feature_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """Dropout of whole channels of input[n, c, …]."""
    return of_channels(input, p, train)


def feature_dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    return of_channels(input, p, train, inplace=True)


def feature_alpha_dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    return feature_alpha_dropout(input, p, train, inplace=True)


def native_dropout(input: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """The result of dropout, and which elements were kept."""
    if train is False or not input.numel():
        return input.clone(), creation.ones_like(input, dtype=recording.named_dtype(bool))
    kept = creation.ones_like(input) if p == 0 else zeroed(creation.ones_like(input), p)
    return input * kept, kept != 0


@by_numpys_names
def native_layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """layer_norm, with the mean and 1 / the deviation of each row, which have no gradient."""
    dims = tuple(range(-len(normalized_shape), 0))
    out = normalization.layer_norm(input, normalized_shape, weight, bias, eps)
    return (out, *_moments(input.detach(), dims, eps, True))


@by_numpys_names
def native_group_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """group_norm of input[N, C, …], with the mean and 1 / the deviation of each group."""
    out = normalization.group_norm(input, group, weight, bias, eps)
    return (out, *_moments(input.reshape(N, group, C // group * HxW), (2,), eps, False))


@by_numpys_names
def native_batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """batch_norm, with the mean and 1 / the deviation of each channel in training. These have no
    gradient."""
    out = normalization.batch_norm(
        input, running_mean, running_var, weight, bias, training, momentum, eps
    )
    if not training:
        return out, input.new_zeros(0), input.new_zeros(0)
    dims = tuple(d for d in range(input.dim()) if d != 1)
    return (out, *_moments(input.detach(), dims, eps, False))


def _moments(x: Tensor, dims: tuple[int, ...], eps: float, keep: bool) -> tuple[Tensor, Tensor]:
    variance = x.var(dims, correction=0, keepdim=keep)
    return x.mean(dims, keepdim=keep), (variance + eps).rsqrt()


# ---- recurrent layers and cells --------------------------------------------------------------


def lstm(
    input: Tensor,
    hx: Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """The outputs, and the last h and c of all layers and directions.

    params: the weights w_ih, w_hh, b_ih, b_hh of each layer and direction (w_hr behind them for
    projections), as nn.LSTM names them.
    """
    options = (has_biases, num_layers, dropout, train, bidirectional, batch_first)
    y, (h, c) = _layers("lstm", input, list(hx), params, *options)
    return y, h, c


def gru(
    input: Tensor,
    hx: Tensor,
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, Tensor]:
    """The outputs, and the last states."""
    options = (has_biases, num_layers, dropout, train, bidirectional, batch_first)
    y, (h,) = _layers("gru", input, [hx], params, *options)
    return y, h


def rnn_tanh(input: Tensor, hx: Tensor, params: Sequence[Tensor], *options: Any) -> Any:
    """As `gru`, for an Elman network with tanh."""
    y, (h,) = _layers("rnn_tanh", input, [hx], params, *options)
    return y, h


def rnn_relu(input: Tensor, hx: Tensor, params: Sequence[Tensor], *options: Any) -> Any:
    """As `gru`, for an Elman network with relu."""
    y, (h,) = _layers("rnn_relu", input, [hx], params, *options)
    return y, h


def _layers(
    cell: str,
    x: Tensor,
    states: list[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    rate: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, list[Tensor]]:
    directions = 2 if bidirectional else 1
    count = len(params) // (num_layers * directions)
    if count != (4 if has_biases else 2) and count != (5 if has_biases else 3):
        raise RuntimeError(
            f"{cell}(): {num_layers} layers in {directions} directions with has_biases="
            f"{has_biases} don't fit {len(params)} weights{at_user_line()}"
        )
    x = x.transpose(0, 1) if batch_first else x
    found: list[tuple[Tensor, ...]] = []
    for level in range(num_layers):
        outputs = []
        for i in range(level * directions, (level + 1) * directions):
            w_ih, w_hh, *rest = params[i * count : (i + 1) * count]
            b_ih, b_hh = (rest.pop(0), rest.pop(0)) if has_biases else (None, None)
            h, c = (*(s[i] for s in states), None)[:2]
            projection = rest[0] if rest else None
            y, *last = recording.record(
                recurrent.layer, x, None, h, c, w_ih, w_hh, b_ih, b_hh, projection, cell,
                i % directions == 1,
            )  # fmt: skip
            outputs.append(y)
            found.append(tuple(last))
        x = outputs[0] if directions == 1 else cat(outputs, 2)
        if rate and level + 1 < num_layers:
            x = zeroed(x, rate, train)
    y = x.transpose(0, 1) if batch_first else x
    return y, [stack(each) for each in zip(*found, strict=True)]


def lstm_cell(
    input: Tensor,
    hx: Sequence[Tensor],
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """One step of an LSTM: the new h and c."""
    h, c = hx
    return recording.record(recurrent.step, input, h, c, w_ih, w_hh, b_ih, b_hh, "lstm")  # type: ignore[no-any-return]


def _cell(name: str) -> Any:
    def cell(
        input: Tensor,
        hx: Tensor,
        w_ih: Tensor,
        w_hh: Tensor,
        b_ih: Tensor | None = None,
        b_hh: Tensor | None = None,
    ) -> Tensor:
        """One step of a cell: the new state."""
        (new,) = recording.record(recurrent.step, input, hx, None, w_ih, w_hh, b_ih, b_hh, name)
        return new  # type: ignore[no-any-return]

    cell.__name__ = cell.__qualname__ = f"{name}_cell"
    return cell


gru_cell, rnn_tanh_cell, rnn_relu_cell = map(_cell, ("gru", "rnn_tanh", "rnn_relu"))


# ---- copies of views -------------------------------------------------------------------------


def view_as_real_copy(input: Tensor) -> Tensor:
    return shapes.clone(complexes.view_as_real(input))


def view_as_complex_copy(input: Tensor) -> Tensor:
    return shapes.clone(complexes.view_as_complex(input))
