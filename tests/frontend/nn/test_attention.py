"""Attention as one kernel: on native code and on NumPy, beside PyTorch in float64 and beside the
primitives that the records decompose into."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from graphs import check

from tilewright.codegen.kernel import Kernel
from tilewright.codegen.kernel.attention import roles
from tilewright.codegen.kernel.mlir_printer import parse_kernel, print_kernel
from tilewright.codegen.kernel.structure import describe, structure
from tilewright.codegen.program import Program, compile_graph
from tilewright.codegen.target import CUDA, INTERPRET, LLVM, NUMPY, Target
from tilewright.ir import dtype as dt
from tilewright.ir import ops
from tilewright.ir.dtype import DType
from tilewright.ir.node import Node
from tilewright.ir.passes.autodiff import pullback
from tilewright.ir.passes.pipeline import lower_graph
from tilewright.ir.shape import Size
from tilewright.runtime import placement
from tilewright.runtime.cpu.numpy import NumpyDevice
from tilewright.runtime.device import Device


@dataclass(frozen=True)
class Case:
    """Shapes of q, k and v; mask: none, or its shape with the kind of its elements."""

    name: str
    q: tuple[int, ...]
    k: tuple[int, ...]
    v: tuple[int, ...]
    causal: bool = False
    mask: tuple[int, ...] | None = None
    boolean: bool = True
    scale: float | None = None
    dropout: float = 0.0

    def arrays(self) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(len(self.name) + sum(self.q))
        batch = np.broadcast_shapes(self.q[:-2], self.k[:-2], self.v[:-2])
        made = {n: rng.standard_normal(getattr(self, n)) for n in "qkv"}
        made["g"] = rng.standard_normal((*batch, self.q[-2], self.v[-1]))
        if self.mask is not None:
            drawn = rng.standard_normal(self.mask)
            made["mask"] = drawn > 0.3 if self.boolean else drawn
        return made


def case(name: str, heads: Sequence[int], sizes: Sequence[int], **more: Any) -> Case:
    """sizes: L, S, E and Ev."""
    rows, keys, inner, outer = sizes
    lead = tuple(heads)
    return Case(name, (*lead, rows, inner), (*lead, keys, inner), (*lead, keys, outer), **more)


CASES = [
    case("one block", (2, 3), (16, 32, 16, 16)),
    case("tails", (2, 3), (70, 131, 20, 33)),
    case("many points", (3, 4), (70, 150, 20, 12)),
    case("many points, causal", (9,), (150, 140, 8, 8), causal=True),
    case("odd", (3,), (7, 5, 3, 9)),
    case("no batch", (), (40, 24, 8, 8)),
    case("many keys", (1,), (20, 700, 16, 24)),
    case("wide heads", (1, 2), (33, 40, 160, 256)),
    case("scaled", (2,), (9, 9, 4, 4), scale=-0.7),
    case("causal", (2,), (256, 256, 32, 32), causal=True),
    case("causal, more keys", (2,), (70, 150, 16, 16), causal=True),
    case("causal, more queries", (2,), (150, 70, 16, 16), causal=True),
    case("causal, one key block", (1,), (5, 7, 3, 2), causal=True),
    case("bool mask", (2, 2), (70, 140, 16, 16), mask=(70, 140)),
    case("float mask", (2, 2), (70, 140, 16, 16), mask=(2, 1, 70, 140), boolean=False),
    case("padding", (3, 2), (20, 50, 8, 8), mask=(3, 1, 1, 50)),
    case("mask of queries", (3, 2), (20, 50, 8, 8), mask=(20, 1)),
    case("causal and mask", (2,), (70, 70, 8, 8), causal=True, mask=(1, 70)),
    Case("one head of keys", (2, 4, 30, 8), (2, 1, 40, 8), (40, 6)),
    Case("broadcast queries", (1, 30, 8), (3, 40, 8), (3, 40, 6)),
]
each_case = pytest.mark.parametrize("each", CASES, ids=lambda c: c.name)


class Built:
    """A case as a graph: its leaves with their values, the result and the gradients."""

    def __init__(self, each: Case, dtype: DType = dt.float32, bias_grad: bool = False):
        arrays = each.arrays()
        self.values: dict[Node, Any] = {}
        self.leaves = {name: self._leaf(array, dtype) for name, array in arrays.items()}
        wanted = ["q", "k", "v", *(["mask"] if bias_grad else [])]
        inputs = [ops.variable(self.leaves[n], i) for i, n in enumerate(wanted)]
        mask = inputs[3] if bias_grad else self.leaves.get("mask")
        draw = {}
        if each.dropout:
            for i, name in enumerate(("seed", "offset")):
                draw[name] = ops.scalar(i, dt.int64)
                self.values[draw[name]] = 1234 + i
        self.y = ops.scaled_dot_product_attention(
            *inputs[:3], mask, causal=each.causal, scale=each.scale, dropout=each.dropout, **draw
        )
        found = pullback({self.y: self.leaves["g"]}, inputs, create_graph=True)
        self.gradients = [found[x] for x in inputs]
        self.inputs = inputs

    def _leaf(self, array: np.ndarray, dtype: DType) -> Node:
        held = array.astype(dtype.np) if array.dtype.kind == "f" else array
        node = ops.leaf(len(self.values), Size(held.shape), dt.from_numpy(held.dtype))
        self.values[node] = held
        return node

    @property
    def roots(self) -> list[Node]:
        return [self.y, *self.gradients]


def execute(program: Program, device: Device, values: Mapping[Node, Any]) -> list[np.ndarray]:
    """The results of a program, its temporaries full of NaN."""
    slots: list[Any] = [None] * len(program.slots)
    for node, slot in program.leaves.items():
        slots[slot] = np.ascontiguousarray(values[node])
    launches = device.compile_all([s.kernel for s in program.steps])
    for step, launch in zip(program.steps, launches, strict=True):
        for slot in step.outputs:
            if slots[slot] is None:
                meta = program.slots[slot]
                slots[slot] = np.full(meta.shape, 77, dtype=meta.dtype.np)
        numbers = {n.attrs[0]: values[n] for n in program.scalars}
        scalars = [numbers[s.slot] for s in step.kernel.scalars]
        launch([slots[i] for i in (*step.outputs, *step.inputs)], scalars)
    empty = np.zeros(0)
    return [empty if slots[s] is None else slots[s] for s in program.results]


def compute(roots: Sequence[Node], values: Mapping[Node, Any], target: Target, device: Device):
    """(values of the roots, program)."""
    program = compile_graph(lower_graph(roots, check=True), target)
    shaped = [r.reshape(n.shape) for r, n in zip(execute(program, device, values), roots)]
    return shaped, program


def interpreted() -> Device:
    """Triton's kernels, run over host memory."""
    pytest.importorskip("triton")
    from tilewright.runtime.interpret import InterpretDevice

    return InterpretDevice()


def native() -> Device:
    pytest.importorskip("llvmlite")
    from tilewright.runtime.cpu.native import LlvmDevice
    from tilewright.runtime.native import host

    if host.reason_against() is not None:
        pytest.skip(str(host.reason_against()))
    return LlvmDevice(force=True)


ENGINES: dict[str, tuple[Target, Callable[[], Device]]] = {
    "llvm": (LLVM, native),
    "interpret": (INTERPRET, interpreted),
    "numpy, one kernel": (LLVM, NumpyDevice),
    "numpy, primitives": (NUMPY, NumpyDevice),
}
engines = pytest.mark.parametrize("engine", ENGINES)


def tiled(program: Program) -> list[Kernel]:
    return [s.kernel for s in program.steps if isinstance(s.kernel, Kernel) and s.kernel.is_chained]


def expected(torch: Any, each: Case, keep: Any = 1.0, bias_grad: bool = False) -> list[Any]:
    """The definition in PyTorch, float64. keep: what dropout multiplies weights by."""
    arrays = {n: torch.tensor(a) for n, a in each.arrays().items()}
    wanted = [arrays[n] for n in ("q", "k", "v", *(["mask"] if bias_grad else []))]
    q, k, v, *_ = (x.requires_grad_() for x in wanted)
    scale = 1 / math.sqrt(q.shape[-1]) if each.scale is None else each.scale
    scores = q @ k.mT * scale
    if each.causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        scores = scores.masked_fill(~seen, -math.inf)
    if "mask" in arrays:
        mask = arrays["mask"]
        scores = scores.masked_fill(~mask, -math.inf) if each.boolean else scores + mask
    weights = torch.nn.functional.softmax(scores, -1)
    weights = weights.masked_fill(scores.isneginf().all(-1, keepdim=True), 0)
    y = weights * keep @ v
    y.backward(arrays["g"])
    return [x.detach().numpy() for x in (y, *(x.grad for x in wanted))]


def assert_close(found: Sequence[Any], wanted: Sequence[Any], tolerance: float) -> None:
    for a, b in zip(found, wanted, strict=True):
        assert a.shape == b.shape
        scale = np.abs(b).max(initial=1.0)
        np.testing.assert_allclose(a.astype(float), b.astype(float), rtol=0, atol=tolerance * scale)


@each_case
@engines
def test_values_and_gradients(torch: Any, each: Case, engine: str) -> None:
    target, device = ENGINES[engine]
    built = Built(each)
    found, program = compute(built.roots, built.values, target, device())
    passes = 3 if target.gradient_passes else 2
    assert len(tiled(program)) == (passes if target.tiled_attention else 0)
    assert_close(found, expected(torch, each), 3e-6)


@pytest.mark.parametrize("which", ["q", "k", "v", "g"])
@pytest.mark.parametrize("how", ["number", "row", "column", "scaled row"])
@engines
def test_operands_without_two_sides(which: str, how: str, engine: str) -> None:
    """All of whose rows or columns are alike, as the gradient of a plain sum."""
    target, device = ENGINES[engine]

    def graph(dtype: DType) -> tuple[list[Node], dict[Node, Any]]:
        sizes = {"q": (2, 20, 8), "k": (2, 24, 8), "v": (2, 24, 12), "g": (2, 20, 12)}
        given, values = {}, {}
        for i, (name, shape) in enumerate(sizes.items()):
            cut = {"row": (2, 1, shape[2]), "column": (*shape[:2], 1)}
            held = cut.get(how.split()[-1], ()) if name == which else shape
            given[name] = leaf = ops.leaf(i, held, dtype)
            values[leaf] = np.random.default_rng(i).standard_normal(held).astype(dtype.np)
            if name == which:
                given[name] = leaf * 2.0 if how.startswith("scaled") else leaf
                if how == "number":
                    del values[leaf]
                    given[name] = ops.constant(0.7, dtype)
                given[name] = ops.expand(given[name], shape)
        inputs = [ops.variable(given[n], i) for i, n in enumerate("qkv")]
        y = ops.scaled_dot_product_attention(*inputs, None, causal=True)
        found = pullback({y: given["g"]}, inputs)
        return [y, *(found[x] for x in inputs)], values

    roots, values = graph(dt.float32)
    found, program = compute(roots, values, target, device())
    assert bool(tiled(program)) == bool(target.tiled_attention)
    roots, values = graph(dt.float64)
    assert_close(found, compute(roots, values, NUMPY, NumpyDevice())[0], 3e-6)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(dt.float64, 1e-14), (dt.float16, 3e-3), (dt.bfloat16, 2e-2)]
)
@pytest.mark.parametrize("each", [CASES[1], CASES[3], CASES[10]], ids=lambda c: c.name)
def test_dtypes(torch: Any, each: Case, dtype: DType, tolerance: float) -> None:
    built = Built(each, dtype)
    found, _ = compute(built.roots, built.values, LLVM, native())
    assert all(a.dtype == dtype.np for a in found)
    assert_close(found, expected(torch, each), tolerance)


@engines
def test_dropout_draws_what_the_unfused_form_draws(torch: Any, engine: str) -> None:
    each = case("dropout", (2, 3), (40, 70, 16, 16), causal=True, dropout=0.3)
    target, device = ENGINES[engine]
    built = Built(each)
    seed, offset = (n for n in built.values if n.op is ops.scalar)
    ones = ops.expand(ops.constant(1.0, dt.float32), (2, 3, 40, 70))
    kept = ops.dropout(ones, seed, offset, 0.3)
    (keep,), _ = compute([kept], built.values, NUMPY, NumpyDevice())
    found, _ = compute(built.roots, built.values, target, device())
    assert_close(found, expected(torch, each, torch.tensor(keep.astype(float))), 3e-6)


@pytest.mark.parametrize("heads", [3, 9])
@pytest.mark.parametrize("which", range(3), ids="qkv")
def test_one_gradient(torch: Any, heads: int, which: int) -> None:
    each = case("one of three", (heads,), (70, 40, 8, 12))
    built = Built(each)
    roots = [built.gradients[which]]
    found, _ = compute(roots, built.values, LLVM, native())
    assert_close(found, expected(torch, each)[1 + which : 2 + which], 3e-6)


def test_a_query_that_sees_nothing_gets_zeros() -> None:
    each = case("blind", (2,), (33, 40, 8, 8), mask=(33, 40))
    built = Built(each)
    mask = built.values[built.leaves["mask"]]
    mask[[0, 7, 32]] = False
    found, _ = compute(built.roots, built.values, LLVM, native())
    assert all(np.isfinite(a).all() for a in found)
    for row in (0, 7, 32):
        assert not found[0][:, row].any() and not found[1][:, row].any()


def test_nan_and_infinity_stay_in_their_rows() -> None:
    each = case("nan", (1,), (20, 30, 8, 8))
    built = Built(each)
    q = built.values[built.leaves["q"]]
    q[0, 3, 2], q[0, 5, 0] = np.nan, np.inf
    (y,), _ = compute([built.y], built.values, LLVM, native())
    assert np.isnan(y[0, [3, 5]]).all()
    assert np.isfinite(np.delete(y, [3, 5], axis=1)).all()


@pytest.mark.parametrize("sizes", [(0, 3, 4, 5), (3, 0, 4, 5), (3, 2, 0, 5), (3, 2, 4, 0)])
def test_empty(sizes: Sequence[int]) -> None:
    built = Built(case("empty", (2,), sizes))
    found, program = compute(built.roots, built.values, LLVM, native())
    assert not tiled(program)
    assert [a.shape for a in found] == [n.shape for n in built.roots]
    assert all(np.isfinite(a).all() for a in found)


def test_heads_wider_than_tiles(torch: Any) -> None:
    each = case("wide", (2,), (9, 10, 300, 8))
    built = Built(each)
    found, program = compute(built.roots, built.values, LLVM, native())
    assert not tiled(program)
    assert_close(found, expected(torch, each), 3e-6)


@pytest.mark.parametrize("sizes", [(1, 9, 4, 5), (9, 1, 4, 5), (3, 2, 1, 5), (3, 2, 4, 1)])
def test_a_size_of_one(torch: Any, sizes: Sequence[int]) -> None:
    each = case("one", (2,), sizes)
    built = Built(each)
    found, _ = compute(built.roots, built.values, LLVM, native())
    assert_close(found, expected(torch, each), 3e-6)


def test_the_gradient_of_a_bias(torch: Any) -> None:
    each = case("bias", (2,), (20, 30, 8, 8), mask=(20, 30), boolean=False)
    built = Built(each, bias_grad=True)
    found, _ = compute(built.roots, built.values, LLVM, native())
    assert_close(found, expected(torch, each, bias_grad=True), 3e-6)


@pytest.mark.parametrize("causal", [False, True])
def test_second_derivatives(causal: bool) -> None:
    """Those of one kernel and those of the primitives."""
    built = Built(case("twice", (2,), (9, 12, 5, 6), causal=causal), dt.float64)
    again = pullback({g: ops.cos(g) for g in built.gradients}, [*built.inputs], create_graph=True)
    roots = [again[x] for x in built.inputs]
    one, _ = compute(roots, built.values, LLVM, native())
    other, _ = compute(roots, built.values, NUMPY, NumpyDevice())
    assert_close(one, other, 1e-12)


def test_no_score_matrix_is_held() -> None:
    """Forward and backward hold what grows with L, not with L * S."""
    built = Built(case("long", (2, 4), (512, 512, 32, 32), causal=True))
    program = compile_graph(lower_graph(built.roots), LLVM)
    held = set(program.leaves.values()) | set(program.results)
    _, total = placement.place(program, [s for s in range(len(program.slots)) if s not in held])
    rows = 2 * 4 * 512
    assert total <= 3 * rows * 4
    assert total * 100 < rows * 512 * 4


def test_the_bits_do_not_depend_on_threads() -> None:
    from tilewright.runtime.native import pool

    device = native()
    built = Built(case("threads", (2, 2), (150, 150, 16, 16), causal=True))
    before = pool.num_threads()
    try:
        runs = []
        for threads in (1, 2):
            pool.set_num_threads(threads)
            runs.append(compute(built.roots, built.values, LLVM, device)[0])
    finally:
        pool.set_num_threads(before)
    for a, b in zip(*runs):
        np.testing.assert_array_equal(a, b)


def heads(x: Node, count: int) -> Node:
    """[B, L, H * E] to [B, H, L, E]."""
    batch, length, width = x.shape
    split = ops.reshape(x, (batch, length, count, width // count))
    return ops.permute(split, (0, 2, 1, 3))


@engines
def test_views_fold_into_loads_and_stores(torch: Any, engine: str) -> None:
    """Heads are split, keys shared by groups of heads, and the result is stored joined."""
    target, device = ENGINES[engine]
    rng = np.random.default_rng(1)
    made = [rng.standard_normal((2, 30, width)).astype(np.float32) for width in (32, 16, 16)]
    leaves = [ops.leaf(i, Size(a.shape), dt.float32) for i, a in enumerate(made)]
    q = heads(leaves[0] * 2.0, 4)
    k, v = (
        ops.reshape(ops.expand(ops.unsqueeze(heads(x, 2), 2), (2, 2, 2, 30, 8)), (2, 4, 30, 8))
        for x in leaves[1:]
    )
    y = ops.scaled_dot_product_attention(q, k, v)
    joined = ops.reshape(ops.permute(y, (0, 2, 1, 3)), (2, 30, 32))
    (found,), program = compute([joined], dict(zip(leaves, made)), target, device())
    if target.tiled_attention:
        assert len(program.steps) <= 2

    def split(x: np.ndarray, count: int) -> Any:
        return torch.tensor(x.astype(float)).view(2, 30, count, 8).transpose(1, 2)

    a, b, c = (split(x, n) for x, n in zip((made[0] * 2, *made[1:]), (4, 2, 2)))
    wanted = torch.nn.functional.scaled_dot_product_attention(a, b, c, enable_gqa=True)
    assert_close([found], [wanted.transpose(1, 2).reshape(2, 30, 32).numpy()], 3e-6)


@pytest.mark.parametrize("target", [NUMPY, CUDA, INTERPRET], ids=lambda t: t.name)
def test_what_a_target_decomposes(target: Target) -> None:
    for dtype in (dt.float32, dt.float64):
        built = Built(case("small", (2,), (3, 4, 3, 2), causal=True), dtype)
        kernels = tiled(check(built.roots, target))
        assert len(kernels) == (3 if dtype.name in target.tiled_attention else 0)


def test_kernels_are_read_and_told() -> None:
    built = Built(case("small", (2,), (3, 4, 3, 2), causal=True, dropout=0.5))
    for kernel in tiled(check(built.roots, LLVM, built.values)):
        parts = roles(kernel)
        assert parts is not None and parts.causal is not None
        text = print_kernel(kernel)
        back = parse_kernel(text)
        assert isinstance(back, Kernel) and print_kernel(back) == text
        assert structure(back) == structure(kernel) and roles(back) is not None
        assert " over r" in describe(kernel)


def test_another_chain_of_folds_is_not_attention() -> None:
    built = Built(case("small", (2,), (3, 4, 3, 2)))
    forward, _ = tiled(compile_graph(lower_graph(built.roots), LLVM))
    parts = roles(forward)
    assert parts is not None
    extra = replace(forward.stores[0], value=parts.products)
    assert roles(replace(forward, stores=(*forward.stores, extra))) is None
