"""Products of matrices in groups: every engine beside float64 and PyTorch, one launch for all
groups; compiled for GPUs that are not here, they are tensor cores' products."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from compiling import taken
from launching import assert_close, compute, interpreted, native

import tilewright as tw
import tilewright.nn as nn
import tilewright.nn.functional as F
from tilewright.codegen.chip import CHIPS
from tilewright.codegen.kernel import Dot, Kernel
from tilewright.codegen.llvm.dot import cut
from tilewright.codegen.program import Program, compile_graph
from tilewright.codegen.schedule import Schedule, default_schedule
from tilewright.codegen.schedule.roofline import predict, work
from tilewright.codegen.target import INTERPRET, LLVM, NUMPY, gpu
from tilewright.ir import dtype as dt
from tilewright.ir import ops
from tilewright.ir.dtype import DType
from tilewright.ir.node import Node
from tilewright.ir.passes.autodiff import pullback
from tilewright.ir.passes.pipeline import lower_graph
from tilewright.runtime.cpu.numpy import NumpyDevice

STEP = {dt.float64: 1e-13, dt.float32: 1e-5, dt.bfloat16: 2.0**-7, dt.float16: 2.0**-10}
"""How far a result may be from float64's, relative to the largest."""


SMALL_TILE = Schedule(block=64, block_r=16, block_m=16, block_n=16, block_k=16, group_m=2)


def small_tiles() -> Any:
    """Tiles that are walked through in several programs and steps."""
    pytest.importorskip("triton")
    from tilewright.runtime.interpret import InterpretDevice

    return InterpretDevice(lambda kernel, target: SMALL_TILE)


ENGINES = {
    "numpy": (NUMPY, NumpyDevice),
    "llvm": (LLVM, native),
    "interpret": (INTERPRET, interpreted),
    "small tiles": (INTERPRET, small_tiles),
}
each_engine = pytest.mark.parametrize(
    "engine",
    [
        pytest.param(engine, marks=[pytest.mark.triton] if target is INTERPRET else [])
        for engine, (target, _) in ENGINES.items()
    ],
)
ROWS = 37
ENDS = {
    "some": (5, 5, 20, 36),
    "all rows": (10, 11, 30, 37),
    "one group": (0, 37, 37, 37),
    "nothing": (0, 0, 0, 0),
    "whole tiles": (16, 16, 32, 32),
    "not in order": (30, 10, -4, 90),
}


def bounds_of(ends: Sequence[int], rows: int) -> np.ndarray:
    return np.maximum.accumulate([0, *np.clip(ends, 0, rows)])


def products(a: Any, b: Any, ends: Sequence[int]) -> np.ndarray:
    """`grouped_mm` group by group, in float64."""
    a, b = (x.astype(np.float64) for x in (a, b))
    with np.errstate(all="ignore"):
        if a.ndim == b.ndim == 3:
            return a @ b
        cuts = bounds_of(ends, b.shape[1] if a.ndim == 3 else a.shape[-1 if b.ndim == 2 else 0])
        pairs = list(itertools.pairwise(cuts))
        if a.ndim == b.ndim:
            return np.stack([a[:, i:j] @ b[i:j] for i, j in pairs])
        if a.ndim == 3:
            return products(b.T, a.swapaxes(1, 2), ends).T
        y = np.zeros((len(a), b.shape[2]))
        for (i, j), matrix in zip(pairs, b):
            y[i:j] = a[i:j] @ matrix
        return y


SHAPES = {
    "rows": ((ROWS, 24), (4, 24, 17)),
    "columns": ((4, 17, 24), (24, ROWS)),
    "sums": ((17, ROWS), (ROWS, 24)),
}


def numbers(seed: int, shape: Sequence[int], dtype: DType) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype.np)


def case(shapes: Any, ends: Sequence[int], dtype: DType, *more: Any) -> tuple[Any, ...]:
    """The leaves a, b and ends, and their values."""
    arrays = [numbers(i, s, dtype) for i, s in enumerate(shapes)]
    nodes = [ops.leaf(i, x.shape, dtype) for i, x in enumerate(arrays)]
    last = ops.leaf(2, (len(ends),), dt.int32)
    return (*nodes, last), {**dict(zip(nodes, arrays)), last: np.array(ends, np.int32)}


@pytest.mark.sampled(6)
@each_engine
@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("form", SHAPES)
def test_against_float64(form: str, ends: str, engine: str) -> None:
    target, device = ENGINES[engine]
    made = device()
    for dtype in (dt.float32, dt.bfloat16, dt.float16, dt.float64):
        leaves, values = case(SHAPES[form], ENDS[ends], dtype)
        (found,), program = compute([ops.grouped_mm(*leaves)], values, target, made)
        assert found.dtype == dtype.np and len(program.steps) == 2
        assert not getattr(made, "fallbacks", ())
        expected = products(values[leaves[0]], values[leaves[1]], ENDS[ends])
        assert_close([found], [expected], STEP[dtype])


@pytest.mark.triton
@pytest.mark.parametrize("ends", ENDS)
def test_sums_of_segments_through_descriptors(ends: str) -> None:
    """Whole blocks of a segment are copied; what remains is loaded, without the next one's terms,
    which may be infinite."""
    pytest.importorskip("triton")
    from tilewright.codegen.triton import emit
    from tilewright.runtime.interpret import InterpretDevice

    tile = replace(SMALL_TILE, block_k=4, descriptors=True)
    device = InterpretDevice(lambda kernel, target: tile)
    for dtype in (dt.bfloat16, dt.float32):
        (a, b, last), values = case(((ROWS, 16), (ROWS, 24)), ENDS[ends], dtype)
        values[b][bounds_of(ENDS[ends], ROWS)[-1] :] = np.inf
        y = ops.grouped_mm(ops.permute(a, (1, 0)), b, last)
        (found,), program = compute([y], values, INTERPRET, device)
        text = emit(kernel_of(program), tile)
        assert "= tl.trans(matrix_0.load([start, first_m]))" in text.body
        assert text.body.count("range(") - text.body.count("arange(") == 2
        assert "matrix" not in text.unaligned().body
        assert_close([found], [products(values[a].T, values[b], ENDS[ends])], STEP[dtype])


@pytest.mark.triton
@pytest.mark.parametrize("is_turned", [False, True])
@pytest.mark.parametrize("ends", ENDS)
def test_programs_that_walk_through_tiles(ends: str, is_turned: bool) -> None:
    """They read rows and each group's matrix through descriptors. Terms that are no whole blocks
    are read so only where a tile can't reach the next group's."""
    pytest.importorskip("triton")
    from tilewright.codegen.triton import emit
    from tilewright.runtime.interpret import InterpretDevice

    tile = replace(SMALL_TILE, persistent=3)
    device = InterpretDevice(lambda kernel, target: tile)
    for dtype, inner in ((dt.bfloat16, 32), (dt.float32, 24)):
        shapes = (ROWS, inner), (4, 24, inner) if is_turned else (4, inner, 24)
        (a, b, last), values = case(shapes, ENDS[ends], dtype)
        if not is_turned:
            values[b][:, 0, -1] = np.inf  # must not meet a zero behind the group before
        expected = values[b].swapaxes(1, 2) if is_turned else values[b]
        y = ops.grouped_mm(a, ops.permute(b, (0, 2, 1)) if is_turned else b, last)
        (found,), program = compute([y], values, INTERPRET, device)
        text = emit(kernel_of(program), tile).body
        assert "tl.where(summed" in text and "matrix_0.load([first_m, start])" in text
        assert ("matrix_1.load([" in text) == (is_turned or inner == 32)
        want = products(values[a], expected, ENDS[ends])
        found = found.astype(np.float64)
        np.testing.assert_array_equal(np.isinf(found), np.isinf(want))
        some = np.isfinite(want)
        assert_close([found[some]], [want[some]], STEP[dtype])


@pytest.mark.sampled(2)
@each_engine
@pytest.mark.parametrize("form", SHAPES)
def test_small_sizes(form: str, engine: str) -> None:
    """No rows, one row, one group and none, one column: what takes no tiles is right too."""
    target, device = ENGINES[engine]
    made = device()
    for rows, inner, columns, groups in (
        (0, 3, 4, 2), (1, 3, 4, 2), (6, 1, 4, 2), (6, 3, 1, 2), (6, 3, 4, 1), (6, 3, 4, 0),
        (6, 0, 4, 2), (6, 3, 0, 2), (1, 1, 1, 1), (2, 2, 2, 2),
    ):  # fmt: skip
        shapes = {
            "rows": ((rows, inner), (groups, inner, columns)),
            "columns": ((groups, columns, inner), (inner, rows)),
            "sums": ((inner, rows), (rows, columns)),
        }[form]
        ends = tuple(min(1 + 3 * i, rows) for i in range(groups))
        leaves, values = case(shapes, ends, dt.float32)
        (found,), _ = compute([ops.grouped_mm(*leaves)], values, target, made)
        if form == "sums" and not groups:
            expected = np.zeros((0, inner, columns))
        else:
            expected = products(values[leaves[0]], values[leaves[1]], ends)
        assert_close([found], [expected], 1e-5)


@each_engine
def test_nan_and_infinity_stay_in_their_group(engine: str) -> None:
    target, device = ENGINES[engine]
    for form, shapes in SHAPES.items():
        leaves, values = case(shapes, ENDS["some"], dt.float32)
        a, b = (values[x] for x in leaves[:2])
        if form == "sums":
            a[:, 7], b[2] = np.nan, np.inf
        else:
            (b if form == "rows" else a)[2, 3] = np.inf
            (a[6:7] if form == "rows" else b.T[6:7])[:] = np.nan
        (found,), _ = compute([ops.grouped_mm(*leaves)], values, target, device())
        expected = products(a, b, ENDS["some"])
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


LARGE_ENDS = (0, 300, 301, 301, 990)


@pytest.mark.parametrize("dtype", [dt.float32, dt.bfloat16, dt.float64], ids=str)
@pytest.mark.parametrize(
    "shapes",
    [((1000, 320), (5, 320, 200)), ((5, 200, 320), (320, 1000)), ((320, 1000), (1000, 200))],
    ids=list(SHAPES),
)
def test_in_many_chunks(shapes: Any, dtype: DType) -> None:
    """Native code: several blocks of rows, columns and K in a group, and groups of panels."""
    leaves, values = case(shapes, LARGE_ENDS, dtype)
    made = native()
    (found,), _ = compute([ops.grouped_mm(*leaves)], values, LLVM, made)
    assert not made.fallbacks
    expected = products(values[leaves[0]], values[leaves[1]], LARGE_ENDS)
    assert_close([found], [expected], STEP[dtype])


@pytest.mark.parametrize("packed", [100, 2000])
def test_what_is_packed_in_rounds(monkeypatch: pytest.MonkeyPatch, packed: int) -> None:
    """Native code packs a few matrices at a time, or a part of one."""
    monkeypatch.setattr(cut, "PACKED", packed)
    for shapes in (((90, 24), (4, 24, 70)), ((70, 90), (90, 24))):
        leaves, values = case(shapes, (10, 10, 50, 77), dt.float32)
        (found,), _ = compute([ops.grouped_mm(*leaves)], values, LLVM, native())
        expected = products(values[leaves[0]], values[leaves[1]], (10, 10, 50, 77))
        assert_close([found], [expected], 1e-5)


@each_engine
def test_what_follows_is_in_the_kernel(engine: str) -> None:
    """A bias of each group, an activation and a cast; and what is done to an operand before."""
    target, device = ENGINES[engine]
    (x, w, ends), values = case(SHAPES["rows"], ENDS["some"], dt.float32)
    bias, group = ops.leaf(3, (4, 17), dt.float32), ops.leaf(4, (ROWS,), dt.int64)
    values[bias] = numbers(5, (4, 17), dt.float32)
    values[group] = np.minimum(np.searchsorted(ENDS["some"], np.arange(ROWS), side="right"), 3)
    y = ops.grouped_mm(ops.cast(x, dt.bfloat16), ops.cast(w, dt.bfloat16), ends)
    root = ops.cast(ops.relu(y + ops.cast(ops.gather(bias, group, 0), dt.bfloat16)), dt.float32)
    (found,), program = compute([root], values, target, device())
    assert len(program.steps) == 2
    a, b = (values[v].astype(dt.bfloat16.np) for v in (x, w))
    expected = products(a, b, ENDS["some"]) + values[bias][values[group]]
    assert_close([found], [np.maximum(expected, 0)], STEP[dt.bfloat16])


@each_engine
def test_operands_in_any_layout(engine: str) -> None:
    """Turned matrices, parts of larger ones, and groups that are not neighbours in memory."""
    target, device = ENGINES[engine]
    a, b = numbers(0, (24, 40), dt.float32), numbers(1, (2, 17, 2, 30), dt.float32)
    x, w, ends = ops.leaf(0, a.shape, dt.float32), ops.leaf(1, b.shape, dt.float32), None
    ends = ops.leaf(2, (4,), dt.int32)
    left = ops.slice_axis(ops.permute(x, (1, 0)), 0, 2, 39)
    right = ops.reshape(ops.permute(w, (2, 0, 3, 1)), (4, 30, 17))
    root = ops.grouped_mm(left, ops.slice_axis(right, 1, 3, 27), ends)
    values = {x: a, w: b, ends: np.array(ENDS["some"], np.int32)}
    (found,), _ = compute([root], values, target, device())
    matrices = b.transpose(2, 0, 3, 1).reshape(4, 30, 17)[:, 3:27]
    assert_close([found], [products(a.T[2:39], matrices, ENDS["some"])], 1e-5)


# ---- PyTorch's names -------------------------------------------------------------------------


ENDS_THAT_FILL = (8, 8, 24)
FORMS = {
    "rows": ((24, 16), (3, 16, 32)),
    "columns": ((3, 8, 16), (16, 24)),
    "sums": ((8, 24), (24, 32)),
    "stacks": ((3, 8, 16), (3, 16, 24)),
}


def both_ways(t: Any, form: str, dtype: str) -> list[np.ndarray]:
    """The result and the gradients of both matrices."""
    shapes = FORMS[form]
    kind = getattr(t, dtype)
    a, b = (
        t.tensor(numbers(i, s, dt.float32)).to(kind).requires_grad_() for i, s in enumerate(shapes)
    )
    offs = None if form == "stacks" else t.tensor(ENDS_THAT_FILL, dtype=t.int32)
    y = t.nn.functional.grouped_mm(a, b, offs=offs)
    y.backward(t.tensor(numbers(2, y.shape, dt.float32)).to(kind))
    return [x.detach().float().numpy() for x in (y, a.grad, b.grad)]


@pytest.mark.parametrize("dtype", [dt.float32, dt.bfloat16, dt.float16], ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_against_pytorch(torch: Any, form: str, dtype: DType) -> None:
    expected = both_ways(torch, form, dtype.name)
    assert_close(both_ways(tw, form, dtype.name), expected, STEP[dtype])


def test_both_names_and_rows_behind_the_last_group() -> None:
    a, b = tw.ones(5, 2), tw.ones(2, 2, 3)
    offs = tw.tensor([1, 3], dtype=tw.int32)
    expected = [[2.0] * 3] * 3 + [[0.0] * 3] * 2
    assert tw._grouped_mm(a, b, offs).tolist() == expected
    y = F.grouped_mm(a.requires_grad_(), b, offs=offs, out_dtype=tw.float32)
    assert y.tolist() == expected and y.grad_fn.name() == "GroupedMmBackward0"
    y.sum().backward()
    assert a.grad.tolist() == [[3.0] * 2] * 3 + [[0.0] * 2] * 2


def test_bias_is_added_to_every_group() -> None:
    offs = tw.tensor([1, 3], dtype=tw.int32)
    bias = tw.tensor([0.5, -1.0, 2.0], requires_grad=True)
    y = F.grouped_mm(tw.ones(3, 2), tw.ones(2, 2, 3), offs=offs, bias=bias)
    assert y.tolist() == [[2.5, 1.0, 4.0]] * 3
    y.sum().backward()
    assert bias.grad.tolist() == [3.0] * 3
    column = tw.tensor([[1.0], [2.0]])
    y = F.grouped_mm(tw.ones(2, 2, 3), tw.ones(3, 3), offs=offs, bias=column)
    assert y.tolist() == [[4.0] * 3, [5.0] * 3]
    with pytest.raises(RuntimeError, match=r"a bias that broadcasts to \[1, 3\], got \(3, 3\)"):
        F.grouped_mm(tw.ones(3, 2), tw.ones(2, 2, 3), offs=offs, bias=tw.ones(3, 3))


def test_derivatives_of_any_order() -> None:
    """The gradient's gradient's gradient against finite differences, through tails and gaps."""
    offs = tw.tensor([2, 2, 5], dtype=tw.int32)
    a = tw.tensor(numbers(0, (6, 3), dt.float64), requires_grad=True)
    b = tw.tensor(numbers(1, (3, 3, 2), dt.float64), requires_grad=True)

    def f(a: Any, b: Any) -> Any:
        return F.grouped_mm(a, b, offs=offs).tanh()

    assert tw.autograd.gradcheck(f, (a, b))
    assert tw.autograd.gradgradcheck(f, (a, b))

    def penalty(a: Any, b: Any) -> Any:
        grads = tw.autograd.grad(f(a, b).square().sum(), (a, b), create_graph=True)
        return sum(g.square().sum() for g in grads)

    assert tw.autograd.gradgradcheck(penalty, (a, b))


def test_errors_are_pytorchs(torch: Any) -> None:
    for shapes, offs, options, words in (
        (((4, 8), (2, 16, 4)), (2, 4), {}, "contraction dimension of mat_a and mat_b must match"),
        (((4, 8), (2, 8, 4)), None, {}, "Have to provide offsets if there is a 2d matrix"),
        (((2, 4, 8), (2, 8, 4)), (2, 4), {}, "or no offset if both matrices are 3d"),
        (((4, 8), (2, 8, 4)), (2, 4, 4), {}, "matrix batch sizes have to match"),
        (((2, 4, 8), (3, 8, 4)), None, {}, "batched dimension has to match"),
        (((8,), (2, 8, 4)), (2, 4), {}, "mat_a has to be 2 or 3d"),
        (((4, 8), (1, 2, 8, 4)), (2, 4), {}, "mat_b has to be 2 or 3d"),
        (((4, 8), (2, 8, 4)), ((2, 4),), {}, "offs has to be 1D"),
        (((4, 8), (2, 8, 4)), (2, 4), {"offs": "int64"}, "Offsets have to be int32"),
        (((4, 8), (2, 8, 8)), (2, 4), {"b": "float16"}, "m1 and m2 to have the same dtype"),
        (((4, 8), (2, 8, 4)), (2, 4), {"a": "int32"}, "Expected mat_a to be"),
        (((4, 8), (2, 8, 4)), (2, 4), {"out": "float16"}, "output dtype must match `mat_a` dtype"),
    ):
        for t in (tw, torch):
            a, b = (
                t.ones(s, dtype=getattr(t, options.get(name, "float32")))
                for name, s in zip("ab", shapes)
            )
            kind = getattr(t, options.get("offs", "int32"))
            given = {} if offs is None else {"offs": t.tensor(offs, dtype=kind)}
            if "out" in options:
                given["out_dtype"] = getattr(t, options["out"])
            with pytest.raises(RuntimeError, match=words):
                t.nn.functional.grouped_mm(a, b, **given)


class Experts(nn.Module):
    """A mixture of experts: each token goes through the two that its router scores highest."""

    def __init__(self, experts: int = 5, width: int = 16, inner: int = 24, chosen: int = 2):
        super().__init__()
        self.chosen = chosen
        self.router = nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(tw.randn(experts, inner, width) * 0.2)
        self.down = nn.Parameter(tw.randn(experts, width, inner) * 0.2)

    def forward(self, x: Any) -> Any:
        weights, experts = self.router(x).softmax(-1).topk(self.chosen)
        flat = experts.flatten()
        order = flat.argsort(stable=True)
        ids = tw.arange(self.up.shape[0], device=x.device)
        ends = (flat[:, None] == ids).sum(0).cumsum(0).to(tw.int32)
        hidden = F.grouped_mm(x[order // self.chosen], self.up.mT, offs=ends).relu()
        out = F.grouped_mm(hidden, self.down.mT, offs=ends) * weights.flatten()[order][:, None]
        return tw.zeros_like(x).index_add(0, order // self.chosen, out)


def train(device: str, steps: int) -> list[float]:
    tw.manual_seed(3)
    model = Experts().to(device)
    optimizer = tw.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for step in range(steps):
        x = tw.tensor(numbers(step, (23, 16), dt.float32), device=device)
        optimizer.zero_grad()
        loss = (model(x) - x.roll(1, 1)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.fixture
def fake() -> Iterator[Any]:
    pytest.importorskip("triton")
    from fake_cuda import installed

    with installed() as driver:
        yield driver


@pytest.mark.slow
@pytest.mark.triton
def test_experts_train_on_cuda_as_on_the_cpu(fake: Any) -> None:
    from tilewright.runtime import devices

    expected = train("cpu", 5)
    assert expected[-1] < expected[0]
    np.testing.assert_allclose(train("cuda", 5), expected, rtol=1e-4)
    assert fake.graph_launches >= 1
    assert not devices.get("cuda:0").fallbacks


# ---- GPUs ------------------------------------------------------------------------------------


def program_for(target: str, form: str, sizes: Any, dtype: DType = dt.bfloat16) -> Program:
    """A layer of experts with weights [G, N, K], or one of its gradients."""
    rows, inner, columns, groups = sizes
    x, g = ops.leaf(0, (rows, inner), dtype), ops.leaf(1, (rows, columns), dtype)
    w, ends = ops.leaf(2, (groups, columns, inner), dtype), ops.leaf(3, (groups,), dt.int32)
    turned = ops.permute(w, (0, 2, 1))
    root: Node = {
        "forward": lambda: ops.relu(ops.grouped_mm(x, turned, ends)),
        "rows": lambda: ops.grouped_mm(g, w, ends),
        "weight": lambda: ops.grouped_mm(ops.permute(g, (1, 0)), x, ends),
    }[form]()
    return compile_graph(lower_graph([root]), gpu(target))


def kernel_of(program: Program) -> Kernel:
    (kernel,) = (
        s.kernel for s in program.steps if isinstance(s.kernel, Kernel) and s.kernel.has_dot
    )
    return kernel


LARGE = (8192, 1024, 4096, 8)


@pytest.mark.slow
@pytest.mark.triton
@pytest.mark.parametrize(
    "target",
    ["sm_90", *(pytest.param(t, marks=pytest.mark.slow) for t in ("sm_80", "sm_100", "gfx942"))],
)
@pytest.mark.parametrize("form", ["forward", "rows", "weight"])
def test_tensor_cores(target: str, form: str) -> None:
    found = taken(kernel_of(program_for(target, form, LARGE)), target)
    text = found.asm.get("ptx", "") + found.asm.get("amdgcn", "")
    assert CHIPS[target].product in text and found.spills == 0
    assert found.shared <= CHIPS[target].shared_each
    if target.startswith("sm_"):
        tiles = CHIPS[target].tensor_maps
        assert ("cp.async.bulk.tensor" in text) == tiles
        assert tiles or "cp.async.cg.shared.global" in text  # 16 bytes at a time
        assert "ld.global.b16" not in text


@pytest.mark.slow
@pytest.mark.triton
@pytest.mark.parametrize("form", ["forward", "rows", "weight"])
def test_many_small_groups_and_odd_sizes(form: str) -> None:
    from tilewright.runtime.offline import compile_offline

    for sizes in ((2048, 512, 256, 64), (1000, 500, 300, 7)):
        found = compile_offline(kernel_of(program_for("sm_90", form, sizes)), "sm_90")
        assert found.spills == 0
        assert "wgmma.mma_async" in found.asm["ptx"] or "mma.sync" in found.asm["ptx"]


def test_the_model_counts_what_is_computed() -> None:
    """Each row is multiplied by one matrix, so that groups cost no more than one product."""
    rows, inner, columns, _ = LARGE
    target = gpu("sm_90")
    for form in ("forward", "rows", "weight"):
        kernel = kernel_of(program_for("sm_90", form, LARGE))
        assert work(kernel).flops == 2 * rows * inner * columns
        schedule = Schedule(block_m=128, block_n=256, block_k=64, num_warps=8, num_stages=4)
        assert predict(kernel, schedule, target).share > 0.4


@pytest.mark.parametrize("form", ["forward", "rows", "weight"])
def test_float32_is_rounded_by_the_switch_of_products(form: str) -> None:
    """Not by that of convolutions, which is on unless the user turns it off."""
    kernel = kernel_of(program_for("sm_90", form, LARGE, dt.float32))
    for allowed in (False, True):
        assert default_schedule(kernel, gpu("sm_90", tf32=allowed)).tf32 is allowed


def test_bounds_are_computed_once() -> None:
    """One kernel for both layers of an expert and all of their gradients."""
    x, up, down = (
        ops.variable(ops.leaf(i, s, dt.float32), i)
        for i, s in enumerate([(64, 16), (4, 16, 24), (4, 24, 16)])
    )
    ends = ops.leaf(3, (4,), dt.int32)
    y = ops.grouped_mm(ops.grouped_mm(x, up, ends), down, ends)
    found = pullback({y: ops.leaf(4, (64, 16), dt.float32)}, [x, up, down])
    program = compile_graph(lower_graph([y, *found.values()]), NUMPY)
    kernels = [s.kernel for s in program.steps if isinstance(s.kernel, Kernel)]
    dots = [v for k in kernels for v in k.values if isinstance(v, Dot)]
    assert len(kernels) == 7 and len(dots) == 6 and all(v.segment for v in dots)


def test_the_tuner_gives_every_group_as_many_rows() -> None:
    """Bounds at random would be none, and measure nothing."""
    from tilewright.runtime.tuner.operands import case_of

    given = case_of(kernel_of(program_for("sm_90", "forward", (64, 32, 48, 4))))
    assert [0, 16, 32, 48, 64] in [x.tolist() for x in given.inputs]
    assert (given.expected[0].astype(float) > 0).all()
