"""Random programs of slices: written, rolled, flipped, padded and concatenated in loops, with views
that share memory. NumPy is the oracle, bit by bit: nothing in them rounds.

    python tests/support/fuzz_stencils.py --count 2000 [--seed N] [--device cpu]

`TW_CPU=numpy` and `TW_EAGER=1` choose the engine, as everywhere. What fails is printed with its
seed, cut down to few statements.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

import tilewright as tw
from tilewright.codegen.kernel import Bundle, Kernel
from tilewright.codegen.program import launched
from tilewright.ir.node import Node, reachable
from tilewright.runtime import segments

DTYPES = ("int64", "int32", "float64")
LARGEST = 1 << 14  # elements of a tensor

Array = Any


@dataclass(frozen=True)
class Op:
    """An op. numpy, tensor: its function for each library. pick(choose, *shapes) returns its
    parameters, or None where it can't be applied. A view shares memory in both libraries."""

    numpy: Callable[..., Any]
    tensor: Callable[..., Any]
    pick: Callable[..., tuple[Any, ...] | None]
    operands: int = 1
    is_view: bool = False


@dataclass(frozen=True)
class Statement:
    """target = op(operands, parameters), or with `part` a write: target[part] (op)= operand.

    drifts: whether the first parameter grows with the rounds of the loop.
    """

    target: int
    op: str
    operands: tuple[int, ...] = ()
    parameters: tuple[Any, ...] = ()
    part: tuple[slice, ...] | None = None
    drifts: bool = False

    def __str__(self) -> str:
        args = ", ".join([*(f"t{o}" for o in self.operands), *map(repr, self.parameters)])
        if self.part is None:
            return f"t{self.target} = {self.op}({args}{' + round' if self.drifts else ''})"
        places = ", ".join(f"{s.start}:{s.stop}:{s.step}" for s in self.part)
        return f"t{self.target}[{places}] {self.op} {args}"


@dataclass(frozen=True)
class Loop:
    """Statements that run `rounds` times."""

    body: tuple[Statement, ...]
    rounds: int = 1
    reads: int | None = None  # a tensor that is read after each round

    def __str__(self) -> str:
        if self.rounds == 1 and self.reads is None:
            return "\n".join(map(str, self.body))
        lines = [f"    {s}" for s in self.body]
        lines += [] if self.reads is None else [f"    read t{self.reads}"]
        return "\n".join([f"for round in range({self.rounds}):", *lines])


@dataclass(frozen=True)
class Program:
    leaves: tuple[tuple[tuple[int, ...], str], ...]
    loops: tuple[Loop, ...]

    def __str__(self) -> str:
        lines = [f"t{i} = leaf({shape}, {dtype})" for i, (shape, dtype) in enumerate(self.leaves)]
        return "\n".join([*lines, *map(str, self.loops)])


# Parameters.


def _axis(choose: random.Random, shape: Sequence[int]) -> int | None:
    return choose.randrange(len(shape)) if shape else None


def _roll(choose: random.Random, shape: Sequence[int]) -> Any:
    axis = _axis(choose, shape)
    return None if axis is None else (choose.randint(-3, 3), axis)


def _flip(choose: random.Random, shape: Sequence[int]) -> Any:
    axis = _axis(choose, shape)
    return None if axis is None else (axis,)


def _part(choose: random.Random, shape: Sequence[int], plain: bool = False) -> tuple[slice, ...]:
    """A slice of each dimension, mostly without a border."""
    out = []
    for size in shape:
        start = choose.choice([0, 0, 1, choose.randrange(size)]) if size else 0
        stop = max(start, size - choose.choice([0, 0, 1, choose.randrange(size + 1)]))
        step = 1 if plain else choose.choice([1, 1, 1, 2, 3])
        out.append(slice(start, stop, step))
    return tuple(out)


def _sliced(choose: random.Random, shape: Sequence[int]) -> Any:
    return (_part(choose, shape),)


def _pads(choose: random.Random, shape: Sequence[int]) -> Any:
    return (
        tuple((choose.randint(0, 2), choose.randint(0, 2)) for _ in shape),
        choose.randint(0, 2),
    )


def _order(choose: random.Random, shape: Sequence[int]) -> Any:
    order = list(range(len(shape)))
    choose.shuffle(order)
    return (tuple(order),)


def _select(choose: random.Random, shape: Sequence[int]) -> Any:
    axis = _axis(choose, shape)
    if axis is None or not shape[axis] or len(shape) < 2:
        return None
    return axis, choose.randrange(shape[axis])


def _windows(choose: random.Random, shape: Sequence[int]) -> Any:
    axis = _axis(choose, shape)
    if axis is None or shape[axis] < 2:
        return None
    return axis, choose.randint(1, min(3, shape[axis])), choose.randint(1, 2)


def _diagonal(choose: random.Random, shape: Sequence[int]) -> Any:
    if len(shape) < 2:
        return None
    a, b = choose.sample(range(len(shape)), 2)
    if min(shape[a], shape[b]) < 2:
        return None
    return choose.randint(-1, 1), a, b


def _strided(choose: random.Random, shape: Sequence[int]) -> Any:
    total = int(np.prod(shape))
    if total < 4:
        return None
    strides = (choose.randint(1, 3), choose.randint(1, 2))
    sizes = (choose.randint(1, 4), choose.randint(1, 4))
    reach = sum((n - 1) * s for n, s in zip(sizes, strides))
    return None if reach >= total else (sizes, strides, choose.randrange(total - reach))


def _same(choose: random.Random, *shapes: Sequence[int]) -> Any:
    return () if len({tuple(s) for s in shapes}) == 1 else None


def _joined(choose: random.Random, a: Sequence[int], b: Sequence[int]) -> Any:
    axes = [i for i in range(len(a)) if len(a) == len(b) and _but(a, i) == _but(b, i)]
    return (choose.choice(axes),) if axes else None


def _but(shape: Sequence[int], axis: int) -> list[int]:
    return [s for i, s in enumerate(shape) if i != axis]


def _number(choose: random.Random, shape: Sequence[int]) -> Any:
    return (choose.choice([-2, -1, 2, 3]),)


# NumPy's forms.


def _np_strided(x: Array, sizes: Any, strides: Any, offset: int) -> Array:
    flat = x.reshape(-1)
    assert flat.base is x or flat is x or flat.base is x.base, "as_strided of a copy"
    size = x.itemsize
    return np.lib.stride_tricks.as_strided(flat[offset:], sizes, [s * size for s in strides])


def _np_diagonal(x: Array, offset: int, a: int, b: int) -> Array:
    rest = [i for i in range(x.ndim) if i not in (a, b)]
    length = min(x.shape[a] + min(offset, 0), x.shape[b] - max(offset, 0))
    start = [slice(None)] * x.ndim
    start[a], start[b] = slice(max(-offset, 0), None), slice(max(offset, 0), None)
    moved = x[tuple(start)]
    shape = [x.shape[i] for i in rest] + [length]
    strides = [x.strides[i] for i in rest] + [x.strides[a] + x.strides[b]]
    return np.lib.stride_tricks.as_strided(moved, shape, strides)


def _np_windows(x: Array, axis: int, size: int, step: int) -> Array:
    seen = np.lib.stride_tricks.sliding_window_view(x, size, axis)
    return seen[tuple(slice(None, None, step) if i == axis else slice(None) for i in range(x.ndim))]


def _tw_pad(x: Any, pads: Any, value: int) -> Any:
    return tw.nn.functional.pad(x, [n for pair in reversed(pads) for n in pair], value=value)


OPS = {
    "roll": Op(np.roll, lambda x, n, axis: x.roll(n, axis), _roll),
    "flip": Op(lambda x, axis: np.flip(x, axis).copy(), lambda x, axis: x.flip(axis), _flip),
    "pad": Op(
        lambda x, pads, value: np.pad(x, pads, constant_values=value) if pads else x.copy(),
        _tw_pad,
        _pads,
    ),
    "cat": Op(
        lambda a, b, axis: np.concatenate([a, b], axis),
        lambda a, b, axis: tw.cat([a, b], axis),
        _joined,
        2,
    ),
    "scale": Op(lambda x, n: x * n, lambda x, n: x * n, _number),
    "halve": Op(
        lambda x: x * 0.5 if x.dtype.kind == "f" else x >> 1,
        lambda x: x * 0.5 if x.is_floating_point() else x >> 1,
        _same,
    ),
    "add": Op(lambda a, b: a + b, lambda a, b: a + b, _same, 2),
    "sub": Op(lambda a, b: a - b, lambda a, b: a - b, _same, 2),
    "larger": Op(np.maximum, tw.maximum, _same, 2),
    "choose": Op(
        lambda a, b: np.where(a > b, a - b, b),
        lambda a, b: tw.where(a > b, a - b, b),
        _same,
        2,
    ),
    "total": Op(
        lambda x, axis: x.sum(axis, keepdims=True, dtype=x.dtype) - x,
        lambda x, axis: x.sum(axis, keepdim=True, dtype=x.dtype) - x,
        _flip,
    ),
    "slice": Op(lambda x, part: x[part], lambda x, part: x[part], _sliced, is_view=True),
    "permute": Op(np.transpose, lambda x, order: x.permute(order), _order, is_view=True),
    "select": Op(
        lambda x, axis, n: x[(slice(None),) * axis + (n,)],
        lambda x, axis, n: x.select(axis, n),
        _select,
        is_view=True,
    ),
    "narrow": Op(
        lambda x, axis, n: x[(slice(None),) * axis + (slice(n, None),)],
        lambda x, axis, n: x.narrow(axis, n, x.shape[axis] - n),
        _select,
        is_view=True,
    ),
    "diagonal": Op(_np_diagonal, lambda x, n, a, b: x.diagonal(n, a, b), _diagonal, is_view=True),
    "unfold": Op(
        lambda *args: _np_windows(*args).copy(),
        lambda x, axis, size, step: x.unfold(axis, size, step).clone(),
        _windows,
    ),
    "as_strided": Op(
        lambda *args: _np_strided(*args).copy(),
        lambda x, *layout: x.as_strided(*layout).clone(),
        _strided,
    ),
}
WRITES = ("=", "+=", "-=", "*=")


def _assign(x: Any, part: tuple[slice, ...], how: str, value: Any) -> None:
    """Assign to a part. Overlapping memory is read before it is written, in NumPy as in PyTorch."""
    if how == "=":
        x[part] = value
    elif how == "+=":
        x[part] += value
    elif how == "-=":
        x[part] -= value
    else:
        x[part] *= value


# Running.


def run(program: Program, leaf: Callable[..., Any], form: str, read: Callable[[Any], Any]) -> list:
    """All tensors at the end. form: numpy or tensor."""
    held = [leaf(shape, dtype, i) for i, (shape, dtype) in enumerate(program.leaves)]
    for loop in program.loops:
        for turn in range(loop.rounds):
            for statement in loop.body:
                step(held, statement, turn, form)
            if loop.reads is not None:
                read(held[loop.reads])
    return [read(x) for x in held]


def step(held: list[Any], statement: Statement, turn: int, form: str) -> None:
    args = [held[o] for o in statement.operands]
    if statement.part is not None:
        value = args[0] if args else statement.parameters[0]
        _assign(held[statement.target], statement.part, statement.op, value)
        return
    op = OPS[statement.op]
    parameters = statement.parameters
    if statement.drifts:
        parameters = (parameters[0] + turn, *parameters[1:])
    made = (op.numpy if form == "numpy" else op.tensor)(*args, *parameters)
    if statement.target == len(held):
        held.append(made)
    else:
        held[statement.target] = made


def numpy_leaf(shape: tuple[int, ...], dtype: str, number: int) -> Array:
    count = int(np.prod(shape))
    values = np.random.default_rng(number).integers(-4, 5, count)
    return values.astype(dtype).reshape(shape)


def expected(program: Program) -> list[Array]:
    with np.errstate(all="ignore"):
        return run(program, numpy_leaf, "numpy", np.array)


def found(program: Program, device: str = "cpu") -> list[Array]:
    def leaf(*args: Any) -> Any:
        return tw.tensor(numpy_leaf(*args), device=device)

    return run(program, leaf, "tensor", lambda x: np.array(x.cpu().numpy()))


def difference(program: Program, device: str = "cpu") -> str | None:
    """A description of the first wrong result of a program, or None."""
    try:
        results = found(program, device)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    for number, (a, b) in enumerate(zip(expected(program), results, strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"t{number} is {b.dtype}{b.shape}, expected {a.dtype}{a.shape}"
        if not np.array_equal(a, b):
            place = np.argwhere(a != b)[0]
            return f"t{number} differs at {place}: {b[tuple(place)]}, expected {a[tuple(place)]}"
    return None


# Writing programs.


def random_program(choose: random.Random) -> Program:
    dtype = choose.choice(DTYPES)
    rank = choose.choice([1, 1, 2, 2, 3])
    sizes = [choose.choice([1, 2, 5, 8, 13, 33] if rank < 3 else [1, 2, 5, 7]) for _ in range(rank)]
    leaves = [(tuple(sizes), dtype) for _ in range(choose.randint(1, 2))]
    held = [numpy_leaf(shape, dtype, i) for i, (shape, dtype) in enumerate(leaves)]
    loops = []
    bits = 4  # the most that a number takes, of a float64's 53
    for _ in range(choose.randint(1, 4)):
        most = 1 if choose.random() < 0.4 else choose.choice([2, 3, 6, 12])
        body: list[Statement] = []
        for _ in range(choose.randint(1, 4)):
            found = _statement(choose, held, loop=most > 1)
            if found is not None:
                with np.errstate(all="ignore"):
                    step(held, found, 0, "numpy")
                body.append(found)
        grown = 2 * len(body) + sum(6 for s in body if s.op == "total")
        if dtype == "float64":
            most = min(most, max((46 - bits) // max(grown, 1), 1))
        bits += most * grown
        if dtype == "float64" and bits > 50:
            break
        reads = choose.randrange(len(held)) if choose.random() < 0.15 else None
        loops.append(Loop(tuple(body), most, reads))
    return Program(tuple(leaves), tuple(loops))


def _statement(choose: random.Random, held: list[Array], loop: bool) -> Statement | None:
    """A statement that fits the present tensors. In a loop it leaves all shapes as they are."""
    for _ in range(20):
        target = choose.randrange(len(held))
        if choose.random() < 0.5:
            found = _write(choose, held, target)
        else:
            found = _call(choose, held, loop)
        if found is not None:
            return found
    return None


def _write(choose: random.Random, held: list[Array], target: int) -> Statement | None:
    x = held[target]
    if not x.flags.writeable or x.ndim == 0:
        return None
    part = _part(choose, x.shape)
    shape = x[part].shape
    how = choose.choice(WRITES[:3])
    if choose.random() < 0.2:
        return Statement(target, choose.choice(WRITES), (), (choose.choice([-1, 0, 2]),), part)
    fitting = [i for i, y in enumerate(held) if y.shape == shape and y.dtype == x.dtype]
    return Statement(target, how, (choose.choice(fitting),), (), part) if fitting else None


def _call(choose: random.Random, held: list[Array], loop: bool) -> Statement | None:
    name = choose.choice(list(OPS))
    op = OPS[name]
    operands = tuple(choose.randrange(len(held)) for _ in range(op.operands))
    args = [held[o] for o in operands]
    parameters = op.pick(choose, *(a.shape for a in args))
    if parameters is None or 0 in (s for a in args for s in a.shape):
        return None
    if name == "as_strided" and not args[0].flags.c_contiguous:
        return None
    if name == "as_strided" and args[0].base is not None:
        return None  # it would view the whole memory
    with np.errstate(all="ignore"):
        made = op.numpy(*args, *parameters)
    if made.size > LARGEST:
        return None
    target = len(held)
    if loop or choose.random() < 0.3:
        same = [i for i, y in enumerate(held) if y.shape == made.shape]
        if loop and not same:
            return None
        target = choose.choice(same) if same else target
    return Statement(target, name, operands, parameters, None, loop and name == "roll")


# Cutting down.


def smallest(program: Program, fails: Callable[[Program], Any]) -> Program:
    """The program without all statements that the failure doesn't need."""
    shrinking = True
    while shrinking:
        shrinking = False
        for smaller in _smaller(program):
            try:
                expected(smaller)
            except Exception:
                continue  # a statement is missing that another one needs
            if fails(smaller):
                program, shrinking = smaller, True
                break
    return program


def _smaller(program: Program) -> Iterator[Program]:
    loops = program.loops
    for i, loop in enumerate(loops):
        yield Program(program.leaves, loops[:i] + loops[i + 1 :])
        for rounds in {1, loop.rounds // 2, loop.rounds - 1} - {0, loop.rounds}:
            changed = Loop(loop.body, rounds, loop.reads)
            yield Program(program.leaves, (*loops[:i], changed, *loops[i + 1 :]))
        if loop.reads is not None:
            changed = Loop(loop.body, loop.rounds)
            yield Program(program.leaves, (*loops[:i], changed, *loops[i + 1 :]))
        for j in range(len(loop.body)):
            body = loop.body[:j] + loop.body[j + 1 :]
            if body:
                changed = Loop(body, loop.rounds, loop.reads)
                yield Program(program.leaves, (*loops[:i], changed, *loops[i + 1 :]))


# Sizes of compiled programs.


@contextmanager
def counted() -> Iterator[list[tuple[int, int]]]:
    """Collect (nodes, values of kernels) of each graph compiled inside the block."""
    before = segments.compile_graph
    counts: list[tuple[int, int]] = []

    def compile_graph(roots: Sequence[Node], target: Any) -> Any:
        made = before(roots, target)
        counts.append((len(reachable(roots)), values_of(made)))
        return made

    segments.compile_graph = compile_graph
    try:
        yield counts
    finally:
        segments.compile_graph = before


def values_of(program: Any) -> int:
    """The number of values that the kernels of a compiled graph compute."""
    kernels = launched(program)
    members = [m for k in kernels for m in (k.members if isinstance(k, Bundle) else (k,))]
    return sum(len(m.values) for m in members if isinstance(m, Kernel))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    failed, most, start = 0, 0.0, time.time()
    with counted() as counts:
        for seed in range(args.seed, args.seed + args.count):
            program = random_program(random.Random(seed))
            wrong = difference(program, args.device)
            most = max([most, *(v / n for n, v in counts if n > 50)])
            counts.clear()
            if wrong is None:
                continue
            failed += 1
            cut = smallest(program, lambda p: difference(p, args.device))
            print(f"seed {seed}: {difference(cut, args.device)}\n{cut}\n", flush=True)
    print(
        f"{args.count} programs, {failed} with a difference, at most {most:.1f} values a node, "
        f"{time.time() - start:.0f} s"
    )
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
