"""Tensors in calls of NumPy, and NumPy's numbers and Python's types in ours, beside PyTorch."""

from __future__ import annotations

import warnings
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tilewright as tw

CALLS = (
    """
np.sin(x)|np.add(x, 1)|np.sqrt(x, out=np.zeros(4))|np.isnan(x)|np.multiply(x, n)|np.clip(x, 1, 2)
np.reshape(x, (2, 2))|np.transpose(x.reshape(2, 2))|np.cumsum(x)|np.repeat(x, 2)|np.argsort(x)
np.take(x, [0])|np.searchsorted(x, 1.5)|np.sort(x)|np.concatenate([x, n])|np.where(x > 1, x, 0)
np.dot(n, x)|np.percentile(x, 50)|np.exp(T.tensor(1.0))|np.negative(x.to(T.int32))|x @ n|n @ x
np.array(x, dtype=np.float32)|np.array(x, dtype=np.float32, copy=False)
x.sum(np.int64(0))|T.roll(x, np.int64(1), np.int32(0))|T.mean(x.view(2, 2), dim=np.int64(-1))
T.squeeze(x[None], np.int64(0))|T.movedim(x.view(2, 2), np.int64(0), np.int64(1))|x[np.int64(1)]
x.reshape(np.int64(2), -1)|T.zeros(np.int64(2))|T.arange(np.int64(3))|x ** np.float64(2)
x.view(float)|x.view(int)|x.view(dtype=int)|x.view(bool)|x.view(complex)|T.set_default_dtype(float)
T.tril_indices(2, 2, dtype=int)|T.linalg.vector_norm(x, dtype=float)
T.linalg.vector_norm(x, dtype=int)|T.linalg.matrix_norm(x.view(2, 2), dtype=float)
T.linalg.norm(x, dtype=complex)
""".strip()
    .replace("\n", "|")
    .split("|")
)


def outcome(T: ModuleType, call: str, **values: Any) -> Any:
    values |= {"T": T, "np": np, "n": np.arange(4.0), "x": T.arange(4, dtype=T.float64)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's `__array_wrap__` is of NumPy's older protocol
        try:
            found = eval(call, values)
        except Exception as error:
            return type(error)
    if isinstance(found, T.Tensor):
        return "tensor", str(found.dtype), tuple(found.shape), found.tolist()
    return type(found), np.asarray(found).dtype, np.asarray(found).tolist()


@pytest.mark.parametrize("call", CALLS)
def test_numpy_and_tensors(torch: ModuleType, call: str) -> None:
    assert repr(outcome(tw, call)) == repr(outcome(torch, call))


def test_two_numbers_give_a_tensor_and_arrays_an_error(torch: ModuleType) -> None:
    for name in "add sub mul div floor_divide multiply true_divide pow maximum".split():
        for given in ((1, 2), (1.5, 2), (np.arange(3.0), 1), (np.arange(3.0),) * 2):
            ours, theirs = (outcome(T, f"T.{name}(*given)", given=given) for T in (tw, torch))
            assert repr(ours) == repr(theirs), (name, given)
