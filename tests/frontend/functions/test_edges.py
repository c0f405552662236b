"""Calls at the edges of what functions take: nothing to read, odd nesting, other dtypes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw

pytestmark = [pytest.mark.computes, pytest.mark.torch]


def _x(t: Any) -> Any:
    return t.arange(6.0).reshape(2, 3)


def _nothing(t: Any) -> Any:
    return t.zeros(0, 5, 2, dtype=t.int64)


def _assigned(t: Any, key: Any, value: Any) -> Any:
    x = _x(t)
    x[key] = value
    return x


CASES: dict[str, Callable[[Any], Any]] = {
    "scatter at no place": lambda t: t.scatter(_x(t), 0, _nothing(t), t.zeros(3)),
    "fill at no place": lambda t: t.scatter(_x(t), 1, _nothing(t), 2.0),
    "add at no place": lambda t: t.scatter_add(_x(t), 0, t.tensor([], dtype=t.int64), t.zeros(3)),
    "amax at no place": lambda t: t.scatter_reduce(_x(t), 0, _nothing(t), t.zeros(3), "amax"),
    "gather": lambda t: t.gather(_x(t), 1, t.tensor([[2], [0]]), sparse_grad=True),
    "all of no dimension": lambda t: t.all(_x(t), dim=()),
    "any of no dimension": lambda t: t.any(_x(t), dim=[], keepdim=True),
    "tensors as numbers": lambda t: t.tensor([t.tensor([1]), t.tensor([[2]])]),
    "a tensor after a number": lambda t: t.tensor([2, t.tensor([1.5])]),
    "a tensor as a row": lambda t: t.tensor([[1, 2], t.tensor([3, 4])]),
    "cat of nothing": lambda t: t.cat([t.tensor([]), t.tensor([], dtype=t.float64)], dim=1),
    "no blocks": lambda t: t.block_diag(),
    "choices of none": lambda t: t.combinations(t.tensor([1, 2, 3]), r=0),
    "complex draws": lambda t: t.randn(2, out=t.zeros(2, dtype=t.complex128)).isreal(),
    "absolute values as complex numbers": lambda t: t.abs(
        t.tensor([3 + 4j]), out=t.zeros(1, dtype=t.complex64)
    ),
    "memory that requires gradients": lambda t: t.frombuffer(
        bytearray(8), dtype=t.float32, requires_grad=True
    ),
    "zeros that require gradients": lambda t: t.zeros(2, out=t.ones(2), requires_grad=True),
    "sections by a tensor": lambda t: t.tensor_split(_x(t), t.tensor(2), dim=1)[0],
    "one coordinate": lambda t: t.unravel_index(t.tensor([3, 4]), 5)[0],
    "a mask takes one element": lambda t: _assigned(t, t.tensor([True, False]), t.tensor([7])),
    "the same shape keeps its strides": lambda t: t.tensor(
        _x(t).t().resize_(3, 2).stride() + _x(t).t().resize_as_(_x(t).t()).stride()
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_values(torch: Any, name: str) -> None:
    ours, theirs = CASES[name](tw), CASES[name](torch)
    assert str(ours.dtype) == str(theirs.dtype)
    assert ours.requires_grad == theirs.requires_grad
    assert ours.shape == theirs.shape
    np.testing.assert_array_equal(ours.detach().numpy(), theirs.detach().numpy())


def test_nothing_written_lets_gradients_through() -> None:
    x = _x(tw).requires_grad_()
    source = tw.ones(2, 3, 4, requires_grad=True)
    (x.scatter(0, _nothing(tw), source).sum() + x.gather(0, _nothing(tw)).sum()).backward()
    assert x.grad.tolist() == [[1.0] * 3] * 2


def _index(t: Any, *at: int) -> Any:
    return t.tensor(at)


ERRORS: dict[str, Callable[[Any], Any]] = {
    "scatter of another dtype": lambda t: t.scatter(_x(t), 0, _nothing(t), t.zeros(3).double()),
    "indices of sizes that differ": lambda t: _x(t)[_index(t, 0, 1), _index(t, 0, 1, 2)],
    "written indices that differ": lambda t: _assigned(t, (_index(t, 0, 1), _index(t, 0, 1, 2)), 1),
    "another dtype at an index": lambda t: _assigned(t, [0], t.zeros(1, dtype=t.int32)),
    "another dtype at a mask": lambda t: _assigned(
        t, t.tensor([True, True]), t.zeros(2, 3, dtype=t.int32)
    ),
    "no index": lambda t: _x(t).index_put([], t.tensor(1.0)),
    "a slice of text": lambda t: _x(t)["0":"1"],
    "rows as numbers": lambda t: t.tensor([t.tensor([1, 2]), t.tensor([3, 4])]),
    "no number": lambda t: t.tensor([t.tensor([])]),
    "positions as a tuple and a tensor": lambda t: t.nonzero(
        _x(t), as_tuple=True, out=t.zeros(0, dtype=t.int64)
    ),
    "sections of another dtype": lambda t: t.tensor_split(_x(t), t.tensor(1.0)),
    "sections in rows": lambda t: t.tensor_split(_x(t), t.tensor([[1]])),
    "no buffer": lambda t: t.frombuffer([1], dtype=t.float32),
    "the end of a buffer": lambda t: t.frombuffer(bytearray(8), dtype=t.float32, offset=8),
    "a negative size": lambda t: t.unravel_index(t.tensor(3), (2, -2)),
    "a fraction as a size": lambda t: t.unravel_index(t.tensor(3), (2.0, 2)),
    "a tensor as sizes": lambda t: t.unravel_index(t.tensor(3), t.tensor([2, 2])),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(torch: Any, name: str) -> None:
    with pytest.raises(Exception) as theirs:
        ERRORS[name](torch)
    with pytest.raises(theirs.type):
        ERRORS[name](tw)


def test_a_list_in_itself() -> None:
    data: list[Any] = [0]
    data.append(data)
    with pytest.raises(TypeError, match="self-referential"):
        tw.tensor(data)


def test_copies_have_the_same_operators() -> None:
    add = tw.ops.aten.add
    assert copy.deepcopy({"add": add})["add"] is copy.copy(add) is add
    assert copy.deepcopy(add.Tensor) is add.Tensor


def test_limits_compare_by_what_they_say(torch: Any) -> None:
    for lib in (tw, torch):
        assert lib.finfo(lib.float32) == lib.finfo()
        assert lib.finfo(lib.float32) != lib.finfo(lib.float64)
        assert lib.iinfo(lib.int8) == lib.iinfo(lib.int8) != lib.iinfo(lib.uint8)


DRAWS: dict[str, Callable[[Any, Any], Any]] = {
    "normal of a mean": lambda t, x: t.normal(x, 0.5),
    "normal of a deviation": lambda t, x: t.normal(0.5, x),
    "normal of both": lambda t, x: t.normal(x, x),
    "bernoulli": lambda t, x: t.bernoulli(x),
    "log_normal_": lambda t, x: (x * 1).log_normal_(),
    "uniform_": lambda t, x: (x * 1).uniform_(),
}


@pytest.mark.parametrize("name", DRAWS)
def test_no_gradient_flows_through_draws(torch: Any, name: str) -> None:
    for lib in (tw, torch):
        x = lib.full((3,), 0.5, requires_grad=True)
        drawn = DRAWS[name](lib, x)
        assert drawn.requires_grad
        (drawn * drawn).sum().backward()
        assert x.grad.tolist() == [0.0] * 3


@pytest.mark.parametrize("name", DRAWS)
def test_draws_have_no_tangents(name: str) -> None:
    forward = tw.autograd.forward_ad
    with forward.dual_level():
        dual = forward.make_dual(tw.full((3,), 0.5), tw.ones(3))
        assert forward.unpack_dual(DRAWS[name](tw, dual)).tangent.tolist() == [0.0] * 3


def test_draws_of_small_concentrations_lie_inside() -> None:
    for dtype in (tw.float32, tw.float64):
        small = tw.full((2,), 1e-2, dtype=dtype, requires_grad=True)
        beta = tw.distributions.Beta(small[0], small[1])
        drawn = beta.rsample([2000])
        assert ((drawn > 0) & (drawn < 1)).all()
        assert beta.log_prob(drawn).isfinite().all()
        drawn.sum().backward()
        assert small.grad.isfinite().all()


def test_densities_and_transforms_of_single_numbers(torch: Any) -> None:
    for lib in (tw, torch):
        assert lib.distributions.Gamma(1.0, 1.0).log_prob(2).item() == pytest.approx(-2)
        assert lib.fft.fftn(lib.ones(2, 4), s=3, dim=1).shape == (2, 3)
        assert lib.fft.rfftn(lib.ones(2, 4), s=2).shape == (2, 2)
