"""The native runtime: threads, forks, exits, the cache, and whole programs beside NumPy's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import RunPython

pytest.importorskip("llvmlite")

from tilewright.runtime import cache
from tilewright.runtime.native import host, jit, pool

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


def test_the_bits_do_not_depend_on_threads(run_python: RunPython, tmp_path: Path) -> None:
    runs = [
        results(run_python, tmp_path / f"{n}.npz", TW_CPU="llvm", TW_NUM_THREADS=str(n))
        for n in (1, 2, 5)
    ]
    for other in runs[1:]:
        for name, value in runs[0].items():
            np.testing.assert_array_equal(value, other[name], err_msg=name)


CONCURRENT = """
import threading
import numpy as np
from tilewright.codegen.index import Axis, of
from tilewright.codegen.kernel import Apply, Buffer, Kernel, Load, Store
from tilewright.ir import dtype as dt
from tilewright.ir.op import REGISTRY
from tilewright.runtime.native import launch, pool

pool.set_num_threads(4)
n = 300_000
p = Axis("p0", n)
value = Load(Buffer("in0", dt.float32, n), of(p), dt.float32)
kernel = Kernel("k", (p,), (), (Store(Buffer("out0", dt.float32, n), of(p),
                Apply(REGISTRY["exp"], (value,), dt.float32)),))
run = launch.compile_kernel(kernel)


def work(seed, times=60):
    x = np.random.default_rng(seed).standard_normal(n).astype(np.float32)
    first = np.empty_like(x)
    run([first, x], [])
    assert abs(first - np.exp(x)).max() < 1e-4
    for _ in range(times):
        out = np.zeros_like(x)
        run([out, x], [])
        assert (out == first).all(), "a chunk was left out, or made twice"
"""


def test_several_python_threads(run_python: RunPython) -> None:
    code = """
failures = []
def safely(seed):
    try:
        work(seed)
    except BaseException as error:
        failures.append(error)
threads = [threading.Thread(target=safely, args=(i,)) for i in range(4)]
for t in threads: t.start()
for t in threads: t.join()
assert not failures, failures
pool.set_num_threads(2); work(9)
pool.set_num_threads(1); work(10)
pool.set_num_threads(3); work(11)
print(pool.num_threads())
"""
    assert run_python(CONCURRENT + code) == "3\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_fork(run_python: RunPython) -> None:
    code = """
import os, warnings
warnings.simplefilter("ignore")  # of forking a process with threads
work(0)
child = os.fork()
if not child:
    work(1)
    os._exit(7)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 7
work(2)
print("done")
"""
    assert run_python(CONCURRENT + code) == "done\n"


def test_exit_while_workers_sleep_and_while_they_spin(run_python: RunPython) -> None:
    assert run_python(CONCURRENT + "work(0, 3)\nprint('done')") == "done\n"
    slept = "import time\nwork(0, 3)\ntime.sleep(0.3)\nwork(1, 3)\ntime.sleep(0.3)\nprint('done')"
    assert run_python(CONCURRENT + slept) == "done\n"
    thread = "threading.Thread(target=work, args=(0, 1000), daemon=True).start()\n"
    thread += "work(1, 3)\nprint('done')"
    assert run_python(CONCURRENT + thread) == "done\n"


def test_threads_are_counted() -> None:
    before = pool.num_threads()
    try:
        pool.set_num_threads(3)
        assert pool.num_threads() == 3
        with pytest.raises(RuntimeError, match="positive integer"):
            pool.set_num_threads(0)
    finally:
        pool.set_num_threads(before)


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


def test_import_stays_light(run_python: RunPython) -> None:
    code = "import sys, tilewright\nprint(any(m.startswith('llvmlite') for m in sys.modules))"
    assert run_python(code) == "False\n"
