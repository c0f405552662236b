"""What a kernel does with the elements of a contraction, for a block of them that is still hot."""

from __future__ import annotations

from ...kernel import Kernel
from .. import memory
from ..arguments import Arguments
from ..body import Body
from ..code import Code
from ..form import Form
from ..machine import Machine
from ..stages import bind_vector
from ..types import Ref
from ..values import evaluate, load_ahead
from .cut import Tiling
from .micro import load, offset

NAME = "epilogue"


def write(kernel: Kernel, machine: Machine, arguments: Arguments, cut: Tiling) -> Code:
    """The stores of rows m to m_end and columns n to n_end, which lie at c:

    void epilogue(ptr args, i64 at..., i64 m, i64 m_end, i64 n, i64 n_end, ptr c, i64 row)
    """
    names = [f"%at{i}" for i in range(len(cut.outer))]
    parameters = ["ptr %args", *(f"i64 {n}" for n in names), "i64 %m, i64 %m_end, i64 %n"]
    parameters += ["i64 %n_end, ptr noalias %c, i64 %row"]
    code = Code(NAME, ", ".join(parameters), internal=True)
    tile = cut.tile
    form = Form(cut.n, tile.columns, (), 1, 1, False)
    body = Body(kernel, machine, form, arguments, code)
    for axis, position in zip(cut.outer, names):
        body.bind(axis, Ref(position, "i64"))
    first, stop, begin, end = (Ref(f"%{n}", "i64") for n in ("m", "m_end", "n", "n_end"))
    rows = code.open_loop(first, stop, 1, stem=cut.m.name)
    body.bind(cut.m, rows.variable)
    number = code.binary("sub", rows.variable, first)
    here = offset(code, tile, Ref("%c", "ptr"), code.binary("mul", number, Ref("%row", "i64")))
    columns = code.open_loop(begin, end, body.lanes, stem=cut.n.name)
    body.bind(cut.n, columns.variable)
    bind_vector(body, cut.n, columns.variable, end, whole=False)
    body.row_level = code.level.depth
    at = offset(code, tile, here, code.binary("sub", columns.variable, begin))
    body.folded[id(cut.dot)] = load(code, tile, at, body.lanes)
    stores = kernel.stores
    load_ahead(body, [s.value for s in stores])
    memory.store(body, [(s, evaluate(body, s.value)) for s in stores])
    code.close_loop(columns)
    code.close_loop(rows)
    return code
