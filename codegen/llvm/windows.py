"""Windows of images, copied to memory or added from there: LLVM IR for any sizes.

    windows[c, *kernel, n, place] = image[n, c, *place * stride + kernel * dilation - padding] or 0
    image[n, c, ...] += windows[c, *kernel, n, place]

Each chunk is one channel. There are three dimensions; an image with fewer has ones before them. A
block is of some samples, and of some places in row-major order. Elements are moved by rows, which
are places along the last dimension. Those in the padding are at a row's ends, so that no element
needs a look at where it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.dtype import DType

from .code import Code, Loop, module_text, zero
from .types import Ref, computed, integer, vector

DIMENSIONS = 3
BUFFERS = ("windows", "image")
BLOCK = ("sample", "samples", "place", "places")
"""The first of a block and their number."""
SIZES = ("size", "kernel", "out", "stride", "padding", "dilation")
"""What each dimension has. out: the number of places. padding: before the image."""
WORDS = (*BUFFERS, *BLOCK, "channels", *[f"{n}{i}" for n in SIZES for i in range(DIMENSIONS)])
"""The argument words."""

_BYTES = 32  # of a vector


def text(dtype: DType, adds: bool) -> str:
    """The module with a function `kernel`. adds: whether windows are added to the image."""
    return module_text([_Writer(dtype, adds).code])


class _Writer:
    def __init__(self, dtype: DType, adds: bool):
        self.kind, self.itemsize, self.adds = computed(dtype), dtype.itemsize, adds
        self.code = code = Code("kernel", "ptr %words, i64 %chunk")
        self.words = {name: self._word(i) for i, name in enumerate(WORDS)}
        taps = [self._begin(self.words[f"kernel{i}"]) for i in range(DIMENSIONS)]
        self.taps = [tap.variable for tap in taps]
        below, above = self._inside()
        sample = self._begin(self.words["samples"])
        end = self._math("add", "place", "places")
        last = self._math("sdiv", self._math("sub", end, integer(1)), "out2")
        row = self._begin(self._math("add", last, integer(1)), self._math("sdiv", "place", "out2"))
        self._row(sample.variable, row.variable, end, below, above)
        for loop in (row, sample, *reversed(taps)):
            code.close_loop(loop)

    def _word(self, place: int) -> Ref:
        at = self.code.let(f"getelementptr i64, ptr %words, i64 {place}", "ptr")
        kind = "ptr" if WORDS[place] in BUFFERS else "i64"
        return self.code.let(f"load {kind}, {at.typed}, align 8", kind)

    def _begin(self, stop: Ref, start: Ref | None = None, step: int = 1) -> Loop:
        return self.code.open_loop(start or integer(0), stop, step)

    def _math(self, op: str, *values: Ref | str) -> Ref:
        """Values combined from left to right; a string names a word."""
        refs = [self.words[v] if isinstance(v, str) else v for v in values]
        total = refs[0]
        for each in refs[1:]:
            total = self.code.binary(op, total, each)
        return total

    def _clamped(self, x: Ref, low: Ref, high: Ref) -> Ref:
        return self.code.intrinsic("smin", [self.code.intrinsic("smax", [x, low]), high])

    def _seen(self, dimension: int, place: Ref) -> Ref:
        """Where the tap of a window lies in the image."""
        begin = self._math("mul", place, f"stride{dimension}")
        return self._math("add", begin, self._offset(dimension))

    def _offset(self, dimension: int) -> Ref:
        moved = self._math("mul", self.taps[dimension], f"dilation{dimension}")
        return self._math("sub", moved, f"padding{dimension}")

    def _is_in(self, dimension: int, place: Ref) -> Ref:
        return self.code.compare("icmp ult", place, self.words[f"size{dimension}"])

    def _inside(self) -> tuple[Ref, Ref]:
        """The places of a row that see the image at this tap: from the first up to the second."""
        offset, step, row = self._offset(2), self.words["stride2"], self.words["out2"]
        before = self.code.intrinsic("smax", [self._math("sub", integer(0), offset), integer(0)])
        up = self._math("sub", self._math("add", before, step), integer(1))
        below = self.code.intrinsic("smin", [self._math("sdiv", up, step), row])
        behind = self._math("add", self._math("sub", "size2", offset, integer(1)), step)
        behind = self.code.intrinsic("smax", [behind, integer(0)])
        return below, self._clamped(self._math("sdiv", behind, step), below, row)

    def _row(self, sample: Ref, row: Ref, end: Ref, below: Ref, above: Ref) -> None:
        code = self.code
        before = self._math("mul", row, "out2")  # places in the rows before
        start = code.intrinsic("smax", [self._math("sub", "place", before), integer(0)])
        stop = code.intrinsic("smin", [self._math("sub", end, before), self.words["out2"]])
        seen = [self._seen(0, self._math("sdiv", row, "out1"))]
        seen.append(self._seen(1, self._math("srem", row, "out1")))
        is_inside = code.binary("and", self._is_in(0, seen[0]), self._is_in(1, seen[1]))
        below = code.select(is_inside, self._clamped(below, start, stop), stop)
        above = code.select(is_inside, self._clamped(above, below, stop), stop)
        self.image = self._at("image", [
            (self._math("add", sample, "sample"), None), (Ref("%chunk", "i64"), "channels"),
            (seen[0], "size0"), (seen[1], "size1"), (self._offset(2), "size2"),
        ])  # fmt: skip
        self.windows = self._at("windows", [
            (Ref("%chunk", "i64"), None), *zip(self.taps, ("kernel0", "kernel1", "kernel2")),
            (sample, "samples"), (self._math("sub", before, "place"), "places"),
        ])  # fmt: skip
        lanes = _BYTES // self.itemsize
        # Vectors need elements that lie side by side.
        side_by_side = code.compare("icmp eq", self.words["stride2"], integer(1))
        whole = self._math("and", self._math("sub", above, below), integer(-lanes))
        whole = self._math("add", below, code.select(side_by_side, whole, integer(0)))
        self._run(below, whole, lanes)
        self._run(whole, above, 1)
        if not self.adds:
            self._zeros(start, below)
            self._zeros(above, stop)

    def _at(self, base: str, places: Sequence[tuple[Ref, str | None]]) -> Ref:
        """The address of an element, from its position and size in each dimension."""
        total = places[0][0]
        for place, size in places[1:]:
            assert size is not None
            total = self._math("add", self._math("mul", total, size), place)
        return self._element(self.words[base], total)

    def _element(self, base: Ref, place: Ref) -> Ref:
        return self.code.let(f"getelementptr {self.kind}, {base.typed}, {place.typed}", "ptr")

    def _run(self, start: Ref, stop: Ref, lanes: int) -> None:
        """Moves elements of the row, so many at a time."""
        loop = self._begin(stop, start, lanes)
        window = self._element(self.windows, loop.variable)
        image = self._element(self.image, self._math("mul", loop.variable, "stride2"))
        if self.adds:
            total = self.code.binary("fadd", self._load(image, lanes), self._load(window, lanes))
            self._store(total, image)
        else:
            self._store(self._load(image, lanes), window)
        self.code.close_loop(loop)

    def _zeros(self, start: Ref, stop: Ref) -> None:
        loop = self._begin(stop, start)
        self._store(zero(self.kind), self._element(self.windows, loop.variable))
        self.code.close_loop(loop)

    def _load(self, at: Ref, lanes: int) -> Ref:
        full = vector(self.kind, lanes)
        return self.code.let(f"load {full}, {at.typed}, align {self.itemsize}", self.kind, lanes)

    def _store(self, value: Ref, at: Ref) -> None:
        self.code.add(f"store {value.typed}, {at.typed}, align {self.itemsize}")
