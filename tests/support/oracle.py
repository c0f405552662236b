"""Comparison of a call under PyTorch and under tilewright."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import tilewright as tw

DTYPES = (
    "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"
)  # fmt: skip
FLOATS = ("float16", "bfloat16", "float32", "float64")
# PyTorch's messages for a missing kernel of a dtype. The call may work in tilewright.
NO_KERNEL = (
    "not implemented for",
    "not supported",
    "topk does not support bool",
    "Unsupported input type encountered for isin",
    "cannot be converted to type uint8_t",
)
_TOLERANCE = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 2e-5, "float64": 1e-10}


def sample(
    shape: tuple[int, ...], dtype: str, seed: int = 0, low: float = -3, high: float = 3
) -> np.ndarray:
    """Numbers of `dtype` (of bfloat16 as float32). Integers are small."""
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype == "uint8":
        return rng.integers(0, 6, shape).astype(np.uint8)
    if dtype.startswith("int"):
        return np.asarray(rng.integers(int(low), int(high) + 1, shape)).astype(dtype)
    values = np.asarray(rng.uniform(low, high, shape))
    # Exact in every float dtype, so that inputs aren't rounded.
    return (np.round(values * 16) / 16).astype("float32" if dtype == "bfloat16" else dtype)


def make(module: Any, array: np.ndarray, dtype: str) -> Any:
    return (
        module.tensor(array).to(getattr(module, dtype))
        if dtype == "bfloat16"
        else module.tensor(array)
    )


def array_of(t: Any) -> np.ndarray:
    """The values of either library's tensor, with halves widened and sparse ones filled in."""
    t = t.detach().to_dense()
    if str(t.dtype) in ("torch.bfloat16", "torch.float16"):
        t = t.float()
    return np.array(t.tolist(), dtype=str(t.dtype).removeprefix("torch.")).reshape(tuple(t.shape))


def agree(ours: Any, theirs: Any, tolerance: float | None = None, layout: bool = False) -> None:
    """Assert that two results are equal: values within the dtype's tolerance, dtype and shape."""
    if isinstance(theirs, (tuple, list)) and type(theirs).__name__ != "Size":
        assert isinstance(ours, (tuple, list)), f"{type(ours)} for {type(theirs)}"
        assert len(ours) == len(theirs), f"{len(ours)} results for {len(theirs)}"
        for a, b in zip(ours, theirs, strict=True):
            agree(a, b, tolerance, layout)
        return
    if not hasattr(theirs, "detach"):
        assert not isinstance(ours, tw.Tensor), f"a tensor for {theirs!r}"
        assert (
            repr(ours) == repr(theirs) or ours == theirs or (ours != ours and theirs != theirs)
        ), f"{ours!r} for {theirs!r}"
        return
    assert isinstance(ours, tw.Tensor), f"{type(ours)} for a tensor"
    assert str(ours.dtype) == str(theirs.dtype), f"{ours.dtype} for {theirs.dtype}"
    assert tuple(ours.shape) == tuple(theirs.shape), f"{ours.shape} for {theirs.shape}"
    if layout:
        assert ours.stride() == theirs.stride(), f"strides {ours.stride()} for {theirs.stride()}"
        assert ours.storage_offset() == theirs.storage_offset()
        assert ours.is_contiguous() == theirs.is_contiguous()
    a, b = array_of(ours), array_of(theirs)
    name = str(theirs.dtype).removeprefix("torch.")
    if name in _TOLERANCE:
        bound = tolerance or _TOLERANCE[name]
        np.testing.assert_allclose(a, b, rtol=bound, atol=bound)
    else:
        np.testing.assert_array_equal(a, b)


def compare(
    torch: Any,
    call: Callable[..., Any],
    arrays: tuple[np.ndarray, ...],
    dtypes: tuple[str, ...],
    tolerance: float | None = None,
    layout: bool = False,
) -> bool:
    """Compare `call(module, *tensors)` in both libraries. Where PyTorch raises, tilewright must
    too. Returns whether there is a result."""

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs = call(torch, *(make(torch, a, d) for a, d in zip(arrays, dtypes, strict=True)))
    except Exception as error:
        if any(words in str(error) for words in NO_KERNEL):
            return False
        try:
            ours = call(tw, *(make(tw, a, d) for a, d in zip(arrays, dtypes, strict=True)))
            for o in ours if isinstance(ours, (tuple, list)) else (ours,):
                array_of(o) if isinstance(o, tw.Tensor) else None
        except Exception as mine:
            assert _related(mine, error), f"{mine!r} for {error!r}"
            return False
        raise AssertionError(f"no error for {error!r}") from error
    ours = call(tw, *(make(tw, a, d) for a, d in zip(arrays, dtypes, strict=True)))
    agree(ours, theirs, tolerance, layout)
    return True


def _related(ours: Exception, theirs: Exception) -> bool:
    """Whether a handler for PyTorch's error also catches ours."""
    return (
        isinstance(ours, type(theirs))
        or isinstance(theirs, type(ours))
        or type(ours).__name__ == type(theirs).__name__
        or {
            type(ours).__name__,
            type(theirs).__name__,
        }
        <= {"RuntimeError", "ValueError", "TypeError", "IndexError", "NotImplementedError"}
    )


def close(ours, theirs, tol=2e-5):
    ours = ours.detach().numpy() if isinstance(ours, tw.Tensor) else np.asarray(ours)
    theirs = theirs.detach().numpy() if hasattr(theirs, "detach") else np.asarray(theirs)
    assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
    np.testing.assert_allclose(ours, theirs, rtol=tol, atol=tol)
