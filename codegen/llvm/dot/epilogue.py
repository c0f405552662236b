"""The work of a kernel behind its contraction, for a block of sums that is still in the cache."""

from __future__ import annotations

from ...kernel import Kernel
from .. import memory
from ..arguments import Arguments
from ..body import Body
from ..code import Code
from ..form import Form
from ..machine import Machine
from ..stages import bind_vector
from ..types import Ref, constant
from ..values import evaluate, load_ahead
from .cut import Tiling
from .micro import load, offset

NAME = "epilogue"


def write(kernel: Kernel, machine: Machine, arguments: Arguments, cut: Tiling) -> Code:
    """Writes the stores of rows m to m_end and columns n to n_end, whose sums lie at c:

    void epilogue(ptr args, i64 at..., i64 m, i64 m_end, i64 n, i64 n_end, ptr c, i64 step)

    The sums lie in rows that are `step` apart or, if the product is turned, in panels that are. A
    panel holds as many rows as a tile has columns, column by column.
    """
    names = [f"%at{i}" for i in range(len(cut.outer))]
    parameters = ["ptr %args", *(f"i64 {n}" for n in names), "i64 %m, i64 %m_end, i64 %n"]
    parameters += ["i64 %n_end, ptr noalias %c, i64 %step"]
    code = Code(NAME, ", ".join(parameters), internal=True)
    slow, fast = (cut.n, cut.m) if cut.turned else (cut.m, cut.n)
    form = Form(fast, cut.tile.columns, (), 1, 1, False)
    body = Body(kernel, machine, form, evaluate, arguments, code)
    for axis, position in zip(cut.outer, names):
        body.bind(axis, Ref(position, "i64"))
    bounds = {
        cut.m: (Ref("%m", "i64"), Ref("%m_end", "i64")),
        cut.n: (Ref("%n", "i64"), Ref("%n_end", "i64")),
    }
    rows = code.open_loop(*bounds[slow], 1, stem=slow.name)
    body.bind(slow, rows.variable)
    columns = code.open_loop(*bounds[fast], body.lanes, stem=fast.name)
    body.bind(fast, columns.variable)
    bind_vector(body, fast, columns.variable, bounds[fast][1], whole=False)
    body.row_level = code.level.depth
    i = code.binary("sub", rows.variable, bounds[slow][0])
    j = code.binary("sub", columns.variable, bounds[fast][0])
    step, lanes = Ref("%step", "i64"), constant(body.lanes, "i64")
    if cut.turned:
        panel = code.binary("mul", code.binary("udiv", j, lanes), step)
        place = code.binary("add", panel, code.binary("mul", i, lanes))
    else:
        place = code.binary("add", code.binary("mul", i, step), j)
    at = offset(code, cut.tile, Ref("%c", "ptr"), place)
    body.folded[id(cut.dot)] = load(code, cut.tile, at, body.lanes)
    stores = kernel.stores
    load_ahead(body, [s.value for s in stores])
    memory.store(body, [(s, evaluate(body, s.value)) for s in stores])
    code.close_loop(columns)
    code.close_loop(rows)
    return code
