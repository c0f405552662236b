"""Index expressions as MLIR's affine maps, and back.

    affine_map<(p0, r0) -> (p0 * 64 + r0 floordiv 8)>

The dimensions of a map are the axes and the data atoms that its indices mention, from left to
right. Reading keeps the order of the terms and every division, so a map gives back the very
indices that were printed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tilewright.ir.mlir.lexer import Lexer, Position, Source
from tilewright.ir.mlir.syntax import Opaque

from . import index as ix
from .index import Atom, Axis, Data, FloorDiv, Index, Mod, walk

_DIVISIONS: dict[str, type[FloorDiv] | type[Mod]] = {"floordiv": FloorDiv, "mod": Mod}


def dimensions(indices: Iterable[Index]) -> tuple[Axis | Data, ...]:
    """The axes and data that `indices` mention, in the order of their first mention."""
    atoms = (atom for index in indices for atom in walk(index))
    return tuple(dict.fromkeys(a for a in atoms if isinstance(a, (Axis, Data))))


def format_map(indices: Sequence[Index], names: Mapping[Atom, str]) -> Opaque:
    """The map from `dimensions(indices)`, called as `names` says, to `indices`."""
    listed = ", ".join(names[d] for d in dimensions(indices))
    results = ", ".join(_format(index, names) for index in indices)
    return Opaque(f"affine_map<({listed}) -> ({results})>")


def _format(index: Index, names: Mapping[Atom, str]) -> str:
    text = ""
    for atom, coefficient in index.terms:
        # In front, -a floordiv b would be (-a) floordiv b.
        sign, factor = (" - ", -coefficient) if text and coefficient < 0 else (" + ", coefficient)
        text += sign * bool(text) + _atom(atom, names) + (f" * {factor}" if factor != 1 else "")
    if not text:
        return str(index.const)
    if index.const:
        text += f" {'-' if index.const < 0 else '+'} {abs(index.const)}"
    return text


def _atom(atom: Atom, names: Mapping[Atom, str]) -> str:
    if isinstance(atom, (Axis, Data)):
        return names[atom]
    inner = _format(atom.index, names)
    if " " in inner:
        inner = f"({inner})"
    return f"{inner} {'floordiv' if isinstance(atom, FloorDiv) else 'mod'} {atom.divisor}"


def parse_map(text: Opaque, atoms: Sequence[Axis | Data]) -> tuple[Index, ...]:
    """The indices that an `affine_map<…>` gives for `atoms`. Raises MLIRError.

    Other tools may print a map in another form. Their dividends may be
    negative, ours may not: such a division becomes an equal one that we have.
    """
    where = text.where or Position(Source(text.text, "<affine_map>"), 0)
    return _Parser(where, atoms).map()


class _Parser:
    def __init__(self, where: Position, atoms: Sequence[Axis | Data]):
        self.lexer = Lexer(where.source, where.offset)
        self.atoms = atoms
        self.named: dict[str, Axis | Data] = {}

    def expect(self, kind: str, wanted: str = "") -> str:
        token = self.lexer.token
        if token.kind != kind:
            token.where.fail(wanted or f"'{kind}'", str(token))
        return self.lexer.next().text

    def accept(self, kind: str) -> bool:
        found = self.lexer.token.kind == kind
        if found:
            self.lexer.next()
        return found

    def map(self) -> tuple[Index, ...]:
        start = self.lexer.token
        if start.text != "affine_map":
            start.where.fail("affine_map<…>", str(start))
        self.lexer.next()
        self.expect("<")
        names = self.names("(", ")")
        if self.lexer.token.kind == "[":  # symbols are dimensions that come last
            names += self.names("[", "]")
        if len(names) != len(self.atoms):
            start.where.fail(f"a map of {len(self.atoms)} indices, the operands", str(len(names)))
        self.named = dict(zip(names, self.atoms, strict=True))
        self.expect("->")
        self.expect("(")
        results: list[Index] = []
        while not self.accept(")"):
            if results:
                self.expect(",", "',' or ')'")
            results.append(self.sum())
        self.expect(">")
        return tuple(results)

    def names(self, opening: str, closing: str) -> list[str]:
        self.expect(opening)
        names: list[str] = []
        while not self.accept(closing):
            if names:
                self.expect(",", f"',' or '{closing}'")
            token = self.lexer.token
            name = self.expect("identifier", "the name of a dimension")
            if name in names or name in self.named:
                token.where.fail("each dimension once", f"{name} again")
            names.append(name)
        return names

    def sum(self) -> Index:
        total = self.product()
        while self.lexer.token.kind in ("+", "-"):
            sign = 1 if self.lexer.next().kind == "+" else -1
            total = _added(total, self.product() * sign)
        return total

    def product(self) -> Index:
        result = self.primary()
        while True:
            sign = self.lexer.token
            if sign.kind == "*":
                self.lexer.next()
                factor = self.primary()
                if result.terms and factor.terms:
                    sign.where.fail("a product with a constant", "two indices that vary")
                result = result * factor.const if result.terms else factor * result.const
            elif sign.text in _DIVISIONS:
                self.lexer.next()
                divisor = self.primary()
                if divisor.terms or divisor.const < 1:
                    got = "an index that varies" if divisor.terms else str(divisor.const)
                    sign.where.fail(f"a positive constant after {sign.text}", got)
                result = _divided(result, divisor.const, sign.text)
            elif sign.text == "ceildiv":
                sign.where.fail("floordiv or mod", "ceildiv")
            else:
                return result

    def primary(self) -> Index:
        token = self.lexer.next()
        if token.kind == "-":
            return self.primary() * -1
        if token.kind == "(":
            inner = self.sum()
            self.expect(")")
            return inner
        if token.kind == "integer":
            return ix.constant(int(token.text))
        if token.text not in self.named:
            known = ", ".join(self.named) or "none"
            token.where.fail(f"an integer or a dimension of the map ({known})", str(token))
        return Index(((self.named[token.text], 1),))


def _added(a: Index, b: Index) -> Index:
    """a + b, term by term: `Index.__add__` would join quotients and remainders."""
    terms = dict(a.terms)
    for atom, coefficient in b.terms:
        terms[atom] = terms.get(atom, 0) + coefficient
    return Index(tuple((atom, c) for atom, c in terms.items() if c), a.const + b.const)


def _divided(index: Index, divisor: int, name: str) -> Index:
    if index.bounds()[0] >= 0:
        return Index(((_DIVISIONS[name](index, divisor), 1),))
    return ix.floordiv(index, divisor) if name == "floordiv" else ix.mod(index, divisor)
