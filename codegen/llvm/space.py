"""The schedules that a kernel may have on a CPU."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..kernel import Bundle, Kernel
from ..kernel.attention import Roles, roles
from ..schedule.space import Space, grid
from . import attention, columns, conv, dot, tile
from .attention.writer import KEYS, block_of
from .choice import check_speed
from .conv.kernel import tile_of
from .conv.tiles import STEPS, blocks_of
from .cost import product_seconds
from .form import CHUNK, Form, form_of
from .machine import CannotLower, Machine
from .schedule import DEFAULT, Schedule
from .types import computed

Effect = Callable[[Schedule], Any]
Choices = Mapping[str, Sequence[Any]]
Model = Callable[[Schedule], float]

DEPTHS = (128, 256, 512)
VECTORS = (1, 2, 4, 8)
WORK = tuple(1 << n for n in range(14, 21))


def space(kernel: Kernel | Bundle, machine: Machine, threads: int) -> Space[Schedule]:
    """All schedules of a kernel on so many threads, the default first.

    The schedules of a Bundle are for its largest member. Where the default leaves a kernel to
    NumPy, so does the first schedule, and the others are native.
    """
    if isinstance(kernel, Bundle):
        kernel = kernel.largest
    native = DEFAULT if _is_native(kernel, machine) else replace(DEFAULT, native=True)
    try:
        choices, effect, model = _form(kernel, machine, threads)
    except CannotLower:
        return Space((DEFAULT,), {DEFAULT: ()}, {})
    places = grid(native, choices, lambda **given: replace(native, **given), effect)
    predicted = {} if model is None else {s: model(s) for s in places}
    other = replace(DEFAULT, native=False) if native is DEFAULT else DEFAULT
    if kernel.has_dot and not kernel.is_chained:
        places = {**places, other: ()} if native is DEFAULT else {other: (), **places}
    return Space(tuple(places), places, predicted)


def _is_native(kernel: Kernel, machine: Machine) -> bool:
    try:
        check_speed(kernel, machine)
    except CannotLower:
        return False
    return True


def _form(kernel: Kernel, machine: Machine, threads: int) -> tuple[Choices, Effect, Model | None]:
    """The choices for a kernel, by the form in which the emitter writes it."""
    parts = roles(kernel)
    if parts is not None:
        return _attention(parts, machine)
    if columns.plan(kernel, machine) is not None:
        return _points(kernel, machine, lambda s: _columns_effect(kernel, machine, s))
    if conv.plan(kernel) is not None:
        return _windows(kernel, machine, threads)
    if dot.tiling(kernel, machine) is not None:
        return _product(kernel, machine, threads)
    return _points(kernel, machine, lambda s: _points_effect(kernel, machine, s))


def _tiles(machine: Machine) -> tuple[tuple[int, int], ...]:
    """The (rows, vectors) that fit the registers."""
    if machine.vector_bytes == 32:
        return (4, 2), (4, 3), (6, 2), (8, 1)
    return (6, 4), (8, 2), (8, 3), (12, 2)


def _product(
    kernel: Kernel, machine: Machine, threads: int
) -> tuple[Choices, Effect, Model | None]:
    @functools.cache
    def cut_by(schedule: Schedule) -> dot.Tiling:
        cut = dot.tiling(kernel, machine, schedule)
        assert cut is not None
        return cut

    def effect(schedule: Schedule) -> Any:
        cut = cut_by(schedule)
        tile_ = cut.tile.rows, cut.tile.vectors
        return tile_, cut.rows, cut.columns, cut.depth, cut.turned

    def model(schedule: Schedule) -> float:
        cut = cut_by(schedule)
        sizes = cut.m.extent, cut.n.extent, cut.summed
        items = cut.chunks // (cut.row_blocks * cut.column_blocks) * cut.rounds
        block = cut.rows, cut.columns, cut.depth
        return product_seconds(sizes, items, cut.tile, block, machine, threads)

    found = cut_by(DEFAULT)
    choices: dict[str, Sequence[Any]] = {
        "tile": _tiles(machine),
        "rows": (24, 48, 96, 192),
        "columns": (128, 256, 512, 1024),
        "depth": DEPTHS,
        "turned": (False, True) if found.m.extent <= dot.THIN else (found.turned,),
    }
    return choices, effect, model


def _windows(
    kernel: Kernel, machine: Machine, threads: int
) -> tuple[Choices, Effect, Model | None]:
    plan = conv.plan(kernel)
    assert plan is not None
    if not plan.parts:
        raise CannotLower("a product too narrow for tiles")
    part = max(plan.parts, key=lambda p: conv.size(p.product.m))
    product = part.product

    def effect(schedule: Schedule) -> Any:
        tile_ = tile_of(part, machine, schedule)
        blocks = blocks_of(product, tile_, schedule)
        depth = -(-conv.size(product.k) // blocks.pieces)
        return (tile_.rows, tile_.vectors), blocks.rows, blocks.panels * tile_.columns, depth

    def model(schedule: Schedule) -> float:
        tile_ = tile_of(part, machine, schedule)
        sizes = conv.size(product.m), conv.size(product.n), conv.size(product.k)
        _, *block = effect(schedule)
        items = conv.size(product.batch)
        return product_seconds(sizes, items, tile_, tuple(block), machine, threads)

    choices: dict[str, Sequence[Any]] = {
        "tile": _tiles(machine),
        "rows": (24, 48, 96, 192),
        "columns": (16, 32, 64, 128, 256),
        "depth": (128, STEPS, 512),
    }
    return choices, effect, model


def _attention(parts: Roles, machine: Machine) -> tuple[Choices, Effect, Model | None]:
    unit = tile.step(machine, computed(parts.products.dtype))[0]

    def effect(schedule: Schedule) -> Any:
        keys = block_of(parts.key.extent, schedule.rows or KEYS, unit)
        return keys, attention.queries(parts, machine, schedule)

    choices = {
        "rows": (24, 48, 72, 96, 144, 192, 240, 288, 384),
        "columns": (24, 48, 72, 96, 144, 192, 240),
    }
    return choices, effect, None


def _points(kernel: Kernel, machine: Machine, effect: Effect) -> tuple[Choices, Effect, None]:
    axes = range(len(kernel.parallel) + len(kernel.reduction))
    return {"along": tuple(axes), "vectors": VECTORS, "work": WORK}, effect, None


def _points_effect(kernel: Kernel, machine: Machine, schedule: Schedule) -> Any:
    return _form_effect(kernel, form_of(kernel, machine, schedule=schedule), machine, schedule)


def _columns_effect(kernel: Kernel, machine: Machine, schedule: Schedule) -> Any:
    found = columns.plan(kernel, machine, schedule)
    assert found is not None
    return _form_effect(kernel, found.form, machine, schedule)


def _form_effect(kernel: Kernel, form: Form, machine: Machine, schedule: Schedule) -> Any:
    """(axis, vectors, work) of a form; the work of the schedule, if it makes a difference."""
    axes = (*kernel.parallel, *kernel.reduction)
    along = axes.index(form.vector) if form.vector in axes else -1
    work = (schedule.work or CHUNK) if form.chunks(kernel) > 1 or schedule.work is None else CHUNK
    return along, form.lanes // (machine.vector_bytes // 4), work
