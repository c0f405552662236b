"""torch.testing: comparisons that report differences, and random tensors for tests."""

from __future__ import annotations

import cmath
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tilewright.ir import dtype as dtypes
from tilewright.ir.dtype import DType
from tilewright.ir.location import at_user_line

from .functions.complexes import view_as_complex
from .functions.elementwise import isclose
from .functions.from_data import as_tensor, from_numpy
from .functions.limits import finfo, iinfo
from .functions.promotion import promote_types
from .functions.sampling import rand, randint
from .recording import Handle
from .recording.compounds import is_compound

__all__ = ["assert_allclose", "assert_close", "make_tensor"]

# Relative and absolute tolerance of a dtype; all others are compared exactly.
_TOLERANCES = {
    dtypes.float16: (1e-3, 1e-5),
    dtypes.bfloat16: (1.6e-2, 1e-5),
    dtypes.float32: (1.3e-6, 1e-5),
    dtypes.float64: (1e-7, 1e-7),
    dtypes.complex64: (1.3e-6, 1e-5),
    dtypes.complex128: (1e-7, 1e-7),
}
_FLOAT8 = (dtypes.float8_e4m3fn, dtypes.float8_e5m2)
_NUMBERS = (int, float, complex, np.number)


@dataclass(frozen=True)
class _Options:
    allow_subclasses: bool
    tolerances: tuple[float, float] | None
    equal_nan: bool
    checks: tuple[str, ...]  # the attributes that must be equal

    def tolerances_of(self, *kinds: DType) -> tuple[float, float]:
        if self.tolerances is not None:
            return self.tolerances
        found = [_TOLERANCES.get(kind, (0.0, 0.0)) for kind in kinds]
        return max(r for r, _ in found), max(a for _, a in found)


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: str | Callable[[str], str] | None = None,
) -> None:
    """AssertionError unless |actual - expected| <= atol + rtol * |expected| everywhere.

    actual, expected: tensors, arrays, numbers, or sequences and mappings of them. rtol, atol: by
    default they follow from the dtype; integers and bools are compared exactly. msg: the message,
    or a function that makes it of the default one.
    """
    if (rtol is None) != (atol is None):
        missing = "atol" if atol is None else "rtol"
        raise ValueError(
            f"Both 'rtol' and 'atol' must be either specified or omitted, but got no {missing}."
        )
    tolerances = None if rtol is None or atol is None else (rtol, atol)
    wanted = {
        "layout": check_layout, "device": check_device, "dtype": check_dtype,
        "stride()": check_stride,
    }  # fmt: skip
    checks = tuple(name for name, checked in wanted.items() if checked)
    options = _Options(allow_subclasses, tolerances, equal_nan, checks)
    for a, b, path in list(_pairs(actual, expected, (), options)):
        found = _difference(a, b, options)
        if found is not None:
            raise AssertionError(_message(found, path, msg))


def _message(text: str, path: tuple[Any, ...], msg: Any) -> str:
    if path:
        text += f"\n\nThe failure occurred for item {''.join(f'[{step!r}]' for step in path)}"
    return text if msg is None else msg(text) if callable(msg) else msg


def _pairs(
    a: Any, b: Any, path: tuple[Any, ...], options: _Options
) -> Iterator[tuple[Any, Any, tuple[Any, ...]]]:
    """The pairs to compare inside two values, and their places."""
    if _are(Sequence, a, b) and not _are(str, a, a) and not _are(str, b, b):
        if len(a) != len(b):
            text = f"The length of the sequences mismatch: {len(a)} != {len(b)}"
            raise AssertionError(_message(text, path, None))
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            yield from _pairs(x, y, (*path, i), options)
    elif _are(Mapping, a, b):
        missing, more = sorted(b.keys() - a.keys(), key=str), sorted(a.keys() - b.keys(), key=str)
        if missing or more:
            text = (
                "The keys of the mappings do not match:\n"
                f"Missing keys in the actual mapping: {missing}\n"
                f"Additional keys in the actual mapping: {more}"
            )
            raise AssertionError(_message(text, path, None))
        for key in a:
            yield from _pairs(a[key], b[key], (*path, key), options)
    elif _are_comparable(a, b, options):
        yield a, b, path
    else:
        raise TypeError(
            f"No comparison pair was able to handle inputs of type {type(a)} and {type(b)}."
        )


def _are(kind: Any, *values: Any) -> bool:
    return all(isinstance(value, kind) for value in values)


def _are_comparable(a: Any, b: Any, options: _Options) -> bool:
    if a is None or b is None or _are(bool, a, b) or _are(np.bool_, a, b):
        return True
    if _are((bool, np.bool_), a) or _are((bool, np.bool_), b):
        return False
    if _are(_NUMBERS, a, b):
        return True
    if not (_are(Handle, a, b) or _are(np.ndarray, a, b)):
        return False
    return type(a) is type(b) or options.allow_subclasses


def _difference(a: Any, b: Any, options: _Options) -> str | None:
    """The difference between two values, in words; None if they are close."""
    if a is None or b is None:
        return None if a is b else f"None mismatch: {a} is not {b}"
    if _are((bool, np.bool_), a, b):
        return None if bool(a) is bool(b) else f"Booleans mismatch: {bool(a)} is not {bool(b)}"
    if _are(_NUMBERS, a, b):
        return _of_numbers(a, b, options)
    if _are(np.ndarray, a, b):
        a, b = (from_numpy(np.ascontiguousarray(each)) for each in (a, b))
    return _of_tensors(a.detach(), b.detach(), options)


def _of_numbers(a: Any, b: Any, options: _Options) -> str | None:
    a, b = (each.item() if isinstance(each, np.number) else each for each in (a, b))
    if "dtype" in options.checks and type(a) is not type(b):
        return f"The (d)types do not match: {type(a)} != {type(b)}."
    kinds = (dtypes.int64 if type(each) is int else dtypes.float64 for each in (a, b))
    return _of_scalars(a, b, *options.tolerances_of(*kinds), options.equal_nan)


def _of_scalars(a: Any, b: Any, rtol: float, atol: float, equal_nan: bool) -> str | None:
    distance = abs(a - b)
    near = cmath.isfinite(distance) and distance <= atol + rtol * abs(b)
    if a == b or near or (equal_nan and cmath.isnan(a) and cmath.isnan(b)):
        return None
    share = distance / abs(b) if b != 0 else math.inf
    exact = rtol == atol == 0
    return (
        f"Scalars are not {'equal' if exact else 'close'}!\n\nExpected {b} but got {a}.\n"
        f"Absolute difference: {distance}{'' if exact else f' (up to {atol} allowed)'}\n"
        f"Relative difference: {share}{'' if exact else f' (up to {rtol} allowed)'}"
    )


def _of_tensors(a: Any, b: Any, options: _Options) -> str | None:
    for name in ("shape", *options.checks):
        x, y = (t.stride() if name == "stride()" else getattr(t, name) for t in (a, b))
        if x != y:
            return f"The values for attribute '{name}' do not match: {x} != {y}."
    if is_compound(a) or is_compound(b):
        return _of_compounds(a, b, options)
    rtol, atol = options.tolerances_of(a.dtype, b.dtype)
    if a.device != b.device:
        a, b = a.cpu(), b.cpu()
    if a.dtype is not b.dtype:
        dtype = promote_types(a.dtype, b.dtype)
        a, b = a.to(dtype), b.to(dtype)
    is_exact = a.dtype in _FLOAT8
    if is_exact:
        a, b = a.float(), b.float()
        near = isclose(a, b, 0.0, 0.0, options.equal_nan)
    else:
        if not a.dtype.is_differentiable:
            a, b = a.long(), b.long()
        near = isclose(a, b, rtol, atol, options.equal_nan)
    if bool(near.all()):
        return None
    if not a.dim():
        return _of_scalars(a.item(), b.item(), rtol, atol, options.equal_nan)
    wrong, count = int((~near).sum()), near.numel()
    counted = f"Mismatched elements: {wrong} / {count} ({wrong / count:.1%})"
    if is_exact:
        first = _index(int(near.logical_not().flatten().long().argmax()), a.shape)
        where = f"The first mismatched element is at index {first}."
        return f"Tensor-likes are not 'equal'!\n\n{counted}\n{where}"
    distance = (a - b).abs()
    share = distance / b.abs()
    exact = rtol == atol == 0
    lines = [f"Tensor-likes are not {'equal' if exact else 'close'}!", "", counted]
    for name, each, allowed in (("absolute", distance, atol), ("relative", share, rtol)):
        most, at = each.masked_fill(near, 0).flatten().max(0)
        line = f"Greatest {name} difference: {most.item()} at index {_index(int(at), a.shape)}"
        lines.append(line + ("" if exact else f" (up to {allowed} allowed)"))
    return "\n".join(lines)


def _of_compounds(a: Any, b: Any, options: _Options) -> str | None:
    """The difference between two tensors of which at least one is sparse or nested."""
    if a.layout != b.layout:
        return _of_tensors(a.to_dense(), b.to_dense(), options)
    inner = replace(options, checks=())
    if a.is_nested:
        return _of_tensors(a.contiguous().values(), b.contiguous().values(), inner)
    kind = str(a.layout).rpartition("_")[2].upper()
    if a._nnz() != b._nnz():
        return (
            f"The number of specified values in sparse {kind} tensors does not match: "
            f"{a._nnz()} != {b._nnz()}"
        )
    names = {"COO": ["indices"], "CSR": ["crow_indices", "col_indices"]}
    for name in (*names.get(kind, ["ccol_indices", "row_indices"]), "values"):
        x, y = (getattr(t, f"_{name}" if kind == "COO" else name)() for t in (a, b))
        found = _of_tensors(x, y, inner if name == "values" else replace(inner, tolerances=(0, 0)))
        if found is not None:
            return found.replace("Tensor-likes", f"Sparse {kind} {name}")
    return None


def _index(at: int, shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(at, tuple(shape)))


def assert_allclose(
    actual: Any,
    expected: Any,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = True,
    msg: str = "",
) -> None:
    """The older `assert_close`: dtypes and devices may differ, and it takes a float's tolerances of
    both sides: 1e-5 and 1e-8 for float64, 1e-4 and 1e-5 for float32, 1e-3 and 1e-3 for float16."""
    warnings.warn(
        "`torch.testing.assert_allclose()` is deprecated since 1.12 and will be removed in a "
        "future release. Please use `torch.testing.assert_close()` instead.",
        FutureWarning,
        stacklevel=2,
    )
    if not isinstance(actual, Handle):
        actual = as_tensor(actual)
    if not isinstance(expected, Handle):
        expected = as_tensor(expected, dtype=actual.dtype)
    if rtol is None and atol is None:
        older = {dtypes.float16: (1e-3, 1e-3), dtypes.float32: (1e-4, 1e-5)}
        older |= {dtypes.float64: (1e-5, 1e-8), dtypes.bfloat16: (1.6e-2, 1e-5)}
        kinds = [older.get(t.dtype, (0.0, 0.0)) for t in (actual, expected)]
        rtol, atol = (max(each) for each in zip(*kinds, strict=True))
    assert_close(
        actual,
        expected,
        rtol=rtol,
        atol=atol,
        equal_nan=equal_nan,
        check_device=True,
        check_dtype=False,
        check_stride=False,
        msg=msg or None,
    )


def make_tensor(
    *shape: Any,
    dtype: DType,
    device: Any,
    low: float | None = None,
    high: float | None = None,
    requires_grad: bool = False,
    noncontiguous: bool = False,
    exclude_zero: bool = False,
    memory_format: Any = None,
) -> Any:
    """A tensor of random numbers in [low, high): by default [-9, 9), of integers [-9, 10).

    noncontiguous: leave gaps in the memory. exclude_zero: replace zeros by the smallest positive
    normal number (1 for integers).
    """
    if noncontiguous and memory_format is not None:
        raise ValueError(
            "The parameters `noncontiguous` and `memory_format` are mutually exclusive, but got "
            f"{noncontiguous=} and {memory_format=}{at_user_line()}"
        )
    if len(shape) == 1 and isinstance(shape[0], Sequence) and not isinstance(shape[0], str):
        shape = tuple(shape[0])
    if dtype.is_complex:
        options = {"device": device, "low": low, "high": high, "exclude_zero": exclude_zero}
        parts = make_tensor(*shape, 2, dtype=dtype.to_real(), **options)
        out = view_as_complex(parts)
        if noncontiguous and out.numel() > 1:
            out = out.repeat_interleave(2, dim=-1)[..., ::2]
        return out.requires_grad_() if requires_grad else out
    is_float = dtype.is_floating_point
    if requires_grad and not is_float:
        raise ValueError(
            "`requires_grad=True` is not supported for boolean and integral dtypes, but got "
            f"{dtype=}{at_user_line()}"
        )
    a, b = _interval(dtype, low, high)
    if a == b:
        out = rand(shape, dtype=dtypes.float64, device=device).mul(0).add(a).to(dtype)
    elif is_float:
        share = rand(shape, dtype=dtypes.float64, device=device)
        out = (a * (1 - share) + b * share).to(dtype)
    else:
        out = randint(math.ceil(a), math.ceil(b), shape, dtype=dtypes.int64, device=device)
        out = out.to(dtype)
    if noncontiguous and out.numel() > 1:
        out = out.repeat_interleave(2, dim=-1)[..., ::2]
    if exclude_zero:
        out[out == 0] = finfo(dtype).tiny if is_float else 1
    return out.requires_grad_() if requires_grad else out


def _interval(dtype: DType, low: float | None, high: float | None) -> tuple[float, float]:
    """The bounds of the numbers, limited to the range of the dtype."""
    least: float
    end: float
    if dtype is dtypes.bool_:
        least, end, usual = 0, 2, (0, 2)
    elif dtype.is_floating_point:
        least, end, usual = finfo(dtype).min, finfo(dtype).max, (-9, 9)
    else:
        least, end = iinfo(dtype).min, iinfo(dtype).max + 1
        usual = (-9, 10)
    a = usual[0] if low is None else low
    b = usual[1] if high is None else high
    if math.isnan(a) or math.isnan(b):
        raise ValueError(
            f"`low` and `high` cannot be NaN, but got low={a} and high={b}{at_user_line()}"
        )
    if a == b and dtype.is_floating_point:
        warnings.warn(
            "Passing `low==high` to `torch.testing.make_tensor` for floating types is deprecated. "
            "Use `torch.full(...)` instead.",
            FutureWarning,
            stacklevel=3,
        )
    elif a >= b:
        raise ValueError(f"`low` must be less than `high`, but got {a} >= {b}{at_user_line()}")
    elif b < least or a >= end:
        raise ValueError(
            f"The value interval specified by `low` and `high` is [{a}, {b}), but {dtype} only "
            f"supports [{least}, {end}){at_user_line()}"
        )
    return min(max(a, least), end), min(max(b, least), end)
