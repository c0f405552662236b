"""The part of MLIR's generic form that our dialects use, as values that print themselves.

A dialect builds `Operation`s and prints them with `str`, or reads those that `parser.parse` gives.
SSA values are names without the `%`; the dialect gives them their meaning.

Attributes are a `bool`, a `str`, a `tuple` (array), a `dict` (dictionary), a type, or one of the
classes below. `str` of an operation and `format_attribute` are the inverse of the parser.
Grammar: https://mlir.llvm.org/docs/LangRef and the builtin dialect.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..dtype import BY_MLIR, FLOAT, DType
from ..numeric.special import cast

if TYPE_CHECKING:
    from .lexer import Position

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_$.]*")
_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


# Types


@dataclass(frozen=True, slots=True)
class ScalarType:
    """`f32`, `bf16`, `i1`, `ui8`, `index`, `none`."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class ShapedType:
    """`tensor<2x?xf32>`: kind is tensor, vector or memref; a size of None is not known."""

    kind: str
    shape: tuple[int | None, ...]
    element: Type

    def __str__(self) -> str:
        sizes = "".join("?x" if size is None else f"{size}x" for size in self.shape)
        return f"{self.kind}<{sizes}{self.element}>"


@dataclass(frozen=True, slots=True)
class FunctionType:
    """`(f32, i1) -> f32`."""

    inputs: tuple[Type, ...]
    results: tuple[Type, ...]

    def __str__(self) -> str:
        results = ", ".join(map(str, self.results))
        if len(self.results) != 1 or isinstance(self.results[0], FunctionType):
            results = f"({results})"
        return f"({', '.join(map(str, self.inputs))}) -> {results}"


@dataclass(frozen=True, slots=True)
class Opaque:
    """A type or attribute in a dialect's own syntax, kept as text.

    Examples: `!twk.tile<8x8xf32>`, `#twk.order<1, 0>`, `affine_map<(d0) -> (d0)>`.
    where: the place it was read from, for a dialect that reads on; None if it was built.
    """

    text: str
    where: Position | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        return self.text


Type = ScalarType | ShapedType | FunctionType | Opaque

I64 = ScalarType("i64")
F64 = ScalarType("f64")
NONE = ScalarType("none")


# Attributes


@dataclass(frozen=True, slots=True)
class Integer:
    """`3 : i64`. Of type i1 there is only `bool`."""

    value: int
    type: ScalarType = I64


@dataclass(frozen=True, slots=True)
class Float:
    """`0.5 : f32`, by its bits: -0.0 is not 0.0, and each NaN is itself."""

    bits: int
    type: ScalarType = F64

    @classmethod
    def of(cls, value: float, type: ScalarType = F64) -> Float:
        """`value` rounded to `type`, which must be the name of a float dtype."""
        dtype = float_dtype(type)
        assert dtype is not None, f"no float dtype is called {type}"
        rounded = cast(float(value), dtype.np)
        return cls(int(rounded.view(_UNSIGNED[dtype.itemsize]).item()), type)

    @property
    def number(self) -> Any:
        """The NumPy scalar."""
        dtype = float_dtype(self.type)
        assert dtype is not None, f"no float dtype is called {self.type}"
        return np.asarray(self.bits, dtype=_UNSIGNED[dtype.itemsize]).view(dtype.np)[()]


@dataclass(frozen=True, slots=True)
class SymbolRef:
    """`@main`."""

    name: str


@dataclass(frozen=True, slots=True)
class Unit:
    """An attribute without a value; its presence is all it says."""


Attribute = (
    bool
    | str
    | tuple["Attribute", ...]
    | Mapping[str, "Attribute"]
    | Integer
    | Float
    | SymbolRef
    | Unit
    | Type
)


def float_dtype(type: Type) -> DType | None:
    """The float dtype called `type`; None if there is none."""
    dtype = BY_MLIR.get(type.name) if isinstance(type, ScalarType) else None
    return dtype if dtype is not None and dtype.category == FLOAT else None


def _format_float(attribute: Float) -> str:
    """The shortest decimal that reads back to the same bits, else the bits in hex."""
    if math.isfinite(attribute.number):
        text = str(attribute.number)
        if "." not in text:  # MLIR wants the point: 1e-05 is an integer and a name
            mantissa, e, exponent = text.partition("e")
            text = f"{mantissa}.0{e}{exponent}"
        # Readers, MLIR's own parser too, go through a double: compare the text after that.
        if Float.of(float(text), attribute.type) == attribute:
            return text
    dtype = float_dtype(attribute.type)
    assert dtype is not None
    return f"0x{attribute.bits:0{dtype.itemsize * 2}X}"


def format_string(text: str) -> str:
    """A string literal. Bytes that are no UTF-8 (in file names) are surrogates in Python."""
    out = ['"']
    for char in text:
        if char in '"\\':
            out.append("\\" + char)
        elif char.isprintable():
            out.append(char)
        else:
            out.extend(f"\\{byte:02X}" for byte in char.encode("utf-8", "surrogateescape"))
    return "".join([*out, '"'])


def _format_key(name: str) -> str:
    return name if _IDENTIFIER.fullmatch(name) else format_string(name)


def _format_entries(entries: Mapping[str, Attribute]) -> str:
    """`{a = 1 : i64, b}`."""
    listed = [
        _format_key(key) if isinstance(value, Unit) else f"{_format_key(key)} = {_format(value)}"
        for key, value in entries.items()
    ]
    return f"{{{', '.join(listed)}}}"


def _format(attribute: Attribute, *, in_array: bool = False) -> str:
    if isinstance(attribute, bool):
        return "true" if attribute else "false"
    if isinstance(attribute, str):
        return format_string(attribute)
    if isinstance(attribute, (Integer, Float)):
        value = str(attribute.value) if isinstance(attribute, Integer) else _format_float(attribute)
        # A bare number is i64 or f64 by its look, so hex digits need their type.
        default = attribute.type == (I64 if isinstance(attribute, Integer) else F64)
        bare = in_array and default and not value.startswith("0x")
        return value if bare else f"{value} : {attribute.type}"
    if isinstance(attribute, tuple):
        return f"[{', '.join(_format(a, in_array=True) for a in attribute)}]"
    if isinstance(attribute, Mapping):
        return _format_entries(attribute)
    if isinstance(attribute, SymbolRef):
        return f"@{_format_key(attribute.name)}"
    if isinstance(attribute, Unit):
        return "unit"
    if isinstance(attribute, (ScalarType, ShapedType, FunctionType, Opaque)):
        return str(attribute)
    raise TypeError(f"expected an MLIR attribute, got {type(attribute).__name__}: {attribute!r}")


def format_attribute(attribute: Attribute) -> str:
    """The text of `attribute`; TypeError if it is none."""
    return _format(attribute)


# Locations


@dataclass(frozen=True, slots=True)
class FileLocation:
    """`loc("train.py":12:0)`."""

    file: str
    line: int
    column: int = 0


@dataclass(frozen=True, slots=True)
class NamedLocation:
    """`loc("layer norm"("train.py":12:0))`."""

    name: str
    child: Location | None = None


@dataclass(frozen=True, slots=True)
class FusedLocation:
    """`loc(fused["a.py":1:0, "b.py":2:0])`: one thing made from several lines."""

    parts: tuple[Location, ...]


@dataclass(frozen=True, slots=True)
class CallLocation:
    """`loc(callsite("model.py":3:0 at "train.py":12:0))`."""

    callee: Location
    caller: Location


@dataclass(frozen=True, slots=True)
class UnknownLocation:
    """`loc(unknown)`."""


@dataclass(frozen=True, slots=True)
class LocationAlias:
    """`loc(#loc3)` before the parser has met `#loc3 = loc(…)`; the parser replaces all of them."""

    name: str


Location = (
    FileLocation | NamedLocation | FusedLocation | CallLocation | UnknownLocation | LocationAlias
)


def _format_location(loc: Location) -> str:
    if isinstance(loc, FileLocation):
        return f"{format_string(loc.file)}:{loc.line}:{loc.column}"
    if isinstance(loc, NamedLocation):
        child = "" if loc.child is None else f"({_format_location(loc.child)})"
        return format_string(loc.name) + child
    if isinstance(loc, FusedLocation):
        return f"fused[{', '.join(map(_format_location, loc.parts))}]"
    if isinstance(loc, CallLocation):
        return f"callsite({_format_location(loc.callee)} at {_format_location(loc.caller)})"
    return loc.name if isinstance(loc, LocationAlias) else "unknown"


def _location_suffix(loc: Location | None) -> str:
    return "" if loc is None else f" loc({_format_location(loc)})"


def file_and_line(loc: Location | None) -> tuple[str, int] | None:
    """The first line of a file in `loc`."""
    if isinstance(loc, FileLocation):
        return loc.file, loc.line
    if isinstance(loc, NamedLocation):
        return file_and_line(loc.child)
    if isinstance(loc, CallLocation):
        return file_and_line(loc.callee) or file_and_line(loc.caller)
    if isinstance(loc, FusedLocation):
        return next(filter(None, map(file_and_line, loc.parts)), None)
    return None


# Operations


@dataclass(slots=True)
class BlockArgument:
    name: str
    type: Type
    loc: Location | None = None
    where: Position | None = field(default=None, repr=False, compare=False)


@dataclass(slots=True)
class Block:
    """Operations in order, under arguments. `label` (without the `^`) may be left out."""

    operations: list[Operation] = field(default_factory=list)
    arguments: Sequence[BlockArgument] = ()
    label: str = ""


Region = Sequence[Block]


@dataclass(slots=True)
class Operation:
    """One operation in generic form.

    name: with its dialect, `tw.mul`.
    results, operands: SSA names, without the `%`.
    types: of the operands and of the results.
    properties: the attributes that a registered op owns, printed as `<{…}>`.
    where: the place in the text it was read from; None if it was built.
    """

    name: str
    results: Sequence[str] = ()
    operands: Sequence[str] = ()
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    regions: Sequence[Region] = ()
    types: FunctionType = FunctionType((), ())
    loc: Location | None = None
    properties: Mapping[str, Attribute] = field(default_factory=dict)
    where: Position | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        return "\n".join(_operation_lines(self, ""))


def _format_results(names: Sequence[str]) -> str:
    """`%0, %1 = `; names like 0#0 and 0#1 are a pack, `%0:2 = `."""
    listed = []
    for pack, members in itertools.groupby(names, lambda name: name.partition("#")[0]):
        count = len(list(members))
        listed.append(f"%{pack}:{count}" if f"{pack}#0" in names else f"%{pack}")
    return f"{', '.join(listed)} = " if listed else ""


def _operation_lines(op: Operation, indent: str) -> list[str]:
    head = f"{indent}{_format_results(op.results)}"
    head += f'"{op.name}"({", ".join(f"%{name}" for name in op.operands)})'
    if op.properties:
        head += f" <{_format_entries(op.properties)}>"
    attributes = f" {_format_entries(op.attributes)}" if op.attributes else ""
    tail = f"{attributes} : {op.types}{_location_suffix(op.loc)}"
    if not op.regions:
        return [head + tail]
    lines = [f"{head} ({{"]
    for i, region in enumerate(op.regions):
        if i:
            lines.append(f"{indent}}}, {{")
        for j, block in enumerate(region):
            if block.arguments or block.label or j:
                lines.append(indent + _block_header(block, j))
            for inner in block.operations:
                lines.extend(_operation_lines(inner, indent + "  "))
    lines.append(f"{indent}}}){tail}")
    return lines


def _block_header(block: Block, index: int) -> str:
    listed = [f"%{a.name}: {a.type}{_location_suffix(a.loc)}" for a in block.arguments]
    arguments = f"({', '.join(listed)})" if listed else ""
    return f"^{block.label or f'bb{index}'}{arguments}:"
