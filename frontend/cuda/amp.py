"""torch.cuda.amp: PyTorch's older names for `torch.amp` on a GPU."""

from __future__ import annotations

import functools
from typing import Any

from tilewright.ir import dtype as dtypes
from tilewright.ir.dtype import DType
from tilewright.ir.location import warn
from tilewright.runtime import devices as runtime

from .. import amp


def _warn(name: str) -> None:
    warn(
        f"`torch.cuda.amp.{name}(args...)` is deprecated. Please use `torch.amp.{name}('cuda', "
        "args...)` instead.",
        FutureWarning,
    )


class autocast(amp.autocast):
    """`torch.autocast` of device type "cuda"."""

    def __init__(
        self, enabled: bool = True, dtype: DType = dtypes.float16, cache_enabled: bool = True
    ):
        _warn("autocast")
        super().__init__("cuda", dtype, enabled, cache_enabled)


class GradScaler(amp.GradScaler):
    """`torch.amp.GradScaler` for a GPU."""

    def __init__(self, *args: Any, **kwargs: Any):
        _warn("GradScaler")
        super().__init__("cuda", *args, **kwargs)


def _renamed(name: str, function: Any) -> Any:
    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        warn(
            f"`torch.cuda.amp.{name}(args...)` is deprecated. Please use "
            f"`torch.amp.{name}(args..., device_type='cuda')` instead.",
            FutureWarning,
        )
        return function(*args, device_type="cuda", **options)

    return call


custom_fwd, custom_bwd = (
    _renamed("custom_fwd", amp.custom_fwd),
    _renamed("custom_bwd", amp.custom_bwd),
)


def amp_definitely_not_available() -> bool:
    """Whether there is no device for which `torch.cuda.amp` is."""
    return runtime.cuda_count() == 0
