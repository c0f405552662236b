"""The static cost model: counts that can be made by hand, and what follows from them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import triton_kernels as tk
from attention_cases import passes

from tilewright.codegen.chip import CHIPS, SM_90
from tilewright.codegen.kernel import Kernel
from tilewright.codegen.program import compile_graph
from tilewright.codegen.schedule import (
    Defaults,
    Schedule,
    Usage,
    default_schedule,
    occupancy,
    predict,
    work,
)
from tilewright.codegen.schedule.lighter import lighter
from tilewright.codegen.target import card, gpu
from tilewright.codegen.triton import emit
from tilewright.ir import dtype as dt
from tilewright.ir import ops
from tilewright.ir.passes.pipeline import lower_graph
from tilewright.ir.shape import Size

HOPPER = gpu("sm_90")


@pytest.mark.parametrize(
    ("warps", "registers", "shared", "resident"),
    [
        (4, 32, 0, 16),  # 64 warps
        (1, 16, 0, 32),  # programs
        (8, 128, 0, 2),  # registers, by 256 a warp
        (8, 129, 0, 1),
        (4, 198, 96 << 10, 2),  # as compiled: see the table of tiles in schedule/dots.py
        (8, 166, 192 << 10, 1),
        (4, 64, 228 << 10, 0),  # more than a program can have
        (4, 256, 0, 0),
    ],
)
def test_occupancy(warps: int, registers: int, shared: int, resident: int) -> None:
    assert occupancy(SM_90, warps, Usage(registers, shared)) == resident


@pytest.mark.parametrize(("columns", "resident"), [(0, 4), (128, 4), (256, 2), (512, 1), (576, 0)])
def test_occupancy_of_memory_for_sums(columns: int, resident: int) -> None:
    usage = Usage(64, 16 << 10, columns=columns)
    assert occupancy(gpu("sm_100").chip, 8, usage) == resident


def test_work_of_each_form() -> None:
    product = work(tk.matmul(256, 512, 1024, dt.bfloat16))
    assert product.flops == 2 * 256 * 512 * 1024
    assert product.bytes == 2 * (256 * 1024 + 1024 * 512 + 256 * 512)
    rows = work(tk.softmax(64, 1000))
    assert rows.bytes == 4 * (2 * 64 * 1000 + 64) and rows.flops == 0
    updated = work(tk.update("add", 10, 100, 8))
    assert updated.bytes == 4 * 2 * 80 + 4 * 80 + 8 * 10
    bundle = work(tk.sgd((4096, 160)))
    assert bundle.bytes == 3 * 4 * (4096 + 160)


def test_work_of_attention() -> None:
    """Two products forward, three and four backward; a causal mask leaves half."""
    whole, half = (passes(64, causal, length=1024) for causal in (False, True))
    unit = 2 * 2 * 16 * 1024 * 1024 * 64
    assert [work(k).flops // unit for k in whole] == [2, 3, 4]
    for a, b in zip(whole, half):
        assert work(b).flops == pytest.approx(work(a).flops / 2, rel=2e-3)
    assert work(whole[0]).exponentials == 2 * 16 * 1024 * 1024


def test_too_few_stages_of_attention_wait_for_loads() -> None:
    """With two, a step's loads are asked for behind the products of the step before."""
    for kernel in passes(128, True, length=8192):
        schedule = default_schedule(kernel, HOPPER)
        assert schedule.num_stages == 3
        ahead, late = (predict(kernel, replace(schedule, num_stages=n), HOPPER) for n in (3, 2))
        assert late.seconds > 1.3 * ahead.seconds


def test_weights_made_beside_products_take_less_time() -> None:
    """Half of the products are those with values: they hide as much of the exponentials."""
    kernel = passes(128, True, length=8192)[0]
    schedule = default_schedule(kernel, HOPPER)
    usage = Usage(registers=250, shared=224 << 10)
    apart, beside = (
        predict(kernel, replace(schedule, ahead=ahead), HOPPER, usage) for ahead in (False, True)
    )
    rate = HOPPER.chip.flops(dt.bfloat16) * HOPPER.chip.sustained
    assert beside.seconds < apart.seconds <= beside.seconds + 0.55 * beside.work.flops / rate
    assert beside.seconds > beside.work.flops / rate


def test_the_last_wave_counts() -> None:
    schedule = Schedule(block_m=128, block_n=128, block_k=64, num_warps=8, num_stages=4)
    one, more = (
        predict(tk.matmul(128 * 12, 128 * n, 4096, dt.bfloat16), schedule, HOPPER) for n in (11, 12)
    )
    assert one.programs == 132 and more.programs == 144
    assert one.waves == 1 and more.waves == pytest.approx(144 / 132)
    assert more.seconds > 1.8 * one.seconds and more.share < one.share


def test_shares_are_of_the_roofline() -> None:
    for make in tk.REPRESENTATIVE.values():
        kernel = make()
        for name in CHIPS:
            found = predict(kernel, default_schedule(kernel, gpu(name)), gpu(name))
            assert 0 < found.share <= 1 and found.resident >= 1, (kernel.name, name, found)


def large(m: int, n: int, k: int) -> Kernel:
    return tk.matmul(m, n, k, dt.bfloat16)


def test_tiles_follow_from_shapes() -> None:
    def tile(m: int, n: int, k: int) -> tuple[int, int, int, int]:
        s = default_schedule(large(m, n, k), HOPPER)
        return s.block_m, s.block_n, s.block_k, s.num_warps

    assert tile(8192, 8192, 8192) == (128, 256, 64, 8)
    assert tile(8192, 128, 8192)[1] <= 128
    small = tile(512, 512, 512)
    assert small[0] * small[1] <= 64 * 64
    assert tile(16, 4096, 4096)[0] == 16 and tile(4096, 16, 4096)[1] == 16


def test_large_products_walk_through_tiles() -> None:
    """Where there are several waves, on chips whose hardware copies tiles."""
    assert default_schedule(large(8192, 8192, 4096), HOPPER).persistent == 132
    assert default_schedule(large(1024, 1024, 4096), HOPPER).persistent == 0
    assert default_schedule(large(8192, 8192, 4096), gpu("sm_80")).persistent == 0
    assert default_schedule(large(8192, 8191, 4096), HOPPER).persistent == 0  # rows of odd length
    assert default_schedule(tk.matmul(8192, 8192, 4096), HOPPER).persistent == 0


def test_what_follows_a_product_takes_registers() -> None:
    """GELU's gradient, a residual, dropout: sums are cut so that it fits beside them."""
    sums = ops.matmul(*(ops.leaf(i, Size((4096, 4096)), dt.bfloat16) for i in (0, 1)))
    x = ops.leaf(2, Size((4096, 4096)), dt.bfloat16)
    several = ops.exp(x) * sums + ops.erf(x) * ops.tanh(x)
    found = []
    for y in (sums, sums + x, several):
        (step,) = compile_graph(lower_graph([y]), HOPPER).steps
        schedule = default_schedule(step.kernel, HOPPER)
        assert (schedule.block_m, schedule.block_n) == (128, 256)
        assert schedule.descriptors == (y is sums)  # copies of whole tiles have no room beside them
        found.append(schedule.parts)
    assert found == [2, 2, 8]


def test_spills_and_tf32_count() -> None:
    kernel, schedule = large(4096, 4096, 4096), Schedule(block_m=128, block_n=128, num_warps=8)
    usage = Usage(255, 64 << 10)
    fits, spills = (predict(kernel, schedule, HOPPER, replace(usage, spills=n)) for n in (0, 4096))
    assert spills.seconds > fits.seconds and spills.bound == "spills"
    few = predict(kernel, schedule, HOPPER, replace(usage, spills=8))
    assert few.seconds > fits.seconds and few.bound == fits.bound  # nothing hides them
    full = tk.matmul(4096, 4096, 4096)
    exact, rounded = (default_schedule(full, gpu("sm_90", tf32=x)) for x in (False, True))
    assert rounded.tf32 and not exact.tf32
    assert predict(full, rounded, HOPPER).seconds < predict(full, exact, HOPPER).seconds


def test_a_schedule_that_spills_is_ranked_again() -> None:
    kernel = large(8192, 4096, 1024)
    first = default_schedule(kernel, HOPPER)
    usage = Usage(255, 200 << 10)
    assert Defaults(HOPPER).after(kernel, first, usage) == first  # nothing is spilled
    few, many = replace(usage, spills=4), replace(usage, spills=400)
    # Of what takes as long, that which doesn't spill is taken; other tiles take longer.
    defaults = Defaults(HOPPER)
    alike = defaults.after(kernel, first, few)
    expected = predict(kernel, first, HOPPER, few).seconds
    assert alike != first and predict(kernel, alike, HOPPER).seconds < 1.05 * expected
    assert defaults.after(kernel, alike, usage) == alike
    defaults = Defaults(HOPPER)
    assert defaults.after(kernel, first, few) == alike
    while (later := defaults.after(kernel, alike, many)) not in (alike, first):
        alike = later
    assert later == first
    defaults = Defaults(HOPPER)
    second = defaults.after(kernel, first, many)
    assert second != first and second == default_schedule(kernel, HOPPER, {first: many})
    own = replace(first, num_stages=2)
    assert defaults.after(kernel, own, many) == own  # a tuner's or a user's choice
    # If all spill, compiling ends with the one that spills least.
    defaults = Defaults(HOPPER)
    asked, schedule = [], first
    while True:
        asked.append(schedule)
        spilled = replace(usage, spills=100 if len(asked) == 2 else 10000)
        better = defaults.after(kernel, schedule, spilled)
        if better == schedule:
            break
        schedule = better
    assert schedule == asked[1] and 2 <= len(set(asked)) <= 4


LIGHTER = {
    "row": lambda: tk.softmax(4096, 4096),
    "long row": lambda: tk.softmax(64, 1 << 17),
    "columns": lambda: tk.fold("sum", (1 << 16, 16384), 0, dt.float32),
    "map": lambda: tk.elementwise("exp", 1 << 22, [dt.float32], dt.float32),
    "bundle": lambda: tk.sgd((1 << 20, 1 << 18)),
    "attention": lambda: passes(64, causal=True)[0],
}


@pytest.mark.parametrize("name", LIGHTER)
def test_what_spills_holds_fewer_elements(name: str) -> None:
    """Each next schedule gives a thread half as much. If one without spills is slower, or all
    spill, the one that takes the least time is left."""
    kernel = LIGHTER[name]()
    first = default_schedule(kernel, HOPPER)
    defaults, spilling, light = Defaults(HOPPER), Usage(255, 0, spills=4096), Usage(64, 0)
    second = defaults.after(kernel, first, spilling)
    assert second != first and _held(second) == _held(first) / 2
    assert (second.block < first.block) == (name in ("columns", "map", "bundle"))
    assert defaults.after(kernel, second, light) == second
    # A spill that nobody waits for is better than a program that has a multiprocessor alone.
    defaults = Defaults(HOPPER)
    most = min(255, SM_90.registers // (32 * first.num_warps)) // 8 * 8  # no limit would give more
    few, alone = Usage(most, 0, spills=4), Usage(255, 200 << 10)
    expected = min(
        (first, few), (second, alone), key=lambda x: predict(kernel, *x[:1], HOPPER, x[1]).seconds
    )
    assert defaults.after(kernel, first, few) == second
    assert defaults.after(kernel, second, alone) == expected[0]
    defaults, asked = Defaults(HOPPER), [first]
    while (later := defaults.after(kernel, asked[-1], spilling)) not in asked:
        asked.append(later)
    held = [_held(s) for s in asked]
    assert 2 <= len(asked) <= 4 and held == sorted(held, reverse=True)


def test_a_step_of_one_element_is_as_short_as_can_be() -> None:
    kernel = tk.fold("sum", (1 << 16, 8), 1, dt.float32)
    schedule = Schedule(block=1024, block_r=1, looped=True, num_warps=4)
    assert lighter(kernel, schedule, 32) == replace(schedule, block=512)
    assert lighter(kernel, replace(schedule, block=512), 32) is None


def test_what_does_not_spill_may_take_somewhat_longer() -> None:
    """Of sums of columns, where fewer are side by side: the model counts no waiting for spills."""
    kernel, target = tk.fold("sum", (256, 16384), 0, dt.bfloat16), gpu("sm_100")
    first, taken = default_schedule(kernel, target), []
    usage = Usage(254, 0, spills=40)
    expected = predict(kernel, first, target, usage).seconds
    for registers in (64, 154, 200, 255):
        defaults = Defaults(target)
        second = defaults.after(kernel, first, usage)
        light = Usage(registers, 0)
        longer = predict(kernel, second, target, light).seconds / expected
        assert (defaults.after(kernel, second, light) == second) == (longer <= 1.25)
        taken.append(longer)
    assert min(taken) < 1.05 < sorted(taken)[1] < 1.25 < max(taken)


def test_an_assembler_that_spills_of_its_own_accord_is_told_a_limit() -> None:
    """Programs of 512 threads with 64 registers fit twice; 40 registers let 12 programs of 128
    threads fit, and 48 would let 10."""
    kernel = tk.softmax(8, 100_000, dt.bfloat16)
    first = default_schedule(kernel, gpu("sm_100"))
    assert first.num_warps == 16
    defaults, few = Defaults(gpu("sm_100")), Usage(64, 64, spills=16)
    second = defaults.after(kernel, first, few)
    assert second == replace(first, registers=128) and emit(kernel, second).registers == 128
    assert defaults.after(kernel, second, Usage(76, 64)) == second
    defaults = Defaults(gpu("sm_100"))
    third = defaults.after(kernel, defaults.after(kernel, first, few), replace(few, registers=128))
    assert third.registers == 0 and third.block_r < first.block_r
    fourth = defaults.after(kernel, third, few)  # a limit that didn't help isn't tried again
    assert fourth.registers == 0 and fourth.block_r < third.block_r
    update = tk.update("add", 4096, 512, 64, grouped=True)
    first = default_schedule(update, HOPPER)
    assert Defaults(HOPPER).after(update, first, Usage(40, 256, spills=8)).registers == 48
    bundle = tk.sgd((1 << 20, 1 << 18))
    assert emit(bundle, replace(default_schedule(bundle, HOPPER), registers=64)).registers == 64
    amd = gpu("gfx942")
    first = default_schedule(kernel, amd)
    assert Defaults(amd).after(kernel, first, few).registers == 0


def _held(schedule: Schedule) -> float:
    tile = schedule.block * schedule.block_r * schedule.block_m * schedule.block_n
    return tile / schedule.num_warps


def test_other_architectures() -> None:
    assert gpu("sm_86").chip is CHIPS["sm_80"] and gpu("sm_120").chip is CHIPS["sm_100"]
    assert gpu("gfx90a").chip is CHIPS["gfx942"]
    with pytest.raises(ValueError, match="expected a target such as sm_80"):
        gpu("h100")


def test_a_card_with_half_of_the_multiprocessors() -> None:
    """Products take twice as long."""
    half = card("sm_90", multiprocessors=66)
    assert half.parallel == half.chip.multiprocessors == 66
    product = large(8192, 8192, 4096)
    schedule = default_schedule(product, HOPPER)
    takes = [predict(product, replace(schedule, persistent=0), t).seconds for t in (HOPPER, half)]
    assert takes[1] == pytest.approx(2 * takes[0], rel=0.05)
    assert half.chip.bandwidth == SM_90.bandwidth


def test_a_card_with_slower_memory() -> None:
    """What moves bytes takes as much longer; products stay."""
    slow = card("sm_90", SM_90.multiprocessors, bandwidth=SM_90.bandwidth / 2, cache=25 << 20)
    assert slow.chip.cache == 25 << 20
    for kernel, longer in ((large(8192, 8192, 4096), 1.0), (tk.softmax(1 << 16, 4096), 1.9)):
        schedule = default_schedule(kernel, HOPPER)
        takes = [predict(kernel, schedule, t).seconds for t in (HOPPER, slow)]
        assert takes[1] == pytest.approx(longer * takes[0], rel=0.05)


def test_what_is_read_once_a_row_makes_no_columns() -> None:
    """Rows of channels with a factor each are rows, of which a program takes one."""
    x = ops.leaf(0, Size((8, 64, 56, 56)), dt.bfloat16)
    factor, shift = (ops.leaf(i, Size((1, 64, 1, 1)), dt.float32) for i in (1, 2))
    y = ops.sum(ops.cast(x, dt.float32) * factor + shift, (0, 2, 3))
    (step,) = compile_graph(lower_graph([y]), HOPPER).steps
    assert predict(step.kernel, default_schedule(step.kernel, HOPPER), HOPPER).programs == 64
