"""Running folds and variances are as near to the truth as PyTorch's, on every engine.

The truth is NumPy's in float64; a result that is rounded once is at most 6e-8 away from it.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from engines import compute, each_engine

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.ops.generate import leaf

ONCE = 6.5e-8
SIZE = {"numpy": 1_000_000, "llvm": 1_000_000, "interpret": 60_000}


@functools.cache
def data(kind: str, *shape: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    normal = rng.standard_normal(shape)
    return {
        "uniform": rng.random(shape),
        "normal": normal,
        "near one": 1 + normal * 1e-3,
        "far": normal + 1e4,
    }[kind].astype(np.float32)


def error(got: Any, want: np.ndarray, scaled: bool = False) -> float:
    away = np.abs(np.asarray(got, np.float64) - want)
    return float((away / (np.abs(want).max() if scaled else np.abs(want))).max())


SCANS: dict[str, tuple[Any, Any, str]] = {
    "cumsum": (ops.cumsum, np.cumsum, "uniform"),
    "cumprod": (ops.cumprod, np.cumprod, "near one"),
    "logcumsumexp": (ops.logcumsumexp, lambda x, axis: np.logaddexp.accumulate(x, axis), "normal"),
}


@each_engine
@pytest.mark.parametrize("name", SCANS)
@pytest.mark.parametrize("layout", ["one row", "rows", "columns"])
def test_running_folds(engine: str, name: str, layout: str) -> None:
    size = SIZE[engine] if name != "logcumsumexp" else SIZE[engine] // 10
    op, truth, kind = SCANS[name]
    shape, axis = {
        "one row": ((size,), 0),
        "rows": ((4, size // 4), 1),
        "columns": ((size // 4, 4), 0),
    }[layout]
    x = data(kind, *shape)
    node = leaf(0, shape, dtypes.float32)
    if engine == "llvm" and name == "logcumsumexp":
        pytest.skip("NumPy takes it")
    (got,) = compute(engine, [op(node, axis)], {node: x})
    # A sum that goes through zero has no relative error there.
    assert error(got, truth(x.astype(np.float64), axis), scaled=name == "logcumsumexp") < ONCE


@each_engine
@pytest.mark.parametrize("kind", ["normal", "far"])
@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)])
def test_variances(engine: str, kind: str, axes: tuple[int, ...]) -> None:
    long = SIZE[engine] // 20
    shape = (long, 6) if 0 in axes else (6, long)
    x = data(kind, *shape)
    node = leaf(0, shape, dtypes.float32)
    count = x.size if len(axes) == 2 else long
    roots = [ops.variance(node, axes, count - 1), ops.deviation(node, axes, count - 1)]
    var, std = compute(engine, roots, {node: x})
    want = x.astype(np.float64).var(axes, ddof=1, keepdims=True)
    assert error(var, want) < ONCE and error(std, np.sqrt(want)) < ONCE


def test_at_least_as_near_as_pytorch(torch: ModuleType) -> None:
    import tilewright as tw

    x, far = data("normal", 100_000), data("far", 100, 768)
    wide = far.astype(np.float64)
    calls: list[tuple[Any, np.ndarray, np.ndarray]] = [
        (lambda m, x: x.cumsum(0), x, np.cumsum(x.astype(np.float64))),
        (lambda m, x: x.var(1), far, wide.var(1, ddof=1)),
        (lambda m, x: m.var_mean(x, dim=0)[0], far, wide.var(0, ddof=1)),
        (lambda m, x: x.std(), far, wide.std(ddof=1)),
        (
            lambda m, x: m.nn.functional.layer_norm(x, (768,)),
            far,
            (wide - wide.mean(1, keepdims=True)) / wide.std(1, keepdims=True),
        ),
    ]
    for call, array, want in calls:
        theirs, ours = (
            error(call(m, m.tensor(array)).numpy(), want, scaled=True) for m in (torch, tw)
        )
        assert ours <= theirs * 1.1 + 1e-8


def test_what_pytorch_makes_of_the_gradient_at_a_kink(torch: ModuleType) -> None:
    import tilewright as tw

    for module in (torch, tw):
        x = module.tensor([[1.0, 2, 4], [5, 5, 5]], requires_grad=True)
        x.std(1).sum().backward()
        np.testing.assert_allclose(
            x.grad.tolist(), [[-0.436436, -0.109109, 0.545545], [0, 0, 0]], rtol=1e-5
        )


WEIGHTS = [0.25, 0.5, 0.75, 1, [0.25, 0.5, 0.75, 1.0, 0.0, 0.6]]


@pytest.mark.parametrize("weight", WEIGHTS, ids=str)
def test_lerp_from_the_nearer_end(torch: Any, weight: Any) -> None:
    """An infinite end is NaN only where PyTorch has NaN, and the ends themselves are exact."""
    import tilewright as tw

    inf = float("inf")
    found = []
    for m in (tw, torch):
        a = m.tensor([1.0, -inf, 0.5, -inf, inf, 1e8], requires_grad=True)
        b = m.tensor([-inf, 1.0, 0.5, -inf, 1.0, 0.1], requires_grad=True)
        at = m.tensor(weight, requires_grad=True) if isinstance(weight, list) else weight
        mixed = a.lerp(b, at)
        mixed[2::3].sum().backward()
        found.append([mixed, a.grad[2::3], b.grad[2::3]])
        turned = m.lerp(m.tensor([1 + 1j]), m.tensor([3 - 2j]), 0.75)
        found[-1].append(m.view_as_real(turned))
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(
            ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-6, equal_nan=True
        )
