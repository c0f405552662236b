"""Math functions as LLVM IR: arithmetic on expressions adds instructions to a function.

A function is written once for any number of lanes. Nothing here may be reassociated: the error
bounds hold for the written order, so only `fma` contracts.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..code import Code, Level
from ..types import Ref, constant, suffix, vector

Number = int | float


class Expr:
    """A value of the function that is being written."""

    __slots__ = ("code", "ref")

    def __init__(self, code: Code, ref: Ref):
        self.code, self.ref = code, ref

    @property
    def kind(self) -> str:
        return self.ref.type

    def of(self, other: Expr | Number) -> Ref:
        """`other` as an operand beside this one."""
        if isinstance(other, Expr):
            return other.ref
        return constant(other, self.kind, self.ref.lanes)

    def _op(self, op: str, a: Ref, b: Ref) -> Expr:
        if self.kind[0] == "i":
            op = {"fadd": "add", "fsub": "sub", "fmul": "mul"}[op]
        return Expr(self.code, self.code.binary(op, a, b))

    def __add__(self, other: Expr | Number) -> Expr:
        return self._op("fadd", self.ref, self.of(other))

    def __radd__(self, other: Number) -> Expr:
        return self._op("fadd", self.of(other), self.ref)

    def __sub__(self, other: Expr | Number) -> Expr:
        return self._op("fsub", self.ref, self.of(other))

    def __rsub__(self, other: Number) -> Expr:
        return self._op("fsub", self.of(other), self.ref)

    def __mul__(self, other: Expr | Number) -> Expr:
        return self._op("fmul", self.ref, self.of(other))

    __rmul__ = __mul__

    def __truediv__(self, other: Expr | Number) -> Expr:
        return Expr(self.code, self.code.binary("fdiv", self.ref, self.of(other)))

    def __rtruediv__(self, other: Number) -> Expr:
        return Expr(self.code, self.code.binary("fdiv", self.of(other), self.ref))

    def __neg__(self) -> Expr:
        return Expr(self.code, self.code.let(f"fneg {self.ref.typed}", self.kind, self.ref.lanes))

    def _bits(self, op: str, other: Expr | Number) -> Expr:
        return Expr(self.code, self.code.binary(op, self.ref, self.of(other)))

    def __and__(self, other: Expr | Number) -> Expr:
        return self._bits("and", other)

    def __or__(self, other: Expr | Number) -> Expr:
        return self._bits("or", other)

    def __xor__(self, other: Expr | Number) -> Expr:
        return self._bits("xor", other)

    def __invert__(self) -> Expr:
        return self._bits("xor", -1 if self.kind != "i1" else 1)

    def shift_left(self, by: int) -> Expr:
        return self._bits("shl", by)

    def shift_right(self, by: int, signed: bool = False) -> Expr:
        return self._bits("ashr" if signed else "lshr", by)

    def _compare(self, predicate: str, other: Expr | Number) -> Expr:
        return Expr(self.code, self.code.compare(predicate, self.ref, self.of(other)))

    def __lt__(self, other: Expr | Number) -> Expr:
        return self._compare("icmp slt" if self.kind[0] == "i" else "fcmp olt", other)

    def __le__(self, other: Expr | Number) -> Expr:
        return self._compare("icmp sle" if self.kind[0] == "i" else "fcmp ole", other)

    def __gt__(self, other: Expr | Number) -> Expr:
        return self._compare("icmp sgt" if self.kind[0] == "i" else "fcmp ogt", other)

    def __ge__(self, other: Expr | Number) -> Expr:
        return self._compare("icmp sge" if self.kind[0] == "i" else "fcmp oge", other)

    def equals(self, other: Expr | Number) -> Expr:
        return self._compare("icmp eq" if self.kind[0] == "i" else "fcmp oeq", other)

    def isnan(self) -> Expr:
        return self._compare("fcmp uno", self)

    def bits(self) -> Expr:
        """The bits of a float as an integer, or the float of an integer's bits."""
        other = {"float": "i32", "double": "i64", "i32": "float", "i64": "double"}[self.kind]
        return Expr(self.code, self.code.convert("bitcast", self.ref, other))

    def like(self, value: Number) -> Expr:
        """A constant of this one's type."""
        return Expr(self.code, self.of(value))

    def to(self, op: str, kind: str) -> Expr:
        return Expr(self.code, self.code.convert(op, self.ref, kind))

    def _call(self, name: str, *others: Expr | Number) -> Expr:
        args = [self.ref, *(self.of(o) for o in others)]
        return Expr(self.code, self.code.intrinsic(name, args))

    def abs(self) -> Expr:
        return self._call("fabs")

    def sqrt(self) -> Expr:
        return self._call("sqrt")

    def round(self) -> Expr:
        return self._call("rint")

    def copysign(self, sign: Expr | Number) -> Expr:
        return self._call("copysign", sign)

    def least(self, bound: Expr | Number) -> Expr:
        """At least `bound`; a NaN stays."""
        return where(self < bound, bound, self)

    def most(self, bound: Expr | Number) -> Expr:
        """At most `bound`; a NaN stays."""
        return where(self > bound, bound, self)

    def call(self, name: str, *others: Expr) -> Expr:
        """Another function of this package."""
        args = [self.ref, *(o.ref for o in others)]
        return Expr(self.code, call(self.code, name, args))


def where(condition: Expr, a: Expr | Number, b: Expr | Number) -> Expr:
    known = a if isinstance(a, Expr) else b
    assert isinstance(known, Expr), "two numbers leave the type open"
    kind = known.kind
    lanes = condition.ref.lanes
    a_ref = a.ref if isinstance(a, Expr) else constant(a, kind, lanes)
    b_ref = b.ref if isinstance(b, Expr) else constant(b, kind, lanes)
    return Expr(condition.code, condition.code.select(condition.ref, a_ref, b_ref))


def fma(a: Expr, b: Expr | Number, c: Expr | Number) -> Expr:
    """a * b + c, rounded once."""
    return a._call("fma", b, c)


def polynomial(x: Expr, coefficients: Sequence[float]) -> Expr:
    """Horner's rule, highest power first."""
    total: Expr | Number = coefficients[0]
    for i, c in enumerate(coefficients[1:]):
        total = fma(x, total, c) if i == 0 else fma(total, x, c)  # type: ignore[arg-type]
    assert isinstance(total, Expr)
    return total


def near_reciprocal(x: Expr) -> Expr:
    """1 / x to 1e-14 for a float64 whose size is one of float32's normal numbers and their
    reciprocals: float32's quotient, which takes a quarter of the time, and a step of Newton's."""
    y = (1.0 / x.to("fptrunc", "float")).to("fpext", "double")
    return fma(y, fma(x, -y, 1.0), y)


def rarely(
    condition: Expr, usual: tuple[Expr, ...], slow: Callable[[], tuple[Expr, ...]]
) -> tuple[Expr, ...]:
    """`usual`, but in lanes where `condition` holds the values of `slow`, which runs only if there
    are such lanes."""
    code, lanes = condition.code, condition.ref.lanes
    some = condition.ref
    if lanes > 1:
        symbol = f"@llvm.vector.reduce.or.v{lanes}i1"
        code.declare(f"declare i1 {symbol}(<{lanes} x i1>)")
        some = code.let(f"call i1 {symbol}({some.typed})", "i1")
    before = code.level.label
    taken, after = code.fresh_label("rare"), code.fresh_label("common")
    code.add(f"br i1 {some.text}, label %{taken}, label %{after}, !prof !0")
    code.level.block(taken)
    found = [where(condition, s, u) for s, u in zip(slow(), usual, strict=True)]
    end = code.level.label
    code.add(f"br label %{after}")
    code.level.block(after)
    out = []
    for new, old in zip(found, usual):
        text = f"phi {new.ref.full_type} [ {old.ref.text}, %{before} ], [ {new.ref.text}, %{end} ]"
        out.append(Expr(code, code.let(text, new.kind, lanes)))
    return tuple(out)


State = tuple[Expr, ...]


def repeated(state: State, step: Callable[[State], tuple[State, Expr]]) -> State:
    """The state after steps that are made as long as a lane wants more: `step` gives the next state
    and which lanes do."""
    code, lanes = state[0].code, state[0].ref.lanes
    before = code.level.label
    head, after = code.fresh_label("again"), code.fresh_label("enough")
    code.add(f"br label %{head}")
    code.level.block(head)
    place = len(code.level.lines)
    held = tuple(Expr(code, Ref(code.fresh("held"), x.kind, lanes)) for x in state)
    following, wants = step(held)
    more = wants.ref
    if lanes > 1:
        symbol = f"@llvm.vector.reduce.or.v{lanes}i1"
        code.declare(f"declare i1 {symbol}(<{lanes} x i1>)")
        more = code.let(f"call i1 {symbol}({more.typed})", "i1")
    end = code.level.label
    code.level.lines[place:place] = [
        f"{x.ref.text} = phi {x.ref.full_type} [ {first.ref.text}, %{before} ], "
        f"[ {then.ref.text}, %{end} ]"
        for x, first, then in zip(held, state, following, strict=True)
    ]
    code.add(f"br i1 {more.text}, label %{head}, label %{after}")
    code.level.block(after)
    return following


Writer = Callable[..., Expr]
Register = Callable[[Writer], Writer]
_WRITERS: dict[tuple[str, str], tuple[Writer, int, bool]] = {}


def function(name: str, kind: str = "float", args: int = 1, inline: bool = False) -> Register:
    """Registers how `name` is computed on `kind`. inline: whether each use gets a copy."""

    def register(writer: Writer) -> Writer:
        _WRITERS[name, kind] = writer, args, inline
        return writer

    return register


def wide(name: str, args: int = 1) -> Register:
    """Registers a float32 function that is computed in float64 from its arguments."""

    def register(writer: Writer) -> Writer:
        def narrow(*given: Expr) -> Expr:
            return writer(*(x.to("fpext", "double") for x in given)).to("fptrunc", "float")

        function(name, "float", args)(narrow)
        return writer

    return register


@dataclass(frozen=True)
class Definition:
    """A function's text, and the functions it needs."""

    text: str
    declared: tuple[str, ...]
    functions: dict[str, str]


def has(name: str, kind: str) -> bool:
    return (name, kind) in _WRITERS


@functools.cache
def definition(name: str, kind: str, lanes: int) -> Definition:
    writer, count, inline = _WRITERS[name, kind]
    full = vector(kind, lanes)
    names = "xyz"[:count]
    code = Code("", "")
    result = writer(*(Expr(code, Ref(f"%{n}", kind, lanes)) for n in names))
    lines = "\n".join(line if line.endswith(":") else f"  {line}" for line in code.levels[0].lines)
    parameters = ", ".join(f"{full} %{n}" for n in names)
    attributes = "alwaysinline #0" if inline else "noinline #0"
    text = (
        f"define internal {full} @{symbol(name, kind, lanes)}({parameters}) {attributes} {{\n"
        f"entry:\n{lines}\n  ret {result.ref.typed}\n}}"
    )
    return Definition(text, tuple(code.declared), dict(code.functions))


def symbol(name: str, kind: str, lanes: int) -> str:
    return f"tw_{name}_{suffix(kind, lanes)}"


def call(code: Code, name: str, args: Sequence[Ref], at: Level | None = None) -> Ref:
    """A call of `name`, whose definition is added to those that `code` needs."""
    args = code.matched(*args, at=at)
    kind, lanes = args[0].type, args[0].lanes
    made = definition(name, kind, lanes)
    called = symbol(name, kind, lanes)
    code.functions.update(made.functions)
    code.functions[called] = made.text
    code.declared.update(dict.fromkeys(made.declared))
    typed = ", ".join(a.typed for a in args)
    return code.let(f"call {vector(kind, lanes)} @{called}({typed})", kind, lanes, at)
