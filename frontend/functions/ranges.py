"""Numbers in even steps. Python's `range` is hidden here by PyTorch's."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.dtype import DType
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node
from tilewright.ir.op import not_implemented

from .. import devices as device_module
from .. import recording
from ..recording import Handle, at_once
from .arguments import into
from .creation import computed, count_of, written
from .from_data import finished, upload

if TYPE_CHECKING:
    from .._tensor import Tensor
    from ..types import DeviceLike, Number


def _arange(start: Number, step: Number, count: int, dtype: DType, device: Any) -> Node:
    """start + i * step. Fractions are rounded once, from float64."""
    fractions = dtype.is_floating_point and not (start == int(start) and step == int(step))
    wide = dtypes.float64 if fractions else dtype
    steps = ops.cast(ops.iota(count), wide)
    if step != 1:
        steps = steps * ops.constant(step, wide, device)
    return ops.cast(ops.constant(start, wide, device) + steps, dtype)


def arange(
    start: Number | Tensor | None = None,
    end: Number | Tensor | None = None,
    step: Number | Tensor = 1,
    *,
    out: Tensor | None = None,
    dtype: DType | None = None,
    layout: Any = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """start, start + step, … below `end`; int64 if all three are ints."""
    if end is None:
        start, end = None, start
    if end is None:
        raise TypeError(f"arange() misses its end{at_user_line()}")
    start = 0 if start is None else start
    values = [v.item() if isinstance(v, (Handle, np.generic)) else v for v in (start, end, step)]
    start, end, step = values
    if step == 0:
        raise RuntimeError(f"step must be nonzero{at_user_line()}")
    if not math.isfinite(start) or not math.isfinite(end):
        raise RuntimeError(f"unsupported range: {start} -> {end}{at_user_line()}")
    if (end - start) * step < 0:
        raise RuntimeError(
            f"upper bound and lower bound inconsistent with step sign{at_user_line()}"
        )
    dtype = written(out, dtype)
    if dtype is None:
        ints = isinstance(start, int) and isinstance(end, int) and isinstance(step, int)
        dtype = dtypes.int64 if ints else recording.default_dtype()
    dtype = recording.named_dtype(dtype)
    if dtype.is_complex:
        raise not_implemented("arange", dtype)
    if dtype is dtypes.int64:  # the count is that of the numbers as they are written
        start, end, step = int(start), int(end), int(step)
        if not step:
            raise ValueError(f"step must be nonzero{at_user_line()}")
    count = max(0, math.ceil((end - start) / step))
    if not dtype.is_floating_point:
        start, step = int(start), int(step)
    where = device_module.resolve(device)
    if dtype is dtypes.int64:
        made = at_once.counted(int(start), int(step), count, where)
        if made is not None:
            return into(out, finished(made, requires_grad, pin_memory), cast=False)
    key = (arange, start, step, count, dtype, where)
    node = recording.lookup(key)
    if node is None:
        node = recording.remember(key, _arange(start, step, count, dtype, where))
    t = recording.wrap(node)
    return into(out, finished(t, requires_grad, pin_memory), cast=dtype is None)


def _number(name: str, what: str, given: Any, dtype: DType | None = None) -> Any:
    kind = complex if dtype is not None and dtype.is_complex else float
    if isinstance(given, Handle):
        if given.dim():  # type: ignore[attr-defined]
            raise RuntimeError(
                f"{name} only supports 0-dimensional start and end tensors, but got {what} with "
                f"{given.dim()} dimension(s).{at_user_line()}"  # type: ignore[attr-defined]
            )
        return kind(given.item())  # type: ignore[attr-defined]
    return kind(given)


_WIDER = {"f": np.float64, "d": np.longdouble}
"""The dtypes that round a product and a sum once, by the character of their own dtype."""


def _spaced(start: Any, end: Any, steps: int, dtype: DType) -> np.ndarray:
    """`steps` numbers evenly spaced, with PyTorch's bits: the first half is counted from the start
    and the second one from the end, so that numbers around zero are symmetric. Those of whole
    numbers are spaced between whole ends: they are about to be truncated."""
    if not dtype.is_differentiable:
        start, end = int(start), int(end)
    kind = dtype.np if dtype.is_differentiable else np.dtype(np.float64)
    first, last = np.array(start, kind), np.array(end, kind)
    step = (last - first) / np.array(max(steps - 1, 1), kind)
    at = np.arange(steps).astype(_WIDER.get(kind.char, kind))
    line = np.where(at < max(steps // 2, 1), first + step * at, last - step * (steps - 1 - at))
    return line.astype(kind)


def _spaced_dtype(name: str, dtype: DType | None, *ends: Any) -> DType:
    """The dtype of numbers between two ends: if none was asked for, the default one, or its complex
    one if an end is complex."""
    kinds = [e.dtype.is_complex if isinstance(e, Handle) else isinstance(e, complex) for e in ends]
    kind = recording.named_dtype(dtype)
    if True in kinds and not kind.is_complex:
        kind = dtypes.complex_of(kind) if dtype is None else kind
        if not kind.is_complex:
            raise RuntimeError(
                f"torch.{name}(): inferred dtype {dtypes.complex_of(recording.named_dtype(None))} "
                f"can't be safely cast to passed dtype {kind}{at_user_line()}"
            )
    return computed(name, kind)


def linspace(
    start: Number | Tensor,
    end: Number | Tensor,
    steps: int,
    *,
    out: Tensor | None = None,
    dtype: DType | None = None,
    layout: Any = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """`steps` numbers evenly spaced from `start` to `end`, both included."""
    dtype = _spaced_dtype("linspace", written(out, dtype), start, end)
    steps = count_of("linspace", "steps", steps)
    first, last = (
        _number("linspace", what, given, dtype) for what, given in (("start", start), ("end", end))
    )
    if recording.stand_in(linspace_of) and dtype.is_floating_point:
        t = recording.wrap(linspace_of(first, last, steps, dtype))
    else:
        line = _spaced(first, last, steps, dtype).astype(dtype.np)
        t = upload(line, dtype, device_module.resolve(device))
    return into(out, finished(t, requires_grad, pin_memory), cast=dtype is None)


def linspace_of(start: float, end: float, steps: int, dtype: DType) -> Node:
    """The values of `linspace` as a graph, for recordings that are generic in sizes."""
    place = ops.cast(ops.iota(steps), dtype)
    return place * ((end - start) / max(steps - 1, 1)) + start


def logspace(
    start: float,
    end: float,
    steps: int,
    base: float = 10.0,
    *,
    out: Tensor | None = None,
    dtype: DType | None = None,
    layout: Any = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """`steps` numbers from base^start to base^end, whose logarithms are evenly spaced."""
    dtype = _spaced_dtype("logspace", written(out, dtype), start, end)
    steps = count_of("logspace", "steps", steps)
    first, last = (
        _number("logspace", what, given, dtype) for what, given in (("start", start), ("end", end))
    )
    exponents = _spaced(first, last, steps, dtype)
    with np.errstate(invalid="ignore", over="ignore"):
        line = np.power(float(base), exponents).astype(dtype.np)
    t = upload(line, dtype, device_module.resolve(device))
    return into(out, finished(t, requires_grad, pin_memory), cast=dtype is None)


def range(start: float = 0, end: float | None = None, step: float = 1, **options: Any) -> Tensor:
    """Deprecated: the numbers from `start` to `end`, which is one of them, of the default dtype."""
    warnings.warn(
        "torch.range is deprecated and will be removed in a future release because its behavior is "
        "inconsistent with Python's range builtin. Instead, use torch.arange, which produces values"
        " in [start, end).",
        stacklevel=2,
    )
    if end is None:
        start, end = 0, start
    if step == 0 or (end - start) / step < 0:
        raise RuntimeError(
            "step must be nonzero, and upper bound and lower bound consistent with its sign, got "
            f"start {start}, end {end}, step {step}{at_user_line()}"
        )
    options["dtype"] = options.get("dtype") or recording.default_dtype()
    count = int((end - start) / step + 1e-9) + 1
    return arange(start, start + (count - 0.5) * step, step, **options)
