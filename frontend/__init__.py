"""tilewright: PyTorch's programming model on kernels that the framework writes itself.

import tilewright as torch
"""

from __future__ import annotations

import importlib
import os
from typing import Any

from tilewright.ir.dtype import (
    DType as dtype,
)
from tilewright.ir.dtype import (
    bfloat16,
    float8_e4m3fn,
    float8_e5m2,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
)
from tilewright.ir.dtype import (
    bool_ as bool,
)
from tilewright.ir.shape import Size
from tilewright.runtime.device import OutOfMemoryError

from . import autograd, backends
from ._tensor import Tensor
from .autograd import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled
from .devices import device, get_default_device, set_default_device
from .exchange.arrays import from_dlpack
from .exchange.printing import set_printoptions
from .functions.creation import (
    arange,
    as_tensor,
    asarray,
    empty,
    empty_like,
    eye,
    from_numpy,
    frombuffer,
    full,
    full_like,
    linspace,
    logspace,
    ones,
    ones_like,
    scalar_tensor,
    tensor,
    zeros,
    zeros_like,
)
from .functions.promotion import promote_types
from .publish import *  # noqa: F403  (its __all__ is made of the op tables)
from .publish import __all__ as _functions
from .recording import default_dtype as get_default_dtype
from .recording import set_default_dtype
from .settings.precision import (
    get_float32_matmul_precision,
    get_half_rounding,
    set_float32_matmul_precision,
    set_half_rounding,
)

__version__ = "0.1.0"

half, float, double, short, int, long = float16, float32, float64, int16, int32, int64

_SUBMODULES = (
    "accelerator",
    "amp",
    "aot",
    "nn",
    "optim",
    "utils",
    "onnx",
    "cuda",
    "random",
    "serialization",
    "linalg",
    "compiler",
    "library",
    "version",
)
_LAZY = {
    "compile": "compiler",
    **dict.fromkeys(
        [
            "FloatTensor",
            "DoubleTensor",
            "HalfTensor",
            "BFloat16Tensor",
            "LongTensor",
            "IntTensor",
            "ShortTensor",
            "CharTensor",
            "ByteTensor",
            "BoolTensor",
            "set_default_tensor_type",
        ],
        "functions.typed",
    ),
    **dict.fromkeys(
        [
            "autocast",
            "clear_autocast_cache",
            "get_autocast_dtype",
            "is_autocast_cache_enabled",
            "is_autocast_enabled",
            "set_autocast_cache_enabled",
            "set_autocast_dtype",
            "set_autocast_enabled",
        ],
        "amp.autocast_mode",
    ),
    "_grouped_mm": "nn.functional.grouped",
    "is_anomaly_check_nan_enabled": "autograd.anomaly",
    "is_anomaly_enabled": "autograd.anomaly",
    "set_anomaly_enabled": "autograd.anomaly",
    **dict.fromkeys(
        [
            "are_deterministic_algorithms_enabled",
            "get_deterministic_debug_mode",
            "is_deterministic_algorithms_warn_only_enabled",
            "set_deterministic_debug_mode",
            "use_deterministic_algorithms",
        ],
        "settings.determinism",
    ),
    "_scaled_mm": "nn.functional.scaled",
    "finfo": "functions.limits",
    "iinfo": "functions.limits",
    "explain": "inspection.explanation",
    "tune": "tuning",
    "save": "serialization",
    "load": "serialization",
    "manual_seed": "random",
    "seed": "random",
    "initial_seed": "random",
    "Generator": "random",
    "default_generator": "random",
    "get_rng_state": "random",
    "set_rng_state": "random",
    "rand": "functions.sampling",
    "randn": "functions.sampling",
    "randint": "functions.sampling",
    "randperm": "functions.sampling",
    "rand_like": "functions.sampling",
    "randn_like": "functions.sampling",
    "randint_like": "functions.sampling",
    "bernoulli": "functions.sampling",
    "multinomial": "functions.sampling",
    "normal": "functions.sampling",
    **dict.fromkeys(
        [
            "softmax",
            "log_softmax",
            "dropout",
            "alpha_dropout",
            "conv1d",
            "conv2d",
            "conv3d",
            "conv_transpose1d",
            "conv_transpose2d",
            "conv_transpose3d",
            "max_pool1d",
            "max_pool2d",
            "max_pool3d",
            "avg_pool1d",
            "adaptive_avg_pool1d",
            "adaptive_max_pool1d",
            "layer_norm",
            "group_norm",
            "batch_norm",
            "instance_norm",
            "rms_norm",
            "prelu",
            "celu",
            "selu",
            "threshold",
            "bilinear",
            "cosine_similarity",
            "pairwise_distance",
            "pixel_shuffle",
            "hinge_embedding_loss",
        ],
        "nn.functional",
    ),
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        value = getattr(importlib.import_module(f".{_LAZY[name]}", __name__), name)
        globals()[name] = value
        return value
    if name in _SUBMODULES:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(
        f"tilewright has no {name!r}: it is not a name of PyTorch's, or not implemented yet"
    )


def get_device_module(device: Any = None) -> Any:  # noqa: F811  (its argument's name is PyTorch's)
    """The module of a device's kind: `torch.cuda`, where there is no other."""
    from .devices import device as Device

    kind = Device("cuda" if device is None else device).type
    if kind != "cuda":
        raise RuntimeError(f"Invalid device_type of {kind!r}: only cuda has a module of its own")
    return importlib.import_module(".cuda", __name__)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, *_SUBMODULES})


inf, nan, pi, e = (
    __import__("builtins").float("inf"),
    __import__("builtins").float("nan"),
    3.141592653589793,
    2.718281828459045,
)
newaxis = None
strided, contiguous_format, preserve_format, channels_last = (
    "torch.strided",
    "torch.contiguous_format",
    "torch.preserve_format",
    "torch.channels_last",
)

if os.environ.get("TW_TUNE"):
    from .tuning import online as _online
