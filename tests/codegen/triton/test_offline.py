"""Kernels compiled to final binaries for GPUs that are not here."""

from __future__ import annotations

import functools
import re
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import triton_kernels as tk
from compiling import taken

from tilewright.codegen.chip import CHIPS
from tilewright.codegen.instructions import INSTRUCTIONS
from tilewright.codegen.kernel import Apply, Constant, Dot, Kernel, Store
from tilewright.codegen.kernel.index import Axis
from tilewright.codegen.program import compile_graph
from tilewright.codegen.schedule import Schedule, Usage, default_schedule
from tilewright.codegen.schedule.choices import space
from tilewright.codegen.target import gpu
from tilewright.codegen.triton import emit
from tilewright.ir import dtype as dt
from tilewright.ir import ops
from tilewright.ir.dtype import DType
from tilewright.ir.op import REGISTRY
from tilewright.ir.passes.pipeline import lower_graph
from tilewright.ir.shape import Size
from tilewright.runtime import cubin
from tilewright.runtime.interpret import InterpretDevice, modules
from tilewright.runtime.offline import TARGETS, Compiled, compile_many, compile_offline, request

pytestmark = pytest.mark.triton


@functools.cache
def compiled(name: str, target: str) -> Compiled:
    """A representative kernel by the schedule that the target takes it with."""
    return taken(tk.REPRESENTATIVE[name](), target)


# The slow tests compile for the others; `test_tensor_cores` compiles one kernel for each.
FAST = "sm_90"
each_target = pytest.mark.parametrize(
    "target", [t if t == FAST else pytest.param(t, marks=pytest.mark.slow) for t in TARGETS]
)


@pytest.mark.parametrize(
    "name",
    # A network for sorting takes Triton five seconds.
    [pytest.param(n, marks=pytest.mark.slow) if n == "sort" else n for n in tk.REPRESENTATIVE],
)
@each_target
def test_compiles(name: str, target: str) -> None:
    found = compiled(name, target)
    assert found.binary[:4] == b"\x7fELF"
    assert 0 < found.registers <= 512
    assert found.target == target and found.num_warps >= 1
    assert found.spills == 0, f"{found.spills} bytes of spills"


@pytest.mark.parametrize("name", ["elementwise", "softmax", "columns", "gather", "bundle"])
def test_vector_loads(name: str) -> None:
    """Sizes that are multiples of 16 are loaded 128 bits at a time, or copied to shared memory."""
    ptx = compiled(name, "sm_90").asm["ptx"]
    copies = re.findall(r"cp\.async\.\w+\.shared\.global .*, (0x\w+),", ptx)
    assert "ld.global.v4.b32" in ptx or (copies and set(copies) == {"0x10"})


def test_sizes_that_are_no_multiples_of_16() -> None:
    kernel = tk.elementwise("exp", 1001, [dt.float32], dt.float32)
    assert "ld.global.v4" not in compile_offline(kernel, "sm_90").asm["ptx"]


@pytest.mark.parametrize(
    "target, mark",
    [
        ("sm_80", "mma.sync"),
        ("sm_90", "wgmma.mma_async"),
        ("sm_100", "tcgen05.mma"),
        ("gfx942", "mfma"),
        ("gfx950", "v_mfma_f32_32x32x16_bf16"),
    ],
)
def test_tensor_cores(target: str, mark: str) -> None:
    asm = compiled("matmul_bf16", target).asm
    assert mark in asm.get("ptx", "") + asm.get("amdgcn", "")


def test_a_schedule_of_ones_own() -> None:
    schedule = Schedule(block_m=128, block_n=128, block_k=64, num_warps=8, num_stages=3)
    found = compile_offline(tk.matmul(4096, 4096, 4096, dt.bfloat16), "sm_90", schedule)
    assert "wgmma.mma_async" in found.asm["ptx"]
    assert found.shared == 3 * (128 + 128) * 64 * 2


def test_float32_is_multiplied_in_full() -> None:
    found = compile_offline(tk.matmul(256, 256, 256), "sm_90")
    assert "tf32" not in found.asm["ptx"]


def test_equal_structure_is_compiled_once() -> None:
    """Other sizes with the same divisibility ask for the same compilation."""
    schedule = Schedule(block=1, block_r=1024)
    one, other = (request(emit(tk.softmax(n, 1008), schedule), "sm_90") for n in (32, 64))
    assert one == other


def test_compiling_after_interpreting() -> None:
    y, x = np.zeros(5, np.float32), np.ones(5, np.float32)
    kernel = tk.elementwise("tanh", 5, [dt.float32], dt.float32)
    device = InterpretDevice()
    device.compile(kernel)([y, x], [])
    assert compile_offline(kernel, "sm_90").binary
    device.compile(kernel)([y, x], [])
    np.testing.assert_allclose(y, np.tanh(x), rtol=1e-6)


def test_several_processes_compile() -> None:
    kernel = tk.elementwise("tanh", 5, [dt.float32], dt.float32)
    targets = ["sm_90", "gfx942", "sm_80"]
    found = compile_many([request(emit(kernel, Schedule()), t) for t in targets], processes=2)
    assert [c.target for c in found] == targets and all(c.binary for c in found)


def test_failures_are_told() -> None:
    kernel = tk.elementwise("tanh", 5, [dt.float32], dt.float32)
    with pytest.raises(ValueError, match="sm_90"):
        compile_offline(kernel, "h100")
    good = request(emit(kernel, Schedule()), "sm_90")
    bad = request(emit(kernel, Schedule(block=1000)), "sm_90")
    with pytest.raises(RuntimeError, match="power of 2"):
        compile_many([good, bad], processes=2)


def test_without_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TW_CACHE", "0")
    modules.load_source.cache_clear()
    emitted = emit(tk.elementwise("cos", 7, [dt.float32], dt.float32), Schedule())
    module = modules.load_source(emitted.sha, emitted.body)
    assert module.__file__ is not None and Path(module.__file__).exists()
    modules.load_source.cache_clear()


@pytest.mark.parametrize("name", ["elementwise", "softmax", "bundle"])
def test_vector_stores(name: str) -> None:
    assert "st.global.v4.b32" in compiled(name, "sm_90").asm["ptx"]


def products(a_turned: bool, b_turned: bool, k: int) -> Kernel:
    """y = a @ b in bfloat16, the operands stored as they are or turned."""
    i, j, r = Axis("p0", 512), Axis("p1", 512), Axis("r0", k)
    a, b = tk.array("a", (512, k), dt.bfloat16), tk.array("b", (k, 512), dt.bfloat16)
    left = tk.load(a, tk.at((k, 512), r, i) if a_turned else tk.at((512, k), i, r))
    right = tk.load(b, tk.at((512, k), j, r) if b_turned else tk.at((k, 512), r, j))
    dot = Dot(left, right, (r,), dt.float32, dt.bfloat16)
    store = Store(tk.array("y", (512, 512), dt.bfloat16), tk.at((512, 512), i, j), dot)
    return Kernel("matmul", (i, j), (r,), (store,))


@pytest.mark.parametrize("a_turned", [False, True])
@pytest.mark.parametrize("b_turned", [False, True])
def test_transposes_are_read_where_they_are(a_turned: bool, b_turned: bool) -> None:
    """By 16 bytes at a time, and multiplied on tensor cores; rows of 8 halves are whole vectors."""
    found = compile_offline(products(a_turned, b_turned, 520), "sm_90")
    ptx = found.asm["ptx"]
    assert "wgmma.mma_async" in ptx and "cp.async.cg" in ptx and found.spills == 0
    assert "ld.global.b16" not in ptx


def test_masks_only_where_tiles_reach_over_the_end() -> None:
    schedule = Schedule(block_m=64, block_n=64, block_k=64)
    whole, tails = (emit(tk.matmul(n, n, n, dt.bfloat16), schedule) for n in (512, 500))
    assert "mask" not in whole.body and tails.body.count("mask=") == 3


def test_tf32_is_asked_for() -> None:
    kernel = tk.matmul(256, 256, 256)
    schedule = default_schedule(kernel, gpu("sm_90", tf32=True))
    assert "tf32" in compile_offline(kernel, "sm_90", schedule).asm["ptx"]


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("size", [(4096, 4096), (4096, 64), (64, 4096), (512, 512), (100, 300)])
@pytest.mark.parametrize("dtype", [dt.bfloat16, dt.float16], ids=str)
def test_tiles_of_products(target: str, size: tuple[int, int], dtype: DType) -> None:
    """The tiles that shapes get fit the chip and spill nothing."""
    chip = CHIPS[target]
    for k in (1024, 1000):
        found = compile_offline(tk.matmul(*size, k, dtype), target)
        assert found.spills == 0 and found.shared <= chip.shared_each
        assert chip.product in found.asm.get("ptx", "") + found.asm.get("amdgcn", "")


@pytest.mark.slow
@pytest.mark.parametrize("size", [(8, 64, 64, 56), (32, 256, 128, 14), (4, 3, 64, 112)])
def test_convolutions_on_tensor_cores(size: tuple[int, int, int, int]) -> None:
    found = compile_offline(tk.conv(*size, dtype=dt.bfloat16), "sm_90")
    assert "wgmma.mma_async" in found.asm["ptx"] and found.spills == 0


def cuobjdump(found: Compiled, option: str) -> str:
    """What NVIDIA's tool says of a cubin."""
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        Path(file.name).write_bytes(found.binary)
        command = [str(tool), option, file.name]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def instructions(found: Compiled) -> list[str]:
    """The machine's instructions, but those that fill up the last line."""
    text = cuobjdump(found, "-sass")
    return [i for i in re.findall(r"/\*[0-9a-f]{4,}\*/\s+(.*?);", text) if i != "NOP"]


# Instructions for an element, its load and store in bfloat16 included.
FEW = {"sigmoid": 16, "expm1": 22, "tanh": 26, "erf": 31, "log1p": 40}
FEW |= {"rsqrt": 12, "atan": 27, "asin": 32, "acos": 34, "log10": 36, "cosh": 28, "sinh": 42}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", FEW)
def test_functions_of_activations_are_short(name: str) -> None:
    """A kernel for bfloat16 that takes more than some 30 instructions for an element computes
    longer than it moves memory. A call is a branch, which keeps the elements apart."""
    import triton

    if name == "atan" and int(triton.__version__.split(".")[1]) < 8:
        pytest.skip("libdevice's function divides, for which their assembler calls a routine")
    kernel = tk.elementwise(name, 1 << 20, [dt.bfloat16], dt.bfloat16)
    found = instructions(compile_offline(kernel, "sm_90", Schedule(block=1024)))
    assert len(found) <= FEW[name] * 1024 // 128
    assert not any("CALL" in each for each in found)


@pytest.mark.parametrize("name", ["exp", "tanh", "expm1"])
def test_the_cost_model_takes_what_is_counted(name: str) -> None:
    """`bench/instructions.py --write` makes the table. These ops have no branches."""

    def counted(op: str) -> tuple[float, float]:
        kernel = tk.elementwise(op, 1 << 20, [dt.float32], dt.float32)
        found = instructions(compile_offline(kernel, "sm_90", Schedule(block=1024)))
        return len(found) / 8, sum("MUFU" in each for each in found)  # eight for a thread

    (long, functions), (least, _) = counted(name), counted("neg")
    own = max(long - least + 1, functions)  # whose unit has an eighth of the lanes
    assert own == pytest.approx(INSTRUCTIONS[REGISTRY[name]], rel=0.15)


@pytest.mark.parametrize(
    "name", ["erf", *(pytest.param(n, marks=pytest.mark.slow) for n in ("tanh", "sigmoid"))]
)
def test_activations_behind_a_product_spill_nothing(name: str) -> None:
    """In large tiles."""
    kernel = tk.matmul(8192, 4096, 1024, dt.bfloat16)
    (store,) = kernel.stores
    x = store.value
    half = Apply(REGISTRY["mul"], (x, Constant(0.5, dt.float32)), dt.float32)
    one = Constant(1.0, dt.float32)
    gate = Apply(REGISTRY[name], (half,), dt.float32)
    y = Apply(REGISTRY["mul"], (half, Apply(REGISTRY["add"], (gate, one), dt.float32)), dt.float32)
    kernel = replace(kernel, stores=(replace(store, value=y),))
    schedule = default_schedule(kernel, gpu("sm_90"))
    assert schedule.block_m * schedule.block_n == 128 * 256
    found = compile_offline(kernel, "sm_90", schedule)
    assert found.spills == 0 and found.registers < 224


def test_positions_take_32_bits_where_addresses_take_64() -> None:
    """Columns of a tensor of more than 2**31 elements, whose positions are small."""
    kernel = tk.fold("argmax", (4096, 1 << 20), 0, dt.float32)
    found = compile_offline(kernel, "sm_90")
    assert found.spills == 0 and found.registers < 200


def test_tensor_descriptors() -> None:
    """Both operands by hardware copies, which take no registers."""
    schedule = Schedule(block_m=128, block_n=256, block_k=64, num_warps=8, persistent=132)
    kernel = tk.matmul(4096, 4096, 4096, dt.bfloat16)
    found = compile_offline(kernel, "sm_90", schedule)
    ptx = found.asm["ptx"]
    assert "cp.async.bulk.tensor" in ptx and "wgmma.mma_async" in ptx and "cp.async.cg" not in ptx
    assert found.spills == 0 and found.shared <= CHIPS["sm_90"].shared_each
    assert emit(kernel, schedule).grid == 132
    assert "descriptor" not in emit(kernel, schedule).unaligned().body


@pytest.mark.parametrize("copied", [False, True], ids=["stores", "copies"])
def test_copies_and_products_in_warps_of_their_own(copied: bool) -> None:
    """The compiler adds warps, which share out registers, and needs fewer instructions."""
    schedule = Schedule(
        block_m=128, block_n=256, block_k=64, num_warps=8, persistent=148, descriptors=copied
    )
    kernel = tk.matmul(4096, 4096, 4096, dt.bfloat16)
    apart = replace(schedule, specialized=True)
    found, alike = (compile_offline(kernel, "sm_100", s) for s in (apart, schedule))
    assert alike.num_warps == 8 and "setmaxnreg" not in alike.asm["ptx"]
    assert found.num_warps > 8 and "setmaxnreg" in found.asm["ptx"]
    assert "tcgen05.mma" in found.asm["ptx"] and found.spills == 0
    assert found.asm["ptx"].count(";\n") < alike.asm["ptx"].count(";\n")
    assert "warp_specialize" not in emit(kernel, apart).unaligned().body


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("rows", "columns"), [(1, 64), (64, 1), (1, 1)])
def test_products_of_one_row_or_column(rows: int, columns: int, target: str) -> None:
    """One operand is as wide as a tile only because it is repeated, for which compilers have
    failed."""
    found = compile_offline(tk.matmul(rows, columns, 8192, dt.bfloat16), target)
    assert found.spills == 0


def test_only_chips_that_heed_it_are_asked_for_warps_of_their_own() -> None:
    kernel = tk.matmul(4096, 4096, 4096, dt.bfloat16)
    for target in ("sm_80", "sm_90", "sm_100"):
        asked = {s.specialized for s in space(kernel, gpu(target)).schedules}
        assert asked == ({False, True} if target == "sm_100" else {False})


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "name", ["pow", "shift_left", "shift_right", "floor_divide", "maximum", "gcd"]
)
@pytest.mark.parametrize("dtype", [dt.int64, dt.uint8], ids=str)
def test_a_number_and_numbers(name: str, dtype: DType) -> None:
    """One operand is a scalar to Triton; its interpreter doesn't mind where its compiler does."""
    x, y = ops.leaf(0, Size((1000,)), dtype), ops.leaf(1, Size(()), dtype)
    op = getattr(ops, name)
    program = compile_graph(lower_graph([op(x, y), op(y, x)]), gpu("sm_90"))
    for step in program.steps:
        assert compile_offline(step.kernel, "sm_90").binary[:4] == b"\x7fELF"


def test_a_small_tile_that_spills_gets_more_warps() -> None:
    """A weight's gradient over rows of odd length, whose elements one warp loads one by one."""
    machine, kernel = gpu("sm_80"), tk.matmul(16, 1433, 2708, dt.bfloat16)
    first = default_schedule(kernel, machine)
    known = {first: Usage(255, 16384, spills=96)}
    second = default_schedule(kernel, machine, known)
    assert first.num_warps == 1 and second == replace(first, num_warps=2)
    assert compile_offline(kernel, "sm_80", second).spills == 0


@pytest.mark.parametrize("spilling", [False, True])
def test_registers_and_spills_are_read_from_the_cubin(spilling: bool) -> None:
    """As NVIDIA's tool reports them."""
    schedule = Schedule(block_m=128, block_n=256, num_warps=4) if spilling else None
    found = compile_offline(tk.matmul(512, 512, 512, dt.bfloat16), "sm_80", schedule)
    report = cuobjdump(found, "-res-usage")
    assert f"REG:{found.registers} STACK:{found.spills} " in report
    assert (found.spills > 0) is spilling
    with pytest.raises(ValueError, match="ELF"):
        cubin.usage(b"no cubin")


MEMORY = re.compile(r"\b(LDG|STG|LDGSTS|ATOM|ATOMG|RED|REDG|UTMALDG|UTMASTG|LD|ST)\b")


@pytest.mark.parametrize("target", ["sm_90", pytest.param("sm_100", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "name",
    [
        *("softmax", "walking"),
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("bundle", "matmul_bf16")),
    ],
)
def test_an_early_start_waits_before_it_touches_memory(name: str, target: str) -> None:
    """The machine's wait (ACQBULK) stands before all loads and stores, and costs no register."""
    if name == "walking":
        kernel: Any = tk.matmul(200, 160, 96, dt.bfloat16)
        schedule = Schedule(block_m=64, block_n=64, persistent=132)
    else:
        kernel = tk.REPRESENTATIVE[name]()
        schedule = default_schedule(kernel, gpu(target))
    plain = emit(kernel, schedule)
    before, early = compile_many([request(e, target) for e in (plain, plain.begun_early())], 1)
    assert not any("ACQBULK" in i for i in instructions(before))
    found = instructions(early)
    touches = [i for i, each in enumerate(found) if MEMORY.search(each)]
    (wait,) = (i for i, each in enumerate(found) if each.startswith("ACQBULK"))
    assert touches and wait < touches[0] and sum("PREEXIT" in i for i in found) == 1
    assert (early.registers, early.spills) == (before.registers, before.spills)
