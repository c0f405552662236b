"""Dtypes that PyTorch refuses for an op of its database, and that tilewright computes.

A sample of a dtype that the op takes is converted to the other one. `tools/op_db.py --refused`
prints what is found, `test_op_db.py` holds it against `op_db_dtypes_known.py`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import op_db
from op_db_values import numbers_of, ours, tensors

import tilewright as tw

DTYPES = (
    "bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64", "float16",
    "bfloat16", "float32", "float64", "complex32", "complex64", "complex128",
)  # fmt: skip
_SAMPLES = 2
"""Samples that are tried of a variant and dtype, at most."""


def computed(ops: Iterable[Any]) -> dict[str, list[str]]:
    """The dtypes of each variant that PyTorch refuses and that are computed here."""
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for op in ops:
            dtypes = [name for name in DTYPES if _is_computed(op, name)]
            if dtypes:
                found[op_db.title(op)] = dtypes
    return found


def _is_computed(op: Any, name: str) -> bool:
    """Whether PyTorch refuses all samples of a dtype, and one of them is computed here."""
    import torch

    dtype, function = getattr(torch, name), op_db.function_of(op)
    if function is None or dtype in op.dtypes or not op.dtypes:
        return False
    own = torch.float32 if torch.float32 in op.dtypes else sorted(op.dtypes, key=str)[0]
    is_computed = False
    torch.manual_seed(0)
    np.random.seed(0)
    for sample in op_db.samples(op, own, False, _SAMPLES):
        given = [_converted(v, own, dtype) for v in (sample.input, sample.args, sample.kwargs)]
        if not any(t.dtype is dtype for t in tensors(given)):
            return False
        try:
            mine = [ours(v) for v in given]
        except Exception:  # a value that has no such dtype here
            return False
        if _runs(op.op, *given):
            return False
        is_computed = is_computed or _runs(function, *mine)
    return is_computed


def _converted(value: Any, own: Any, dtype: Any) -> Any:
    if isinstance(value, op_db.torch_tensor()):
        return value.to(dtype) if value.dtype is own else value
    if value is own:
        return dtype
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(_converted(v, own, dtype) for v in value)
    if isinstance(value, dict):
        return {key: _converted(v, own, dtype) for key, v in value.items()}
    return value


def _runs(function: Any, first: Any, args: Any, kwargs: Any) -> bool:
    try:
        for each in tensors(function(first, *args, **kwargs)):
            if isinstance(each, tw.Tensor):
                numbers_of(each)
    except Exception:
        return False
    return True


def differences(ops: Iterable[Any], known: Mapping[str, set[str]]) -> tuple[list[str], list[str]]:
    """Dtypes of these variants that aren't known, and known ones that are refused by now."""
    new, stale = [], []
    for op in ops:
        title = op_db.title(op)
        found, listed = {*computed([op]).get(title, ())}, known.get(title, set())
        new += [f"{title} {d}" for d in sorted(found - listed)]
        stale += [f"{title} {d}" for d in sorted(listed - found)]
    return new, stale
