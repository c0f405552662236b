"""Convolutions of the baseline tier: products over blocks of windows, beside the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.node import Node
from tilewright.ir.ops.contraction import conv_output_size
from tilewright.ir.reference import evaluate
from tilewright.ir.shape import Size
from tilewright.runtime.baseline import convolutions, depthwise
from tilewright.runtime.baseline.program import CannotRun, Program

SIZES = [
    # x, w, stride, padding, dilation, groups
    ((3, 4, 40), (6, 4, 5), (1,), ((2, 2),), (1,), 1),
    ((2, 2, 2100), (4, 1, 7), (3,), ((0, 4),), (2,), 2),
    ((70, 3, 4, 5), (4, 3, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
    ((1, 5, 33, 31), (7, 5, 3, 2), (2, 3), ((1, 0), (2, 1)), (1, 1), 1),
    ((2, 6, 30), (6, 1, 3), (1,), ((1, 1),), (1,), 6),
    ((3, 1, 9, 20), (1, 1, 3, 2), (1, 2), ((1, 1), (0, 1)), (1, 1), 1),
    ((2, 6, 12, 12), (6, 1, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 6),
    ((3, 7, 13, 45), (7, 1, 3, 3), (2, 2), ((1, 1), (1, 1)), (1, 1), 7),
    ((2, 3, 20, 41), (3, 1, 5, 4), (1, 1), ((0, 3), (2, 0)), (2, 3), 3),
    ((2, 3, 8, 9), (3, 1, 2, 2), (1, 3), ((4, 4), (1, 0)), (1, 1), 3),
    ((2, 5, 64), (5, 1, 7), (2,), ((3, 1),), (2,), 5),
    ((2, 4, 9, 30), (6, 2, 2, 3), (2, 2), ((0, 1), (3, 3)), (3, 2), 2),
    ((2, 3, 4, 4), (5, 3, 1, 1), (2, 2), ((0, 0), (0, 0)), (1, 1), 1),
    ((3, 4, 12, 13), (6, 4, 1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
    ((3, 4, 130), (6, 2, 1), (1,), ((0, 0),), (3,), 2),
    ((1, 2, 3, 3), (2, 2, 3, 3), (1, 1), ((5, 5), (6, 6)), (1, 1), 1),
    ((2, 2, 5, 6, 7), (3, 2, 2, 3, 2), (1, 2, 1), ((1, 1), (0, 2), (1, 0)), (1, 1, 2), 1),
]


def _graph(each: Any, dtype: Any) -> tuple[list[Node], list[np.ndarray]]:
    """A convolution and its gradients, over leaves 0 (x), 1 (w) and 2 (the cotangent)."""
    x_shape, w_shape, stride, padding, dilation, groups = each
    attrs = stride, padding, dilation, groups
    out = tuple(map(conv_output_size, x_shape[2:], w_shape[2:], stride, padding, dilation))
    rng = np.random.default_rng(0)
    shapes = (x_shape, w_shape, (x_shape[0], w_shape[0], *out))
    arrays = [rng.uniform(-1, 1, s).astype(dtype.np) for s in shapes]
    x, w, g = (ops.leaf(i, Size(s), dtype) for i, s in enumerate(shapes))
    roots = [
        ops.conv(x, w, *attrs),
        ops.conv_input_grad(g, w, x_shape[2:], *attrs),
        ops.conv_weight_grad(g, x, w_shape[2:], *attrs),
    ]
    return roots, arrays


def _close(ours: Any, root: Node, arrays: list[np.ndarray]) -> None:
    wide = [a.astype(np.float64) for a in arrays]
    expected = evaluate(root, [wide[o.attrs[0]] for o in root.operands])
    assert ours.shape == expected.shape and ours.dtype == root.dtype.np
    tolerance = 1e-5 if root.dtype is dtypes.float32 else 1e-12
    np.testing.assert_allclose(ours, expected, rtol=0, atol=tolerance * np.abs(expected).max())


def _require_form(root: Node) -> None:
    if not convolutions.has_form(root):
        pytest.skip("no native code here")


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=lambda d: d.name)
@pytest.mark.parametrize("each", SIZES, ids=lambda s: f"{s[0]} by {s[1]}")
def test_convolutions_and_their_gradients(each: Any, dtype: Any) -> None:
    roots, arrays = _graph(each, dtype)
    for ours, root in zip(Program(roots).run(arrays, ()), roots, strict=True):
        _close(ours, root, arrays)


@pytest.mark.parametrize("block", [1, 7, 64])
def test_blocks_of_any_size(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of some samples, of some rows, and of parts of rows."""
    monkeypatch.setattr(convolutions, "_LEAST", block)
    monkeypatch.setattr(convolutions, "_MOST", block)
    for each in SIZES:
        roots, arrays = _graph(each, dtypes.float64)
        for root in roots:
            _require_form(root)
            form = convolutions.form_of(root)
            _close(form(*[arrays[o.attrs[0]] for o in root.operands]), root, arrays)


@pytest.mark.parametrize("each", SIZES, ids=lambda s: f"{s[0]} by {s[1]}")
def test_operands_may_lie_in_any_order(each: Any) -> None:
    roots, arrays = _graph(each, dtypes.float64)
    turned = [np.asfortranarray(a) for a in arrays]
    for ours, root in zip(Program(roots).run(turned, ()), roots, strict=True):
        _close(ours, root, arrays)


def test_no_samples() -> None:
    x, *rest = SIZES[3]
    roots, arrays = _graph(((0, *x[1:]), *rest), dtypes.float64)
    _require_form(roots[0])
    found = Program(roots).run(arrays, ())
    for ours, root in zip(found, roots, strict=True):
        assert ours.shape == root.shape and not ours.any()


def test_the_reference_is_not_asked_for_too_many_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convolutions, "has_form", lambda node: False)
    x, w = (
        ops.leaf(i, Size(s), dtypes.float32) for i, s in enumerate(((20, 1, 9000), (9, 1, 8000)))
    )
    with pytest.raises(CannotRun, match="windows"):
        Program([ops.conv(x, w, (1,), ((0, 0),), (1,), 1)])


@pytest.mark.parametrize("each", [s for s in SIZES if s[-1] == s[0][1] == s[1][0]], ids=str)
def test_single_channels_have_forms_of_their_own(each: Any) -> None:
    """All but the gradient of an image with more padding than its kernel reaches over."""
    forms = [depthwise.form_of(root) for root in _graph(each, dtypes.float32)[0]]
    low = [before for before, _ in each[3]]
    reach = [(k - 1) * d for k, d in zip(each[1][2:], each[4])]
    within = all(p <= r for p, r in zip(low, reach))
    _require_form(_graph(SIZES[0], dtypes.float32)[0][0])
    assert [f is not None for f in forms][::2] == [True, True]
    assert within or forms[1] is None


@pytest.mark.parametrize("kind", ["u1", "i1", "i2", "i4", "i8"])
@pytest.mark.parametrize("each", [SIZES[3], SIZES[5]], ids=str)
def test_whole_numbers(each: Any, kind: str) -> None:
    """By floats where these are exact; sums beyond the dtype lose their upper bits."""
    dtype = dtypes.from_numpy(np.dtype(kind))
    roots, _ = _graph(each, dtype)
    limits = np.iinfo(kind)
    for bound in (7, 127, limits.max):
        rng = np.random.default_rng(0)
        drawn = [rng.integers(max(-bound, limits.min), bound, s, kind, True) for s in each[:2]]
        drawn[0].flat[0] = limits.max if bound > 127 else 1
        (found,) = Program(roots[:1]).run(drawn, ())
        np.testing.assert_array_equal(found, evaluate(roots[0], drawn))


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16], ids=lambda d: d.name)
@pytest.mark.parametrize("each", [SIZES[3], SIZES[5]], ids=str)
def test_halves(each: Any, dtype: Any) -> None:
    """Computed in float32 and rounded once."""
    roots, arrays = _graph(each, dtype)
    for root, found in zip(roots, Program(roots).run(arrays, ()), strict=True):
        expected = evaluate(root, [arrays[o.attrs[0]] for o in root.operands])
        assert found.dtype == expected.dtype
        wide = [x.astype(np.float64) for x in (found, expected)]
        tolerance = 2.0**-8 if dtype is dtypes.bfloat16 else 2.0**-11
        np.testing.assert_allclose(*wide, 2 * tolerance, 1e-6)


@pytest.mark.parametrize("each", SIZES, ids=str)
@pytest.mark.parametrize("dtype", [dtypes.complex64, dtypes.complex128], ids=lambda d: d.name)
def test_complex_numbers(each: Any, dtype: Any) -> None:
    """By convolutions of their parts."""
    roots, arrays = _graph(each, dtype)
    rng = np.random.default_rng(1)
    arrays = [(a + 1j * rng.uniform(-1, 1, a.shape)).astype(dtype.np) for a in arrays]
    tolerance = 2e-5 if dtype is dtypes.complex64 else 1e-12
    for found, root in zip(Program(roots).run(arrays, ()), roots, strict=True):
        expected = evaluate(root, [arrays[o.attrs[0]].astype("c16") for o in root.operands])
        assert found.dtype == dtype.np
        np.testing.assert_allclose(found, expected, tolerance, tolerance * abs(expected).max())
