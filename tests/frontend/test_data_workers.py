"""Loading in worker processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from squares import Squares

import tilewright as tw
from tilewright.utils.data import DataLoader, IterableDataset, get_worker_info


class Shards(IterableDataset):
    """0 … n - 1, dealt out to the workers."""

    def __init__(self, count):
        self.count = count

    def __iter__(self):
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        return iter(range(first, self.count, step))


class Broken(Squares):
    def __getitem__(self, i):
        if i == 5:
            raise self.error
        return i

    error: Exception = ValueError("no five")


class Leaving(Squares):
    def __getitem__(self, i):
        if i == 5:
            os._exit(3)
        return i


class Who(Squares):
    def __getitem__(self, i):
        info = get_worker_info()
        return info.id, info.num_workers, info.seed, float(tw.rand(1)), np.random.rand()


class NeedsTwo(Exception):
    def __init__(self, a, b):
        super().__init__(a, b)


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_batches_come_in_order(context):
    data = Squares(slow=(0, 1, 12))
    here = list(DataLoader(data, 3))
    there = list(DataLoader(data, 3, num_workers=2, multiprocessing_context=context))
    assert len(here) == len(there) == 7
    for (x, y), (a, b) in zip(here, there, strict=True):
        assert x.tolist() == a.tolist() and y.tolist() == b.tolist()
        assert a.dtype is tw.float32 and b.dtype is tw.int64


def test_shuffling_and_samplers():
    def order(workers):
        tw.manual_seed(3)
        loader = DataLoader(Squares(), 4, shuffle=True, num_workers=workers)
        return [v for _, y in loader for v in y.tolist()]

    # The seeds of workers are drawn too, after the sampler has been made and before it is read.
    assert sorted(order(2)) == sorted(order(0)) and order(2) == order(2)
    single = DataLoader(Squares(), batch_size=None, sampler=[4, 2], num_workers=1)
    assert [y for _, y in single] == [16, 4]


def test_out_of_order():
    data = Squares(8, slow=(0,))
    first = next(iter(DataLoader(data, 1, num_workers=2, in_order=False)))
    assert first[1].tolist() != [0]
    seen = [y.item() for _, y in DataLoader(data, 1, num_workers=2, in_order=False)]
    assert sorted(seen) == [i * i for i in range(8)]


def test_iterable_datasets():
    for count in (0, 1, 9):
        seen = [v for b in DataLoader(Shards(count), 2, num_workers=3) for v in b.tolist()]
        assert sorted(seen) == list(range(count))
    whole = [b.tolist() for b in DataLoader(Shards(9), 2, num_workers=2, drop_last=True)]
    assert whole == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert list(DataLoader(Shards(4), None, num_workers=2)) == [0, 1, 2, 3]
    assert get_worker_info() is None


def test_workers_know_themselves():
    tw.manual_seed(0)
    first = list(DataLoader(Who(6), None, num_workers=2, worker_init_fn=lambda i: None))
    assert [(r[0], r[1]) for r in first] == [(0, 2), (1, 2)] * 3
    assert first[1][2] == first[0][2] + 1
    assert len({r[3] for r in first}) == len({r[4] for r in first}) == 6
    tw.manual_seed(0)
    assert list(DataLoader(Who(6), None, num_workers=2)) == first
    assert next(iter(DataLoader(Who(6), None, num_workers=2)))[3] != first[0][3]


def test_what_an_init_function_seeds_stays():
    class Drawn(Squares):
        def __getitem__(self, i):
            return np.random.randint(0, 1 << 30)

    def seed(worker):
        np.random.seed(worker)

    loader = DataLoader(Drawn(6), None, num_workers=2, worker_init_fn=seed, persistent_workers=True)
    oracles = [np.random.RandomState(worker) for worker in range(2)]
    for _ in range(2):  # they go on in the next epoch
        assert list(loader) == [oracles[i % 2].randint(0, 1 << 30) for i in range(6)]


def test_loaders_that_live_side_by_side_end_at_once():
    """A worker holds no copies of the pipes of another loader's workers."""
    begin = time.monotonic()
    first, second = (iter(DataLoader(Squares(), 2, num_workers=1)) for _ in range(2))
    next(second)
    assert len(list(first)) == 10
    pid = os.fork()
    if not pid:  # what it inherits is its parent's to end
        del first, second
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert len(list(second)) == 9 and time.monotonic() - begin < 4


THREADS = """
import threading
import numpy as np
import tilewright as torch
from tilewright.utils.data import DataLoader, TensorDataset

def train(k, losses):
    random = np.random.default_rng(k)
    data = TensorDataset(torch.tensor(random.normal(size=(12, 3)).astype("f")))
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for _ in range(2):
        for (x,) in DataLoader(data, 4, num_workers=1):
            loss = model(x).exp().log_softmax(0).square().sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())

losses = [[] for _ in range(4)]
threads = [threading.Thread(target=train, args=pair) for pair in enumerate(losses)]
for each in threads:
    each.start()
for each in threads:
    each.join()
print([len(each) for each in losses])
"""


def test_several_threads_have_loaders_with_workers():
    """A fork waits for the recording first and then for compilations, never the other way round."""
    path = os.pathsep.join(p for p in sys.path if p)
    done = subprocess.run(
        [sys.executable, "-c", THREADS],
        capture_output=True,
        text=True,
        timeout=50,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.stdout == "[6, 6, 6, 6]\n" and not done.stderr, done.stderr


def test_persistent_workers():
    class Pid(Squares):
        def __getitem__(self, i):
            return os.getpid()

    loader = DataLoader(Pid(8), None, num_workers=2, persistent_workers=True)
    first = set(loader)
    for _ in loader:  # left in the middle
        break
    assert set(loader) == first and len(first) == 2 and os.getpid() not in first
    endless = DataLoader(Shards(5), 2, num_workers=2, persistent_workers=True)
    for _ in range(3):
        assert sorted(v for b in endless for v in b.tolist()) == list(range(5))
    fresh = DataLoader(Pid(8), None, num_workers=2)
    assert not set(fresh) & set(fresh)


def test_errors_come_with_their_traceback():
    loader = DataLoader(Broken(), 2, num_workers=2)
    batches = iter(loader)
    assert [next(batches).tolist() for _ in range(2)] == [[0, 1], [2, 3]]
    with pytest.raises(ValueError, match=r"worker process 0(.|\n)*__getitem__(.|\n)*no five"):
        next(batches)
    assert [b.tolist() for b in batches] == [[i, i + 1] for i in range(6, 20, 2)]
    data = Broken()
    data.error = KeyError("five")
    with pytest.raises(KeyError, match="Original Traceback"):
        list(DataLoader(data, 2, num_workers=1))
    data.error = NeedsTwo(1, 2)
    with pytest.raises(RuntimeError, match="Caught NeedsTwo"):
        list(DataLoader(data, 2, num_workers=1))

    def fail(worker):
        raise OSError("not today")

    with pytest.raises(OSError, match="not today"):
        list(DataLoader(Squares(), 2, num_workers=1, worker_init_fn=fail))
    with pytest.raises(Exception, match=r"pickle|local object"):
        list(DataLoader(Squares(), 2, num_workers=1, collate_fn=lambda b: lambda: b))


def test_a_worker_that_dies_is_told():
    with pytest.raises(RuntimeError, match=r"worker \(pid\(s\) \d+\) exited unexpectedly"):
        list(DataLoader(Leaving(), 2, num_workers=2))


def test_timeout():
    with pytest.raises(RuntimeError, match=r"timed out after 0\.05 seconds"):
        list(DataLoader(Squares(slow=range(20)), 4, num_workers=1, timeout=0.05))


def test_large_batches_and_long_index_lists():
    """Neither side waits for the other while both have more to say than a pipe holds."""

    class Large(Squares):
        def __getitems__(self, indices):
            return [np.full(1 << 18, len(indices), np.float32)]

        def __getitem__(self, i):
            raise AssertionError

    loader = DataLoader(Large(200_000), 50_000, num_workers=1, prefetch_factor=4)
    assert [float(b[0, -1]) for b in loader] == [50_000] * 4


def test_options_are_checked():
    data = Squares()
    for options, match in (
        ({"prefetch_factor": 2}, "prefetch_factor"),
        ({"num_workers": 1, "prefetch_factor": 0}, "prefetch_factor"),
        ({"persistent_workers": True}, "persistent_workers"),
        ({"multiprocessing_context": "fork"}, "num_workers"),
        ({"multiprocessing_context": "magic", "num_workers": 1}, "start method"),
        ({"timeout": -1}, "timeout"),
    ):
        with pytest.raises(ValueError, match=match):
            DataLoader(data, **options)
    with pytest.raises(TypeError, match="context"):
        DataLoader(data, num_workers=1, multiprocessing_context=3)
    assert DataLoader(data, num_workers=1, pin_memory=True).prefetch_factor == 2


PROGRAM = """
import os, sys, time
from tilewright.utils.data import DataLoader

class Slow:
    def __len__(self):
        return 1000
    def __getitem__(self, i):
        time.sleep(0.02)
        return os.getpid()

loader = DataLoader(Slow(), 1, num_workers=2, persistent_workers=True)
pids = set()
for batch in loader:
    pids.add(batch.item())
    if len(pids) == 2:
        print(*pids, flush=True)
        pids.add(0)
        if sys.argv[1] == "leave":
            break
        if sys.argv[1] == "exit":
            sys.exit()
"""


@pytest.mark.parametrize("way", ["leave", "exit", "interrupt", "kill"])
def test_no_worker_outlives_its_process(way, tmp_path):
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    path = os.pathsep.join(p for p in sys.path if p)
    program = subprocess.Popen(
        [sys.executable, str(script), way],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert program.stdout is not None
    pids = list(map(int, program.stdout.readline().split()))
    assert len(pids) == 2
    if way == "interrupt":
        os.killpg(program.pid, signal.SIGINT)
    elif way == "kill":
        program.kill()
    _, errors = program.communicate(timeout=60)
    assert errors.count("Traceback") == (way == "interrupt"), errors
    limit = time.monotonic() + 20
    while any(map(is_running, pids)) and time.monotonic() < limit:
        time.sleep(0.05)
    assert not any(map(is_running, pids))


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().split(")")[-1].split()[0] != "Z"
    except FileNotFoundError:
        return False
