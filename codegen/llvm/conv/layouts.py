"""The functions that compute a product's layouts, and whatever else has no product.

An image is filled by several kernels: one for its inside, and one for the border in each dimension.
They go over the same lines of memory, so a chunk does all of them for some planes of the image.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from ...kernel import Kernel
from .. import points, turned
from ..arguments import Arguments
from ..body import Body
from ..code import Code
from ..form import Form, form_of
from ..machine import Machine
from ..phases import PARAMETERS, Phase, function
from ..values import evaluate

FEW = 4
"""Up to so many zeros in a row, as in a border, are stored one by one rather than under a mask."""
AT_ONCE = 1 << 14


def write(
    kernels: Sequence[Kernel], machine: Machine, arguments: Arguments
) -> list[tuple[Phase, list[Code]]]:
    """The functions of layouts, of which those to one buffer follow each other."""
    out = []
    for _, group in itertools.groupby(kernels, key=lambda kernel: kernel.outputs[0]):
        each = list(group)
        forms = _in_planes(each, machine)
        if forms is None:
            out += [plain(kernel, kernel.name, machine, arguments) for kernel in each]
        else:
            out.append(_together(each, forms, machine, arguments))
    return out


def plain(
    kernel: Kernel, name: str, machine: Machine, arguments: Arguments
) -> tuple[Phase, list[Code]]:
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
    return Phase(name, form.chunks(kernel)), [body.code]


def _in_planes(kernels: Sequence[Kernel], machine: Machine) -> list[Form] | None:
    """Forms whose chunks with one number fill the same planes of an image; None if there are none.

    A border has a row before each row of the image in its dimension, and one behind the last.
    """
    inside, *borders = kernels
    form = form_of(inside, machine)
    if not borders or any(border.inputs for border in borders):
        return None
    if turned.turn_of(inside, machine) is not None or form.vector is None:
        return None
    if len(form.outer) < 2 or form.block < form.vector.extent:
        return None
    planes = form.outer[0].extent
    each = 1
    for axis in form.outer[1:]:
        each *= axis.extent
    at_once = max(form.rows // each, 1)
    forms = [Form(form.vector, form.lanes, form.outer, at_once * each, form.block, form.peeled)]
    for border in borders:
        row, *place = border.parallel
        rows, left = divmod(row.extent - 1, planes)
        if left or not rows or len(place) > 1:
            return None
        length = place[0].extent if place else 1
        if length <= FEW:
            forms.append(Form(None, 1, border.parallel, at_once * rows * length, 1, False))
        else:
            lanes = form_of(border, machine).lanes
            forms.append(Form(place[0], lanes, (row,), at_once * rows, length, True))
    return forms


def _together(
    kernels: Sequence[Kernel], forms: Sequence[Form], machine: Machine, arguments: Arguments
) -> tuple[Phase, list[Code]]:
    """A function whose chunks are those of all kernels."""
    name = f"{kernels[0].name}_planes"
    whole, codes = function(name), []
    for kernel, form in zip(kernels, forms):
        part = arguments.part(kernel.name)
        body = Body(kernel, machine, form, evaluate, part, function(kernel.name))
        points.write(body)
        codes.append(body.code)
        whole.add(f"call void @{kernel.name}({PARAMETERS})")
    chunks = max(form.chunks(kernel) for kernel, form in zip(kernels, forms))
    return Phase(name, chunks), [*codes, whole]
