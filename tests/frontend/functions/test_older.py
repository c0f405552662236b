"""Older methods of tensors, and questions to sparse ones."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw

pytestmark = [pytest.mark.torch, pytest.mark.computes]
X = np.random.default_rng(0).standard_normal((2, 50))
Call = Callable[..., Any]


def outcome(call: Call, lib: Any) -> Any:
    """What a call gives: an array with its dtype, the class of an error, or a plain value."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = call(lib, lib.tensor(X))
        except Exception as error:
            return type(error)
    if not hasattr(found, "detach"):
        return found
    return str(found.dtype), found.detach().resolve_conj().numpy()


def compare(call: Call, torch: Any) -> None:
    ours, theirs = outcome(call, tw), outcome(call, torch)
    if not isinstance(theirs, tuple) or not isinstance(theirs[0], str):
        assert ours == theirs
        return
    assert ours[0] == theirs[0]
    np.testing.assert_array_equal(ours[1], theirs[1])


def doubled_base(m: Any, x: Any) -> Any:
    whole = x * 1
    whole[0]._base.mul_(2)
    return whole


def bases(m: Any, x: Any) -> Any:
    """Whether `_base` is the tensor itself, and what it is when that has gone."""
    whole, leaf = x * 1, m.nn.Parameter(m.ones(4))
    row = whole[0]
    row += 1
    seen = [row._base is whole, whole.T[1:]._base is whole, leaf[:2]._base is leaf]
    part = whole[1:].detach()
    seen += [part._base, part[0]._base.tolist(), whole.chunk(2)[0]._base is whole]
    return [*seen, leaf.data[1:]._base.requires_grad]


OLDER: list[Call] = [
    bases,
    lambda m, x: x.resize(25, 4),
    lambda m, x: x.resize_as(m.zeros(25, 4)),
    lambda m, x: x.resize(3),
    lambda m, x: m.empty_strided((2, 3), (1, 2)).stride(),
    lambda m, x: m.empty_strided((2, 3), (1,)),
    lambda m, x: m.empty_permuted((2, 3, 4), (0, 2, 1)).stride(),
    lambda m, x: x.new_empty_strided((2, 3), (1, 2)).stride(),
    doubled_base,
    lambda m, x: (x._base, x._is_view(), x[0]._is_view(), x.detach()._is_view(), x.name),
    lambda m, x: (str(x.grad_dtype), x.is_inference(), m.is_distributed(x), x.volatile),
    lambda m, x: x.solve(x),
    lambda m, x: x.symeig(),
    lambda m, x: x.eig(),
    lambda m, x: x.lstsq(x),
    lambda m, x: (x.sparse_dim(), x.dense_dim()),
    lambda m, x: x.to_dense(m.float32),
    lambda m, x: x.dequantize(),
]


@pytest.mark.parametrize("call", OLDER)
def test_older_methods(torch: Any, call: Call) -> None:
    compare(call, torch)


def test_dense_tensors_answer_as_dense(torch: Any) -> None:
    """values indices coalesce is_coalesced crow_indices col_indices ccol_indices row_indices,
    _values _indices _nnz q_scale q_zero_point q_per_channel_scales q_per_channel_zero_points
    q_per_channel_axis qscheme int_repr"""
    for name in (test_dense_tensors_answer_as_dense.__doc__ or "").replace(",", "").split():
        compare(lambda m, x, name=name: getattr(x, name)(), torch)
    others = (
        "to_padded_tensor _nested_tensor_size _nested_tensor_strides _dimI _dimV sparse_resize_ "
        "sparse_resize_and_clear_"
    )
    for name in others.split():
        with pytest.raises(NotImplementedError, match="dense"):
            getattr(tw.zeros(2), name)()
    with pytest.raises(NotImplementedError, match="no such tensors"):
        tw.zeros(2).to_mkldnn()
    for kind in ("xpu", "ipu", "mtia"):
        with pytest.raises(RuntimeError, match=f"no {kind} device"):
            getattr(tw.zeros(2), kind)()
