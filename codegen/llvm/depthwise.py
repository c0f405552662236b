"""Convolutions of single channels in the plane, and the gradients of their weights: LLVM IR for any
sizes.

    out[n, c, y, x] = sum of w[c, i, j] * image[n, c, y * sy + i * dy, x * sx + j * dx]
    grad[c, i, j] = sum of out[n, c, y, x] * image[n, c, y * sy + i * dy, x * sx + j * dx]

Images have their padding. A chunk is a channel of all samples. grad is float64.
"""

from __future__ import annotations

from tilewright.ir.dtype import DType

from .code import Code, Loop, module_text
from .types import Ref, computed, constant, integer, vector

BUFFERS = ("out", "image", "w")
PAIRS = ("size", "kernel", "places", "stride", "dilation")
"""What both dimensions have. size: of an image. places: of the output."""
WORDS = (*BUFFERS, "samples", "channels", *[f"{name}.{d}" for name in PAIRS for d in "yx"])
"""The argument words."""

_LANES = (16, 8, 1)


def text(dtype: DType, of_weights: bool) -> str:
    """The module with a function `kernel`. of_weights: whether it computes `grad`, in `w`."""
    return module_text([_Writer(dtype, of_weights).code])


class _Writer:
    def __init__(self, dtype: DType, of_weights: bool):
        self.kind, self.itemsize = computed(dtype), dtype.itemsize
        self.code = code = Code("kernel", "ptr %words, i64 %chunk")
        self.words = code.words(WORDS, len(BUFFERS))
        self.channel = Ref("%chunk", "i64")
        sample = self._begin(self.words["samples"])
        plane = self._add(self._mul(sample.variable, "channels"), self.channel)
        self.image = self._mul(plane, "size.y", "size.x")
        self.out = self._mul(plane, "places.y", "places.x")
        if of_weights:
            self._weights()
        else:
            self._outputs()
        code.close_loop(sample)

    def _outputs(self) -> None:
        code = self.code
        row = self._begin(self.words["places.y"])
        target = self._add(self.out, self._mul(row.variable, "places.x"))
        for lanes, first, stop in self._parts():
            block = code.open_loop(first, stop, lanes)
            begin = [constant(0, self.kind, lanes)]
            i = self._begin(self.words["kernel.y"], begin)
            j = self._begin(self.words["kernel.x"], [i.carried[0][0]])
            w = self._load("w", self._tap(i, j), 1)
            seen = self._load("image", self._seen(row, i, j, block), lanes)
            (inner,) = code.close_loop(j, [self._fma(w, seen, j.carried[0][0])])
            (total,) = code.close_loop(i, [inner])
            self._store(total, "out", self._add(target, block.variable))
            code.close_loop(block)
        code.close_loop(row)

    def _weights(self) -> None:
        code = self.code
        i = self._begin(self.words["kernel.y"])
        j = self._begin(self.words["kernel.x"])
        begin = [constant(0, self.kind, lanes) for lanes in _LANES]
        row = self._begin(self.words["places.y"], begin)
        source = self._add(self.out, self._mul(row.variable, "places.x"))
        sums = []
        for (lanes, first, stop), (held, _) in zip(self._parts(), row.carried, strict=True):
            block = code.open_loop(first, stop, lanes, [held])
            g = self._load("out", self._add(source, block.variable), lanes)
            seen = self._load("image", self._seen(row, i, j, block), lanes)
            sums += code.close_loop(block, [self._fma(g, seen, block.carried[0][0])])
        parts = code.close_loop(row, sums)
        total = constant(0, "double")
        for part in parts:
            for lane in range(part.lanes):
                one = code.extract(part, lane) if part.lanes > 1 else part
                total = self._add(total, code.convert("fpext", one, "double"), op="fadd")
        at = self._element("w", self._tap(i, j), "double")
        before = code.let(f"load double, {at.typed}, align 8", "double")
        code.add(f"store {self._add(before, total, op='fadd').typed}, {at.typed}, align 8")
        code.close_loop(j)
        code.close_loop(i)

    def _parts(self) -> list[tuple[int, Ref, Ref]]:
        """(lanes, first, end) of places of a row. Vectors need elements that lie side by side."""
        code, found, first = self.code, [], integer(0)
        end = self.words["places.x"]
        is_dense = code.compare("icmp eq", self.words["stride.x"], integer(1))
        for lanes in _LANES:
            stop = end
            if lanes > 1:
                full = code.binary("and", code.binary("sub", end, first), integer(-lanes))
                stop = self._add(first, code.select(is_dense, full, integer(0)))
            found.append((lanes, first, stop))
            first = stop
        return found

    def _seen(self, row: Loop, i: Loop, j: Loop, block: Loop) -> Ref:
        """The place in the image that a tap sees."""
        y = self._add(self._mul(row.variable, "stride.y"), self._mul(i.variable, "dilation.y"))
        x = self._add(self._mul(block.variable, "stride.x"), self._mul(j.variable, "dilation.x"))
        return self._add(self._add(self.image, self._mul(y, "size.x")), x)

    def _tap(self, i: Loop, j: Loop) -> Ref:
        place = self._add(self._mul(self.channel, "kernel.y"), i.variable)
        return self._add(self._mul(place, "kernel.x"), j.variable)

    def _fma(self, a: Ref, b: Ref, c: Ref) -> Ref:
        return self.code.intrinsic("fma", [a, b, c])

    def _begin(self, stop: Ref, initial: list[Ref] | None = None) -> Loop:
        return self.code.open_loop(integer(0), stop, 1, initial or ())

    def _add(self, a: Ref, b: Ref, op: str = "add") -> Ref:
        return self.code.binary(op, a, b)

    def _mul(self, a: Ref, *names: str) -> Ref:
        for name in names:
            a = self.code.binary("mul", a, self.words[name])
        return a

    def _element(self, base: str, place: Ref, kind: str) -> Ref:
        address = self.words[base]
        return self.code.let(f"getelementptr {kind}, {address.typed}, {place.typed}", "ptr")

    def _load(self, base: str, place: Ref, lanes: int) -> Ref:
        at = self._element(base, place, self.kind)
        text = f"load {vector(self.kind, lanes)}, {at.typed}, align {self.itemsize}"
        return self.code.let(text, self.kind, lanes)

    def _store(self, value: Ref, base: str, place: Ref) -> None:
        at = self._element(base, place, self.kind)
        self.code.add(f"store {value.typed}, {at.typed}, align {self.itemsize}")
