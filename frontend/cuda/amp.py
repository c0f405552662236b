"""torch.cuda.amp: PyTorch's older names for `torch.amp` on a GPU."""

from __future__ import annotations

import functools
from typing import Any

from tilewright.ir import dtype as dtypes
from tilewright.ir.dtype import DType

from .. import amp


class autocast(amp.autocast):
    """`torch.autocast` of device type "cuda"."""

    def __init__(
        self, enabled: bool = True, dtype: DType = dtypes.float16, cache_enabled: bool = True
    ):
        super().__init__("cuda", dtype, enabled, cache_enabled)


class GradScaler(amp.GradScaler):
    """`torch.amp.GradScaler` for a GPU."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__("cuda", *args, **kwargs)


custom_fwd = functools.partial(amp.custom_fwd, device_type="cuda")
custom_bwd = functools.partial(amp.custom_bwd, device_type="cuda")
