"""Which engine the device `cpu` gets: by TW_CPU, by platform, and by what is installed."""

from __future__ import annotations

import importlib.util
import platform
import sys
from collections.abc import Iterator

import pytest
from conftest import RunPython

from tilewright.runtime.cpu import native
from tilewright.runtime.cpu.numpy import NumpyDevice
from tilewright.runtime.native import host

needs_llvm = pytest.mark.skipif(host.reason_against() is not None, reason="no native code here")
WHICH = """
from tilewright.runtime import devices
device = devices.get("cpu")
print(type(device).__name__)
"""
STEP = """
import tilewright as tw
x = tw.tensor([[1.0, -2.0], [3.0, 0.5]], requires_grad=True)
y = (tw.softmax(x, 1) * x).sum()
y.backward()
print([round(v, 5) for v in (*x.grad.view(-1).tolist(), y.item())])
"""
WITHOUT = "import sys\nsys.modules['llvmlite'] = None\n"


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """What is remembered of this machine is forgotten before and after."""
    known = host.reason_against, host.machine, host.features
    for each in known:
        each.cache_clear()
    yield
    for each in known:
        each.cache_clear()


@needs_llvm
@pytest.mark.parametrize(
    ("choice", "expected"),
    [("numpy", "NumpyDevice"), ("auto", "LlvmDevice"), ("llvm", "LlvmDevice")],
)
def test_the_environment_chooses(run_python: RunPython, choice: str, expected: str) -> None:
    assert run_python(WHICH, env={"TW_CPU": choice}) == f"{expected}\n"


@needs_llvm
@pytest.mark.skipif(not host.is_proven(), reason="native code isn't the default here")
def test_native_code_is_the_default_where_it_is_proven(run_python: RunPython) -> None:
    assert run_python(WHICH, env={"TW_CPU": ""}) == "LlvmDevice\n"


@pytest.mark.parametrize("choice", [pytest.param("", marks=pytest.mark.slow), "auto"])
def test_without_llvmlite_numpy_gives_the_same_results(run_python: RunPython, choice: str) -> None:
    assert run_python(WITHOUT + WHICH, env={"TW_CPU": choice}).startswith("NumpyDevice")
    found = run_python(WITHOUT + STEP, env={"TW_CPU": choice})
    assert found == run_python(STEP, env={"TW_CPU": "auto"})


BROKEN = """
import sys, types
class Broken(types.ModuleType):
    def __getattr__(self, name):
        raise OSError("libllvmlite.so: no such library")
import llvmlite
sys.modules["llvmlite.binding"] = llvmlite.binding = Broken("llvmlite.binding")
"""


@needs_llvm
@pytest.mark.parametrize(
    "tier", ["auto", *(pytest.param(t, marks=pytest.mark.slow) for t in ("fused", "baseline"))]
)
def test_with_a_damaged_llvmlite_numpy_gives_the_same_results(
    run_python: RunPython, tier: str
) -> None:
    """It is found out when something is to be compiled."""
    whole = STEP + "print(round((tw.arange(9.0).exp() * 2 - tw.ones(9)).tanh().sum().item(), 5))"
    found = run_python(BROKEN + whole, env={"TW_CPU": "auto", "TW_TIER": tier})
    assert found == run_python(whole, env={"TW_CPU": "numpy", "TW_TIER": tier})


def test_native_code_only_is_refused_without_llvmlite(run_python: RunPython) -> None:
    code = WITHOUT + "from tilewright.runtime import devices\ntry:\n    devices.get('cpu')\n"
    code += "except RuntimeError as error:\n    print(error)\n"
    assert "llvmlite is not installed (pip install" in run_python(code, env={"TW_CPU": "llvm"})


def test_an_unknown_choice_is_refused() -> None:
    with pytest.raises(RuntimeError, match="expected numpy, auto or llvm, got 'jit'"):
        native.make("jit")


@pytest.mark.parametrize(
    ("system", "architecture"),
    [("darwin", "arm64"), ("win32", "AMD64"), ("linux", "aarch64"), ("linux", "riscv64")],
)
def test_numpy_is_the_default_elsewhere(
    monkeypatch: pytest.MonkeyPatch, system: str, architecture: str
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "machine", lambda: architecture)
    assert not host.is_proven()
    assert isinstance(native.make(""), NumpyDevice)


REASONS = {
    "llvmlite": "llvmlite is not installed",
    "implementation": "need CPython with its global lock",
    "lock": "need CPython with its global lock",
    "architecture": "no native code for riscv64",
    "byteorder": "little-endian 64-bit",
    "word": "little-endian 64-bit",
    "features": "this processor lacks avx2",
    "broken": "no such library",
}


@pytest.mark.parametrize("lacking", REASONS)
def test_what_native_code_lacks_is_named(monkeypatch: pytest.MonkeyPatch, lacking: str) -> None:
    def broken() -> None:
        raise OSError("no such library")

    monkeypatch.setattr(host, "machine", lambda: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    match lacking:
        case "llvmlite":
            monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
        case "implementation":
            monkeypatch.setattr(platform, "python_implementation", lambda: "PyPy")
        case "lock":
            monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
        case "architecture":
            monkeypatch.setattr(platform, "machine", lambda: "riscv64")
        case "byteorder":
            monkeypatch.setattr(sys, "byteorder", "big")
        case "word":
            monkeypatch.setattr(sys, "maxsize", 2**31 - 1)
        case "features":
            monkeypatch.setattr(host, "features", lambda: frozenset({"sse2"}))
        case _:
            monkeypatch.setattr(host, "is_proven", lambda: False)
            monkeypatch.setattr(host, "machine", broken)
    assert REASONS[lacking] in (host.reason_against() or "")
    assert isinstance(native.make("auto"), NumpyDevice)
    with pytest.raises(RuntimeError, match="TW_CPU=llvm: "):
        native.make("llvm")
