"""Contractions as native code: every tail, every transpose, operands and results of any kind."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from kernels import apply, at, buffer, const, load

pytest.importorskip("llvmlite")

from tilewright.codegen.kernel import (
    Condition,
    Dot,
    Guard,
    Kernel,
    Store,
    Value,
)
from tilewright.codegen.kernel.index import Axis, Index, of
from tilewright.codegen.llvm import CannotLower, Machine, emit
from tilewright.codegen.llvm.choice import check_speed
from tilewright.codegen.llvm.dot import cut, tiling
from tilewright.codegen.llvm.dot.words import words_for
from tilewright.ir import dtype as dt
from tilewright.ir.dtype import DType
from tilewright.runtime.cpu.native import LlvmDevice
from tilewright.runtime.native import host, pool

if host.reason_against() is not None:
    pytest.skip(str(host.reason_against()), allow_module_level=True)

DEVICE = LlvmDevice(force=True)
AVX2 = Machine("x86_64-unknown-linux-gnu", "haswell", "", 32)
AVX512 = Machine("x86_64-unknown-linux-gnu", "skylake-avx512", "", 64)
WITH_BF16 = Machine("x86_64-unknown-linux-gnu", "cooperlake", "+avx512bf16", 64)
WITH_SQUARES = Machine(
    "x86_64-unknown-linux-gnu", "sapphirerapids", "+amx-tile,+amx-bf16,+amx-int8,+avx512bw", 64
)
NEON = Machine("aarch64-unknown-linux-gnu", "neoverse-n1", "", 16)
EPSILON = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 2e-7, "float64": 1e-15}

Epilogue = Callable[[Value, Index, Axis, Axis], tuple[Store, ...]]


def product(
    m: int,
    n: int,
    k: int,
    form: str = "NN",
    batch: Sequence[int] = (),
    dtype: DType = dt.float32,
    shared_b: bool = False,
    epilogue: Epilogue | None = None,
) -> Kernel:
    """a @ b; form: which of them lies transposed. shared_b: `b` has no batch axes."""
    axes = [Axis(f"p{i}", e) for i, e in enumerate((*batch, m, n))]
    *lead, i, j = axes
    r = Axis("r0", k)
    lead_b, batch_b = ([], []) if shared_b else (lead, batch)
    a, b = buffer("in0", (*batch, m, k), dtype), buffer("in1", (*batch_b, k, n), dtype)
    of_a = (
        at([*lead, r, i], (*batch, k, m)) if form[0] == "T" else at([*lead, i, r], (*batch, m, k))
    )
    of_b = (
        at([*lead_b, j, r], (*batch_b, n, k))
        if form[1] == "T"
        else at([*lead_b, r, j], (*batch_b, k, n))
    )
    wide = dt.float64 if dtype is dt.float64 else dt.float32
    dot = Dot(load(a, of_a), load(b, of_b), (r,), wide, dtype)
    place = at(axes, (*batch, m, n))
    stores = (
        (Store(buffer("out0", (*batch, m, n), dtype), place, dot),)
        if epilogue is None
        else epilogue(dot, place, i, j)
    )
    return Kernel("gemm", tuple(axes), (r,), stores)


def operands(
    m: int, n: int, k: int, form: str, batch: Sequence[int], dtype: DType, shared_b: bool = False
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The buffers by name, as they lie in memory, and the product in float64."""
    rng = np.random.default_rng(m * 10007 + n * 101 + k)
    a = rng.standard_normal((*batch, m, k)).astype(dtype.np)
    b = rng.standard_normal((*(() if shared_b else batch), k, n)).astype(dtype.np)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    turned = [x.swapaxes(-1, -2) if t == "T" else x for x, t in zip((a, b), form)]
    return {f"in{i}": np.ascontiguousarray(x) for i, x in enumerate(turned)}, exact


def launched(kernel: Kernel, arrays: dict[str, np.ndarray], device: Any = DEVICE) -> dict[str, Any]:
    """The outputs of a kernel, by name."""
    outputs = {
        b.name: np.full(b.size, 77, b.dtype.np)
        if b.dtype.is_floating_point
        else np.zeros(b.size, b.dtype.np)
        for b in kernel.outputs
    }
    held = arrays | outputs
    device.compile(kernel)([held[b.name] for b in (*kernel.outputs, *kernel.inputs)], [])
    return outputs


def check(
    m: int, n: int, k: int, form: str = "NN", batch: Sequence[int] = (),
    dtype: DType = dt.float32, shared_b: bool = False,
) -> None:  # fmt: skip
    arrays, exact = operands(m, n, k, form, batch, dtype, shared_b)
    out = launched(product(m, n, k, form, batch, dtype, shared_b), arrays)["out0"]
    error = np.abs(out.astype(np.float64).reshape(exact.shape) - exact).max(initial=0.0)
    bound = EPSILON[dtype.name] * 16 * math.sqrt(max(k, 1)) * (1 if dtype.itemsize > 2 else 2)
    assert error <= bound, f"off by {error}, not {bound}"


FORMS = ("NN", "NT", "TN", "TT")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("m", [1, 5, 6, 13, 97])
def test_tails_on_every_side(m: int, form: str) -> None:
    for n in (1, 8, 15, 16, 17, 33):
        for k in (1, 3, 8, 31, 257):
            check(m, n, k, form)


@pytest.mark.parametrize("form", FORMS)
def test_sums_of_two_or_three_products(form: str) -> None:
    """The first layer of a network over coordinates."""
    for k in (2, 3):
        assert tiling(product(300, 64, k, form), AVX2) is not None
        check(300, 64, k, form)
        check(300, 37, k, form, dtype=dt.float64)


@pytest.mark.parametrize("form", FORMS)
def test_several_blocks_of_every_axis(form: str) -> None:
    check(205, 530, 600, form)


@pytest.mark.parametrize("dtype", [dt.float64, dt.float16, dt.bfloat16], ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_dtypes(form: str, dtype: DType) -> None:
    for m, n, k in ((64, 64, 64), (37, 50, 300), (7, 9, 11)):
        check(m, n, k, form, dtype=dtype)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("shared_b", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_batches(form: str, shared_b: bool) -> None:
    check(40, 48, 24, form, (3, 5), shared_b=shared_b)
    check(19, 23, 29, form, (7,), shared_b=shared_b)


def test_nothing_to_sum() -> None:
    check(20, 20, 0)


def test_what_is_packed_in_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too wide for the workspace, too many, and both."""
    monkeypatch.setattr(cut, "PACKED", 20_000)
    for form in FORMS:
        check(70, 300, 100, form)
        check(33, 30, 40, form, (11,))
        check(33, 300, 100, form, (3,))
    kernel = product(70, 300, 100)
    assert len(emit(kernel, host.machine()).phases) > 2


# Epilogues and operands that are computed.


def test_bias_activation_residual_and_a_second_result() -> None:
    m, n, k = 50, 70, 40
    bias, residual = buffer("in2", (n,)), buffer("in3", (m, n))

    def epilogue(dot: Value, place: Index, i: Axis, j: Axis) -> tuple[Store, ...]:
        raw = apply("add", apply("mul", dot, const(0.25)), load(bias, of(j)))
        new = apply("add", apply("relu", raw), load(residual, place))
        return (
            Store(buffer("out0", (m, n)), place, new),
            Store(buffer("out1", (m, n), dt.float16), place, apply("tanh", raw)),
            Store(
                buffer("out2", (m, n), dt.bool_),
                place,
                apply("gt", raw, const(0.0), dtype=dt.bool_),
            ),
        )

    arrays, exact = operands(m, n, k, "NT", (), dt.float32)
    rng = np.random.default_rng(5)
    arrays["in2"] = rng.standard_normal(n).astype(np.float32)
    arrays["in3"] = rng.standard_normal((m, n)).astype(np.float32)
    out = launched(product(m, n, k, "NT", epilogue=epilogue), arrays)
    raw = exact * 0.25 + arrays["in2"]
    expected = np.maximum(raw, 0) + arrays["in3"]
    np.testing.assert_allclose(out["out0"].reshape(m, n), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(out["out1"].reshape(m, n), np.tanh(raw), rtol=2e-3, atol=2e-3)
    assert (out["out2"].reshape(m, n) == (raw > 0)).mean() > 0.999


def test_stores_that_transpose() -> None:
    """Lanes run along whichever axis of the result its stores have neighbours along."""
    m, n, k = 45, 70, 33
    arrays, exact = operands(m, n, k, "NN", (), dt.float32)

    def epilogue(dot: Value, place: Index, i: Axis, j: Axis) -> tuple[Store, ...]:
        return (Store(buffer("out0", (n, m)), at([j, i], (n, m)), dot),)

    kernel = product(m, n, k, epilogue=epilogue)
    out = launched(kernel, arrays)["out0"]
    np.testing.assert_allclose(out.reshape(n, m).T, exact, rtol=1e-4, atol=1e-4)
    found = tiling(kernel, host.machine())
    assert found is not None and found.n is kernel.parallel[0]


def test_heads_are_rows_and_columns_of_several_axes() -> None:
    """[b, t, c] @ [c, h * d] stored as [b, h, t, d]: rows and columns that don't merge."""
    b, t, c, h, d = 3, 20, 24, 4, 16
    axes = [Axis(f"p{i}", e) for i, e in enumerate((b, t, h, d))]
    i, s, g, e = axes
    r = Axis("r0", c)
    x, w, y = buffer("in0", (b, t, c)), buffer("in1", (c, h, d)), buffer("out0", (b, h, t, d))
    dot = Dot(load(x, at([i, s, r], (b, t, c))), load(w, at([r, g, e], (c, h, d))), (r,),
              dt.float32, dt.float32)  # fmt: skip
    kernel = Kernel("heads", tuple(axes), (r,), (Store(y, at([i, g, s, e], (b, h, t, d)), dot),))
    rng = np.random.default_rng(0)
    arrays = {
        "in0": rng.standard_normal((b, t, c)).astype(np.float32),
        "in1": rng.standard_normal((c, h, d)).astype(np.float32),
    }
    out = launched(kernel, arrays)["out0"].reshape(b, h, t, d)
    exact = np.einsum("btc,chd->bhtd", *(a.astype(np.float64) for a in arrays.values()))
    np.testing.assert_allclose(out, exact, rtol=1e-4, atol=1e-4)
    assert tiling(kernel, host.machine()) is not None


@pytest.mark.parametrize("form", FORMS)
def test_operands_that_are_computed(form: str) -> None:
    """exp of one, and the other guarded: rows of a smaller matrix, zeros around it."""
    m, n, k, low = 30, 40, 300, 3
    i, j, r = Axis("p0", m), Axis("p1", n), Axis("r0", k)
    a, b = buffer("in0", (m, k)), buffer("in1", (k - 2 * low, n))
    of_a = at([r, i], (k, m)) if form[0] == "T" else at([i, r], (m, k))
    inner = of(r) - low
    of_b = at([j, inner], (n, k - 2 * low)) if form[1] == "T" else at([inner, j], (k - 2 * low, n))
    zero = const(0.0)
    guarded = Guard((Condition(inner, 0, k - 2 * low),), load(b, of_b), zero, dt.float32)
    dot = Dot(apply("exp", load(a, of_a)), guarded, (r,), dt.float32, dt.float32)
    kernel = Kernel("g", (i, j), (r,), (Store(buffer("out0", (m, n)), at([i, j], (m, n)), dot),))
    rng = np.random.default_rng(1)
    x = rng.standard_normal((m, k)).astype(np.float32)
    y = rng.standard_normal((k - 2 * low, n)).astype(np.float32)
    arrays = {
        "in0": np.ascontiguousarray(x.T if form[0] == "T" else x),
        "in1": np.ascontiguousarray(y.T if form[1] == "T" else y),
    }
    out = launched(kernel, arrays)["out0"].reshape(m, n)
    exact = np.exp(x.astype(np.float64))[:, low : k - low] @ y.astype(np.float64)
    np.testing.assert_allclose(out, exact, rtol=1e-4, atol=1e-4)
    assert tiling(kernel, host.machine()) is not None


def test_sums_over_two_axes() -> None:
    """x[b, t, i] and y[b, t, j], padded between the rows of t, so that b and t don't merge."""
    b, t, pad, m, n = 5, 40, 3, 32, 48
    i, j, r, s = Axis("p0", m), Axis("p1", n), Axis("r0", b), Axis("r1", t)
    x, y = buffer("in0", (b, t + pad, m)), buffer("in1", (b, t, n))
    dot = Dot(load(x, at([r, s, i], (b, t + pad, m))), load(y, at([r, s, j], (b, t, n))), (r, s),
              dt.float32, dt.float32)  # fmt: skip
    store = Store(buffer("out0", (m, n)), at([i, j], (m, n)), dot)
    rng = np.random.default_rng(1)
    arrays = {
        "in0": rng.standard_normal((b, t + pad, m)).astype(np.float32),
        "in1": rng.standard_normal((b, t, n)).astype(np.float32),
    }
    out = launched(Kernel("g", (i, j), (r, s), (store,)), arrays)["out0"].reshape(m, n)
    exact = np.einsum("bti,btj->ij", arrays["in0"][:, :t].astype(np.float64), arrays["in1"])
    np.testing.assert_allclose(out, exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("form", FORMS)
def test_nan_and_infinity_stay_in_their_rows_and_columns(form: str) -> None:
    m, n, k = 31, 45, 66
    arrays, _ = operands(m, n, k, form, (), dt.float32)
    a, b = (arrays[f"in{i}"].T if t == "T" else arrays[f"in{i}"] for i, t in enumerate(form))
    a[30, 65], a[4, 0], b[3, 44] = np.nan, np.inf, -np.inf
    out = launched(product(m, n, k, form), arrays)["out0"].reshape(m, n)
    with np.errstate(invalid="ignore"):
        exact = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_array_equal(np.isnan(out), np.isnan(exact))
    np.testing.assert_array_equal(np.isinf(out), np.isinf(exact))
    finite = np.isfinite(exact)
    np.testing.assert_allclose(out[finite], exact[finite], rtol=1e-4, atol=1e-4)


def test_the_same_bits_with_any_number_of_threads() -> None:
    arrays, _ = operands(300, 400, 700, "NT", (), dt.float32)
    kernel = product(300, 400, 700, "NT")
    before = pool.num_threads()
    found = []
    try:
        for threads in (1, 2, 3):
            pool.set_num_threads(threads)
            found.append(launched(kernel, arrays)["out0"])
    finally:
        pool.set_num_threads(before)
    assert all((f.view(np.int32) == found[0].view(np.int32)).all() for f in found)


def test_launches_of_several_threads_have_their_own_workspace() -> None:
    from concurrent.futures import ThreadPoolExecutor

    arrays, exact = operands(200, 200, 200, "NT", (), dt.float32)
    kernel = product(200, 200, 200, "NT")
    with ThreadPoolExecutor(6) as threads:
        runs = list(threads.map(lambda _: launched(kernel, arrays)["out0"], range(24)))
    for out in runs:
        np.testing.assert_allclose(out.reshape(200, 200), exact, rtol=1e-3, atol=1e-3)
    space = pool.pool().workspaces
    assert space.size > 0
    space.release()
    assert space.size == 0


# The code.


def assembly(kernel: Kernel, machine: Machine) -> str:
    import llvmlite.binding as llvm

    from tilewright.runtime.native import jit

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(machine.triple).create_target_machine(
        cpu=machine.cpu, features=machine.features, opt=2, reloc="pic"
    )
    module = llvm.parse_assembly(emit(kernel, machine).code, llvm.create_context())
    module.triple, module.data_layout = machine.triple, str(target.target_data)
    jit.optimize(module, target)
    text: str = target.emit_assembly(module)
    return text


@pytest.mark.parametrize("dtype", [dt.float32, dt.float64, dt.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("machine", "fused", "spill"),
    [(AVX2, "vfmadd231p", "rsp"), (AVX512, "vfmadd231p", "rsp"), (NEON, "fmla\t", "[sp")],
    ids=["avx2", "avx512", "neon"],
)
def test_the_inner_loop_is_fused_vectors_in_registers(
    machine: Machine, fused: str, spill: str, dtype: DType
) -> None:
    text = assembly(product(300, 300, 300, "NT", dtype=dtype), machine)
    start = text.index("micro_packed:")
    body = text[start : text.index(".size\tmicro_packed", start)]
    found = tiling(product(300, 300, 300, "NT", dtype=dtype), machine)
    assert found is not None
    tile = found.tile
    # Four steps at a time, and one by one at the end.
    assert body.count(fused) == 5 * tile.rows * tile.vectors
    spilled = [
        line for line in body.splitlines() if spill in line and re.search(r"[yz]mm\d|q\d", line)
    ]
    assert not spilled
    lanes = {32: "ymm", 64: "zmm"}.get(machine.vector_bytes, ".2d" if tile.lanes == 2 else ".4s")
    assert lanes in body


def test_pairs_of_bfloat16_take_one_instruction() -> None:
    kernel = product(300, 300, 300, "NT", dtype=dt.bfloat16)
    found = tiling(kernel, WITH_BF16)
    assert found is not None and found.tile.places == 2 and found.summed == 150
    text = assembly(kernel, WITH_BF16)
    start = text.index("micro_packed:")
    body = text[start : text.index(".size\tmicro_packed", start)]
    assert body.count("vdpbf16ps") == 5 * found.tile.rows * found.tile.vectors
    assert not [x for x in body.splitlines() if "rsp" in x and "zmm" in x]


@pytest.mark.parametrize(
    ("m", "n", "registers"), [(300, 300, 8), (300, 16, 5), (12, 300, 5), (12, 16, 3)]
)
def test_matrix_registers_multiply_bfloat16(m: int, n: int, registers: int) -> None:
    """Tiles of sums are registers, which are loaded or zero first, and stored at last."""
    kernel = product(m, n, 300, "NT", dtype=dt.bfloat16)
    found = tiling(kernel, WITH_SQUARES)
    assert found is not None and found.summed == 160  # 150 pairs, in whole registers
    text = assembly(kernel, WITH_SQUARES)
    start = text.index("micro_packed:")
    body = text[start : text.index(".size\tmicro_packed", start)]
    high, wide = found.tile.rows // 16, found.tile.vectors
    assert high * wide + high + wide == registers
    assert body.count("tdpbf16ps") == body.count("tilezero") == high * wide
    assert body.count("tilestored") == high * wide
    assert text.count("ldtilecfg") == text.count("tilerelease") == 1


@pytest.mark.skipif(not host.machine().multiplies_squares, reason="no matrix registers")
@pytest.mark.parametrize("form", FORMS)
def test_what_matrix_registers_sum(form: str) -> None:
    """Rows, columns and sums that end inside of a register, or of a block."""
    for m, n, k in ((16, 16, 32), (33, 31, 97), (1, 513, 64), (257, 8, 33), (300, 520, 1100)):
        if m * n >= 64:
            check(m, n, k, form, dtype=dt.bfloat16)
    check(40, 48, 33, form, (2, 2), dt.bfloat16, shared_b=True)


@pytest.mark.skipif(not host.machine().multiplies_halves, reason="no products of pairs")
@pytest.mark.parametrize("form", FORMS)
def test_what_pairs_sum(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a processor without matrix registers."""
    own = host.machine()
    without = replace(own, features=own.features.replace("+amx-", "-amx-"))
    monkeypatch.setattr(host, "machine", lambda: without)
    for m, n, k in ((64, 33, 257), (13, 70, 1), (100, 16, 31)):
        check(m, n, k, form, dtype=dt.bfloat16)


@pytest.mark.parametrize(
    ("pair", "instruction"),
    [
        ((dt.int8, dt.int8), "tdpbssd"),
        ((dt.int8, dt.uint8), "tdpbsud"),
        ((dt.uint8, dt.int8), "tdpbusd"),
        ((dt.uint8, dt.uint8), "tdpbuud"),
    ],
    ids=str,
)
def test_matrix_registers_multiply_bytes(pair: tuple[DType, DType], instruction: str) -> None:
    a, b = pair
    kernel = product(300, 300, 300, "NT", dtype=dt.int8)
    (dot,) = (v for v in kernel.values if isinstance(v, Dot))
    words = words_for(WITH_SQUARES, replace(dot, dtype=dt.int32), *(
        replace(x, dtype=d) for x, d in zip((dot.a, dot.b), (a, b))
    ))  # fmt: skip
    assert words is not None and words.squares == instruction and words.places == 4


def test_matrix_registers_need_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_allows_matrices", lambda: False)
    refused = host.machine.__wrapped__()
    assert not refused.multiplies_squares and "+amx" not in refused.features


@pytest.mark.parametrize("form", FORMS)
def test_sums_of_an_odd_number_of_bfloat16(form: str) -> None:
    for m, n, k in ((64, 33, 257), (13, 70, 1), (100, 16, 31), (5, 300, 515)):
        check(m, n, k, form, dtype=dt.bfloat16)
    check(21, 34, 9, form, (3,), dt.bfloat16, shared_b=True)


def test_kernels_of_one_structure_share_their_code() -> None:
    codes = {emit(product(m, n, k, "NT"), host.machine()).code for m, n, k in
             ((300, 800, 500), (512, 768, 768), (200, 3072, 700))}  # fmt: skip
    assert len(codes) == 1


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", [dt.float32, dt.float64, dt.float16], ids=str)
@pytest.mark.parametrize("m", [5, 8, 17, 48])
def test_few_rows_times_a_matrix_that_stays_where_it_is(m: int, dtype: DType) -> None:
    """The product is computed turned, and transposed before its epilogue."""
    found = tiling(product(m, 300, 200, "NT", dtype=dtype), host.machine())
    assert found is not None and found.turned
    for n, k in ((300, 200), (193, 7), (400, 515)):
        check(m, n, k, "NT", dtype=dtype)
    check(m, 210, 33, "NT", (3,), dtype=dtype)
    bias = buffer("in2", (300,))

    def epilogue(dot: Value, place: Index, i: Axis, j: Axis) -> tuple[Store, ...]:
        return (Store(buffer("out0", (m, 300)), place, apply("add", dot, load(bias, of(j)))),)

    arrays, exact = operands(m, 300, 64, "NT", (), dt.float32)
    arrays["in2"] = np.arange(300, dtype=np.float32)
    out = launched(product(m, 300, 64, "NT", epilogue=epilogue), arrays)["out0"]
    expected = exact + arrays["in2"]
    np.testing.assert_allclose(out.reshape(m, 300), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("m", [1, 2, 3])
def test_few_rows_of_halves_are_not_left_to_blas(m: int) -> None:
    """It would be given copies in float32."""
    with pytest.raises(CannotLower, match="left to BLAS"):
        check_speed(product(m, 300, 200, "NT"), AVX2)
    for dtype in (dt.float16, dt.bfloat16):
        for form in ("NN", "NT"):
            check_speed(product(m, 300, 200, form, dtype=dtype), AVX2)
            check(m, 300, 200, form, dtype=dtype)
