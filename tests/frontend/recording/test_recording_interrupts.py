"""Errors and interrupts while values are computed: nothing that was right is lost."""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import recording
from tilewright.ir.node import reachable
from tilewright.recording import epoch, flushing, interrupts
from tilewright.runtime import tiers

pytestmark = pytest.mark.usefixtures("fresh_tables", "fused")


def test_an_error_in_a_value_leaves_the_rest_usable() -> None:
    x = tw.arange(4.0)
    good = x * 2
    bad = x[tw.tensor([1, 9])]
    worse = bad + 1
    w = tw.ones(2, requires_grad=True)
    loss = (w * w).sum()
    with pytest.raises(IndexError):
        bad.tolist()
    assert good.tolist() == [0, 2, 4, 6]
    for t in (bad, worse):
        with pytest.raises(IndexError):
            t.tolist()
        with pytest.raises(IndexError):
            t * 2
    loss.backward()
    assert w.grad.tolist() == [2, 2]
    assert (x + 1).tolist() == [1, 2, 3, 4]


def test_what_the_compiler_fails_on_leaves_the_rest_usable(monkeypatch: Any) -> None:
    make = tiers.Plan

    def refuse(roots: Any, fallible: Any) -> Any:
        if any(n.op.name == "sinh" for n in reachable(roots)):
            raise RuntimeError("no such instruction")
        return make(roots, fallible)

    monkeypatch.setattr(tiers, "Plan", refuse)
    x = tw.arange(3.0)
    w = tw.ones(2, requires_grad=True)
    loss = (w * w).sum()
    bad = x.sinh()
    with pytest.raises(RuntimeError, match="no such instruction"):
        value = x + 7
        value.tolist()
    assert value.tolist() == [7, 8, 9] and (x * 2).tolist() == [0, 2, 4]
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no such instruction"):
            bad.tolist()
    loss.backward()
    assert w.grad.tolist() == [2, 2]


def test_a_value_is_tried_again_if_nothing_could_be_compiled(monkeypatch: Any) -> None:
    """The disk may have been full."""

    def refuse(roots: Any, fallible: Any) -> Any:
        raise OSError("no space left on device")

    value = tw.arange(3.0).cosh()
    with monkeypatch.context() as patch:
        patch.setattr(tiers, "Plan", refuse)
        with pytest.raises(OSError, match="no space"):
            value.tolist()
    assert value.tolist() == pytest.approx([math.cosh(i) for i in range(3)], rel=1e-6)


def test_a_failed_write_keeps_the_old_value() -> None:
    x = tw.zeros(3)
    recording.flush()
    x[tw.tensor([0, 7])] = 1
    with pytest.raises(IndexError):
        recording.flush()
    assert x.tolist() == [0, 0, 0]


def test_parameters_survive_an_error_in_the_step_that_updates_them() -> None:
    w, table = tw.ones(1000), tw.zeros(5, 2)
    recording.flush()
    for k in range(3):
        w.sub_(0.25)
        row = table[tw.tensor([k, 50])]
        with pytest.raises(IndexError):
            row.tolist()
        assert w[0].item() == 1 - 0.25 * (k + 1)


def test_an_interrupt_loses_nothing(monkeypatch: Any) -> None:
    x = tw.ones(3)
    y = x * 2
    x.add_(5)

    def interrupted(*args: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(tiers.Plan, "run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            y.tolist()
    assert (x + y).tolist() == [8, 8, 8] and y.tolist() == [2, 2, 2]


@pytest.mark.parametrize("step", ["_hand_out", "_end_epoch", "keep"])
def test_an_interrupt_in_the_middle_of_a_flush(step: str, monkeypatch: Any) -> None:
    w = tw.ones(3, requires_grad=True)
    h = w.exp()
    loss = (h * h).sum()
    usual, calls = getattr(flushing, step), []

    def interrupted(*args: Any) -> Any:
        usual(*args)
        calls.append(step)
        if len(calls) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(flushing, step, interrupted)
    with pytest.raises(KeyboardInterrupt):
        loss.item()
    assert h.tolist() == pytest.approx([math.e] * 3)
    loss.backward()
    assert w.grad.tolist() == pytest.approx([2 * math.e**2] * 3, rel=1e-6)


@pytest.mark.skipif(os.name != "posix", reason="sends a signal")
def test_an_interrupt_waits_for_memory_that_is_being_overwritten() -> None:
    done = []
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may ignore it
    try:
        with pytest.raises(KeyboardInterrupt), interrupts.deferred():
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)
            done.append(True)
        assert done
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, usual)


@pytest.mark.parametrize("error", [KeyboardInterrupt, TimeoutError])
def test_interrupts_at_any_time_leave_right_values(error: type[BaseException]) -> None:
    """A trace function raises after so many calls and returns inside the package: where the
    interpreter looks for signals. The user always gets the error."""

    package = os.path.dirname(os.path.abspath(tw.__file__))
    x = tw.arange(3.0)
    for _ in range(2):  # so that the interrupts come on the usual path, with its plan made
        (x + (x * 2).view(3).add_(1)).tolist()
    for k in range(1, 150, 2):
        passed = [0]

        def trace(frame: Any, event: str, arg: Any, passed: Any = passed, k: int = k) -> Any:
            if not frame.f_code.co_filename.startswith(package):
                return None
            if event in ("call", "return"):
                passed[0] += 1
                if passed[0] == k:
                    raise error
            return trace

        y = x * 2
        sys.settrace(trace)
        try:
            z = y.view(3)
            z.add_(1)
            (x + z).tolist()
        except error:
            pass
        else:
            assert passed[0] < k
        finally:
            sys.settrace(None)
        assert epoch.clock.holding == 0
        assert x.tolist() == [0, 1, 2]
        assert y.tolist() in ([0, 2, 4], [1, 3, 5])
        assert (x + 1).tolist() == [1, 2, 3]


@pytest.mark.skipif(os.name != "posix", reason="sends a signal")
def test_a_timeout_amid_a_step_leaves_the_step_whole(monkeypatch: Any) -> None:
    """The handler of a timeout raises an Exception in steps of Adam, which are made nevertheless,
    now or with the next read, and are counted."""

    def out_of_time(*signaled: Any) -> None:
        raise TimeoutError

    late: list[bool] = []
    usual = flushing._complete

    def complete(*args: Any) -> Any:
        if late:
            late.clear()
            signal.raise_signal(signal.SIGALRM)
        return usual(*args)

    monkeypatch.setattr(flushing, "_complete", complete)
    w = tw.tensor([1.0, -2.0, 3.0], requires_grad=True)
    optimizer = tw.optim.Adam([w], lr=0.1)
    before = signal.signal(signal.SIGALRM, out_of_time)
    try:
        for k in range(8):
            optimizer.zero_grad()
            (w * w).sum().backward()
            if k % 3:
                optimizer.step()
                continue
            late.append(True)
            with pytest.raises(TimeoutError):
                optimizer.step()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert optimizer.state[w]["step"].item() == 8
    x, mean, square = np.array([1.0, -2.0, 3.0]), 0.0, 0.0
    for k in range(1, 9):
        mean = 0.9 * mean + 0.1 * 2 * x
        square = 0.999 * square + 0.001 * 4 * x * x
        x = x - 0.1 * mean / (1 - 0.9**k) / (np.sqrt(square / (1 - 0.999**k)) + 1e-8)
    assert w.tolist() == pytest.approx(x, rel=1e-5)
