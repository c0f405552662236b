"""Attention of packed sequences: each engine beside PyTorch's attention of one sequence after
another, in float64."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from launching import ENGINES, assert_close, compute, engines, native, tiled

import tilewright
from tilewright import recording
from tilewright.codegen.chip import CHIPS
from tilewright.codegen.kernel.attention import roles
from tilewright.codegen.program import compile_graph, launched
from tilewright.codegen.schedule import Schedule
from tilewright.codegen.target import CUDA, INTERPRET, LLVM
from tilewright.inspection import explanation
from tilewright.ir import dtype as dt
from tilewright.ir import ops
from tilewright.ir.dtype import DType
from tilewright.ir.node import Node
from tilewright.ir.passes.autodiff import pullback
from tilewright.ir.passes.pipeline import lower_graph
from tilewright.ir.shape import Size
from tilewright.nn.attention import SDPBackend, sdpa_kernel
from tilewright.nn.attention.varlen import AuxRequest, varlen_attn, varlen_attn_out
from tilewright.runtime.offline import compile_offline


@dataclass(frozen=True)
class Case:
    """queries, keys: the bounds of sequences. beyond: rows behind the last one. heads: of queries
    and of keys; widths: of a query and of a value. window: places before and after."""

    name: str
    queries: tuple[int, ...]
    keys: tuple[int, ...]
    window: tuple[int, int] = (-1, -1)
    heads: tuple[int, int] = (2, 2)
    widths: tuple[int, int] = (8, 8)
    beyond: int = 0

    def arrays(self) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(len(self.name))
        rows, keys = self.queries[-1] + self.beyond, self.keys[-1] + self.beyond
        (heads, own), (inner, outer) = self.heads, self.widths
        shapes = {"q": (rows, heads, inner), "k": (keys, own, inner), "v": (keys, own, outer)}
        shapes["g"] = (rows, heads, outer)
        return {name: rng.standard_normal(shape) for name, shape in shapes.items()}


SAME = (0, 5, 40, 41, 90, 150)
MORE_QUERIES, MORE_KEYS = (0, 30, 32, 70, 110), (0, 9, 40, 45, 61)
CASES = [
    Case("one sequence", (0, 40), (0, 40)),
    Case("same lengths", SAME, SAME),
    Case("causal", SAME, SAME, (-1, 0)),
    Case("other lengths", MORE_QUERIES, MORE_KEYS),
    Case("causal, more queries", MORE_QUERIES, MORE_KEYS, (-1, 0)),
    Case("causal, more keys", MORE_KEYS, MORE_QUERIES, (-1, 0)),
    Case("window", SAME, SAME, (7, 3)),
    Case("window of the past", MORE_QUERIES, MORE_KEYS, (5, 0)),
    Case("itself alone", SAME, SAME, (0, 0)),
    Case("window of what comes", SAME, SAME, (-1, 4)),
    Case("empty ones", (0, 0, 5, 5, 40, 40), (0, 3, 3, 3, 50, 60)),
    Case("all without keys", (0, 5, 9), (0, 0, 0), beyond=3),
    Case("rows of no sequence", SAME, SAME, (-1, 0), beyond=7),
    Case("shared heads", SAME, SAME, (-1, 0), heads=(6, 2), widths=(16, 12)),
    Case("many heads", (0, 70, 100), (0, 70, 100), (-1, 0), heads=(9, 9)),
    Case("long", (0, 300, 320, 700), (0, 300, 320, 700), (-1, 0), heads=(1, 1)),
]
by_name = {each.name: each for each in CASES}
each_case = pytest.mark.parametrize("each", CASES, ids=lambda c: c.name)


class Built:
    """A case as a graph: its leaves with their values, the result and the gradients."""

    def __init__(self, each: Case, dtype: DType = dt.float32):
        self.values: dict[Node, Any] = {}
        q, k, v, self.g = (self._leaf(x.astype(dtype.np)) for x in each.arrays().values())
        bounds = [self._leaf(np.asarray(x, np.int32)) for x in (each.queries, each.keys)]
        self.inputs = [ops.variable(x, i) for i, x in enumerate((q, k, v))]
        queries, keys = (ops.packed(x.shape[0], b) for x, b in zip((q, k), bounds))
        before, after = each.window
        self.y, self.total = ops.packed_attention(
            *self.inputs, queries, keys, before=before, after=after, scale=0.3
        )
        found = pullback({self.y: self.g}, self.inputs, create_graph=True)
        self.roots = [self.y, self.total, *(found[x] for x in self.inputs)]

    def _leaf(self, held: np.ndarray) -> Node:
        node = ops.leaf(len(self.values), Size(held.shape), dt.from_numpy(held.dtype))
        self.values[node] = held
        return node


def seen(rows: int, keys: int, window: tuple[int, int]) -> np.ndarray:
    """Which keys a sequence's queries see; their last ones lie at the same place."""
    i, j = np.arange(rows)[:, None] + keys - rows, np.arange(keys)
    before, after = window
    return ((before < 0) | (j >= i - before)) & ((after < 0) | (j <= i + after))


def expected(torch: Any, each: Case, used: Sequence[int] | None = None) -> list[np.ndarray]:
    """Output, logsumexp and gradients; used: how many of a sequence's keys count."""
    q, k, v, g = (torch.tensor(x) for x in each.arrays().values())
    inputs = [x.requires_grad_() for x in (q, k, v)]
    y = torch.zeros(g.shape, dtype=g.dtype)
    total = np.full(q.shape[1::-1], -np.inf)
    for n in range(len(each.queries) - 1):
        (a, b), (c, d) = each.queries[n : n + 2], each.keys[n : n + 2]
        d = d if used is None else c + used[n]
        if a == b or c == d:
            continue
        mask = torch.tensor(seen(b - a, d - c, each.window))
        heads = [x.transpose(0, 1) for x in (q[a:b], k[c:d], v[c:d])]
        one = torch.nn.functional.scaled_dot_product_attention(
            *heads, mask, scale=0.3, enable_gqa=True
        )
        y = torch.cat((y[:a], one.transpose(0, 1), y[b:]))
        wide = heads[1].repeat_interleave(each.heads[0] // each.heads[1], 0)
        scores = (heads[0] @ wide.mT * 0.3).masked_fill(~mask, -np.inf)
        total[:, a:b] = torch.logsumexp(scores, -1).detach().numpy()
    if y.requires_grad:
        y.backward(g)
    grads = [torch.zeros_like(x) if x.grad is None else x.grad for x in inputs]
    return [y.detach().numpy(), total, *(x.numpy() for x in grads)]


def assert_equal_infinities(found: list[Any], wanted: list[Any], tolerance: float) -> None:
    found[1], wanted[1] = (np.where(np.isneginf(x), -1e3, x) for x in (found[1], wanted[1]))
    assert_close(found, wanted, tolerance)


@pytest.mark.sampled(4)
@each_case
@engines
def test_values_and_gradients(torch: Any, each: Case, engine: str) -> None:
    target, device = ENGINES[engine]
    built = Built(each)
    found, program = compute(built.roots, built.values, target, device())
    assert_equal_infinities(found, expected(torch, each), 3e-6)
    assert all(k.is_chained for k in tiled(program))
    passes = 3 if target.gradient_passes else 2
    held = min(built.y.shape[0], each.keys[-1] + each.beyond) > 1
    assert len(tiled(program)) == (passes if target.tiled_attention and held else 0)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("dtype", "tolerance"), [(dt.float16, 3e-3), (dt.bfloat16, 2e-2)])
@pytest.mark.parametrize("engine", ["llvm", "interpret"])
@pytest.mark.parametrize("name", ["causal, more queries", "empty ones", "shared heads"])
def test_half_types(torch: Any, name: str, engine: str, dtype: DType, tolerance: float) -> None:
    target, device = ENGINES[engine]
    built = Built(by_name[name], dtype)
    found, _ = compute(built.roots, built.values, target, device())
    assert_equal_infinities(found, expected(torch, by_name[name]), tolerance)


def in_small_blocks() -> Any:
    pytest.importorskip("triton")
    from tilewright.runtime.interpret import InterpretDevice

    return InterpretDevice(
        lambda kernel, target: Schedule(block=256, block_r=64, looped=True, block_m=32, block_n=16)
    )


@pytest.mark.slow
@each_case
def test_in_many_programs_and_steps(torch: Any, each: Case) -> None:
    """Blocks that lie within a sequence, hold its end, or hold several."""
    built = Built(each)
    found, _ = compute(built.roots, built.values, INTERPRET, in_small_blocks())
    assert_equal_infinities(found, expected(torch, each), 3e-6)


@pytest.mark.parametrize("which", range(3), ids="qkv")
def test_one_gradient(torch: Any, which: int) -> None:
    """The kernel of a gradient of keys alone reads the ranges of keys."""
    built = Built(by_name["window"])
    found, _ = compute([built.roots[2 + which]], built.values, LLVM, native())
    assert_close(found, [expected(torch, by_name["window"])[2 + which]], 3e-6)


@pytest.mark.parametrize(
    "which",
    [
        pytest.param(LLVM, id=LLVM.name),
        pytest.param(INTERPRET, id=INTERPRET.name, marks=pytest.mark.slow),
    ],
)
def test_blocks_that_do_not_meet_are_not_read(which: Any) -> None:
    """NaN in a sequence reaches no other one that shares no block of queries or keys with it."""
    bounds = (0, 288, 576)  # whole blocks on both
    built = Built(Case("apart", bounds, bounds, (-1, 0)))
    for node, held in built.values.items():
        if held.dtype.kind == "f" and node is not built.g:
            held[288:] = np.nan
    device = native() if which is LLVM else in_small_blocks()
    (y, _, *grads), _ = compute(built.roots, built.values, which, device)
    for x in (y, *grads):
        assert np.isfinite(x[:288]).all() and np.isnan(x[288:]).all()


def test_derivatives_of_any_order() -> None:
    """Those of tiles and those of the primitives."""
    built = Built(by_name["window"], dt.float64)
    grads = built.roots[2:]
    again = pullback({g: ops.cos(g) for g in grads}, built.inputs, create_graph=True)
    roots = [again[x] for x in built.inputs]
    one, _ = compute(roots, built.values, LLVM, native())
    target, device = ENGINES["numpy, primitives"]
    other, _ = compute(roots, built.values, target, device())
    assert_close(one, other, 1e-12)


def test_what_is_stored_twice(torch: Any) -> None:
    """The same result at two places of memory, of one kernel."""
    each = by_name["causal"]
    built = Built(each)
    turned = ops.permute(built.y, (1, 2, 0))
    for engine in ("llvm", "interpret"):
        target, device = ENGINES[engine]
        found, _ = compute([built.y, turned], built.values, target, device())
        wanted = expected(torch, each)[0]
        assert_close(found, [wanted, wanted.transpose(1, 2, 0)], 3e-6)


@pytest.mark.slow
@pytest.mark.triton
@pytest.mark.parametrize("width", [pytest.param(64, marks=pytest.mark.slow), 128])
@pytest.mark.parametrize("which", range(3), ids=["forward", "queries", "keys"])
def test_hopper(width: int, which: int) -> None:
    """Every product on tensor cores, nothing spilled, whole vectors moved."""

    shape, bounds = Size((4096, 8, width)), Size((17,))
    q, k, v, g = (ops.leaf(i, shape, dt.bfloat16) for i in range(4))
    inputs = [ops.variable(x, i) for i, x in enumerate((q, k, v))]
    where = ops.packed(4096, ops.leaf(4, bounds, dt.int32))
    y, _ = ops.packed_attention(*inputs, where, where, after=0, scale=width**-0.5)
    found = pullback({y: g}, inputs, create_graph=True)
    roots = [y, *(found[x] for x in inputs)]
    kernel = tiled(compile_graph(lower_graph(roots), CUDA))[which]
    parts = roles(kernel)
    assert parts is not None and parts.span is not None and parts.span.along is parts.walked
    compiled = compile_offline(kernel, "sm_90")
    ptx = compiled.asm["ptx"]
    assert compiled.spills == 0 and compiled.shared <= CHIPS["sm_90"].shared_each
    assert "wgmma.mma_async" in ptx and "mma.sync" not in ptx
    assert "st.global.v4" in ptx and "cp.async.cg" in ptx
    assert "ld.global.b16" not in ptx and "st.global.b16" not in ptx


# The public names.


def public(each: Case, used: Sequence[int] | None = None, **more: Any) -> Any:
    q, k, v, _ = (tilewright.tensor(x.astype(np.float32)) for x in each.arrays().values())
    bounds = (tilewright.tensor(x, dtype=tilewright.int32) for x in (each.queries, each.keys))
    if used is not None:
        more["seqused_k"] = tilewright.tensor(used, dtype=tilewright.int32)
    more.setdefault("window_size", each.window)
    return varlen_attn(q, k, v, *bounds, 150, 150, scale=0.3, enable_gqa=True, **more)


def test_varlen_attn(torch: Any) -> None:
    each = by_name["shared heads"]
    y, total = public(each, return_aux=AuxRequest(lse=True))
    wanted = expected(torch, each)
    assert_close([y.numpy(), total.numpy()], wanted[:2], 3e-6)
    assert_close([public(each, return_aux=AuxRequest()).numpy()], wanted[:1], 3e-6)


def test_the_keys_that_are_used(torch: Any) -> None:
    each, used = by_name["causal, more keys"], (7, 2, 38, 0)
    assert_close([public(each, used).numpy()], expected(torch, each, used)[:1], 3e-6)


TABLE, USED = [[5, 2, -1], [99, 99, 99], [0, 3, 4]], (7, 0, 10)
"""Sequences of 7, 0 and 10 keys, in pages of 4 that lie anywhere."""
PAGES = Case("pages", (0, 3, 4, 10), (0, 12, 24, 36), (-1, 0), (4, 2))


def paged(device: str, table: list[list[int]] = TABLE, **options: Any) -> tuple[Any, list[Any]]:
    """(attention, the queries and the pools of pages)."""
    q, k, v, _ = PAGES.arrays().values()
    pools = [np.zeros((6, 4, *x.shape[1:]), np.float32) for x in (k, v)]
    for pool, x in zip(pools, (k, v)):
        for n, row in enumerate(TABLE):
            for p, page in enumerate(row):
                if 0 <= page < 6:
                    pool[page] = x[12 * n + 4 * p : 12 * n + 4 * p + 4]
    ints: dict[str, Any] = {"dtype": tilewright.int32, "device": device}
    held = [tilewright.tensor(x.astype(np.float32), device=device, **options) for x in (q, *pools)]
    y = varlen_attn(
        *held, tilewright.tensor(PAGES.queries, **ints), None, 6, 10, scale=0.3, enable_gqa=True,
        window_size=PAGES.window, seqused_k=tilewright.tensor(USED, **ints),
        block_table=tilewright.tensor(table, **ints),
    )  # fmt: skip
    return y, held


@pytest.mark.parametrize("device", ["cpu", "interpret"])
def test_pages_of_keys(torch: Any, device: str) -> None:
    y, _ = paged(device)
    assert_close([y.cpu().numpy()], expected(torch, PAGES, USED)[:1], 3e-6)


def test_gradients_reach_pages() -> None:
    """Those of kernels that read a table are those of the CPU, which copies pages first."""
    found = []
    for device in ("cpu", "interpret"):
        y, held = paged(device, requires_grad=True)
        (y * y).sum().backward()
        found.append([x.grad.cpu().numpy() for x in held])
    for ours, wanted in zip(*found, strict=True):
        assert np.abs(wanted).max() > 0.1
        np.testing.assert_allclose(ours, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("device", ["cpu", "interpret"])
def test_a_page_that_is_not_there_is_told(device: str) -> None:
    with pytest.raises(IndexError):
        paged(device, [[5, 6, -1], *TABLE[1:]])[0].cpu().numpy()


@pytest.mark.parametrize(
    "target, width",
    [
        pytest.param(target, width, marks=[pytest.mark.slow] * ((target, width) != ("sm_90", 64)))
        for target in ("sm_80", "sm_90", "sm_100")
        for width in (64, 128)
    ],
)
def test_kernels_look_pages_up(target: str, width: int) -> None:
    """No kernel copies pages, and the table is read so early that keys are on their way during
    products."""
    q = tilewright.randn(128, 8, width).to(tilewright.bfloat16)
    k, v = (tilewright.randn(40, 64, 2, width).to(tilewright.bfloat16) for _ in "kv")
    table, used, bounds = (
        tilewright.tensor(np.zeros(shape, np.int32)) for shape in ((8, 16), 8, 9)
    )
    recording.flush()

    def call() -> Any:
        return varlen_attn(
            q, k, v, bounds, None, 16, 1024, enable_gqa=True, seqused_k=used, block_table=table
        )

    with tilewright.no_grad():
        report = explanation.predict(call)
    kernels = [k for _, program in report.programs(target) for k in launched(program)]
    (attention,) = (k for k in kernels if roles(k) is not None)
    parts = roles(attention)
    assert parts is not None and parts.looks_up
    assert all(b.size <= q.numel() for each in kernels for b in each.outputs)
    compiled = compile_offline(attention, target)
    waits = re.findall(r"cp\.async\.wait_group\s+(\d+)", compiled.asm["ptx"])
    assert compiled.spills == 0 and max(map(int, waits)) >= 3


def test_into_memory_of_ones_own() -> None:
    q = tilewright.randn(6, 2, 8)
    bounds = tilewright.tensor([0, 2, 6])
    out = tilewright.empty(6, 2, 8)
    found = varlen_attn_out(out, q, q, q, bounds, bounds, 4, 4)
    assert found is out
    wanted = varlen_attn(q, q, q, bounds, bounds, 4, 4)
    np.testing.assert_array_equal(out.numpy(), wanted.numpy())


def test_what_does_not_fit_is_told() -> None:
    q, k, bounds = tilewright.randn(6, 4, 8), tilewright.randn(6, 2, 8), tilewright.tensor([0, 6])
    with pytest.raises(ValueError, match="Try setting enable_gqa=True"):
        varlen_attn(q, k, k, bounds, bounds, 6, 6)
    with pytest.raises(ValueError, match="multiple of kv heads"):
        varlen_attn(q[:, :3], k, k, bounds, bounds, 6, 6, enable_gqa=True)
    for operands, more, message in (
        ((q, q, q[:5], bounds, bounds), {}, r"got \(6, 4, 8\), \(6, 4, 8\) and \(5, 4, 8\)"),
        ((q, q, q, bounds, bounds[:1]), {}, r"cu_seq_k of shape \(2,\) for 1 sequences"),
        ((q, q, q, bounds[:1], bounds), {}, r"N > 0 sequences, got \(1,\)"),
        ((q, q, q, bounds, None), {}, "cu_seq_k is missing"),
        ((q, q, q, bounds, bounds), {"seqused_k": bounds}, r"seqused_k of shape \(1,\)"),
    ):
        with pytest.raises(RuntimeError, match=message):
            varlen_attn(*operands, 6, 6, **more)


def test_backends_are_kept_and_change_nothing() -> None:
    cuda = tilewright.backends.cuda
    q = tilewright.randn(1, 2, 5, 8)
    wanted = tilewright.nn.functional.scaled_dot_product_attention(q, q, q)
    with sdpa_kernel([SDPBackend.MATH, SDPBackend.CUDNN_ATTENTION], set_priority=True):
        assert cuda.math_sdp_enabled() and cuda.cudnn_sdp_enabled()
        assert not cuda.flash_sdp_enabled() and not cuda.mem_efficient_sdp_enabled()
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            found = tilewright.nn.functional.scaled_dot_product_attention(q, q, q)
            assert cuda.flash_sdp_enabled() and not cuda.math_sdp_enabled()
        assert cuda.math_sdp_enabled()
    assert cuda.flash_sdp_enabled()
    np.testing.assert_array_equal(found.numpy(), wanted.numpy())
    with pytest.raises(AssertionError, match="SDPBackend"), sdpa_kernel("flash"):  # type: ignore[arg-type]
        pass
