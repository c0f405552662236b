"""Which folds walk along windows one position at a time."""

from __future__ import annotations

import pytest

from tilewright.codegen.kernel import Kernel
from tilewright.codegen.program import compile_graph
from tilewright.codegen.schedule import default_schedule
from tilewright.codegen.target import gpu
from tilewright.ir import dtype as dt
from tilewright.ir import ops
from tilewright.ir.node import Node
from tilewright.ir.passes.pipeline import lower_graph
from tilewright.ir.shape import Size

TARGET = gpu("sm_90")


def leaf(*shape: int) -> Node:
    return ops.leaf(0, Size(shape), dt.float32)


def pooled(size: int, stride: int) -> Node:
    windows = ops.windows(leaf(8, 16, 65, 65), (2, 3), (size, size), (stride, stride), (1, 1))
    return ops.max(windows, (4, 5))


@pytest.mark.parametrize(
    ("root", "walks"),
    [
        (pooled(3, 1), True),
        (pooled(3, 2), True),
        (pooled(2, 2), True),
        (pooled(33, 1), False),  # long windows are rows
        (ops.sum(leaf(4096, 8), (1,)), False),  # rows that follow each other
        (ops.sum(leaf(64, 4096), (0,)), False),  # columns
        (ops.sum(leaf(16, 8192, 64), (0, 2)), False),  # positions that lie apart
    ],
)
def test_windows_that_begin_near(root: Node, walks: bool) -> None:
    (step,) = compile_graph(lower_graph([root]), TARGET).steps
    assert isinstance(step.kernel, Kernel)
    schedule = default_schedule(step.kernel, TARGET)
    assert (schedule.looped and schedule.block_r == 1 and schedule.block >= 128) == walks
