"""Slices, rolls, flips and pads of one tensor in loops: what they compute, and that compiling them
takes work in proportion to the rounds."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from drawn import QUIET
from engines import compute, device, each_engine
from fuzz_stencils import counted, difference, random_program, smallest, values_of
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright.codegen.fusion.anchors import MOST_PLACES, is_buffer
from tilewright.codegen.fusion.twins import outcomes
from tilewright.codegen.kernel import Bundle, Kernel
from tilewright.codegen.legalize import legalize
from tilewright.codegen.lower.places import most_ways
from tilewright.codegen.ops import overwrite
from tilewright.codegen.program import Program, compile_graph, launched
from tilewright.codegen.target import CUDA, INTERPRET, LLVM, NUMPY, Target
from tilewright.ir import ops
from tilewright.ir.dtype import DType, bool_, float32, int64
from tilewright.ir.node import Node, reachable
from tilewright.ir.passes.pipeline import lower_graph
from tilewright.ir.shape import Size
from tilewright.runtime import devices

TARGETS = pytest.mark.parametrize("target", [NUMPY, LLVM, INTERPRET, CUDA], ids=lambda t: t.name)
MOST_VALUES = 16
"""Values of kernels for each recorded node."""


# Programs as people write them: m is PyTorch or ours.


def laplace(m: Any, x: Any, rounds: int) -> Any:
    for _ in range(rounds):
        x[1:-1, 1:-1] = (x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:]) / 4
    return x


def rolls(m: Any, x: Any, rounds: int) -> Any:
    for j in range(rounds):
        x = x.roll(j, 0) * 0.5 + 0.25 * x.flip(0)
    return x


def lagged(m: Any, x: Any, rounds: int) -> Any:
    for _ in range(rounds):
        x[1:] += x[:-1] * 0.5
    return x


def heat(m: Any, x: Any, rounds: int) -> Any:
    for _ in range(rounds):
        x[1:-1] = x[1:-1] + 0.1 * (x[2:] - 2 * x[1:-1] + x[:-2])
    return x


def waves(m: Any, x: Any, rounds: int) -> Any:
    v = x * 0
    for _ in range(rounds):
        v[1:-1] += 0.1 * (x[2:] - 2 * x[1:-1] + x[:-2])
        x = x + 0.1 * v
    return x


def elimination(m: Any, x: Any, rounds: int) -> Any:
    n = min(*x.shape, rounds)
    for i in range(n):
        x[i, i] = x[i, i] + 100
    for i in range(n):
        for j in range(i + 1, n):
            x[j] = x[j] - x[i] * (x[j, i] / x[i, i])
    return x


def overlap_add(m: Any, x: Any, rounds: int) -> Any:
    out = x[:1].flatten().repeat(4) * 0
    for j in range(rounds):
        out[2 * j : 2 * j + 8] += x[j % len(x), :8]
    return out


def products(m: Any, x: Any, rounds: int) -> Any:
    for _ in range(min(rounds, len(x) - 1)):
        x = x[1:] * x[:-1] / 50 + 1
    return x


def prefix_products(m: Any, x: Any, rounds: int) -> Any:
    for j in range(min(rounds, len(x) - 1)):
        x[j + 1 :] *= x[j : j + 1] / 10
    return x


def rows(m: Any, x: Any, rounds: int) -> Any:
    for j in range(rounds):
        x[j % len(x)] += 1
        x[0] *= 0.5
    return x


def butterflies(m: Any, x: Any, rounds: int) -> Any:
    for _ in range(rounds):
        even, odd = x[::2], x[1::2]
        x = m.cat([even + odd, even - odd]) * 0.7
    return x


def life(m: Any, x: Any, rounds: int) -> Any:
    steps = [(a, b) for a in (-1, 0, 1) for b in (-1, 0, 1) if a or b]
    x = (x > 1.5).int()
    for _ in range(rounds):
        count = sum(x.roll(step, (0, 1)) for step in steps)
        x = ((count == 3) | ((x == 1) & (count == 2))).int()
    return x.float() * 1


def pads(m: Any, x: Any, rounds: int) -> Any:
    for j in range(rounds):
        x = m.nn.functional.pad(x, (j % 2, 1, 1, 0), value=0.5) * 0.9
    return x


ALL = (laplace, rolls, lagged, heat, waves, elimination, overlap_add, products, prefix_products)
ALL += (rows, butterflies, life, pads)
PROGRAMS = pytest.mark.parametrize("program", ALL, ids=lambda p: p.__name__)


def start(rounds: int) -> np.ndarray:
    return np.random.default_rng(rounds).uniform(1, 2, (32, 32)).astype(np.float32)


@PROGRAMS
def test_programs_compute_what_pytorch_does(torch: Any, program: Callable[..., Any]) -> None:
    x = start(20)
    expected = program(torch, torch.tensor(x), 20).numpy()
    found = program(tw, tw.tensor(x), 20).numpy()
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize(
    "program", [p for p in ALL if p not in (life, elimination)], ids=lambda p: p.__name__
)
def test_gradients_are_those_of_pytorch(torch: Any, program: Callable[..., Any]) -> None:
    x = start(12)
    grads = []
    for module in (torch, tw):
        w = module.tensor(x, requires_grad=True)
        y = program(module, w * 1, 12)
        (y * y).sum().backward()
        grads.append(w.grad.numpy())
    np.testing.assert_allclose(grads[1], grads[0], rtol=2e-4, atol=1e-4 * abs(grads[0]).max())


@PROGRAMS
def test_lowered_values_grow_with_the_rounds(program: Callable[..., Any]) -> None:
    def values(rounds: int) -> int:
        with counted() as counts:
            program(tw, tw.tensor(start(30)), rounds).sum().item()
        assert all(v <= MOST_VALUES * n for n, v in counts)
        return sum(v for _, v in counts)

    growth = 9 if program is elimination else 3
    assert values(30) <= 2 * growth * values(10) + 500


def test_a_thousand_rounds_take_the_kernels_of_a_hundred() -> None:
    """So each further round costs walks over its nodes, and nothing is lowered for it."""
    forms = outcomes(devices.get("cpu").target)

    def lowered(rounds: int) -> int:
        x = tw.tensor(start(0))
        forms.clear()
        laplace(tw, x, rounds).sum().item()
        return len(forms)

    assert lowered(1000) <= lowered(100) + 20


# Random graphs, on all targets.


def _rolled(choose: random.Random, x: Node) -> Node:
    axis = choose.randrange(x.rank)
    n, at = x.shape[axis], choose.randrange(1, x.shape[axis])
    return ops.cat([ops.slice_axis(x, axis, at, n), ops.slice_axis(x, axis, 0, at)], axis)


def _shifted(choose: random.Random, x: Node) -> Node:
    axis, size = choose.randrange(x.rank), x.shape
    low = [1 if i == axis else 0 for i in range(x.rank)]
    return ops.pad(ops.slice_axis(x, axis, 0, size[axis] - 1), low, [0] * x.rank)


def _turned(choose: random.Random, x: Node) -> Node:
    return ops.transpose(x) if x.rank > 1 else ops.flip(x, (0,))


def _replaced(choose: random.Random, x: Node) -> Node:
    """A write into a slice."""
    axis = choose.randrange(x.rank)
    at = choose.randrange(x.shape[axis])
    part = ops.slice_axis(x, axis, at, at + 1) * 0.5
    low = [at if i == axis else 0 for i in range(x.rank)]
    high = [n - 1 - at if i == axis else 0 for i, n in enumerate(x.shape)]
    true, false = ops.constant(True, bool_), ops.constant(False, bool_)
    inside = ops.pad(ops.expand(true, part.shape), low, high, None, false)
    return ops.where(inside, ops.pad(part, low, high), x)


def _picked(choose: random.Random, x: Node) -> Node:
    return ops.gather(x, leaf(1, x.shape[0], dtype=int64), 0)


def _averaged(choose: random.Random, x: Node) -> Node:
    return x - ops.sum(x, (x.rank - 1,)) * 0.1


MAPS = (_rolled, _shifted, _turned, _replaced, _replaced, _picked, _averaged)


def leaf(number: int, *shape: int, dtype: DType = float32) -> Node:
    return ops.leaf(number, Size(shape), dtype)


def tangle(choose: random.Random, rounds: int) -> Node:
    """Each round reads what the one before has made through several maps."""
    x = leaf(0, 6, 6) if choose.random() < 0.5 else leaf(0, 24)
    total = x
    for _ in range(rounds):
        parts = [choose.choice(MAPS)(choose, x) for _ in range(choose.randint(1, 4))]
        parts += [x] if choose.random() < 0.5 else []
        total = parts[0]
        for part in parts[1:]:
            total = total * 0.5 + part
        x = total
    return total


@TARGETS
@settings(QUIET, max_examples=4)
@given(choose=st.randoms(use_true_random=False))
def test_each_value_is_lowered_a_bounded_number_of_times(
    target: Target, choose: random.Random
) -> None:
    roots = lower_graph([tangle(choose, choose.choice([5, 15, 40]))])
    program = compile_graph(roots, target)
    assert values_of(program) <= MOST_VALUES * len(reachable(roots))
    for kernel in kernels_of(program):
        assert most_ways(kernel, 1 << 10) <= 2 * MOST_PLACES


def kernels_of(program: Program) -> list[Kernel]:
    found = []
    for kernel in launched(program):
        found += kernel.members if isinstance(kernel, Bundle) else [kernel]
    return [k for k in found if isinstance(k, Kernel)]


@pytest.mark.slow
@each_engine
def test_text_grows_with_the_values(engine: str) -> None:
    """Guards in guards don't have a value written again and again."""
    device(engine)  # skips where it can't run
    choose = random.Random(3)
    for _ in range(6):
        roots = lower_graph([tangle(choose, 12)])
        target = {"numpy": NUMPY, "llvm": LLVM, "interpret": INTERPRET}[engine]
        for kernel in kernels_of(compile_graph(roots, target)):
            assert lines_of(engine, kernel) <= 300 + 60 * len(kernel.values)


def lines_of(engine: str, kernel: Kernel) -> int:
    if engine == "numpy":
        from tilewright.codegen.numpy import emit

        return emit(kernel).source.count("\n")
    if engine == "llvm":
        from tilewright.codegen.llvm import emit as emit_llvm
        from tilewright.runtime.native import host

        return emit_llvm(kernel, host.machine()).code.count("\n")
    from tilewright.codegen.schedule import default_schedule
    from tilewright.codegen.triton import emit as emit_triton

    return emit_triton(kernel, default_schedule(kernel, INTERPRET)).source.count("\n")


# Writes to many slices.


def tiles(grid: Any, images: Sequence[Any], side: int) -> Any:
    """As torchvision's make_grid does it."""
    for number, image in enumerate(images):
        y, x = divmod(number, side)
        size = image.shape[-1]
        top, left = y * (size + 2) + 2, x * (size + 2) + 2
        grid.narrow(1, top, size).narrow(2, left, size).copy_(image)
    return grid


@pytest.mark.usefixtures("fused")
def test_tiles_of_a_picture(torch: Any) -> None:
    images = np.random.default_rng(0).random((64, 3, 16, 16)).astype(np.float32)
    expected = tiles(torch.zeros(3, 146, 146), torch.tensor(images), 8).numpy()
    with counted() as counts:
        pictures = tw.tensor(images) * 1  # that are computed: values are copied at once
        found = tiles(tw.zeros(3, 146, 146), pictures, 8).numpy()
    np.testing.assert_array_equal(found, expected)
    ((nodes, values),) = counts
    assert nodes <= 10 * 64
    assert values <= 3 * nodes


def test_many_writes_are_made_in_place() -> None:
    """The whole is written once, each tile once."""
    side, size, count = 40, 8, 100
    x, total = leaf(0, side * size, side * size), 0
    for number in range(count):
        y, z = (v * size for v in divmod(number, side))
        x = write(x, leaf(number + 1, size, size), (y, z))
    program = compile_graph(lower_graph([x]), LLVM)
    kernels = kernels_of(program)
    for kernel in kernels:
        total += len(kernel.stores) * math.prod(a.extent for a in kernel.parallel)
    assert total == (side * size) ** 2 + count * size**2
    assert len(kernels) == count + 1


def write(x: Node, part: Node, start: Sequence[int]) -> Node:
    high = [n - m - a for n, m, a in zip(x.shape, part.shape, start)]
    true, false = ops.constant(True, bool_), ops.constant(False, bool_)
    inside = ops.pad(ops.expand(true, part.shape), start, high, None, false)
    return ops.where(inside, ops.pad(part, start, high), x)


@each_engine
@pytest.mark.parametrize("kind", ["apart", "itself", "elsewhere", "kept"])
def test_values_of_writes_in_place(engine: str, kind: str) -> None:
    """A write that reads the tensor it writes to sees the old elements."""
    values = np.random.default_rng(1).random((96, 96)).astype(np.float32)
    x, oracle = leaf(0, 96, 96) * 2, values * 2
    kept, before = [], []
    for n in range(0, 96, 4):
        rest = (n + 8) % 96
        source = rest if kind == "elsewhere" else n
        if kind == "apart":
            new = ops.expand(ops.reshape(leaf(1, 96), (1, 96)), (4, 96))
            oracle[n : n + 4] = values[0]
        else:
            new = ops.slice_axis(x, 0, source, source + 4) * 0.5
            oracle[n : n + 4] = oracle[source : source + 4] * np.float32(0.5)
        x = write(x, new, (n, 0))
        if kind == "kept" and n in (20, 60):
            kept.append(x)
            before.append(oracle.copy())
    roots = lower_graph([x, *kept])
    target = replace(device(engine).target, launch_cost=1, op_cost=100.0)
    assert any(n.op is overwrite for n in reachable(legalize(roots, target)))
    inputs = {n: values if n.attrs[0] == 0 else values[0] for n in reachable(roots) if is_buffer(n)}
    found = compute(engine, roots, inputs, target=target)
    for a, b in zip(found, [oracle, *before], strict=True):
        np.testing.assert_array_equal(a.reshape(b.shape), b)


@each_engine
@pytest.mark.parametrize("mode", ["set", "add"])
def test_values_of_updates_whose_positions_meet(engine: str, mode: str) -> None:
    """Several values for one position are made of what was there before all of them."""
    x, index = leaf(0, 6), leaf(1, 4, dtype=int64)
    values = np.arange(6, dtype=np.float32)
    positions = np.array([1, 1, 2, 1])
    first = ops.scatter(x, leaf(2, 4), index, 0, "add")  # memory that nothing else needs
    root = ops.scatter(first, ops.gather(first, index, 0) * 2, index, 0, mode)
    inputs = {x: values, index: positions, leaf(2, 4): np.ones(4, np.float32)}
    found = compute(engine, [root], inputs)
    expected = values.copy()
    np.add.at(expected, positions, 1)
    twice = expected[positions] * 2
    if mode == "add":
        np.add.at(expected, positions, twice)
    else:
        expected[positions] = twice
    np.testing.assert_array_equal(found[0], expected)


# What a guard hides isn't checked.


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (lambda: _first_more(tw.arange(10) % 7), [1, 1, 2, 3, 4, 5, 6, 0, 1, 2]),
        (lambda: (tw.arange(10) % 2).roll(1), [1, 0, 1, 0, 1, 0, 1, 0, 1, 0]),
        (lambda: (60 // (tw.arange(6) + 1)).roll(2), [12, 10, 60, 30, 20, 15]),
        (lambda: tw.nn.functional.pad(60 // (tw.arange(3) + 1), (1, 2)), [0, 60, 30, 20, 0, 0]),
        (
            lambda: tw.nn.functional.pad((60 // _read(3))[_read(3).flip(0) - 1], (1, 1)),
            [0, 20, 30, 60, 0],
        ),
    ],
)
def test_divisions_under_guards(program: Callable[[], Any], expected: list[int]) -> None:
    assert program().tolist() == expected


def _first_more(x: Any) -> Any:
    x[0] += 1
    return x


def _read(n: int) -> Any:
    """1 … n, in memory."""
    x = tw.arange(n) + 1
    x.tolist()
    return x


def test_a_division_by_zero_that_is_needed_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        (60 % tw.arange(3)).roll(1).tolist()


# Random programs; see fuzz_stencils.py.


@pytest.mark.parametrize(
    ("first", "count"),
    [(0, 25), *(pytest.param(n, 50, marks=pytest.mark.slow) for n in range(1000, 1200, 50))],
)
def test_random_programs(first: int, count: int) -> None:
    with counted() as counts:
        for seed in range(first, first + count):
            program = random_program(random.Random(seed))
            if difference(program) is not None:
                cut = smallest(program, difference)
                pytest.fail(f"seed {seed}: {difference(cut)}\n{cut}")
    assert all(values <= MOST_VALUES * nodes for nodes, values in counts)
