"""Recording in several threads, and in a process that forks."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import recording
from tilewright.ir import ops
from tilewright.recording import epoch, threads

pytestmark = pytest.mark.usefixtures("fresh_tables")


def in_threads(*functions: Any) -> None:
    errors: list[BaseException] = []

    def guarded(function: Any) -> None:
        try:
            function()
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=guarded, args=(f,)) for f in functions]
    for w in workers:
        w.start()
    for w in workers:
        w.join(60)
    assert not any(w.is_alive() for w in workers)
    if errors:
        raise errors[0]


def test_two_threads_record_at_once() -> None:
    shared = tw.arange(5.0)
    results: dict[int, Any] = {}

    def work(seed: int) -> Any:
        def run() -> None:
            w = tw.full((5,), float(seed), requires_grad=True)
            for k in range(30):
                y = (w * shared + k).tanh()
                buffer = tw.zeros(2, 5)
                buffer[0] = y.detach()
                buffer[1] += 1
                loss = (y * y).sum()
                loss.backward()
                with tw.no_grad():
                    w -= 0.01 * w.grad
                w.grad = None
            results[seed] = (w.tolist(), buffer.tolist())

        return run

    in_threads(*(work(s) for s in range(1, 4)))
    alone = dict(results)
    results.clear()
    for s in range(1, 4):
        work(s)()
    assert results == alone


def test_a_call_that_is_interrupted_by_other_code_is_still_a_call() -> None:
    """The garbage collector may call anybody's function in the middle of an op."""
    inside = threading.Event()
    me = threading.get_ident()
    calls_of_collector: list[str] = []

    def callback(phase: str, info: Any) -> None:
        frame: Any = sys._getframe()
        while frame is not None and "recording" not in frame.f_code.co_filename:
            frame = frame.f_back
        if frame is None or threading.get_ident() != me or calls_of_collector:
            return
        calls_of_collector.append(phase)
        inside.set()
        time.sleep(0.3)  # the other thread must not take this for the time between two calls

    seen: list[Any] = []

    def other() -> None:
        inside.wait(10)
        seen.append((tw.ones(2) + 1).tolist())

    def build(node: Any) -> Any:  # what a call runs the first time it is met
        gc.collect()
        return ops.mul(node, node)

    worker = threading.Thread(target=other)
    worker.start()
    gc.callbacks.append(callback)
    try:
        x = tw.full((3,), 3.0)
        y = recording.record(build, x)
    finally:
        gc.callbacks.remove(callback)
    inside.set()
    worker.join(20)
    assert calls_of_collector and y.tolist() == [9, 9, 9] and seen == [[2, 2]]


@pytest.mark.parametrize("change", ["iadd", "add_", "backward", "out"])
def test_what_begins_by_holding_the_epoch_takes_over_first(change: str) -> None:
    """An in-place write right after another thread took the recording over."""
    recorded, taken = threading.Event(), threading.Event()
    results: list[Any] = []

    def other() -> None:
        w = tw.ones(3, requires_grad=True)
        x = tw.zeros(3)
        y = x + 1
        loss = (w * 2).sum()
        recorded.set()
        taken.wait(20)
        if change == "iadd":
            y += 2
        elif change == "add_":
            y.add_(2)
        elif change == "out":
            tw.add(x, 3, out=y)
        else:
            loss.backward()
            y = w.grad + 1
        results.append(y.tolist())

    worker = threading.Thread(target=other)
    worker.start()
    recorded.wait(20)
    mine = (tw.ones(3) * 2).tolist()
    taken.set()
    worker.join(20)
    assert not worker.is_alive() and results == [[3, 3, 3]] and mine == [2, 2, 2]


def test_a_thread_gives_way_inside_a_module() -> None:
    """The forward of a user's module is between two calls, also while it waits for a thread."""
    seen: list[Any] = []

    class Waits(tw.nn.Module):
        def forward(self, x: Any) -> Any:
            y = x * 2
            worker = threading.Thread(target=lambda: seen.append((tw.ones(2) + 1).tolist()))
            worker.start()
            worker.join(20)
            assert not worker.is_alive()
            return y + 1

    model = tw.nn.Sequential(Waits(), tw.nn.ReLU())
    with tw.no_grad():
        assert model(tw.ones(2)).tolist() == [3, 3]
    assert seen == [[2, 2]]


def test_grad_mode_belongs_to_a_thread() -> None:
    w = tw.ones(2, requires_grad=True)
    entered, flags = threading.Event(), []

    def other() -> None:
        entered.wait(10)
        flags.append((w * 2).requires_grad)
        with tw.no_grad():
            flags.append((w * 2).requires_grad)

    worker = threading.Thread(target=other)
    worker.start()
    with tw.no_grad():
        _ = w * 2
        entered.set()
        worker.join(20)
        flags.append((w * 2).requires_grad)
    flags.append((w * 2).requires_grad)
    assert flags == [True, False, False, True]


def test_batches_from_another_thread() -> None:
    import queue

    batches: Any = queue.Queue(2)

    def load() -> None:
        for k in range(20):
            batches.put((tw.from_numpy(np.full((4, 3), float(k))) / 2).float())
        batches.put(None)

    loader = threading.Thread(target=load)
    loader.start()
    w = tw.ones(3, requires_grad=True)
    total = 0.0
    while (x := batches.get(timeout=30)) is not None:
        out = (x @ w).sum()
        out.backward()
        total += out.item()
    loader.join()
    assert total == sum(12 * k / 2 for k in range(20))
    assert w.grad.tolist() == [sum(4 * k / 2 for k in range(20))] * 3


def test_the_tables_are_asked_directly_again_when_threads_have_ended() -> None:
    """Also beside a thread that never records, as one that writes logs: without this no compiled
    call would be replayed any more."""
    tw.ones(2).sum().item()  # threads of earlier tests are forgotten
    done = threading.Event()
    writer = threading.Thread(target=done.wait)
    writer.start()
    try:
        in_threads(lambda: tw.ones(2).sum().item())
        tw.ones(2).sum().item()
        assert epoch.clock.table is epoch.table(True) and not threads.guarded
        double = tw.compile(lambda x: x * 2)
        for _ in range(4):
            assert double(tw.ones(2)).tolist() == [2, 2]
        assert double.replays
        in_threads(lambda: double(tw.ones(2)).tolist())
    finally:
        done.set()
        writer.join()


def test_fork(run_python: Any) -> None:
    if not hasattr(os, "fork"):
        pytest.skip("no fork here")
    out = run_python(
        """
import os, warnings
warnings.simplefilter("ignore")
import tilewright as tw
w = tw.ones(3, requires_grad=True)
pending = (w * 2).exp().sum()
r, s = os.pipe()
pid = os.fork()
if pid == 0:
    pending.backward()
    os.write(s, repr((pending.item(), w.grad.tolist())).encode())
    os._exit(0)
os.waitpid(pid, 0)
child = eval(os.read(r, 1000))
pending.backward()
assert child == (pending.item(), w.grad.tolist()), child
print("same")
"""
    )
    assert out.strip() == "same"
