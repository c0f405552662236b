"""autocast: a context in which calls choose their dtype."""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, overload

from tilewright.ir import dtype as dtypes
from tilewright.ir.dtype import DType
from tilewright.ir.location import at_user_line

from .. import devices, recording
from ..autograd.modes import calls_within
from ..recording import threads
from ..recording.epoch import clock
from ..recording.states import Handle
from .casts import KINDS, Casts, is_cast

_defaults: dict[str, DType] = {
    "cuda": dtypes.float16,
    "interpret": dtypes.float16,
    "cpu": dtypes.bfloat16,
}
_HALF = (dtypes.float16, dtypes.bfloat16)


def is_autocast_available(device_type: str) -> bool:
    """Whether autocast knows the kind of device."""
    return device_type in KINDS


def _kind(device_type: Any) -> str:
    if not isinstance(device_type, str):
        raise ValueError(
            f"Expected `device_type` of type `str`, got: `{type(device_type)}`{at_user_line()}"
        )
    if device_type not in KINDS:
        raise RuntimeError(
            f"User specified an unsupported autocast device_type '{device_type}'; there are "
            f"{', '.join(KINDS)}{at_user_line()}"
        )
    return device_type


def get_autocast_dtype(device_type: str) -> DType:
    """The dtype that `autocast(device_type)` casts to: the mode's dtype, or by default float16 on a
    GPU and bfloat16 on the CPU."""
    kind = _kind(device_type)
    return (clock.casts.dtype(kind) if clock.casts is not None else None) or _defaults[kind]


def is_autocast_enabled(device_type: str | None = None) -> bool:
    """Whether autocast is on for the kind of device (for the GPU if none is named)."""
    recording.claim()
    return clock.casts is not None and clock.casts.dtype(_kind(device_type or "cuda")) is not None


def set_autocast_enabled(device_type: str, enabled: bool) -> None:
    """Turn autocast on or off in this thread, until it is changed again."""
    _set(_kind(device_type), get_autocast_dtype(device_type) if enabled else None)


def set_autocast_dtype(device_type: str, dtype: DType) -> None:
    """Set the dtype of autocast on the kind of device, for calls that name none."""
    kind = _kind(device_type)
    enabled = is_autocast_enabled(kind)
    _defaults[kind] = dtype
    if enabled:
        _set(kind, dtype)


def is_autocast_cache_enabled() -> bool:
    """True: two casts of one tensor are one node."""
    return True


def set_autocast_cache_enabled(enabled: bool) -> None:
    """Accepted, without effect: there is no cache to turn off."""


def clear_autocast_cache() -> None:
    """Do nothing: there is no cache."""


def _set(kind: str, dtype: DType | None) -> None:
    recording.claim()
    before = dict(clock.casts.dtypes) if clock.casts is not None else {}
    before.pop(kind, None)
    if dtype is not None:
        before[kind] = dtype
    recording.set_casts(Casts(tuple(sorted(before.items()))) if before else None)


F = TypeVar("F", bound=Callable[..., Any])


class autocast:
    """A context, or a decorator of functions, in which calls on tensors of a kind of device run in
    the dtype that suits them: products and convolutions in `dtype`, sums and losses in float32.

    device_type: 'cuda' or 'cpu'. dtype: float16 by default on a GPU, bfloat16 on the CPU. Float64
    is never cast. cache_enabled: accepted; casts of one tensor are one node in any case.
    Parameters keep their dtype: the cast is recorded, and its gradient casts back.
    """

    def __init__(
        self,
        device_type: str,
        dtype: DType | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        self.device = _kind(device_type)
        self.fast_dtype = get_autocast_dtype(device_type) if dtype is None else dtype
        enabled = bool(enabled)
        if enabled and self.device == "cuda" and not devices.cuda_available():
            warnings.warn(
                "User provided device_type of 'cuda', but CUDA is not available. Disabling",
                stacklevel=2,
            )
            enabled = False
        if enabled and self.fast_dtype not in _HALF:
            warnings.warn(
                f"In {device_type} autocast, but the target dtype {self.fast_dtype} is not "
                "supported. Disabling autocast. Supported dtypes are torch.bfloat16 and "
                "torch.float16",
                stacklevel=2,
            )
            enabled = False
        self._enabled = enabled
        self._before: list[Casts | None] = []

    def __enter__(self) -> autocast:
        recording.claim()
        self._before.append(clock.casts)
        _set(self.device, self.fast_dtype if self._enabled else None)
        return self

    def __exit__(self, *exc: object) -> None:
        recording.set_casts(self._before.pop())

    def __call__(self, function: F) -> F:
        return calls_within(self._again, function)

    def _again(self) -> autocast:
        made = copy.copy(self)
        made._before = []
        return made


@contextmanager
def _mode(casts: Casts | None) -> Iterator[None]:
    recording.claim()
    before = clock.casts
    recording.set_casts(casts)
    try:
        yield
    finally:
        recording.set_casts(before)


@overload
def custom_fwd(fwd: F, *, device_type: str, cast_inputs: DType | None = None) -> F: ...


@overload
def custom_fwd(
    fwd: None = None, *, device_type: str, cast_inputs: DType | None = None
) -> Callable[[F], F]: ...


def custom_fwd(
    fwd: Callable[..., Any] | None = None,
    *,
    device_type: str,
    cast_inputs: DType | None = None,
) -> Any:
    """Decorate `forward` of an autograd.Function. With `cast_inputs`, autocast casts floating
    tensors to it and is off inside; without, `backward` runs in the mode of `forward`."""
    kind = _kind(device_type)
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    @threads.gives_way
    def forward(ctx: Any, *args: Any, **options: Any) -> Any:
        enabled = is_autocast_enabled(kind)
        ctx._casts = clock.casts
        if cast_inputs is None:
            return fwd(ctx, *args, **options)
        ctx._casts = None
        if not enabled:
            return fwd(ctx, *args, **options)
        with autocast(kind, enabled=False):
            cast = _cast(args, kind, cast_inputs), _cast(options, kind, cast_inputs)
            return fwd(ctx, *cast[0], **cast[1])

    return forward


@overload
def custom_bwd(bwd: F, *, device_type: str) -> F: ...


@overload
def custom_bwd(bwd: None = None, *, device_type: str) -> Callable[[F], F]: ...


def custom_bwd(bwd: Callable[..., Any] | None = None, *, device_type: str) -> Any:
    """Decorate `backward` of an autograd.Function whose `forward` has `custom_fwd`: both run in the
    same mode."""
    _kind(device_type)
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    @threads.gives_way
    def backward(ctx: Any, *args: Any) -> Any:
        with _mode(ctx._casts):
            return bwd(ctx, *args)

    return backward


def _cast(value: Any, kind: str, dtype: DType) -> Any:
    if isinstance(value, Handle):
        return value.to(dtype) if is_cast(value) and value.device.type == kind else value
    if isinstance(value, dict):
        return {k: _cast(v, kind, dtype) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_cast(v, kind, dtype) for v in value)
    return value
