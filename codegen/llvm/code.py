"""The text of one function: levels of loops, names, and the values that a level knows.

A level is the body of a loop (the outermost is the function's entry). Each level gathers its own
lines. So a value that an inner loop needs and doesn't change is written to an outer level, before
the loop, while the loop's own text is still growing. No pass has to find invariants.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from .types import Ref, constant, lane_numbers, suffix, vector

T = TypeVar("T")


@dataclass(eq=False)
class Level:
    """A place to add text. label: the block of the next line. known: the values computed here."""

    depth: int
    label: str
    lines: list[str] = field(default_factory=list)
    known: dict[Hashable, Any] = field(default_factory=dict)

    def block(self, label: str) -> None:
        """Begins a block; the one before must have ended with a branch."""
        self.lines.append(f"{label}:")
        self.label = label


@dataclass(eq=False)
class Loop:
    """An open loop: `variable` runs from `start` in steps while it is below `stop`."""

    level: Level
    head: str
    body: str
    exit: str
    variable: Ref
    start: Ref
    stop: Ref
    step: int | Ref
    carried: list[tuple[Ref, Ref]]  # (phi, initial value)
    own: list[tuple[Ref, Ref, Ref]] = field(default_factory=list)  # (phi, initial value, successor)


class Code:
    """One function while it is written."""

    def __init__(self, name: str, parameters: str, internal: bool = False):
        self.name, self.parameters, self.internal = name, parameters, internal
        self.levels = [Level(0, "entry")]
        self.loops: list[Loop] = []
        self.declared: dict[str, None] = {}
        self.functions: dict[str, str] = {}
        self._count = 0

    # Names and lines.

    def fresh(self, stem: str = "t") -> str:
        self._count += 1
        # The point keeps `r1` with number 41 apart from `r` with 141.
        return f"%{stem}{self._count}" if stem == "t" else f"%{stem}.{self._count}"

    def fresh_label(self, stem: str) -> str:
        self._count += 1
        return f"{stem}{self._count}"

    @property
    def level(self) -> Level:
        """The innermost level."""
        return self.levels[-1]

    def add(self, line: str, at: Level | None = None) -> None:
        (at or self.level).lines.append(line)

    def let(
        self, text: str, kind: str, lanes: int = 1, at: Level | None = None, stem: str = "t"
    ) -> Ref:
        name = self.fresh(stem)
        self.add(f"{name} = {text}", at)
        return Ref(name, kind, lanes)

    def words(self, names: Sequence[str], buffers: int) -> dict[str, Ref]:
        """The words of the parameter `%words` by their names: so many buffers, then numbers."""
        found = {}
        for place, name in enumerate(names):
            kind = "ptr" if place < buffers else "i64"
            at = self.let(f"getelementptr i64, ptr %words, i64 {place}", "ptr")
            found[name] = self.let(f"load {kind}, {at.typed}, align 8", kind)
        return found

    def once(self, key: Hashable, at: Level, make: Callable[[], T]) -> T:
        """The value that `at` knows under `key`, made on first use."""
        found: T | None = at.known.get(key)
        if found is None:
            found = at.known[key] = make()
        return found

    # Instructions.

    def binary(self, op: str, a: Ref, b: Ref, at: Level | None = None) -> Ref:
        a, b = self.matched(a, b, at=at)
        return self.let(f"{op} {a.typed}, {b.text}", a.type, a.lanes, at)

    def compare(self, op: str, a: Ref, b: Ref, at: Level | None = None) -> Ref:
        """op with its predicate, such as `icmp slt`."""
        a, b = self.matched(a, b, at=at)
        return self.let(f"{op} {a.typed}, {b.text}", "i1", a.lanes, at)

    def select(self, condition: Ref, a: Ref, b: Ref, at: Level | None = None) -> Ref:
        lanes = max(condition.lanes, a.lanes, b.lanes)
        a, b = self.spread(a, lanes, at), self.spread(b, lanes, at)
        if condition.lanes != lanes:
            condition = self.spread(condition, lanes, at)
        return self.let(f"select {condition.typed}, {a.typed}, {b.typed}", a.type, lanes, at)

    def convert(self, op: str, a: Ref, kind: str, at: Level | None = None) -> Ref:
        if a.type == kind:
            return a
        return self.let(f"{op} {a.typed} to {vector(kind, a.lanes)}", kind, a.lanes, at)

    def intrinsic(
        self, name: str, args: Sequence[Ref], at: Level | None = None, flags: str = ""
    ) -> Ref:
        """A call of an intrinsic whose operands and result have one type."""
        args = self.matched(*args, at=at)
        kind, lanes = args[0].type, args[0].lanes
        full = vector(kind, lanes)
        symbol = f"@llvm.{name}.{suffix(kind, lanes)}"
        self.declare(f"declare {full} {symbol}({', '.join([full] * len(args))})")
        typed = ", ".join(a.typed for a in args)
        return self.let(f"call {flags}{full} {symbol}({typed})", kind, lanes, at)

    def declare(self, line: str) -> None:
        self.declared[line] = None

    def function(self, name: str, parameters: str, write: Callable[[Code], None]) -> str:
        """The symbol of an internal function that `write` fills; it returns nothing."""
        if name not in self.functions:
            inner = Code(name, parameters, internal=True)
            write(inner)
            self.functions[name] = inner.definition()
            self.functions.update(inner.functions)
            self.declared.update(inner.declared)
        return f"@{name}"

    def define(self, name: str, text: Callable[[], str]) -> None:
        """Defines an internal function that the text calls."""
        if name not in self.functions:
            self.functions[name] = ""  # it may call itself, or its caller
            self.functions[name] = text()

    def splat(self, a: Ref, lanes: int, at: Level | None = None) -> Ref:
        wide = vector(a.type, lanes)
        if not a.text.startswith("%"):
            return Ref(f"splat ({a.type} {a.text})", a.type, lanes)
        first = self.let(f"insertelement {wide} poison, {a.typed}, i64 0", a.type, lanes, at)
        zeros = f"<{lanes} x i32> zeroinitializer"
        text = f"shufflevector {wide} {first.text}, {wide} poison, {zeros}"
        return self.let(text, a.type, lanes, at)

    def spread(self, a: Ref, lanes: int, at: Level | None = None) -> Ref:
        """`a` as a vector of so many lanes."""
        if a.lanes == lanes:
            return a
        where = at or self.level
        return self.once(("splat", a, lanes), where, lambda: self.splat(a, lanes, where))

    def matched(self, *args: Ref, at: Level | None = None) -> list[Ref]:
        lanes = max(a.lanes for a in args)
        return [self.spread(a, lanes, at) for a in args]

    def moved(self, a: Ref, places: Sequence[int]) -> Ref:
        """The lanes of a vector at `places`."""
        taken = ", ".join(f"i32 {i}" for i in places)
        text = f"shufflevector {a.typed}, {a.full_type} poison, <{len(places)} x i32> <{taken}>"
        return self.let(text, a.type, len(places))

    def extract(self, a: Ref, lane: int) -> Ref:
        return self.let(f"extractelement {a.typed}, i64 {lane}", a.type)

    def prefetch(self, at: Ref, to_write: bool = False, level: Level | None = None) -> None:
        """Starts to bring a line into the cache, if there is memory at all."""
        self.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        way = int(to_write)
        self.add(f"call void @llvm.prefetch.p0({at.typed}, i32 {way}, i32 3, i32 1)", level)

    def lanes_of(self, lanes: int, kind: str) -> Ref:
        return Ref(lane_numbers(lanes, kind), kind, lanes)

    # Loops.

    def open_loop(
        self,
        start: Ref,
        stop: Ref,
        step: int | Ref = 1,
        initial: Sequence[Ref] = (),
        stem: str = "i",
    ) -> Loop:
        """Begins a loop that carries values, at first `initial`; `close_loop` takes the next."""
        head = self.fresh_label("loop")
        body = self.fresh_label("body")
        variable = Ref(self.fresh(stem), "i64")
        carried = [(Ref(self.fresh("acc"), v.type, v.lanes), v) for v in initial]
        level = Level(len(self.levels), body)
        self.levels.append(level)
        done = self.fresh_label("done")
        loop = Loop(level, head, body, done, variable, start, stop, step, carried)
        self.loops.append(loop)
        return loop

    def carry(self, initial: Ref, following: Callable[[Ref], tuple[T, Ref]]) -> T:
        """Makes a value that the innermost loop carries for what is inside of it alone. `following`
        takes it and gives (what this returns, its successor)."""
        held = Ref(self.fresh("held"), initial.type, initial.lanes)
        found, then = following(held)
        self.loops[-1].own.append((held, initial, then))
        return found

    def close_loop(self, loop: Loop, following: Sequence[Ref] = ()) -> list[Ref]:
        """Ends a loop; returns the carried values as they are after it."""
        level = self.levels.pop()
        innermost = self.loops.pop()
        assert innermost is loop, "loops are closed from the inside out"
        outer = self.level
        after = self.fresh("next")
        step = loop.step.text if isinstance(loop.step, Ref) else loop.step
        level.lines.append(f"{after} = add nuw nsw i64 {loop.variable.text}, {step}")
        level.lines.append(f"br label %{loop.head}")
        phis = [
            f"{loop.variable.text} = phi i64 [ {loop.start.text}, %{outer.label} ], "
            f"[ {after}, %{level.label} ]"
        ]
        carried = [(*c, then) for c, then in zip(loop.carried, following, strict=True)]
        for phi, first, then in (*carried, *loop.own):
            phis.append(
                f"{phi.text} = phi {phi.full_type} [ {first.text}, %{outer.label} ], "
                f"[ {then.text}, %{level.label} ]"
            )
        going = self.fresh("go")
        outer.lines.append(f"br label %{loop.head}")
        outer.lines.append(f"{loop.head}:")
        outer.lines += phis
        outer.lines.append(f"{going} = icmp slt i64 {loop.variable.text}, {loop.stop.text}")
        outer.lines.append(f"br i1 {going}, label %{loop.body}, label %{loop.exit}")
        outer.lines.append(f"{loop.body}:")
        outer.lines += level.lines
        outer.block(loop.exit)
        return [phi for phi, _ in loop.carried]

    # The whole.

    def definition(self) -> str:
        assert len(self.levels) == 1, "a loop is still open"
        entry = self.levels[0]
        body = "\n".join(line if line.endswith(":") else f"  {line}" for line in entry.lines)
        linkage = "internal " if self.internal else ""
        head = f"define {linkage}void @{self.name}({self.parameters}) #0"
        return f"{head} {{\nentry:\n{body}\n  ret void\n}}"


def module_text(codes: Sequence[Code]) -> str:
    """The text of functions, with the functions they call and their declarations."""
    parts = [code.definition() for code in codes]
    parts += {text: None for code in codes for text in code.functions.values()}
    parts += {line: None for code in codes for line in code.declared}
    return "\n".join(parts) + "\n"


def zero(kind: str, lanes: int = 1) -> Ref:
    return constant(0, kind, lanes)
