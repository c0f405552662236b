"""The pack of ready object code: the same results, and no trust in a wrong file."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.runtime import baseline, cache
from tilewright.runtime.baseline import maps
from tilewright.runtime.native import host, jit, pack, source
from tilewright.runtime.native.calls import Flat
from tilewright.runtime.native.image import Loaded, link

RUN = {name: each for name, each in pack.MACHINES.items() if pack.fits(each)}
pytestmark = pytest.mark.skipif(
    host.reason_against() is not None or not host.is_proven() or not RUN,
    reason="no native code here, or not this processor",
)
MACHINE = pack.MACHINES["x86_64-linux.pack"]


def _written(folder: Path, name: str) -> Path:
    machine, file = pack.MACHINES[name], folder / name
    kernels = list(baseline.all_kernels(machine))
    codes = {name: code for name, _, code in kernels}
    codes.update((name, code + machine.attributes) for name, code in baseline.all_code(machine))
    entries = source.text("x86_64")
    codes[cache.digest(entries)] = entries
    objects = {name: jit.assemble(code, machine) for name, code in codes.items()}
    pack.write(objects, {name: layout for name, layout, _ in kernels}, file)
    return file


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _written(tmp_path_factory.mktemp("pack"), next(iter(RUN)))


def _take(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have this file be the pack for this machine."""
    monkeypatch.setattr(pack, "file", lambda: file)
    pack._content.cache_clear()


@pytest.fixture
def own(made: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    _take(made, monkeypatch)
    yield made
    pack._content.cache_clear()


def test_a_process_takes_the_first_pack_that_its_processor_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    narrow = {"avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt", "movbe"}
    wide = {*narrow, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
    for features, name in (
        (narrow, "x86_64-linux.pack"),
        ({*narrow, "avx512f"}, "x86_64-linux.pack"),
        (wide, "x86_64-v4-linux.pack"),
        ({"avx2"}, None),
    ):
        monkeypatch.setattr(host, "features", lambda found=features: found)
        file = pack.file()
        assert (file and file.name) == name


@pytest.mark.slow
@pytest.mark.parametrize("name", RUN)
def test_kernels_are_those_compiled_for_this_machine(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _take(_written(tmp_path, name), monkeypatch)
    try:
        _compare_with_compiled()
    finally:
        pack._content.cache_clear()


def _compare_with_compiled() -> None:
    rng = np.random.default_rng(0)
    count, deciding = 0, {op.name for op in maps._DECIDING}  # which compare numbers themselves
    for name, layout, code in baseline.all_kernels(host.machine()):
        packed = jit.packed(name)
        assert packed is not None and pack.layout(name) == layout
        ready, compiled = Flat(layout, packed), Flat(layout, jit.link(code, "kernel"))
        if name.startswith("random"):
            arrays, numbers = [], [5, 7]
            dtype = np.dtype(np.uint32 if name == "random_bits" else np.uint64)
        else:
            dtype, numbers = np.dtype(name.split()[-1]), [0.5] * len(layout.scalars)
            arrays = [rng.uniform(-5, 5, 70_001).astype(dtype) for _ in layout.order]
            if name.startswith("cast"):
                dtype = np.dtype(name.split()[1].removeprefix("torch."))
            if name.startswith("where") and name.split()[1] not in deciding:
                arrays = [arrays[0] > 0 if i == 0 else a for i, a in zip(layout.order, arrays)]
            if name.startswith("recurrence"):
                last = max(layout.order)  # whether a row is valid
                arrays = [a[:1] > 0 if i == last else a for i, a in zip(layout.order, arrays)]
        for size in (1, 15, 70_001):
            both = np.zeros((2, len(layout.results), size), dtype)  # comparisons write bytes
            for kernel, outs in zip((ready, compiled), both, strict=True):
                kernel((*outs, *[a[:size] for a in arrays]), size, numbers)
            np.testing.assert_array_equal(*both, err_msg=name)
        count += 1
    assert count > 40


def test_a_wrong_file_is_no_pack(own: Path, monkeypatch: Any, tmp_path: Path) -> None:
    assert pack.addresses("exp float32") and pack.addresses("no such op") is None
    assert pack.layout("no such op") is None
    whole = own.read_bytes()
    damaged = whole[:-5000] + bytes([whole[-5000] ^ 1]) + whole[-4999:]
    other = whole.replace(b'"sources": "', b'"sources": "0')
    for content in (b"", b"{}", b"[1]\n", other, whole[:-1], damaged):
        wrong = tmp_path / "wrong.pack"
        wrong.write_bytes(content)
        _take(wrong, monkeypatch)
        assert pack.addresses("exp float32") is None
    _take(tmp_path / "missing.pack", monkeypatch)
    assert pack.addresses("exp float32") is None


def test_a_stale_pack_is_said(
    own: Path, monkeypatch: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """First steps take ten times as long without a pack, so TW_DEBUG says that there is none."""
    stale = tmp_path / "stale.pack"
    stale.write_bytes(own.read_bytes().replace(b'"sources": "', b'"sources": "0'))
    monkeypatch.setenv("TW_DEBUG", "1")
    for file, state in ((stale, "other sources"), (tmp_path / "missing.pack", "is not there")):
        _take(file, monkeypatch)
        assert pack.addresses("exp float32") is None
        assert state in capsys.readouterr().err


def test_a_first_call_compiles_nothing(run_python: Any, own: Path) -> None:
    """With a pack, neither LLVM's optimizer nor the compiler's modules are needed."""
    code = """
import sys
from pathlib import Path
from tilewright.runtime.native import pack
pack.file = lambda: Path(sys.argv[1])
import tilewright as torch
from tilewright.runtime.native import jit
x = torch.linspace(-1, 1, 9)
print(x.exp().sum().item() > 9, x.tanh().sum().item())
x = torch.ones(1, 2, 4, 4).requires_grad_()
torch.nn.functional.conv2d(x, torch.ones(3, 2, 3, 3)).sum().backward()
print(x.grad.sum().item())
loaded = [name in sys.modules for name in ("tilewright.codegen.fusion", "llvmlite")]
print(*loaded, jit.statistics.compiled)
"""
    said = run_python(code, str(own), env={"TW_TIER": "auto"}).split()
    assert said[0] == "True" and said[2:] == ["216.0", "False", "False", "0"]


CALLS = """
declare double @cos(double)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
@outside = external global i64
define double @kernel(double %x) {
  %y = call double @cos(double %x)
  %z = fadd double %y, 0x400921FB54442D18
  ret double %z
}
define i64 @place() {
  %a = ptrtoint ptr @outside to i64
  ret i64 %a
}
define void @copy(ptr %to, ptr %from, i64 %n) {
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %n, i1 false)
  ret void
}
"""


def _in_memory(objects: dict[str, bytes]) -> tuple[Any, Loaded]:
    made = link(objects)

    def read(memory: memoryview) -> None:
        memory[:] = made.code

    return made, Loaded(len(made.code), made.imports, read)


def test_an_image_calls_what_lies_outside() -> None:
    """Functions, constants and addresses outside, in the second of two modules."""
    objects = {
        "first": jit.assemble("define i32 @kernel() {\n  ret i32 7\n}\n", MACHINE),
        "second": jit.assemble(CALLS, MACHINE),
    }
    made, loaded = _in_memory(objects)
    assert set(made.imports) == {"cos", "memcpy", "outside"}
    first = loaded.addresses(made.modules["first"], lambda name: None)
    assert ctypes.CFUNCTYPE(ctypes.c_int32)(first["kernel"])() == 7
    with pytest.raises(LookupError, match="outside is not in this process"):
        loaded.addresses(made.modules["second"], host.address_of)
    known = {"outside": 123_456_789_012}
    found = loaded.addresses(made.modules["second"], lambda n: known.get(n) or host.address_of(n))
    kernel = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(found["kernel"])
    assert kernel(1.25) == math.cos(1.25) + math.pi
    assert ctypes.CFUNCTYPE(ctypes.c_int64)(found["place"])() == known["outside"]
    source, target = np.arange(9.0), np.zeros(9)
    copy = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(found["copy"])
    copy(target.ctypes.data, source.ctypes.data, source.nbytes)
    np.testing.assert_array_equal(target, source)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("@v = global i64 5\ndefine ptr @kernel() {\n  ret ptr @v\n}\n", "variables"),
        ("@t = constant ptr @f\ndefine void @f() {\n  ret void\n}\n", "variables|relocation"),
    ],
)
def test_what_would_not_run_anywhere_is_no_image(code: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        link({"module": jit.assemble(code, MACHINE)})
    with pytest.raises(ValueError, match="not an object file"):
        link({"module": b"MZ"})
