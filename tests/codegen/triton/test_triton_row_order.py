"""The order in which a row of several axes is walked along: as it lies in memory."""

from __future__ import annotations

import re

import numpy as np
import pytest
from launching import compute

from tilewright.codegen.kernel import Kernel
from tilewright.codegen.program import compile_graph
from tilewright.codegen.schedule import Schedule
from tilewright.codegen.target import INTERPRET, gpu
from tilewright.codegen.triton import emit
from tilewright.ir import dtype as dt
from tilewright.ir import ops
from tilewright.ir.node import Node
from tilewright.ir.passes.pipeline import lower_graph
from tilewright.ir.shape import Size
from tilewright.runtime.interpret import InterpretDevice

pytestmark = pytest.mark.triton


def groups(x: Node) -> Node:
    """x[n, h, w, 3 groups of 8 channels] as [n, 3, 8, h * w]."""
    n, h, w, _ = x.shape
    return ops.reshape(ops.permute(x, (0, 3, 1, 2)), (n, 3, 8, h * w))


def in_steps(kernel: Kernel, target: object) -> Schedule:
    return Schedule(block=2, block_r=16, looped=True)


@pytest.mark.parametrize("looped", [False, True])
def test_channels_that_come_last(looped: bool) -> None:
    leaf = ops.leaf(0, Size((2, 5, 7, 24)), dt.float32)
    x = groups(leaf)
    mean = ops.reshape(ops.sum(x, (2, 3)) * (1 / 280), (2, 3, 1, 1))
    roots = [x - ops.expand(mean, x.shape), ops.reshape(ops.max(x, (2, 3)), (2, 3))]
    values = {leaf: np.random.default_rng(0).standard_normal((2, 5, 7, 24), np.float32)}
    device = InterpretDevice(in_steps) if looped else InterpretDevice()
    found, _ = compute(roots, values, INTERPRET, device)
    rows = values[leaf].transpose(0, 3, 1, 2).reshape(2, 3, 8, 35).astype(np.float64)
    np.testing.assert_allclose(found[0], rows - rows.mean((2, 3), keepdims=True), atol=1e-6)
    np.testing.assert_array_equal(found[1], rows.max((2, 3)))


@pytest.mark.parametrize(
    ("fold", "innermost"),
    [("sum", 8), ("max", 8), ("argmax", 35)],  # positions keep their order
)
def test_which_axis_neighbouring_threads_have(fold: str, innermost: int) -> None:
    x = groups(ops.leaf(0, Size((64, 5, 7, 24)), dt.float32))
    rows = ops.reshape(x, (64, 3, 280))
    root = ops.argmax(rows, (2,)) if fold == "argmax" else getattr(ops, fold)(x, (2, 3))
    (step,) = compile_graph(lower_graph([root]), gpu("sm_90")).steps
    text = emit(step.kernel, Schedule(block=2, block_r=256, looped=True)).source
    assert re.search(rf"r_\d = r % {innermost}\b" if innermost == 8 else r"r_\d = r % s\d", text)
