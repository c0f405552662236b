"""Elements read or written at positions that are data: LLVM IR for any sizes.

    lines[i] = table[at(i)]        or        table[at(i)] = lines[i], or combined with it

`i` runs over four dimensions in row-major order, and `lines` is contiguous. at(i) is the sum of
what each dimension and each index give: position * stride. An index beyond its limit sets a flag,
and nothing is moved for it.
"""

from __future__ import annotations

from .code import Code, module_text
from .types import Ref, constant

DIMENSIONS = 4
BUFFERS = ("lines", "table", "flag")
READ, SET = "read", "set"
MODES = ("add", "mul", "max", "min")
"""How elements are combined, in order. An extremum is NaN where an operand is."""


def words(indices: int) -> tuple[str, ...]:
    """The argument words for so many indices: the buffers first. place: what a dimension gives.
    step, limit: the stride and the size of an index in the table."""
    found = [*BUFFERS, *[f"index{i}" for i in range(indices)]]
    dimensions = range(DIMENSIONS)
    found += [f"{name}{d}" for name in ("size", "place") for d in dimensions]
    for i in range(indices):
        found += [f"stride{i}.{d}" for d in dimensions] + [f"step{i}", f"limit{i}"]
    return tuple(found)


def text(kind: str, itemsize: int, mode: str, indices: int) -> str:
    """The module with a function `kernel`. kind: the type of an element."""
    code = Code("kernel", "ptr %words, i64 %chunk")
    names = words(indices)
    known = {}
    for place, name in enumerate(names):
        loaded = "ptr" if place < len(BUFFERS) + indices else "i64"
        at = code.let(f"getelementptr i64, ptr %words, i64 {place}", "ptr")
        known[name] = code.let(f"load {loaded}, {at.typed}, align 8", loaded)

    def times(a: Ref, b: Ref) -> Ref:
        return code.binary("mul", a, b)

    def element(base: Ref, place: Ref, of: str) -> Ref:
        return code.let(f"getelementptr {of}, {base.typed}, {place.typed}", "ptr")

    loops = []
    zero = constant(0, "i64")
    line, at, read = zero, zero, [zero] * indices
    for d in range(DIMENSIONS):
        loop = code.open_loop(zero, known[f"size{d}"])
        loops.append(loop)
        here = loop.variable
        line = code.binary("add", times(line, known[f"size{d}"]), here)
        at = code.binary("add", at, times(here, known[f"place{d}"]))
        read = [
            code.binary("add", r, times(here, known[f"stride{i}.{d}"])) for i, r in enumerate(read)
        ]
    inside: Ref | None = None
    for i, offset in enumerate(read):
        where = element(known[f"index{i}"], offset, "i64")
        index = code.let(f"load i64, {where.typed}, align 8", "i64")
        fits = code.compare("icmp ult", index, known[f"limit{i}"])
        inside = fits if inside is None else code.binary("and", inside, fits)
        at = code.binary("add", at, times(index, known[f"step{i}"]))
    assert inside is not None
    move, fail, end = (code.fresh_label(stem) for stem in ("move", "fail", "end"))
    code.add(f"br {inside.typed}, label %{move}, label %{fail}")
    code.level.block(fail)
    code.add(f"store i64 1, {known['flag'].typed}, align 8")
    code.add(f"br label %{end}")
    code.level.block(move)
    own, other = element(known["lines"], line, kind), element(known["table"], at, kind)
    source, target = (other, own) if mode == READ else (own, other)
    value = code.let(f"load {kind}, {source.typed}, align {itemsize}", kind)
    if mode in MODES:
        old = code.let(f"load {kind}, {target.typed}, align {itemsize}", kind)
        value = _combined(code, mode, old, value)
    code.add(f"store {value.typed}, {target.typed}, align {itemsize}")
    code.add(f"br label %{end}")
    code.level.block(end)
    for loop in reversed(loops):
        code.close_loop(loop)
    return module_text([code])


def _combined(code: Code, mode: str, old: Ref, new: Ref) -> Ref:
    if mode in ("add", "mul"):
        return code.binary(f"f{mode}", old, new)
    better = code.compare("fcmp ogt" if mode == "max" else "fcmp olt", new, old)
    better = code.binary("or", better, code.compare("fcmp uno", new, new))
    return code.select(better, new, old)
