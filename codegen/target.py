"""Target: what codegen must know of the machine it writes for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """A machine.

    name: as the user calls it (`numpy`, `interpret`, `cuda:0`, `sm_90`).
    emitter: which emitter writes for it (`numpy`, `triton`, `llvm`).
    native_sort: whether argsort is one call; otherwise it is made of comparisons and a scatter.
    launch_cost: what a launch costs, in bytes that could be moved in its time.
    fuse_limit: the most buffers one kernel may touch.
    op_cost: what one unit of Op.cost takes for one element, in bytes that could be moved.
    parallel: how many points of parallel axes it takes to keep the machine busy.
    long_row: from how many elements on a row is folded in two steps if there are few rows.
    row_limit: the most elements of a row that stay on chip between two passes over it.
    tile_limit: the most elements that one program of a Triton kernel holds at a time.
    large_programs: whether a program costs so much that few large ones beat many small ones.
    column_limit: the most elements of a row whose columns one kernel folds beside the rows.
    tiled_attention: whether its emitter computes attention by tiles; otherwise it is decomposed.
    """

    name: str
    emitter: str
    native_sort: bool
    launch_cost: int
    fuse_limit: int = 32
    op_cost: float = 0.1
    parallel: int = 64
    long_row: int = 1 << 15
    row_limit: int = 1 << 14
    tile_limit: int = 1 << 14
    large_programs: bool = False
    column_limit: int = 0
    tiled_attention: bool = False


# In NumPy each op is a pass over memory, so nothing is worth computing twice, and rows stay in it.
NUMPY = Target(
    "numpy",
    "numpy",
    native_sort=True,
    launch_cost=1 << 14,
    op_cost=16.0,
    parallel=1,
    row_limit=1 << 62,
)
INTERPRET = Target(
    "interpret",
    "triton",
    native_sort=False,
    launch_cost=1 << 20,
    tile_limit=1 << 17,
    large_programs=True,
)
# Kernels are native loops: arithmetic is next to free beside memory, and a core is soon busy.
LLVM = Target(
    "llvm",
    "llvm",
    native_sort=True,
    launch_cost=1 << 14,
    op_cost=0.4,
    parallel=8,
    row_limit=1 << 15,
    column_limit=1 << 14,
    tiled_attention=True,
)
CUDA = Target("cuda", "triton", native_sort=False, launch_cost=1 << 22)
