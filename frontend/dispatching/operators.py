"""The operators of PyTorch's namespace `aten`, as programs call them: torch.ops.aten.mm.default.

Most are functions or methods of the same name. `_OTHERS` has those that differ.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from tilewright.ir.dtype import float32

from .. import _tensor, publish
from ..functions import assertions
from ..functions.call import DECLARED

_TOP = __package__.partition(".")[0]
Function = Callable[..., Any]

FORMS = frozenset(
    "Tensor Scalar Tensor_Scalar Scalar_Tensor Tensor_Tensor Tensor_mode Scalar_mode Tensor_out "
    "Scalar_out out int dim self other dtype device dtype_layout complex start start_step low "
    "low_out stable values two value src ScalarOpt_dim dim_IntList IntList_out correction "
    "correction_out self_int self_Tensor dim_max dim_min unary_out dims names prev input_scalar "
    "ScalarSelf ScalarOther sections indices Tensor_indices_or_sections int_Scalar float Int str "
    "Dimname List vec reduce mode p prim_Device prim_dtype bool_ generator size_hint split msg "
    "padding padding_size full memory_format source_Storage source_Tensor any all".split()
)
"""The names that PyTorch's operators give to their forms."""


def _to_copy(x: Any, **options: Any) -> Any:
    options.pop("layout", None), options.pop("pin_memory", None)
    return x.to(copy=True, **{name: value for name, value in options.items() if value is not None})


def _index(x: Any, indices: Sequence[Any]) -> Any:
    return x[tuple(slice(None) if each is None else each for each in indices)]


def _index_put(x: Any, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Any:
    return x.clone().index_put_(_given(x, indices), values, accumulate)


def _index_put_(x: Any, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Any:
    return x.index_put_(_given(x, indices), values, accumulate)


def _given(x: Any, indices: Sequence[Any]) -> tuple[Any, ...]:
    if any(each is None for each in indices):
        raise NotImplementedError(
            "aten::index_put with None among the indices: write x[:, index] = values"
        )
    return tuple(indices)


def _slice(x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    place: list[Any] = [slice(None)] * x.dim()
    place[dim] = slice(start, end, step)
    return x[tuple(place)]


def _softmax(x: Any, dim: int, half_to_float: bool) -> Any:
    return x.softmax(dim, dtype=float32 if half_to_float else None)


def _log_softmax(x: Any, dim: int, half_to_float: bool) -> Any:
    return x.log_softmax(dim, dtype=float32 if half_to_float else None)


def _without(name: str) -> Function:
    def refuse(*args: Any, **options: Any) -> NoReturn:
        raise NotImplementedError(f"there is no aten.{name} here: call torch's public functions")

    return refuse


_REDUCTIONS = ("none", "mean", "sum")


def _nll_loss_forward(
    x: Any, target: Any, weight: Any, reduction: int, ignore_index: int
) -> tuple[Any, Any]:
    """The loss, and the weight of all targets that count."""
    functional = importlib.import_module(f"{_TOP}.nn.functional")
    found = functional.nll_loss(
        x, target, weight, ignore_index=ignore_index, reduction=_REDUCTIONS[reduction]
    )
    kept = (target != ignore_index).to(x.dtype)
    return found, (kept if weight is None else kept * weight[target.clamp(min=0)]).sum()


def _functional(name: str, **fixed: Any) -> Function:
    """A function of nn.functional under an operator's name."""

    def call(*args: Any, **options: Any) -> Any:
        functional = importlib.import_module(f"{_TOP}.nn.functional")
        return getattr(functional, name)(*args, **fixed, **options)

    return call


def _upsampled(mode: str) -> Function:
    """Images of another size; by the scales that the call gave, if it gave any."""

    def call(x: Any, size: Any, *more: Any) -> Any:
        corners, scales = (None, more) if mode.startswith("nearest") else (more[0], more[1:])
        functional = importlib.import_module(f"{_TOP}.nn.functional")
        given = {"size": list(size)} if None in scales or not scales else {"scale_factor": scales}
        return functional.interpolate(x, **given, mode=mode, align_corners=corners)

    return call


def _flash_attention_for_cpu(
    query: Any, key: Any, value: Any, dropout_p: float = 0.0, is_causal: bool = False, *,
    attn_mask: Any = None, scale: float | None = None,
) -> tuple[Any, Any]:  # fmt: skip
    """Attention, and the logarithms of the sums by which its rows were divided."""
    top = importlib.import_module(_TOP)
    found = top.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale
    )
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    scores = query @ key.transpose(-1, -2) * factor
    if is_causal:
        seen = top.ones(scores.shape[-2:], dtype=top.bool, device=query.device).tril()
        scores = scores.masked_fill(~seen, -top.inf)
    if attn_mask is not None and attn_mask.dtype is top.bool:
        scores = scores.masked_fill(~attn_mask, -top.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    return found, scores.logsumexp(-1)


def _convolution(*args: Any, **options: Any) -> Any:
    """`torch.convolution`, whose nine arguments switches of cuDNN follow. They change nothing."""
    return importlib.import_module(_TOP).convolution(*args[:9])


_OTHERS: dict[str, Function] = {
    "_convolution": _convolution,
    "nll_loss_forward": _nll_loss_forward,
    "nll_loss2d_forward": _nll_loss_forward,
    "im2col": _functional("unfold"),
    **{f"{n}_": _functional(n, inplace=True) for n in "silu mish hardswish hardsigmoid".split()},
    "_scaled_dot_product_flash_attention_for_cpu": _flash_attention_for_cpu,
    **{f"_adaptive_avg_pool{d}d": _functional(f"adaptive_avg_pool{d}d") for d in (2, 3)},
    **{f"reflection_pad{d}d": _functional("pad", mode="reflect") for d in (1, 2, 3)},
    **{f"replication_pad{d}d": _functional("pad", mode="replicate") for d in (1, 2, 3)},
    **{f"upsample_nearest{d}d": _upsampled("nearest") for d in (1, 2, 3)},
    **{f"_upsample_nearest_exact{d}d": _upsampled("nearest-exact") for d in (1, 2, 3)},
    "upsample_linear1d": _upsampled("linear"),
    "upsample_bilinear2d": _upsampled("bilinear"),
    "upsample_bicubic2d": _upsampled("bicubic"),
    "upsample_trilinear3d": _upsampled("trilinear"),
    # Packages name these when they are imported, to tell what their own tensors do there.
    **{name: _without(name) for name in ("_sparse_addmm", "_sparse_mm_reduce_impl")},
    "_to_copy": _to_copy,
    "index": _index,
    "index_put": _index_put,
    "index_put_": _index_put_,
    "slice": _slice,
    "_softmax": _softmax,
    "_log_softmax": _log_softmax,
    "_assert_async": assertions._assert_async,
    "_unsafe_view": lambda x, size: x.reshape(size).clone(),
    "_local_scalar_dense": lambda x: x.item(),
    "alias": lambda x: x.view(x.shape),
    "lift_fresh_copy": lambda x: x.clone(),
    "lift_fresh": lambda x: x,
    "sym_size": lambda x, dim=None: x.size(dim),
    "sym_stride": lambda x, dim=None: x.stride(dim),
    "sym_numel": lambda x: x.numel(),
    "sym_storage_offset": lambda x: x.storage_offset(),
    "_is_all_true": lambda x: x.all(),
    "_is_any_true": lambda x: x.any(),
    "_pin_memory": lambda x, device=None: x.pin_memory(),
    "rsub": lambda x, other, alpha=1: other - x * alpha,
}


def of_aten(name: str) -> Function | None:
    """The function of an operator's name; None if there is none."""
    if name in _OTHERS:
        return _OTHERS[name]
    top = importlib.import_module(_TOP)
    space, _, rest = name.partition("_")
    spaces = {"fft": "fft", "linalg": "linalg", "special": "special"}
    if space in spaces and rest and hasattr(top, space):
        found = getattr(
            getattr(top, space), name if hasattr(getattr(top, space), name) else rest, None
        )
        if found is not None:
            return found  # type: ignore[no-any-return]
    if (
        name in DECLARED
        or name in publish.LATE
        or name in top.__all__
        or name.startswith("_foreach")
    ):
        found = getattr(top, name, None)
        if callable(found) and not isinstance(found, type):
            return found  # type: ignore[no-any-return]
    method = getattr(_tensor.Tensor, name, None)
    if callable(method) and not name.startswith("__"):
        return method  # type: ignore[no-any-return]
    found = getattr(importlib.import_module(f"{_TOP}.nn.functional"), name, None)
    return found if callable(found) else None
