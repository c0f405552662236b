"""Bounds of `clamp` beside PyTorch's: mixed types, beyond the dtype, NaN."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest

import tilewright as tw

BOUNDS = (None, -5, 3, 127, 128, 255, 256, -129, 40_000, -40_000, 1 << 40, 1.5, 300.7, -math.inf,
          math.nan, True)  # fmt: skip
NAN = math.nan


def _found(call: Any) -> Any:
    try:
        made = call()
    except (RuntimeError, NotImplementedError) as error:
        return type(error).__name__, str(error).partition(", at ")[0]
    return str(made.dtype).rpartition(".")[2], str(made.tolist())


@pytest.mark.parametrize(
    "name", ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32"]
)
def test_numbers(torch: Any, name: str) -> None:
    data = [0, 1] if name == "bool" else [0, 1, 5, 100, 127]
    theirs, ours = (t.tensor(data, dtype=getattr(t, name)) for t in (torch, tw))
    for bounds in itertools.product(BOUNDS, repeat=2):
        if bounds != (None, None):
            found, wanted = (
                _found(lambda x=x, bounds=bounds: x.clamp(*bounds)) for x in (ours, theirs)
            )
            assert found == wanted, bounds


@pytest.mark.parametrize(
    "bounds",
    [
        (0, None), (None, 1), (1.0, 2.5), (NAN, None), (0.0, NAN),
        ([-3.0, 0.0, NAN, 1.0, 4.0, 0.0], None), (None, [-3.0, 0.0, NAN, 1.0, 4.0, 0.0]),
        ([0.0] * 6, [1.0] * 6),
    ],
    ids=str,
)  # fmt: skip
def test_gradients_beside_nan(torch: Any, bounds: Any) -> None:
    """None passes to an element or a bound where either is NaN."""
    found = []
    for t in (tw, torch):
        x = t.tensor([-2.0, 0.0, 2.5, NAN, math.inf, -math.inf], requires_grad=True)
        limits = [t.tensor(b, requires_grad=True) if isinstance(b, list) else b for b in bounds]
        y = x.clamp(*limits)
        (y * t.arange(1.0, 7)).sum().backward()
        grads = [each.grad.tolist() for each in (x, *limits) if isinstance(each, t.Tensor)]
        found.append(str((y.tolist(), grads)))
    assert found[0] == found[1]


EDGES = list(itertools.product([-1.0, 0.0, 1.0, NAN, math.inf], repeat=3))
LIMITS = {
    "clamp": lambda t, x, low, high: x.clamp(low, high),
    "in place": lambda t, x, low, high: x.clone().clamp_(low, high),
    "of one row": lambda t, x, low, high: x.clamp(low, high[:1]),
    "fmax": lambda t, x, low, high: t.fmax(x, low),
    "fmin": lambda t, x, low, high: t.fmin(x, high),
}


@pytest.mark.parametrize("name", LIMITS)
def test_which_of_equal_operands_takes_the_gradient(torch: Any, name: str) -> None:
    """Bounds that are equal, crossed or NaN, and elements at them: first and second slopes."""
    found = []
    for t in (tw, torch):
        xs = [t.tensor([row[i] for row in EDGES], requires_grad=True) for i in range(3)]
        weight = t.arange(1.0, len(EDGES) + 1)
        y = LIMITS[name](t, *xs)
        options = {"allow_unused": True, "materialize_grads": True}
        first = t.autograd.grad((y**3 * weight).sum(), xs, create_graph=True, **options)
        plain = t.autograd.grad((LIMITS[name](t, *xs) * weight).sum(), xs, **options)
        second = t.autograd.grad(sum((g * weight).sum() for g in first), xs, **options)
        found.append([str(each.tolist()) for each in (y, *plain, *first, *second)])
    assert found[0] == found[1]
