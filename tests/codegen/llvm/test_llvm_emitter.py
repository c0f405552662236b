"""Kernels whose form matters to native code; `tests/codegen/emitters` runs the others there."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import kernels
import numpy as np
import pytest
from graph_forms import GRAPHS
from kernels import WHERE, apply, at, buffer, const, load, run

pytest.importorskip("llvmlite")

from machines import MACHINES

from tilewright.codegen.kernel import (
    Buffer,
    Bundle,
    Kernel,
    Load,
    RandomBits,
    Reduce,
    Scalar,
    Store,
    data_values,
)
from tilewright.codegen.kernel.canonical import copied
from tilewright.codegen.kernel.index import Axis, Check, Data, Index, data, of
from tilewright.codegen.kernel.structure import identity, starts
from tilewright.codegen.llvm import CannotLower, emit
from tilewright.codegen.program import compile_graph, launched
from tilewright.codegen.target import LLVM
from tilewright.ir import dtype as dt
from tilewright.ir.dtype import DType
from tilewright.ir.op import Fold
from tilewright.ir.passes.pipeline import lower_graph
from tilewright.runtime.cpu.native import LlvmDevice
from tilewright.runtime.cpu.numpy import NumpyDevice
from tilewright.runtime.native import host, jit, launch

if host.reason_against() is not None:
    pytest.skip(str(host.reason_against()), allow_module_level=True)

DEVICE = LlvmDevice(force=True)


@pytest.fixture(autouse=True)
def native(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "DEVICE", DEVICE)


def test_where_slices_begin_is_no_part_of_the_code() -> None:
    moved = 0
    for make in GRAPHS.values():
        program = compile_graph(lower_graph(make()), LLVM)
        for kernel in launched(program):
            if not isinstance(kernel, Kernel) or not starts(kernel):
                continue
            other = _begun_elsewhere(kernel)
            if other is None:
                continue
            assert identity(other) == identity(kernel)
            found = [emit(k, host.machine()) for k in (kernel, other)]
            assert replace(found[0], notes="") == replace(found[1], notes="")
            moved += 1
    assert moved > 5


def _begun_elsewhere(kernel: Kernel) -> Kernel | None:
    """The kernel with slices that begin elsewhere; None if their places depend on data."""
    new = {old: 1009 * (7 - place) for place, old in enumerate(starts(kernel))}

    def moved(index: Index) -> Index:
        return Index(index.terms, new.get(index.const, index.const))

    indices = [i for v in kernel.values for i in v.indices()]
    if any(True for i in (*indices, *(s.offset for s in kernel.stores)) for _ in data_values(i)):
        return None
    made: dict[int, Any] = {}
    for value in kernel.values:
        made[id(value)] = copied(value, made, moved)
    stores = [replace(s, offset=moved(s.offset), value=made[id(s.value)]) for s in kernel.stores]
    return replace(kernel, stores=tuple(stores))


def test_every_length_of_a_row() -> None:
    """Lanes that don't exist leave no trace, in folds and in memory."""
    for length in (1, 2, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 100):
        p, r = Axis("p0", 3), Axis("r0", length)
        x, y = buffer("in0", (3, length)), buffer("out0", (3, length))
        place = at([p, r], (3, length))
        value = load(x, place)
        total = Reduce(Fold.SUM, apply("exp", value), (r,), dt.float32)
        least = Reduce(Fold.MIN, value, (r,), dt.float32)
        best = Reduce(Fold.ARGMAX, value, (r,), dt.int64)
        run(
            Kernel(
                "rows",
                (p,),
                (r,),
                (
                    Store(y, place, apply("div", apply("exp", value), total)),
                    Store(buffer("out1", (3,)), of(p), least),
                    Store(buffer("out2", (3,), dt.int64), of(p), best),
                ),
            )
        )


@pytest.mark.parametrize("half", [dt.float16, dt.bfloat16, dt.bool_, dt.int8], ids=str)
def test_narrow_elements_to_the_last(half: Any) -> None:
    for length in (1, 5, 16, 37):
        p = Axis("p0", length)
        x, y = buffer("in0", (length,), half), buffer("out0", (length,), half)
        memory = np.ones(length + 64, half.np)
        run(Kernel("copy", (p,), (), (Store(y, of(p), load(x, of(p))),)))
        DEVICE.compile(Kernel("copy", (p,), (), (Store(y, of(p), load(x, of(p))),)))(
            [memory, np.zeros(length, half.np)], []
        )
        assert not memory[:length].any() and memory[length:].all()


def test_long_sums_keep_their_digits() -> None:
    """Sums of 2^22 numbers, along lanes and across them."""
    rng = np.random.default_rng(0)
    n = 1 << 22
    values = rng.uniform(0, 1, n).astype(np.float32)
    exact = values.astype(np.float64).sum()
    r = Axis("r0", n)
    out = np.zeros(1, np.float32)
    whole = Kernel(
        "s", (), (r,), (Store(buffer("out0", (1,)), of(Axis("o", 1)), _sum(of(r), n, r)),)
    )
    DEVICE.compile(whole)([out, values], [])
    assert abs(out[0] - exact) / exact < 1e-6
    p, r = Axis("p0", 4), Axis("r0", n // 4)
    out = np.zeros(4, np.float32)
    columns = Kernel(
        "s", (p,), (r,), (Store(buffer("out0", (4,)), of(p), _sum(at([r, p], (n // 4, 4)), n, r)),)
    )
    DEVICE.compile(columns)([out, values], [])
    exact = values.reshape(-1, 4).astype(np.float64).sum(0)
    np.testing.assert_allclose(out, exact, rtol=1e-6)


@pytest.mark.parametrize("length", [4097, 8200, 9000, 19500, 40_001])
def test_rows_in_blocks(length: int) -> None:
    r, values = Axis("r0", length), np.ones(length, np.float32)
    out = np.zeros(1, np.float32)
    store = Store(buffer("out0", (1,)), of(Axis("o", 1)), _sum(of(r), length, r))
    DEVICE.compile(Kernel("s", (), (r,), (store,)))([out, values], [])
    assert out[0] == length


def _sum(place: Any, size: int, r: Axis) -> Reduce:
    return Reduce(
        Fold.SUM, Load(Buffer("in0", dt.float32, size), place, dt.float32), (r,), dt.float32
    )


def test_large_copies_across() -> None:
    p, q = Axis("p0", 130), Axis("p1", 70)
    x, y = buffer("in0", (70, 130)), buffer("out0", (130, 70))
    value = apply("mul", load(x, at([q, p], (70, 130))), const(2.0))
    run(Kernel("t", (p, q), (), (Store(y, at([p, q], (130, 70)), value),)))


def test_a_bundle_of_unequal_members_is_one_launch() -> None:
    members = []
    for size in (3, 40, 5000, 70000):
        p = Axis("p0", size)
        x, y = buffer("in0", (size,)), buffer("out0", (size,))
        value = apply("mul", load(x, of(p)), Scalar(7, dt.float32))
        members.append(Kernel("scale", (p,), (), (Store(y, of(p), value),)))
    bundle = Bundle(tuple(members))
    arrays = [np.arange(m.outputs[0].size, dtype=np.float32) for m in members]
    outs = [np.zeros_like(a) for a in arrays]
    assert DEVICE.compile(bundle)([*outs, *arrays], [0.5]) is None
    for out, array in zip(outs, arrays):
        np.testing.assert_array_equal(out, array * np.float32(0.5))
    assert len({e.code for e in launch.emitted(bundle)}) == 1


@pytest.mark.parametrize("dtype", [dt.uint32, dt.uint64], ids=str)
def test_random_bits_are_the_same_on_any_lane(dtype: DType) -> None:
    n = 100_003
    p = Axis("p0", n)
    y = buffer("out0", (n,), dtype)
    bits = RandomBits(Scalar(0, dt.int64), Scalar(1, dt.int64), of(p), dtype)
    kernel = Kernel("bits", (p,), (), (Store(y, of(p), bits),))
    mine, other = np.zeros(n, dtype.np), np.zeros(n, dtype.np)
    DEVICE.compile(kernel)([mine], [12345678901, -7])
    NumpyDevice().compile(kernel)([other], [12345678901, -7])
    np.testing.assert_array_equal(mine, other)


def test_the_first_bad_position_is_told_with_the_users_line() -> None:
    n = 200_000
    p = Axis("p0", n)
    index, table, y = buffer("in0", (n,), dt.int64), buffer("in1", (10,)), buffer("out0", (n,))
    place = data(Data(Load(index, of(p), dt.int64), Check(10, 0, WHERE)))
    kernel = Kernel("g", (p,), (), (Store(y, of(p), Load(table, place, dt.float32)),))
    run_it = DEVICE.compile(kernel)
    positions = np.zeros(n, np.int64)
    arrays = {b: a for b, a in ((y, np.zeros(n, np.float32)), (index, positions))}
    arrays[table] = np.arange(10, dtype=np.float32)
    buffers = [arrays[b] for b in (*kernel.outputs, *kernel.inputs)]
    run_it(buffers, [])
    positions[[5, 150_000]] = 33, -4
    for _ in range(20):
        with pytest.raises(
            IndexError, match=r"index 33 is out of bounds .* size 10 \(train.py:31\)"
        ):
            run_it(buffers, [])


def test_sizes_are_arguments() -> None:
    def kernel(rows: int, columns: int) -> Kernel:
        p, r = Axis("p0", rows), Axis("r0", columns)
        x, y = buffer("in0", (rows, columns)), buffer("out0", (rows, columns))
        value = load(x, at([p, r], (rows, columns)))
        total = Reduce(Fold.SUM, value, (r,), dt.float32)
        return Kernel(
            "k", (p,), (r,), (Store(y, at([p, r], (rows, columns)), apply("div", value, total)),)
        )

    machine = host.machine()
    assert emit(kernel(100, 200), machine).code == emit(kernel(37, 1000), machine).code


def test_what_cannot_be_native_says_so() -> None:
    p = Axis("p0", 4)
    x, y = buffer("in0", (4,)), buffer("out0", (4,))
    value = apply("zeta", load(x, of(p)), const(2.0))
    kernel = Kernel("z", (p,), (), (Store(y, of(p), value),))
    with pytest.raises(CannotLower, match="zeta"):
        emit(kernel, host.machine())
    run(kernel, in0=np.array([2.0, 3, 4, 5]))  # by NumPy
    assert "zeta" in DEVICE.fallbacks["z"]


@pytest.mark.parametrize("name", MACHINES)
def test_cross_compiled(name: str) -> None:
    """Softmax for other machines: their vector instructions are used, and no call is left."""
    import llvmlite.binding as llvm

    machine, expected = MACHINES[name]
    try:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        target = llvm.Target.from_triple(machine.triple)
    except RuntimeError as error:
        pytest.skip(f"this LLVM has no {machine.triple}: {error}")
    target = target.create_target_machine(cpu=machine.cpu, opt=2)
    p, r = Axis("p0", 64), Axis("r0", 512)
    x, y = buffer("in0", (64, 512)), buffer("out0", (64, 512))
    value = load(x, at([p, r], (64, 512)))
    shifted = apply("sub", value, Reduce(Fold.MAX, value, (r,), dt.float32))
    e = apply("exp", shifted)
    total = Reduce(Fold.SUM, e, (r,), dt.float32)
    kernel = Kernel(
        "softmax", (p,), (r,), (Store(y, at([p, r], (64, 512)), apply("div", e, total)),)
    )
    module = llvm.parse_assembly(emit(kernel, machine).code, llvm.create_context())
    module.triple, module.data_layout = machine.triple, str(target.target_data)
    module.verify()
    jit.optimize(module, target)
    text = target.emit_assembly(module)
    assert re.search(expected, text), text[:2000]
    assert not re.search(r"\bcallq?\b|\tbl\t", text), "something is left to a library"
