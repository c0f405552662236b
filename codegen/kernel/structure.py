"""The structure of a kernel: its text with the sizes left open.

Kernels of one structure differ in their numbers alone (extents, strides, offsets), so they share
generated code, to which `parameters` are passed.
"""

from __future__ import annotations

from tilewright.ir.node import format_location

from . import index as ix
from .index import Axis, Data, FloorDiv, Index, Mod
from .ir import (
    Apply,
    Buffer,
    Constant,
    Dot,
    Guard,
    Kernel,
    Load,
    Ordered,
    Position,
    RandomBits,
    Reduce,
    Scalar,
    Scan,
    Sort,
    Value,
)

# A reduction this short is unrolled, so its extent is part of the code.
SMALL = 16


def structure(kernel: Kernel) -> str:
    """Canonical text of the kernel; integers above 1 are `*`, but for small reduction axes."""
    return _Writer(kernel, exact=False).text()


def parameters(kernel: Kernel) -> tuple[int, ...]:
    """The integers that `structure` writes as `*`, in the order of the text."""
    writer = _Writer(kernel, exact=False)
    writer.text()
    return tuple(writer.open)


def identity(kernel: Kernel) -> str:
    """The structure with its numbers, but without names, the user's lines and the `starts`."""
    writer = _Writer(kernel, exact=False, starts=starts(kernel))
    return f"{writer.text()}\n{writer.open}"


def starts(kernel: Kernel) -> tuple[int, ...]:
    """The constants of offsets that are passed as arguments, without repeats: the place where a
    slice begins in its buffer doesn't change how it is computed.

    A constant that another index has too stays a number of the kernel. So do all constants of
    kernels that fold, whose schedule follows from their offsets.
    """
    if kernel.reduction:
        return ()
    offsets = [v.offset for v in kernel.values if isinstance(v, Load)]
    offsets += [s.offset for s in kernel.stores]
    indices = [i for v in kernel.values if not isinstance(v, Load) for i in v.indices()]
    others = {0, 1, *(i.const for i in indices)}  # 0 and 1 are part of the code
    for index in (*offsets, *indices):
        others |= {a.index.const for a in ix.walk(index) if isinstance(a, (FloorDiv, Mod))}
    return tuple(dict.fromkeys(o.const for o in offsets if o.const not in others))


def describe(kernel: Kernel) -> str:
    """The kernel as text for people, with all its numbers."""
    return _Writer(kernel, exact=True).text()


class _Writer:
    def __init__(self, kernel: Kernel, exact: bool, starts: tuple[int, ...] = ()):
        self.kernel = kernel
        self.exact = exact
        self.starts = {number: place for place, number in enumerate(starts)}
        self.open: list[int] = []
        self.names: dict[int, str] = {}
        self.scalars: dict[int, int] = {}

    def text(self) -> str:
        kernel = self.kernel
        lines = []
        if self.exact:
            lines.append(f"kernel {kernel.name}")
            lines += [
                f"  # {op} {format_location((file, line))}" for op, file, line in kernel.notes
            ]
        parallel = ", ".join(f"{a.name}<{self._number(a.extent)}" for a in kernel.parallel)
        lines.append(f"  parallel {parallel}")
        lines.append(f"  reduction {', '.join(map(self._reduction, kernel.reduction))}")
        for buffer in (*kernel.outputs, *kernel.inputs):
            lines.append(f"  {buffer.name}: {buffer.dtype.short}[{self._number(buffer.size)}]")
        for value in kernel.values:
            text = self._value(value)
            name = self.names[id(value)] = f"v{len(self.names)}"
            lines.append(f"  {name}: {value.dtype.short} = {text}")
        for store in kernel.stores:
            mode = f" {store.mode}" if store.mode else ""
            mode += " grouped" if store.grouped else ""
            target = self._at(store.buffer, store.offset)
            lines.append(f"  {target} ={mode} {self.names[id(store.value)]}")
        return "\n".join(lines)

    def _number(self, number: int) -> str:
        if self.exact or number in (0, 1):
            return str(number)
        self.open.append(number)
        return "*"

    def _reduction(self, axis: Axis) -> str:
        extent = str(axis.extent) if axis.extent <= SMALL else self._number(axis.extent)
        return f"{axis.name}<{extent}"

    def _index(self, index: Index) -> str:
        parts = []
        for atom, coefficient in index.terms:
            text = self._atom(atom)
            parts.append(text if coefficient == 1 else f"{text}*{self._number(coefficient)}")
        if index.const in self.starts:
            parts.append(f"start {self.starts[index.const]}")
        elif index.const or not parts:
            parts.append(self._number(index.const))
        return " + ".join(parts)

    def _atom(self, atom: ix.Atom) -> str:
        if isinstance(atom, Axis):
            return atom.name
        if isinstance(atom, Data):
            sign = "below" if atom.holds else "<"
            return f"data({self.names[id(atom.value)]} {sign} {self._number(atom.size)})"
        sign = "//" if isinstance(atom, FloorDiv) else "%"
        return f"(({self._index(atom.index)}) {sign} {self._number(atom.divisor)})"

    def _at(self, buffer: Buffer, offset: Index) -> str:
        return f"{buffer.name}[{self._index(offset)}]"

    def _over(self, axes: tuple[Axis, ...]) -> str:
        """The folded axes as text, unless they are all reduction axes."""
        if axes == self.kernel.reduction:
            return ""
        return f" over {', '.join(a.name for a in axes)}"

    def _value(self, value: Value) -> str:
        args = ", ".join(self.names[id(v)] for v in value.operands())
        if isinstance(value, Load):
            return f"load {self._at(value.buffer, value.offset)}"
        if isinstance(value, Constant):
            return f"constant {value.value!r}"
        if isinstance(value, Scalar):
            number = self.scalars.setdefault(value.slot, len(self.scalars))
            return f"scalar {number}"
        if isinstance(value, Position):
            return f"position {self._index(value.index)}"
        if isinstance(value, RandomBits):
            return f"random_bits({args}) {value.dtype.short} at {self._index(value.index)}"
        if isinstance(value, Apply):
            target = f" to {value.target.short}" if value.target else ""
            return f"{value.op.name}({args}){target}"
        if isinstance(value, Guard):
            conditions = " and ".join(
                f"{self._number(c.low)} <= {self._index(c.index)} < {self._number(c.high)}"
                for c in value.conditions
            )
            return f"guard({args}) if {conditions}"
        if isinstance(value, Reduce):
            return f"reduce {value.op.value}({args}){self._over(value.over)}"
        if isinstance(value, Dot):
            kind = f"{'fast ' if value.fast else ''}{value.input_dtype.short}"
            kind += " scaled" if value.scales else ""
            along = f" along {value.segment.along.name}" if value.segment else ""
            return f"dot({args}) of {kind}{self._over(value.over)}{along}"
        if isinstance(value, Scan):
            return f"scan {value.op.value}({args}) along {value.along.name}"
        if isinstance(value, Ordered):
            run = f" of runs of {self._number(value.run)}" if value.run else ""
            return f"ordered({args}) along {value.along.name}{run}"
        assert isinstance(value, Sort)
        order = "descending" if value.descending else "ascending"
        partly = value.count < value.along.extent
        first = f" first {self._number(value.count)}" if partly else ""
        return f"sort {order}({args}) along {value.along.name}{first}"
