"""Conversions between dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir import dtype as dtypes

from .api import f
from .narrow import to_float8, to_narrow
from .table import operator
from .values import NARROW, Host, Narrow, array_of, element_of, on_device


def convert(
    value: Any, element: Any, saturate: bool = True, rounding: str = "up", device: Any = None
) -> Any:
    """A value as `element`: a dtype of tensors, one of NARROW, or str."""
    if element is str:
        return Host(_written(array_of(value)))
    if isinstance(value, Host) and value.array.dtype.kind in "OSUT":
        kind = element.np if isinstance(element, dtypes.DType) else np.dtype(np.float32)
        value = Host(_read(value.array, kind))
    x = on_device(value, device)
    if isinstance(x, Narrow):
        x = x.carrier
    if isinstance(element, np.dtype):
        return to_narrow(x, element, saturate, rounding)
    if element in dtypes.FLOAT8 and x.dtype is not element:
        return to_float8(x, element, saturate)
    return x.to(element)


def _written(array: np.ndarray) -> np.ndarray:
    """Numbers as texts."""
    if array.dtype.kind in "OSUT":
        return array.astype(object)
    wide = array.astype(np.float32) if array.dtype.isbuiltin == 2 else array
    out = np.array([str(v) for v in wide.reshape(-1)], object)
    return out.reshape(array.shape)


def _read(texts: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Texts as numbers."""
    decoded = [t.decode() if isinstance(t, bytes) else str(t) for t in texts.reshape(-1)]
    if dtype.kind in "iu":
        found = np.array(
            [int(float(t)) if "." in t or "e" in t.lower() else int(t) for t in decoded]
        )
        return found.astype(dtype).reshape(texts.shape)
    return np.array([float(t) for t in decoded]).astype(dtype).reshape(texts.shape)


@operator("Cast", either=("x",), known="function")
def cast(x: Any, *, to: int, saturate: int = 1, round_mode: str = "up", device: Any = None) -> Any:
    element = element_of(to)
    if _plain(x, element):  # a part of a shape stays on the host
        with np.errstate(all="ignore"):
            return x.array.astype(element.np)
    return convert(x, element, bool(saturate), round_mode, device)


def _plain(x: Any, element: Any) -> bool:
    """Whether NumPy converts it as ONNX asks for."""
    return (
        isinstance(x, Host)
        and x.array.dtype.kind in "biuf"
        and isinstance(element, dtypes.DType)
        and element not in dtypes.NARROW
        and not element.is_complex
    )


@operator("CastLike", either=("x", "target"), known="function")
def cast_like(
    x: Any, target: Any, *, saturate: int = 1, round_mode: str = "up", device: Any = None
) -> Any:
    return convert(x, element(target), bool(saturate), round_mode, device)


def element(value: Any) -> Any:
    """The dtype of a value: one of tensors, one of NARROW, or str."""
    if not isinstance(value, Host):
        return value.dtype
    kind = value.array.dtype
    if kind.kind in "OSUT":
        return str
    return kind if kind in NARROW else dtypes.from_numpy(kind)


@operator("BitCast", either=("x",), known="function")
def bit_cast(x: Any, *, to: int, device: Any = None) -> Any:
    element = element_of(to)
    if isinstance(x, (Host, Narrow)) or isinstance(element, np.dtype):
        kind = element if isinstance(element, np.dtype) else element.np
        return Host(_reinterpreted(array_of(x), kind))
    if x.dtype.itemsize != element.itemsize:
        raise ValueError(f"{x.dtype} and {element} have different widths")
    if dtypes.bool_ in (x.dtype, element):
        x = x.to(dtypes.uint8)
        return f.ne(x, 0) if element is dtypes.bool_ else x.view(element)
    return x.view(element)


def _reinterpreted(array: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """The bits as another dtype. Numbers of less than a byte fill one in memory."""
    if array.dtype in NARROW and array.dtype.itemsize == 1 and dtype.itemsize == 1:
        bits = array.view(np.uint8)
        narrow = dtype.name.startswith(("int4", "int2"))
        if narrow:  # ml_dtypes extends the sign
            width = int(dtype.name[-1])
            signs = (bits >> (width - 1)) & 1
            bits = np.where(signs == 1, bits | (256 - 2**width), bits & (2**width - 1))
        elif dtype.name.startswith(("uint4", "uint2")):
            bits = bits & (2 ** int(dtype.name[-1]) - 1)
        return bits.astype(np.uint8).view(dtype)
    return np.ascontiguousarray(array).view(dtype)
