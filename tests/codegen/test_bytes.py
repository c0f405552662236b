"""Products of bytes: exact on every engine and every kind of machine, on the instructions that are
made for them; and linear layers with weights of 8 and 4 bits."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from engines import compute, device, each_engine

from tilewright.codegen.kernel import Apply, Dot, Kernel
from tilewright.codegen.llvm.choice import check_speed
from tilewright.codegen.program import compile_graph
from tilewright.codegen.target import LLVM, gpu
from tilewright.ir import ops
from tilewright.ir.dtype import DType, bfloat16, float32, int8, int16, int32, int64, uint8
from tilewright.ir.node import Node
from tilewright.ir.passes.pipeline import lower_graph
from tilewright.runtime.native import host

PAIRS = [(int8, int8), (uint8, int8), (int8, uint8), (uint8, uint8)]
SIZES = [(64, 96, 48), (5, 7, 9), (13, 1030, 77), (3, 70, 129)]
FORMS = ["NT", "NN", "TN"]


def matrix(dtype: DType, *shape: int) -> np.ndarray:
    """Bytes of which many are the least and the greatest ones."""
    limits = np.iinfo(dtype.np)
    rng = np.random.default_rng(sum(shape))
    found = rng.integers(limits.min, limits.max + 1, shape)
    ends = rng.choice([limits.min, limits.max], shape)
    return np.where(rng.random(shape) < 0.3, ends, found).astype(dtype.np)


def product(
    form: str, sizes: tuple[int, int, int], pair: tuple[DType, DType], batch: tuple[int, ...] = ()
) -> tuple[Node, dict[Node, Any], np.ndarray]:
    """The node, its operands, and its exact value. form: which operand lies transposed."""
    m, k, n = sizes
    sides = []
    for i, (dtype, shape, turned) in enumerate(
        zip(pair, ((*batch, m, k), (*batch, k, n)), (c == "T" for c in form))
    ):
        lies = (*shape[:-2], shape[-1], shape[-2]) if turned else shape
        array, node = matrix(dtype, *lies), ops.leaf(i, lies, dtype)
        sides.append((node, array, ops.transpose(node) if turned else node, turned))
    (a, of_a, left, turn_a), (b, of_b, right, turn_b) = sides
    wide_a, wide_b = (
        x.swapaxes(-1, -2).astype(np.int64) if turned else x.astype(np.int64)
        for x, turned in ((of_a, turn_a), (of_b, turn_b))
    )
    return ops.integer_matmul(left, right), {a: of_a, b: of_b}, wide_a @ wide_b


@pytest.mark.sampled(3)
@each_engine
@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_exact(engine: str, pair: Any) -> None:
    for sizes in SIZES if engine != "interpret" else SIZES[1:2]:
        for form in FORMS:
            assert exact(engine, *product(form, sizes, pair))
    assert exact(engine, *product("NT", (9, 20, 17), pair, (2,)))
    assert exact(engine, *product("NN", (4, 1, 6), pair))


def exact(engine: str, y: Node, values: dict[Node, Any], expected: np.ndarray) -> bool:
    (found,) = compute(engine, [y], values)
    return found.dtype == np.int32 and np.array_equal(found.reshape(y.shape), expected)


def _machines() -> dict[str, Any]:
    """This machine, and what others of its kind have: by the instruction and its vectors."""
    own = host.machine()
    own = replace(own, features=own.features.replace("+amx-", "-amx-"))
    without = own.features.replace("+avx512vnni", "-avx512vnni").replace("+avxvnni", "-avxvnni")
    narrow = re.sub(r"\+(avx512\w*|avx10[\w.]*)", r"-\1", own.features)
    return {
        "vpdpbusd zmm": own,
        "vpmaddwd zmm": replace(own, features=without),
        "vpdpbusd ymm": replace(own, features=narrow, vector_bytes=32),
        "vpmaddwd ymm": replace(own, features=narrow.replace("+avxvnni", "-"), vector_bytes=32),
    }


@pytest.mark.parametrize("kind", ["vpdpbusd zmm", "vpmaddwd zmm", "vpdpbusd ymm", "vpmaddwd ymm"])
def test_exact_on_other_machines(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    device("llvm")
    own = host.machine()
    if own.vector_bytes != 64 or "+avxvnni" not in own.features:
        pytest.skip("the machine lacks these instructions")
    machine = _machines()[kind]
    monkeypatch.setattr(host, "machine", lambda: machine)
    for pair in PAIRS:
        for sizes in (SIZES[0], SIZES[2]):
            for form in FORMS:
                assert exact("llvm", *product(form, sizes, pair))


def kernel_of(y: Node, target: Any) -> Kernel:
    (step,) = compile_graph(lower_graph([y]), target).steps
    assert isinstance(step.kernel, Kernel)
    return step.kernel


@pytest.mark.parametrize(
    ("cpu", "features", "width", "instruction"),
    [
        ("icelake-server", "+avx512vnni", 64, "vpdpbusd"),
        ("alderlake", "+avxvnni", 32, "vpdpbusd"),
        ("skylake-avx512", "", 64, "vpmaddwd"),
        ("haswell", "", 32, "vpmaddwd"),
    ],
)
def test_the_inner_loop(cpu: str, features: str, width: int, instruction: str) -> None:
    """One instruction for each vector, and no sum leaves its register."""
    llvm = pytest.importorskip("llvmlite.binding")
    from tilewright.codegen.llvm import Machine, emit
    from tilewright.codegen.llvm.dot import tiling
    from tilewright.runtime.native import jit

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = Machine("x86_64-unknown-linux-gnu", cpu, features, width)
    kernel = kernel_of(product("NT", (300, 300, 300), (int8, int8))[0], LLVM)
    cut = tiling(kernel, machine)
    assert cut is not None and cut.tile.places == (4 if features else 2)
    target = jit.target_machine(machine)
    module = llvm.parse_assembly(emit(kernel, machine).code)
    module.triple, module.data_layout = machine.triple, str(target.target_data)
    jit.optimize(module, target)
    text = target.emit_assembly(module)
    start = text.index("micro_packed:")
    body = text[start : text.index(".size\tmicro_packed", start)]
    rows = cut.tile.rows + cut.tile.shifts
    assert len(re.findall(rf"\b{instruction}\b", body)) == 5 * rows * cut.tile.vectors
    assert not [x for x in body.splitlines() if "rsp" in x and re.search(r"[yz]mm\d", x)]


MMA = "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32"


@pytest.mark.slow
@pytest.mark.triton
@pytest.mark.parametrize(
    ("target", "mark"),
    [
        ("sm_90", "wgmma.mma_async.sync.aligned.m64n128k32.s32.s8.s8"),
        ("sm_80", MMA),
        ("sm_100", "tcgen05.mma.cta_group::1.kind::i8"),
        ("gfx942", "v_mfma_i32_32x32x16_i8"),
    ],
)
def test_tensor_cores(target: str, mark: str) -> None:
    import triton

    from tilewright.runtime.offline import compile_offline

    if target == "sm_100" and int(triton.__version__.split(".")[1]) < 8:
        mark = MMA  # earlier ones have no tcgen05 of bytes
    a, b = (ops.leaf(i, (4096, 4096), int8) for i in range(2))
    kernel = kernel_of(ops.integer_matmul(a, ops.transpose(b)), gpu(target))
    found = compile_offline(kernel, target)
    assert mark in found.asm.get("ptx", "") + found.asm.get("amdgcn", "") and found.spills == 0


# ---- layers ----------------------------------------------------------------------------------

INPUTS, OUTPUTS, BLOCK = 96, 40, 32


def layer(op: Any, rows: int, dtype: DType) -> tuple[Node, dict[Node, Any], np.ndarray, float]:
    """(the node, its operands, the value of the layer with the same weights, how far rounding of
    the input may move it, as a part of the largest result)."""
    rng = np.random.default_rng(rows)
    x = rng.normal(size=(rows, INPUTS)).astype(dtype.np)
    bias = rng.normal(size=OUTPUTS).astype(np.float32)
    if op is ops.linear_int4:
        codes = rng.integers(0, 256, (OUTPUTS, INPUTS // BLOCK, BLOCK // 2)).astype(np.uint8)
        scale = rng.uniform(0.01, 0.02, (OUTPUTS, 3)).astype(np.float32)
        offset = -7 * scale
        whole = np.concatenate([codes & 15, codes >> 4], 2) * scale[:, :, None].astype(np.float64)
        weight = (whole + offset[:, :, None]).reshape(OUTPUTS, INPUTS)
        arrays = [x, codes, scale, offset, bias]
    else:
        codes = rng.integers(-127, 128, (OUTPUTS, INPUTS)).astype(np.int8)
        scale = rng.uniform(0.001, 0.002, OUTPUTS).astype(np.float32)
        weight = codes * scale[:, None].astype(np.float64)
        sums = [codes.sum(1, dtype=np.int32)] if op is ops.linear_dynamic else []
        arrays = [x, codes, scale, *sums, bias]
    leaves = [
        ops.leaf(i, a.shape, {x.dtype: dtype}.get(a.dtype) or _of(a)) for i, a in enumerate(arrays)
    ]
    rounded = op in (ops.linear_dynamic, ops.linear_by_rows)
    expected = x.astype(np.float64) @ weight.T + bias
    error = (0.02 if rounded else 1e-6) + (2.0**-8 if dtype is bfloat16 else 0)
    return op(*leaves), dict(zip(leaves, arrays)), expected, error


def _of(array: np.ndarray) -> DType:
    from tilewright.ir.dtype import from_numpy

    return from_numpy(array.dtype)


LAYERS = [ops.linear_int8, ops.linear_int4, ops.linear_dynamic, ops.linear_by_rows]


@pytest.mark.sampled(2)
@each_engine
@pytest.mark.parametrize("op", LAYERS, ids=lambda op: op.name)
def test_layers(engine: str, op: Any) -> None:
    for rows in (1, 3, 9):
        for dtype in (float32, bfloat16):
            y, values, expected, error = layer(op, rows, dtype)
            found = compute(engine, [y], values)[0].reshape(y.shape)
            assert found.dtype == dtype.np
            worst = np.abs(found.astype(np.float64) - expected).max()
            assert worst <= error * np.abs(expected).max()


@each_engine
def test_the_rounding_of_inputs_is_exact(engine: str) -> None:
    """With inputs that are whole steps nothing is lost but the last digits of float32."""
    codes = np.random.default_rng(0).integers(-127, 128, (6, 64)).astype(np.float32)
    codes[:, 0], codes[:, 1] = 127, -127
    weight = matrix(int8, 24, 64)
    x, w = ops.leaf(0, (6, 64), float32), ops.leaf(1, (24, 64), int8)
    scale, sums = ops.leaf(2, (24,), float32), ops.leaf(3, (24,), int32)
    exact = codes.astype(np.int64) @ weight.astype(np.int64).T
    values = {x: codes * np.float32(0.5), w: weight, scale: np.ones(24, np.float32)}
    found = compute(engine, [ops.linear_by_rows(x, w, scale)], values)[0].reshape(6, 24)
    np.testing.assert_allclose(found, exact * 0.5, rtol=1e-6)
    values |= {x: (codes + 127) * np.float32(127 / 254), sums: weight.sum(1, dtype=np.int32)}
    steps = np.rint((codes + 127) * (127 / 254)).astype(np.int64)
    found = compute(engine, [ops.linear_dynamic(x, w, scale, sums)], values)[0].reshape(6, 24)
    np.testing.assert_allclose(found, steps @ weight.astype(np.int64).T, rtol=1e-6)


@pytest.mark.parametrize("name", ["llvm", "sm_90"])
def test_what_the_rows_of_a_matrix_have_in_common_is_computed_once(name: str) -> None:
    """A row times a matrix of bytes is a fold for each row of the matrix. The activation of the row
    is made before, not in each of them; the cast of a weight is made in them."""
    x, scale = ops.leaf(0, (1, 1024), float32), ops.leaf(1, (4096,), float32)
    y = ops.linear_int8(ops.gelu(x, "none"), ops.leaf(2, (4096, 1024), int8), scale)
    steps = compile_graph(lower_graph([y]), LLVM if name == "llvm" else gpu(name)).steps
    assert len(steps) == 2
    last = steps[1].kernel
    assert isinstance(last, Kernel)
    applied = {v.op for v in last.values if isinstance(v, Apply)}
    assert ops.erf not in applied and ops.cast in applied
    assert not any(isinstance(v, Dot) for v in last.values)


@each_engine
@pytest.mark.parametrize("dtype", [int16, int32, int64, uint8], ids=lambda d: d.name)
def test_integers_of_any_width_wrap_around(engine: str, dtype: DType) -> None:
    """NumPy has no library for them, so native code multiplies them whatever their sizes."""
    rng = np.random.default_rng(0)
    least, most = np.iinfo(dtype.np).min, np.iinfo(dtype.np).max
    for m, k, n in ((90, 80, 1), (1, 200, 300), (70, 33, 40)):
        arrays = [rng.integers(least, most, s, dtype.np) for s in ((m, k), (k, n))]
        a, b = (ops.leaf(i, x.shape, dtype) for i, x in enumerate(arrays))
        root = ops.matmul(a, b)
        (found,) = compute(engine, [root], {a: arrays[0], b: arrays[1]})
        assert found.dtype == dtype.np
        np.testing.assert_array_equal(found, arrays[0] @ arrays[1])
    if host.reason_against() is None:
        check_speed(kernel_of(root, LLVM), host.machine())
