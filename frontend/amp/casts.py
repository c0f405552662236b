"""What autocast does to the operands of a call: PyTorch's lists of ops, by the kind of device.

https://docs.pytorch.org/docs/stable/amp.html#autocast-op-reference
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.ir import dtype as dtypes
from tilewright.ir.dtype import DType
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node

from ..functions.promotion import to
from ..recording.names import name_of


@dataclass(frozen=True)
class Lists:
    """Names of calls whose floating operands (other than float64) are cast: to the dtype of the
    mode, to float32, to the widest among them, or to that of the first; and those that are an
    error."""

    lower: frozenset[str]
    float32: frozenset[str]
    widest: frozenset[str] = frozenset()
    first: frozenset[str] = frozenset()
    refused: frozenset[str] = frozenset()


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_PRODUCTS = _names(
    "matmul einsum linear conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d "
    "addmm baddbmm addbmm scaled_dot_product_attention multi_head prelu"
)
_LOSSES = _names(
    "cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss huber_loss kl poisson bce_logits "
    "hinge_embedding margin_ranking soft_margin multi_margin multilabel_margin"
)
LISTS = {
    "cuda": Lists(
        lower=_PRODUCTS | _names("mv addmv addr rnn_layer rnn_cell"),
        float32=_LOSSES
        | _names(
            "acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow "
            "softplus softmax softmin log_softmax layer_norm rms_norm group_norm norm "
            "cosine_similarity cumprod cumsum prod sum logsumexp interpolate normalize"
        ),
        widest=_names("atan2 bilinear dot tensordot cat stack index_put scatter"),
        refused=_names("bce"),
    ),
    "cpu": Lists(
        lower=_PRODUCTS | _names("rnn_layer"),
        float32=_LOSSES | _names("bce prod avg_pool3d adaptive_avg_pool3d max_pool3d"),
        widest=_names("cat stack index_copy"),
        first=_names("rnn_cell"),
    ),
}
LISTS["interpret"] = LISTS["cuda"]


@dataclass(frozen=True)
class Casts:
    """The mode of a thread: the dtypes of autocast, by kind of device. Where it is off there is
    none."""

    dtypes: tuple[tuple[str, DType], ...]

    def dtype(self, kind: str) -> DType | None:
        return dict(self.dtypes).get(kind)

    def __call__(self, build: Callable[..., Any], args: Sequence[Any]) -> list[Any]:
        """The arguments of a call, of which the nodes are cast as the lists say."""
        lower = self.dtype(kind := _kind(args))
        if lower is None:
            return list(args)
        name, lists = name_of(build), LISTS[kind]
        if name in lists.lower:
            target = lower
        elif name in lists.float32:
            target = dtypes.float32
        elif name in lists.widest:
            found = [a.dtype for a in args if is_cast(a)]
            target = dtypes.float32 if dtypes.float32 in found else lower
            if all(d is found[0] for d in found):
                return list(args)
        elif name in lists.first:
            target = next(a.dtype for a in args if is_cast(a))
        elif name in lists.refused:
            raise RuntimeError(
                f"{name}: binary_cross_entropy and BCELoss are unsafe to autocast. Give scores "
                "instead of probabilities to binary_cross_entropy_with_logits or "
                f"BCEWithLogitsLoss, which are safe{at_user_line()}"
            )
        else:
            return list(args)
        return [to(a, target) if is_cast(a) else a for a in args]

    def lowered(self, name: str, tensors: Sequence[Any]) -> tuple[Any, ...]:
        """The tensors that `name` is given, cast if it is on the first list."""
        kind = tensors[0].device.type
        lower = self.dtype(kind)
        if lower is None or name not in LISTS[kind].lower:
            return tuple(tensors)
        return tuple(t.to(lower) if is_cast(t) else t for t in tensors)


def _kind(args: Sequence[Any]) -> str:
    device = next((a.device for a in args if isinstance(a, Node) and a.device), None)
    return "cpu" if device is None else device.partition(":")[0]


def is_cast(a: Any) -> bool:
    """Whether autocast may cast a node or tensor; not whatever else a call is given."""
    dtype = getattr(a, "dtype", None)
    return isinstance(dtype, DType) and dtype.is_floating_point and dtype is not dtypes.float64
