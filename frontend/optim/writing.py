"""Functions of torch.optim.optimizer that PyTorch keeps for writers of optimizers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tilewright.ir import dtype as dtypes
from tilewright.ir.dtype import DType

from .. import recording
from ..functions import complexes

F = TypeVar("F", bound=Callable[..., Any])


def _get_value(x: Any) -> Any:
    """The number in a tensor of one element; a number itself."""
    return x.item() if isinstance(x, recording.Handle) else x


def _stack_if_compiling(x: Any) -> Any:
    return x


def _dispatch_sqrt(x: Any) -> Any:
    """The root of a number or a tensor."""
    return x.sqrt() if isinstance(x, recording.Handle) else x**0.5


def _get_scalar_dtype(is_fused: bool | None = None) -> DType:
    """The dtype of counters of steps."""
    wide = recording.default_dtype() is dtypes.float64 and not is_fused
    return dtypes.float64 if wide else dtypes.float32


def _get_capturable_supported_devices(supports_xla: bool = True) -> list[str]:
    """The kinds of devices whose steps a graph can hold."""
    return ["cuda"]


def _default_to_fused_or_foreach(
    params: Sequence[Any], differentiable: bool, use_fused: bool = False
) -> tuple[bool, bool]:
    """(False, False): all parameters of a group are one kernel in any case."""
    return False, False


def _view_as_real(params: list[Any], *states: list[Any]) -> None:
    """Put views of the parts in the place of complex tensors."""
    for i, p in enumerate(params):
        if p.is_complex():
            params[i] = complexes.view_as_real(p)
            for state in states:
                state[i] = complexes.view_as_real(state[i])


def _use_grad_for_differentiable(func: F) -> F:
    """A decorator of `step`: gradients are recorded if the optimizer is `differentiable`, and else
    not."""

    @functools.wraps(func)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        with recording.grad_mode(bool(self.defaults.get("differentiable", False))):
            return func(self, *args, **kwargs)

    return step  # type: ignore[return-value]


def _disable_dynamo_if_unsupported(single_tensor_fn: Any = None) -> Callable[[F], F]:
    """A decorator that changes nothing."""
    return lambda function: function


def _group_tensors_by_device_and_dtype(
    tensorlistlist: Sequence[Sequence[Any]], with_indices: bool = False
) -> dict[tuple[Any, Any], tuple[list[list[Any]], list[int]]]:
    """The tensors of lists of one length, by the device and dtype of the first that is there at a
    place, with the places."""
    found: dict[tuple[Any, Any], tuple[list[list[Any]], list[int]]] = {}
    for i, row in enumerate(zip(*tensorlistlist, strict=True)):
        first = next(t for t in row if t is not None)
        lists, places = found.setdefault(
            (first.device, first.dtype), ([[] for _ in tensorlistlist], [])
        )
        for column, t in zip(lists, row):
            column.append(t)
        if with_indices:
            places.append(i)
    return found
