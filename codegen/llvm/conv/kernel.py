"""A product over windows as a kernel of two phases: first layouts of the operands, then tiles."""

from __future__ import annotations

from dataclasses import replace

from ...kernel import Kernel
from ..arguments import Arguments
from ..body import Body
from ..code import module_text
from ..dot.micro import Tile, tile_for
from ..form import form_of
from ..machine import Machine
from ..phases import Written, write_kernel
from ..schedule import DEFAULT, Schedule
from ..types import computed
from ..values import evaluate
from . import along, tiles
from .inside import Inside, blocks_inside, plan_inside
from .layouts import plain
from .layouts import write as write_layouts
from .operands import panels
from .plan import Part, Plan
from .roles import size
from .tiles import Blocks, Tiles


def write(kernel: Kernel, machine: Machine, plan: Plan, schedule: Schedule = DEFAULT) -> Written:
    arguments = Arguments(kernel)
    inside = plan_inside(plan, machine, schedule)
    if inside is None:
        found = [_cut(p, machine, schedule) for p in plan.parts]
    else:
        plan, tile = inside
        (part,) = plan.parts
        found = [(tile, blocks_inside(part, tile), tile.columns, Inside)]
    packed = [
        panels(p.product, f"panels{i}", width)
        for i, (p, (_, _, width, _)) in enumerate(zip(plan.parts, found))
    ]
    layouts = [*plan.images, *(pack for pack, _ in packed)]
    for buffer in dict.fromkeys(layout.outputs[0] for layout in layouts):
        arguments.keep(buffer)
    before = write_layouts(layouts, machine, arguments)
    after = [plain(each, f"rest{i}", machine, arguments) for i, each in enumerate(plan.rest)]
    for i, (part, cut, (_, columns)) in enumerate(zip(plan.parts, found, packed)):
        phase, code = tiles.write(f"tiles{i}", part, columns, machine, arguments, *cut)
        after.append((phase, [code]))
    body = Body(kernel, machine, form_of(kernel, machine), evaluate, arguments)
    write_kernel(body, [phase for phase, _ in (*before, *after)])
    codes = [body.code, *(code for _, each in (*before, *after) for code in each)]
    return Written(
        module_text(codes),
        arguments,
        tuple(sum(phase.chunks for phase, _ in each) for each in (before, after) if each),
        arguments.space,
    )


def _cut(part: Part, machine: Machine, schedule: Schedule) -> tuple[Tile, Blocks, int, type[Tiles]]:
    """The tile of a product, its blocks, the columns of a panel, and who writes its chunks."""
    tile = along.tile_along(part, machine, schedule)
    if tile is not None:
        return tile, along.blocks_along(part, tile), tile.rows, along.Along
    tile = tile_of(part, machine, schedule)
    return tile, tiles.blocks_of(part.product, tile, schedule), tile.columns, Tiles


def tile_of(part: Part, machine: Machine, schedule: Schedule) -> Tile:
    """The tile of a product. It is one vector wide if that is enough for the columns, and has as
    many rows as registers can point to."""
    found = part.product
    m, n = size(found.m), size(found.n)
    tile = tile_for(machine, computed(found.dot.dtype), n, schedule.tile, m)
    if schedule.tile is None and tile.rows > tiles.FEW:
        each, _ = tiles.runs(found.m, part.image.offset, tile)
        tile = tile if each > 1 else replace(tile, rows=tiles.FEW)
    return tile
