"""The parser of generic-form MLIR: text to `Operation`s.

It knows no dialect and checks only rules that all of them share: a name is defined once and before
its use, and the types that an operation states are those of its operands.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from .lexer import Lexer, Position, Source, Token, unescape
from .syntax import (
    F64,
    I64,
    Attribute,
    Block,
    BlockArgument,
    CallLocation,
    FileLocation,
    Float,
    FunctionType,
    FusedLocation,
    Integer,
    Location,
    LocationAlias,
    NamedLocation,
    Opaque,
    Operation,
    Region,
    ScalarType,
    ShapedType,
    SymbolRef,
    Type,
    Unit,
    UnknownLocation,
    float_dtype,
)

T = TypeVar("T")
PlacedType = tuple[Position, Type]

_SCALAR_TYPE = re.compile(r"(?:[su]?i|f)[0-9]{1,4}|bf16|tf32|index|none|f[468]E[0-9A-Z]+")
_SHAPED = ("tensor", "vector", "memref")

# Operations whose regions don't see the values around them, so names start afresh inside.
ISOLATED = ("builtin.module", "func.func")


def parse(
    text: str, filename: str = "<mlir>", isolated: Collection[str] = ISOLATED
) -> list[Operation]:
    """The operations of `text`, in generic form.

    filename: the text's name in errors. isolated: names of operations whose regions don't see the
    values outside. Raises MLIRError. Successors, resources and `dense<…>` are not supported.
    """
    return _Parser(Source(text, filename), frozenset(isolated)).top_level()


def parse_attribute(text: str, filename: str = "<attribute>") -> Attribute:
    """`text` read as an attribute or type; MLIRError if it is none."""
    parser = _Parser(Source(text, filename), frozenset())
    attribute = parser.attribute()
    parser.expect("end", "the end of the attribute")
    return attribute


class _Parser:
    def __init__(self, source: Source, isolated: frozenset[str]):
        self.lexer = Lexer(source)
        self.isolated = isolated
        # The values that can be named: their types, and where they were defined.
        self.scope: dict[str, tuple[Type, Position]] = {}
        self.attribute_aliases: dict[str, Attribute] = {}
        self.location_aliases: dict[str, Location] = {}
        # MLIR prints location aliases after their uses.
        self.unresolved: list[tuple[Operation | BlockArgument, Position]] = []

    # Tokens

    def at(self, *kinds: str) -> bool:
        return self.lexer.token.kind in kinds

    def accept(self, kind: str, text: str | None = None) -> Token | None:
        """The next token, consumed, if it is of `kind` (and reads `text`)."""
        token = self.lexer.token
        if token.kind != kind or (text is not None and token.text != text):
            return None
        return self.lexer.next()

    def expect(self, kind: str, wanted: str = "") -> Token:
        token = self.lexer.token
        if token.kind != kind:
            token.where.fail(wanted or f"'{kind}'", str(token))
        return self.lexer.next()

    def listed(self, item: Callable[[], T], close: str) -> list[T]:
        """Items separated by commas, up to and with `close`."""
        items: list[T] = []
        if self.accept(close):
            return items
        while True:
            items.append(item())
            if self.accept(close):
                return items
            self.expect(",", f"',' or '{close}'")

    def integer(self, wanted: str) -> int:
        return int(self.expect("integer", wanted).text)

    # Operations

    def top_level(self) -> list[Operation]:
        operations = []
        while not self.at("end"):
            if self.at("alias", "type"):
                self.alias_definition()
            else:
                operations.append(self.operation())
        for holder, where in self.unresolved:
            assert holder.loc is not None
            holder.loc = self.resolved(holder.loc, where)
        return operations

    def alias_definition(self) -> None:
        """`#map = affine_map<…>`, `!t = tensor<…>`, `#loc1 = loc(…)`."""
        name = self.lexer.next()
        self.expect("=")
        if name.kind == "alias" and self.accept("identifier", "loc"):
            self.location_aliases[name.text] = self.location_body()
        elif name.kind == "alias":
            self.attribute_aliases[name.text] = self.attribute()
        else:
            self.attribute_aliases[name.text] = self.type()

    def operation(self) -> Operation:
        results = self.result_names()
        name = self.lexer.token
        if name.kind != "string":
            shown = f'"{name.text}"' if name.kind == "identifier" else '"tw.mul"'
            name.where.fail(f"an operation in generic form, such as {shown}(…)", str(name))
        self.lexer.next()
        self.expect("(", "'(' and the operands")
        operands = self.listed(lambda: self.expect("value", "an operand, such as %0"), ")")
        if self.at("["):
            self.lexer.token.where.fail("an operation without successors", "'['")
        properties: Mapping[str, Attribute] = {}
        if self.accept("<"):
            properties = self.dictionary()
            self.expect(">")
        isolated = unescape(name.text) in self.isolated
        regions = []
        if self.accept("("):
            regions = self.listed(lambda: self.region(isolated), ")")
        attributes = self.dictionary() if self.at("{") else {}
        self.expect(":", "':' and the type of the operation")
        where = self.lexer.token.where
        inputs, outputs = self.signature()
        self.check_operands(operands, inputs, where)
        if len(results) != len(outputs):
            where.fail(_count(len(results), "result type"), str(len(outputs)))
        for (result, token), (_, type) in zip(results, outputs, strict=True):
            self.define(result, type, token)
        op = Operation(
            name=unescape(name.text),
            results=tuple(result for result, _ in results),
            operands=tuple(token.text[1:] for token in operands),
            attributes=attributes,
            regions=tuple(regions),
            types=_function_type(inputs, outputs),
            properties=properties,
            where=name.where,
        )
        self.location(op)
        return op

    def result_names(self) -> list[tuple[str, Token]]:
        """`%a, %b =`; a pack `%0:2 =` defines 0#0 and 0#1."""
        if not self.at("value"):
            return []
        names: list[tuple[str, Token]] = []
        while True:
            token = self.expect("value", "a result, such as %0")
            if "#" in token.text:
                token.where.fail("the name of a result", str(token))
            if self.accept(":"):
                count = self.integer("the number of results")
                names.extend((f"{token.text[1:]}#{i}", token) for i in range(count))
            else:
                names.append((token.text[1:], token))
            if not self.accept(","):
                self.expect("=")
                return names

    def check_operands(
        self, operands: list[Token], stated: list[PlacedType], where: Position
    ) -> None:
        for token in operands:
            if token.text[1:] not in self.scope:
                token.where.fail("a value that is defined above", token.text)
        if len(operands) != len(stated):
            where.fail(_count(len(operands), "operand type"), str(len(stated)))
        for token, (place, type) in zip(operands, stated, strict=True):
            known, defined = self.scope[token.text[1:]]
            if known != type:
                place.fail(f"{known} for {token.text}, defined in line {defined.line}", str(type))

    def define(self, name: str, type: Type, token: Token) -> None:
        before = self.scope.get(name)
        if before is not None:
            token.where.fail("a new name", f"{token.text}, which line {before[1].line} defines")
        self.scope[name] = (type, token.where)

    def region(self, isolated: bool) -> Region:
        self.expect("{", "'{' and a region")
        outer = self.scope
        self.scope = {} if isolated else dict(outer)
        blocks: list[Block] = []
        while not self.accept("}"):
            block = Block()
            if label := self.accept("block"):
                block.label = label.text[1:]
                if self.accept("("):
                    block.arguments = tuple(self.listed(self.block_argument, ")"))
                self.expect(":", "':' after the block's label")
            while not self.at("}", "block", "end"):
                block.operations.append(self.operation())
            if self.at("end"):
                self.lexer.token.where.fail("'}' at the end of the region", "the end of the text")
            blocks.append(block)
        self.scope = outer
        return tuple(blocks)

    def block_argument(self) -> BlockArgument:
        token = self.expect("value", "a block argument, such as %arg0")
        self.expect(":", "':' and the type of the argument")
        argument = BlockArgument(token.text[1:], self.type(), where=token.where)
        self.define(argument.name, argument.type, token)
        self.location(argument)
        return argument

    # Locations

    def location(self, holder: Operation | BlockArgument) -> None:
        """The location after an operation or argument, if there is one."""
        where = self.lexer.token.where
        if self.accept("identifier", "loc"):
            holder.loc = self.location_body()
            self.unresolved.append((holder, where))

    def location_body(self) -> Location:
        self.expect("(")
        loc = self.location_inside()
        self.expect(")")
        return loc

    def location_inside(self) -> Location:
        token = self.lexer.next()
        if token.kind == "string":
            return self.file_or_name(unescape(token.text))
        if token.kind == "alias":
            return LocationAlias(token.text)
        if token.text == "unknown":
            return UnknownLocation()
        if token.text == "fused":
            self.expect("[")
            return FusedLocation(tuple(self.listed(self.location_inside, "]")))
        if token.text == "callsite":
            self.expect("(")
            callee = self.location_inside()
            if not self.accept("identifier", "at"):
                self.lexer.token.where.fail("'at' and the caller", str(self.lexer.token))
            caller = self.location_inside()
            self.expect(")")
            return CallLocation(callee, caller)
        token.where.fail('a location, such as "train.py":12:0', str(token))

    def file_or_name(self, text: str) -> Location:
        if self.accept(":"):
            line = self.integer("a line number")
            self.expect(":", "':' and a column")
            return FileLocation(text, line, self.integer("a column"))
        if self.accept("("):
            child = self.location_inside()
            self.expect(")")
            return NamedLocation(text, child)
        return NamedLocation(text)

    def resolved(self, loc: Location, where: Position) -> Location:
        """`loc` with aliases replaced by their definitions."""
        if isinstance(loc, LocationAlias):
            known = self.location_aliases.get(loc.name)
            if known is None:
                where.fail(f"a definition {loc.name} = loc(…) in the text", "none")
            # Removed meanwhile, so that an alias of itself ends here.
            del self.location_aliases[loc.name]
            known = self.location_aliases[loc.name] = self.resolved(known, where)
            return known
        if isinstance(loc, NamedLocation) and loc.child is not None:
            return NamedLocation(loc.name, self.resolved(loc.child, where))
        if isinstance(loc, FusedLocation):
            return FusedLocation(tuple(self.resolved(part, where) for part in loc.parts))
        if isinstance(loc, CallLocation):
            return CallLocation(self.resolved(loc.callee, where), self.resolved(loc.caller, where))
        return loc

    # Types

    def signature(self) -> tuple[list[PlacedType], list[PlacedType]]:
        """The types of operands and results, `(f32, i1) -> f32`."""
        self.expect("(", "the types of the operands in parentheses")
        inputs = self.listed(self.placed_type, ")")
        self.expect("->", "'->' and the types of the results")
        if self.accept("("):
            return inputs, self.listed(self.placed_type, ")")
        return inputs, [self.placed_type()]

    def placed_type(self) -> PlacedType:
        return self.lexer.token.where, self.type()

    def type(self) -> Type:
        token = self.lexer.token
        if token.kind == "(":
            return _function_type(*self.signature())
        if token.kind == "type":
            return self.dialect_type()
        if token.text in _SHAPED:
            return self.shaped_type()
        if _SCALAR_TYPE.fullmatch(token.text):
            return ScalarType(self.lexer.next().text)
        if token.text == "complex":
            self.lexer.next()
            self.expect("<", "the type of the parts, as in complex<f32>")
            part = self.type()
            self.expect(">", "'>' behind the type of the parts")
            return ScalarType(f"complex<{part}>")
        token.where.fail("a type, such as f32 or tensor<2x3xf32>", str(token))

    def dialect_type(self) -> Type:
        token = self.lexer.next()
        if "." in token.text or self.at("<"):
            return self.opaque(token)
        known = self.attribute_aliases.get(token.text)
        if isinstance(known, (ScalarType, ShapedType, FunctionType, Opaque)):
            return known
        token.where.fail("a type alias that is defined above", str(token))

    def opaque(self, name: Token) -> Opaque:
        """The type or attribute `name`, and the text behind it in its dialect's own syntax."""
        body = self.lexer.balanced() if self.at("<") else ""
        return Opaque(name.text + body, name.where)

    def shaped_type(self) -> ShapedType:
        kind = self.lexer.next().text
        self.expect("<")
        shape = self.lexer.sizes()
        element = self.type()
        self.expect(">", f"'>' after the element type (a {kind} has no layout or encoding here)")
        return ShapedType(kind, shape, element)

    # Attributes

    def dictionary(self) -> dict[str, Attribute]:
        self.expect("{")
        entries: dict[str, Attribute] = {}

        def entry() -> None:
            token = self.lexer.next()
            if token.kind not in ("identifier", "string"):
                token.where.fail("the name of an attribute", str(token))
            key = unescape(token.text) if token.kind == "string" else token.text
            if key in entries:
                token.where.fail("each attribute once", f"{key} again")
            entries[key] = self.attribute() if self.accept("=") else Unit()

        self.listed(entry, "}")
        return entries

    def attribute(self) -> Attribute:
        token = self.lexer.token
        if token.kind in ("integer", "hex", "float", "-"):
            return self.number()
        if token.kind == "string":
            return unescape(self.lexer.next().text)
        if token.kind == "{":
            return self.dictionary()
        if self.accept("["):
            return tuple(self.listed(self.attribute, "]"))
        if token.kind == "symbol":
            name = self.lexer.next().text[1:]
            return SymbolRef(unescape(name) if name.startswith('"') else name)
        if token.kind == "alias":
            return self.dialect_attribute()
        if token.text in ("true", "false", "unit"):
            self.lexer.next()
            return Unit() if token.text == "unit" else token.text == "true"
        if token.text in ("affine_map", "affine_set"):
            self.lexer.next()
            if not self.at("<"):
                self.lexer.token.where.fail("'<'", str(self.lexer.token))
            return self.opaque(token)
        if (
            token.kind in ("(", "type")
            or token.text in _SHAPED
            or _SCALAR_TYPE.fullmatch(token.text)
            or token.text == "complex"
        ):
            return self.type()
        token.where.fail("an attribute", str(token))

    def dialect_attribute(self) -> Attribute:
        token = self.lexer.next()
        if "." in token.text or self.at("<"):
            return self.opaque(token)
        if token.text not in self.attribute_aliases:
            token.where.fail("an attribute alias that is defined above", str(token))
        return self.attribute_aliases[token.text]

    def number(self) -> Attribute:
        """`3`, `-3 : i32`, `1.5 : f32`, `0x7FC00000 : f32`. Bare numbers are i64 and f64."""
        start = self.lexer.token.where
        negative = self.accept("-") is not None
        token = self.lexer.next()
        if token.kind not in ("integer", "hex", "float"):
            token.where.fail("a number after '-'", str(token))
        type = F64 if token.kind == "float" else I64
        if self.accept(":"):
            where = self.lexer.token.where
            stated = self.type()
            if not isinstance(stated, ScalarType):
                where.fail("the type of a number, such as i64 or f32", str(stated))
            type = stated
        sign = "-" if negative else ""
        dtype = float_dtype(type)
        if dtype is not None:
            if token.kind == "float":
                return Float.of(float(sign + token.text), type)
            if token.kind == "integer" or negative:
                start.fail(f"a decimal with a point, or bits in hex, for {type}", sign + token.text)
            bits = int(token.text, 16)
            if bits >> dtype.itemsize * 8:
                start.fail(f"{dtype.itemsize * 8} bits for {type}", token.text)
            return Float(bits, type)
        if token.kind == "float":
            start.fail(f"an integer for {type}", sign + token.text)
        value = int(token.text, 0 if token.kind == "hex" else 10)
        return self.checked_integer(-value if negative else value, type, start)

    def checked_integer(self, value: int, type: ScalarType, where: Position) -> Attribute:
        if type.name == "index":
            return Integer(value, type)
        prefix, bits = type.name.rstrip("0123456789"), type.name.lstrip("siu")
        if prefix not in ("i", "si", "ui") or not bits.isdigit():
            where.fail(f"something other than a number for {type}", str(value))
        width = int(bits)
        low = 0 if prefix == "ui" else -(1 << width >> 1)
        # As in MLIR, a signless integer may be written signed or unsigned.
        high = (1 << width >> 1 if prefix == "si" else 1 << width) - 1
        if not low <= value <= high:
            where.fail(f"a number from {low} to {high} for {type}", str(value))
        if type.name == "i1":
            return bool(value)
        if prefix == "i" and value >= 1 << width >> 1:
            value -= 1 << width
        return Integer(value, type)


def _function_type(inputs: list[PlacedType], results: list[PlacedType]) -> FunctionType:
    return FunctionType(tuple(type for _, type in inputs), tuple(type for _, type in results))


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
