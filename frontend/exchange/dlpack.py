"""DLPack for dtypes that NumPy's capsules don't know: bfloat16 and float8.

NumPy exchanges their bits as unsigned integers. The capsule's dtype, which stands in the struct
`DLTensor` that it points to, is read or set here; dmlc/dlpack, `dlpack.h`, has the layout.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from tilewright.ir import dtype as dtypes
from tilewright.ir.dtype import DType

_CODES = {
    dtypes.bfloat16: 4,
    dtypes.float8_e4m3fn: 10,
    dtypes.float8_e5m2: 12,
}
"""kDLBfloat, kDLFloat8_e4m3fn, kDLFloat8_e5m2."""
_UNSIGNED = 1
_NAMES = (b"dltensor", b"dltensor_versioned")
# The bytes before the code of the dtype: data, device and rank; the version, two pointers and flags
# come first in a versioned struct.
_OFFSETS = {b"dltensor": 20, b"dltensor_versioned": 52}

_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)


def _code(capsule: Any) -> Any:
    """The byte of a capsule that holds the code of its dtype; None if nobody may read it."""
    for name in _NAMES:
        if _is_valid(capsule, name):
            return ctypes.c_uint8.from_address(_pointer(capsule, name) + _OFFSETS[name])
    return None


def is_known(dtype: DType) -> bool:
    """Whether capsules have a code for a dtype that NumPy doesn't know."""
    return dtype in _CODES


def capsule_of(array: np.ndarray, dtype: DType, **options: Any) -> Any:
    """The capsule of an array whose elements are of `dtype`, one of this module's."""
    capsule = array.view(f"u{dtype.itemsize}").__dlpack__(**options)
    _code(capsule).value = _CODES[dtype]
    return capsule


def plain(capsule: Any) -> DType | None:
    """Have NumPy read the elements of a capsule as unsigned integers, if it doesn't know them.
    Returns what they are, or None."""
    code = _code(capsule)
    for dtype, own in _CODES.items():
        if code is not None and code.value == own:
            code.value = _UNSIGNED
            return dtype
    return None
