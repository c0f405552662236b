"""Methods that ask a sparse, nested or quantized tensor, as dense ones answer.

The classes of sparse and nested tensors have answers of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tilewright.ir.location import at_user_line

from .call import public

if TYPE_CHECKING:
    from tilewright.ir.dtype import DType

    from .._tensor import Tensor

_LAYOUTS = {
    "values": "sparse tensor layout",
    "indices": "sparse coordinate tensor layout",
    "coalesce": "sparse coordinate tensor layout",
    "is_coalesced": "sparse coordinate tensor layout",
    "crow_indices": "sparse row compressed tensor layout",
    "col_indices": "sparse row compressed tensor layout",
    "ccol_indices": "sparse column compressed tensor layout",
    "row_indices": "sparse column compressed tensor layout",
}
_OF_OTHERS = {
    "sparse": "_values _indices _nnz _dimI _dimV sparse_resize_ sparse_resize_and_clear_",
    "quantized": "q_scale q_zero_point q_per_channel_scales q_per_channel_zero_points "
    "q_per_channel_axis qscheme int_repr",
    "nested": "to_padded_tensor _nested_tensor_size _nested_tensor_strides",
}
_MADE = "to_mkldnn"


def _of_layout(name: str, expected: str) -> Callable[..., Any]:
    def refuse(self: Tensor, *args: Any, **options: Any) -> Any:
        raise RuntimeError(f"{name} expected {expected} but got Strided{at_user_line()}")

    return refuse


def _of_another(name: str, kind: str) -> Callable[..., Any]:
    def refuse(self: Tensor, *args: Any, **options: Any) -> Any:
        raise NotImplementedError(
            f"{name}: asks a {kind} tensor, and this one is dense{at_user_line()}"
        )

    return refuse


def _making(name: str) -> Callable[..., Any]:
    def refuse(self: Tensor, *args: Any, **options: Any) -> Any:
        raise NotImplementedError(f"{name}: tilewright has no such tensors{at_user_line()}")

    return refuse


def _method(name: str, method: Callable[..., Any]) -> None:
    method.__name__ = method.__qualname__ = name
    public(name, function=False)(method)


for _name, _expected in _LAYOUTS.items():
    _method(_name, _of_layout(_name, _expected))
for _kind, _names in _OF_OTHERS.items():
    for _name in _names.split():
        _method(_name, _of_another(_name, _kind))
for _name in _MADE.split():
    _method(_name, _making(_name))


@public("to_dense", function=False)
def to_dense(
    self: Tensor, dtype: DType | None = None, *, masked_grad: bool | None = None
) -> Tensor:
    """The tensor itself, which is dense; of another dtype if one is given."""
    return self if dtype is None else self.to(dtype)


@public("sparse_dim", function=False)
def sparse_dim(self: Tensor) -> int:
    """The number of sparse dimensions: 0."""
    return 0


@public("dense_dim", function=False)
def dense_dim(self: Tensor) -> int:
    """The number of dense dimensions: all."""
    return self.dim()
