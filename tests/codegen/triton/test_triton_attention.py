"""Attention as Triton kernels: values through the interpreter, quality through the compilers."""

from __future__ import annotations

import functools
import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from attention_cases import CASES, Built, case, expected, passes
from launching import assert_close, compute, tiled

from tilewright.codegen.chip import CHIPS
from tilewright.codegen.kernel.attention import roles
from tilewright.codegen.program import Program
from tilewright.codegen.schedule import Schedule, Usage, occupancy, settled
from tilewright.codegen.schedule.choices import space
from tilewright.codegen.target import INTERPRET, gpu
from tilewright.codegen.triton import emit
from tilewright.ir import dtype as dt
from tilewright.ir import ops
from tilewright.ir.dtype import DType
from tilewright.ir.shape import Size
from tilewright.runtime.interpret import InterpretDevice
from tilewright.runtime.offline import Compiled, compile_offline

pytestmark = pytest.mark.triton

SMALL = InterpretDevice(
    lambda kernel, target: Schedule(block=256, block_r=64, looped=True, block_m=32, block_n=16)
)
by_name = {each.name: each for each in CASES}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("tails", marks=pytest.mark.slow),
        *("causal, more keys", "causal, more queries", "odd", "causal and mask", "padding"),
        *("capped", "capped, below 0", "capped, causal, mask", "capped, float mask"),
    ],
)
def test_in_many_programs_and_steps(torch: Any, name: str) -> None:
    """Tiles that are walked through in two loops, and that end beyond the queries and keys."""
    built = Built(by_name[name])
    found, _ = compute(built.roots, built.values, INTERPRET, SMALL)
    assert_close(found, expected(torch, by_name[name]), 3e-6)


@pytest.mark.parametrize(("dtype", "tolerance"), [(dt.float16, 3e-3), (dt.bfloat16, 2e-2)])
@pytest.mark.parametrize(
    "name", ["tails", "causal, more keys", "float mask", "one head of keys", "capped and causal"]
)
def test_half_types(torch: Any, name: str, dtype: DType, tolerance: float) -> None:
    built = Built(by_name[name], dtype)
    found, program = compute(built.roots, built.values, INTERPRET, InterpretDevice())
    assert all(a.dtype == dtype.np for a in found) and len(tiled(program)) == 3
    assert_close(found, expected(torch, by_name[name]), tolerance)


@pytest.mark.parametrize("width", [32, 64, 80, 128, 256])
def test_widths_of_heads(torch: Any, width: int) -> None:
    each = case("width", (1,), (40, 50, width, width), causal=True)
    built = Built(each)
    found, _ = compute(built.roots, built.values, INTERPRET, InterpretDevice())
    assert_close(found, expected(torch, each), 3e-6)


def test_a_query_that_sees_nothing_gets_zeros() -> None:
    each = case("blind", (2,), (33, 40, 8, 8), mask=(33, 40))
    built = Built(each)
    mask = built.values[built.leaves["mask"]]
    mask[[0, 7, 32]] = False
    found, _ = compute(built.roots, built.values, INTERPRET, SMALL)
    assert all(np.isfinite(a).all() for a in found)
    for row in (0, 7, 32):
        assert not found[0][:, row].any() and not found[1][:, row].any()


def test_nan_and_infinity_stay_in_their_rows() -> None:
    built = Built(case("nan", (1,), (20, 30, 8, 8)))
    q = built.values[built.leaves["q"]]
    q[0, 3, 2], q[0, 5, 0] = np.nan, np.inf
    (y,), _ = compute([built.y], built.values, INTERPRET, SMALL)
    assert np.isnan(y[0, [3, 5]]).all()
    assert np.isfinite(np.delete(y, [3, 5], axis=1)).all()


def test_keys_beyond_the_end_do_not_count() -> None:
    """Large negative scores: a zero that a masked load leaves would be the row's maximum."""
    built = Built(case("cold", (1,), (20, 37, 8, 8)))
    for name, value in (("q", 30.0), ("k", -30.0)):
        built.values[built.leaves[name]][:] = value
    found, _ = compute(built.roots, built.values, INTERPRET, SMALL)
    v = built.values[built.leaves["v"]]
    np.testing.assert_allclose(found[0], np.broadcast_to(v.mean(1), found[0].shape), atol=1e-5)
    assert all(np.isfinite(a).all() for a in found)


@functools.cache
def built_for(target: str, width: int, causal: bool, which: int) -> Compiled:
    return compile_offline(passes(width, causal)[which], target)


# Keys take as long to compile as the other two, and have the most products.
each_pass = pytest.mark.parametrize(
    "which",
    [
        pytest.param(0, id="forward", marks=pytest.mark.slow),
        pytest.param(1, id="queries", marks=pytest.mark.slow),
        pytest.param(2, id="keys"),
    ],
)


@each_pass
@pytest.mark.parametrize("width", [pytest.param(64, marks=pytest.mark.slow), 128])
def test_hopper(width: int, which: int) -> None:
    """Every product on tensor cores, nothing spilled, whole vectors moved."""
    found = built_for("sm_90", width, True, which)
    ptx = found.asm["ptx"]
    assert found.spills == 0
    assert found.shared <= CHIPS["sm_90"].shared_each
    assert "wgmma.mma_async" in ptx and "mma.sync" not in ptx
    assert "st.global.v4" in ptx and "ld.global.v4" in ptx and "cp.async.cg" in ptx
    assert "ld.global.b16" not in ptx and "st.global.b16" not in ptx


@pytest.mark.slow
@pytest.mark.parametrize("which", range(3), ids=["forward", "queries", "keys"])
@pytest.mark.parametrize("width, mask", [(64, True), (128, True), (128, False)])
def test_dropout_spills_nothing(width: int, mask: bool, which: int) -> None:
    found = compile_offline(passes(width, False, mask=mask, dropout=0.1)[which], "sm_90")
    assert found.spills == 0 and "wgmma.mma_async" in found.asm["ptx"]


@pytest.mark.slow
@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize("width", [64, 128, 256])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("which", range(3), ids=["forward", "queries", "keys"])
def test_caps_spill_nothing(target: str, width: int, causal: bool, which: int) -> None:
    found = compile_offline(passes(width, causal, cap=50.0)[which], target)
    assert found.spills == 0 and found.shared <= CHIPS[target].shared_each


@pytest.mark.slow
@pytest.mark.parametrize("which", range(3), ids=["forward", "queries", "keys"])
@pytest.mark.parametrize("width", [40, 80, 96])
def test_heads_of_other_widths(width: int, which: int) -> None:
    found = built_for("sm_90", width, True, which)
    assert found.spills == 0 and found.shared <= CHIPS["sm_90"].shared_each
    assert "wgmma.mma_async" in found.asm["ptx"] and "st.global.b16" not in found.asm["ptx"]


def test_no_more_is_held_than_tiles() -> None:
    """Neither shared memory nor the text grows with the keys, and the mask's reads are short."""
    short, long = (passes(64, True, length=n) for n in (1024, 65536))
    for a, b in zip(short, long):
        found, other = emit(a, Schedule()), emit(b, Schedule())
        # Ops are named in the order in which they were met first, perhaps by another graph.
        assert found.body.replace(found.name, "") == other.body.replace(other.name, "")


@pytest.mark.slow
@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize("width", [32, 64, 128, 256])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("which", range(3), ids=["forward", "queries", "keys"])
def test_every_target(target: str, width: int, causal: bool, which: int) -> None:
    found = built_for(target, width, causal, which)
    chip = CHIPS[target]
    text = found.asm.get("ptx", "") + found.asm.get("amdgcn", "")
    assert found.spills == 0
    assert found.shared <= chip.shared_each and found.columns <= chip.columns
    assert chip.product in text


def test_sums_beyond_the_memory_of_tensor_cores() -> None:
    """Of too large tiles the compiler makes an empty kernel: half as many rows are taken then."""
    kernel, machine = passes(256, False)[2], gpu("sm_100")
    large = Schedule(block_m=128, block_n=16, num_warps=8, num_stages=2)
    made: list[Compiled] = []

    def compiled(asked: dict[Any, Schedule]) -> dict[Any, Usage]:
        made.append(compile_offline(kernel, machine.name, asked[kernel]))
        return {kernel: made[-1].usage}

    assert settled({kernel: large}, machine, compiled) == {kernel: replace(large, block_m=64)}
    empty, whole = made
    assert empty.columns > machine.chip.columns >= whole.columns
    assert "st.global" not in empty.asm["ptx"] and "st.global" in whole.asm["ptx"]


@pytest.mark.slow
@pytest.mark.parametrize("which", range(3), ids=["forward", "queries", "keys"])
def test_masks_and_dropout(which: int) -> None:
    kernel = passes(64, True, mask=True, dropout=0.1)[which]
    parts = roles(kernel)
    assert parts is not None and parts.causal is not None
    found = compile_offline(kernel, "sm_90")
    assert "wgmma.mma_async" in found.asm["ptx"]
    assert found.shared <= CHIPS["sm_90"].shared_each


def test_what_is_scaled() -> None:
    """The scores get their factor in float32, with the base of the exponential in it."""
    text = emit(passes(64, False)[0], Schedule()).body
    assert f"* {np.float32(math.log2(math.e) / 8)!s}" in text


DESCRIBED = Schedule(block_m=32, block_n=16, descriptors=True)
COPIED = InterpretDevice(lambda kernel, target: replace(DESCRIBED, block=256, block_r=64))


def copied(program: Program, schedule: Schedule = DESCRIBED) -> list[int]:
    """How many matrices each attention kernel of a program reads through descriptors."""
    texts = [emit(kernel, schedule) for kernel in tiled(program)]
    assert all((t.plain is not None) == ("matrix" in t.body) for t in texts)
    return [sum(a.role == "matrix" for a in t.arguments) for t in texts]


def ahead(rows: int, keys: int, **given: Any) -> InterpretDevice:
    """A device whose schedules make weights during the products of those before."""
    schedule = Schedule(block=256, block_r=64, looped=True, block_m=rows, block_n=keys, ahead=True)
    return InterpretDevice(lambda kernel, target: replace(schedule, **given))


@pytest.mark.parametrize("rows, keys", [(32, 16), pytest.param(16, 32, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("tails", marks=pytest.mark.slow),
        *("causal, more keys", "causal, more queries", "odd", "causal and mask", "float mask"),
    ],
)
def test_weights_ahead_of_products(torch: Any, name: str, rows: int, keys: int) -> None:
    """The last block comes first, then those before the diagonal, then the others."""
    built = Built(by_name[name])
    (y, *_), program = compute(built.roots, built.values, INTERPRET, ahead(rows, keys))
    assert "held" in emit(tiled(program)[0], Schedule(ahead=True)).body
    assert_close([y], expected(torch, by_name[name])[:1], 3e-6)


@pytest.mark.parametrize("dtype, tolerance", [(dt.float16, 3e-3), (dt.bfloat16, 2e-2)])
@pytest.mark.parametrize("descriptors", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_half_types_ahead_of_products(
    torch: Any, causal: bool, descriptors: bool, dtype: DType, tolerance: float
) -> None:
    each = case("ahead", (2,), (64, 96, 16, 32), causal=causal)
    built = Built(each, dtype)
    (y, *_), _ = compute(
        built.roots, built.values, INTERPRET, ahead(32, 16, descriptors=descriptors)
    )
    assert_close([y], expected(torch, each)[:1], tolerance)


def test_the_same_keys_and_values_ahead_of_products(torch: Any) -> None:
    """Keys are those of a step, values those of the step before."""
    q, k = (ops.leaf(i, Size((2, 40, 16)), dt.float32) for i in range(2))
    drawn = np.random.default_rng(0).standard_normal((2, 2, 40, 16)).astype(np.float32)
    y = ops.scaled_dot_product_attention(q, k, k)
    (found,), _ = compute([y], {q: drawn[0], k: drawn[1]}, INTERPRET, ahead(16, 16))
    a, b = (torch.tensor(x).double() for x in drawn)
    exact = torch.nn.functional.scaled_dot_product_attention(a, b, b)
    assert_close([found], [exact.numpy()], 3e-6)


def test_only_weights_of_a_block_may_be_infinite_where_its_values_are(torch: Any) -> None:
    """No block is multiplied by zeros instead of weights: infinite values would give NaN."""
    q, k, v = (ops.leaf(i, Size((1, 64, 16)), dt.float32) for i in range(3))
    drawn = np.random.default_rng(0).standard_normal((3, 1, 64, 16)).astype(np.float32)
    drawn[2, 0, [0, 20, 63], 3] = np.inf
    y = ops.scaled_dot_product_attention(q, k, v)
    (found,), _ = compute([y], dict(zip((q, k, v), drawn)), INTERPRET, ahead(16, 16))
    assert np.isposinf(found[..., 3]).all() and np.isfinite(np.delete(found, 3, axis=-1)).all()


@pytest.mark.parametrize("copied", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_products_are_under_way_while_weights_are_made(copied: bool) -> None:
    """Between the products with values and the next wait there are exponentials."""
    schedule = Schedule(
        block_m=128, block_n=128, num_warps=8, num_stages=3, ahead=True, descriptors=copied
    )
    found = compile_offline(passes(128, True)[0], "sm_90", schedule)
    assert found.spills == 0 and found.shared <= CHIPS["sm_90"].shared_each
    ptx = found.asm["ptx"]
    between = re.findall(r"wgmma.commit_group(?:(?!wgmma.wait_group|wgmma.commit).)*", ptx, re.S)
    assert max(part.count("ex2.approx") for part in between) >= 64
    assert read_under_way(ptx) >= 8 and not written_under_way(ptx)


@pytest.mark.slow
@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("width, rows, keys, warps", [(128, 128, 64, 8), (64, 64, 64, 4)])
@pytest.mark.parametrize("more", [{}, {"mask": True}, {"dropout": 0.1}, {"length": 1000}])
def test_weights_stay_while_products_read_them(
    more: dict[str, Any], width: int, rows: int, keys: int, warps: int, copied: bool
) -> None:
    schedule = Schedule(
        block_m=rows, block_n=keys, num_warps=warps, num_stages=3, ahead=True, descriptors=copied
    )
    ptx = compile_offline(passes(width, True, **more)[0], "sm_90", schedule).asm["ptx"]
    assert read_under_way(ptx) and not written_under_way(ptx)


WEIGHTED = re.compile(r"wgmma\.mma_async\S* \{[^}]*\},\s*(\{[^}]*\})")
"""A product whose left operand is in registers."""


def read_under_way(ptx: str) -> int:
    """The number of products that read registers."""
    return len(WEIGHTED.findall(ptx))


def written_under_way(ptx: str) -> list[str]:
    """Lines that write registers which products read that nobody has waited for. Each loop runs
    twice."""
    lines = ptx.splitlines()
    labels = {line[: line.index(":")]: i for i, line in enumerate(lines) if line.startswith("$L_")}
    order: list[int] = []
    for i, line in enumerate(lines):
        order.append(i)
        back = re.search(r"\bbra\S*\s+(\$\w+);", line)
        if back and labels[back[1]] < i:
            order += range(labels[back[1]], i + 1)
    read: set[str] = set()
    found = []
    for line in (lines[i].strip() for i in order):
        if "wgmma.wait_group" in line:
            read = set()
        elif product := WEIGHTED.search(line):
            read |= set(re.findall(r"%\w+", product[1]))
        elif not line.startswith(("st.", "bra", "wgmma", "//")):
            target = re.match(r"(?:@!?%\w+ )?[a-z]\S*\s+(\{[^}]*\}|%[\w|%]+)", line)
            if target and read & set(re.findall(r"%\w+", target[1])):
                found.append(line)
    return found


def test_writes_of_what_products_read_are_found() -> None:
    product = "wgmma.mma_async.sync.aligned.m64 {%r1,%r2}, {%r5,%r6}, %rd1, 1, 1, 1;"
    loop = ["$L_1:", product, "mov.b32 %r7, %r5;", "wgmma.wait_group.sync.aligned 0;"]
    end = "@%p1 bra $L_1;"
    assert written_under_way("\n".join([*loop, "mov.b32 %r5, %r7;", end])) == []
    early = "\n".join([*loop[:3], "mov.b32 {%r5, %rs1}, %r7;", *loop[3:], end])
    assert len(written_under_way(early)) == 2
    late = "\n".join(["$L_1:", "mov.b32 %r6, %r7;", loop[3], product, end])
    assert len(written_under_way(late)) == 1


def test_passes_that_may_run_ahead() -> None:
    def asked(target: str, **given: Any) -> list[set[bool]]:
        return [
            {s.ahead for s in space(k, gpu(target)).schedules} for k in passes(64, True, **given)
        ]

    assert asked("sm_90") == [{False, True}, {False}, {False}]
    assert asked("sm_80") == asked("sm_100") == [{False}] * 3


@pytest.mark.parametrize("dtype", [dt.float16, dt.bfloat16])
@pytest.mark.parametrize("heads", [(), pytest.param((2, 3), marks=pytest.mark.slow)])
@pytest.mark.parametrize("causal", [False, True])
def test_operands_through_descriptors(
    torch: Any, causal: bool, heads: tuple[int, ...], dtype: DType
) -> None:
    each = case("copied", heads, (64, 96, 16, 32), causal=causal)
    built = Built(each, dtype)
    found, program = compute(built.roots, built.values, INTERPRET, COPIED)
    assert copied(program) == [3, 4, 4]
    assert_close(found, expected(torch, each), 3e-3 if dtype is dt.float16 else 2e-2)


@pytest.mark.parametrize("causal", [False, True])
def test_copies_in_warps_of_their_own(torch: Any, causal: bool) -> None:
    """They run through one loop."""
    schedule = replace(DESCRIBED, specialized=True)
    device = InterpretDevice(lambda kernel, target: replace(schedule, block=256, block_r=64))
    each = case("apart", (2,), (64, 96, 16, 32), causal=causal)
    built = Built(each, dt.float16)
    found, program = compute(built.roots, built.values, INTERPRET, device)
    assert copied(program, schedule) == [3, 4, 4]
    for kernel in tiled(program):
        text = emit(kernel, schedule)
        assert text.body.count("for start") == text.body.count("warp_specialize=True") == 1
        assert "warp_specialize" not in text.unaligned().body
    assert_close(found, expected(torch, each), 3e-3)


def test_gradients_fit_the_memory_of_tensor_cores() -> None:
    """For sm_100 Triton 3.9 makes kernels of one instruction of those that don't."""
    kernel = passes(128, False)[2]
    apart = [s for s in space(kernel, gpu("sm_100")).schedules if s.specialized]
    asked = {(s.block_m, s.block_n) for s in apart}
    assert (128, 32) in asked and (64, 64) in asked
    assert not {(128, 64), (128, 128)} & asked
    schedule = Schedule(
        block_m=128, block_n=32, num_warps=4, num_stages=2, descriptors=True, specialized=True
    )
    found = compile_offline(kernel, "sm_100", schedule)
    assert found.num_warps > 4 and found.asm["ptx"].count("tcgen05.mma") > 40
    assert found.spills == 0


def test_passes_whose_copies_may_have_warps_of_their_own() -> None:
    def asked(target: str, **given: Any) -> list[set[bool]]:
        kernels = passes(64, True, **given)
        return [{s.specialized for s in space(k, gpu(target)).schedules} for k in kernels]

    assert asked("sm_90") == [{False}] * 3
    assert asked("sm_100") == [{False, True}] * 3
    assert asked("sm_100", dropout=0.1) == [{False}] * 3
    assert asked("sm_100", mask=True) == [{False, True}] * 3


def test_heads_beside_one_another_through_descriptors(torch: Any) -> None:
    """Queries, keys and values of one product, (batch, length, 3, heads, width): a head's rows lie
    apart."""
    shape = (2, 64, 3, 4, 16)
    leaf = ops.leaf(0, Size(shape), dt.float16)
    drawn = np.random.default_rng(0).standard_normal(shape).astype(np.float16)
    parts = [
        ops.reshape(ops.slice_axis(ops.permute(leaf, (2, 0, 3, 1, 4)), 0, i, i + 1), (2, 4, 64, 16))
        for i in range(3)
    ]
    y = ops.scaled_dot_product_attention(*parts, causal=True)
    (found,), program = compute([y], {leaf: drawn}, INTERPRET, COPIED)
    assert copied(program) == [3]
    q, k, v = (torch.tensor(drawn[:, :, i].transpose(0, 2, 1, 3)).float() for i in range(3))
    exact = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert_close([found], [exact.numpy()], 3e-3)


@pytest.mark.parametrize("name", [pytest.param("tails", marks=pytest.mark.slow), "float mask"])
def test_tiles_that_end_within_a_head_are_loaded(torch: Any, name: str) -> None:
    """A copy would read another head's rows behind the last one."""
    built = Built(by_name[name], dt.float16)
    found, program = compute(built.roots, built.values, INTERPRET, COPIED)
    assert not any(copied(program))
    assert_close(found, expected(torch, by_name[name]), 3e-3)


@each_pass
def test_loads_are_under_way_during_products(which: int) -> None:
    """A loop begins with a wait for its own step's loads, not for those of the next one."""
    waits = re.findall(
        r"cp.async.wait_group\s+(\w+)", built_for("sm_90", 128, True, which).asm["ptx"]
    )
    assert waits[0] in ("2", "4")


def test_two_programs_fit_a_multiprocessor() -> None:
    """Weights of one are made during products of the other."""
    schedule = Schedule(
        block_m=128, block_n=64, num_warps=8, num_stages=2, descriptors=True, registers=128
    )
    found = compile_offline(passes(128, True)[0], "sm_90", schedule)
    assert found.spills == 0 and "cp.async.bulk.tensor" in found.asm["ptx"]
    assert occupancy(CHIPS["sm_90"], 8, Usage(found.registers, found.shared)) == 2


def test_a_factor_of_scores_takes_no_operation() -> None:
    """It is in the one that subtracts the row's shift, also behind a mask."""
    for kernel in passes(64, True):
        text = emit(kernel, Schedule()).body
        assert re.search(r"s_\d = tl.dot\(.*\)\n", text) and "= tl.dot(" in text
        assert re.search(r"tl.exp2\(s_\d \* 0\.18\d* - ", text)


def test_a_cap_of_scores_takes_no_operation() -> None:
    """It is in the one that subtracts the row's shift; what it caps is scaled once."""
    for kernel in passes(64, True, cap=50.0):
        text = emit(kernel, Schedule()).body
        assert re.search(r"s_\d = tl.dot\(.*\) \* 0\.0025\n", text)
        assert re.search(r"tl.exp2\(s_\d \* 72\.13\d* - |tl.exp2\(tanh_?\d* \* 72\.13\d* - ", text)


def test_what_is_summed_fades_by_the_difference_of_maxima() -> None:
    """Of the scaled maxima a fused operation would round only one, and early keys would fade with
    each block though the maximum stays."""
    text = emit(passes(64, True)[0], Schedule()).body
    assert "faded = tl.exp2((top - safe)" in text
