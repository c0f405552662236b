"""tilewright: PyTorch's programming model on kernels that the framework writes itself.

import tilewright as torch
"""

from __future__ import annotations

import gc as _gc
import importlib as _importlib
import importlib.util as _util
import os as _os
import sys as _sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # first: a checker takes the names below for our own
    from ._names import *  # noqa: F403

from tilewright.ir.dtype import (
    DType as _DType,
)
from tilewright.ir.dtype import (
    bfloat16,
    complex32,
    complex64,
    complex128,
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
    uint16,
    uint32,
    uint64,
)
from tilewright.ir.dtype import (
    bool_ as bool,
)
from tilewright.ir.shape import Size
from tilewright.runtime.device import OutOfMemoryError
from tilewright.runtime.driver import CudaError as AcceleratorError

from . import autograd, backends
from ._tensor import Tensor as Tensor
from .autograd import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled
from .devices import device, get_default_device, set_default_device
from .exchange.arrays import asarray, from_dlpack
from .exchange.printing import set_printoptions
from .functions.creation import (
    empty,
    empty_like,
    eye,
    full,
    full_like,
    ones,
    ones_like,
    zeros,
    zeros_like,
)
from .functions.from_data import as_tensor, from_numpy, frombuffer, scalar_tensor, tensor
from .functions.ranges import arange, linspace, logspace
from .layouts import (
    channels_last,
    channels_last_3d,
    contiguous_format,
    jagged,
    layout,
    legacy_contiguous_format,
    memory_format,
    preserve_format,
    sparse_bsc,
    sparse_bsr,
    sparse_coo,
    sparse_csc,
    sparse_csr,
    strided,
)
from .paths import found as _found
from .paths import install as _install
from .publish import *  # noqa: F403  (its __all__ lists the declared ops)
from .publish import LATE as _LATE
from .publish import MODULES as _SUBMODULES
from .publish import late as _late
from .recording import default_dtype as get_default_dtype
from .recording import set_default_dtype
from .settings.precision import (
    get_float32_matmul_precision,
    get_half_rounding,
    set_float32_matmul_precision,
    set_half_rounding,
)
from .torch_version import __version__ as __version__

if TYPE_CHECKING:
    from .types import DeviceLike

dtype = _DType
dtype.__name__ = dtype.__qualname__ = "dtype"
half, float, double, short, int, long = float16, float32, float64, int16, int32, int64
chalf, cfloat, cdouble = complex32, complex64, complex128

_LAZY = {
    "compile": "compiler",
    "cond": "_higher_order_ops",
    "while_loop": "_higher_order_ops",
    "Future": "futures",
    "ScriptModule": "jit",
    "ScriptFunction": "jit",
    "TypedStorage": "storage",
    "Tag": "library.tags",
    "ScriptObject": "_C",
    "DisableTorchFunction": "_C",
    "DisableTorchFunctionSubclass": "_C",
    "to_dlpack": "utils.dlpack",
    "compiled_with_cxx11_abi": "settings.build",
    "StorageBase": "exchange.storages",
    "UntypedStorage": "storage",
    "fork": "jit",
    "wait": "jit",
    "get_autocast_cpu_dtype": "amp.older",
    "get_autocast_gpu_dtype": "amp.older",
    "is_autocast_cpu_enabled": "amp.older",
    "set_autocast_cpu_dtype": "amp.older",
    "set_autocast_cpu_enabled": "amp.older",
    "set_autocast_gpu_dtype": "amp.older",
    "autocast_increment_nesting": "amp.older",
    "autocast_decrement_nesting": "amp.older",
    **dict.fromkeys(
        [
            "_assert",
            "_check",
            "_check_index",
            "_check_is_size",
            "_check_not_implemented",
            "_check_tensor_all",
            "_check_tensor_all_with",
            "_check_type",
            "_check_value",
            "_check_with",
        ],
        "functions.assertions",
    ),
    "is_storage": "exchange.storages",
    **dict.fromkeys(["SymBool", "SymFloat", "SymInt"], "functions.symbolic"),
    "is_inference_mode_enabled": "autograd.modes",
    "sym_constrain_range": "functions.symbolic",
    "sym_constrain_range_for_size": "functions.symbolic",
    "sym_float": "functions.symbolic",
    "sym_fresh_size": "functions.symbolic",
    "sym_int": "functions.symbolic",
    "sym_ite": "functions.symbolic",
    "sym_max": "functions.symbolic",
    "sym_min": "functions.symbolic",
    "sym_not": "functions.symbolic",
    "sym_sqrt": "functions.symbolic",
    "sym_sum": "functions.symbolic",
    **dict.fromkeys(["celu_", "selu_", "threshold_"], "nn.functional"),
    "Stream": "accelerator.streams",
    "Event": "accelerator.streams",
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
    "_sample_dirichlet": "functions.variates",
    "_scaled_mm": "nn.functional.scaled",
    **dict.fromkeys(
        [
            "_convert_weight_to_int4pack",
            "_convert_weight_to_int4pack_for_cpu",
            "_int_mm",
            "_weight_int4pack_mm",
            "_weight_int4pack_mm_for_cpu",
            "_weight_int8pack_mm",
        ],
        "nn.functional.narrow",
    ),
    **dict.fromkeys(
        [
            "_fake_quantize_learnable_per_channel_affine",
            "_fake_quantize_learnable_per_tensor_affine",
            "fake_quantize_per_channel_affine",
            "fake_quantize_per_tensor_affine",
            "fused_moving_avg_obs_fake_quant",
        ],
        "functions.fake_quantized",
    ),
    **dict.fromkeys(
        [
            "_empty_affine_quantized",
            "_empty_per_channel_affine_quantized",
            "empty_quantized",
            "int_repr",
            "q_per_channel_axis",
            "q_per_channel_scales",
            "q_per_channel_zero_points",
            "q_scale",
            "q_zero_point",
            "per_channel_affine",
            "per_channel_affine_float_qparams",
            "per_channel_symmetric",
            "per_tensor_affine",
            "per_tensor_symmetric",
            "qint8",
            "qint32",
            "qscheme",
            "quantize_per_channel",
            "quantize_per_tensor",
            "quantize_per_tensor_dynamic",
            "quint2x4",
            "quint4x2",
            "quint8",
        ],
        "functions.quantized",
    ),
    **dict.fromkeys(
        "quantized_batch_norm quantized_max_pool1d quantized_max_pool2d "
        "quantized_max_pool3d".split(),
        "ao.nn.quantized.root",
    ),
    "_softmax_backward_data": "nn.functional.root",
    "_standard_gamma": "functions.variates",
    **dict.fromkeys(
        [
            "get_num_interop_threads",
            "get_num_threads",
            "set_num_interop_threads",
            "set_num_threads",
        ],
        "settings.threads",
    ),
    **dict.fromkeys(
        "affine_grid_generator alpha_dropout_ binary_cross_entropy_with_logits channel_shuffle "
        "constant_pad_nd convolution cosine_embedding_loss dropout_ embedding embedding_bag "
        "embedding_renorm_ feature_alpha_dropout_ feature_dropout feature_dropout_ grid_sampler "
        "grid_sampler_2d grid_sampler_3d gru gru_cell kl_div lstm lstm_cell "
        "margin_ranking_loss native_batch_norm native_dropout native_group_norm native_layer_norm "
        "pixel_unshuffle poisson_nll_loss rnn_relu rnn_relu_cell rnn_tanh "
        "rnn_tanh_cell triplet_margin_loss view_as_complex_copy view_as_real_copy".split(),
        "nn.functional.root",
    ),
    **dict.fromkeys(
        "BFloat16Storage BoolStorage ByteStorage CharStorage ComplexDoubleStorage "
        "ComplexFloatStorage DoubleStorage FloatStorage HalfStorage IntStorage LongStorage "
        "ShortStorage".split(),
        "exchange.typed_storages",
    ),
    "from_file": "exchange.storages",
    "get_device": "functions.older",
    "range": "functions.ranges",
    "hash_tensor": "functions.hashing",
    "lobpcg": "linalg.partial",
    "GradScaler": "amp",
    "_assert_async": "functions.assertions",
    "_has_compatible_shallow_copy_type": "functions.queries",
    "_shape_as_tensor": "functions.queries",
    "TensorType": "_C",
    "DispatchKey": "_C",
    **dict.fromkeys(
        "has_lapack has_mkl has_openmp has_spectral "
        "is_vulkan_available is_warn_always_enabled "
        "set_warn_always init_num_threads DeviceObjType".split(),
        "settings.build",
    ),
    "empty_permuted": "functions.older",
    "empty_strided": "functions.older",
    "finfo": "functions.limits",
    "iinfo": "functions.limits",
    "explain": "inspection.explanation",
    "tune": "tuning",
    **dict.fromkeys(
        [
            "_sparse_coo_tensor_unsafe",
            "sparse_bsc_tensor",
            "sparse_bsr_tensor",
            "sparse_compressed_tensor",
            "sparse_coo_tensor",
            "sparse_csc_tensor",
            "sparse_csr_tensor",
        ],
        "sparse.creating",
    ),
    **dict.fromkeys(["dsmm", "hspmm", "saddmm", "spmm"], "sparse.products"),
    **dict.fromkeys(
        ["_convert_indices_from_coo_to_csr", "_convert_indices_from_csr_to_coo"],
        "sparse.conversions",
    ),
    "set_flush_denormal": "settings.denormals",
    **dict.fromkeys(
        "bit bits16 bits1x8 bits2x4 bits4x2 bits8 int1 int2 int3 int4 int5 int6 int7 uint1 uint2 "
        "uint3 uint4 uint5 uint6 uint7".split(),
        "functions.few_bits",
    ),
    **dict.fromkeys(
        "ccol_indices_copy col_indices_copy crow_indices_copy indices_copy row_indices_copy "
        "values_copy".split(),
        "sparse.parts",
    ),
    "PyTorchFileReader": "serialization.archive",
    "typename": "serialization.naming",
    "save": "serialization",
    "load": "serialization",
    "manual_seed": "random",
    "seed": "random",
    "initial_seed": "random",
    "Generator": "random",
    "thread_safe_generator": "random",
    "segment_reduce": "functions.segments",
    "vmap": "func.vmapping",
    "default_generator": "random",
    "get_rng_state": "random",
    "set_rng_state": "random",
}


def _later(name: str) -> Any:
    if name in _LAZY:
        value = getattr(_importlib.import_module(f".{_LAZY[name]}", __package__), name)
        globals()[name] = value
        return value
    if name in _LATE:
        value = _late(name, _LATE[name]).function
        globals()[name] = value
        return value
    if name.startswith("_foreach_"):
        from .functions.foreach import named

        value = globals()[name] = named(name)
        return value
    if name.startswith("has_"):
        from .settings.build import older

        if (value := older(name)) is not None:
            return value
    if name in _SUBMODULES:
        return _importlib.import_module(f".{name}", __package__)
    if name == "torch":  # some programs write torch.torch
        return _importlib.import_module(__package__)
    if __name__ != __package__ and _is_ours(_sys._getframe(1)):
        full = f"{__package__}.{name}"
        if full in _sys.modules or _util.find_spec(full):
            return _importlib.import_module(full)
    return _found(__package__, name)


def _is_ours(frame: Any) -> Any:
    """Whether a module of ours asks, as `from .. import NAME` does. Where this module's name is
    torch, the import system would look for a private room below torch, and find none."""
    if frame.f_code.co_name == "_handle_fromlist":
        frame = frame.f_back
    return frame.f_globals.get("__name__", "").startswith(f"{__package__}.")


if not TYPE_CHECKING:  # tools/stubs.py tells a checker every name
    __getattr__ = _later


def get_device_module(device: DeviceLike | None = None) -> Any:  # noqa: F811  (its argument's name is PyTorch's)
    """The module for a device's kind, such as `torch.cuda`, which it is for None."""
    from .devices import device as Device

    kind = Device("cuda" if device is None else device).type
    if kind not in ("cpu", "cuda", "mps", "mtia", "xpu"):
        raise RuntimeError(
            f"Device '{kind}' does not have a corresponding module registered as 'torch.{kind}'."
        )
    return _importlib.import_module(f".{kind}", __package__)


_install()
inf, nan, pi, e = (
    __import__("builtins").float("inf"),
    __import__("builtins").float("nan"),
    3.141592653589793,
    2.718281828459045,
)
newaxis = None

if _os.environ.get("TW_TUNE"):
    from .tuning import online as _online

# The public names. Private modules are imported by their full path: they are no names of torch.
for _name, _value in list(globals().items()):
    if getattr(_value, "__name__", "") == f"{__name__}.{_name}" and _name not in _SUBMODULES:
        del globals()[_name]
__all__ = sorted(
    {name for name in globals() if not name.startswith("_")}
    - _SUBMODULES
    - {"Any", "TYPE_CHECKING", "annotations"}
    | {name for name in (*_LAZY, *_LATE) if not name.startswith("_")}
)


def __dir__() -> list[str]:
    return sorted({*__all__, *_SUBMODULES, *(n for n in globals() if n.startswith("__"))})


# While a program starts, what there is are modules. A collector that walks them again and again
# takes a third of the time of a first step.
if not _gc.get_stats()[-1]["collections"]:
    _gc.freeze()
