"""From a kernel and a schedule to the source of one Triton function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..kernel import Bundle, Dot, Kernel
from ..kernel.analysis import analyzed
from ..kernel.index import Axis
from ..kernel.roles import roles
from ..schedule import Schedule
from .attention import attention
from .bundle import emit_bundle
from .columns import rows_and_columns
from .dots import dots
from .emitted import POINTER, Argument, Emitted, header, scalar_type, source
from .merge import merge
from .pointwise import pointwise, turned, update
from .rows import rows
from .runs import runs
from .scope import NARROW, Body, is_wide
from .sizes import Sizes
from .text import Block, identifier
from .values import evaluate

PID = "pid = tl.program_id(0)"


def emit(kernel: Kernel | Bundle, schedule: Schedule) -> Emitted:
    """The kernel as source text, with the arguments and the grid of a launch.

    Sizes are arguments, and so are numbers that may follow from them. The text holds only ranks,
    dtypes, 0 and 1, small windows, block sizes and the numbers of formulas.
    """
    if isinstance(kernel, Bundle):
        return emit_bundle(kernel, schedule, emit_kernel)
    return emit_kernel(kernel, schedule)


def emit_kernel(
    kernel: Kernel, schedule: Schedule, sizes: Sizes | None = None, wide: bool = False
) -> Emitted:
    """One kernel. sizes: to be filled with its integers. wide: whether all positions have 64 bits,
    though this kernel may not need them."""
    form, rank = _form(kernel, schedule)
    wide = wide or is_wide(kernel, _groups(kernel), form not in _INDEXED)
    body = Body(kernel, rank, sizes or Sizes(), evaluate, schedule.tf32, wide)
    block = Block()
    block.add(PID)
    if wide:
        body.sizes.tl_type = "tl.int64"
        block.add("pid = pid.to(tl.int64)")
    constexprs, grid = form(body, block, schedule)
    name = identifier(kernel.name)
    arguments = _arguments(body)
    lines = block.render()
    return Emitted(
        name=name,
        body=source(name, arguments, constexprs, lines),
        lines=tuple(lines),
        header=header(kernel),
        arguments=arguments,
        constexprs=constexprs,
        grid=grid,
        num_warps=schedule.num_warps,
        num_stages=schedule.num_stages,
        checks=tuple(body.checks),
        plain=_plain(kernel, schedule) if schedule.persistent or body.matrices else None,
        contracts=form is attention,
        registers=schedule.registers,
    )


def _plain(kernel: Kernel, schedule: Schedule) -> Emitted:
    """The kernel without descriptors. Addresses take registers, of which it may have any number."""
    return emit_kernel(
        kernel,
        replace(schedule, persistent=0, specialized=False, descriptors=False, box=(), registers=0),
    )


def _form(
    kernel: Kernel, schedule: Schedule
) -> tuple[Callable[..., tuple[dict[str, int], int]], int]:
    """The function that writes a kernel, and the rank of its tiles."""
    if kernel.is_chained:
        return (rows_and_columns if kernel.is_crossed else attention), 2
    if kernel.has_dot:
        return dots, 2
    if kernel.is_update:
        return (runs, 2) if kernel.is_grouped else (update, 1)
    if any(v.run for v in kernel.ordered):
        return merge, 1
    if kernel.reduction:
        return rows, 2
    return (turned, 2) if schedule.turned else (pointwise, 1)


_INDEXED = (dots, rows, rows_and_columns, pointwise, turned)
"""The forms that have all places in memory from `Scope.index`."""


def _groups(kernel: Kernel) -> tuple[tuple[Axis, ...], ...]:
    """The axes that the tiles of a kernel run through as one."""
    if not kernel.has_dot or kernel.is_chained:
        return kernel.parallel, *kernel.folded
    dot = next(v for v in kernel.values if isinstance(v, Dot))
    role = roles(kernel, analyzed(kernel), dot)
    return role.m, role.n, role.k, role.batch


def _arguments(body: Body) -> tuple[Argument, ...]:
    kernel = body.kernel
    out = [
        Argument(name, POINTER[buffer.dtype.name], "buffer", place)
        for place, (buffer, name) in enumerate(body.buffers.items())
    ]
    out += body.matrices
    out += [
        Argument(body.scalars[s.slot], scalar_type(s.dtype), "scalar", place)
        for place, s in enumerate(kernel.scalars)
    ]
    out += [Argument(n, kind, "number", v) for (v, kind), n in body.numbers.items()]
    for name, size in body.sizes.values.items():
        wide = body.is_wide or abs(size) >= NARROW
        out.append(Argument(name, "i64" if wide else "i32", "size", size))
    if body.checks:
        out.append(Argument("errors", "*i64", "errors"))
    return tuple(out)
