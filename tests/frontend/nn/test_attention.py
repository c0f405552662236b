"""Attention as one kernel: on native code and on NumPy, beside PyTorch in float64 and beside the
primitives that the records decompose into."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from attention_cases import CASES, Built, Case, case, each_case, expected
from graphs import check
from launching import ENGINES, assert_close, compute, engines, native, tiled

from tilewright.codegen.kernel import Kernel
from tilewright.codegen.kernel.attention import roles
from tilewright.codegen.kernel.mlir_printer import parse_kernel, print_kernel
from tilewright.codegen.kernel.structure import describe, structure
from tilewright.codegen.program import compile_graph
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


@pytest.mark.sampled(4)
@each_case
@engines
def test_values_and_gradients(torch: Any, each: Case, engine: str) -> None:
    target, device = ENGINES[engine]
    built = Built(each)
    found, program = compute(built.roots, built.values, target, device())
    passes = 3 if target.gradient_passes else 2
    assert len(tiled(program)) == (passes if target.tiled_attention else 0)
    assert_close(found, expected(torch, each), 3e-6)


@pytest.mark.sampled(3)
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


@pytest.mark.sampled(3)
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
