"""One product of stacks of matrices, made from arrays of the domain and turned back into one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from .emission import Emission
from .layout import Layout, dense_last, merged, needs_copy, strides_of
from .program import Array


def index_range(d: int, i: str, step: str) -> str:
    """The subscript of a step along dimension d."""
    return ":, " * d + f"{i} : {i} + {step}"


def sliced(e: Emission, array: Array, d: int, i: str, step: str, count: int) -> Array:
    """The part of an array that belongs to one step."""
    extent = tuple(count if x == d else n for x, n in enumerate(array.extent))
    call = f"{array.name}[{index_range(d, i, step)}]"
    part = e.let(call, array.dtype, extent, (array,), alias=array, stem="part_")
    return replace(part, owned=False, strides=array.strides or strides_of(array))


def unfolded(e: Emission, out: Array, extent: tuple[int, ...], layout: Layout) -> Array:
    """The matrices [*stack, left, right] as an array of the domain."""
    order = [*layout.stack, *layout.left, *layout.right]
    order += [d for d in range(len(extent)) if d not in order]
    call = f"{out.name}.reshape({e.argument('shape', tuple(extent[d] for d in order))})"
    call += transposed([order.index(d) for d in range(len(extent))])
    return e.let(call, out.dtype, extent, (out,), alias=out, stem="dot_")


def multiply(e: Emission, first: Array, second: Array, layout: Layout) -> Array:
    """[*stack, left, right]; if both are empty, one number for each item of the stack."""
    stacks = zip(first.extent, second.extent[: len(layout.stack)])
    stack = tuple(n if m == 1 else m for m, n in stacks)
    pair = (first, second)
    if not layout.left and not layout.right:
        left = first.name
        if first.dtype.kind == "c":  # of which np.vecdot takes the conjugate
            left = f"np.conj({left})"
        call = f"np.vecdot({left}, {second.name})"
        return e.let(call, first.dtype, stack, pair, stem="dot_")
    shape = (*stack, first.extent[-2], second.extent[-1])
    function = "np.matmul" if stack else "support.matmul"
    return e.let(f"{function}({first.name}, {second.name})", first.dtype, shape, pair, stem="dot_")


def operand(e: Emission, array: Array, layout: Layout, is_first: bool) -> Array:
    """[*stack, left, inner] or [*stack, inner, right]; [*stack, inner] if both are empty."""
    if not layout.left and not layout.right:
        return _grouped(e, array, layout.stack, layout.inner)
    if is_first:
        return _matrix(e, array, layout.stack, layout.left, layout.inner)
    return _matrix(e, array, layout.stack, layout.inner, layout.right)


def _matrix(
    e: Emission, array: Array, stack: Sequence[int], rows: Sequence[int], columns: Sequence[int]
) -> Array:
    """The array as matrices in a layout that BLAS takes."""
    copied = needs_copy(array, rows, columns)
    if copied and not dense_last(array, rows, columns):
        turned = _grouped(e, array, stack, columns, rows)
        extent = (*turned.extent[:-2], turned.extent[-1], turned.extent[-2])
        call = f"{turned.name}.swapaxes(-1, -2)"
        out = e.let(call, array.dtype, extent, (turned,), alias=turned, stem="m_")
    else:
        out = _grouped(e, array, stack, rows, columns)
        merges = merged(array, rows) is not None and merged(array, columns) is not None
        if array.strides is not None and (not copied or not merges):
            return out  # it had this layout, or the copy has it
    call = f"support.blas({out.name})"
    return replace(e.let(call, out.dtype, out.extent, (out,), alias=out, stem="m_"), owned=False)


def _grouped(e: Emission, array: Array, stack: Sequence[int], *groups: Sequence[int]) -> Array:
    """[*stack, one dimension for each group]: a view if the groups merge, else a copy."""
    order = [*stack, *(d for group in groups for d in group)]
    order += [d for d in range(len(array.extent)) if d not in order]
    sizes = (math.prod(array.extent[d] for d in group) for group in groups)
    shape = (*(array.extent[d] for d in stack), *sizes)
    call = f"{array.name}{transposed(order)}.reshape({e.argument('shape', shape)})"
    out = e.let(call, array.dtype, shape, (array,), alias=array, stem="m_")
    return replace(out, owned=False)


def transposed(order: Sequence[int]) -> str:
    """The call that transposes dimensions into an order."""
    return "" if list(order) == list(range(len(order))) else f".transpose({tuple(order)})"
