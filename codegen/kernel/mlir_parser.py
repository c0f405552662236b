"""Kernels from MLIR text, dialect `twk`: operations to values. `mlir_printer` has the format."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar, get_args

from tilewright.ir import ops as _ops  # noqa: F401  fills REGISTRY
from tilewright.ir.dtype import BY_MLIR, DType
from tilewright.ir.failure import FAILURES
from tilewright.ir.mlir.lexer import Position as Place
from tilewright.ir.mlir.lexer import Source
from tilewright.ir.mlir.parser import ISOLATED, parse
from tilewright.ir.mlir.syntax import (
    FusedLocation,
    Integer,
    Location,
    NamedLocation,
    Opaque,
    Operation,
    ScalarType,
    ShapedType,
    Type,
    file_and_line,
    format_attribute,
)
from tilewright.ir.mlir.values import from_constant_attribute
from tilewright.ir.op import REGISTRY, Fold, Kind, Op
from tilewright.ir.ops.generate import value_of

from .affine import parse_map
from .index import Axis, Check, Data, Index
from .ir import (
    SCANS,
    Apply,
    Buffer,
    Bundle,
    Condition,
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
    Segment,
    Sort,
    Store,
    Value,
)

T = TypeVar("T")
Named = Axis | Data | Buffer | Value

INDEX = ScalarType("index")
_ATOMS: tuple[type[Axis | Data], ...] = (Axis, Data)
_VALUES: tuple[type[Value], ...] = get_args(Value)
MODES = ("set", "add", "mul", "max", "min")


def parse_kernel(text: str, filename: str = "<mlir>") -> Kernel | Bundle:
    """The kernel or bundle that a text holds. Raises `MLIRError` for text that holds none.

    Values that no store needs are dropped.
    """
    operations = parse(text, filename, {*ISOLATED, "twk.kernel"})
    operation = _only(operations, Place(Source(text, filename), 0))
    if operation.name == "twk.kernel":
        return _read_kernel(operation)
    members = _block(operation)
    if not members:
        _place(operation).fail('a bundle of "twk.kernel"', "none")
    for member in members:
        if member.name != "twk.kernel":
            _place(member).fail('"twk.kernel" in a bundle', f'"{member.name}"')
    return Bundle(tuple(map(_read_kernel, members)))


def _only(operations: Sequence[Operation], start: Place) -> Operation:
    """The one kernel or bundle among parsed operations or inside of their module."""
    while len(operations) == 1 and operations[0].name == "builtin.module":
        (module,) = operations
        start = _place(module)
        operations = [op for region in module.regions for b in region for op in b.operations]
    if len(operations) == 1 and operations[0].name in ("twk.kernel", "twk.bundle"):
        return operations[0]
    others = operations[1:] if len(operations) > 1 else operations
    found = ", ".join(f'"{op.name}"' for op in operations) or "none"
    where = _place(others[0]) if others else start
    where.fail('one "twk.kernel" or "twk.bundle"', found)


def _place(op: Operation) -> Place:
    assert op.where is not None, "operations that were read know where"
    return op.where


def _block(op: Operation) -> Sequence[Operation]:
    """The operations inside of `op`."""
    blocks = [block for region in op.regions for block in region]
    if len(blocks) > 1 or any(b.arguments for b in blocks):
        _place(op).fail(f"a {op.name} of one block without arguments", "another form")
    return blocks[0].operations if blocks else ()


def _read_kernel(op: Operation) -> Kernel:
    fields = _Fields(op, {})
    name = fields.string("sym_name")
    fields.finish()
    scope = _Scope()
    for inner in _block(op):
        scope.read(inner)
    axes = tuple(scope.parallel), tuple(scope.reduction)
    return Kernel(name, *axes, tuple(scope.stores), _notes(op.loc))


def _notes(loc: Location | None) -> tuple[tuple[str, str, int], ...]:
    parts = loc.parts if isinstance(loc, FusedLocation) else (loc,)
    named = [(part.name, file_and_line(part)) for part in parts if isinstance(part, NamedLocation)]
    return tuple((name, *line) for name, line in named if line is not None)


class _Fields:
    """The parts of an operation; each one is checked when it is taken."""

    def __init__(self, op: Operation, known: Mapping[str, Named]):
        self.op = op
        self.where = _place(op)
        self.attributes = {**op.attributes, **op.properties}
        self.taken: set[str] = set()
        self.operands = [known[name] for name in op.operands]

    def attribute(self, key: str, kind: type[T], wanted: str) -> T:
        self.taken.add(key)
        if key not in self.attributes:
            got = ", ".join(self.attributes) or "none"
            self.where.fail(f"the attribute {key} of {self.op.name}", got)
        found = self.attributes[key]
        if not isinstance(found, kind):
            self.where.fail(f"{wanted} as the attribute {key}", format_attribute(found))
        return found

    def string(self, key: str, allowed: Collection[str] = ()) -> str:
        found = self.attribute(key, str, "a string")
        if allowed and found not in allowed:
            self.where.fail(f"one of {', '.join(allowed)} as the attribute {key}", found)
        return found

    def flag(self, key: str) -> bool:
        """Whether an attribute is there, which is true then."""
        return key in self.attributes and self.attribute(key, bool, "true")

    def size(self, key: str) -> int:
        value = self.attribute(key, Integer, "an integer").value
        if value < 0:
            self.where.fail(f"an attribute {key} of at least 0", str(value))
        return value

    def integers(self, key: str, count: int) -> list[int]:
        listed = self.attribute(key, tuple, "an array of integers")
        found = [item.value for item in listed if isinstance(item, Integer)]
        if len(found) != count or len(listed) != count:
            got = format_attribute(listed)
            self.where.fail(f"an array of {count} integers as the attribute {key}", got)
        return found

    def dtype(self, key: str) -> DType:
        found = self.attribute(key, ScalarType, "a dtype")
        if found.name not in BY_MLIR:
            self.where.fail(f"one of {', '.join(BY_MLIR)} as the attribute {key}", found.name)
        return BY_MLIR[found.name]

    def value(self) -> Value:
        return self.operand(_VALUES, "a value")

    def buffer(self) -> Buffer:
        return self.operand((Buffer,), "a buffer")

    def axis(self, among: Sequence[Axis]) -> Axis:
        found = self.operand((Axis,), "an axis")
        if found not in among:
            self.where.fail(f"a reduction axis as an operand of {self.op.name}", found.name)
        return found

    def operand(self, kinds: tuple[type[T], ...], wanted: str) -> T:
        """The next operand, which must be one of `kinds`."""
        taken = len(self.op.operands) - len(self.operands)
        if not self.operands:
            self.where.fail(f"{wanted} as operand {taken} of {self.op.name}", "no more")
        found = self.operands.pop(0)
        if not isinstance(found, kinds):
            shown = f"%{self.op.operands[taken]}, of type {self.op.types.inputs[taken]}"
            self.where.fail(f"{wanted} as operand {taken} of {self.op.name}", shown)
        return found

    def indices(self) -> tuple[Index, ...]:
        """The map `at` of the operands that are left."""
        atoms: list[Axis | Data] = []
        while self.operands:
            atoms.append(self.operand(_ATOMS, "an index"))
        return parse_map(self.attribute("at", Opaque, "an affine map"), atoms)

    def index(self) -> Index:
        found = self.indices()
        if len(found) != 1:
            self.where.fail(f"an affine map with one result for {self.op.name}", str(len(found)))
        return found[0]

    def result(self) -> Type:
        if len(self.op.results) != 1:
            self.where.fail(f"one result of {self.op.name}", str(len(self.op.results)))
        return self.op.types.results[0]

    def result_dtype(self) -> DType:
        found = self.result()
        if not isinstance(found, ScalarType) or found.name not in BY_MLIR:
            self.where.fail(f"a result of one of {', '.join(BY_MLIR)}", str(found))
        return BY_MLIR[found.name]

    def finish(self) -> None:
        """Raises for parts that nothing has taken."""
        unknown = [key for key in self.attributes if key not in self.taken]
        if unknown:
            known = ", ".join(sorted(self.taken)) or "none"
            self.where.fail(f"no attributes of {self.op.name} but {known}", unknown[0])
        if self.operands:
            count = len(self.op.operands)
            wanted = count - len(self.operands)
            self.where.fail(f"{wanted} operand{'s' * (wanted != 1)} of {self.op.name}", str(count))


class _Scope:
    """The inside of one kernel, as far as it has been read."""

    def __init__(self) -> None:
        self.known: dict[str, Named] = {}
        self.parallel: list[Axis] = []
        self.reduction: list[Axis] = []
        self.stores: list[Store] = []

    def read(self, operation: Operation) -> None:
        read = _RULES.get(operation.name)
        if read is None:
            close = difflib.get_close_matches(operation.name, _RULES, n=1)
            hint = f' (did you mean "{close[0]}"?)' if close else ""
            _place(operation).fail(f"an operation of dialect twk{hint}", f'"{operation.name}"')
        if operation.regions:
            _place(operation).fail(f"{operation.name} without regions", str(len(operation.regions)))
        fields = _Fields(operation, self.known)
        made = read(self, fields)
        fields.finish()
        if made is not None:
            self.known[operation.results[0]] = made
        elif operation.results:
            fields.where.fail(f"no result of {operation.name}", str(len(operation.results)))

    def new(self, made: T, fields: _Fields) -> T:
        if made in self.known.values():
            fields.where.fail("axes and buffers that differ", f"a second {made}")
        return made

    def parallel_axis(self, fields: _Fields) -> Axis:
        self.parallel.append(self.axis(fields))
        return self.parallel[-1]

    def reduction_axis(self, fields: _Fields) -> Axis:
        self.reduction.append(self.axis(fields))
        return self.reduction[-1]

    def axis(self, fields: _Fields) -> Axis:
        if fields.result() != INDEX:
            fields.where.fail(f"{INDEX}, the type of an axis", str(fields.result()))
        return self.new(Axis(fields.string("name"), fields.size("extent")), fields)

    def buffer(self, fields: _Fields) -> Buffer:
        found = fields.result()
        if isinstance(found, ShapedType) and found.kind == "memref" and len(found.shape) == 1:
            (size,) = found.shape
            dtype = (
                BY_MLIR.get(found.element.name) if isinstance(found.element, ScalarType) else None
            )
            if size is not None and dtype is not None:
                return self.new(Buffer(fields.string("name"), dtype, size), fields)
        fields.where.fail("a memref of one known size, such as memref<48xf32>", str(found))

    def data(self, fields: _Fields) -> Data:
        if fields.result() != INDEX:
            fields.where.fail(f"{INDEX}, the type of a position", str(fields.result()))
        # Without a line of a program, the position's location is its line in the text.
        where = fields.where
        line = file_and_line(fields.op.loc) or (where.source.filename, where.line)
        name = fields.string("failure")
        if name not in FAILURES:
            fields.where.fail(f"the name of a failure, one of {', '.join(FAILURES)}", name)
        check = Check(fields.size("size"), fields.size("axis"), line, name)
        return Data(fields.value(), check, fields.flag("holds"))

    def load(self, fields: _Fields) -> Load:
        return Load(fields.buffer(), fields.index(), fields.result_dtype())

    def constant(self, fields: _Fields) -> Constant:
        found: Any = fields.attribute("value", object, "a number")
        dtype = fields.result_dtype()
        try:
            bits, stated = from_constant_attribute(found)
        except TypeError:
            known = ", ".join(BY_MLIR)
            got = format_attribute(found)
            fields.where.fail(f"a number of one of {known} as the attribute value", got)
        if stated is not dtype:
            fields.where.fail(f"{stated.mlir}, the type of this number", dtype.mlir)
        exact = value_of(bits, dtype)
        return Constant(exact, dtype)

    def scalar(self, fields: _Fields) -> Scalar:
        return Scalar(fields.size("slot"), fields.result_dtype())

    def position(self, fields: _Fields) -> Position:
        return Position(fields.index(), fields.result_dtype())

    def random_bits(self, fields: _Fields) -> RandomBits:
        return RandomBits(fields.value(), fields.value(), fields.index(), fields.result_dtype())

    def apply(self, fields: _Fields) -> Apply:
        op = self.op(fields)
        args = []
        while fields.operands:
            args.append(fields.value())
        if isinstance(op.numpy, str):
            arity = len(set(re.findall(r"\{[0-9]\}", op.numpy)))
            if arity != len(args):
                fields.where.fail(
                    f"{arity} operand{'s' * (arity != 1)} of {op.name}", str(len(args))
                )
        target = fields.dtype("target") if "target" in fields.attributes else None
        return Apply(op, tuple(args), fields.result_dtype(), target)

    def op(self, fields: _Fields) -> Op:
        name = fields.string("op")
        found = REGISTRY.get(name)
        if found is None or found.kind is not Kind.ELEMENTWISE:
            known = [op.name for op in REGISTRY.values() if op.kind is Kind.ELEMENTWISE]
            close = difflib.get_close_matches(name, known, n=1)
            hint = f" (did you mean {close[0]}?)" if close else ""
            fields.where.fail(f"an elementwise op{hint}", name)
        return found

    def guard(self, fields: _Fields) -> Guard:
        inside, outside, indices = fields.value(), fields.value(), fields.indices()
        low, high = (fields.integers(key, len(indices)) for key in ("low", "high"))
        conditions = tuple(map(Condition, indices, low, high))
        return Guard(conditions, inside, outside, fields.result_dtype())

    def fold(self, fields: _Fields, of: Iterable[Fold]) -> Fold:
        return Fold(fields.string("op", [fold.value for fold in of]))

    def reduce(self, fields: _Fields) -> Reduce:
        op, arg = self.fold(fields, Fold), fields.value()
        return Reduce(op, arg, self.over(fields), fields.result_dtype())

    def dot(self, fields: _Fields) -> Dot:
        fast, in_segments, scaled = (
            name in fields.attributes and fields.attribute(name, bool, "a bool")
            for name in ("fast", "segment", "scaled")
        )
        a, b = fields.value(), fields.value()
        bounds = (fields.value(), fields.value()) if in_segments else ()
        scales = (fields.value(), fields.value()) if scaled else ()
        segment = None
        if bounds:
            segment = Segment(fields.axis([*self.parallel, *self.reduction]), *bounds)
        over, dtype = self.over(fields), fields.result_dtype()
        return Dot(a, b, over, dtype, fields.dtype("input"), fast, segment, scales)

    def over(self, fields: _Fields) -> tuple[Axis, ...]:
        axes = []
        while fields.operands:
            axes.append(fields.axis(self.reduction))
        return tuple(axes)

    def scan(self, fields: _Fields) -> Scan:
        op, arg = self.fold(fields, SCANS), fields.value()
        return Scan(op, arg, fields.axis(self.reduction), fields.result_dtype())

    def sort(self, fields: _Fields) -> Sort:
        arg, along = fields.value(), fields.axis(self.reduction)
        descending = fields.attribute("descending", bool, "true or false")
        count = fields.size("count") if "count" in fields.attributes else along.extent
        return Sort(arg, along, descending, count, fields.result_dtype())

    def ordered(self, fields: _Fields) -> Ordered:
        arg, along = fields.value(), fields.axis(self.reduction)
        return Ordered(arg, along, fields.size("run"), fields.result_dtype())

    def store(self, fields: _Fields) -> None:
        value, buffer, offset = fields.value(), fields.buffer(), fields.index()
        mode = fields.string("mode", MODES) if "mode" in fields.attributes else None
        self.stores.append(Store(buffer, offset, value, mode, fields.flag("grouped")))


_RULES: dict[str, Callable[[_Scope, _Fields], Named | None]] = {
    "twk.parallel": _Scope.parallel_axis,
    "twk.reduction": _Scope.reduction_axis,
    "twk.buffer": _Scope.buffer,
    "twk.data": _Scope.data,
    "twk.load": _Scope.load,
    "twk.constant": _Scope.constant,
    "twk.scalar": _Scope.scalar,
    "twk.position": _Scope.position,
    "twk.random_bits": _Scope.random_bits,
    "twk.apply": _Scope.apply,
    "twk.guard": _Scope.guard,
    "twk.reduce": _Scope.reduce,
    "twk.scan": _Scope.scan,
    "twk.sort": _Scope.sort,
    "twk.ordered": _Scope.ordered,
    "twk.dot": _Scope.dot,
    "twk.store": _Scope.store,
}
