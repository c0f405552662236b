"""A product over windows as a kernel of two phases: laying out the operands, then tiles."""

from __future__ import annotations

from ...kernel import Kernel
from .. import points, turned
from ..arguments import Arguments
from ..body import Body
from ..code import Code, module_text
from ..dot.micro import tile_for
from ..form import form_of
from ..machine import Machine
from ..phases import Phase, Written, function, write_kernel
from ..types import computed
from . import micro, tiles
from .operands import panels
from .plan import Plan


def write(kernel: Kernel, machine: Machine, plan: Plan) -> Written:
    arguments = Arguments(kernel)
    tile = tile_for(machine, computed(plan.parts[0].product.dot.dtype))
    packed = [panels(p.product, f"panels{i}", tile.columns) for i, p in enumerate(plan.parts)]
    layouts = [*plan.images, *(pack for pack, _ in packed)]
    for buffer in dict.fromkeys(layout.outputs[0] for layout in layouts):
        arguments.keep(buffer)
    before = [_plain(each, each.name, machine, arguments) for each in layouts]
    after = [_plain(each, f"rest{i}", machine, arguments) for i, each in enumerate(plan.rest)]
    for i, (part, (_, columns)) in enumerate(zip(plan.parts, packed)):
        after.append(tiles.write(f"tiles{i}", part, columns, machine, arguments, tile))
    body = Body(kernel, machine, form_of(kernel, machine), arguments)
    write_kernel(body, [phase for phase, _ in (*before, *after)])
    codes = [body.code, *(code for _, code in (*before, *after)), micro.function(tile)]
    return Written(
        module_text(codes),
        arguments,
        tuple(sum(phase.chunks for phase, _ in each) for each in (before, after)),
        arguments.space,
    )


def _plain(kernel: Kernel, name: str, machine: Machine, arguments: Arguments) -> tuple[Phase, Code]:
    """A function that computes a kernel without products."""
    turn = turned.turn_of(kernel, machine)
    form = form_of(kernel, machine) if turn is None else turn.form
    body = Body(kernel, machine, form, arguments.part(name), function(name))
    if turn is None:
        points.write(body)
    else:
        turned.write(body, turn.across)
    return Phase(name, form.chunks(kernel)), body.code
