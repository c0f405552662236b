"""Lanes that lie some elements apart, as in pooling, and the positions of extrema."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from graphs import launch_program, random_leaves, reference

from tilewright.codegen.llvm.memory import pieces
from tilewright.codegen.program import compile_graph
from tilewright.codegen.target import LLVM
from tilewright.ir import dtype as dt
from tilewright.ir import ops
from tilewright.ir.node import Node
from tilewright.ir.passes.pipeline import lower_graph
from tilewright.ir.shape import Size
from tilewright.runtime.cpu.native import LlvmDevice
from tilewright.runtime.native import host

if host.reason_against() is not None:
    pytest.skip(str(host.reason_against()), allow_module_level=True)


def run(root: Node, values: Any) -> np.ndarray:
    program = compile_graph(lower_graph([root], check=True), LLVM)
    return launch_program(LlvmDevice(force=True), program, values)[0].reshape(root.shape)


def agrees(root: Node, values: Any = None, tolerance: float = 2e-6) -> None:
    values = random_leaves([root]) if values is None else values
    wanted = reference([root], values)[0].astype(np.float64)
    found = run(root, values).astype(np.float64)
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


def leaf(*shape: int, dtype: dt.DType = dt.float32) -> Node:
    return ops.leaf("x", Size(shape), dtype)


DTYPES = [dt.float32, dt.float64, dt.float16, dt.int32, dt.int8, dt.bool_]


@pytest.mark.parametrize("stride", [-1, 2, 3, 4])
@pytest.mark.parametrize("lanes", [4, 8, 32])
def test_pieces_hold_what_lanes_read(lanes: int, stride: int) -> None:
    """Each lane is found once, in a vector within what the lanes span."""
    found: dict[int, int] = {}
    for begin, places in pieces(lanes, stride):
        assert all(0 <= p < lanes for p in places.values()) and not found.keys() & places.keys()
        found |= {lane: begin + place for lane, place in places.items()}
        last = (lanes - 1) * stride
        assert min(0, last) <= begin and begin + lanes - 1 <= max(0, last)
    assert found == {lane: lane * stride for lane in range(lanes)}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", [3, 31, 64, 65, 1000])
def test_slices(size: int, dtype: dt.DType) -> None:
    x = leaf(5, size, dtype=dtype)
    for step, start in itertools.product((2, 3, 4, 5), (0, 1)):
        y = ops.slice_axis(x, 1, start, size, step)
        agrees(ops.where(ops.eq(y, y), y, y), tolerance=0)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(3, 7), (4, 100), (64, 33)], ids=str)
def test_flips(shape: tuple[int, int], dtype: dt.DType) -> None:
    x = leaf(*shape, dtype=dtype)
    for axes in ((0,), (1,), (0, 1)):
        y = ops.flip(x, axes)
        agrees(ops.where(ops.eq(y, y), y, y), tolerance=0)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("width", [9, 32, 45, 56, 112])
@pytest.mark.parametrize(("kernel", "stride", "padding"), [(2, 2, 0), (3, 2, 1), (3, 3, 0)])
def test_pooling(torch: Any, width: int, kernel: int, stride: int, padding: int) -> None:
    import tilewright as tw
    import tilewright.nn.functional as F

    array = np.random.default_rng(0).standard_normal((2, 3, 11, width)).astype(np.float32)
    array[0, 1, 3, 4] = np.nan
    for name in ("max_pool2d", "avg_pool2d"):
        found = []
        for module, functional in ((tw, F), (torch, torch.nn.functional)):
            x = module.tensor(array, requires_grad=True)
            y = getattr(functional, name)(x, kernel, stride, padding)
            (y * module.arange(y.numel()).reshape(y.shape)).nan_to_num().sum().backward()
            found.append((y.detach().numpy(), x.grad.numpy()))
        for ours, theirs in zip(*found, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["few values", "one value", "lowest", "nan"])
@pytest.mark.parametrize("shape", [(7, 33), (300, 500), (50, 40), (2, 9000)], ids=str)
@pytest.mark.parametrize("op", ["argmax", "argmin"])
def test_positions_of_extrema(op: str, shape: tuple[int, int], kind: str) -> None:
    """The first of equals, whichever way lanes run."""
    rng = np.random.default_rng(0)
    array = rng.integers(0, 4, shape).astype(np.float32)
    if kind == "one value":
        array[:] = 1
    elif kind == "lowest":
        array[:] = -np.inf if op == "argmax" else np.inf
    elif kind == "nan":
        array[rng.random(shape) < 0.01] = np.nan
    x = leaf(*shape)
    function = getattr(ops, op)
    turned = ops.permute(x, (1, 0))
    cases = [(x, (0,)), (x, (1,)), (turned, (0,)), (turned, (1,))]
    every = tuple(range(2))
    for node, axes in [*cases, (x, every), (turned, every)]:
        given = array.T if node is turned else array
        wanted = getattr(np, op)(given, axes[0] if len(axes) == 1 else None)
        found = run(function(node, axes), {x: array})
        assert (found.reshape(np.shape(wanted)) == wanted).all()


def test_exp_of_masked_rows() -> None:
    x = leaf(70, 100)
    array = np.random.default_rng(0).uniform(-2, 2, (70, 100)).astype(np.float32)
    array[:, 50:], array[3], array[4, 5], array[5, 6] = -np.inf, -95, np.nan, 100
    array[6, 7], array[7, 8], array[8, 9] = 88.5, -104.5, -1e30
    with np.errstate(all="ignore"):
        agrees(ops.exp(x), {x: array}, tolerance=1e-6)
