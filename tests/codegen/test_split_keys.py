"""Attention of few queries to many keys, whose keys are taken in parts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from interpreting import interpret

from tilewright.codegen.program import compile_graph
from tilewright.codegen.schedule import default_schedule, predict
from tilewright.codegen.target import CUDA, INTERPRET, LLVM, gpu
from tilewright.ir import dtype as dt
from tilewright.ir import ops
from tilewright.ir.dtype import DType
from tilewright.ir.node import Node
from tilewright.ir.ops.attention import attention_attrs, attention_total, attention_wide
from tilewright.ir.passes.autodiff import pullback
from tilewright.ir.passes.pipeline import lower_graph
from tilewright.ir.shape import Size
from tilewright.runtime.interpret import InterpretDevice

pytestmark = pytest.mark.triton
HOPPER = gpu("sm_90")


def leaf(number: int, array: np.ndarray, dtype: DType, values: dict[Node, Any]) -> Node:
    node = ops.leaf(number, Size(array.shape), dtype)
    values[node] = array.astype(dtype.np)
    return node


def reference(q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
    """float64; zeros where nothing is seen."""
    scores = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    top = scores.max(-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isneginf(top), 0, top))
    total = weights.sum(-1, keepdims=True)
    return (weights / np.where(total == 0, 1, total)) @ v


@pytest.mark.parametrize(
    ("lead", "rows", "keys", "mask", "dtype", "tolerance"),
    [
        ((2, 1), 5, 2048, None, dt.float32, 2e-6),
        ((2, 1), 5, 1029, "hidden parts", dt.float32, 2e-6),  # one part is shorter
        ((2, 2), 3, 1024, "added", dt.float32, 2e-6),
        ((2, 1), 4, 1024, "one column", dt.float32, 2e-6),
        ((3,), 4, 1536, None, dt.bfloat16, 4e-3),  # less than a rounding of the result
    ],
)
def test_values(
    lead: tuple[int, ...], rows: int, keys: int, mask: Any, dtype: DType, tolerance: float
) -> None:
    rng = np.random.default_rng(0)
    values: dict[Node, Any] = {}
    shapes = (*lead, rows, 8), (*lead[:-1], 1, keys, 8), (*lead[:-1], 1, keys, 6)
    q, k, v = (leaf(i, rng.standard_normal(s), dtype, values) for i, s in enumerate(shapes))
    seen = None
    if mask == "hidden parts":
        array = rng.standard_normal((2, 1, rows, keys)) > 0
        array[0, ..., :600] = False
        array[1, ..., 300:] = False
        array[1, :, 2] = False  # sees nothing at all
        seen = leaf(3, array, dt.bool_, values)
    elif mask == "added":
        array = rng.standard_normal((rows, keys)) * 3
        array[:, 500:] = -np.inf
        seen = leaf(3, array, dt.float32, values)
    elif mask == "one column":
        seen = leaf(3, np.array([[True], [False], [True], [True]]), dt.bool_, values)
    y = ops.scaled_dot_product_attention(q, k, v, seen)
    assert y.dtype is dtype
    (found,) = interpret([y], values, HOPPER, InterpretDevice())
    exact = [values[n].astype(np.float64) for n in (q, k, v)]
    expected = reference(*exact, None if seen is None else values[seen])
    np.testing.assert_allclose(
        found.reshape(y.shape).astype(np.float64), expected, atol=tolerance, rtol=tolerance
    )


def test_few_queries_fill_the_machine() -> None:
    """One launch for all parts and two that join them, in a fraction of the time."""
    q, k, v = (
        ops.leaf(i, Size((1, 8, n, 128)), dt.bfloat16) for i, n in enumerate((16, 8192, 8192))
    )
    y = ops.scaled_dot_product_attention(q, k, v)
    steps = compile_graph(lower_graph([y]), HOPPER).steps
    times = [predict(s.kernel, default_schedule(s.kernel, HOPPER), HOPPER) for s in steps]
    assert len(steps) == 3 and times[0].programs >= HOPPER.chip.multiprocessors
    (whole,) = compile_graph(lower_graph([y]), LLVM).steps
    alone = predict(whole.kernel, default_schedule(whole.kernel, HOPPER), HOPPER)
    assert 5 * sum(t.seconds for t in times) < alone.seconds


def test_what_stays_whole() -> None:
    def count(rows: int, keys: int, heads: int = 8, target: Any = CUDA, **more: Any) -> int:
        q, k, v = (
            ops.leaf(i, Size((1, heads, n, 64)), dt.bfloat16)
            for i, n in enumerate((rows, keys, keys))
        )
        y = ops.scaled_dot_product_attention(q, k, v, **more)
        return len(compile_graph(lower_graph([y]), target).steps)

    assert count(16, 4096) == 3
    assert count(16, 4096, target=INTERPRET) == count(16, 4096, target=LLVM) == 1
    assert count(16, 256) == count(16, 4096, heads=128) == count(4096, 4096) == 1
    assert count(16, 4096, causal=True) == 1


def test_parts_without_a_template_are_the_same() -> None:
    """What the records of a part decompose into, where a query sees nothing too."""
    rng = np.random.default_rng(2)
    values: dict[Node, Any] = {}
    q, k, v = (leaf(i, rng.standard_normal((2, 5, 4)), dt.float64, values) for i in range(3))
    mask = leaf(3, np.arange(10).reshape(2, 5, 1) % 5 > 0, dt.bool_, values)
    args = (q, k, v, mask, *attention_attrs(0.5, has_mask=True))
    found = interpret(
        [attention_wide(*args), attention_total(*args)], values, CUDA, InterpretDevice()
    )
    exact = [values[n] for n in (q, k, v)]
    expected = reference(*exact, values[mask])
    np.testing.assert_allclose(found[0].reshape(expected.shape), expected, atol=1e-12)
    scores = np.where(values[mask], exact[0] @ exact[1].swapaxes(1, 2) / 2, -np.inf)
    with np.errstate(divide="ignore"):
        total = np.log(np.exp(scores).sum(-1))
    np.testing.assert_allclose(found[1].reshape(2, 5), total, atol=1e-12)


def test_the_gradient_takes_the_logsumexp_of_all_parts() -> None:
    rng = np.random.default_rng(1)
    values: dict[Node, Any] = {}
    shapes = (1, 4, 8), (1, 1024, 8), (1, 1024, 8), (1, 4, 8)
    q, k, v, g = (leaf(i, rng.standard_normal(s), dt.float32, values) for i, s in enumerate(shapes))
    x = ops.variable(q, 0)
    y = ops.scaled_dot_product_attention(x, k, v)
    grad = pullback({y: g}, [x], create_graph=True)[x]
    found = interpret([y, grad], values, HOPPER, InterpretDevice())
    eq, ek, ev, eg = (values[n].astype(np.float64)[0] for n in (q, k, v, g))
    scores = eq @ ek.T / math.sqrt(8)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    out = p @ ev
    back = p * (eg @ ev.T - (eg * out).sum(-1, keepdims=True)) / math.sqrt(8)
    np.testing.assert_allclose(found[0].reshape(out.shape), out, atol=2e-6)
    np.testing.assert_allclose(found[1].reshape(4, 8), back @ ek, atol=2e-6)
