"""The native runtime: the cache of object code, and whole programs beside NumPy's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import RunPython

pytest.importorskip("llvmlite")

import tilewright as tw
from tilewright import recording
from tilewright.codegen.llvm import emit
from tilewright.runtime import cache, devices
from tilewright.runtime.cpu.native import LlvmDevice
from tilewright.runtime.native import emissions, host, jit, launch

if host.reason_against() is not None:
    pytest.skip(str(host.reason_against()), allow_module_level=True)

PROGRAM = """
import sys
import numpy as np
import tilewright as torch
import tilewright.nn as nn
import tilewright.nn.functional as F

torch.manual_seed(3)
found = {}


def keep(name, value):
    found[name] = value.detach().float().numpy().copy()


x = torch.rand(65, 300) * 4 - 2
keep("gelu", F.gelu(x))
keep("chain", (x * 2 + 1).sigmoid().tanh().exp())
keep("softmax", F.softmax(x, -1))
keep("softmax0", F.softmax(x, 0))
keep("layer_norm", F.layer_norm(x, (300,)))
keep("sums", x.sum(0)[:1] + x.sum() + x.mean(1)[:1])
keep("extrema", x.amax(0) - x.amin(0))
keep("argmax", x.argmax(1))
keep("transposed", x.t().contiguous() + 1)
keep("indexed", x[torch.tensor([3, 1, 64, 3])][:, 5:50:3])
table, rows = torch.rand(7, 40), torch.tensor([6, 0, 3] * 21 + [2, 2])
keep("guarded", torch.cat([table[rows], x[:, :40]], 1))  # one position for all lanes of a row
keep("half", (x.half() * 3).float() + x.bfloat16().float())
keep("whole", (x * 10).to(torch.int64) // 3 % 5)
keep("double", x.double().exp().log1p().sum(1))
keep("large", torch.randn(300_001).sin().sum())
drawn = torch.rand(1000)
keep("drawn", drawn)

model = nn.Sequential(nn.Linear(20, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 5))
embedding = nn.Embedding(11, 20)
optimizer = torch.optim.AdamW([*model.parameters(), *embedding.parameters()], lr=1e-2)
tokens = torch.randint(0, 11, (64,))
targets = torch.randint(0, 5, (64,))
losses = []
for _ in range(5):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(embedding(tokens)), targets)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
found["losses"] = np.array(losses)
for i, p in enumerate(model.parameters()):
    keep(f"parameter{i}", p)
np.savez(sys.argv[1], **found)
"""


def results(run_python: RunPython, path: Path, **env: str) -> dict[str, np.ndarray]:
    run_python(PROGRAM, str(path), env=env)
    with np.load(path) as file:
        return dict(file)


def test_programs_agree_with_numpy(run_python: RunPython, tmp_path: Path) -> None:
    native = results(run_python, tmp_path / "llvm.npz", TW_CPU="llvm")
    numpy = results(run_python, tmp_path / "numpy.npz", TW_CPU="numpy")
    assert native.keys() == numpy.keys()
    for name, value in native.items():
        tolerance = 1e-3 if name == "large" else 2e-5
        np.testing.assert_allclose(value, numpy[name], rtol=tolerance, atol=tolerance, err_msg=name)
    np.testing.assert_array_equal(native["drawn"], numpy["drawn"])


SMALL = "define void @kernel(ptr %args, i64 %chunk) {{\n  store i64 {}, ptr %args\n  ret void\n}}\n"


def _value(linked: Any) -> int:
    import ctypes

    word = ctypes.c_int64()
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(linked.addresses["kernel"])
    function(ctypes.addressof(word), 0)
    return word.value


def test_object_code_is_cached_and_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TW_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(jit, "_linked", {})
    code = SMALL.format(41)
    compiled = jit.statistics.compiled
    assert _value(jit.link(code, "kernel")) == 41
    (entry,) = tmp_path.rglob("*.bin")
    assert jit.statistics.compiled == compiled + 1

    monkeypatch.setattr(jit, "_in_memory", _renamed(jit._in_memory))
    jit._linked.clear()
    assert _value(jit.link(code, "kernel")) == 41
    assert jit.statistics.compiled == compiled + 1, "the entry was not used"

    whole = entry.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", b"something else", whole[:-1] + b"\0\0"):
        entry.write_bytes(damaged)
        compiled = jit.statistics.compiled
        jit._linked.clear()
        assert _value(jit.link(code, "kernel")) == 41
        assert jit.statistics.compiled == compiled + 1
        assert entry.read_bytes() == whole


def _renamed(link: Any) -> Any:
    """One process links a module once; to do it again it needs another name."""
    count = iter(range(1000))
    return lambda key, *rest: link(f"{key}x{next(count)}", *rest)


def test_another_machine_has_other_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    mine = jit._identity()
    jit._identity.cache_clear()
    other = replace(host.machine(), features="+other")
    monkeypatch.setattr(host, "machine", lambda: other)
    try:
        assert jit._identity() != mine
        assert cache.digest(jit._identity()) != cache.digest(mine)
    finally:
        jit._identity.cache_clear()


def test_code_goes_with_the_last_launch() -> None:
    """A process may have only so many mappings of memory, and each module takes some."""
    code = "define i64 @kernel(i64 %a) {{\n  %b = add i64 %a, {}\n  ret i64 %b\n}}\n"
    linked = [jit.link(code.format(n), "kernel") for n in range(1000, 1020)]
    known = len(jit._linked)
    again = jit.link(code.format(1003), "kernel")
    assert again is linked[3]
    del linked
    assert len(jit._linked) == known - 19
    del again
    assert len(jit._linked) == known - 20
    jit.link(code.format(1003), "kernel")  # once more under the same key


NEVER_REPEATS = """
import tilewright as tw
from tilewright.recording import flushing
from tilewright.runtime.native import jit

flushing.LAUNCH_LIMIT = 20
ops, x, most = [tw.sin, tw.cos, tw.exp, tw.tanh], tw.linspace(-1, 1, 7), 0
for n in range(4**3):
    y = x
    for digit in range(3):
        y = ops[n // 4**digit % 4](y)
    y.tolist()
    most = max(most, len(jit._linked))
print(most)
"""


def test_programs_that_never_repeat_hold_few_kernels(run_python: RunPython) -> None:
    assert 20 <= int(run_python(NEVER_REPEATS)) <= 50


KNOWN_KERNELS = """
import tilewright as tw
from tilewright.runtime.native import launch

written = []
write = launch._emit
launch._emit = lambda kernel, schedule: written.append(kernel.name) or write(kernel, schedule)
x = tw.linspace(-1, 1, 1000)
ours = x.exp().reshape(20, 50) @ x.reshape(50, 20)
total = x[tw.tensor([3, 999])].sum()
ours.sum().item(), total.item()
print(*sorted(written))
"""


def test_known_kernels_are_not_written_again(run_python: RunPython, tmp_path: Path) -> None:
    env = {"TW_CACHE_DIR": str(tmp_path), "TW_CPU": "llvm"}
    first, again = (run_python(KNOWN_KERNELS, env=env).split() for _ in range(2))
    assert {"exp_map", "matmul_dot"} < set(first)
    assert again == [name for name in first if "gather" in name]  # what tells a line of the user's


def test_tiles_share_what_is_emitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The position of a tile in its picture is an argument of its kernel."""
    written = []
    monkeypatch.setattr(launch, "emit", lambda k, *a, **b: written.append(k) or emit(k, *a, **b))
    monkeypatch.setattr(emissions, "_recent", {})
    monkeypatch.setenv("TW_CACHE", "0")
    monkeypatch.setitem(devices._devices, "cpu", LlvmDevice())
    recording.clear_tables()
    images = np.random.default_rng(0).random((256, 3, 8, 8)).astype(np.float32)
    # What is computed is recorded; values would be copied at once.
    picture, source = tw.zeros(3, 128, 128), tw.tensor(images) * 1
    for number in range(256):
        y, x = divmod(number, 16)
        picture.narrow(1, 8 * y, 8).narrow(2, 8 * x, 8).copy_(source[number])
    found = picture.numpy()
    expected = images.reshape(16, 16, 3, 8, 8).transpose(2, 0, 3, 1, 4).reshape(3, 128, 128)
    np.testing.assert_array_equal(found, expected)
    recording.clear_tables()
    assert 0 < len(written) < 12
