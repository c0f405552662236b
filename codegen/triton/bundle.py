"""Bundles: one launch for many kernels of one structure.

The kernel's text is that of a member. A program first looks up its member, then reads from tables
what would be parameters in a kernel of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from ..kernel import Bundle
from ..schedule import Schedule
from .emitted import ALIGNMENT, LEAST_DIVISOR, Argument, Emitted, header, source
from .sizes import Sizes

_ELEMENT = {
    "*i8": "tl.int8",
    "*u8": "tl.uint8",
    "*i16": "tl.int16",
    "*u16": "tl.uint16",
    "*i32": "tl.int32",
    "*u32": "tl.uint32",
    "*i64": "tl.int64",
    "*u64": "tl.uint64",
    "*fp16": "tl.float16",
    "*bf16": "tl.bfloat16",
    "*fp32": "tl.float32",
    "*fp64": "tl.float64",
}


def emit_bundle(bundle: Bundle, schedule: Schedule, write: Callable[..., Emitted]) -> Emitted:
    """The bundle as one function; ValueError if its members differ in more than sizes."""
    members = _members(bundle, schedule, write)
    first = members[0]

    sizes = np.array([[a.value for a in m.arguments if a.role == "size"] for m in members])
    wide = any(a.type == "i64" for a in first.arguments if a.role == "size")
    lines = ["program = tl.program_id(0)", "member = tl.load(members + program)"]
    lines.append("pid = program - tl.load(starts + member)")
    buffers = [a for a in first.arguments if a.role == "buffer"]
    for place, argument in enumerate(buffers):
        address = _entry("pointers", len(buffers), place)
        kind = f"tl.pointer_type({_ELEMENT[argument.type]})"
        lines.append(f"{argument.name} = tl.multiple_of({address}.to({kind}), {ALIGNMENT})")
    for place, argument in enumerate(a for a in first.arguments if a.role == "size"):
        entry = _entry("sizes", sizes.shape[1], place)
        # With a divisor of all, loads can be vectors, as in a plain kernel.
        power = int(np.gcd.reduce(sizes[:, place], initial=16))
        text = f"tl.multiple_of({entry}, {power})" if power >= LEAST_DIVISOR else entry
        lines.append(f"{argument.name} = {text}")
    scalars, which = _scalars(bundle, first, lines)
    if first.checks:
        lines.append(f"errors = errors + member * {len(first.checks)}")
    lines += first.lines[1:]  # all but the line with the program's number

    grids = np.array([m.grid for m in members])
    starts = np.concatenate([[0], np.cumsum(grids)[:-1]])
    size_type = np.int64 if wide else np.int32
    constexprs = {**first.constexprs, ALIGNMENT: 16}
    arguments = (
        Argument("pointers", "*i64", "pointers", _addresses(bundle)),
        Argument("sizes", "*i64" if wide else "*i32", "table", sizes.astype(size_type).ravel()),
        Argument(
            "members", "*i32", "table", np.repeat(np.arange(len(grids)), grids).astype(np.int32)
        ),
        Argument("starts", "*i32", "table", starts.astype(np.int32)),
        *scalars,
        *which,
        *(a for a in first.arguments if a.role in ("number", "errors")),
    )
    return Emitted(
        name=first.name,
        body=source(first.name, arguments, constexprs, lines),
        lines=tuple(lines),
        header=header(*bundle.members),
        arguments=arguments,
        constexprs=constexprs,
        grid=int(grids.sum()),
        num_warps=first.num_warps,
        num_stages=first.num_stages,
        checks=tuple(c for m in members for c in m.checks),
        registers=first.registers,
    )


_FORMS = (
    (Sizes, False),
    (partial(Sizes, apart=True), False),  # members have equal sizes in different places,
    (partial(Sizes, apart=True, nested=False), False),  # or axes that are one only in some,
    (partial(Sizes, apart=True, nested=False), True),  # or places that need 64 bits in some
)
"""Ways to write members, the first of which that gives them one text is taken: their sizes, and
whether all positions have 64 bits."""


def _members(bundle: Bundle, schedule: Schedule, write: Callable[..., Emitted]) -> list[Emitted]:
    """The members as kernels of one text. Sizes that are equal in every member are one argument: a
    thread holds few, and addresses that are computed alike are computed once."""
    for sizes, wide in _FORMS:
        members = [write(k, schedule, sizes(), wide) for k in bundle.members]
        if _alike(members):
            break
    else:
        raise ValueError(f"{bundle.name}: members of a bundle differ in more than sizes")
    first: dict[tuple[int, ...], str] = {}
    named = [{a.name: a.value for a in m.arguments if a.role == "size"} for m in members]
    same = {n: first.setdefault(tuple(v[n] for v in named), n) for n in named[0]}
    if len(first) == len(same):
        return members
    shared = [write(k, schedule, sizes(same=same), wide) for k in bundle.members]
    return shared if _alike(shared) else members


def _scalars(
    bundle: Bundle, first: Emitted, lines: list[str]
) -> tuple[list[Argument], list[Argument]]:
    """The bundle's numbers as parameters, and a table of each member's numbers, if it needs one."""
    slots = [s.slot for s in bundle.scalars]
    places = np.array([[slots.index(s.slot) for s in k.scalars] for k in bundle.members], np.int32)
    types: dict[int, str] = {}
    chosen = []
    for column, argument in enumerate(a for a in first.arguments if a.role == "scalar"):
        used = np.unique(places[:, column]).tolist()
        for place in used:
            if types.setdefault(place, argument.type) != argument.type:
                raise ValueError(f"{bundle.name}: members of a bundle differ in more than sizes")
        text = f"u{used[-1]}"
        if len(used) > 1:
            lines.append(f"which = {_entry('choices', places.shape[1], column)}")
        for place in reversed(used[:-1]):
            text = f"tl.where(which == {place}, u{place}, {text})"
        lines.append(f"{argument.name} = {text}")
        chosen.append(len(used) > 1)
    table = [Argument("choices", "*i32", "table", places.ravel())] if any(chosen) else []
    return [Argument(f"u{i}", t, "scalar", i) for i, t in sorted(types.items())], table


def _alike(members: Sequence[Emitted]) -> bool:
    """Whether one text serves all members."""
    texts = {(m.lines, tuple((a.name, a.type) for a in m.arguments)) for m in members}
    return len(texts) == 1


def _entry(table: str, width: int, place: int) -> str:
    row = "member" if width == 1 else f"member * {width}"
    return f"tl.load({table} + {row}{f' + {place}' if place else ''})"


def _addresses(bundle: Bundle) -> tuple[int, ...]:
    """For each entry of the pointer table, its place among the bundle's outputs and inputs."""
    output = 0
    place: list[int] = []
    entry = len(bundle.outputs)
    for kernel in bundle.members:
        place += range(output, output + len(kernel.outputs))
        output += len(kernel.outputs)
        place += range(entry, entry + len(kernel.inputs))
        entry += len(kernel.inputs)
    return tuple(place)
