"""Text of a kernel while it is written: nested blocks of lines, fresh names, literals."""

from __future__ import annotations

import math
import re
from typing import Any

from tilewright.ir.dtype import BOOL, FLOAT, FLOAT8, NARROW, DType

TL = {
    "bool": "tl.int1",
    **{f"{sign}int{bits}": f"tl.{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    **{name: f"tl.{name}" for name in ("float16", "bfloat16", "float32", "float64")},
    **{dtype.name: "tl.uint8" for dtype in FLOAT8},
}
"""The types of elements in memory; float8 moves as its bits."""


def tl_type(dtype: DType) -> str:
    """The type of a value in registers: narrow floats are computed in float32."""
    return "tl.float32" if dtype in NARROW else TL[dtype.name]


class Block:
    """Lines at one level of indentation, and the loops among them."""

    def __init__(self) -> None:
        self.lines: list[str | tuple[str, Block]] = []

    def add(self, line: str) -> None:
        self.lines.append(line)

    def loop(self, header: str, body: Block) -> None:
        """Appends `header:` with `body`. Until then, lines that the body needs may still come."""
        self.lines.append((header, body))

    def render(self, indent: int = 0) -> list[str]:
        out: list[str] = []
        for line in self.lines:
            if isinstance(line, str):
                out.append(" " * indent + line)
            else:
                out.append(" " * indent + line[0] + ":")
                out.extend(line[1].render(indent + 4))
        return out


def identifier(name: str) -> str:
    """`name` as a Python identifier."""
    clean = re.sub(r"\W+", "_", name).strip("_") or "kernel"
    return f"k_{clean}" if clean[0].isdigit() else clean


class Names:
    """Names that are still free."""

    def __init__(self) -> None:
        self._count: dict[str, int] = {}

    def fresh(self, stem: str) -> str:
        count = self._count.get(stem, 0)
        self._count[stem] = count + 1
        return f"{stem}_{count}"


def literal(value: Any, dtype: DType) -> str:
    """A Python literal that Triton reads back as exactly `value`."""
    if dtype.category == BOOL:
        return str(bool(value))
    if dtype.category != FLOAT:
        return str(int(value))
    number = float(value)
    if math.isnan(number):
        return 'float("nan")'
    if math.isinf(number):
        return 'float("inf")' if number > 0 else '-float("inf")'
    if dtype.name == "float64":
        return repr(number)
    short = str(dtype.np.type(value).astype("float32"))  # the shortest text that rounds to it
    return short if any(c in short for c in ".en") else short + ".0"


_FEW, _MANY = 16, 1 << 31
"""Numbers up to the first, and beyond the second, are rather those of a formula than sizes."""


def may_be_size(value: Any, dtype: DType) -> bool:
    """Whether a number may follow from sizes, as the count that a mean divides by does: a whole one
    that isn't small, or the reciprocal of one. It is an argument, so that the text serves other
    sizes, too. Integers stay: the compiler divides by those that it knows in a few instructions."""
    number = abs(float(value)) if dtype.category == FLOAT else 0.0
    if 0 < number < 1:
        whole = round(1 / number)
        return _FEW < whole <= _MANY and bool(dtype.np.type(1 / whole) == number)
    return _FEW < number <= _MANY and number.is_integer()


def product(texts: list[str]) -> str:
    """A product of factors as text; parenthesized where it stands in another product."""
    factors = [t for t in texts if t != "1"]
    return " * ".join(factors) if factors else "1"


def is_name(text: str) -> bool:
    return re.fullmatch(r"\w+", text) is not None


def grouped(text: str) -> str:
    """`text` in parentheses unless it is a name, a number or a call."""
    if re.fullmatch(r"[\w.]+", text) or re.fullmatch(r"[\w.]+\([^()]*\)", text):
        return text
    return f"({text})"
