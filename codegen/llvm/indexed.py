"""Elements read or written at positions that are data: LLVM IR for any sizes.

    lines[i] = table[at(i)]        or        table[at(i)] = lines[i], or combined with it

`i` runs over some dimensions in row-major order, and `lines` is contiguous. at(i) is the sum of
what each dimension and each index give: position * stride. An index beyond its limit sets a flag,
and nothing is moved for it. Indices that are the same along the last dimension are read once for
it, and elements that lie side by side are moved in vectors.
"""

from __future__ import annotations

from .code import Code, module_text
from .types import Ref, constant, vector

DIMENSIONS = 6
VECTOR = 32
"""Bytes that are moved at once."""
BUFFERS = ("lines", "table", "flag")
READ, SET = "read", "set"
MODES = ("add", "mul", "max", "min")
"""How elements are combined, in order. An extremum is NaN where an operand is, and that of whole
numbers is signed."""


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
    known = code.words(names, len(BUFFERS) + indices)

    def times(a: Ref, b: Ref) -> Ref:
        return code.binary("mul", a, b)

    def element(base: Ref, place: Ref, of: str) -> Ref:
        return code.let(f"getelementptr {of}, {base.typed}, {place.typed}", "ptr")

    def position(read: list[Ref]) -> tuple[Ref, Ref]:
        """Whether the indices there are in range, and what they add to a place in the table."""
        inside, offset = constant(1, "i1"), zero
        for i, place in enumerate(read):
            where = element(known[f"index{i}"], place, "i64")
            index = code.let(f"load i64, {where.typed}, align 8", "i64")
            fits = code.compare("icmp ult", index, known[f"limit{i}"])
            inside = code.binary("and", inside, fits)
            offset = code.binary("add", offset, times(index, known[f"step{i}"]))
        return inside, offset

    def move(line: Ref, at: Ref, lanes: int = 1) -> None:
        own, other = element(known["lines"], line, kind), element(known["table"], at, kind)
        source, target = (other, own) if mode == READ else (own, other)
        value = load(source, lanes)
        if mode in MODES:
            value = _combined(code, mode, load(target, lanes), value)
        code.add(f"store {value.typed}, {target.typed}, align {itemsize}")

    def load(address: Ref, lanes: int) -> Ref:
        text = f"load {vector(kind, lanes)}, {address.typed}, align {itemsize}"
        return code.let(text, kind, lanes)

    loops = []
    zero, last = constant(0, "i64"), DIMENSIONS - 1
    line, at, read = zero, zero, [zero] * indices
    for d in range(last):
        loop = code.open_loop(zero, known[f"size{d}"])
        loops.append(loop)
        here = loop.variable
        line = code.binary("add", times(line, known[f"size{d}"]), here)
        at = code.binary("add", at, times(here, known[f"place{d}"]))
        read = [
            code.binary("add", r, times(here, known[f"stride{i}.{d}"])) for i, r in enumerate(read)
        ]
    size, step = known[f"size{last}"], known[f"place{last}"]
    line = times(line, size)

    # The last dimension with one position: nothing of it if the indices change along it, or are out
    # of range, which the loop over all its positions finds.
    once, offset = position(read)
    for i in range(indices):
        is_same = code.compare("icmp eq", known[f"stride{i}.{last}"], zero)
        once = code.binary("and", once, is_same)
    moved = code.select(once, size, zero)
    begin = code.binary("add", at, offset)
    side_by_side = code.compare("icmp eq", step, constant(1, "i64"))
    lanes = VECTOR // itemsize
    whole = code.binary("and", moved, constant(-lanes, "i64"))
    whole = code.select(side_by_side, whole, zero)
    for start, stop, width in ((zero, whole, lanes), (whole, moved, 1)):
        loop = code.open_loop(start, stop, width)
        here = loop.variable
        move(code.binary("add", line, here), code.binary("add", begin, times(here, step)), width)
        code.close_loop(loop)

    loop = code.open_loop(moved, size)
    loops.append(loop)
    here = loop.variable
    inside, offset = position([
        code.binary("add", r, times(here, known[f"stride{i}.{last}"])) for i, r in enumerate(read)
    ])  # fmt: skip
    found, fail, end = (code.fresh_label(stem) for stem in ("move", "fail", "end"))
    code.add(f"br {inside.typed}, label %{found}, label %{fail}")
    code.level.block(fail)
    code.add(f"store i64 1, {known['flag'].typed}, align 8")
    code.add(f"br label %{end}")
    code.level.block(found)
    there = code.binary("add", code.binary("add", at, offset), times(here, step))
    move(code.binary("add", line, here), there)
    code.add(f"br label %{end}")
    code.level.block(end)
    for loop in reversed(loops):
        code.close_loop(loop)
    return module_text([code])


def _combined(code: Code, mode: str, old: Ref, new: Ref) -> Ref:
    if new.type[0] == "i":
        if mode in ("add", "mul"):
            return code.binary(mode, old, new)
        return code.intrinsic(f"s{mode}", [old, new])
    if mode in ("add", "mul"):
        return code.binary(f"f{mode}", old, new)
    better = code.compare("fcmp ogt" if mode == "max" else "fcmp olt", new, old)
    better = code.binary("or", better, code.compare("fcmp uno", new, new))
    return code.select(better, new, old)
