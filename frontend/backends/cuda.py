"""torch.backends.cuda: how precisely CUDA devices multiply."""

from __future__ import annotations

import enum
import importlib.util
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tilewright.ir.location import at_user_line

from ..settings import precision


class _Matmul:
    """allow_tf32: whether products of float32 may be rounded to TF32, 10 bits of a fraction; the
    same switch as `set_float32_matmul_precision`."""

    @property
    def allow_tf32(self) -> bool:
        return precision.get_float32_matmul_precision() != "highest"

    @allow_tf32.setter
    def allow_tf32(self, allowed: bool) -> None:
        precision.set_float32_matmul_precision("high" if allowed else "highest")

    @property
    def fp32_precision(self) -> str:
        """The same switch by its newer name: "ieee" or "tf32"."""
        return "tf32" if self.allow_tf32 else "ieee"

    @fp32_precision.setter
    def fp32_precision(self, value: str) -> None:
        if value not in ("ieee", "tf32", "none"):
            raise RuntimeError(f'expected "ieee" or "tf32", got {value!r}{at_user_line()}')
        self.allow_tf32 = value == "tf32"

    # Products of half types are summed in float32, whatever these allow.
    allow_fp16_reduced_precision_reduction = True
    allow_bf16_reduced_precision_reduction = True
    allow_fp16_accumulation = False


matmul = _Matmul()


def is_built() -> bool:
    """Whether kernels for CUDA can be made, which takes Triton."""
    return importlib.util.find_spec("triton") is not None


# The kernels that scaled_dot_product_attention may take. A device has one way to compute it, so
# these switches can be set and read, but change no result.
_sdp_enabled = dict.fromkeys(("cudnn", "flash", "mem_efficient", "math", "overrideable"), True)


def flash_sdp_enabled() -> bool:
    return _sdp_enabled["flash"]


def enable_flash_sdp(enabled: bool) -> None:
    _sdp_enabled["flash"] = bool(enabled)


def mem_efficient_sdp_enabled() -> bool:
    return _sdp_enabled["mem_efficient"]


def enable_mem_efficient_sdp(enabled: bool) -> None:
    _sdp_enabled["mem_efficient"] = bool(enabled)


def math_sdp_enabled() -> bool:
    return _sdp_enabled["math"]


def enable_math_sdp(enabled: bool) -> None:
    _sdp_enabled["math"] = bool(enabled)


def cudnn_sdp_enabled() -> bool:
    return _sdp_enabled["cudnn"]


def enable_cudnn_sdp(enabled: bool) -> None:
    _sdp_enabled["cudnn"] = bool(enabled)


@contextmanager
def sdp_kernel(
    enable_flash: bool = True,
    enable_math: bool = True,
    enable_mem_efficient: bool = True,
    enable_cudnn: bool = True,
) -> Iterator[None]:
    """The older way to choose kernels of attention inside a block; they change no result."""
    warnings.warn(
        "`torch.backends.cuda.sdp_kernel()` is deprecated. In the future, this context manager "
        "will be removed. Please see `torch.nn.attention.sdpa_kernel()` for the new context "
        "manager, with updated signature.",
        FutureWarning,
        stacklevel=3,
    )
    before = dict(_sdp_enabled)
    _sdp_enabled.update(
        flash=enable_flash, math=enable_math, mem_efficient=enable_mem_efficient, cudnn=enable_cudnn
    )
    try:
        yield
    finally:
        _sdp_enabled.update(before)


class SDPAParams:
    """A call of scaled_dot_product_attention, for the questions which kernel may compute it."""

    query: Any
    key: Any
    value: Any
    attn_mask: Any
    dropout: float
    is_causal: bool
    enable_gqa: bool

    def __init__(
        self,
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any,
        dropout: float,
        is_causal: bool,
        enable_gqa: bool = False,
    ):
        self.query, self.key, self.value, self.attn_mask = query, key, value, attn_mask
        self.dropout, self.is_causal, self.enable_gqa = dropout, is_causal, enable_gqa


def can_use_flash_attention(params: SDPAParams, debug: bool = False) -> bool:
    """False: PyTorch's kernels aren't here; attention is computed by one of ours."""
    return False


can_use_efficient_attention = can_use_cudnn_attention = can_use_flash_attention


def is_flash_attention_available() -> bool:
    """Whether PyTorch's kernels of FlashAttention are there: attention has kernels of ours."""
    return False


is_ck_sdpa_available = is_flash_attention_available

_reduced_sums = False


def allow_fp16_bf16_reduction_math_sdp(enabled: bool) -> None:
    """Allow attention to sum in half types. Its sums are in float32 anyway."""
    global _reduced_sums
    _reduced_sums = bool(enabled)


def fp16_bf16_reduction_math_sdp_allowed() -> bool:
    return _reduced_sums


_LinalgBackend = enum.IntEnum("_LinalgBackend", "Default Cusolver Magma", start=0)
_BlasBackend = enum.IntEnum("_BlasBackend", "Default Cublas Cublaslt Ck", start=0)


_linalg_backend: Any = _LinalgBackend["Default"]


def _preferred(backend: Any, known: Any, kept: Any, *others: Any) -> Any:
    """What is preferred: `kept`, which may be named again, or one of others."""
    if backend is None or backend is kept:
        return kept
    if not isinstance(backend, (str, known)):
        raise RuntimeError(f"Unknown input value type.{at_user_line()}")
    names = {each.name.lower(): each for each in known}
    chosen = names.get(backend) if isinstance(backend, str) else backend
    if chosen is None:
        raise RuntimeError(f"Unknown input value. Choose from: {', '.join(names)}.{at_user_line()}")
    if chosen in others:
        return chosen
    if chosen not in (kept, known.Default):
        raise RuntimeError(
            f"Cannot set preferred backend to {chosen.name}: kernels here aren't those of a library"
            f"{at_user_line()}"
        )
    return kept


def preferred_linalg_library(backend: Any = None) -> Any:
    """The library of linear algebra: that which `backend` names, or the last one named. It changes
    nothing: cuSOLVER computes where it is installed. Small matrices have kernels of ours, and the
    host computes what neither does."""
    global _linalg_backend
    others = _LinalgBackend["Default"], _LinalgBackend["Cusolver"]
    _linalg_backend = _preferred(backend, _LinalgBackend, _linalg_backend, *others)
    return _linalg_backend


def preferred_blas_library(backend: Any = None) -> Any:
    """The library of products: called cuBLAS, as there is one way to compute them."""
    return _preferred(backend, _BlasBackend, _BlasBackend.Cublas)  # type: ignore[attr-defined]
