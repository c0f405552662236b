"""The steps of random programs: functions that add an op of each Kind."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import numpy as np
from random_programs import (
    ARITHMETIC,
    BITS,
    COMPARISONS,
    COMPOSITES,
    FLOATS,
    INTEGERS,
    SMOOTH,
    STEPS,
    TESTS,
    Program,
    Value,
    Writer,
    named,
)

from tilewright.ir.op import REGISTRY

ALL = (*FLOATS, *INTEGERS)


def smooth(w: Writer) -> None:
    """Add a function of floats that is insensitive to the last bit."""
    op = REGISTRY[w.choose.choice(SMOOTH)]
    x = w.pick(*FLOATS)
    if x.wild and x.exact and w.choose.random() < 0.5:
        w.line(f"ops.{op.name}({', '.join([x.name] * _arity(op.name))})", wild=True, final=True)
        return
    operands = [w.within(x, *op.domain)]
    if _arity(op.name) == 2:
        operands.append(w.within(w.partner(x), *op.domain))
    wild = any(v.wild for v in operands)
    w.line(f"ops.{op.name}({', '.join(v.name for v in operands)})", 30.0, None, wild)


def _arity(name: str) -> int:
    return 2 if "{1}" in str(REGISTRY[name].numpy) else 1


def arithmetic(w: Writer) -> None:
    name = w.choose.choice((*ARITHMETIC, "add", "sub", "mul"))
    x = w.tamed(w.pick(*ALL), 64)
    if name == "where":
        y, condition = w.tamed(w.partner(x), 64), w.pick("bool")
        try:
            shape = np.broadcast_shapes(x.shape, y.shape, condition.shape)
        except ValueError:
            condition = w.leaf(x.shape[-1:], "bool")
            shape = np.broadcast_shapes(x.shape, y.shape)
        if math.prod(shape) > w.limit:
            return
        w.line(f"ops.where({condition.name}, {x.name}, {y.name})", *_either(x, y))
    elif name in ("neg", "abs", "relu"):
        if x.is_float or name == "abs":
            w.line(f"ops.{name}({x.name})", x.bound, x.grid, x.wild)
    else:
        y = w.tamed(w.partner(x), 64)
        bound, grid, wild = _either(x, y)
        if name in ("add", "sub"):
            bound = x.bound + y.bound
        elif name == "mul":
            bound = x.bound * y.bound
            grid = None if x.grid is None or y.grid is None else x.grid + y.grid
        elif name == "copysign":
            if not x.is_float or not y.exact or wild:
                return
            # The sign of a zero may differ, so avoid zeros.
            y = w.line(f"ops.add({y.name}, {w.constant(0.125, y.dtype)})", y.bound + 1, y.grid)
        w.line(f"ops.{name}({x.name}, {y.name})", bound, grid, wild)


def _either(x: Value, y: Value) -> tuple[float, int | None, bool]:
    grid = None if x.grid is None or y.grid is None else max(x.grid, y.grid)
    return max(x.bound, y.bound), grid, x.wild or y.wild


def discontinuous(w: Writer) -> None:
    """Add a function that the last bit can change altogether, of exact values only."""
    name = w.choose.choice((*STEPS, *TESTS, *COMPARISONS, *BITS))
    if name in BITS:
        x = w.pick("bool", *INTEGERS)
        if name.startswith("shift") and x.dtype == "bool":
            return
        if name == "bitwise_not":
            w.line(f"ops.{name}({x.name})")
            return
        y = w.partner(x)
        right = y.name
        if name.startswith("shift"):
            right = f"ops.bitwise_and({right}, {w.constant(7, y.dtype)})"
        w.line(f"ops.{name}({x.name}, {right})")
        return
    if name in TESTS:
        x = w.pick(*FLOATS, exact=True)
        w.line(f"ops.{name}({x.name})")
    elif name in COMPARISONS:
        x = w.pick(exact=True)
        w.line(f"ops.{name}({x.name}, {w.partner(x, exact=True).name})")
    elif name in ("floor_divide", "remainder", "fmod"):
        x = w.pick(*ALL, exact=True)
        y = w.partner(x, exact=True)
        if x.is_float:
            if x.wild or y.wild or (y.grid or 0) > 4 or x.bound > 1e4 or y.bound > 1e4:
                return
            divisor = f"ops.add({y.name}, {w.constant(0.0625 / 2, y.dtype)})"
            y = w.line(divisor, y.bound + 1, 5)
            if not y.exact:
                return
            bound = 32 * x.bound + 1 if name == "floor_divide" else y.bound
            w.line(f"ops.{name}({x.name}, {y.name})", bound, max(x.grid or 0, 5))
        else:
            w.line(f"ops.{name}({x.name}, ops.bitwise_or({y.name}, {w.constant(1, y.dtype)}))")
    else:
        x = w.pick(*FLOATS, exact=True)
        w.line(f"ops.{name}({x.name})", x.bound + 1, x.grid, x.wild)


def cast(w: Writer) -> None:
    x, target = w.pick(), w.choose.choice((*FLOATS, *INTEGERS, "bool"))
    if not x.is_float or target in FLOATS:
        if x.bound > 6e4 and target == "float16":
            return
        w.line(f"ops.cast({x.name}, {named(target)})", x.bound, x.grid, x.wild)
    elif x.exact and not x.wild and x.bound <= 100:
        source = x.name if target != "uint8" and target[0] != "u" else f"ops.abs({x.name})"
        w.line(f"ops.cast({source}, {named(target)})", x.bound)


def composite(w: Writer) -> None:
    x = w.tamed(w.pick(*FLOATS), 16)
    if not x.node.rank or not x.node.shape.numel():
        return
    row = w.leaf(x.shape[-1:], x.dtype)
    text = w.choose.choice(COMPOSITES)
    if "seed" in text:
        text = text.replace("seed, offset", _draw(w))
    text = text.format(x=x.name, axis=w.axis(x), row=row.name)
    w.line(f"ops.{text}", 40.0, None, x.wild or row.wild)


def _draw(w: Writer) -> str:
    return f"{w.scalar(w.choose.randrange(1 << 40), 'int64')}, {w.scalar(len(w.values), 'int64')}"


def movement(w: Writer) -> None:
    x, choose = w.pick(), w.choose
    rank, shape = x.node.rank, x.shape
    kind = choose.choice(("reshape", "permute", "expand", "slice", "pad", "flip", "cat", "windows"))
    if not rank:
        text = f"ops.reshape({x.name}, (1,))"
    elif kind == "reshape":
        flat = math.prod(shape)
        halves = (2, flat // 2) if flat % 2 == 0 and flat else (flat, 1)
        target = choose.choice(((flat,), halves, (*shape[:-1], 1, shape[-1]), (1, *shape)))
        text = f"ops.reshape({x.name}, {target})"
    elif kind == "permute":
        order = list(range(rank))
        choose.shuffle(order)
        text = f"ops.permute({x.name}, {tuple(order)})"
    elif kind == "expand":
        wide = tuple(choose.choice((2, 3, 17)) if d == 1 else d for d in shape)
        if math.prod(wide) > w.limit:
            return
        text = f"ops.expand({x.name}, {wide})"
    elif kind == "slice":
        axis = w.axis(x)
        start = choose.randrange(shape[axis] + 1)
        stop = choose.randrange(start, shape[axis] + 1)
        text = f"ops.slice_axis({x.name}, {axis}, {start}, {stop}, {choose.choice((1, 1, 2, 3))})"
    elif kind == "pad":
        low, high = ([choose.choice((0, 0, 1, 3)) for _ in shape] for _ in range(2))
        inside = [choose.choice((0, 0, 0, 1)) for _ in shape]
        if math.prod(2 * d + 6 for d in shape) > w.limit:
            return
        value = w.constant(1, x.dtype)
        text = f"ops.pad({x.name}, {low}, {high}, {inside}, {value})"
    elif kind == "flip":
        axes = tuple(a for a in range(rank) if choose.random() < 0.5)
        text = f"ops.flip({x.name}, {axes})"
    elif kind == "cat":
        axis = w.axis(x)
        fits = [v for v in w.values if v.dtype == x.dtype and not v.final and v.node.rank == rank]
        fits = [v for v in fits if _without(v.shape, axis) == _without(shape, axis)]
        parts = [x, *(choose.choice(fits) for _ in range(choose.randrange(1, 3)))]
        if math.prod(shape) * 4 > w.limit:
            return
        grids = [v.grid for v in parts]
        grid = None if None in grids else max(g or 0 for g in grids)
        text = f"ops.cat([{', '.join(v.name for v in parts)}], {axis})"
        w.line(text, max(v.bound for v in parts), grid, any(v.wild for v in parts))
        return
    else:
        axis, size = w.axis(x), choose.choice((1, 2, 3))
        if shape[axis] < 2 * size or math.prod(shape) * size > w.limit:
            return
        steps = choose.choice((1, 2)), choose.choice((1, 2))
        text = f"ops.windows({x.name}, ({axis},), ({size},), ({steps[0]},), ({steps[1]},))"
    w.line(text, max(x.bound, 1.0), x.grid, x.wild)


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return (*shape[:axis], *shape[axis + 1 :])


def reduction(w: Writer) -> None:
    name = w.choose.choice(("sum", "sum", "max", "min", "argmax", "argmin", "prod", "any", "all"))
    logical = name in ("any", "all")
    x = w.pick("bool") if logical else w.pick(*ALL, exact=name[:3] == "arg")
    axes = tuple(a for a in range(x.node.rank) if w.choose.random() < 0.6)
    count = math.prod(x.shape[a] for a in axes)
    bound, grid = x.bound, x.grid
    if name not in ("sum", "prod", "any", "all") and not count:
        return  # an extremum of nothing is an error
    if name == "prod" and x.is_float:
        if count > 6 or x.bound > 8:
            return
        bound = x.bound ** max(count, 1)
        grid = None if grid is None else grid * max(count, 1)
    elif name == "sum":
        x = w.tamed(x, 64)
        bound, grid = x.bound * max(count, 1), x.grid
    w.line(f"ops.{name}({x.name}, {axes})", max(bound, 1.0), grid, x.wild)


def scan(w: Writer) -> None:
    name = w.choose.choice(("cumsum", "cumsum", "cumprod", "cummax_index", "argsort", "argsort"))
    exact = name in ("cummax_index", "argsort")
    x = w.tamed(w.pick(*ALL, exact=exact)) if not exact else w.pick(*ALL, exact=True)
    if not x.node.rank or not x.node.shape.numel():
        return
    axis = w.axis(x)
    size = x.shape[axis]
    if name == "argsort":
        w.line(f"ops.argsort({x.name}, {axis}, {w.choose.random() < 0.5})")
    elif name == "cummax_index":
        w.line(f"ops.{name}({x.name}, {axis})")
    elif name == "cumsum":
        w.line(f"ops.cumsum({x.name}, {axis})", x.bound * size, x.grid, x.wild)
    elif size <= 6 or not x.is_float:
        bound = max(x.bound, 1.0) ** size if x.is_float else math.inf
        w.line(f"ops.cumprod({x.name}, {axis})", bound, None, x.wild)


def _positions(w: Writer, size: int, shape: tuple[int, ...]) -> Value:
    rng = np.random.default_rng(w.choose.randrange(1 << 30))
    return w.leaf(shape, "int64", rng.integers(0, size, shape))


def indexed(w: Writer) -> None:
    x, choose = w.tamed(w.pick(), 64), w.choose
    if not x.node.rank or not x.node.shape.numel():
        return
    axis = w.axis(x)
    size, count = x.shape[axis], choose.choice((0, 1, 3, 9, 40))
    if math.prod(x.shape) // size * max(count, 1) > w.limit:
        return
    kind = choose.choice(("gather", "two", "along", "scatter", "scatter"))
    if kind == "two":
        if axis + 1 >= x.node.rank or math.prod(x.shape) * max(count, 1) > w.limit:
            return
        i, j = _positions(w, size, (count, 1)), _positions(w, x.shape[axis + 1], (2,))
        text = f"ops.gather({x.name}, {i.name}, {j.name}, {axis})"
    elif kind == "along":
        shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
        text = f"ops.take_along({x.name}, {_positions(w, size, shape).name}, {axis})"
    elif kind == "gather":
        text = f"ops.gather({x.name}, {_positions(w, size, (count,)).name}, {axis})"
    else:
        at = _positions(w, size, (count,))
        mode = choose.choice(("set", "add", "add", "max", "min"))
        if x.dtype == "bool" and mode != "set":
            return
        values = w.leaf((*x.shape[:axis], count, *x.shape[axis + 1 :]), x.dtype)
        bound, grid, wild = _either(x, values)
        bound *= count + 1 if mode == "add" else 1
        text = f"ops.scatter({x.name}, {values.name}, {at.name}, {axis}, {mode!r})"
        w.line(text, bound, grid, wild)
        return
    w.line(text, x.bound, x.grid, x.wild)


def contraction(w: Writer) -> None:
    choose = w.choose
    if choose.random() < 0.6:
        x = w.tamed(w.pick(*FLOATS), 16)
        if x.node.rank < 2 or not x.node.shape.numel() or math.prod(x.shape) > 8000:
            return
        k, n = x.shape[-1], choose.choice((1, 2, 5, 16, 33))
        y = w.leaf((*(x.shape[:-2] if choose.random() < 0.3 else ()), k, n), x.dtype)
        if choose.random() < 0.4:
            y = w.leaf((*y.shape[:-2], n, k), x.dtype)
            right = f"ops.transpose({y.name})"
        else:
            right = y.name
        if math.prod(x.shape) // k * n > w.limit:
            return
        if y.node.rank not in (2, x.node.rank):
            return
        if x.node.rank > 2 and y.node.rank == 2:
            right = f"ops.expand({right}, {(*x.shape[:-2], k, n)})"
        grid = None if x.grid is None else x.grid + 2
        wild = x.wild or y.wild
        w.line(f"ops.matmul({x.name}, {right})", x.bound * 2 * k, grid, wild)
        return
    dtype, groups = choose.choice(("float32", "float32", *FLOATS)), choose.choice((1, 1, 2))
    spatial = [choose.choice((3, 5, 8)) for _ in range(choose.choice((1, 2)))]
    channels, filters = groups * choose.choice((1, 3)), groups * choose.choice((1, 4))
    kernel = [choose.choice((1, 2, 3)) for _ in spatial]
    x = w.leaf((choose.choice((1, 3)), channels, *spatial), dtype)
    y = w.leaf((filters, channels // groups, *kernel), dtype)
    stride, padding, dilation = (
        (choose.choice(c),) * len(spatial) for c in ((1, 2), ((0, 0), (1, 1), (0, 2)), (1, 1, 2))
    )
    if any(
        size + sum(p) <= d * (k - 1) for size, k, p, d in zip(spatial, kernel, padding, dilation)
    ):
        return
    text = f"ops.conv({x.name}, {y.name}, {stride}, {padding}, {dilation}, {groups})"
    if not x.wild and not y.wild:  # engines may or may not multiply padding
        w.line(text, 4.0 * channels * math.prod(kernel), 4)


def drawn(w: Writer) -> None:
    dtype = w.choose.choice(FLOATS)
    short = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64"}[dtype]
    kind, shape = w.choose.choice(("uniform", "normal", "randint", "randperm")), w.shape()
    if kind == "uniform":
        w.line(f"ops.cast(ops.uniform({_draw(w)}, {shape}, {short}), {dtype})", 1.0, 53)
    elif kind == "normal":
        w.line(f"ops.cast(ops.normal({_draw(w)}, {shape}, {short}), {dtype})", 9.0)
    elif kind == "randint":
        w.line(f"ops.randint({_draw(w)}, -5, 17, {shape}, int32)", 17.0)
    else:
        w.line(f"ops.randperm({_draw(w)}, {w.choose.choice((1, 5, 40))})", 40.0)


def updates(w: Writer) -> None:
    """Add an optimizer's step over a few parameters. Each result may overwrite its parameter."""
    rate = w.scalar(0.25, "float32")
    for _ in range(w.choose.randrange(2, 5)):
        shape = w.shape()
        p, g = w.leaf(shape, "float32"), w.leaf(shape, "float32")
        new = w.line(f"ops.sub({p.name}, ops.mul({g.name}, {rate}))", 3.0, 4, p.wild or g.wild)
        w.program.donated.append((len(w.program.roots), len(w.program.data) - 2))
        w.program.roots.append(new.name)


def gradients(w: Writer) -> None:
    """Add gradients of one value with respect to a few leaves."""
    wholes = [v for v in w.values if v.is_float and not v.final and not v.wild and v.bound < 1e4]
    wholes = [v for v in wholes if v.node.requires_grad]
    if not wholes:
        return
    y = w.choose.choice(wholes[-4:])
    leaves = [v for v in w.values if v.node.op.name == "variable" and not v.wild]
    for x in w.choose.sample(leaves, min(len(leaves), 3)):
        try:
            found = w.line(f"gradient({y.name}, {x.name})", wild=True, final=True)
        except NotImplementedError:  # scattering extrema has none
            return
        w.program.roots.append(found.name)


Step = Callable[[Writer], None]
STEPS_OF: tuple[tuple[Step, int], ...] = (
    (smooth, 6),
    (arithmetic, 7),
    (discontinuous, 3),
    (cast, 3),
    (composite, 3),
    (movement, 6),
    (reduction, 5),
    (scan, 2),
    (indexed, 4),
    (contraction, 2),
    (drawn, 1),
    (updates, 1),
)


def random_program(choose: random.Random, small: bool = False) -> Program:
    """small: for engines that are slow."""
    w = Writer(choose, small)
    steps = [step for step, weight in STEPS_OF for _ in range(weight)]
    w.leaf(w.shape(), "float32")
    for _ in range(choose.randrange(2, 8 if small else 16)):
        choose.choice(steps)(w)
    if choose.random() < 0.5:
        gradients(w)
    others = [v.name for v in w.values[-8:] if v.name not in w.program.roots]
    w.program.roots += choose.sample(others, min(len(others), choose.randrange(1, 5)))
    return w.program
