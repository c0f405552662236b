"""A product over windows as a kernel of two phases: first layouts of the operands, then tiles."""

from __future__ import annotations

from dataclasses import replace

from ...kernel import Kernel
from .. import points, turned
from ..arguments import Arguments
from ..body import Body
from ..code import Code, module_text
from ..dot.micro import Tile, tile_for
from ..form import Form, form_of
from ..machine import Machine
from ..phases import Phase, Written, function, write_kernel
from ..schedule import DEFAULT, Schedule
from ..types import computed
from ..values import evaluate
from . import along, tiles
from .operands import panels
from .plan import Part, Plan
from .roles import size
from .tiles import Blocks, Tiles

FEW = 4
"""Up to so many zeros in a row, as in a border, are stored one by one rather than under a mask."""
AT_ONCE = 1 << 14


def write(kernel: Kernel, machine: Machine, plan: Plan, schedule: Schedule = DEFAULT) -> Written:
    arguments = Arguments(kernel)
    found = [_cut(p, machine, schedule) for p in plan.parts]
    packed = [
        panels(p.product, f"panels{i}", width)
        for i, (p, (_, _, width, _)) in enumerate(zip(plan.parts, found))
    ]
    layouts = [*plan.images, *(pack for pack, _ in packed)]
    for buffer in dict.fromkeys(layout.outputs[0] for layout in layouts):
        arguments.keep(buffer)
    before = [_plain(each, each.name, machine, arguments) for each in layouts]
    after = [_plain(each, f"rest{i}", machine, arguments) for i, each in enumerate(plan.rest)]
    for i, (part, cut, (_, columns)) in enumerate(zip(plan.parts, found, packed)):
        after.append(tiles.write(f"tiles{i}", part, columns, machine, arguments, *cut))
    body = Body(kernel, machine, form_of(kernel, machine), evaluate, arguments)
    write_kernel(body, [phase for phase, _ in (*before, *after)])
    codes = [body.code, *(code for _, code in (*before, *after))]
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


def _plain(kernel: Kernel, name: str, machine: Machine, arguments: Arguments) -> tuple[Phase, Code]:
    """A function that computes a kernel without products."""
    turn = turned.turn_of(kernel, machine)
    form = form_of(kernel, machine) if turn is None else turn.form
    if not kernel.inputs and form.vector is not None and form.vector.extent <= FEW:
        form = Form(None, 1, kernel.parallel, AT_ONCE, 1, False)
    body = Body(kernel, machine, form, evaluate, arguments.part(name), function(name))
    if turn is None:
        points.write(body)
    else:
        turned.write(body, turn.across)
    return Phase(name, form.chunks(kernel)), body.code
