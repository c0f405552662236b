"""Rules of the graph's algebra: what is left of a graph, and that it has the same values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from graph_oracle import assert_close, run

import tilewright as tw
from tilewright.ir import dtype as dt
from tilewright.ir import ops
from tilewright.ir.dtype import DType
from tilewright.ir.node import Node, reachable
from tilewright.ir.op import Kind
from tilewright.ir.passes.pipeline import lower_graph
from tilewright.ir.shape import Size


def products(roots: list[Node]) -> int:
    return sum(n.op in (ops.matmul, ops.matmul_wide) for n in reachable(lower_graph(roots)))


def full(number: float, shape: tuple[int, ...], dtype: DType) -> Node:
    return ops.expand(ops.constant(number, dtype), Size(shape))


@pytest.mark.parametrize("dtype", [dt.float32, dt.float64, dt.float16, dt.bfloat16], ids=str)
@pytest.mark.parametrize("number", [1.0, -0.25])
@pytest.mark.parametrize("wide", [False, True])
def test_a_product_with_one_number_is_a_sum(dtype: DType, number: float, wide: bool) -> None:
    """Also in batches, turned, and with an infinite or undefined element."""
    build = ops.matmul_wide if wide and dtype in dt.HALVES else ops.matmul
    x = ops.leaf(0, Size((2, 5, 4)), dtype)
    values = np.random.default_rng(0).normal(size=(2, 5, 4))
    values[0, 1, 2], values[1, 0, 0] = np.inf, np.nan
    given = {x: values.astype(dtype.np)}
    turned = ops.permute(full(number, (6, 4), dtype), (1, 0))
    roots = [build(full(number, (3, 5), dtype), x), build(x, turned)]
    assert products(roots) == 0
    exact = given[x].astype(np.float64)
    with np.errstate(invalid="ignore"):
        expected = [np.full((3, 5), number) @ exact, exact @ np.full((4, 6), number)]
    tolerance = {2: 8e-3, 4: 1e-6, 8: 1e-14}[roots[0].dtype.itemsize]
    for found, wanted in zip(run(roots, given), expected):
        assert_close(found.astype(np.float64), wanted, tolerance)


def _turned(x: Node) -> Node:
    return ops.permute(x, (*range(x.rank - 2), x.rank - 1, x.rank - 2))


@pytest.mark.parametrize(
    ("rows", "all_rows", "columns", "all_columns", "made"),
    [
        ((1, 5), (4, 5), (3, 5), (3, 5), (1, 3)),
        ((4, 5), (4, 5), (1, 5), (3, 5), (4, 1)),
        ((2, 1, 5), (2, 4, 5), (2, 3, 5), (2, 3, 5), (2, 1, 3)),
        ((4, 5), (2, 4, 5), (3, 5), (3, 5), (1, 4, 3)),
        ((4, 5), (2, 4, 5), (1, 3, 5), (2, 3, 5), (1, 4, 3)),
        ((4, 5), (2, 4, 5), (2, 3, 5), (2, 3, 5), (2, 4, 3)),
        ((4, 1), (4, 5), (3, 5), (3, 5), (4, 3)),
        ((1, 5), (0, 5), (3, 5), (3, 5), (0, 3)),
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", [dt.float32, dt.bfloat16, dt.int32], ids=str)
def test_a_product_of_copies_is_made_once(
    rows: tuple[int, ...],
    all_rows: tuple[int, ...],
    columns: tuple[int, ...],
    all_columns: tuple[int, ...],
    made: tuple[int, ...],
    dtype: DType,
) -> None:
    """Of rows, of columns, or of matrices, if both operands repeat them."""
    x, y = ops.leaf(0, Size(rows), dtype), ops.leaf(1, Size(columns), dtype)
    rng = np.random.default_rng(0)
    given = {v: rng.integers(-8, 8, v.shape).astype(dtype.np) for v in (x, y)}
    *batch, count, length = all_columns
    root = ops.matmul(ops.expand(x, all_rows), ops.expand(_turned(y), (*batch, length, count)))
    lowered = [n.shape for n in reachable(lower_graph([root])) if n.op is ops.matmul]
    assert lowered == [made]
    expected = np.broadcast_to(given[x].astype(np.float64), all_rows) @ np.swapaxes(
        np.broadcast_to(given[y].astype(np.float64), all_columns), -1, -2
    )
    (found,) = run([root], given)
    assert found.shape == root.shape
    assert_close(found.astype(np.float64), expected, 8e-3)


def test_rows_of_several_axes_repeat_along_one() -> None:
    x, w = ops.leaf(0, Size((2, 1, 3, 5)), dt.float32), ops.leaf(1, Size((5, 6)), dt.float32)
    root = ops.matmul(ops.reshape(ops.expand(x, (2, 4, 3, 5)), (24, 5)), w)
    lowered = [n.shape for n in reachable(lower_graph([root])) if n.op is ops.matmul]
    assert lowered == [(6, 6)]
    rng = np.random.default_rng(0)
    given = {v: rng.normal(size=v.shape).astype(np.float32) for v in (x, w)}
    (found,) = run([root], given)
    expected = np.broadcast_to(given[x], (2, 4, 3, 5)).reshape(24, 5) @ given[w]
    assert_close(found, expected, 1e-6)


@pytest.mark.usefixtures("fused")
def test_gradients_of_what_is_added_up(torch: Any) -> None:
    def gradients(T: Any, x: Any, w: Any, b: Any) -> list[Any]:
        T.nn.functional.linear(x, w, b).mean().backward()
        return [a.grad for a in (x, w, b)]

    arrays = [np.random.default_rng(i).normal(size=s) for i, s in enumerate(((7, 5), (3, 5), (3,)))]
    found, expected = (
        gradients(T, *(T.tensor(a).requires_grad_() for a in arrays)) for T in (tw, torch)
    )
    for mine, theirs in zip(found, expected):
        assert_close(mine.numpy(), theirs.numpy(), 1e-14)


def test_a_slice_of_tensors_one_after_another_is_one_of_a_tensor() -> None:
    shapes = ((3, 2), (3, 1), (3, 4))
    parts = [ops.leaf(i, Size(shape), dt.float32) for i, shape in enumerate(shapes)]
    given = {x: np.random.default_rng(i).normal(size=x.shape) for i, x in enumerate(parts)}
    whole = np.concatenate([given[x] for x in parts], 1).astype(np.float32)
    joined = ops.cat(parts, 1)
    for start, stop, step in ((0, 2, 1), (2, 3, 1), (3, 7, 2), (4, 6, 1), (1, 3, 1), (0, 7, 3)):
        root = ops.slice_axis(joined, 1, start, stop, step)
        is_inside = (start, stop) not in ((1, 3), (0, 7))
        assert is_inside == (ops.cat_op not in [n.op for n in reachable(lower_graph([root]))])
        (found,) = run([root], {x: v.astype(np.float32) for x, v in given.items()})
        np.testing.assert_array_equal(found, whole[:, start:stop:step])


def test_a_transform_of_real_parts_reads_complex_numbers() -> None:
    """Those that a view has, too; their gradients are those of
    real parts."""
    z = ops.leaf(0, Size((4, 6)), dt.complex64)
    shape = (4, 6, 1)
    parts = [ops.reshape(part(z), shape) for part in (ops.real, ops.imag)]
    views = [ops.reshape(ops.slice_axis(ops.cat(parts, 2), 2, i, i + 1), z.shape) for i in (0, 1)]
    roots = [ops.fourier_half(x, (1,), False, "backward") for x in views]
    first, second = lower_graph(roots)
    assert first.operands[0].op.kind is Kind.LEAF and second.operands[0].op is ops.imag
    rng = np.random.default_rng(0)
    values = (rng.normal(size=z.shape) + 1j * rng.normal(size=z.shape)).astype(np.complex64)
    for found, part in zip(run(roots, {z: values}), (values.real, values.imag), strict=True):
        assert_close(found, np.fft.rfft(part.astype(float)), 1e-6)

    g = ops.leaf(1, roots[0].shape, dt.complex64)
    vjp = ops.rfft_op.vjp
    assert vjp is not None
    cotangents = [vjp(g, root, *root.operands, *root.attrs)[0] for root in (first, roots[0])]
    given = {z: values, g: rng.normal(size=g.shape).astype(np.complex64)}
    found, real = run(cotangents, given)
    assert found.dtype == np.complex64 and real.dtype == np.float32
    np.testing.assert_array_equal(found, real)
