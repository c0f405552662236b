"""The mean and the deviation of rows, and rows normalized by them: LLVM IR for any sizes.

    moments:     mean[i] = sum of x[i, j] / length
                 scale[i] = sqrt(sum of (x[i, j] - mean[i])^2 / length + eps[0])
    normalized:  out[i, j] = (x[i, j] - mean[i]) / scale[i] weight[j] + bias[j]

x is [rows, length]. Sums are taken in float64, as is eps.
"""

from __future__ import annotations

from tilewright.ir.dtype import DType

from .code import Code, module_text
from .side_by_side import Lines, joined
from .types import Ref, constant

_NUMBERS = ("rows", "length", "each")
MOMENTS = ("mean", "scale", "x", "eps", *_NUMBERS)
_NORMALIZED = ("out", "x", "mean", "scale")
_PARAMETERS = ("weight", "bias")
"""The argument words, of which the numbers come last. each: how many rows a chunk computes."""


def normalized(parameters: int) -> tuple[str, ...]:
    """The argument words of a kernel with none of the parameters, the weight, or both."""
    return (*_NORMALIZED, *_PARAMETERS[:parameters], *_NUMBERS)


def buffers(words: tuple[str, ...]) -> int:
    return len(words) - len(_NUMBERS)


class _Rows:
    """A function over rows that is being written."""

    def __init__(self, dtype: DType, words: tuple[str, ...]):
        self.code = code = Code("kernel", "ptr %words, i64 %chunk")
        self.lines = Lines(code, dtype)
        self.words = code.words(words, buffers(words))
        each = self.words["each"]
        start = code.binary("mul", Ref("%chunk", "i64"), each)
        stop = code.intrinsic("smin", [code.binary("add", start, each), self.words["rows"]])
        self.loop = code.open_loop(start, stop)
        self.begin = code.binary("mul", self.loop.variable, self.words["length"])

    def element(self, name: str) -> Ref:
        """The address of the row's number in a buffer."""
        return self.lines.address(self.words[name], self.loop.variable)

    def row(self, name: str) -> Ref:
        """The address of the row in a buffer."""
        return self.lines.address(self.words[name], self.begin)

    def scalar(self, name: str) -> Ref:
        return self.code.let(f"load {self.lines.kind}, {self.element(name).typed}", self.lines.kind)

    def text(self) -> str:
        self.code.close_loop(self.loop)
        return module_text([self.code])


def moments(dtype: DType) -> str:
    """The module with a function `kernel`."""
    rows = _Rows(dtype, MOMENTS)
    code, lines, words = rows.code, rows.lines, rows.words
    kind, lanes, x = lines.kind, lines.lanes, rows.row("x")
    zeros = [constant(0, "double", lanes)]
    count = code.convert("sitofp", words["length"], "double")

    def plus(place: Ref, mask: Ref | None, held: list[Ref]) -> list[Ref]:
        value = lines.load(lines.address(x, place), mask, 0)
        return [code.binary("fadd", held[0], code.convert("fpext", value, "double"))]

    (total,) = lines.folded(words["length"], zeros, plus)
    mean = code.convert("fptrunc", code.binary("fdiv", joined(code, "fadd", total), count), kind)
    code.add(f"store {mean.typed}, {rows.element('mean').typed}")
    centre = code.spread(mean, lanes)

    def squares(place: Ref, mask: Ref | None, held: list[Ref]) -> list[Ref]:
        apart = code.binary("fsub", lines.load(lines.address(x, place), mask, 0), centre)
        if mask is not None:
            apart = code.select(mask, apart, constant(0, kind, lanes))
        wide = code.convert("fpext", apart, "double")
        return [code.binary("fadd", held[0], code.binary("fmul", wide, wide))]

    (total,) = lines.folded(words["length"], zeros, squares)
    eps = code.let(f"load double, {words['eps'].typed}", "double")
    variance = code.binary("fdiv", joined(code, "fadd", total), count)
    scale = code.intrinsic("sqrt", [code.binary("fadd", variance, eps)])
    scale = code.convert("fptrunc", scale, kind)
    code.add(f"store {scale.typed}, {rows.element('scale').typed}")
    return rows.text()


def normal(dtype: DType, parameters: int) -> str:
    """The module with a function `kernel`. parameters: see `normalized`."""
    rows = _Rows(dtype, normalized(parameters))
    code, lines, words = rows.code, rows.lines, rows.words
    x, out = rows.row("x"), rows.row("out")
    centre, scale = (code.spread(rows.scalar(n), lines.lanes) for n in ("mean", "scale"))

    def write(place: Ref, mask: Ref | None) -> None:
        value = lines.load(lines.address(x, place), mask, 0)
        value = code.binary("fdiv", code.binary("fsub", value, centre), scale)
        for name, op in zip(_PARAMETERS[:parameters], ("fmul", "fadd")):
            factor = lines.load(lines.address(words[name], place), mask, 0)
            value = code.binary(op, value, factor)
        lines.store(value, lines.address(out, place), mask)

    lines.over(words["length"], write)
    return rows.text()
