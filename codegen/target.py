"""Target: the facts about a machine that codegen needs."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from tilewright.ir.dtype import DType, float32

from .chip import CHIPS, SM_90, Chip


@dataclass(frozen=True, slots=True)
class Target:
    """A machine.

    name: as the user calls it (`numpy`, `interpret`, `cuda:0`, `sm_90`).
    emitter: which emitter writes for it (`numpy`, `triton`, `llvm`).
    native_sort: whether argsort is one call. Otherwise words are sorted (sorting.py), and updates
        at positions that are data are grouped by them (grouping.py).
    launch_cost: the cost of a launch, in bytes that could be moved in its time.
    fuse_limit: the most buffers one kernel may touch.
    op_cost: the cost of one unit of Op.cost for one element, in bytes that could be moved.
    sector: the least bytes that are read where neighbouring threads don't read neighbours; 0 if a
        cache makes up for that.
    parallel: the number of parallel points that keeps the machine busy.
    long_row: the least elements of a row that is folded in two steps if there are few rows.
    row_limit: the most elements of a row that stay on chip between two passes over it.
    tile_limit: the most elements that one program of a Triton kernel holds at a time.
    large_programs: whether a program costs so much that few large ones beat many small ones.
    column_limit: the most elements of a row whose columns one kernel folds beside the rows.
    product_rows: the most columns of a contraction's result whose rows its kernel folds, with one
        tile for them all; 0 if rows are folded from memory.
    tiled_attention: the dtypes whose attention is computed by tiles; that of others is decomposed.
    pages: whether attention's kernels read keys and values where a table of pages says they lie.
    gradient_passes: whether attention's gradient takes two kernels, one that walks along keys and
        one that walks along queries; otherwise one kernel does both.
    split_keys: whether few queries to many keys take these in parts, in programs of their own.
    columns: how many neighbouring columns one program folds; 0 if it takes them one by one.
    convert_limit: the most often that an element of a contraction's operand may be used, if it is
        converted to a narrow type on its way there. An element that is used more often is converted
        before. None for any number.
    split_products: the dtypes of matrix products whose K may be cut to keep the machine busy.
    split_scans: whether running folds of few long rows are cut to keep the machine busy.
    channels_last: the dtypes whose convolutions have channels last in memory; float32 only with
        `tf32_convolutions`.
    interleaved_strides: whether the input gradients of strided convolutions become convolutions
        with stride 1 whose results are interleaved (interleave.py).
    depthwise_sums: whether depthwise convolutions and their gradients become sums over windows
        (sums.py).
    vector_sums: the dtypes whose products of a matrix and a vector become sums along its rows
        (sums.py).
    turned_factors: the least rows of a float32 product whose second factor is turned in memory
        first, if it lies as a layer's weight does (`fusion/anchors.py`); 0 if none is turned.
    digits: whether large float32 products are made of products of bfloat16 (`legalize/digits.py`).
    byte_sums: the most vectors whose products with a matrix of bytes become such sums.
    chip: the GPU whose numbers schedules go by.
    block_scales: whether a product of float8 with scales of blocks is one kernel.
    tf32: whether products of float32 may be rounded to TF32's 10 bits, as PyTorch's switch allows.
    tf32_convolutions: the same for convolutions, which PyTorch rounds unless it is told not to.
    complex_numbers: whether kernels compute with complex numbers. Otherwise these are pairs of real
        ones (pairs/).
    host_memory: whether kernels and routines of the host work in the same memory.
    rounds_halves: whether each result of a half type is rounded, also within the kernel that
        computes it, so that no value depends on which others are in memory.
    """

    name: str
    emitter: str
    native_sort: bool
    launch_cost: int
    fuse_limit: int = 32
    op_cost: float = 0.1
    sector: int = 0
    parallel: int = 64
    long_row: int = 1 << 15
    row_limit: int = 1 << 14
    tile_limit: int = 1 << 14
    large_programs: bool = False
    column_limit: int = 0
    product_rows: int = 0
    tiled_attention: tuple[str, ...] = ()
    pages: bool = False
    gradient_passes: bool = False
    split_keys: bool = False
    columns: int = 0
    convert_limit: int | None = None
    split_products: tuple[str, ...] = ()
    split_scans: bool = False
    channels_last: tuple[str, ...] = ()
    block_scales: bool = False
    interleaved_strides: bool = False
    depthwise_sums: bool = False
    vector_sums: tuple[str, ...] = ()
    turned_factors: int = 0
    digits: bool = False
    byte_sums: int = 0
    chip: Chip = SM_90
    tf32: bool = False
    tf32_convolutions: bool = False
    complex_numbers: bool = False
    host_memory: bool = False
    rounds_halves: bool = True

    def rounds(self, convolution: bool) -> bool:
        """Whether float32 factors may be rounded, in convolutions or in other products."""
        return self.tf32_convolutions if convolution else self.tf32

    def turns(self, dtype: DType) -> bool:
        """Whether convolutions of a dtype have channels last."""
        taken = dtype.name in self.channels_last
        return taken and (dtype is not float32 or self.tf32_convolutions)


TENSOR_TYPES = ("float32", "float16", "bfloat16")
"""The types that Triton's tl.dot takes on every target."""

# In NumPy each op is a pass over memory: nothing is worth computing twice, and rows stay there.
NUMPY = Target(
    "numpy",
    "numpy",
    native_sort=True,
    launch_cost=1 << 14,
    op_cost=16.0,
    parallel=1,
    row_limit=1 << 62,
    complex_numbers=True,
    host_memory=True,
)
INTERPRET = Target(
    "interpret",
    "triton",
    native_sort=False,
    launch_cost=1 << 20,
    tile_limit=1 << 17,
    large_programs=True,
    product_rows=512,
    tiled_attention=TENSOR_TYPES,
    pages=True,
    gradient_passes=True,
    convert_limit=128,
    split_scans=True,
    channels_last=TENSOR_TYPES,
    block_scales=True,
    interleaved_strides=True,
    depthwise_sums=True,
    byte_sums=1,
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
    tiled_attention=(*TENSOR_TYPES, "float64"),
    vector_sums=(*TENSOR_TYPES, "float64"),
    byte_sums=4,
    host_memory=True,
)
CUDA = Target(
    "cuda",
    "triton",
    native_sort=False,
    launch_cost=1 << 22,
    sector=32,
    column_limit=1 << 12,
    product_rows=512,
    tiled_attention=TENSOR_TYPES,
    pages=True,
    gradient_passes=True,
    split_keys=True,
    columns=64,
    convert_limit=128,
    split_products=TENSOR_TYPES,
    split_scans=True,
    channels_last=TENSOR_TYPES,
    block_scales=True,
    interleaved_strides=True,
    depthwise_sums=True,
    vector_sums=("float32", "float64"),
    turned_factors=128,
    digits=True,
    byte_sums=1,
    tf32_convolutions=True,
)


def gpu(name: str, tf32: bool = False) -> Target:
    """The target of an architecture. One that is not in `CHIPS` (sm_86, sm_120, gfx90a) gets the
    numbers of the nearest older one of its maker."""
    if name in CHIPS:
        chip = CHIPS[name]
    elif re.fullmatch(r"sm_\d+", name) and int(name[3:]) >= 80:
        older = [c for n, c in CHIPS.items() if n.startswith("sm_") and int(n[3:]) < int(name[3:])]
        chip = older[-1]
    elif name.startswith("gfx9"):
        chip = CHIPS["gfx942"]
    else:
        raise ValueError(f"expected a target such as {', '.join(CHIPS)}, got {name!r}")
    digits = not name.startswith("gfx")  # AMD's tensor cores multiply float32
    out = replace(CUDA, name=name, chip=chip, tf32=tf32, digits=digits)
    return replace(out, parallel=chip.multiprocessors)


def card(
    name: str, multiprocessors: int, bandwidth: float = 0.0, cache: int = 0, tf32: bool = False
) -> Target:
    """The target of one card, whose driver tells these numbers; cards of one architecture differ
    in them. bandwidth: bytes a second; cache: bytes; 0 where they aren't known."""
    target = gpu(name, tf32)
    chip = target.chip.of_card(multiprocessors, bandwidth, cache)
    return replace(target, chip=chip, parallel=chip.multiprocessors)
