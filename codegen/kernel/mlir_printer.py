"""Kernels as MLIR text, dialect `twk`; `mlir_parser` is the way back.

    %p0 = "twk.parallel"() {name = "p0", extent = 48 : i64} : () -> index
    %in0 = "twk.buffer"() {name = "in0"} : () -> memref<48xf32>
    %v0 = "twk.load"(%in0, %p0) {at = affine_map<(p0) -> (p0)>} : (memref<48xf32>, index) -> f32

A `twk.kernel` holds its axes, its buffers, its values in the order in which they are computed, and
its stores; a `twk.bundle` holds kernels. An index is an affine map of the operands of type index:
axes, and positions that are data (`twk.data`). The dtype of a value is the type of its result.

The location of a kernel holds its notes, each as `"mul"("train.py":12:0)`. A value has a location
where the notes leave no doubt about its line.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from tilewright.ir import ops
from tilewright.ir.dtype import uint64
from tilewright.ir.mlir.syntax import (
    Attribute,
    Block,
    FileLocation,
    FunctionType,
    FusedLocation,
    Integer,
    Location,
    NamedLocation,
    Operation,
    ShapedType,
    Type,
)
from tilewright.ir.mlir.values import constant_attribute, scalar_type
from tilewright.ir.op import REGISTRY, Kind, Op
from tilewright.ir.ops.generate import bits_of

from .affine import dimensions, format_map
from .index import Axis, Data, Index
from .ir import (
    ALONG,
    Apply,
    Buffer,
    Bundle,
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
    Store,
    Value,
)
from .mlir_parser import INDEX, parse_kernel

__all__ = ["print_kernel", "parse_kernel", "kernel_module"]

Named = Axis | Data | Buffer | Value

_SSA_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# A dimension of an affine map must not be a keyword (`mod`, `max`, `size`) or a type (`i8`, `f32`).
_DIMENSION = re.compile(r"[A-Za-z]|(?![fi])[a-z][0-9]+")
_TEXT_NAMES: dict[type, tuple[str, re.Pattern[str] | None]] = {
    Axis: ("axis", _DIMENSION),
    Buffer: ("buf", _SSA_NAME),
    Data: ("at", None),
}
_OPERATIONS: dict[type, str] = {
    Load: "twk.load",
    Constant: "twk.constant",
    Scalar: "twk.scalar",
    Position: "twk.position",
    RandomBits: "twk.random_bits",
    Apply: "twk.apply",
    Guard: "twk.guard",
    Reduce: "twk.reduce",
    Scan: "twk.scan",
    Sort: "twk.sort",
    Ordered: "twk.ordered",
    Dot: "twk.dot",
}


def print_kernel(kernel: Kernel | Bundle) -> str:
    """The kernel, or the bundle of kernels, as the text of a module."""
    return f"{kernel_module(kernel)}\n"


def kernel_module(kernel: Kernel | Bundle) -> Operation:
    """The module that `print_kernel` prints."""
    if isinstance(kernel, Bundle):
        members = [_Printer(member).operation() for member in kernel.members]
        operation = Operation("twk.bundle", regions=[[Block(members)]])
    else:
        operation = _Printer(kernel).operation()
    return Operation("builtin.module", regions=[[Block([operation])]])


class _Printer:
    """The operations of one kernel."""

    def __init__(self, kernel: Kernel):
        self.kernel = kernel
        self.body: list[Operation] = []
        self.names: dict[Named, str] = {}
        self.types: dict[Named, Type] = {}
        self.taken: set[str] = set()
        self.numbers: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)

    def operation(self) -> Operation:
        kernel = self.kernel
        for kind, axes in (("parallel", kernel.parallel), ("reduction", kernel.reduction)):
            for axis in axes:
                extent = Integer(axis.extent)
                self.define(axis, f"twk.{kind}", {"name": axis.name, "extent": extent}, INDEX)
        for buffer in (*kernel.outputs, *kernel.inputs):
            memory = ShapedType("memref", (buffer.size,), scalar_type(buffer.dtype))
            self.define(buffer, "twk.buffer", {"name": buffer.name}, memory)
        for value in kernel.values:
            self.value(value)
        for store in kernel.stores:
            self.store(store)
        return Operation(
            "twk.kernel",
            properties={"sym_name": kernel.name},
            regions=[[Block(self.body)]],
            loc=_notes(kernel),
        )

    def define(
        self,
        what: Named,
        op: str,
        attributes: Mapping[str, Attribute],
        result: Type,
        operands: Sequence[Named] = (),
        loc: Location | None = None,
    ) -> None:
        """Adds an operation whose result is `what`."""
        made = self.emit(op, operands, attributes, (result,), loc)
        self.names[what] = name = self.fresh(what)
        self.types[what] = result
        made.results = [name]

    def emit(
        self,
        op: str,
        operands: Sequence[Named],
        attributes: Mapping[str, Attribute],
        results: tuple[Type, ...] = (),
        loc: Location | None = None,
    ) -> Operation:
        names = [self.name(o) for o in operands]
        types = FunctionType(tuple(self.types[o] for o in operands), results)
        made = Operation(op, (), names, attributes, types=types, loc=loc)
        self.body.append(made)
        return made

    def fresh(self, what: Named) -> str:
        """A name for `what` in the text: its own name where MLIR takes that."""
        kind, allowed = _TEXT_NAMES.get(type(what), ("v", None))
        own = what.name if isinstance(what, (Axis, Buffer)) else ""
        if allowed is not None and allowed.fullmatch(own):
            name = own
        else:
            name = f"{kind}{next(self.numbers[kind])}"
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name

    def name(self, what: Named) -> str:
        found = self.names.get(what)
        if found is None:
            raise ValueError(
                f"kernel {self.kernel.name} mentions {what}, but doesn't range over it"
            )
        return found

    def value(self, value: Value) -> None:
        operands: list[Named] = list(value.operands())
        attributes: dict[str, Attribute] = {}
        if isinstance(value, Load):
            operands += [value.buffer, *self.at((value.offset,), attributes)]
        elif isinstance(value, Constant):
            attributes["value"] = _number(value)
        elif isinstance(value, Scalar):
            attributes["slot"] = Integer(value.slot)
        elif isinstance(value, (Position, RandomBits)):
            operands += self.at((value.index,), attributes)
        elif isinstance(value, Apply):
            attributes["op"] = value.op.name
            if value.target is not None:
                attributes["target"] = scalar_type(value.target)
        elif isinstance(value, Guard):
            operands += self.at([c.index for c in value.conditions], attributes)
            attributes["low"] = tuple(Integer(c.low) for c in value.conditions)
            attributes["high"] = tuple(Integer(c.high) for c in value.conditions)
        elif isinstance(value, Reduce):
            operands += value.over
            attributes["op"] = value.op.value
        elif isinstance(value, Dot):
            if value.segment is not None:
                operands.append(value.segment.along)
                attributes["segment"] = True
            if value.scales:
                attributes["scaled"] = True
            operands += value.over
            attributes["input"] = scalar_type(value.input_dtype)
            if value.fast:
                attributes["fast"] = True
        elif isinstance(value, Scan):
            operands.append(value.along)
            attributes["op"] = value.op.value
        elif isinstance(value, Ordered):
            operands.append(value.along)
            attributes["run"] = Integer(value.run)
        else:
            operands.append(value.along)
            attributes["descending"] = value.descending
            if value.count < value.along.extent:
                attributes["count"] = Integer(value.count)
        loc = _location(value, self.kernel)
        op = _OPERATIONS[type(value)]
        self.define(value, op, attributes, scalar_type(value.dtype), operands, loc)

    def at(
        self, indices: Sequence[Index], attributes: dict[str, Attribute]
    ) -> tuple[Axis | Data, ...]:
        """The axes and data that `indices` depend on; their map becomes the attribute `at`."""
        found = dimensions(indices)
        for atom in found:
            if isinstance(atom, Data) and atom not in self.names:
                check = atom.check
                about: dict[str, Attribute] = {"size": Integer(check.size)}
                about |= {"axis": Integer(check.axis), "failure": check.failure}
                if atom.holds:
                    about["holds"] = True
                self.define(atom, "twk.data", about, INDEX, [atom.value], FileLocation(*check.loc))
        attributes["at"] = format_map(indices, {atom: self.name(atom) for atom in found})
        return found

    def store(self, store: Store) -> None:
        attributes: dict[str, Attribute] = {}
        operands = [store.value, store.buffer, *self.at((store.offset,), attributes)]
        if store.mode is not None:
            attributes["mode"] = store.mode
        if store.grouped:
            attributes["grouped"] = True
        self.emit("twk.store", operands, attributes)


def _number(constant: Constant) -> Attribute:
    return constant_attribute(bits_of(constant.value, constant.dtype), constant.dtype)


# Locations


def _notes(kernel: Kernel) -> Location | None:
    parts = [NamedLocation(name, FileLocation(file, line)) for name, file, line in kernel.notes]
    return FusedLocation(tuple(parts)) if len(parts) > 1 else parts[0] if parts else None


def _location(value: Value, kernel: Kernel) -> Location | None:
    """The line of the op that computes `value`, if the notes hold only one such op."""
    lines = {
        (file, line) for name, file, line in kernel.notes if _may_make(REGISTRY.get(name), value)
    }
    return FileLocation(*lines.pop()) if len(lines) == 1 else None


def _may_make(op: Op | None, value: Value) -> bool:
    """Whether a node of `op` may have been lowered to `value`."""
    if op is None:
        return False
    if isinstance(value, RandomBits):
        return op is (ops.random_words if value.dtype is uint64 else ops.random_bits)
    if isinstance(value, Reduce):
        return op.kind is Kind.REDUCE and op.fold is value.op
    if isinstance(value, Apply):
        # A sum of equal elements and an outer product are lowered to a product.
        is_product = op is ops.sum_op or op.kind is Kind.CONTRACTION
        return op is value.op or (value.op is ops.mul and is_product)
    if isinstance(value, Dot):
        return op.kind in (Kind.CONTRACTION, Kind.ATTENTION)
    return isinstance(value, ALONG) and op.kind is Kind.SCAN
