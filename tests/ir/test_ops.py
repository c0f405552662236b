"""The op records: values, first and second derivatives, edges and half types.

Every case is checked in float64 against finite differences, with NumPy alone, and against PyTorch
where it is installed. `test_every_record_has_a_case` says which record a new case is missing for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from graph_oracle import Case, assert_close, gradients, inner, random_like, run
from op_cases import (
    ACTIVATIONS,
    CASES,
    CEIL,
    COMPLEX,
    COMPOSED,
    ELEMENTWISE,
    INF,
    NAN,
    TORCH,
    WEIGHT,
    WEIGHT_LEAF,
    T,
    case,
)
from probes import probe

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.node import reachable
from tilewright.ir.op import REGISTRY, Kind
from tilewright.ir.passes.autodiff import decomposed
from tilewright.ir.shape import Size

by_name = pytest.mark.parametrize("each", CASES, ids=lambda c: c.name)


@by_name
def test_derivatives_against_finite_differences(each: Case) -> None:
    roots, values, inputs = probe(each)
    n, h = len(inputs), 1e-5
    exact = run(roots, values)
    for name, x in enumerate(inputs):
        assert exact[1 + name].shape == exact[1 + n + name].shape == x.shape
    # Along one random direction in all inputs at once.
    steps = [random_like(f"v{i}", x.shape) for i, x in enumerate(inputs)]
    sides = [
        run(roots[: 1 + n], values | {x: values[x] + s * v for x, v in zip(inputs, steps)})
        for s in (h, -h)
    ]
    change = [(a - b) / (2 * h) for a, b in zip(*sides)]
    expected = np.sum(change[0] * random_like("w", exact[0].shape))
    assert_close(sum(np.sum(g * v) for g, v in zip(exact[1:], steps)), expected, 1e-6)
    expected = sum(np.sum(c * random_like(f"u{i}", c.shape)) for i, c in enumerate(change[1:]))
    assert_close(sum(np.sum(g * v) for g, v in zip(exact[1 + n :], steps)), expected, 1e-5)


@pytest.mark.filterwarnings("ignore")
@by_name
def test_against_torch(each: Case, torch: Any) -> None:
    roots, values, _ = probe(each)
    tensors = [
        torch.tensor(v, requires_grad=v.dtype.kind == "f")
        for v in list(values.values())[: len(each.inputs)]
    ]
    leaves = [t for t in tensors if t.requires_grad]
    y = each.torch(torch, *tensors)
    first = torch_gradients(torch, (y * torch.tensor(random_like("w", y.shape))).sum(), leaves)
    total = sum(
        (g * torch.tensor(random_like(f"u{i}", g.shape))).sum() for i, g in enumerate(first)
    )
    second = torch_gradients(torch, total, leaves)
    for ours, theirs in zip(run(roots, values), (y, *first, *second)):
        assert ours.shape == tuple(theirs.shape)
        np.testing.assert_allclose(ours, theirs.detach().numpy(force=True), rtol=1e-7, atol=1e-9)


def torch_gradients(torch: Any, y: Any, inputs: Sequence[Any]) -> list[Any]:
    if not y.requires_grad:
        return [torch.zeros_like(x) for x in inputs]
    return torch.autograd.grad(
        y, inputs, create_graph=True, allow_unused=True, materialize_grads=True
    )


WITHOUT_DERIVATIVE = (
    ops.airy_ai, ops.j0, ops.j1, ops.y0, ops.y1, ops.k0, ops.k0e, ops.k1, ops.k1e
)  # fmt: skip


def test_every_record_has_a_case() -> None:
    met: set[Any] = set()
    for each in CASES:
        values = each.leaves()
        pending = reachable([*probe(each)[0], each.f(*values)])
        while pending:
            node = pending.pop()
            if node.op not in met and node.op.decompose:
                pending += reachable([decomposed(node)])
            met.add(node.op)
    elsewhere = {  # in test_random.py, test_scaled_*.py and test_linear_cross_entropy.py
        *(op.name for op in WITHOUT_DERIVATIVE),  # in frontend/functions/test_special_functions.py
        "dropout",
        "whole_call",  # of an export to ONNX
        *("igamma", "igammac"),  # in frontend/functions/test_incomplete_gamma.py
        "gamma_sample",  # in frontend/distributions/test_distribution_samples.py
        "matmul_by_blocks",
        "scaled_mm",
        *("attention_wide", "attention_total"),  # in codegen/test_split_keys.py
        "fourier_passes",  # in frontend/functions/test_fft_passes.py
        # in codegen/test_bytes.py and frontend/test_quantization.py
        *("linear_int8", "linear_int4", "linear_dynamic", "linear_by_rows", "fake_quantize"),
        *COMPLEX,
        *(f"linear_cross_entropy{of}" for of in ("", "_x_grad", "_w_grad", "_bias_grad")),
    }
    identities = {Kind.MARKER, Kind.TRANSFER}
    missing = {
        op.name
        for op in REGISTRY.values()
        if (op.vjp or op.decompose) and op.kind not in identities and op not in met
    }
    assert missing <= elsewhere


# Edges: NaN, infinities and signed zeros, all-masked rows, what floats can't test.

EDGES = np.array([NAN, INF, -INF, 0.0, -0.0, 0.5, -0.5, 1, -1, 2, -2, 3, -3, 6, 30, -30, 1e300])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [op.name for op in ELEMENTWISE if "{1}" not in str(op.numpy)])
def test_unary_edges(name: str, torch: Any) -> None:
    check_edges(case(name, REGISTRY[name], TORCH.get(name, T(name)), EDGES), torch)


@pytest.mark.parametrize("each", ACTIVATIONS, ids=lambda c: c.name)
def test_activation_edges(each: Case, torch: Any) -> None:
    check_edges(case(each.name, each.f, each.torch, EDGES), torch)


def check_edges(each: Case, torch: Any) -> None:
    """Values everywhere, slopes wherever the argument is a number (PyTorch's own slope at NaN
    depends on whether its kernel is vectorized)."""
    values = each.leaves()
    (x,) = values
    y = each.f(x)
    ours = run([y, *gradients(ops.reshape(ops.sum(y, (0,)), ()), [x])], values)
    tensor = torch.tensor(EDGES, requires_grad=True)
    out = each.torch(torch, tensor)
    slope = torch.autograd.grad(out.sum(), tensor)[0].numpy(force=True)
    np.testing.assert_allclose(ours[0], out.detach().numpy(), rtol=1e-9, atol=1e-300)
    np.testing.assert_allclose(ours[1][1:], slope[1:], rtol=1e-9, atol=1e-15)


ROWS = np.array([[-INF] * 3, [INF, 1, 2], [-INF, 1, 0], [NAN, 1, 0], [0.1, 0.2, 0.3]])


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp"])
def test_rows_of_infinities(name: str, torch: Any) -> None:
    axis = (1,) if name == "logsumexp" else 1
    each = case(name, lambda x: getattr(ops, name)(x, axis), T(name, 1), ROWS)
    values = each.leaves()
    (x,) = values
    y = each.f(x)
    tensor = torch.tensor(ROWS, requires_grad=True)
    out = each.torch(torch, tensor)
    ours = run([y, *gradients(inner(y, y), [x])], values)
    theirs = torch.autograd.grad(out.square().sum(), tensor)[0]
    np.testing.assert_allclose(ours[0].reshape(out.shape), out.detach().numpy())
    np.testing.assert_allclose(ours[1], theirs.numpy())


def test_attention_without_keys() -> None:
    """A query whose keys are all masked gets zeros, and no gradient is NaN."""
    mask = np.array([[True, False], [False, False]])
    each = case(
        "masked",
        ops.scaled_dot_product_attention,
        T(""),
        *(random_like(n, (2, 2)) for n in "qkv"),
        mask,
    )
    values = each.leaves()
    q, k, v, _ = values
    y = each.f(*values)
    out, *grads = run([y, *gradients(inner(y, y), [q, k, v])], values)
    np.testing.assert_allclose(out, [values[v][0], [0, 0]])
    assert all(np.isfinite(g).all() for g in grads)


def test_ignored_positions_may_hold_anything() -> None:
    scores, target = np.array([[NAN, INF], [1.0, 2.0]]), np.array([-100, 1])
    values = case("", ops.cross_entropy, T(""), scores, target).leaves()
    assert_close(run([ops.cross_entropy(*values)], values)[0], np.log1p(np.exp(-1)), 1e-12)


def test_empty_softmax_and_logsumexp() -> None:
    values = case("", ops.softmax, T(""), np.zeros((2, 0))).leaves()
    (x,) = values
    soft, log = run([ops.softmax(x, 1), ops.logsumexp(x, (1,))], values)
    assert soft.shape == (2, 0)
    np.testing.assert_array_equal(log, [[-INF], [-INF]])


def test_argsort_puts_nan_last_and_keeps_ties() -> None:
    x = np.array([2.0, NAN, 1.0, 2.0, NAN, -INF])
    for dtype in (np.float64, np.float16, ml_dtypes.bfloat16):
        (leaf,) = values = case("", ops.argsort, T(""), x).leaves(dtype)
        up, down = run([ops.argsort(leaf, 0, False), ops.argsort(leaf, 0, True)], values)
        np.testing.assert_array_equal(up, [5, 2, 0, 3, 1, 4])
        np.testing.assert_array_equal(down, [1, 4, 0, 3, 2, 5])
        top, low = run([ops.cummax_index(leaf, 0), ops.cummin_index(leaf, 0)], values)
        np.testing.assert_array_equal(top, [0, 1, 1, 1, 4, 4])
        np.testing.assert_array_equal(low, [0, 1, 1, 1, 4, 4])


def test_pooling_indices(torch: Any) -> None:
    x = np.rint(random_like("pooled", (2, 2, 6, 7)) * 2)
    (leaf,) = values = case("", ops.argmax, T(""), x).leaves()
    places = [
        ops.max_pool_indices(leaf, *CEIL, (1, 1)),
        ops.adaptive_max_pool_indices(leaf, (4, 3)),
    ]
    f = torch.nn.functional
    expected = [
        f.max_pool2d(torch.tensor(x), (3, 2), (2, 3), (1, 0), 1, True, return_indices=True)[1],
        f.adaptive_max_pool2d(torch.tensor(x), (4, 3), return_indices=True)[1],
    ]
    for ours, theirs in zip(run(places, values), expected):
        np.testing.assert_array_equal(ours, theirs.numpy())


# Half types: the float64 result for the same (rounded) inputs, to a rounding or two.


def widened(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64) if array.dtype.kind in "fV" else array


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("each", COMPOSED, ids=lambda c: c.name)
def test_half_types_round_once(each: Case, dtype: str) -> None:
    half = dtypes.named(dtype)
    values = each.leaves(half.np)
    exact = case(each.name, each.f, each.torch, *map(widened, values.values())).leaves()
    roots = [each.f(*values), each.f(*exact)]
    assert roots[0].dtype in (half, dtypes.float32)
    actual, expected = run(roots, values | exact | {WEIGHT_LEAF: WEIGHT})
    step = float(ml_dtypes.finfo(half.np).eps)
    scale = np.abs(expected) + np.abs(expected).max(initial=0.1)
    assert np.all(np.abs(actual.astype(float) - expected) <= 4 * step * scale)


def test_windows_side_by_side_fold_without_a_sum() -> None:
    """As in the gradient of a global pooling, which would add up a term for each element."""
    g = ops.leaf(0, Size((2, 3, 1, 1, 40, 40)), dtypes.float32)
    folded = ops.fold(g, (2, 3, 40, 41), (2, 3), (40, 40), (40, 40), (1, 1))
    assert folded.shape == (2, 3, 40, 41)
    assert all(node.op.kind is not Kind.ELEMENTWISE for node in reachable([folded]))
