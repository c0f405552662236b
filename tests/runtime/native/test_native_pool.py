"""The worker pool: several threads, forks, signals, exits; and results that don't depend on it."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import RunPython

import tilewright as tw
import tilewright.nn.functional as F
from tilewright.ir.numeric import blas
from tilewright.runtime import devices
from tilewright.runtime.native import host

if host.reason_against() is not None:
    pytest.skip(str(host.reason_against()), allow_module_level=True)

CONCURRENT = """
import threading
import numpy as np
import numpy.random  # else it is imported when it is first used, which a fork may cut in two
from tilewright.codegen.kernel.index import Axis, of
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


def test_every_chunk_runs_once(run_python: RunPython) -> None:
    """Whatever their number, where they begin, and how many threads share them."""
    code = """
import ctypes
from tilewright.runtime.native import pool

RUN = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
for threads in (1, 2, 3, 5, 70):
    pool.set_num_threads(threads)
    workers = pool.pool()
    workers.start()
    parallel = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, *[ctypes.c_int64] * 2)(
        workers.native["tw_parallel"])
    for first, count in ((0, 0), (0, 1), (5, 2), (0, 3), (1, 64), (0, 65), (9, 71), (3, 500)):
        seen = []
        run = RUN(lambda _, chunk: seen.append(chunk))
        parallel(workers.address, ctypes.cast(run, ctypes.c_void_p), None, first, first + count)
        assert sorted(seen) == list(range(first, first + count)), (threads, first, count, seen)
print("done")
"""
    assert run_python(code) == "done\n"


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no affinity on this system")
def test_workers_may_use_every_core_but_that_of_the_launch(run_python: RunPython) -> None:
    code = """
import time
work(0, 3)
here = threading.get_native_id()
allowed = os.sched_getaffinity(0)
for _ in range(5):
    time.sleep(0.05)  # workers sleep, and a launch wakes them
    work(1, 1)
workers = [w for w in map(int, os.listdir("/proc/self/task")) if w != here]
own = [w for w in workers if len(os.sched_getaffinity(w)) == max(len(allowed) - 1, 1)]
assert len(own) >= 3, [os.sched_getaffinity(w) for w in workers]
assert os.sched_getaffinity(0) == allowed
print("done")
"""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("there is one core")
    assert run_python("import os\n" + CONCURRENT + code) == "done\n"


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


def test_exit_amid_a_launch_of_a_daemon_thread(run_python: RunPython) -> None:
    """It goes on when Python has freed its modules. What it runs and reads stays."""
    code = """
import ctypes

# After the end of the interpreter, the process waits for 0.3 s: longer than the launch takes.
libc = ctypes.CDLL(None)
libc.__cxa_atexit(libc.usleep, ctypes.c_void_p(300_000), None)
pool.set_num_threads(1)  # else the exit waits for the launch
for _ in range(40):
    value = Apply(REGISTRY["cos"], (value,), dt.float32)
store = Store(Buffer("out0", dt.float32, n), of(p), value)
run = launch.compile_kernel(Kernel("k", (p,), (), (store,)))
x, out = np.zeros(n, np.float32), np.empty(n, np.float32)
run([out, x], [])
threading.Thread(target=run, args=([out, x], []), daemon=True).start()
print("done")
"""
    large = CONCURRENT.replace("n = 300_000", "n = 3_000_000")
    assert run_python(large + code) == "done\n"


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_multiprocessing(run_python: RunPython, tmp_path: Path, method: str) -> None:
    """Children of a process that has run kernels, and whose workers spin or sleep."""
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"no {method} on this system")
    script = tmp_path / "children.py"
    script.write_text(
        f"""
import multiprocessing, sys, warnings
import tilewright as tw

def square(n):
    x = tw.arange(n * 100_000, dtype=tw.float32).reshape(n, -1)
    return tw.softmax(x * 0.001, 1).sum().item(), tw.get_num_threads()

if __name__ == "__main__":
    warnings.simplefilter("ignore")  # of forking a process with threads
    here = [square(n)[0] for n in (2, 3)]
    with multiprocessing.get_context({method!r}).Pool(2) as children:
        found = children.map(square, (2, 3))
    assert [value for value, _ in found] == here, (found, here)
    assert [threads for _, threads in found] == [3, 3]
    assert square(2)[0] == here[0]
    print("done")
"""
    )
    code = "import runpy, sys\nrunpy.run_path(sys.argv[1], run_name='__main__')"
    child = [code, str(script)]
    if method == "spawn":  # which imports the main module by its path
        child = [
            "import subprocess, sys\nsubprocess.run([sys.executable, sys.argv[1]], check=True)"
        ]
        child.append(str(script))
    assert run_python(*child, env={"TW_NUM_THREADS": "3", "TW_CPU": "llvm"}) == "done\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_fork_while_another_thread_compiles(run_python: RunPython) -> None:
    code = """
import os, threading, warnings
warnings.simplefilter("ignore")  # of forking a process with threads
os.environ["TW_CACHE"] = "0"
import tilewright as tw
from tilewright.runtime.native import jit, launch  # Python's own lock of an import stays locked

def compile_some(first):
    for n in range(first, first + 12):
        x = tw.ones(n, 3, 2)
        for _ in range(n):
            x = tw.tanh(x + n)
        assert x.sum().isfinite().item()

thread = threading.Thread(target=compile_some, args=(1,))
thread.start()
for _ in range(5):
    child = os.fork()
    if not child:
        assert jit._LOCK.acquire(timeout=60)
        os._exit(7)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7
thread.join()
print("done")
"""
    assert run_python(code, env={"TW_CPU": "llvm"}) == "done\n"


@pytest.mark.skipif(not hasattr(signal, "raise_signal"), reason="no signals on this system")
def test_an_interrupt_during_launches(run_python: RunPython) -> None:
    code = """
import os, signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what a shell runs behind
caught = 0
def interrupt(stop):
    pause = 0.05
    while not stop.wait(pause):
        os.kill(os.getpid(), signal.SIGINT)
        pause = 1.0  # once more if Python dropped it, as it does in a finalizer
for seed in range(5):
    stop = threading.Event()
    timer = threading.Thread(target=interrupt, args=(stop,))
    timer.start()
    try:
        work(seed, 1_000_000)
    except KeyboardInterrupt:
        stop.set()
        caught += 1
    timer.join()
work(9, 3)
print(caught)
"""
    assert run_python(CONCURRENT + code) == "5\n"


def test_threads_come_and_go_while_others_launch(run_python: RunPython) -> None:
    code = """
failures = []
def safely(seed):
    try:
        work(seed, 150)
    except BaseException as error:
        failures.append(error)
threads = [threading.Thread(target=safely, args=(i,)) for i in range(2)]
for t in threads: t.start()
count = 0
while any(t.is_alive() for t in threads):
    pool.set_num_threads(count % 4 + 1)
    count += 1
for t in threads: t.join()
assert not failures, failures
print(count > 3, pool.pool()._started)
"""
    assert run_python(CONCURRENT + code) == "True True\n"


@pytest.mark.slow
def test_stress(run_python: RunPython) -> None:
    """Launches from several threads, workers that come and go, forks, for some 20 seconds."""
    code = """
import os, random, time, warnings
warnings.simplefilter("ignore")  # of forking a process with threads
failures, end = [], time.monotonic() + 20
def safely(seed):
    try:
        while time.monotonic() < end:
            work(seed, 20)
    except BaseException as error:
        failures.append(error)
threads = [threading.Thread(target=safely, args=(i,)) for i in range(3)]
for t in threads: t.start()
choose = random.Random(0)
while time.monotonic() < end:
    pool.set_num_threads(choose.randrange(1, 6))
    child = os.fork()
    if not child:
        work(5, 3)
        os._exit(7)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7
    time.sleep(choose.random() * 0.1)
for t in threads: t.join()
assert not failures, failures
print("done")
"""
    assert run_python(CONCURRENT + code) == "done\n"


def test_the_environment_counts_threads(run_python: RunPython) -> None:
    code = "import tilewright as tw\nprint(tw.get_num_threads())"
    assert run_python(code, env={"TW_NUM_THREADS": "7"}) == "7\n"
    for text in ("", "many", "0", "-3"):
        assert int(run_python(code, env={"TW_NUM_THREADS": text})) >= 1
    unset = {"TW_NUM_THREADS": "", "MKL_NUM_THREADS": ""}
    most = int(run_python(code, env={**unset, "OMP_NUM_THREADS": "0"}))
    for text, threads in {"1": 1, "999": most, "2,1": most}.items():
        assert int(run_python(code, env={**unset, "OMP_NUM_THREADS": text})) == threads
    mkl = {"MKL_NUM_THREADS": "1", "OMP_NUM_THREADS": str(most)}
    assert int(run_python(code, env={**unset, **mkl})) == 1


def test_threads_are_counted(torch: Any) -> None:
    before, theirs = tw.get_num_threads(), torch.get_num_threads()
    try:
        tw.set_num_threads(3)
        assert tw.get_num_threads() == 3
        for wrong in (0, -1, "2", 1.5):
            with pytest.raises(RuntimeError, match="set_num_threads expects"):
                torch.set_num_threads(wrong)
            with pytest.raises(RuntimeError, match="set_num_threads expects"):
                tw.set_num_threads(wrong)
        assert tw.get_num_threads() == 3
    finally:
        tw.set_num_threads(before)
        torch.set_num_threads(theirs)


def test_interop_threads_are_set_once(run_python: RunPython) -> None:
    code = """
import tilewright as tw
assert tw.get_num_interop_threads() >= 1
def refused(n):
    try:
        tw.set_num_interop_threads(n)
    except RuntimeError as error:
        return str(error)
print(refused(0)); print(refused(3)); print(tw.get_num_interop_threads()); print(refused(2))
"""
    zero, first, count, second = run_python(code).splitlines()
    assert "positive integer" in zero and first == "None" and count == "3"
    assert "was called before" in second


# ---- the same bits, whatever the number of threads -----------------------------------------------


def noise(*shape: int) -> Any:
    return tw.randn(*shape, generator=tw.Generator().manual_seed(len(shape)))


def gpt_step() -> list[Any]:
    """One training step of one block, over enough tokens for several chunks of each kernel."""
    tw.manual_seed(0)
    qkv, up, down = tw.nn.Linear(32, 96), tw.nn.Linear(32, 64), tw.nn.Linear(64, 32)
    embedding, norm = tw.nn.Embedding(50, 32), tw.nn.LayerNorm(32)
    parameters = [p for m in (qkv, up, down, embedding, norm) for p in m.parameters()]
    optimizer = tw.optim.AdamW(parameters, lr=0.01)
    tokens = tw.randint(0, 50, (8, 64))
    x = embedding(tokens)
    q, k, v = (t.view(8, 64, 2, 16).transpose(1, 2) for t in qkv(norm(x)).split(32, dim=2))
    attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    x = x + F.dropout(attended.transpose(1, 2).reshape(8, 64, 32), 0.1)
    x = x + down(F.gelu(up(norm(x))))
    logits = x @ embedding.weight.t()
    F.cross_entropy(logits.view(-1, 50), tokens.view(-1)).backward()
    optimizer.step()
    return parameters


BITS: dict[str, Callable[[], Any]] = {
    "sum": lambda: noise(1_000_003).sum(),
    "column sums": lambda: noise(5000, 77).sum(0),
    "row sums": lambda: noise(77, 5000).sum(1),
    "middle sums": lambda: noise(30, 500, 40).sum(1),
    "product": lambda: (1 + noise(200_000) * 1e-3).prod(),
    "variance": lambda: noise(40, 30_000).var(1),
    "cumsum": lambda: noise(40, 3000).cumsum(1),
    "softmax": lambda: tw.softmax(noise(3000, 257), 1),
    "log_softmax": lambda: tw.log_softmax(noise(4, 50_000), 1),
    "layer_norm": lambda: F.layer_norm(noise(2000, 300), (300,)),
    "batch_norm": lambda: F.batch_norm(noise(50, 30, 100), None, None, training=True),
    "scatter": lambda: tw.zeros(100).index_add(
        0, tw.randint(0, 100, (50_000,), generator=tw.Generator().manual_seed(1)), noise(50_000)
    ),
    "embedding": lambda: tw.nn.functional.embedding(
        tw.randint(0, 99, (20_000,), generator=tw.Generator().manual_seed(1)), noise(99, 33)
    ),
    "random": lambda: tw.randn(300_001, generator=tw.Generator().manual_seed(5)),
    "halves": lambda: noise(1000, 300).half().softmax(1).sum(0),
    "step": gpt_step,
}


@pytest.fixture
def native() -> Any:
    """The device `cpu` runs native kernels only."""
    from tilewright import recording

    recording.flush()
    recording.clear_tables()
    before = devices._devices.get("cpu")
    from tilewright.runtime.cpu.native import make

    devices._devices["cpu"] = make("llvm")
    threads = tw.get_num_threads()
    yield
    tw.set_num_threads(threads)
    recording.flush()
    recording.clear_tables()
    devices._devices.pop("cpu")
    if before is not None:
        devices._devices["cpu"] = before


@pytest.mark.parametrize("name", BITS)
def test_the_bits_do_not_depend_on_threads(native: None, name: str) -> None:
    def run(threads: int) -> list[bytes]:
        tw.set_num_threads(threads)
        found = BITS[name]()
        values = found if isinstance(found, list) else [found]
        return [np.array(v.detach().numpy()).tobytes() for v in values]

    once = run(1)
    for threads in (2, 3, 2, 5):
        assert run(threads) == once, f"{threads} threads give other bits"


def test_products_of_numpy_take_as_many_threads() -> None:
    count = blas.function("scipy_openblas_get_num_threads64_", "openblas_get_num_threads64_")
    if count is None:
        pytest.skip("this NumPy has no OpenBLAS of its own")
    before = tw.get_num_threads()
    try:
        for threads in (1, 2):
            tw.set_num_threads(threads)
            assert count() == threads
    finally:
        tw.set_num_threads(before)
