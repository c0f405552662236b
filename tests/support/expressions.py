"""Expressions under PyTorch and under tilewright: their values, or the classes of their errors."""

from __future__ import annotations

import copy
import io
import math
import pickle
import warnings
from collections import OrderedDict, deque
from types import ModuleType
from typing import Any

import numpy as np

COMMON = {
    "OrderedDict": OrderedDict,
    "copy": copy,
    "deque": deque,
    "io": io,
    "math": math,
    "np": np,
    "pickle": pickle,
}


def outcome(module: ModuleType, source: str) -> Any:
    """The value of the last statement of `source`, an expression, with `module` as `torch`.

    Statements end with `;`. A tensor is returned as its shape, dtype, requires_grad and values.
    """
    module.manual_seed(0)
    names = {**COMMON, "torch": module, "nn": module.nn, "F": module.nn.functional}
    *before, last = source.split(";")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec("\n".join(line.strip() for line in before), names)
            return _plain(module, eval(last.strip(), names))
    except Exception as error:
        return error


def _plain(module: ModuleType, value: Any) -> Any:
    if isinstance(value, module.Tensor):
        values: Any = value.detach().double()
        return [tuple(value.shape), str(value.dtype), value.requires_grad, values.tolist()]
    if isinstance(value, (list, tuple)):
        return [_plain(module, each) for each in value]
    plain = isinstance(value, (bool, int, float, str, type(None)))
    return value if plain else str(value).replace("tilewright.", "torch.")


def _near(a: Any, b: Any) -> bool:
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_near, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-7) or (a != a and b != b)
    return bool(a == b)


def assert_alike(torch: ModuleType, ours: ModuleType, source: str) -> None:
    """Assert that both results are equal, or that handlers of PyTorch's error catch ours too."""
    expected, got = outcome(torch, source), outcome(ours, source)
    if isinstance(expected, Exception):
        assert isinstance(got, Exception), f"{source} gives {got}, PyTorch raises {expected!r}"
        caught_as = {kind.__name__ for kind in type(got).__mro__}
        assert type(expected).__name__ in caught_as, f"{source}: {expected!r} became {got!r}"
    else:
        assert not isinstance(got, Exception), f"{source} raises {got!r}, PyTorch gives {expected}"
        assert _near(got, expected), f"{source} gives {got}, PyTorch gives {expected}"
